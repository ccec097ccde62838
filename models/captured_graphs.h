// The graphs captured from PyTorch that lie in models/graphs, as entries of the registry.
// models/zoo.py holds the models, models/capture.py captures them.
#ifndef RETROGRAD_MODELS_CAPTURED_GRAPHS_H_
#define RETROGRAD_MODELS_CAPTURED_GRAPHS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "models/models.h"

namespace retrograd {

// Every NAME.bwd.pb of the folder, by name. None if the folder cannot be read.
std::vector<Model> CapturedGraphs();

// NAME.safetensors beside NAME.bwd.pb (or NAME.pb, NAME.rgt); "" if there is none.
std::string BundleBeside(absl::string_view graph_path);

}  // namespace retrograd

#endif  // RETROGRAD_MODELS_CAPTURED_GRAPHS_H_
