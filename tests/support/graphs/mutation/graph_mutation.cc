#include "tests/support/graphs/mutation/graph_mutation.h"

#include "graph/base/status.h"
#include "tests/support/graphs/mutation/draft_edits.h"
#include "tests/support/graphs/mutation/graph_draft.h"
#include "tests/support/graphs/mutation/mend_draft.h"

namespace retrograd {
BackwardGraph MutateGraph(const BackwardGraph& graph, std::mt19937& rng) {
  Draft draft = DraftOf(graph);
  if (draft.nodes.empty()) return SmallestGraph();
  DraftEdits edits(draft, rng);
  for (uint32_t i = 0; i <= rng() % 3; ++i) edits.Edit();
  return MendDraft(graph, draft);
}

BackwardGraph SmallestGraph() {
  GraphBuilder builder;
  builder.Input({DType::kFp32, {8}}, {});
  absl::StatusOr<BackwardGraph> graph = builder.Build();
  RG_CHECK(graph.ok());
  return *std::move(graph);
}

}  // namespace retrograd
