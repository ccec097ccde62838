// The text form of a stream schedule and the check of its invariants.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "fusion/calls/work.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "runtime/schedule/happens_before.h"
#include "runtime/schedule/stream_schedule.h"

namespace retrograd {
namespace {

template <typename... Args>
absl::Status Broken(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::InternalError(absl::StrFormat(format, args...));
}

// S1, and what the others need to be meaningful: streams, waits and times in range.
absl::Status CheckSteps(const StreamSchedule& schedule, size_t groups) {
  if (schedule.streams < 1 || schedule.streams > kMaxStreams) {
    return Broken("S1: %d streams, at most %d exist", schedule.streams, kMaxStreams);
  }
  std::vector<bool> seen(groups, false);
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    if (Index(step.group) >= groups || seen[Index(step.group)]) {
      return Broken("S1: step %d runs group %d, which does not exist or ran before", i,
                    Index(step.group));
    }
    seen[Index(step.group)] = true;
    if (step.stream < 0 || step.stream >= schedule.streams) {
      return Broken("S1: step %d is on stream %d of %d", i, step.stream, schedule.streams);
    }
    for (uint32_t wait : step.waits) {
      if (wait >= i || schedule.steps[wait].stream == step.stream) {
        return Broken("S3: step %d waits for step %d, not an earlier step of another stream", i,
                      wait);
      }
    }
  }
  if (schedule.steps.size() != groups) {
    return Broken("S1: %d steps for %d groups", schedule.steps.size(), groups);
  }
  return absl::OkStatus();
}

absl::Status CheckWaitsNeeded(const StreamSchedule& schedule, const HappensBefore& order) {
  std::vector<uint32_t> previous(schedule.streams, 0xffffffff);
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    for (uint32_t wait : step.waits) {
      bool implied =
          previous[step.stream] != 0xffffffff && order.Precedes(wait, previous[step.stream]);
      for (uint32_t other : step.waits) {
        implied = implied || (other != wait && (order.Precedes(wait, other)));
      }
      if (implied) return Broken("S3: step %d need not wait for step %d", i, wait);
    }
    previous[step.stream] = i;
  }
  return absl::OkStatus();
}

// Of S5: what may run beside all others.
absl::Status CheckBackground(const StreamSchedule& schedule, const FusionPlan& plan) {
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    if (!step.background) continue;
    if (step.stream == 0 || step.fills_chip || !WorkOf(plan.groups[Index(step.group)]).background) {
      return Broken("S5: step %d is in the background, where its group or its stream cannot be", i);
    }
  }
  return absl::OkStatus();
}

// S4 and S5. Both follow for all pairs when they hold along streams and waits (S4), and between
// each filling step and its neighbours in the order of steps (S5).
absl::Status CheckTimes(const StreamSchedule& schedule, const HappensBefore& order) {
  std::vector<uint32_t> previous(schedule.streams, 0xffffffff);
  uint32_t last_full = 0xffffffff;
  std::vector<uint32_t> since_full;
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    std::vector<uint32_t> before = step.waits;
    if (previous[step.stream] != 0xffffffff) before.push_back(previous[step.stream]);
    for (uint32_t b : before) {
      if (schedule.steps[b].end_ps > step.start_ps) {
        return Broken("S4: step %d starts at %d ps, before step %d ends at %d ps", i, step.start_ps,
                      b, schedule.steps[b].end_ps);
      }
    }
    if (step.end_ps < step.start_ps || step.end_ps > schedule.makespan_ps) {
      return Broken("S4: step %d runs from %d to %d ps of %d ps", i, step.start_ps, step.end_ps,
                    schedule.makespan_ps);
    }
    previous[step.stream] = i;
    if (step.background) continue;
    if (last_full != 0xffffffff && !order.Precedes(last_full, i)) {
      return Broken("S5: step %d may run beside step %d, which fills the chip", i, last_full);
    }
    if (step.fills_chip) {
      for (uint32_t s : since_full) {
        if (!order.Precedes(s, i)) {
          return Broken("S5: step %d fills the chip and may run beside step %d", i, s);
        }
      }
      since_full.clear();
      last_full = i;
    } else {
      since_full.push_back(i);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Step> ParseStep(absl::string_view line, uint32_t number) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  const auto bad = [&](absl::string_view expected) {
    return absl::InvalidArgumentError(
        absl::StrFormat("schedule step %d: expected %s in \"%s\"", number, expected, line));
  };
  uint32_t id = 0, group = 0;
  Step step;
  if (words.size() < 6) return bad("\"N sK group G START..END ps\"");
  if (!absl::SimpleAtoi(words[0], &id) || id != number) return bad("its number first");
  if (words[1][0] != 's' || !absl::SimpleAtoi(words[1].substr(1), &step.stream)) {
    return bad("a stream like s0");
  }
  if (words[2] != "group" || !absl::SimpleAtoi(words[3], &group)) return bad("group N");
  step.group = GroupId{group};
  const std::vector<absl::string_view> times = absl::StrSplit(words[4], "..");
  if (times.size() != 2 || !absl::SimpleAtoi(times[0], &step.start_ps) ||
      !absl::SimpleAtoi(times[1], &step.end_ps) || words[5] != "ps") {
    return bad("START..END ps");
  }
  size_t next = 6;
  if (next < words.size() && words[next] == "fills") {
    step.fills_chip = true;
    ++next;
  } else if (next < words.size() && words[next] == "background") {
    step.background = true;
    ++next;
  }
  if (next == words.size()) return step;
  if (words[next] != "wait") return bad("wait");
  for (++next; next < words.size(); ++next) {
    uint32_t wait = 0;
    if (!absl::SimpleAtoi(words[next], &wait)) return bad("step numbers after wait");
    step.waits.push_back(wait);
  }
  return step;
}

}  // namespace

