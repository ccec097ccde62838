#include "graph/passes/expand.h"

#include "graph/base/status.h"
#include "graph/ir/composites.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

bool HasComposites(const BackwardGraph& graph) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.pattern(NodeId{i}) == Pattern::kComposite) return true;
  }
  return false;
}

absl::Status ExpandNode(Rewriter& rewriter, NodeId id, int64_t& instance) {
  const BackwardGraph& graph = rewriter.graph();
  GraphBuilder& builder = rewriter.builder();
  if (graph.origin(id) != nullptr) {
    rewriter.UseOrigin(id);
  } else {
    Origin origin;
    origin.op = std::string(Name(graph.op(id)));
    origin.instance = instance++;
    builder.SetOriginIndex(builder.AddOrigin(std::move(origin)));
  }
  const auto add = [&](Op op, absl::Span<const ValueId> operands,
                       Attrs attrs) -> absl::StatusOr<ValueId> {
    const ValueId value = builder.Add(op, operands, std::move(attrs));
    RG_RETURN_IF_ERROR(builder.status());
    return value;
  };
  const auto type = [&](ValueId v) -> const TensorType& { return builder.type(v); };
  RG_ASSIGN_OR_RETURN(
      const std::vector<ValueId> results,
      WalkDefinition(DefinitionOf(graph.op(id)), rewriter.NewOperands(id), add, type));
  for (uint32_t r = 0; r < results.size(); ++r) {
    RG_CHECK(builder.type(results[r]) == graph.type({id, r}));
    rewriter.Set({id, r}, results[r]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BackwardGraph> ExpandComposites(const BackwardGraph& graph) {
  if (!HasComposites(graph)) return graph;
  Rewriter rewriter(graph);
  int64_t instance = 0;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (graph.pattern(id) == Pattern::kComposite) {
      RG_RETURN_IF_ERROR(ExpandNode(rewriter, id, instance));
    } else {
      rewriter.Copy(id);
      RG_RETURN_IF_ERROR(rewriter.builder().status());
    }
  }
  return rewriter.Finish();
}

}  // namespace retrograd
