#include "tools/explain/plan_ranges.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"
#include "graph/proto/bind_graph.h"
#include "tools/explain/explanation.h"
#include "tools/support/group_variant.h"

namespace retrograd {
namespace {

// A kernel or call at one size. Numbers stand for texts: of its ops, and of how it runs.
struct SizedKernel {
  int ops = 0, variant = 0;
  int64_t ps = 0;
};

struct SizedPlan {
  std::vector<SizedKernel> kernels;  // by ops
  int64_t ps = 0, launches = 0;
  std::string refused;  // why there is none; else empty
};

bool Alike(const SizedPlan& a, const SizedPlan& b) {
  return a.refused.empty() == b.refused.empty() &&
         std::equal(a.kernels.begin(), a.kernels.end(), b.kernels.begin(), b.kernels.end(),
                    [](const SizedKernel& x, const SizedKernel& y) {
                      return x.ops == y.ops && x.variant == y.variant;
                    });
}

bool SamePartition(const SizedPlan& a, const SizedPlan& b) {
  return std::equal(a.kernels.begin(), a.kernels.end(), b.kernels.begin(), b.kernels.end(),
                    [](const SizedKernel& x, const SizedKernel& y) { return x.ops == y.ops; });
}

// Texts by number, equal ones once.
class Texts {
 public:
  int Number(const std::string& text) {
    const auto [at, added] = numbers_.try_emplace(text, static_cast<int>(texts_.size()));
    if (added) texts_.push_back(text);
    return at->second;
  }
  const std::string& operator[](int number) const { return texts_[number]; }

 private:
  std::vector<std::string> texts_;
  absl::flat_hash_map<std::string, int> numbers_;
};

// Who each op is, whatever number a lowering gives it: where it came from, and which such op.
std::vector<std::string> NamesOf(const BackwardGraph& graph) {
  std::vector<std::string> names;
  absl::flat_hash_map<std::string, int> seen;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    std::string name(Name(graph.op(id)));
    if (const Origin* origin = graph.origin(id)) {
      absl::StrAppend(&name, "\n", origin->op, "\n", origin->instance, "\n", origin->module_path);
    }
    const int number = seen[name]++;
    names.push_back(absl::StrCat(name, "\n", number));
  }
  return names;
}

// Plans of one graph at several sizes.
class SizedPlans {
 public:
  SizedPlans(const PlanArguments& arguments, SizeRange range, OpenedGraph opened)
      : arguments_(arguments), range_(std::move(range)), opened_(std::move(opened)) {
    opened_.options.decisions = false;
  }

