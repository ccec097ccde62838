#include "tools/run/check_graph.h"

#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"
#include "graph/proto/bind_graph.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "tools/support/pipeline.h"

namespace retrograd {
namespace {

struct Bytes {
  int64_t count = 0, bytes = 0;
  void Add(const TensorType& type) {
    ++count;
    bytes += type.size_bytes();
  }
};

std::string Print(const Bytes& b, absl::string_view what) {
  return absl::StrFormat("%d %s (%.2f MiB)", b.count, what,
                         static_cast<double>(b.bytes) / (1 << 20));
}

// "golf_tiny: 486 ops on 33 inputs (0.52 MiB), 21 outputs (0.33 MiB), 1 absent", and a line of the
// ops by how often they occur.
std::string Summary(const BackwardGraph& graph, const std::string& name) {
  Bytes inputs, outputs;
  int64_t absent = 0, ops = 0;
  std::map<std::string, int64_t> by_name;
  for (uint32_t n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(NodeId{n});
    if (node.op == Op::input) {
      inputs.Add(node.results[0]);
    } else {
      ++ops;
      ++by_name[std::string(Name(node.op))];
    }
  }
  for (const GraphOutput& output : graph.outputs()) {
    if (output.value) {
      outputs.Add(graph.type(*output.value));
    } else {
      ++absent;
    }
  }
  std::vector<std::string> counts;
  for (const auto& [op, count] : by_name) counts.push_back(absl::StrCat(op, " ", count));
  return absl::StrCat(name, ": legal; ", ops, " ops on ", Print(inputs, "inputs"), ", ",
                      Print(outputs, "outputs"),
                      absent > 0 ? absl::StrCat(", ", absent, " absent") : "", "\n  ",
                      absl::StrJoin(counts, ", "), "\n");
}

// "  sizes: s0 (64; 2 to 1024), .."; "" of a graph of numbers.
std::string Sizes(const BackwardGraph& graph) {
  const std::vector<SizeSymbol> symbols = SymbolsOf(graph).value_or(std::vector<SizeSymbol>());
  if (symbols.empty()) return "";
  return absl::StrCat("  sizes, with the numbers that stand here and those that they may be: ",
                      absl::StrJoin(symbols, ", ",
                                    [](std::string* out, const SizeSymbol& symbol) {
                                      absl::StrAppend(out, Print(symbol));
                                    }),
                      "\n");
}

absl::Status Check(const CheckArguments& arguments, const std::string& name) {
  RG_ASSIGN_OR_RETURN(BackwardGraph graph, OpenGraph(name));
  if (!arguments.bind.empty()) {
    RG_ASSIGN_OR_RETURN(graph, BindSizes(graph, arguments.bind));
  }
  RG_RETURN_IF_ERROR(graph.Verify());
  std::fputs(Summary(graph, name).c_str(), stdout);
  std::fputs(Sizes(graph).c_str(), stdout);
  if (arguments.print) std::fputs(Print(graph).c_str(), stdout);
  return arguments.output.empty() ? absl::OkStatus() : SaveGraph(graph, arguments.output);
}

}  // namespace

int CheckCommand(const CheckArguments& arguments) {
  if (!arguments.output.empty() && arguments.graphs.size() != 1) {
    return Report("retrograd", absl::InvalidArgumentError("-o takes one graph"));
  }
  int exit_status = 0;
  for (const std::string& name : arguments.graphs) {
    const absl::Status status = Check(arguments, name);
    if (!status.ok()) exit_status = Report("retrograd", status);
  }
  return exit_status;
}

}  // namespace retrograd