absl::Status StreamSchedule::Verify(const BackwardGraph& graph, const FusionPlan& plan) const {
  RG_RETURN_IF_ERROR(CheckSteps(*this, plan.groups.size()));
  RG_ASSIGN_OR_RETURN(const GroupDag dag, BuildGroupDag(graph, plan));
  const HappensBefore order(*this);
  std::vector<uint32_t> step_of(steps.size());
  for (uint32_t i = 0; i < steps.size(); ++i) step_of[Index(steps[i].group)] = i;
  for (uint32_t g = 0; g < dag.before.size(); ++g) {
    for (uint32_t p : dag.before[g]) {
      if (!order.Precedes(step_of[p], step_of[g])) {
        return Broken("S2: step %d (group %d) does not know that step %d (group %d) has finished",
                      step_of[g], g, step_of[p], p);
      }
    }
  }
  RG_RETURN_IF_ERROR(CheckWaitsNeeded(*this, order));
  RG_RETURN_IF_ERROR(CheckBackground(*this, plan));
  return CheckTimes(*this, order);
}

std::string StreamSchedule::Print() const {
  std::string text = absl::StrFormat("schedule streams=%d objective=%s makespan=%d\n", streams,
                                     Name(objective), makespan_ps);
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    absl::StrAppendFormat(&text, "%d s%d group %d %d..%d ps", i, step.stream, Index(step.group),
                          step.start_ps, step.end_ps);
    if (step.fills_chip) text += " fills";
    if (step.background) text += " background";
    if (!step.waits.empty()) text += " wait";
    for (uint32_t wait : step.waits) absl::StrAppend(&text, " ", wait);
    text += "\n";
  }
  return text;
}

absl::StatusOr<StreamSchedule> ParseStreamSchedule(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  const auto bad_head = [] {
    return absl::InvalidArgumentError(
        "schedule: the first line must be \"schedule streams=N objective=NAME makespan=PS\"");
  };
  if (lines.empty()) return bad_head();
  const std::vector<absl::string_view> head = absl::StrSplit(lines[0], ' ');
  StreamSchedule schedule;
  if (head.size() != 4 || head[0] != "schedule" || !absl::StartsWith(head[1], "streams=") ||
      !absl::SimpleAtoi(head[1].substr(8), &schedule.streams) ||
      !absl::StartsWith(head[3], "makespan=") ||
      !absl::SimpleAtoi(head[3].substr(9), &schedule.makespan_ps)) {
    return bad_head();
  }
  if (head[2] == "objective=latency") {
    schedule.objective = ScheduleObjective::kLatency;
  } else if (head[2] == "objective=peak_memory") {
    schedule.objective = ScheduleObjective::kPeakMemory;
  } else {
    return bad_head();
  }
  for (uint32_t i = 1; i < lines.size(); ++i) {
    RG_ASSIGN_OR_RETURN(Step step, ParseStep(lines[i], i - 1));
    schedule.steps.push_back(std::move(step));
  }
  return schedule;
}

}  // namespace retrograd
