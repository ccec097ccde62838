#include "fusion/calls/epilogue_candidates.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "fusion/analysis/barrier_depths.h"
#include "fusion/ops/grouped_matmul/epilogue_product.h"
#include "fusion/ops/matmul/matmul_epilogue.h"

namespace retrograd {
namespace {

// Whether elements of the result are made of the operands' at their own points. What is gathered
// lies in memory, whoever reads it.
bool StaysAtItsPoints(Pattern pattern) {
  return pattern != Pattern::kReduction && pattern != Pattern::kGather;
}

class Taker {
 public:
  Taker(const BackwardGraph& g, const Consumers& consumers, const DeviceSpec& device, bool groups,
        std::vector<Region>& regions)
      : g_(g), consumers_(consumers), device_(device), groups_(groups), regions_(regions) {
    region_of_.assign(g.num_nodes(), -1);
    for (size_t r = 0; r < regions.size(); ++r) {
      for (NodeId id : regions[r].ops) region_of_[Index(id)] = static_cast<int>(r);
    }
  }

  // Whether the call's matmul now belongs to a region.
  bool Take(const Group& call) {
    const Call* made = CallOf(call);
    if (made == nullptr || call.nodes.size() != 1) return false;
    const std::optional<EpilogueProduct> product = EpilogueProductOf(*made);
    if (!product || (product->groups && !groups_)) return false;
    const NodeId id = call.nodes[0];
    if (consumers_.is_output(id) || !TakenByAny(product->matmul)) return false;
    const bool tiled = SizeBytes(product->matmul.in_dtype) == 2 || product->groups;
    if (tiled && !WhyNoTiles(g_, *product).empty()) return false;
    const absl::Span<const NodeId> users = consumers_.of(id);
    if (users.empty() || region_of_[Index(users[0])] < 0) return false;
    // What is read by other kernels as well has to be stored: no use for an epilogue.
    const int region = region_of_[Index(users[0])];
    const bool inside = std::all_of(users.begin(), users.end(), [&](NodeId user) {
      return region_of_[Index(user)] == region && MayFollow(g_, user, g_.type(id));
    });
    std::vector<NodeId>& ops = regions_[region].ops;
    if (!inside || ops.size() >= kMaxRegionOps || MeetsItsOwnSum(id, ops)) return false;
    ops.insert(std::lower_bound(ops.begin(), ops.end(), id), id);
    return true;
  }

 private:
  bool TakenByAny(const MatMulCall& call) const {
    return std::any_of(device_.matmul_epilogues.begin(), device_.matmul_epilogues.end(),
                       [&](const MatMulEpilogue& row) { return TakesProduct(row, call); });
  }

  // Whether values made of the product point by point meet a sum over them again, as in the
  // backward of a norm: they would be stored for the kernel behind the sum, as the product is.
  bool MeetsItsOwnSum(NodeId product, const std::vector<NodeId>& ops) const {
    absl::flat_hash_set<NodeId> made = {product}, behind;  // a sum
    for (NodeId id : ops) {                                // operands first
      bool reads_made = false, reads_behind = false;
      for (ValueId v : StoredOperands(g_, id)) {
        reads_made = reads_made || made.contains(v.node);
        reads_behind = reads_behind || behind.contains(v.node);
      }
      if (reads_made && reads_behind) return true;
      const bool sums = g_.pattern(id) == Pattern::kReduction;
      if (reads_behind || (reads_made && sums)) behind.insert(id);
      if (reads_made && StaysAtItsPoints(g_.pattern(id))) made.insert(id);
    }
    return false;
  }

  const BackwardGraph& g_;
  const Consumers& consumers_;
  const DeviceSpec& device_;
  const bool groups_;
  std::vector<Region>& regions_;
  std::vector<int> region_of_;
};

}  // namespace

std::vector<const Group*> EpilogueRoots::In(absl::Span<const NodeId> ops) const {
  std::vector<const Group*> found;
  if (calls_.empty()) return found;
  for (NodeId id : ops) {
    if (const Group* call = Find(id)) found.push_back(call);
  }
  return found;
}

EpilogueRoots TakeEpilogueRoots(const BackwardGraph& graph, const Consumers& consumers,
                                const DeviceSpec& device, bool groups, std::vector<Group>& calls,
                                std::vector<Region>& regions) {
  EpilogueRoots epilogue_roots;
  if (device.matmul_epilogues.empty()) return epilogue_roots;
  Taker taker(graph, consumers, device, groups, regions);
  std::vector<Group> left;
  for (Group& call : calls) {
    if (taker.Take(call)) {
      epilogue_roots.Offer(std::move(call));
    } else {
      left.push_back(std::move(call));
    }
  }
  calls = std::move(left);
  return epilogue_roots;
}

}  // namespace retrograd
