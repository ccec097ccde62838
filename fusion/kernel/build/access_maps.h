// How values are accessed at the points of iteration spaces, found once for all kernels of a graph:
// the kernels of a region lead through the same views and joins again and again.
#ifndef RETROGRAD_FUSION_KERNEL_BUILD_ACCESS_MAPS_H_
#define RETROGRAD_FUSION_KERNEL_BUILD_ACCESS_MAPS_H_

#include <deque>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fusion/kernel/ir/access_map.h"

namespace retrograd {

// An axis, and the divisor at which a view cuts it.
using AxisCut = std::pair<int, int64_t>;

// Maps of one iteration space. There is one of all that are equal, so that maps are compared by
// their addresses, which stay valid as long as this. Their fill does not count and is 0: what makes
// a guard knows it.
class AccessMaps {
 public:
  AccessMaps(const BackwardGraph& graph, std::vector<int64_t> extents);

  const AccessMap* Of(AccessMap map);

  // As the functions of the same names (fusion/kernel/ir/access_map.h). nullptr: none.
  const AccessMap* ThroughView(NodeId view, const AccessMap* result);
  const AccessMap* ThroughViewForward(NodeId view, const AccessMap* operand);

  // How an operand of a pointwise op, join or accumulate is accessed where the result is.
  const AccessMap* OfOperand(NodeId id, int number, const AccessMap* result);

  // Where a reduction's result lies whose operand is accessed so.
  const AccessMap* OfFolded(NodeId reduction, const AccessMap* operand);

  // The first cut in a map's coordinates.
  std::optional<AxisCut> CutIn(const AccessMap* map);

 private:
  struct Hash {
    size_t operator()(const AccessMap* map) const;
  };
  struct Equal {
    bool operator()(const AccessMap* a, const AccessMap* b) const { return *a == *b; }
  };
  // A node, which map of it (an operand's number, or one of Way), and where it is accessed.
  using Step = std::tuple<NodeId, int, const AccessMap*>;
  enum Way : int { kView = -1, kViewForward = -2, kFolded = -3 };

  template <typename Fn>
  const AccessMap* Once(const Step& step, Fn make);

  const BackwardGraph& graph_;
  const std::vector<int64_t> extents_;
  std::deque<AccessMap> maps_;
  absl::flat_hash_set<const AccessMap*, Hash, Equal> known_;
  absl::flat_hash_map<Step, const AccessMap*> steps_;
  absl::flat_hash_map<const AccessMap*, std::optional<AxisCut>> cuts_;
};

// Those of all spaces of a graph's kernels, by extents. For one thread at a time.
class KernelMaps {
 public:
  explicit KernelMaps(const BackwardGraph& graph) : graph_(graph) {}

  AccessMaps& In(const std::vector<int64_t>& extents) {
    std::unique_ptr<AccessMaps>& maps = spaces_[extents];
    if (maps == nullptr) maps = std::make_unique<AccessMaps>(graph_, extents);
    return *maps;
  }

 private:
  const BackwardGraph& graph_;
  absl::flat_hash_map<std::vector<int64_t>, std::unique_ptr<AccessMaps>> spaces_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_BUILD_ACCESS_MAPS_H_
