#include "fusion/planner/memory_ceiling.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "fusion/analysis/region_signature.h"
#include "fusion/kernel/build/build.h"
#include "fusion/plan/peak_memory.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Search bound: the prices of memory that are tried, in picoseconds a MiB. The first is 2% of what
// writing and reading one takes at 4 TB/s, the last weighs more than any kernel's time.
constexpr int64_t kPrices[] = {0, 10'000, 100'000, 1'000'000, 10'000'000, 1'000'000'000};

// Search bound: plans that are made to see whether a split helps.
constexpr int kMostKernelSplits = 48;

constexpr size_t kNever = std::numeric_limits<size_t>::max();

// What a status has with it where no plan obeys the ceiling.
constexpr char kLeastBytes[] = "retrograd.least_bytes";

std::optional<int64_t> LeastBytesOf(const absl::Status& status) {
  int64_t least = 0;
  const auto payload = status.GetPayload(kLeastBytes);
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &least)) return std::nullopt;
  return least;
}

// How far a plan is from less memory: the peak, and how often it is reached.
struct Height {
  int64_t peak = 0;
  int64_t times = 0;
  friend auto operator<=>(const Height&, const Height&) = default;
};

Height HeightOf(const BackwardGraph& graph, const FusionPlan& plan) {
  Height height{.peak = plan.summary.peak_bytes};
  for (int64_t bytes : LiveBytes(graph, plan)) height.times += bytes == height.peak;
  return height;
}

// The same pairs in all regions that are equal to theirs: equal layers are separated alike.
class Mirror {
 public:
  explicit Mirror(const PlanningContext& context) : context_(context) {}

  std::vector<PairChoice> Everywhere(const std::vector<PairChoice>& pairs) {
    FindEquals();
    std::vector<PairChoice> all;
    for (const PairChoice& pair : pairs) {
      const int region = context_.region_of[Index(pair.a)];
      const std::vector<NodeId>& ops = context_.regions[region].ops;
      const auto position = [&](NodeId id) {
        return std::lower_bound(ops.begin(), ops.end(), id) - ops.begin();
      };
      for (int other : equals_[class_of_[region]]) {
        const std::vector<NodeId>& theirs = context_.regions[other].ops;
        all.push_back({theirs[position(pair.a)], theirs[position(pair.b)], false});
      }
    }
    return all;
  }

 private:
  void FindEquals() {
    if (!class_of_.empty()) return;
    absl::flat_hash_map<std::string, size_t> number;
    for (size_t r = 0; r < context_.regions.size(); ++r) {
      auto [at, added] =
          number.try_emplace(RegionSignature(context_.graph, context_.consumers,
                                             context_.regions[r], context_.pricer.numbers()),
                             equals_.size());
      if (added) equals_.emplace_back();
      class_of_.push_back(at->second);
      equals_[at->second].push_back(static_cast<int>(r));
    }
  }

  const PlanningContext& context_;
  std::vector<size_t> class_of_;          // by region
  std::vector<std::vector<int>> equals_;  // by class: its regions
};

// Pairs that keep the two sides of a split apart; none if an op is no kernel's or they share
// none.
std::vector<PairChoice> PairsOf(const PlanningContext& context, const KernelSplit& split) {
  std::vector<PairChoice> pairs;
  for (NodeId a : split.first) {
    for (NodeId b : split.later) {
      const int region = context.region_of[Index(a)];
      if (a == b || region < 0 || region != context.region_of[Index(b)]) return {};
      pairs.push_back({std::min(a, b), std::max(a, b), false});
    }
  }
  return pairs;
}

class Search {
 public:
  Search(const PlanningContext& context, int64_t max_bytes, PlanUnder plan)
      : context_(context), max_bytes_(max_bytes), plan_(plan) {}

