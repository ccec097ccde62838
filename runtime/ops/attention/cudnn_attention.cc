#include "runtime/ops/attention/cudnn_attention.h"

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"
#include "runtime/gpu/cuda/cudnn_frontend_calls.h"

namespace retrograd {
namespace {

enum { kDO, kQ, kK, kV, kO, kLse, kBias };  // operands; with dropout seed and offset are last

constexpr int64_t kAlignment = 16;  // bytes, of every row of an operand

// "attention_backward %13, bf16 Q[48,8,2048,64] K[48,4,2048,64], causal"
std::string ShapeOf(const AttentionCall& call) {
  return absl::StrCat("attention_backward %", Index(call.node), ", ", Name(call.dtype), " Q[",
                      absl::StrJoin(call.operands[kQ].shape, ","), "] K[",
                      absl::StrJoin(call.operands[kK].shape, ","), "]",
                      call.causal ? ", causal" : "",
                      call.dropout_p > 0 ? absl::StrCat(", dropout ", call.dropout_p) : "");
}

}  // namespace

absl::Status CudnnRefusal(const AttentionCall& call, const AttentionFacts& facts) {
  const auto refuse = [&](absl::string_view why) {
    return absl::UnimplementedError(absl::StrCat(ShapeOf(call), ": cuDNN ", why));
  };
  if (call.dropout_p > 0 && DropoutOf(call) != DropoutVariant::kCudnn) {
    return refuse(absl::StrCat("draws no dropout as \"", call.variant, "\" does"));
  }
  if (call.dtype != DType::kBf16 && call.dtype != DType::kFp16) {
    return refuse("takes bf16 and fp16 only");
  }
  if (HasScoreGradient(call)) return refuse("gives no gradient of scores");
  const int64_t dim = call.operands[kQ].shape[3], v_dim = call.operands[kV].shape[3];
  if (dim % 8 != 0 || v_dim % 8 != 0) {
    return refuse(absl::StrFormat("takes head sizes that 8 divides, not %d and %d", dim, v_dim));
  }
  if (dim > 256 || v_dim > 256) {
    return refuse(absl::StrFormat("takes head sizes up to 256, not %d and %d", dim, v_dim));
  }
  if (facts.operand_dtypes[kLse] != DType::kFp32) return refuse("takes an fp32 log-sum-exp only");
  const auto unaligned = [](const AttentionOperand& t) {
    const int64_t step = kAlignment / 2;  // in elements of 2 bytes
    if (t.offset % step != 0 || (t.shape[3] != 1 && t.strides[3] != 1)) return true;
    for (int axis = 0; axis < 3; ++axis) {
      if (t.shape[axis] != 1 && (t.strides[axis] % step != 0 || t.strides[axis] == 0)) return true;
    }
    return false;
  };
  constexpr absl::string_view kNames[] = {"dO", "Q", "K", "V", "O", "dQ", "dK", "dV"};
  for (int i = 0; i < 8; ++i) {
    const AttentionOperand& t = i < kLse ? call.operands[i] : call.results[i - kLse];
    if (unaligned(t)) {
      return refuse(absl::StrCat("needs rows of packed elements at multiples of 16 bytes; ",
                                 kNames[i], " has the strides ", absl::StrJoin(t.strides, ","),
                                 " and the offset ", t.offset));
    }
  }
  if (HasBias(call)) {
    const AttentionOperand& bias = call.operands[kBias];
    if (bias.shape.empty() || (bias.shape.back() != 1 && bias.strides.back() != 1)) {
      return refuse("needs a bias whose last stride is 1");
    }
    if (bias.shape.back() != call.operands[kK].shape[2]) {
      return refuse("needs a bias with a number for each key");
    }
    if (facts.operand_dtypes[kBias] == DType::kFp64 || !IsFloat(facts.operand_dtypes[kBias])) {
      return refuse(absl::StrCat("takes no bias in ", Name(facts.operand_dtypes[kBias])));
    }
  }
  return absl::OkStatus();
}

namespace {

void AppendKey(const AttentionOperand& t, std::string* key) {
  absl::StrAppend(key, " [", absl::StrJoin(t.shape, ","), "]@", t.offset, ":",
                  absl::StrJoin(t.strides, ","));
}

std::string Key(const AttentionCall& call, const AttentionFacts& facts) {
  std::string key = absl::StrCat(Name(call.dtype), " ", call.causal, " ", call.scale, " ",
                                 call.dropout_p, " ", call.variant);
  for (size_t i = 0; i < call.operands.size(); ++i) {
    AppendKey(call.operands[i], &key);
    absl::StrAppend(&key, Name(facts.operand_dtypes[i]));
  }
  for (const AttentionOperand& result : call.results) AppendKey(result, &key);
  return key;
}

#ifdef RETROGRAD_HAVE_CUDNN

namespace fe = cudnn_frontend;

// Dims and strides of rank 4: axes that an operand lacks (leading ones of a bias, the last of the
// log-sum-exp, all of a seed) have extent 1. The stride of such an axis is read by nobody, but
// cuDNN wants it to be that of a packed tensor.
struct Dims {
  std::vector<int64_t> shape, strides;
};
Dims DimsOf(const AttentionOperand& t, bool append) {
  Dims d{t.shape, t.strides};
  while (d.shape.size() < 4) {
    d.shape.insert(append ? d.shape.end() : d.shape.begin(), 1);
    d.strides.insert(append ? d.strides.end() : d.strides.begin(), 1);
  }
  for (int axis = 3; axis >= 0; --axis) {
    if (d.shape[axis] != 1) continue;
    d.strides[axis] = axis == 3 ? 1 : d.shape[axis + 1] * d.strides[axis + 1];
  }
  return d;
}

// A bias that all queries share is named for each of them, at the same place: cuDNN 9.19 takes one
// of a single query's extent, and makes other gradients of it.
Dims BiasDims(const AttentionCall& call) {
  Dims d = DimsOf(call.operands[kBias], /*append=*/false);
  const int64_t queries = call.operands[kQ].shape[2];
  if (d.shape[2] == 1 && queries > 1) {
    d.shape[2] = queries;
    d.strides[2] = 0;
  }
  return d;
}

// The graph's tensors and its one operation.
void Describe(const AttentionCall& call, const AttentionFacts& facts, bool deterministic,
              fe::graph::Graph& graph) {
  graph.set_io_data_type(CudnnDataType(call.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  std::vector<CudnnTensor> operands;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const bool bias = i == kBias && HasBias(call);
    const Dims d = bias ? BiasDims(call) : DimsOf(call.operands[i], /*append=*/i == kLse);
    operands.push_back(graph.tensor(fe::graph::Tensor_attributes()
                                        .set_uid(kCudnnFirstOperand + static_cast<int64_t>(i))
                                        .set_dim(d.shape)
                                        .set_stride(d.strides)
                                        .set_data_type(CudnnDataType(facts.operand_dtypes[i]))));
  }
  auto attributes = fe::graph::SDPA_backward_attributes()
                        .set_name("attention_backward")
                        .set_attn_scale(static_cast<float>(call.scale))
                        .set_deterministic_algorithm(deterministic);
  if (call.causal) {
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }
  if (HasBias(call)) attributes.set_bias(operands[kBias]);
  if (call.dropout_p > 0) {
    const size_t seed = AttentionSeed(call);
    attributes.set_dropout(static_cast<float>(call.dropout_p), operands[seed], operands[seed + 1]);
  }
  const std::array<CudnnTensor, 3> results =
      graph.sdpa_backward(operands[kQ], operands[kK], operands[kV], operands[kO], operands[kDO],
                          operands[kLse], attributes);
  for (size_t i = 0; i < results.size(); ++i) {
    const Dims d = DimsOf(call.results[i], /*append=*/false);
    results[i]
        ->set_output(true)
        .set_uid(kCudnnFirstResult + static_cast<int64_t>(i))
        .set_dim(d.shape)
        .set_stride(d.strides)
        .set_data_type(CudnnDataType(call.dtype));
  }
}

#endif  // RETROGRAD_HAVE_CUDNN

}  // namespace

CudnnRequest CudnnAttentionRequest(const AttentionCall& call, const AttentionFacts& facts,
                                   const CudnnAttentionOptions& options) {
  RG_CHECK(call.operands.size() >= kBias && call.results.size() >= 3);
  RG_CHECK(facts.operand_dtypes.size() == call.operands.size());
  CudnnRequest request{.shape = ShapeOf(call),
                       .key = absl::StrCat(options.deterministic, " ", Key(call, facts))};
  for (size_t i = 0; i < call.operands.size(); ++i) {
    request.operands.push_back({TrialOperand(call, facts, i),
                                call.operands[i].offset * SizeBytes(facts.operand_dtypes[i])});
  }
  for (const AttentionOperand& result : call.results) {
    request.results.push_back(
        {{call.dtype, SpanOf(result)}, result.offset * SizeBytes(call.dtype)});
  }
#ifdef RETROGRAD_HAVE_CUDNN
  request.describe = [&call, facts, deterministic = options.deterministic](
                         fe::graph::Graph& graph) { Describe(call, facts, deterministic, graph); };
#endif
  return request;
}

}  // namespace retrograd
