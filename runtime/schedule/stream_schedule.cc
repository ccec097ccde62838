// List scheduling: of the groups whose inputs are ready the most urgent one goes next, on the
// stream where it can start first. Urgency is the time of the longest chain that still depends on a
// group, so that the chain of input gradients leads and a weight gradient, which nobody waits for,
// fills gaps.
#include "runtime/schedule/stream_schedule.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "absl/strings/str_format.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "runtime/schedule/happens_before.h"

namespace retrograd {
namespace {

constexpr uint32_t kNoStep = 0xffffffff;

// Time of the longest chain that starts with each group.
std::vector<int64_t> RemainingPath(const FusionPlan& plan, const GroupDag& dag) {
  const size_t n = plan.groups.size();
  std::vector<int64_t> path(n, 0);
  std::vector<size_t> open(n);
  std::vector<uint32_t> ready;
  for (uint32_t g = 0; g < n; ++g) {
    open[g] = dag.after[g].size();
    if (open[g] == 0) ready.push_back(g);
  }
  while (!ready.empty()) {
    const uint32_t g = ready.back();
    ready.pop_back();
    path[g] += plan.groups[g].price_ps;
    for (uint32_t p : dag.before[g]) {
      path[p] = std::max(path[p], path[g]);
      if (--open[p] == 0) ready.push_back(p);
    }
  }
  return path;
}

// How much memory in use grows when a group runs now: what it stores less what it is the last to
// read. Inputs and outputs of the graph are the caller's and count nothing.
class MemoryChange {
 public:
  MemoryChange(const BackwardGraph& graph, const FusionPlan& plan)
      : graph_(graph),
        bytes_(graph.num_values(), 0),
        readers_(graph.num_values()),
        left_(graph.num_values(), 0),
        change_(plan.groups.size(), 0),
        done_(plan.groups.size()),
        reads_(plan.groups.size()) {
    for (const Group& group : plan.groups) {
      for (ValueId v : group.outputs) bytes_[graph.value_index(v)] = StorageBytes(graph, plan, v);
    }
    for (const GraphOutput& output : graph.outputs()) {
      if (output.value) bytes_[graph.value_index(*output.value)] = 0;
    }
    for (uint32_t g = 0; g < plan.groups.size(); ++g) {
      reads_[g] = ValuesRead(plan.groups[g]);
      for (ValueId v : reads_[g]) readers_[graph.value_index(v)].push_back(g);
      for (ValueId v : plan.groups[g].outputs) change_[g] += bytes_[graph.value_index(v)];
    }
    for (size_t v = 0; v < readers_.size(); ++v) {
      left_[v] = readers_[v].size();
      if (left_[v] == 1) change_[readers_[v][0]] -= bytes_[v];
    }
  }

  int64_t operator[](uint32_t group) const { return change_[group]; }

  // Marks the group as run; `changed` receives the groups whose number differs now.
  void Run(uint32_t group, std::vector<uint32_t>* changed) {
    done_[group] = true;
    for (ValueId value : reads_[group]) {
      const size_t v = graph_.value_index(value);
      if (--left_[v] != 1 || bytes_[v] == 0) continue;
      for (uint32_t reader : readers_[v]) {
        if (!done_[reader]) changed->push_back(reader);
      }
      pending_.push_back(v);
    }
  }
  // Applies what Run found; between the two the caller takes `changed` out of its queue.
  void Apply(const std::vector<uint32_t>& changed) {
    for (size_t i = 0; i < changed.size(); ++i) change_[changed[i]] -= bytes_[pending_[i]];
    pending_.clear();
  }

