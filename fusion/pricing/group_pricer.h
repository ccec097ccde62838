// The price of computing a set of ops in one kernel: the best schedule that no limit refuses.
#ifndef RETROGRAD_FUSION_PRICING_GROUP_PRICER_H_
#define RETROGRAD_FUSION_PRICING_GROUP_PRICER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/analysis/consumers.h"
#include "fusion/analysis/region_signature.h"
#include "fusion/calls/epilogue_candidates.h"
#include "fusion/cost/device_report.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/cost/limits.h"
#include "fusion/cost/memory_bound.h"
#include "fusion/kernel/build/access_maps.h"
#include "fusion/kernel/build/build.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// The ops of one kernel.
struct GroupOps {
  std::vector<NodeId> ops;       // ascending: all that the kernel computes
  std::vector<NodeId> unstored;  // ascending, some of ops: whoever reads them computes them again
  std::vector<NodeId> kept;      // ascending, some of ops: stored for what others compute again
  friend bool operator==(const GroupOps&, const GroupOps&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const GroupOps& g) {
    return H::combine(std::move(h), g.ops, g.unstored, g.kept);
  }
};

// A schedule that a limit refused, though it would have been the cheapest but for its spills.
struct RefusedSchedule {
  Schedule schedule;
  Footprint footprint;
  int64_t price_ps = 0;
  std::vector<Term> terms;
  std::string limit, reason;
};

struct GroupPrice {
  bool feasible = false;
  std::string limit, reason;  // if not
  Schedule schedule;
  int64_t ps = 0;            // T(S), without margin
  int64_t passed_bytes = 0;  // stored for other kernels (and not as an output of the graph)
  // How long finding it took, counted: instructions of the kernel; ops, where none was built.
  int64_t work = 0;
};

// What a kernel costs, and whether any schedule of it fits, by its signature: equal kernels of
// other layers, of other cuts of a region and of other versions of the graph cost the same. Holds
// for one device under equal limits and options.
struct KernelPrices {
  absl::flat_hash_map<std::string, GroupPrice> of;
  absl::flat_hash_map<std::string, bool> fits;
  NodeNumbers::Table nodes;
};

struct PricerOptions {
  // Each can be switched off by its name in kFeatures (fusion/planner/planner.h).
  bool vectorize = true, split = true, persistent = true, stage_rows = true, rows_at_once = true,
       passes_by_rows = true, transpose_tiles = true, hold_columns = true, hold_tiles = true,
       unroll = true, unify_branches = true;
  int64_t memory_ps_per_mib = 0;  // price of what a kernel stores for others, to lower the peak
  DeviceReport feedback;          // real registers of kernels that an earlier plan chose
  int64_t schedule_salt = 0;      // not 0: a random admissible schedule by this seed, for tests
};

class GroupPricer {
 public:
  // `known`: where prices are looked up and added, by one thread at a time.
  GroupPricer(const BackwardGraph& graph, absl::Span<const Layout> layouts,
              const Consumers& consumers, const DeviceSpec& device, const Limits& limits,
              const PricerOptions& options, KernelPrices* known = nullptr);

  // From now on groups may contain one of these matmuls, alone or with an epilogue.
  void OfferEpilogueRoots(EpilogueRoots epilogue_roots) {
    epilogue_roots_ = std::move(epilogue_roots);
  }
  const EpilogueRoots& epilogue_roots() const { return epilogue_roots_; }

  // A single op is always feasible.
  GroupPrice Evaluate(const GroupOps& group) const;
  GroupPrice Evaluate(absl::Span<const NodeId> ops) const { return Evaluate(Plain(ops)); }

  // Whether any kernel computes the ops, none of them an epilogue root: feasible, without finding
  // the best schedule.
  bool Fits(absl::Span<const NodeId> ops) const;

  // The whole group under a schedule that Evaluate chose, with explained terms.
  absl::StatusOr<Group> Make(const GroupOps& group, const Schedule& schedule) const;

  // The register-hungry schedules of the group's kernel, the most expensive in spills first; none
  // of a matmul with an epilogue.
  std::vector<RefusedSchedule> Refused(const GroupOps& group) const;

  // What the feedback says of the group's kernel under a schedule; nullptr: nothing, as of a
  // matmul with an epilogue.
  const CompiledResources* Compiled(const GroupOps& group, const Schedule& schedule) const;
  const DeviceReport& feedback() const { return options_.feedback; }
  // The same prices as if nothing had been compiled before.
  GroupPricer WithoutFeedback() const;

  // Smallest possible T of a kernel that moves so many bytes: one launch, full bandwidth.
  int64_t LeastPs(MovedBytes bytes) const;
  // Smallest possible sum of T of any number of kernels that together move so many bytes. Less than
  // LeastPs: what one kernel moves may be too much for a cache that serves several well.
  int64_t LeastPsOfAll(MovedBytes bytes) const;
  // The same of kernels that make these ops (ascending), epilogue roots among them.
  int64_t LeastPsOfAll(absl::Span<const NodeId> ops) const;

  // What the search minimises: T, the margin if the kernel joins atoms, the price of memory.
  int64_t Cost(const GroupPrice& price, bool joins) const;
  // The margin that a fusion must win by.
  int64_t Margin(int64_t price_ps) const;

  const BackwardGraph& graph() const { return graph_; }
  const Consumers& consumers() const { return consumers_; }
  const DeviceSpec& device() const { return device_; }
  const Limits& limits() const { return limits_; }
  const Traffic& traffic() const { return traffic_; }
  NodeNumbers& numbers() const { return *numbers_; }

 private:
  static GroupOps Plain(absl::Span<const NodeId> ops) { return {{ops.begin(), ops.end()}, {}, {}}; }
  struct Evaluated {
    GroupPrice price;
    bool built = false;  // then nothing in it depends on which ops these are, but for what they do
  };
  bool FitsNew(const GroupOps& group, absl::Span<const ValueId> stores) const;
  Evaluated EvaluateNew(const GroupOps& group, absl::Span<const ValueId> stores) const;
  bool FitsKernel(const KernelIr& ir) const;
  GroupPrice PriceOf(const KernelIr& ir, const GroupOps& group) const;
  KernelOutcome Build(const GroupOps& group) const;
  KernelOutcome Build(const GroupOps& group, absl::Span<const ValueId> stores) const;
  // 0 if there is no feedback to look the kernel up in.
  uint64_t FeedbackKey(const KernelIr& ir) const;
  const CompiledResources* FindCompiled(uint64_t key, const Schedule& schedule) const;
  int64_t PassedBytes(const KernelIr& ir) const;
  ScheduleLimits schedule_limits() const;

  const BackwardGraph& graph_;
  absl::Span<const Layout> layouts_;
  const Consumers& consumers_;
  const DeviceSpec& device_;
  const Limits& limits_;
  PricerOptions options_;
  Traffic traffic_;
  EpilogueRoots epilogue_roots_;
  KernelPrices* known_;
  std::shared_ptr<KernelPrices> own_;  // where nobody else's are given
  std::shared_ptr<NodeNumbers> numbers_;
  std::shared_ptr<KernelMaps> maps_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PRICING_GROUP_PRICER_H_
