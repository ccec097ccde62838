#include "fusion/lower/indexed/choose_scatters.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "fusion/kernel/ir/scale.h"
#include "fusion/lower/indexed/known_index.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/scatter_lines/scatter_lines_call.h"
#include "graph/base/status.h"
#include "graph/ir/sorted_indices.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

constexpr int64_t kNodesOfPlaces = 8;  // of Places, at most so large as the source

class Chooser {
 public:
  Chooser(const BackwardGraph& g, const ScatterOptions& options)
      : g_(g), options_(options), rewriter_(g), b_(rewriter_.builder()) {}

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (g_.op(id) != Op::scatter_lines) {
        rewriter_.Copy(id);
        continue;
      }
      rewriter_.UseOrigin(id);
      rewriter_.Set({id, 0}, Chosen(id));
      RG_RETURN_IF_ERROR(b_.status());
    }
    return rewriter_.Finish();
  }

 private:
  ValueId Chosen(NodeId id) {
    const Repeated index = RepeatedIndex(id);
    if (!Stays(id, index)) return AsIndexAdd(id);
    const ValueId list = b_.Reshape(rewriter_.New(index.value), index.shape);
    return b_.Add(Op::scatter_lines, {list, rewriter_.New(g_.operands(id)[1])}, g_.node(id).attrs);
  }

  // An index without first axes along which it is the same.
  struct Repeated {
    ValueId value;
    Shape shape;  // the value's, less such axes of extent 1
  };

  Repeated RepeatedIndex(NodeId id) const {
    const ValueId index = g_.operands(id)[0];
    const Shape& whole = g_.type(index).shape;
    if (g_.op(index.node) != Op::expand) return {index, whole};
    const ValueId source = g_.operands(index.node)[0];
    Shape part = g_.type(source).shape;
    const size_t missing = whole.size() - part.size();
    size_t first = 0;  // axes that the lines of all others repeat
    while (first + 1 < part.size() && part[first] == 1 && whole[missing + first] != 1) ++first;
    part.erase(part.begin(), part.begin() + static_cast<int64_t>(first));
    const bool last = std::equal(part.rbegin(), part.rend(), whole.rbegin());
    return last && !part.empty() ? Repeated{source, std::move(part)} : Repeated{index, whole};
  }

  bool Stays(NodeId id, const Repeated& index) const {
    const TensorType &of = g_.type(index.value), &src = g_.type(g_.operands(id)[1]);
    const TensorType& result = g_.type(id);
    if (options_.device == nullptr) return false;
    if (options_.gathered_sums && IsKnown(index.value, src.elements())) return false;
    const int64_t count = src.shape.back(), extent = result.shape.back();
    if (count == 0 || extent == 0) return true;
    const ScatterLinesCall call = {.lines = src.elements() / count,
                                   .index_lines = of.elements() / count,
                                   .count = count,
                                   .extent = extent,
                                   .dtype = src.dtype,
                                   .index_dtype = of.dtype};
    if (!IsCountable(call)) return false;
    return PriceOfScatterLines(call, *options_.device, false).ps <= SortingPs(call);
  }

  // Whether the values of all places can be found, too.
  bool IsKnown(ValueId index, int64_t elements) const {
    return Product({elements, kNodesOfPlaces}) <= kMostEvaluated &&
           KnownIndex(g_, index).has_value();
  }

  // At least what sums over sorted indices take.
  int64_t SortingPs(const ScatterLinesCall& c) const {
    const SortedIndices sorted{.rows = Product({c.lines, c.extent}),
                               .indices = Product({c.lines, c.count})};
    if (sorted.elements() > std::numeric_limits<int32_t>::max()) return kHuge;
    Call call{.op = Op::sort_indices, .attributes = {{"rows", sorted.rows}}};
    call.operands.push_back({.shape = {sorted.indices}, .strides = {1}, .dtype = c.index_dtype});
    return CallOpOf(Op::sort_indices).price(call, *options_.device, false).ps;
  }

  ValueId AsIndexAdd(NodeId id) {
    const TensorType& result = g_.type(id);
    const ValueId src = rewriter_.New(g_.operands(id)[1]);
    const int64_t total = result.elements(), count = g_.type(g_.operands(id)[1]).elements();
    const ValueId zeros = b_.Full(0, result.dtype, {total});
    const ValueId places = b_.Reshape(Places(id), {count});
    const ValueId sums =
        b_.Add(Op::index_add, {zeros, places, b_.Reshape(src, {count})}, {{"axis", int64_t{0}}});
    return b_.Reshape(sums, result.shape);
  }

  // Of each index its place among the elements of all lines.
  ValueId Places(NodeId id) {
    const Shape& shape = g_.type(g_.operands(id)[1]).shape;
    const int64_t extent = g_.type(id).shape.back();
    const ValueId index =
        b_.Cast(b_.Expand(rewriter_.New(g_.operands(id)[0]), shape), DType::kInt64);
    const ValueId from_end = b_.Add(Op::add, {index, Number(extent)});
    ValueId all = b_.Add(Op::where, {b_.Add(Op::lt, {index, Number(0)}), from_end, index});
    int64_t stride = extent;  // elements between lines along the axis
    for (size_t axis = shape.size() - 1; axis-- > 0;) {
      if (shape[axis] > 1) {
        Shape along(shape.size(), 1);
        along[axis] = shape[axis];
        const ValueId line = b_.Add(Op::mul, {NumberOfLine(along, axis), Number(stride)});
        all = b_.Add(Op::add, {all, line});
      }
      stride *= shape[axis];
    }
    return all;
  }

  ValueId NumberOfLine(Shape along, size_t axis) {
    return b_.Add(Op::iota, {},
                  {{"axis", static_cast<int64_t>(axis)},
                   {"dtype", std::string(Name(DType::kInt64))},
                   {"shape", std::move(along)},
                   {"start", int64_t{0}},
                   {"step", int64_t{1}}});
  }
  ValueId Number(int64_t n) { return b_.Full(static_cast<double>(n), DType::kInt64, {}); }

  const BackwardGraph& g_;
  const ScatterOptions& options_;
  Rewriter rewriter_;
  GraphBuilder& b_;
};

}  // namespace

absl::StatusOr<BackwardGraph> ChooseScatters(const BackwardGraph& graph,
                                             const ScatterOptions& options) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) == Op::scatter_lines) return Chooser(graph, options).Run();
  }
  return graph;
}

}  // namespace retrograd
