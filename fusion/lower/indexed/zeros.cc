#include "fusion/lower/indexed/zeros.h"

namespace retrograd {

bool IsZero(const BackwardGraph& graph, ValueId value) {
  while (graph.pattern(value.node) == Pattern::kView && graph.op(value.node) != Op::pad) {
    value = graph.operands(value.node)[0];
  }
  return graph.op(value.node) == Op::full && graph.node(value.node).attrs.Float("value") == 0;
}

}  // namespace retrograd
