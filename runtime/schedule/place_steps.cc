#include "runtime/schedule/place_steps.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "graph/base/status.h"
#include "runtime/schedule/ready_groups.h"

namespace retrograd {
namespace {

constexpr uint32_t kNoStep = 0xffffffff;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int kMostTried = 64;  // groups that a free side stream looks at

class Placer {
 public:
  Placer(const BackwardGraph& graph, const FusionPlan& plan, const GroupDag& dag,
         const Neighbours& neighbours, const ScheduleOptions& options, int streams,
         ScheduleObjective objective)
      : plan_(plan),
        dag_(dag),
        neighbours_(neighbours),
        options_(options),
        ready_(graph, plan, dag, objective, neighbours),
        open_(plan.groups.size()),
        step_of_(plan.groups.size(), kNoStep),
        home_(plan.groups.size(), 0),
        barred_(plan.groups.size()),
        free_(streams, 0),
        last_(streams, kNoStep),
        last_background_(streams, kNoStep),
        unread_(streams, false),
        read_after_(streams, kNoStep) {
    schedule_.streams = streams;
    schedule_.objective = objective;
    const std::vector<int64_t> path = RemainingPath(plan, dag);
    for (uint32_t g = 0; g < plan.groups.size(); ++g) {
      leaf_.push_back(path[g] - plan.groups[g].price_ps <= options.most_overlapped_ps);
      open_[g] = dag.before[g].size();
      if (open_[g] == 0) coming_.insert({0, g});
    }
  }

  StreamSchedule Place() && {
    while (schedule_.steps.size() < plan_.groups.size()) {
      while (!coming_.empty() && coming_.begin()->first <= now_) {
        const uint32_t group = coming_.begin()->second;
        ready_.Add(group);
        ready_background_ += Background(group);
        coming_.erase(coming_.begin());
      }
      if (!PlaceNext()) Wait();
    }
    return std::move(schedule_);
  }

 private:
  // Whether a group could start now. The chain is asked first, so that it is recorded before what
  // branches off it: a replay then takes few streams of the driver's.
  bool PlaceNext() {
    for (int s = 0; s < schedule_.streams; ++s) {
      if (free_[s] > now_) continue;
      if (const std::optional<uint32_t> group = ForBackground(s)) {
        Put(*group, s);
        return true;
      }
      if (full_until_ > now_) continue;
      bool held_back = false;
      const std::optional<uint32_t> group = s == 0 ? ForChain(&held_back) : ForSide(s);
      if (group) {
        Put(*group, s);
        return true;
      }
      if (held_back) return false;  // nothing new, so that what holds it back ends
    }
    return false;
  }

  // Whether the group goes beside all others, where there is a stream for it.
  bool Background(uint32_t group) const {
    return schedule_.streams > 1 && neighbours_.Background(group);
  }
  bool FillsChip(uint32_t group) const {
    return neighbours_.FillsChip(group) && !Background(group);
  }

  // What a background step makes lives until it is read: a stream begins the next one when somebody
  // reads the last one's, unless all others wait for the next one.
  std::optional<uint32_t> ForBackground(int stream) const {
    std::optional<uint32_t> found;
    if (stream == 0 || ready_background_ == 0) return found;
    if (unread_[stream] && !all_wait_) return found;
    ready_.Each([&](uint32_t g) {
      if (Background(g)) found = g;
      return !found.has_value();
    });
    return found;
  }

  // A group is placed that may be the first to read what a stream's last background step makes:
  // whoever stands in front of it, on its own stream, has ended then.
  void NoteReads(uint32_t group, uint32_t in_front) {
    for (int s = 1; s < schedule_.streams; ++s) {
      if (!unread_[s]) continue;
      const std::vector<uint32_t>& before = dag_.before[group];
      if (std::find(before.begin(), before.end(), last_background_[s]) == before.end()) continue;
      unread_[s] = false;
      read_after_[s] = in_front;
    }
  }

  // The steps of other streams that run now, but for those in the background.
  std::vector<uint32_t> RunningBeside(int stream) const {
    std::vector<uint32_t> running;
    for (int s = 0; s < schedule_.streams; ++s) {
      if (s == stream || free_[s] <= now_) continue;
      if (!schedule_.steps[last_[s]].background) running.push_back(last_[s]);
    }
    return running;
  }

