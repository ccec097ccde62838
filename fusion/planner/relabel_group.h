// The groups of a region told again for an equal region: other layers differ in names alone.
#ifndef RETROGRAD_FUSION_PLANNER_RELABEL_GROUP_H_
#define RETROGRAD_FUSION_PLANNER_RELABEL_GROUP_H_

#include "absl/container/flat_hash_map.h"
#include "fusion/analysis/regions.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// What is called what in two regions of one signature (region_signature.h): their ops and whatever
// these read, through views.
class Relabeling {
 public:
  Relabeling(const BackwardGraph& graph, const Region& from, const Region& to);

  Group Rename(Group group) const;

 private:
  NodeId Of(NodeId op) const { return to_.at({op, 0}).node; }
  ValueId Of(ValueId v) const { return to_.at(v); }
  void Rename(KernelBody& kernel) const;
  void Rename(Call& call) const;

  // By value: two regions may read different results of one library call.
  absl::flat_hash_map<ValueId, ValueId> to_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLANNER_RELABEL_GROUP_H_
