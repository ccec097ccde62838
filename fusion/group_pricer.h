// The price of computing a set of ops in one kernel: the best schedule that no limit refuses.
#ifndef RETROGRAD_FUSION_GROUP_PRICER_H_
#define RETROGRAD_FUSION_GROUP_PRICER_H_

#include <optional>
#include <string>
#include <vector>

#include "fusion/cost.h"
#include "fusion/kernel/build.h"
#include "fusion/limits.h"
#include "fusion/plan.h"

namespace retrograd {

// Who reads each op's results, looking through views; found once a graph.
class Consumers {
 public:
  explicit Consumers(const BackwardGraph& graph);
  absl::Span<const NodeId> of(NodeId id) const { return users_[Index(id)]; }
  bool is_output(NodeId id) const { return output_[Index(id)]; }
  // Results of the ops (ascending) that something outside the set reads.
  std::vector<ValueId> Stores(absl::Span<const NodeId> ops) const;

 private:
  std::vector<std::vector<NodeId>> users_;  // computing users, ascending, once each
  std::vector<bool> output_;
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
  int64_t ps = 0;             // T(S), without margin
};

struct PricerOptions {
  bool vectorize = true, split = true, persistent = true;
  int64_t schedule_salt = 0;  // not 0: a random admissible schedule by this seed, for tests
};

class GroupPricer {
 public:
  GroupPricer(const BackwardGraph& graph, absl::Span<const Layout> layouts,
              const Consumers& consumers, const DeviceSpec& device, const Limits& limits,
              const PricerOptions& options);

  // Ops ascending. A single op is always feasible.
  GroupPrice Evaluate(absl::Span<const NodeId> ops) const;

  // The whole group under a schedule that Evaluate chose, with explained terms.
  absl::StatusOr<Group> Make(absl::Span<const NodeId> ops, const Schedule& schedule) const;

  // The register-hungry schedules of the group's kernel, the most expensive in spills first.
  std::vector<RefusedSchedule> Refused(absl::Span<const NodeId> ops) const;

  // Smallest possible T: one launch, every boundary tensor once at full bandwidth.
  int64_t LowerBound(absl::Span<const NodeId> ops) const;

  // The margin that a fusion must win by: 0 for a single atom.
  int64_t Margin(int64_t price_ps) const;

  const BackwardGraph& graph() const { return graph_; }
  const Consumers& consumers() const { return consumers_; }
  const DeviceSpec& device() const { return device_; }
  const Limits& limits() const { return limits_; }

 private:
  KernelOutcome Build(absl::Span<const NodeId> ops) const;
  int64_t StoredBytes(ValueId v) const;
  ScheduleLimits schedule_limits() const;

  const BackwardGraph& graph_;
  absl::Span<const Layout> layouts_;
  const Consumers& consumers_;
  const DeviceSpec& device_;
  const Limits& limits_;
  PricerOptions options_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_GROUP_PRICER_H_
