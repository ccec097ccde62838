#include "runtime/ops/attention/attention_class.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "fusion/kernel/ir/scale.h"
#include "runtime/tuning/extent_class.h"

namespace retrograd {
namespace {

constexpr int64_t kAligned = 8;  // elements of 16 bits that accesses of 16 bytes take at once

// Its axes in the order of their strides. Lines have gaps behind them where those keep aligned what
// was. An axis along which it is spread stays so.
void Pack(CallTensor* t) {
  std::vector<size_t> inner_first(t->shape.size());
  std::iota(inner_first.begin(), inner_first.end(), size_t{0});
  std::stable_sort(inner_first.begin(), inner_first.end(),
                   [&](size_t a, size_t b) { return t->strides[a] < t->strides[b]; });
  t->offset = 0;
  int64_t packed = 1, axes = 0;
  for (const size_t axis : inner_first) {
    if (t->strides[axis] == 0) continue;
    const bool lines = axes++ == 1;
    if (lines && t->strides[axis] % kAligned == 0) packed = CeilDiv(packed, kAligned) * kAligned;
    t->strides[axis] = packed;
    packed *= t->shape[axis];
  }
}

}  // namespace

AttentionCall RepresentativeOf(const AttentionCall& call) {
  const std::vector<int64_t>& q = call.operands[1].shape;
  const std::vector<int64_t>& k = call.operands[2].shape;
  // As many queries as keys stay as many, so both are aligned as the lines of a bias are: wholly,
  // or taken for odd.
  const int64_t alignment = HasBias(call) ? kAligned : 1;
  const auto of_class = [&](int64_t extent) {
    return ExtentOfClass(extent % alignment == 0 ? extent : extent | 1, alignment);
  };
  const int64_t batch = CountOfClass(q[0]), queries = of_class(q[2]), keys = of_class(k[2]);
  if (batch == q[0] && queries == q[2] && keys == k[2]) return call;
  AttentionCall made = call;
  // Of tensors [B,H,T,D] and [B,H,T] of queries, [B,H,T,D] of keys.
  const auto resize = [&](CallTensor* t, int64_t tokens) {
    t->shape[0] = batch;
    t->shape[2] = tokens;
    Pack(t);
  };
  for (const size_t place : {0, 1, 4, 5}) resize(&made.operands[place], queries);
  for (const size_t place : {2, 3}) resize(&made.operands[place], keys);
  resize(&made.results[0], queries);
  for (const size_t place : {1, 2}) resize(&made.results[place], keys);
  if (HasScoreGradient(made)) {
    made.results[kScoreGradient].shape[3] = keys;
    resize(&made.results[kScoreGradient], queries);
  }
  if (HasBias(made)) {
    CallTensor& bias = made.operands[kAttentionBias];
    const size_t rank = bias.shape.size();
    if (rank == 4 && bias.shape[0] == q[0]) bias.shape[0] = batch;
    if (bias.shape[rank - 2] == q[2]) bias.shape[rank - 2] = queries;
    if (bias.shape[rank - 1] == k[2]) bias.shape[rank - 1] = keys;
    Pack(&bias);
  }
  return made;
}

}  // namespace retrograd
