// The registry of named backward graphs: those built in C++ at any size and those captured from
// PyTorch, which are files in models/graphs/.
#ifndef RETROGRAD_MODELS_MODELS_H_
#define RETROGRAD_MODELS_MODELS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"
#include "models/parameters.h"

namespace retrograd {

enum class ModelKind { kBuilder, kCaptured };
absl::string_view Name(ModelKind kind);  // "builder", "captured"

struct Model {
  std::string name;
  ModelKind kind = ModelKind::kBuilder;
  std::string description;
  std::vector<ParameterSpec> parameters;  // builders alone
  std::string path;                       // captured: the graph's file
  std::string bundle_path;                // captured, if inputs and gradients were recorded
};

// Builders first, then captured graphs in the order of their names. Scanned once.
absl::Span<const Model> AllModels();

// "mlp", "transformer:layers=12,d=768", "golf_tiny".
absl::StatusOr<BackwardGraph> BuildModel(absl::string_view model);

// A file (a path that has a '/', ends in .pb or .rgt, or exists) or else a model.
absl::StatusOr<BackwardGraph> OpenGraph(absl::string_view file_or_model);

// The recorded inputs and gradients that lie beside a captured graph or a graph's file:
// NAME.safetensors for NAME.bwd.pb. nullopt if there are none.
std::optional<std::string> RecordedBundle(absl::string_view file_or_model);

}  // namespace retrograd

#endif  // RETROGRAD_MODELS_MODELS_H_
