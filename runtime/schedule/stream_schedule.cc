#include "runtime/schedule/stream_schedule.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_format.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "runtime/schedule/neighbours.h"
#include "runtime/schedule/place_steps.h"

namespace retrograd {
namespace {

constexpr uint32_t kNoStep = 0xffffffff;

// Drops the waits that the stream's own order or another wait implies. Steps are taken in order, so
// that what an earlier step knows comes from its remaining waits.
void ElideImpliedWaits(StreamSchedule* schedule) {
  const int streams = schedule->streams;
  std::vector<std::vector<uint32_t>> known(schedule->steps.size(),
                                           std::vector<uint32_t>(streams, 0));
  std::vector<uint32_t> count(streams, 0), last(streams, kNoStep), place(schedule->steps.size());
  for (uint32_t i = 0; i < schedule->steps.size(); ++i) {
    Step& step = schedule->steps[i];
    std::vector<uint32_t>& clock = known[i];
    const auto learn = [&](uint32_t earlier) {
      for (int s = 0; s < streams; ++s) clock[s] = std::max(clock[s], known[earlier][s]);
      uint32_t& own = clock[schedule->steps[earlier].stream];
      own = std::max(own, place[earlier] + 1);
    };
    if (last[step.stream] != kNoStep) learn(last[step.stream]);
    std::vector<uint32_t> waits = std::move(step.waits);
    step.waits.clear();
    std::sort(waits.begin(), waits.end(), std::greater<uint32_t>());  // the latest know the most
    for (uint32_t wait : waits) {
      if (clock[schedule->steps[wait].stream] > place[wait]) continue;
      step.waits.push_back(wait);
      learn(wait);
    }
    std::sort(step.waits.begin(), step.waits.end());
    place[i] = count[step.stream]++;
    last[step.stream] = i;
  }
}

// The schedule on so many streams.
StreamSchedule ScheduleOn(int streams, const BackwardGraph& graph, const FusionPlan& plan,
                          const GroupDag& dag, const Neighbours& neighbours,
                          const ScheduleOptions& options) {
  const ScheduleObjective objective = options.objective.value_or(
      streams == 1 ? ScheduleObjective::kPeakMemory : ScheduleObjective::kLatency);
  StreamSchedule schedule = PlaceSteps(graph, plan, dag, neighbours, options, streams, objective);
  ElideImpliedWaits(&schedule);
  PredictTimes(plan, neighbours, options.edge_ps, &schedule);
  return schedule;
}

}  // namespace

absl::string_view Name(ScheduleObjective objective) {
  return objective == ScheduleObjective::kLatency ? "latency" : "peak_memory";
}

bool FillsChip(const Work& work, int64_t chip_blocks) {
  return work.launches && work.blocks >= chip_blocks;
}

absl::StatusOr<StreamSchedule> ScheduleStreams(const BackwardGraph& graph, const FusionPlan& plan,
                                               const ScheduleOptions& options) {
  if (options.streams < 0 || options.streams > kMaxStreams) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d streams asked for; choose 1 to %d, or 0 for as many as gain",
                        options.streams, kMaxStreams));
  }
  RG_ASSIGN_OR_RETURN(const GroupDag dag, BuildGroupDag(graph, plan));
  const Neighbours neighbours(plan, options);
  const auto on = [&](int streams) {
    return ScheduleOn(streams, graph, plan, dag, neighbours, options);
  };
  StreamSchedule best = on(std::max(options.streams, 1));
  if (options.streams != 0 || options.interference.empty()) return best;
  for (int streams = 2; streams <= kMostChosenStreams; ++streams) {
    StreamSchedule more = on(streams);
    const double least = options.worth_streams * static_cast<double>(best.makespan_ps);
    if (static_cast<double>(more.makespan_ps) < least) best = std::move(more);
  }
  return best;
}

}  // namespace retrograd
