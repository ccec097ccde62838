#include "graph/passes/retype.h"

#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// A dtype attribute that names a floating dtype (of cast, full, iota, matmul) names the new one.
Attrs Retyped(const Attrs& attrs, DType to) {
  Attrs retyped = attrs;
  const std::optional<DType> dtype = DTypeByName(attrs.String("dtype"));
  if (dtype.has_value() && IsFloat(*dtype) && !IsFp8(*dtype))
    retyped.Set("dtype", std::string(Name(to)));
  return retyped;
}

}  // namespace

absl::StatusOr<BackwardGraph> RetypeFloats(const BackwardGraph& graph, DType to) {
  RG_CHECK(IsFloat(to));
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    const Node& node = graph.node(id);
    rewriter.UseOrigin(id);
    ValueId first;
    if (node.input != nullptr) {
      TensorType type = node.results[0];
      if (IsFloat(type.dtype) && !IsFp8(type.dtype)) type.dtype = to;
      first = rewriter.builder().Input(std::move(type), *node.input);
    } else {
      first = rewriter.builder().Add(node.op, rewriter.NewOperands(id), Retyped(node.attrs, to));
    }
    RG_RETURN_IF_ERROR(rewriter.builder().status());
    for (uint32_t r = 0; r < node.results.size(); ++r) rewriter.Set({id, r}, {first.node, r});
  }
  return rewriter.Finish();
}

absl::StatusOr<BackwardGraph> RetypeToFloat64(const BackwardGraph& graph) {
  return RetypeFloats(graph, DType::kFp64);
}

}  // namespace retrograd
