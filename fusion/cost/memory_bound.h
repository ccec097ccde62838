// The least that ops move to and from memory, however they are grouped: the base of every bound.
#ifndef RETROGRAD_FUSION_COST_MEMORY_BOUND_H_
#define RETROGRAD_FUSION_COST_MEMORY_BOUND_H_

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/analysis/consumers.h"
#include "fusion/analysis/view_box.h"
#include "fusion/device/device_spec.h"
#include "fusion/kernel/ir/layout.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// What an op surely reads of a stored value if the value comes from outside its kernel. Pieces of a
// value share no element; of several reads of one piece the largest counts.
struct SureRead {
  ValueId value;  // stored: no view, no constant
  int piece = 0;
  int64_t bytes = 0;
  std::pair<ValueId, int> what() const { return {value, piece}; }
};

// Bytes that a kernel, or several, move to and from memory.
struct MovedBytes {
  int64_t all = 0;
  int64_t fresh = 0;     // of them, reads of what was written earlier in this backward
  int64_t uncached = 0;  // of them, those that no cache holds, however many kernels share the work

  void Add(int64_t bytes, int64_t of_them_uncached, bool is_fresh) {
    all += bytes;
    uncached += of_them_uncached;
    if (is_fresh) fresh += bytes;
  }
  MovedBytes& operator+=(const MovedBytes& other) {
    all += other.all;
    fresh += other.fresh;
    uncached += other.uncached;
    return *this;
  }
};

// A read counts if the op's result is needed whole, whatever the plan (it is stored for the host or
// a library call, or ops that are needed whole read it whole, perhaps slice by slice), and as much
// of it as the views in between let through. Slices that lie apart are pieces of their own.
// Gathered rows, sorted positions and the base under a slice_scatter do not count.
class Traffic {
 public:
  Traffic(const BackwardGraph& graph, absl::Span<const Layout> layouts, const Consumers& consumers);

  // Each piece of each value once, ascending.
  absl::Span<const SureRead> reads(NodeId id) const {
    return absl::MakeSpan(reads_).subspan(first_[Index(id)],
                                          first_[Index(id) + 1] - first_[Index(id)]);
  }
  // What storing the op's result writes.
  int64_t StoredBytes(NodeId id) const { return graph_.type(id).size_bytes(); }

  // The least that kernels of these ops (ascending) move.
  MovedBytes LeastBytes(absl::Span<const NodeId> ops, const DeviceSpec& device) const;

 private:
  // Slices through which a value is read by ops that are needed whole.
  using Slices = absl::flat_hash_map<ValueId, std::vector<ViewBox>>;

  void MarkWhole(Slices& slices);
  void FindReads(absl::Span<const Layout> layouts, const Slices& slices);

  const BackwardGraph& graph_;
  const Consumers& consumers_;
  std::vector<bool> whole_;      // by node: every element of its result is computed in any plan
  std::vector<SureRead> reads_;  // of all ops
  std::vector<uint32_t> first_;  // by node, one more at the end: where its reads begin
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_COST_MEMORY_BOUND_H_