  absl::StatusOr<CeilingChoice> Run() {
    for (const int64_t price : kPrices) {
      for (const GroupOrder order : {GroupOrder::kProgram, GroupOrder::kLeastMemory}) {
        CeilingChoice choice{.memory_ps_per_mib = price, .order = order};
        RG_ASSIGN_OR_RETURN(FusionPlan plan, plan_(choice));
        if (Obeys(plan)) return choice;
        if (order == GroupOrder::kLeastMemory) KeepLowest(std::move(choice), std::move(plan));
      }
    }
    RG_RETURN_IF_ERROR(Part());
    if (Obeys(lowest_plan_)) return lowest_;
    absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
        "no plan found whose values take at most ", max_bytes_, " bytes at once; the least was ",
        least_, ", of which the graph's own inputs and outputs take a fixed part"));
    status.SetPayload(kLeastBytes, absl::Cord(absl::StrCat(least_)));
    return status;
  }

 private:
  bool Obeys(const FusionPlan& plan) {
    const int64_t peak = plan.summary.peak_bytes;
    least_ = least_ < 0 ? peak : std::min(least_, peak);
    return peak <= max_bytes_;
  }

  bool KeepLowest(CeilingChoice choice, FusionPlan plan) {
    const Height height = HeightOf(context_.graph, plan);
    if (!lowest_plan_.groups.empty() && height >= height_) return false;
    height_ = height;
    lowest_ = std::move(choice);
    lowest_plan_ = std::move(plan);
    return true;
  }

  // One split after the other, as long as they lower the peak.
  absl::Status Part() {
    std::set<std::pair<std::vector<NodeId>, std::vector<NodeId>>> tried;
    Mirror mirror(context_);
    for (int plans = 0;
         plans < kMostKernelSplits && lowest_plan_.summary.peak_bytes > max_bytes_;) {
      bool lower = false;
      for (const KernelSplit& split : SplitsAtPeak(context_.graph, lowest_plan_)) {
        const std::vector<PairChoice> pairs = PairsOf(context_, split);
        if (pairs.empty() || plans == kMostKernelSplits) continue;
        if (!tried.insert({split.first, split.later}).second) continue;
        ++plans;
        CeilingChoice choice = lowest_;
        for (const PairChoice& pair : mirror.Everywhere(pairs)) choice.separated.push_back(pair);
        absl::StatusOr<FusionPlan> plan = plan_(choice);
        if (!plan.ok()) continue;  // nothing can be separated there, or the search gave up
        Obeys(*plan);
        lower = KeepLowest(std::move(choice), *std::move(plan));
        if (lower) break;
      }
      if (!lower) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  const PlanningContext& context_;
  const int64_t max_bytes_;
  PlanUnder plan_;
  int64_t least_ = -1;    // of all plans made
  CeilingChoice lowest_;  // of those in the order that keeps least alive
  FusionPlan lowest_plan_;
  Height height_;
};

}  // namespace

std::vector<KernelSplit> SplitsAtPeak(const BackwardGraph& g, const FusionPlan& plan) {
  const std::vector<int64_t> live = LiveBytes(g, plan);
  const size_t peak = std::max_element(live.begin(), live.end()) - live.begin();
  std::vector<size_t> first_read(g.num_values(), kNever), last_read(g.num_values(), 0);
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    for (ValueId v : plan.groups[i].inputs) {
      size_t& first = first_read[g.value_index(v)];
      first = std::min(first, i);
      last_read[g.value_index(v)] = i;
    }
  }
  std::vector<KernelSplit> splits;
  for (size_t j = 0; j <= peak && j < plan.groups.size(); ++j) {
    if (KernelOf(plan.groups[j]) == nullptr) continue;
    std::vector<ValueId> alive, wait;  // results in the order of their readers
    for (ValueId v : plan.groups[j].outputs) {
      const size_t index = g.value_index(v);
      if (last_read[index] > peak || first_read[index] == kNever) alive.push_back(v);
    }
    if (plan.groups[j].outputs.size() < 2 || alive.empty()) continue;
    const auto reader = [&](ValueId v) { return first_read[g.value_index(v)]; };
    std::stable_sort(alive.begin(), alive.end(),
                     [&](ValueId a, ValueId b) { return reader(a) < reader(b); });
    KernelSplit split;
    // Results that are read at the peak or before stay where they are; of those that all wait the
    // later half is made later.
    const size_t needed =
        std::count_if(alive.begin(), alive.end(), [&](ValueId v) { return reader(v) <= peak; });
    const bool others = needed > 0 || alive.size() < plan.groups[j].outputs.size();
    const size_t from = others ? needed : (alive.size() + 1) / 2;
    wait.assign(alive.begin() + from, alive.end());
    for (ValueId v : plan.groups[j].outputs) {
      const bool waits = std::find(wait.begin(), wait.end(), v) != wait.end();
      (waits ? split.later : split.first).push_back(v.node);
      if (waits) split.bytes += g.type(v).size_bytes();
    }
    if (!split.first.empty() && !split.later.empty()) splits.push_back(std::move(split));
  }
  std::stable_sort(splits.begin(), splits.end(),
                   [](const KernelSplit& a, const KernelSplit& b) { return a.bytes > b.bytes; });
  return splits;
}

absl::StatusOr<CeilingChoice> FindBelowCeiling(const PlanningContext& context, int64_t max_bytes,
                                               PlanUnder plan) {
  return Search(context, max_bytes, plan).Run();
}

absl::Status LessMemory(const absl::Status& a, const absl::Status& b) {
  const std::optional<int64_t> of_a = LeastBytesOf(a), of_b = LeastBytesOf(b);
  return of_a && of_b && *of_b < *of_a ? b : a;
}

std::vector<Decision> ExplainSeparated(const BackwardGraph& graph, const CeilingChoice& choice,
                                       int64_t max_bytes) {
  std::vector<Decision> decisions;
  for (const PairChoice& pair : choice.separated) {
    Decision d{.a = {pair.a}, .b = {pair.b}, .limit = "memory"};
    d.reason = absl::StrCat(
        "separated by the ceiling of ", max_bytes, " B: one kernel would keep ",
        std::min(graph.type({pair.a, 0}).size_bytes(), graph.type({pair.b, 0}).size_bytes()),
        " B or more alive before they are read");
    decisions.push_back(std::move(d));
  }
  return decisions;
}

}  // namespace retrograd
