// Evaluates a graph file by the reference evaluator, for the tests of the exporter:
//   reference_outputs GRAPH INPUTS OUTPUTS
// INPUTS holds the inputs' values, in the order of their nodes, dense and row-major, as doubles.
// OUTPUTS gets the present outputs' values likewise.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/proto/proto.h"
#include "graph/reference/reference.h"

namespace retrograd {
namespace {

absl::StatusOr<std::string> ReadAll(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

absl::StatusOr<std::vector<Values>> SplitInputs(const BackwardGraph& graph,
                                                const std::string& bytes) {
  std::vector<Values> inputs;
  size_t at = 0;
  for (NodeId id : InputNodes(graph)) {
    Values values(graph.type(id).elements());
    const size_t size = values.size() * sizeof(double);
    if (size > bytes.size() - at)
      return absl::InvalidArgumentError("the inputs' file is too short");
    bytes.copy(reinterpret_cast<char*>(values.data()), size, at);
    at += size;
    inputs.push_back(std::move(values));
  }
  if (at != bytes.size()) return absl::InvalidArgumentError("the inputs' file is too long");
  return inputs;
}

absl::Status Run(const char* graph_path, const char* inputs_path, const char* outputs_path) {
  RG_ASSIGN_OR_RETURN(const std::string graph_bytes, ReadAll(graph_path));
  RG_ASSIGN_OR_RETURN(const BackwardGraph graph, ParseGraphProto(graph_bytes));
  RG_ASSIGN_OR_RETURN(const std::string input_bytes, ReadAll(inputs_path));
  RG_ASSIGN_OR_RETURN(const std::vector<Values> inputs, SplitInputs(graph, input_bytes));
  RG_ASSIGN_OR_RETURN(const std::vector<Values> values, Evaluate(graph, inputs));
  std::ofstream file(outputs_path, std::ios::binary);
  for (const GraphOutput& output : graph.outputs()) {
    if (!output.value.has_value()) continue;
    const Values& value = values[graph.value_index(*output.value)];
    file.write(reinterpret_cast<const char*>(value.data()),
               static_cast<std::streamsize>(value.size() * sizeof(double)));
  }
  file.flush();
  return file ? absl::OkStatus() : absl::InternalError(absl::StrCat("cannot write ", outputs_path));
}

}  // namespace
}  // namespace retrograd

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: reference_outputs GRAPH INPUTS OUTPUTS\n");
    return 2;
  }
  const absl::Status status = retrograd::Run(argv[1], argv[2], argv[3]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "reference_outputs: %s\n", std::string(status.message()).c_str());
  return 1;
}
