// The definitions of composite ops: the text of their rows, parsed into steps. Inference and
// expansion both walk the steps, so a composite's result types are those of its expansion.
//
// Text: "names -> v = call(arg, ...); ...", an argument is an operand, an earlier name, a call or
// a number (a rank-0 constant of the operands' dtype). Besides ops there are sum_last(x) and
// mean_last(x) over the last axis, which stays with extent 1, and sum_lead(x) over all axes but
// the last, which go. The results, in order, are the assigned names that nothing reads.
#ifndef RETROGRAD_GRAPH_IR_COMPOSITES_H_
#define RETROGRAD_GRAPH_IR_COMPOSITES_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

struct CompositeArg {
  enum Kind : uint8_t { kOperand, kStep, kNumber };
  Kind kind = kNumber;
  int index = 0;      // of the operand or step
  double number = 0;  // kNumber
};

struct CompositeStep {
  enum Kind : uint8_t { kOp, kSumLast, kMeanLast, kSumLead };
  Kind kind = kOp;
  Op op = Op::add;  // kOp
  std::vector<CompositeArg> args;
};

struct CompositeDefinition {
  int num_operands = 0;
  std::vector<CompositeStep> steps;  // a step's arguments come before it
  std::vector<int> results;          // steps
};

// Parsed once per op and kept. The op's pattern is kComposite.
const CompositeDefinition& DefinitionOf(Op op);

// What can go wrong in a row's text, for the table's own test.
absl::StatusOr<CompositeDefinition> ParseDefinition(absl::string_view text);

// Walks a definition: `add` is called for every primitive in order with operands that are values
// that it returned before or members of `operands`, and must return the new value. Returns the
// results. `type` gives the type of a value.
absl::StatusOr<std::vector<ValueId>> WalkDefinition(
    const CompositeDefinition& definition, absl::Span<const ValueId> operands,
    absl::FunctionRef<absl::StatusOr<ValueId>(Op, absl::Span<const ValueId>, Attrs)> add,
    absl::FunctionRef<const TensorType&(ValueId)> type);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_COMPOSITES_H_