  // The values of the other symbols, and whether the ends of the range are sizes.
  absl::Status Check() {
    RG_ASSIGN_OR_RETURN(const std::vector<SizeSymbol> symbols, SymbolsOf(opened_.original));
    if (!arguments_.bind.empty()) {
      RG_ASSIGN_OR_RETURN(bindings_, ParseBindings(arguments_.bind));
    }
    for (const SizeBinding& binding : bindings_) {
      if (binding.name != range_.name) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--bind and --range both give ", range_.name, ": leave one of them out"));
    }
    for (const SizeSymbol& symbol : symbols) {
      const bool bound = std::any_of(bindings_.begin(), bindings_.end(),
                                     [&](const auto& b) { return b.name == symbol.name; });
      if (!bound && symbol.name != range_.name) bindings_.push_back({symbol.name, symbol.hint});
      if (symbol.name == range_.name) RG_RETURN_IF_ERROR(FitStep(symbol.multiple_of));
    }
    others = absl::StrJoin(bindings_, ", ", [](std::string* out, const SizeBinding& binding) {
      absl::StrAppend(out, binding.name, "=", binding.value);
    });
    bindings_.push_back({range_.name, 0});
    for (const int64_t size : {range_.low, range_.high}) {
      const absl::Status status = Bound(size).status();
      if (!status.ok() && !absl::IsFailedPrecondition(status)) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const SizedPlan*> At(int64_t size) {
    const auto known = plans.find(size);
    if (known != plans.end()) return &known->second;
    absl::StatusOr<BackwardGraph> bound = Bound(size);
    if (absl::IsFailedPrecondition(bound.status())) {
      return &(plans[size] = {.refused = std::string(bound.status().message())});
    }
    RG_RETURN_IF_ERROR(bound.status());
    RG_RETURN_IF_ERROR(ChangeGraph(arguments_, *bound));
    RG_ASSIGN_OR_RETURN(const Planned planned, PlanFusion(*bound, opened_.spec, opened_.options));
    return &(plans[size] = Sized(planned));
  }

  const SizeRange& range() const { return range_; }
  std::map<int64_t, SizedPlan> plans;  // by size
  std::string others;
  Texts variants;
  // By SizedKernel::ops.
  struct What {
    std::string text;
    bool is_call = false;
  };
  std::vector<What> whats;

 private:
  absl::Status FitStep(int64_t multiple_of) {
    if (range_.step % multiple_of == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "--range ", range_.name, ": its sizes are multiples of ", multiple_of, ", but the step is ",
        range_.step, ": write ", range_.name, "=LOW..HIGH:", multiple_of));
  }

  absl::StatusOr<BackwardGraph> Bound(int64_t size) {
    bindings_.back().value = size;
    absl::StatusOr<BackwardGraph> bound = BindGraph(opened_.original, bindings_);
    if (bound.ok()) return bound;
    return absl::Status(bound.status().code(),
                        absl::StrCat("--range ", range_.name, "=", range_.low, "..", range_.high,
                                     ": ", bound.status().message()));
  }

  SizedPlan Sized(const Planned& planned) {
    SizedPlan sized{.ps = planned.plan.summary.price_ps, .launches = planned.plan.summary.kernels};
    const std::vector<std::string> names = NamesOf(planned.graph);
    for (const Group& group : planned.plan.groups) {
      std::vector<absl::string_view> ops;
      for (NodeId id : group.nodes) ops.push_back(names[Index(id)]);
      std::sort(ops.begin(), ops.end());
      const int number = ops_.Number(absl::StrJoin(ops, "\n\n"));
      if (number == static_cast<int>(whats.size())) {
        const std::string origins = CountOrigins(planned.graph, group.nodes);
        whats.push_back({absl::StrCat(CountOps(planned.graph, group.nodes),
                                      origins.empty() ? "" : "  from ", origins),
                         CallOf(group) != nullptr || SharedCallsOf(group) != nullptr});
      }
      sized.kernels.push_back({number, variants.Number(VariantOf(group)), group.price_ps});
    }
    std::sort(sized.kernels.begin(), sized.kernels.end(),
              [](const SizedKernel& a, const SizedKernel& b) { return a.ops < b.ops; });
    return sized;
  }

  const PlanArguments& arguments_;
  SizeRange range_;
  OpenedGraph opened_;
  std::vector<SizeBinding> bindings_;  // the range's symbol last
  Texts ops_;
};

// Plans the samples, then the middle of the widest gap between plans that differ, until there is
// none. The number of gaps that stay.
absl::StatusOr<int64_t> FindBorders(SizedPlans& sized, int most, Progress* progress) {
  const SizeRange& range = sized.range();
  progress->Step(absl::StrCat("planning at sizes of ", range.name));
  const auto plan = [&](int64_t size) { return sized.At(size).status(); };
  for (const int64_t size : SamplesOf(range, kSamplesOfRange)) RG_RETURN_IF_ERROR(plan(size));
  while (true) {
    int64_t gaps = 0, middle = 0;
    double widest = 1;
    for (auto at = sized.plans.begin(), next = std::next(at); next != sized.plans.end();
         at = next++) {
      const int64_t low = at->first, high = next->first;
      if (high - low <= range.step || Alike(at->second, next->second)) continue;
      ++gaps;
      const double width =
          static_cast<double>(high) / static_cast<double>(std::max<int64_t>(low, 1));
      if (width <= widest) continue;
      widest = width;
      middle = low + (high - low) / range.step / 2 * range.step;
    }
    if (gaps == 0 || static_cast<int>(sized.plans.size()) >= most) return gaps;
    RG_RETURN_IF_ERROR(plan(middle));
  }
}

// The kernel with these ops at every size, as intervals.
std::vector<PlanRanges::Kernel::Interval> IntervalsOf(const SizedPlans& sized, int ops) {
  std::vector<PlanRanges::Kernel::Interval> intervals;
  int variant = -1;
  for (const auto& [size, plan] : sized.plans) {
    const auto at =
        std::lower_bound(plan.kernels.begin(), plan.kernels.end(), ops,
                         [](const SizedKernel& kernel, int number) { return kernel.ops < number; });
    if (at == plan.kernels.end() || at->ops != ops) {
      variant = -1;
      continue;
    }
    if (at->variant != variant) {
      variant = at->variant;
      intervals.emplace_back();
      intervals.back().low = size;
      intervals.back().low_ps = at->ps;
      intervals.back().variant = sized.variants[variant];
    }
    intervals.back().high = size;
    intervals.back().high_ps = at->ps;
  }
  return intervals;
}

int64_t DearestPs(const PlanRanges::Kernel& kernel) {
  int64_t dearest = 0;
  for (const auto& interval : kernel.intervals) {
    dearest = std::max({dearest, interval.low_ps, interval.high_ps});
  }
  return dearest * kernel.times;
}

std::vector<PlanRanges::Kernel> KernelsOf(const SizedPlans& sized) {
  std::vector<PlanRanges::Kernel> kernels;
  absl::flat_hash_map<std::string, size_t> known;
  for (size_t ops = 0; ops < sized.whats.size(); ++ops) {
    PlanRanges::Kernel kernel{.what = sized.whats[ops].text,
                              .is_call = sized.whats[ops].is_call,
                              .intervals = IntervalsOf(sized, static_cast<int>(ops))};
    std::string key = kernel.what;
    for (const auto& interval : kernel.intervals) {
      absl::StrAppend(&key, "|", interval.low, "-", interval.high, " ", interval.low_ps, "-",
                      interval.high_ps, " ", interval.variant);
    }
    const auto [at, added] = known.try_emplace(std::move(key), kernels.size());
    if (added) {
      kernels.push_back(std::move(kernel));
    } else {
      ++kernels[at->second].times;
    }
  }
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const auto& a, const auto& b) { return DearestPs(a) > DearestPs(b); });
  return kernels;
}

