#include "fusion/lower/one_group.h"

#include <limits>
#include <optional>

#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// Whether a place along the axis lies before the group's end; of extent 1 along the others.
ValueId LiesInside(GraphBuilder& builder, ValueId ends, const Shape& shape, int64_t axis) {
  Shape line(shape.size(), 1);
  const ValueId end = builder.Reshape(ends, line);
  line[axis] = shape[axis];
  const ValueId place = builder.Add(
      Op::iota, {},
      {{"axis", axis},
       {"dtype", std::string(Name(DType::kInt32))},
       {"shape", line},
       {"start", int64_t{0}},
       {"step", int64_t{1}}});
  return builder.Add(Op::lt, {{place, end}});
}

std::optional<ValueId> LargestOfOne(NodeId id, Rewriter& rewriter) {
  const BackwardGraph& g = rewriter.graph();
  if (g.op(id) != Op::segment_amax) return std::nullopt;
  const ValueId x = g.operands(id)[0], ends = g.operands(id)[1];
  const TensorType& type = g.type(x);
  const Attrs& attrs = g.node(id).attrs;
  const int64_t axis = attrs.Int("axis");
  if (g.type(ends).shape[0] != 1 || type.elements() == 0 || SizeBytes(type.dtype) == 1) {
    return std::nullopt;
  }
  GraphBuilder& builder = rewriter.builder();
  const bool magnitude = attrs.Int("magnitude") != 0;
  const ValueId inside = LiesInside(builder, rewriter.New(ends), type.shape, axis);
  const ValueId element =
      magnitude ? builder.Add(Op::abs, {{rewriter.New(x)}}) : rewriter.New(x);
  const double none = magnitude ? 0 : -std::numeric_limits<double>::infinity();
  const ValueId masked =
      builder.Add(Op::where, {{inside, element, builder.Full(none, type.dtype)}});
  return builder.Add(Op::amax, {{masked}},
                     {{"axes", std::vector<int64_t>{axis}}, {"keep", int64_t{1}}});
}

std::optional<ValueId> RowOfOne(NodeId id, Rewriter& rewriter) {
  const BackwardGraph& g = rewriter.graph();
  if (g.op(id) != Op::index_select) return std::nullopt;
  const ValueId x = g.operands(id)[0], index = g.operands(id)[1];
  const TensorType &table = g.type(x), &result = g.type(ValueId{id, 0});
  const int64_t axis = g.node(id).attrs.Int("axis");
  if (table.shape[axis] != 1 || result.elements() == 0) return std::nullopt;
  // The table's row and the index, each of extent 1 where the other one has its axes.
  const TensorType& of_index = g.type(index);
  Shape row(table.shape.begin(), table.shape.begin() + axis), place(axis, 1);
  row.insert(row.end(), of_index.shape.size(), 1);
  place.insert(place.end(), of_index.shape.begin(), of_index.shape.end());
  row.insert(row.end(), table.shape.begin() + axis + 1, table.shape.end());
  place.resize(row.size(), 1);
  GraphBuilder& builder = rewriter.builder();
  const ValueId at = builder.Reshape(rewriter.New(index), place);
  const auto equals = [&](double value) {
    return builder.Add(Op::eq, {{at, builder.Full(value, of_index.dtype)}});
  };
  const ValueId picked = builder.Add(Op::logical_or, {{equals(0), equals(-1)}});
  const ValueId only = builder.Reshape(rewriter.New(x), row);
  return builder.Add(Op::where, {{picked, only, builder.Full(0, table.dtype)}});
}

}  // namespace

absl::StatusOr<BackwardGraph> UngroupSingles(const BackwardGraph& graph) {
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    rewriter.UseOrigin(id);
    std::optional<ValueId> simpler = LargestOfOne(id, rewriter);
    if (!simpler.has_value()) simpler = RowOfOne(id, rewriter);
    if (simpler.has_value()) {
      rewriter.Set({id, 0}, *simpler);
    } else {
      rewriter.Copy(id);
    }
    RG_RETURN_IF_ERROR(rewriter.builder().status());
  }
  return rewriter.Finish();
}

}  // namespace retrograd
