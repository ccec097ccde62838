// Makes a draft legal: a cast is put in, or a node is left out and its users read what it read.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_MEND_DRAFT_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_MEND_DRAFT_H_

#include "graph/ir/backward_graph.h"
#include "tests/support/graphs/mutation/graph_draft.h"

namespace retrograd {

// The graph of a draft that was made of `from`. It has at least one node.
BackwardGraph MendDraft(const BackwardGraph& from, const Draft& draft);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_MEND_DRAFT_H_