void AddPartitions(const SizedPlans& sized, PlanRanges& ranges) {
  const SizedPlan* last = nullptr;
  for (const auto& [size, plan] : sized.plans) {
    const bool continues = last != nullptr && last->refused.empty() == plan.refused.empty() &&
                           SamePartition(*last, plan);
    last = &plan;
    if (!plan.refused.empty()) {
      if (!continues) ranges.refused.push_back({.low = size, .why = plan.refused});
      ranges.refused.back().high = size;
      continue;
    }
    if (!continues) {
      ranges.partitions.emplace_back();
      ranges.partitions.back().low = size;
      ranges.partitions.back().low_ps = plan.ps;
      ranges.partitions.back().low_kernels = plan.launches;
    }
    ranges.partitions.back().high = size;
    ranges.partitions.back().high_ps = plan.ps;
    ranges.partitions.back().high_kernels = plan.launches;
  }
}

}  // namespace

absl::StatusOr<PlanRanges> FindPlanRanges(const PlanArguments& arguments, const SizeRange& range,
                                          Progress* progress, int most) {
  RG_ASSIGN_OR_RETURN(OpenedGraph opened, OpenUnbound(arguments, progress));
  PlanRanges ranges{.graph = arguments.graph, .device = opened.spec.name, .range = range};
  SizedPlans sized(arguments, range, std::move(opened));
  RG_RETURN_IF_ERROR(sized.Check());
  RG_ASSIGN_OR_RETURN(ranges.unknown_borders, FindBorders(sized, most, progress));
  ranges.others = sized.others;
  for (const auto& [size, plan] : sized.plans) ranges.planned.push_back(size);
  AddPartitions(sized, ranges);
  if (ranges.partitions.empty()) {
    return absl::FailedPreconditionError(ranges.refused.front().why);
  }
  ranges.kernels = KernelsOf(sized);
  return ranges;
}

}  // namespace retrograd
