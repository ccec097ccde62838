// The two ends of a model that predicts classes: the loss over them, and embeddings of indices.
#ifndef RETROGRAD_MODELS_CLASSIFIER_H_
#define RETROGRAD_MODELS_CLASSIFIER_H_

#include <cstdint>
#include <string>

#include "models/layers.h"

namespace retrograd {

// loss = -1/rows Σ_t logp[t, target_t],  logp = log_softmax(logits): [rows, classes]
//   ⇒  dlogits, in the activations' dtype. Reads "dloss", "target" and "logp".
ValueId CrossEntropyBackward(LayerBackward& net, int64_t rows, int64_t classes);

// x[t] = E[index_t]  ⇒  dE[index_t] += dx[t], of shape [count, width]. `index` names the input.
ValueId EmbeddingGradient(LayerBackward& net, const std::string& module, const std::string& index,
                          int64_t count, ValueId dx);

}  // namespace retrograd

#endif  // RETROGRAD_MODELS_CLASSIFIER_H_
