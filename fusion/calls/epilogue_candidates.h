// Matmuls that a region may compute itself. Such a matmul is called an epilogue root. It is an
// optional member of one group of the region that reads its result: the group then is one kernel,
// the matmul with an epilogue. If the search leaves the matmul alone, it stays a library call.
#ifndef RETROGRAD_FUSION_OPS_EPILOGUE_CANDIDATES_H_
#define RETROGRAD_FUSION_OPS_EPILOGUE_CANDIDATES_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/analysis/consumers.h"
#include "fusion/analysis/regions.h"
#include "fusion/device/device_spec.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// The calls that are offered to regions, by their matmul.
class EpilogueRoots {
 public:
  bool empty() const { return calls_.empty(); }
  void Offer(Group call) { calls_.emplace(call.nodes[0], std::move(call)); }
  // nullptr: no epilogue root.
  const Group* Find(NodeId id) const {
    auto at = calls_.find(id);
    return at == calls_.end() ? nullptr : &at->second;
  }
  // Those among the ops, in their order.
  std::vector<const Group*> In(absl::Span<const NodeId> ops) const;

 private:
  absl::flat_hash_map<NodeId, Group> calls_;
};

// Removes from `calls` those for which the device has an epilogue kernel, grouped matmuls only with
// `groups`, and adds each matmul to the region that first reads its result. A matmul stays in
// `calls` if its call does more than multiply, if the host reads its result, or if no op of a
// region could be its epilogue. No matmul is added to a region that would then have more than 64
// ops: the exact search could not take it.
EpilogueRoots TakeEpilogueRoots(const BackwardGraph& graph, const Consumers& consumers,
                                const DeviceSpec& device, bool groups, std::vector<Group>& calls,
                                std::vector<Region>& regions);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_EPILOGUE_CANDIDATES_H_
