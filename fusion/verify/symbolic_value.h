// What one element of a value is, as a fingerprint of the expression that makes it from elements in
// memory: equal expressions have equal fingerprints. The plan checker compares what a graph says an
// element is with what a kernel stores there. Evaluated at single points with plain integers, so
// that it shares nothing with the index algebra by which kernels are built.
#ifndef RETROGRAD_FUSION_VERIFY_SYMBOLIC_VALUE_H_
#define RETROGRAD_FUSION_VERIFY_SYMBOLIC_VALUE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/ir/layout.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

struct Meaning {
  uint64_t hash = 0;
  bool exact = false;     // already a value of its dtype, so that rounding changes nothing
  bool zero = false;      // the constant 0
  bool positive = false;  // a floating constant above 0 that no type makes 0 or infinite
  friend bool operator==(const Meaning& a, const Meaning& b) { return a.hash == b.hash; }
};

// The building blocks, used by both sides.
Meaning ConstantMeaning(double value, DType dtype);
Meaning StoredMeaning(size_t value_index, int64_t address);  // an element in memory
Meaning RoundedMeaning(const Meaning& x, DType dtype);
Meaning PointwiseMeaning(Op op, DType dtype, absl::Span<const Meaning> operands);
// An element that data choose: base + wrapped index x stride in the stored value.
Meaning LookedUpMeaning(size_t value_index, int64_t base, const Meaning& index, int64_t stride,
                        int64_t extent);
Meaning ScatteredMeaning(const Meaning& index, const Meaning& src);
// A fold does not depend on the order of its elements: they are added up one by one.
struct FoldSum {
  uint64_t sum = 0;
  void Add(const Meaning& x);
};
Meaning FoldMeaning(Op op, DType dtype, int64_t count, const FoldSum& elements);

// Calls fn at the points of a fold over `extents`: every one where they are few; else the first and
// the last one, or none if `ends_move` (a flip may map an end of one side to another corner of the
// other).
void FoldPoints(absl::Span<const int64_t> extents, int64_t most, bool ends_move,
                const std::function<void(absl::Span<const int64_t>)>& fn);

using Coords = std::vector<int64_t>;

// The graph's side, for the ops that one group computes; every other value lies in memory.
class GraphMeaning {
 public:
  GraphMeaning(const BackwardGraph& graph, absl::Span<const Layout> layouts,
               std::vector<bool> computed, int64_t most_folded);

  Meaning At(ValueId v, Coords coords);
  // One position of a segment_add's source, as a kernel adds it: which of the sorted indices it is,
  // and what it holds.
  Meaning ScatteredAt(NodeId scatter, const Coords& src);

  int64_t evaluations() const { return evaluations_; }
  bool has_flip() const { return has_flip_; }

  // The value behind views and the address of its element; false where a pad stands for it.
  bool Address(ValueId v, Coords coords, ValueId& stored, int64_t& address) const;

 private:
  Meaning Compute(ValueId v, const Coords& coords);
  Meaning Pointwise(NodeId id, const Coords& coords);
  Meaning Reduction(NodeId id, const Coords& coords);
  Meaning Scan(NodeId id, const Coords& coords);
  Meaning Join(NodeId id, const Coords& coords);
  Meaning Accumulate(NodeId id, const Coords& coords);
  Meaning Gather(NodeId id, const Coords& coords);
  bool Behind(ValueId& v, Coords& coords, double& fill) const;
  int64_t AddressOf(ValueId stored, absl::Span<const int64_t> coords) const;

  const BackwardGraph& g_;
  absl::Span<const Layout> layouts_;
  std::vector<bool> computed_;
  int64_t most_folded_;
  bool has_flip_ = false;
  int64_t evaluations_ = 0;
  absl::flat_hash_map<std::pair<size_t, int64_t>, Meaning> known_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_VERIFY_SYMBOLIC_VALUE_H_
