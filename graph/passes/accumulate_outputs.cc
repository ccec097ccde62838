#include "graph/passes/accumulate_outputs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"
#include "graph/text/text.h"

namespace retrograd {

absl::StatusOr<AccumulatingGraph> AccumulateOutputs(const BackwardGraph& graph,
                                                    absl::Span<const uint8_t> accumulate) {
  const absl::Span<const GraphOutput> outputs = graph.outputs();
  if (accumulate.size() != outputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("accumulate has ", accumulate.size(),
                                                   " flags for ", outputs.size(), " outputs"));
  }
  AccumulatingGraph made;
  Rewriter rewriter(graph);
  GraphBuilder& builder = rewriter.builder();
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) rewriter.Copy(NodeId{i});
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    const GraphOutput& output = outputs[i];
    if (!output.value) {
      builder.AbsentOutput(output.name);
      continue;
    }
    ValueId value = rewriter.New(*output.value);
    if (accumulate[i] != 0) {
      const TensorType type = builder.type(value);
      if (type.dtype == DType::kBool) {
        return absl::InvalidArgumentError(
            absl::StrCat("output ", i, " (", Quote(output.name), ") is bool: nothing adds to it"));
      }
      builder.SetOriginIndex(-1);
      const ValueId held = builder.Input(type, {.name = absl::StrCat(output.name, ".accumulated"),
                                                .kind = InputKind::kSaved,
                                                .strides = output.strides});
      value = builder.Add(Op::add, {held, value});
      made.outputs.push_back(i);
    }
    builder.Output(value, output.name, output.strides);
  }
  RG_ASSIGN_OR_RETURN(made.graph, builder.Build());
  return made;
}

}  // namespace retrograd
