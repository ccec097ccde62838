#include "graph/proto/bind_graph.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/proto/graph.pb.h"
#include "graph/proto/proto_scan.h"
#include "graph/proto/sizes_read.h"
#include "graph/symbols/size_values.h"
#include "graph/symbols/substitute.h"

namespace retrograd {
namespace {

// The message Sizes among the graph's own fields that reading it has kept; empty if there is none.
absl::StatusOr<std::string> KeptSizes(const BackwardGraph& graph) {
  std::string kept;
  for (const UnknownFields& fields : graph.unknown_fields()) {
    if (fields.of != UnknownFields::Of::kGraph) continue;
    absl::string_view rest = fields.bytes;
    while (!rest.empty()) {
      WireField field;
      RG_RETURN_IF_ERROR(ReadWireField(rest, field));
      if (field.number == v1::Graph::kSizesFieldNumber) absl::StrAppend(&kept, field.payload);
    }
  }
  return kept;
}

absl::StatusOr<SizeTable> TableOf(const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(const std::string kept, KeptSizes(graph));
  return ReadSizes(kept);
}

std::string Print(absl::Span<const SizeBinding> bindings) {
  return absl::StrJoin(bindings, ", ", [](std::string* out, const SizeBinding& binding) {
    absl::StrAppend(out, binding.name, "=", binding.value);
  });
}

}  // namespace

absl::StatusOr<std::vector<SizeSymbol>> SymbolsOf(const BackwardGraph& graph) {
  RG_ASSIGN_OR_RETURN(SizeTable table, TableOf(graph));
  return std::move(table.symbols);
}

std::string HintsOf(const BackwardGraph& graph) {
  const absl::StatusOr<std::vector<SizeSymbol>> symbols = SymbolsOf(graph);
  if (!symbols.ok()) return "";
  return absl::StrJoin(*symbols, ", ", [](std::string* out, const SizeSymbol& symbol) {
    absl::StrAppend(out, symbol.name, "=", symbol.hint);
  });
}

absl::StatusOr<BackwardGraph> BindGraph(const BackwardGraph& graph,
                                        absl::Span<const SizeBinding> bindings) {
  RG_ASSIGN_OR_RETURN(const GraphBinder binder, GraphBinder::Of(graph));
  return binder.Bind(bindings);
}

absl::StatusOr<GraphBinder> GraphBinder::Of(BackwardGraph graph) {
  RG_ASSIGN_OR_RETURN(SizeTable table, TableOf(graph));
  return GraphBinder(std::move(graph), std::move(table));
}

absl::StatusOr<BackwardGraph> GraphBinder::Bind(absl::Span<const SizeBinding> bindings) const {
  RG_ASSIGN_OR_RETURN(const std::vector<int64_t> symbols, SymbolValues(table_, bindings));
  RG_ASSIGN_OR_RETURN(const std::vector<int64_t> values, EvaluateSizes(table_, symbols));
  RG_RETURN_IF_ERROR(CheckFacts(table_, values));
  absl::StatusOr<BackwardGraph> bound = Substitute(graph_, table_, values);
  if (!bound.ok()) return At(absl::StrCat("at ", Print(bindings)), bound.status());
  return bound;
}

}  // namespace retrograd
