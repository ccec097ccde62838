// Matmuls as optional anchors of the regions that read their results: each may be multiplied by a
// library, or in one kernel with what is made of its result point by point.
#ifndef RETROGRAD_FUSION_OPS_EPILOGUE_CANDIDATES_H_
#define RETROGRAD_FUSION_OPS_EPILOGUE_CANDIDATES_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/analysis/consumers.h"
#include "fusion/analysis/regions.h"
#include "fusion/device/device_spec.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// The library calls that are offered, by the matmul that each consists of.
class Anchors {
 public:
  bool empty() const { return calls_.empty(); }
  void Offer(Group call) { calls_.emplace(call.nodes[0], std::move(call)); }
  // nullptr: no anchor.
  const Group* Find(NodeId id) const {
    auto at = calls_.find(id);
    return at == calls_.end() ? nullptr : &at->second;
  }
  // Those among the ops, in their order.
  std::vector<const Group*> In(absl::Span<const NodeId> ops) const;

 private:
  absl::flat_hash_map<NodeId, Group> calls_;
};

// Takes the calls that an epilogue of the device could follow out of `calls` and gives their
// matmuls to the regions that read them first. A matmul is not offered if it does more than
// multiply, if the host reads its result, or if no op of a region could be its epilogue. A region
// keeps at most 64 ops with its anchors: more are not searched exactly anyway.
Anchors TakeAnchors(const BackwardGraph& graph, const Consumers& consumers,
                    const DeviceSpec& device, std::vector<Group>& calls,
                    std::vector<Region>& regions);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_EPILOGUE_CANDIDATES_H_
