// The models that are built in C++ at any size. Each lives in the file of its name.
#ifndef RETROGRAD_MODELS_BUILDERS_H_
#define RETROGRAD_MODELS_BUILDERS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/ir/backward_graph.h"
#include "models/parameters.h"

namespace retrograd {

struct Builder {
  absl::string_view name;
  absl::string_view description;
  std::vector<ParameterSpec> parameters;
  absl::StatusOr<BackwardGraph> (*build)(const Parameters& parameters);
};

const Builder& BertBuilder();
const Builder& Gpt2Builder();
const Builder& LlamaBuilder();
const Builder& MlpBuilder();
const Builder& MoeBuilder();
const Builder& NormStackBuilder();
const Builder& ResnetBuilder();
const Builder& TransformerBuilder();
const Builder& VitBuilder();

}  // namespace retrograd

#endif  // RETROGRAD_MODELS_BUILDERS_H_