  std::optional<uint32_t> ForChain(bool* held_back) {
    const std::vector<uint32_t> running = RunningBeside(0);
    std::optional<uint32_t> found;
    ready_.Each([&](uint32_t g) {
      if (home_[g] != 0 || Background(g)) return true;
      for (uint32_t r : running) {
        const bool bars =
            FillsChip(g) || neighbours_.Factor(g, Index(schedule_.steps[r].group)) >= 1;
        if (bars) barred_[g].push_back(r);
        *held_back = *held_back || bars;
      }
      if (!*held_back) found = g;
      return false;
    });
    return found;
  }

  std::optional<uint32_t> ForSide(int stream) {
    const std::vector<uint32_t> running = RunningBeside(stream);
    // What follows work of this stream first: no edge leads to it, and it frees memory.
    for (int home : {stream, 0}) {
      std::optional<uint32_t> found;
      int tried = 0;
      ready_.Each([&](uint32_t g) {
        if (FillsChip(g) || !leaf_[g] || home_[g] != home) return true;
        if (Gains(g, running)) found = g;
        return !found.has_value() && ++tried < kMostTried;
      });
      if (found) return found;
    }
    return std::nullopt;
  }

  // Whether a group gains beside what runs more than an edge to it costs. Where it follows work of
  // the side stream there is none.
  bool Gains(uint32_t group, const std::vector<uint32_t>& running) const {
    if (plan_.groups[group].price_ps == 0) return home_[group] != 0;  // nothing runs
    double worst = 0.5;
    for (uint32_t r : running) {
      worst = std::max(worst, neighbours_.Factor(group, Index(schedule_.steps[r].group)));
    }
    if (!neighbours_.WorthOverlapping(worst)) return false;
    if (home_[group] != 0) return true;
    const auto price = static_cast<double>(plan_.groups[group].price_ps);
    return price * 2 * (1 - worst) > static_cast<double>(options_.edge_ps);
  }

  void Put(uint32_t group, int stream) {
    const auto id = static_cast<uint32_t>(schedule_.steps.size());
    Step step{.group = GroupId{group},
              .stream = stream,
              .start_ps = now_,
              .fills_chip = FillsChip(group),
              .background = Background(group)};
    std::vector<uint32_t> after = std::move(barred_[group]);
    for (uint32_t p : dag_.before[group]) after.push_back(step_of_[p]);
    if (last_full_ != kNoStep && !step.background) after.push_back(last_full_);
    if (step.fills_chip) after.insert(after.end(), since_full_.begin(), since_full_.end());
    if (step.background && read_after_[stream] != kNoStep) after.push_back(read_after_[stream]);
    for (uint32_t a : after) {
      if (schedule_.steps[a].stream != stream) step.waits.push_back(a);
    }
    step.end_ps = now_ + plan_.groups[group].price_ps + LongerBeside(group, stream);
    free_[stream] = step.end_ps;
    NoteReads(group, last_[stream]);
    last_[stream] = id;
    all_wait_ = false;
    if (step.background) {
      --ready_background_;
      last_background_[stream] = group;
      unread_[stream] = !dag_.after[group].empty();
      read_after_[stream] = kNoStep;
    }
    if (step.fills_chip) {
      last_full_ = id;
      full_until_ = step.end_ps;
      since_full_.clear();
    } else if (!step.background) {
      since_full_.push_back(id);
    }
    step_of_[group] = id;
    schedule_.makespan_ps = std::max(schedule_.makespan_ps, step.end_ps);
    schedule_.steps.push_back(std::move(step));
    ready_.Run(group);
    for (uint32_t next : dag_.after[group]) {
      if (--open_[next] == 0) Expect(next);
    }
  }

  // How much longer the group takes beside what runs.
  int64_t LongerBeside(uint32_t group, int stream) const {
    int64_t longer = 0;
    if (Background(group)) return longer;
    const int64_t price = plan_.groups[group].price_ps;
    for (uint32_t r : RunningBeside(stream)) {
      longer = std::max(longer, neighbours_.LongerBeside(group, price, now_, schedule_.steps[r]));
    }
    return longer;
  }

