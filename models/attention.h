// The backward of multi-head attention between its projections, for every model that has one.
#ifndef RETROGRAD_MODELS_ATTENTION_H_
#define RETROGRAD_MODELS_ATTENTION_H_

#include <cstdint>
#include <string>

#include "models/layers.h"

namespace retrograd {

// The sizes of one attention. With fewer key and value heads than heads, groups of heads share one.
struct Heads {
  int64_t batch, length, heads, kv_heads, head_dim;

  int64_t rows() const { return batch * length; }
  int64_t width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
};

// [rows, count * head_dim] as [batch, count, length, head_dim], and back.
ValueId SplitHeads(LayerBackward& net, const Heads& h, ValueId rows, int64_t count);
ValueId MergeHeads(LayerBackward& net, const Heads& h, ValueId heads, int64_t count);

// What the forward kept: [batch, heads, length, head_dim] each, lying in memory as the projections
// wrote them, which is [rows, features]; and the log-sum-exp of the scores.
struct SavedAttention {
  ValueId q, k, v, o;
  ValueId logsumexp;  // [batch, heads, length]
};
SavedAttention SaveAttention(LayerBackward& net, const Heads& h, const std::string& name);

// o = softmax(q kᵀ / √head_dim) v per head  ⇒  from do, as rows, the gradients of q, k and v as
// [batch, heads, length, head_dim].
struct AttentionGradients {
  ValueId q, k, v;
};
AttentionGradients AttentionBackward(LayerBackward& net, const Heads& h, const std::string& name,
                                     const SavedAttention& saved, ValueId do_rows, bool causal);

}  // namespace retrograd

#endif  // RETROGRAD_MODELS_ATTENTION_H_
