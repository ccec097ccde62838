// What each group of a plan reads and writes, and in which order groups must therefore run: the
// facts that the stream schedule and the memory plan share.
#ifndef RETROGRAD_FUSION_PLAN_GROUP_DAG_H_
#define RETROGRAD_FUSION_PLAN_GROUP_DAG_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/plan/plan.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// The stored values that a group reads, ascending, each once; the value that an accumulating store
// adds to is one of them.
std::vector<ValueId> ValuesRead(const Group& group);

struct GroupDag {
  std::vector<std::vector<uint32_t>> before;  // by group: groups that must have finished, ascending
  std::vector<std::vector<uint32_t>> after;   // the reverse
};

// Readers come after writers, and a group that overwrites a value (an accumulation) comes after
// every other reader of it. Fails when a value is read that no group and no input provides, or when
// two groups would have to wait for each other.
absl::StatusOr<GroupDag> BuildGroupDag(const BackwardGraph& graph, const FusionPlan& plan);

// Bytes from the first element of a stored value to its last, by the plan's layout.
int64_t StorageBytes(const BackwardGraph& graph, const FusionPlan& plan, ValueId value);

// "%12", or "%12.1" for any result but the first.
std::string PrintValue(ValueId value);
bool ParseValue(absl::string_view text, ValueId* value);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLAN_GROUP_DAG_H_