  // Everything that the group depends on has been placed.
  void Expect(uint32_t group) {
    const Step* latest = nullptr;
    for (uint32_t p : dag_.before[group]) {
      const Step& step = schedule_.steps[step_of_[p]];
      if (latest == nullptr || step.end_ps > latest->end_ps) latest = &step;
    }
    const bool may_follow = leaf_[group] && !FillsChip(group) && !latest->background;
    if (may_follow) home_[group] = latest->stream;
    coming_.insert({latest->end_ps, group});
  }

  // Until something ends; where nothing runs, only groups for the background are left to go on.
  void Wait() {
    int64_t next = coming_.empty() ? kNever : coming_.begin()->first;
    for (int64_t free : free_) {
      if (free > now_) next = std::min(next, free);
    }
    RG_CHECK(next > now_);
    if (next != kNever) {
      now_ = next;
    } else {
      RG_CHECK(!all_wait_);
      all_wait_ = true;
    }
  }

  const FusionPlan& plan_;
  const GroupDag& dag_;
  const Neighbours& neighbours_;
  const ScheduleOptions& options_;
  StreamSchedule schedule_;
  ReadyGroups ready_;
  std::vector<bool> leaf_;    // by group: what waits for it takes no longer than overlapped work
  std::vector<size_t> open_;  // by group: dependencies that have not been placed
  std::vector<uint32_t> step_of_;  // by group
  std::vector<int> home_;          // by group: the side stream that it must run on; 0: any
  std::vector<std::vector<uint32_t>> barred_;      // by group: steps that it let pass
  std::set<std::pair<int64_t, uint32_t>> coming_;  // when a group's dependencies have finished
  int64_t now_ = 0;
  std::vector<int64_t> free_;              // by stream: when its last step ends
  std::vector<uint32_t> last_;             // by stream: its last step
  std::vector<uint32_t> last_background_;  // by stream: its last group in the background
  std::vector<bool> unread_;               // by stream: whether somebody will read what that makes
  std::vector<uint32_t> read_after_;  // by stream: the step in front of that one's first reader
  int ready_background_ = 0;          // groups in ready_ that go to the background
  bool all_wait_ = false;             // nothing runs, and nothing else can start
  uint32_t last_full_ = kNoStep;      // the last step that fills the chip
  int64_t full_until_ = 0;            // when it ends
  std::vector<uint32_t> since_full_;  // the steps after it
};

}  // namespace

StreamSchedule PlaceSteps(const BackwardGraph& graph, const FusionPlan& plan, const GroupDag& dag,
                          const Neighbours& neighbours, const ScheduleOptions& options, int streams,
                          ScheduleObjective objective) {
  return Placer(graph, plan, dag, neighbours, options, streams, objective).Place();
}

void PredictTimes(const FusionPlan& plan, const Neighbours& neighbours, int64_t edge_ps,
                  StreamSchedule* schedule) {
  std::vector<bool> waited_for(schedule->steps.size(), false);
  for (const Step& step : schedule->steps) {
    for (uint32_t wait : step.waits) waited_for[wait] = true;
  }
  std::vector<std::vector<uint32_t>> steps_of(schedule->streams);
  schedule->makespan_ps = 0;
  for (uint32_t i = 0; i < schedule->steps.size(); ++i) {
    Step& step = schedule->steps[i];
    std::vector<uint32_t>& own = steps_of[step.stream];
    step.start_ps = own.empty() ? 0 : schedule->steps[own.back()].end_ps;
    for (uint32_t wait : step.waits) {
      step.start_ps = std::max(step.start_ps, schedule->steps[wait].end_ps);
    }
    const int64_t price = plan.groups[Index(step.group)].price_ps;
    int64_t longer = 0;
    const bool alone = step.fills_chip || step.background;
    for (int s = 0; s < schedule->streams && !alone; ++s) {
      if (s == step.stream) continue;
      for (size_t k = steps_of[s].size(); k-- > 0;) {
        const Step& other = schedule->steps[steps_of[s][k]];
        if (other.end_ps <= step.start_ps) break;
        if (other.background) continue;
        longer = std::max(longer,
                          neighbours.LongerBeside(Index(step.group), price, step.start_ps, other));
      }
    }
    step.end_ps = step.start_ps + price + longer + (waited_for[i] ? edge_ps : 0);
    schedule->makespan_ps = std::max(schedule->makespan_ps, step.end_ps);
    own.push_back(i);
  }
}

}  // namespace retrograd
