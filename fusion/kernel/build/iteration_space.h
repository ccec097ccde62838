// The iteration space of a kernel, and the mapping of each of its ops into that space.
#ifndef RETROGRAD_FUSION_KERNEL_BUILD_ITERATION_SPACE_H_
#define RETROGRAD_FUSION_KERNEL_BUILD_ITERATION_SPACE_H_

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "fusion/kernel/build/access_maps.h"
#include "fusion/kernel/build/build.h"

namespace retrograd {

// The mapping of one op: which element of its result it computes at each point of the axes. For a
// reduction also which element of its operand it reads.
struct Walk {
  const AccessMap* result = nullptr;   // nullptr: of a scatter
  const AccessMap* operand = nullptr;  // reductions and scatters: where what is folded in lies
};

// The walks of a kernel's ops, by op. An op without one is evaluated where it is read.
class Walks {
 public:
  // `nodes`, ascending, outlives this.
  explicit Walks(absl::Span<const NodeId> nodes) : nodes_(nodes), walks_(nodes.size()) {}

  // Where the op stands among the kernel's; -1: it is not one of them.
  int Position(NodeId id) const {
    const auto at = std::lower_bound(nodes_.begin(), nodes_.end(), id);
    return at == nodes_.end() || *at != id ? -1 : static_cast<int>(at - nodes_.begin());
  }
  // nullptr: none. Stays valid until Clear().
  const Walk* Find(NodeId id) const {
    const int position = Position(id);
    return position < 0 || !walks_[position] ? nullptr : &*walks_[position];
  }
  const Walk& At(NodeId id) const { return *Find(id); }
  size_t size() const { return size_; }

  // Of an op of the kernel that has none.
  void Add(NodeId id, const Walk& walk) {
    walks_[Position(id)] = walk;
    ++size_;
  }
  void Clear() {
    for (std::optional<Walk>& walk : walks_) walk.reset();
    size_ = 0;
  }

 private:
  absl::Span<const NodeId> nodes_;
  std::vector<std::optional<Walk>> walks_;
  size_t size_ = 0;
};

struct IterationSpace {
  std::vector<int64_t> extents;
  Walks walks;
  AccessMaps* maps = nullptr;           // those of the extents
  std::optional<BuildRefusal> refusal;  // set if there is no such space
};

// Starts at the op with the most points and follows operands and users through views. Every op that
// is stored or folds axes must get a walk; otherwise there is no space.
// Its maps live in `maps`.
IterationSpace FindIterationSpace(const KernelRequest& request, KernelMaps& maps);

// Whether two gathers pick the same elements.
bool GatherAlike(const BackwardGraph& graph, NodeId a, NodeId b);

// The value, no constant, of which views show elements that lie between those of other slices: the
// even ones of a row, one of several tensors that were stacked along the last axis. nullopt: there
// is none, or the value has very many readers.
std::optional<ValueId> InterleavedPartOf(const BackwardGraph& graph, ValueId value);

// The mask of axes over which coordinates of a tensor of this shape run through each element
// exactly once; nullopt if they don't.
std::optional<AxisMask> OneToOneAxes(absl::Span<const IndexExpr> coords,
                                     absl::Span<const int64_t> shape,
                                     absl::Span<const int64_t> extents);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_BUILD_ITERATION_SPACE_H_