 private:
  const BackwardGraph& graph_;
  std::vector<int64_t> bytes_;                  // by value
  std::vector<std::vector<uint32_t>> readers_;  // by value
  std::vector<size_t> left_;                    // by value: readers that have not run
  std::vector<int64_t> change_;                 // by group
  std::vector<bool> done_;
  std::vector<std::vector<ValueId>> reads_;
  std::vector<size_t> pending_;
};

// Groups in the order in which they go. One that fills the chip takes its time whenever it runs, so
// it goes at once if that frees memory, under either objective.
std::vector<uint32_t> UrgencyOrder(const BackwardGraph& graph, const FusionPlan& plan,
                                   const GroupDag& dag, ScheduleObjective objective,
                                   const std::vector<bool>& fills_chip) {
  const std::vector<int64_t> path = RemainingPath(plan, dag);
  MemoryChange change(graph, plan);
  using Key = std::tuple<int64_t, int64_t, uint32_t>;
  const auto key = [&](uint32_t g) {
    const bool by_memory = objective == ScheduleObjective::kPeakMemory || fills_chip[g];
    const int64_t growth = by_memory ? std::min<int64_t>(change[g], 1) : 0;
    return Key{growth, -path[g], g};
  };
  std::set<Key> ready;
  std::vector<size_t> open(plan.groups.size());
  for (uint32_t g = 0; g < plan.groups.size(); ++g) {
    open[g] = dag.before[g].size();
    if (open[g] == 0) ready.insert(key(g));
  }
  std::vector<uint32_t> order, changed;
  while (!ready.empty()) {
    const uint32_t g = std::get<2>(*ready.begin());
    ready.erase(ready.begin());
    order.push_back(g);
    changed.clear();
    change.Run(g, &changed);
    for (uint32_t c : changed) ready.erase(key(c));
    change.Apply(changed);
    for (uint32_t c : changed) {
      if (open[c] == 0) ready.insert(key(c));
    }
    for (uint32_t s : dag.after[g]) {
      if (--open[s] == 0) ready.insert(key(s));
    }
  }
  return order;
}

// What may run beside what, by the device's table.
class Neighbours {
 public:
  Neighbours(const FusionPlan& plan, const ScheduleOptions& options)
      : table_(options.interference), worth_overlapping_(options.worth_overlapping) {
    if (table_.empty()) return;
    for (const Group& group : plan.groups) {
      const Work work = WorkOf(group);
      kinds_.push_back(work.kind);
      // With a share that no row has it is overlapped with nothing.
      const bool known = work.may_overlap && work.ps <= options.most_overlapped_ps;
      shares_.push_back(known ? static_cast<double>(work.blocks) /
                                    static_cast<double>(std::max<int64_t>(options.chip_blocks, 1))
                              : std::numeric_limits<double>::infinity());
    }
  }
  // Runs alone: nothing beside it would gain.
  bool FillsChip(const FusionPlan& plan, const ScheduleOptions& options, uint32_t group) const {
    if (table_.empty())
      return retrograd::FillsChip(WorkOf(plan.groups[group]), options.chip_blocks);
    return shares_[group] > 0 && !table_.Pays(kinds_[group], shares_[group], worth_overlapping_);
  }
  bool WorthOverlapping(double factor) const { return factor < worth_overlapping_; }
  // Time of both together, as a part of that of one after the other.
  double Factor(uint32_t a, uint32_t b) const {
    return table_.empty() ? 0.5 : table_.Factor(kinds_[a], shares_[a], kinds_[b], shares_[b]);
  }

 private:
  const InterferenceTable& table_;
  const double worth_overlapping_;
  std::vector<WorkKind> kinds_;  // by group
  std::vector<double> shares_;   // of the chip
};

// Where time stands on each stream while steps are placed.
struct Timeline {
  std::vector<uint32_t> last;        // by stream: its last step
  std::vector<int64_t> free;         // by stream: when that ends
  uint32_t last_full = kNoStep;      // the last step that fills the chip
  std::vector<uint32_t> since_full;  // the steps after it
};

// The stream on which a small group starts first; among equals the one that its latest dependency
// ran on, which saves a wait, then the lowest.
int ChooseStream(const Timeline& timeline, int64_t ready_ps, int preferred) {
  int best = preferred;
  for (int s = 0; s < static_cast<int>(timeline.free.size()); ++s) {
    if (std::max(timeline.free[s], ready_ps) < std::max(timeline.free[best], ready_ps)) best = s;
  }
  return best;
}

// Steps beside which the group must not run, of those that end after `from`; and by how much the
// others lengthen a group that starts there.
struct Beside {
  std::vector<uint32_t> barred;
  int64_t longer_ps = 0;
};
Beside FindBeside(const FusionPlan& plan, const StreamSchedule& schedule, const Timeline& timeline,
                  const Neighbours& neighbours, uint32_t group, int stream, int64_t from_ps) {
  Beside beside;
  const int64_t price = plan.groups[group].price_ps;
  for (uint32_t s : timeline.since_full) {
    const Step& other = schedule.steps[s];
    const bool apart = other.end_ps <= from_ps || other.start_ps >= from_ps + price;
    if (other.stream == stream || apart) continue;
    const double factor = neighbours.Factor(group, Index(other.group));
    if (!neighbours.WorthOverlapping(factor)) {
      beside.barred.push_back(s);
      continue;
    }
    // Two of equal times t take 2 * factor * t.
    const int64_t shared =
        std::min(other.end_ps, from_ps + price) - std::max(other.start_ps, from_ps);
    const auto longer = static_cast<int64_t>(static_cast<double>(shared) * (2 * factor - 1));
    beside.longer_ps = std::max(beside.longer_ps, longer);
  }
  return beside;
}

// Places the groups one after another and puts a wait on every cross-stream edge.
StreamSchedule Place(const FusionPlan& plan, const GroupDag& dag, absl::Span<const uint32_t> order,
                     const std::vector<bool>& fills_chip, const Neighbours& neighbours,
                     const ScheduleOptions& options) {
  StreamSchedule schedule;
  schedule.streams = options.streams;
  std::vector<uint32_t> step_of(plan.groups.size(), kNoStep);
  Timeline timeline{std::vector<uint32_t>(options.streams, kNoStep),
                    std::vector<int64_t>(options.streams, 0),
                    kNoStep,
                    {}};
  for (uint32_t g : order) {
    const uint32_t id = static_cast<uint32_t>(schedule.steps.size());
    Step step{.group = GroupId{g}, .fills_chip = fills_chip[g]};
    std::vector<uint32_t> after;
    for (uint32_t p : dag.before[g]) after.push_back(step_of[p]);
    if (timeline.last_full != kNoStep) after.push_back(timeline.last_full);
    if (step.fills_chip) {
      after.insert(after.end(), timeline.since_full.begin(), timeline.since_full.end());
    }
    int64_t ready_ps = 0;
    int preferred = 0;
    for (uint32_t a : after) {
      if (schedule.steps[a].end_ps <= ready_ps) continue;
      ready_ps = schedule.steps[a].end_ps;
      preferred = schedule.steps[a].stream;
    }
    Beside beside;
    do {
      for (uint32_t b : beside.barred) {
        after.push_back(b);
        if (schedule.steps[b].end_ps <= ready_ps) continue;
        ready_ps = schedule.steps[b].end_ps;
        preferred = schedule.steps[b].stream;
      }
      step.stream = step.fills_chip ? 0 : ChooseStream(timeline, ready_ps, preferred);
      step.start_ps = std::max(ready_ps, timeline.free[step.stream]);
      beside = step.fills_chip ? Beside{}
                               : FindBeside(plan, schedule, timeline, neighbours, g, step.stream,
                                            step.start_ps);
    } while (!beside.barred.empty());
    step.end_ps = step.start_ps + plan.groups[g].price_ps + beside.longer_ps;
    for (uint32_t a : after) {
      if (schedule.steps[a].stream != step.stream) step.waits.push_back(a);
    }
    timeline.last[step.stream] = id;
    timeline.free[step.stream] = step.end_ps;
    if (step.fills_chip) {
      timeline.last_full = id;
      timeline.since_full.clear();
    } else {
      timeline.since_full.push_back(id);
    }
    schedule.makespan_ps = std::max(schedule.makespan_ps, step.end_ps);
    step_of[g] = id;
    schedule.steps.push_back(std::move(step));
  }
  return schedule;
}

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

}  // namespace

absl::string_view Name(ScheduleObjective objective) {
  return objective == ScheduleObjective::kLatency ? "latency" : "peak_memory";
}

bool FillsChip(const Work& work, int64_t chip_blocks) {
  return work.launches && work.blocks >= chip_blocks;
}

absl::StatusOr<StreamSchedule> ScheduleStreams(const BackwardGraph& graph, const FusionPlan& plan,
                                               const ScheduleOptions& options) {
  if (options.streams < 1 || options.streams > kMaxStreams) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d streams asked for; choose 1 to %d", options.streams, kMaxStreams));
  }
  RG_ASSIGN_OR_RETURN(const GroupDag dag, BuildGroupDag(graph, plan));
  const ScheduleObjective objective = options.objective.value_or(
      options.streams == 1 ? ScheduleObjective::kPeakMemory : ScheduleObjective::kLatency);
  const Neighbours neighbours(plan, options);
  std::vector<bool> fills_chip;
  for (uint32_t g = 0; g < plan.groups.size(); ++g) {
    fills_chip.push_back(neighbours.FillsChip(plan, options, g));
  }
  StreamSchedule schedule = Place(plan, dag, UrgencyOrder(graph, plan, dag, objective, fills_chip),
                                  fills_chip, neighbours, options);
  schedule.objective = objective;
  ElideImpliedWaits(&schedule);
  return schedule;
}

}  // namespace retrograd
