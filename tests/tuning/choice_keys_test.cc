// What the choices of each op depend on: each thing that may change an answer makes another key,
// and what cannot, the same.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/gpu/kernels_digest.h"
#include "runtime/ops/attention/cudnn_attention.h"
#include "runtime/ops/convolution/cudnn_convolution.h"
#include "runtime/ops/matmul/blas_operands.h"
#include "tests/catch.h"
#include "tests/support/plans/convolutions.h"

namespace retrograd {
namespace {

template <typename T>
using Changes = std::vector<std::pair<const char*, std::function<void(T&)>>>;

struct MatMul {
  MatMulCall call{.m = 64,
                  .n = 32,
                  .k = 16,
                  .batch = {2, 6},
                  .in_dtype = DType::kFp32,
                  .out_dtype = DType::kFp32,
                  .a = {.row_stride = 16, .col_stride = 1, .batch_strides = {6144, 1024}},
                  .b = {.row_stride = 32, .col_stride = 1, .batch_strides = {3072, 512}},
                  .d = {.row_stride = 32, .col_stride = 1, .batch_strides = {12288, 2048}}};
  MatMulFacts facts{.a_alignment = 64, .b_alignment = 64, .d_alignment = 64};
};

TEST_CASE("the key of a matmul holds shapes, strides, dtypes, alignments and how it adds") {
  const Changes<MatMul> changes = {
      {"m", [](MatMul& x) { x.call.m = 65; }},
      {"n", [](MatMul& x) { x.call.n = 33; }},
      {"k", [](MatMul& x) { x.call.k = 17; }},
      {"batch",
       [](MatMul& x) {
         x.call.batch = {3, 4};
       }},  // of as many matrices
      {"operands' dtype", [](MatMul& x) { x.call.in_dtype = DType::kBf16; }},
      {"result's dtype", [](MatMul& x) { x.call.out_dtype = DType::kBf16; }},
      {"a's rows", [](MatMul& x) { x.call.a.row_stride = 24; }},
      {"a's columns", [](MatMul& x) { x.call.a.col_stride = 2; }},
      {"a's batch",
       [](MatMul& x) {
         x.call.a.batch_strides = {0, 1024};
       }},
      {"b's rows", [](MatMul& x) { x.call.b.row_stride = 40; }},
      {"b's columns", [](MatMul& x) { x.call.b.col_stride = 2; }},
      {"b's batch",
       [](MatMul& x) {
         x.call.b.batch_strides = {3072, 0};
       }},
      {"the result's rows", [](MatMul& x) { x.call.d.row_stride = 40; }},
      {"the result's columns", [](MatMul& x) { x.call.d.col_stride = 2; }},
      {"the result's batch",
       [](MatMul& x) {
         x.call.d.batch_strides = {24576, 4096};
       }},
      {"accumulation", [](MatMul& x) { x.call.accumulate = true; }},
      {"TF32", [](MatMul& x) { x.facts.allow_tf32 = true; }},
      {"a's alignment", [](MatMul& x) { x.facts.a_alignment = 16; }},
      {"b's alignment", [](MatMul& x) { x.facts.b_alignment = 16; }},
      {"the result's alignment", [](MatMul& x) { x.facts.d_alignment = 16; }},
      {"an offset that spoils an alignment", [](MatMul& x) { x.call.a.offset = 1; }},
  };
  const MatMul plain;
  const std::string key = MatMulKey(plain.call, plain.facts);
  for (const auto& [what, change] : changes) {
    MatMul changed;
    change(changed);
    INFO(what);
    CHECK(MatMulKey(changed.call, changed.facts) != key);
  }
  MatMul moved;
  moved.call.a.offset = 64;
  CHECK(MatMulKey(moved.call, moved.facts) == key);
}

struct Convolution {
  Call call = MakeConvolution(Op::convolution_input_gradient,
                              SquareConvolution(2, 32, 32, 1, 14, 3, 1, 1), {});
  CallFacts facts{.operand_alignment = {16, 16}, .result_alignment = {16}};
  CudnnConvolutionOptions options;
  void Reshape(const ConvolutionShape& shape, const ConvolutionLayout& layout = {}) {
    call = MakeConvolution(call.op, shape, layout);
  }
};

TEST_CASE("the key of a convolution holds op, shapes, groups, window, layout, dtypes, alignments") {
  const Changes<Convolution> changes = {
      {"op",
       [](Convolution& x) {
         x.call =
             MakeConvolution(Op::convolution, SquareConvolution(2, 32, 32, 1, 14, 3, 1, 1), {});
       }},
      {"batch", [](auto& x) { x.Reshape(SquareConvolution(3, 32, 32, 1, 14, 3, 1, 1)); }},
      {"channels", [](auto& x) { x.Reshape(SquareConvolution(2, 64, 32, 1, 14, 3, 1, 1)); }},
      {"groups", [](auto& x) { x.Reshape(SquareConvolution(2, 32, 32, 2, 14, 3, 1, 1)); }},
      {"size", [](auto& x) { x.Reshape(SquareConvolution(2, 32, 32, 1, 15, 3, 1, 1)); }},
      {"kernel", [](auto& x) { x.Reshape(SquareConvolution(2, 32, 32, 1, 14, 5, 1, 2)); }},
      {"stride", [](auto& x) { x.Reshape(SquareConvolution(2, 32, 32, 1, 14, 3, 2, 1)); }},
      {"padding", [](auto& x) { x.Reshape(SquareConvolution(2, 32, 32, 1, 14, 3, 1, 0)); }},
      {"dilation", [](auto& x) { x.Reshape(SquareConvolution(2, 32, 32, 1, 14, 3, 1, 2, 2)); }},
      {"layout",
       [](auto& x) {
         x.Reshape(SquareConvolution(2, 32, 32, 1, 14, 3, 1, 1), {.channels_last = false});
       }},
      {"one tensor's strides",
       [](auto& x) {
         x.call.operands[0].strides = {6272, 196, 14, 1};
       }},
      {"operands' dtype", [](auto& x) { x.call.operands[0].dtype = DType::kFp16; }},
      {"result's dtype", [](auto& x) { x.call.results[0].dtype = DType::kFp32; }},
      {"an operand's offset", [](auto& x) { x.call.operands[1].offset = 8; }},
      {"an operand's alignment",
       [](auto& x) {
         x.facts.operand_alignment = {16, 4};
       }},
      {"the result's alignment", [](auto& x) { x.facts.result_alignment = {2}; }},
      {"any order of sums", [](auto& x) { x.options.nondeterministic = true; }},
      {"workspace", [](auto& x) { x.options.most_workspace_bytes = 0; }},
      {"plans", [](auto& x) { x.options.most_plans = 0; }},
  };
  const auto key_of = [](const Convolution& x) {
    return CudnnConvolutionRequest(x.call, x.facts, x.options).key;
  };
  const std::string key = key_of({});
  for (const auto& [what, change] : changes) {
    Convolution changed;
    change(changed);
    INFO(what);
    CHECK(key_of(changed) != key);
  }
  Convolution elsewhere;
  elsewhere.call.node = NodeId{77};
  CHECK(key_of(elsewhere) == key);
}

struct Attention {
  Attention() {
    const auto rows = [](int64_t heads) {
      const int64_t row = 64;
      return AttentionOperand{.shape = {2, heads, 128, row},
                              .strides = {heads * 128 * row, 128 * row, row, 1}};
    };
    call.dtype = DType::kBf16;
    call.operands = {rows(4), rows(4), rows(4), rows(4), rows(4)};
    call.operands.push_back({.shape = {2, 4, 128}, .strides = {512, 128, 1}});
    call.results = {rows(4), rows(4), rows(4)};
    dtypes.assign(5, DType::kBf16);
    dtypes.push_back(DType::kFp32);
  }
  std::string Key() const { return CudnnAttentionRequest(call, {dtypes}, options).key; }
  AttentionCall call;
  std::vector<DType> dtypes;
  CudnnAttentionOptions options;
};

TEST_CASE("the key of attention holds shapes, strides, dtypes, mask, scale and dropout") {
  const Changes<Attention> changes = {
      {"an operand's shape", [](Attention& x) { x.call.operands[1].shape[1] = 2; }},
      {"an operand's strides", [](Attention& x) { x.call.operands[2].strides[2] = 128; }},
      {"an operand's offset", [](Attention& x) { x.call.operands[3].offset = 8; }},
      {"a result's strides", [](Attention& x) { x.call.results[0].strides[2] = 128; }},
      {"dtype", [](Attention& x) { x.call.dtype = DType::kFp16; }},
      {"an operand's dtype", [](Attention& x) { x.dtypes[5] = DType::kFp64; }},
      {"mask", [](Attention& x) { x.call.causal = true; }},
      {"scale", [](Attention& x) { x.call.scale = 0.125; }},
      {"dropout", [](Attention& x) { x.call.dropout_p = 0.1; }},
      {"whose random numbers", [](Attention& x) { x.call.variant = "cudnn"; }},
      {"a bias",
       [](Attention& x) {
         x.call.operands.push_back({.shape = {1, 1, 128, 128}, .strides = {16384, 16384, 128, 1}});
         x.dtypes.push_back(DType::kBf16);
       }},
      {"any order of sums", [](Attention& x) { x.options.deterministic = false; }},
  };
  const std::string key = Attention().Key();
  for (const auto& [what, change] : changes) {
    Attention changed;
    change(changed);
    INFO(what);
    CHECK(changed.Key() != key);
  }
}

TEST_CASE(
    "the digest of kernels is of all that is compiled of them, and of how they are launched") {
  Kernel kernel{.name = "rg_a", .blocks = 8, .threads = 64, .arguments = 1};
  kernel.function.statements = "int i = 0;\n";
  const auto digest = [](const std::vector<Kernel>& kernels) {
    return KernelsDigest(Dialect::kCuda, kernels);
  };
  const std::string plain = digest({kernel});
  CHECK(plain.size() == 8);
  CHECK(digest({kernel}) == plain);
  CHECK(digest({kernel, kernel}) != plain);
  CHECK(KernelsDigest(Dialect::kHip, {kernel}) != plain);
  const Changes<Kernel> changes = {
      {"text", [](Kernel& k) { k.function.statements = "int i = 1;\n"; }},
      {"blocks", [](Kernel& k) { k.blocks = 9; }},
      {"threads", [](Kernel& k) { k.threads = 96; }},
      {"cluster", [](Kernel& k) { k.cluster = 1; }},
      {"staged memory", [](Kernel& k) { k.staged_bytes = 16; }},
      {"prelude", [](Kernel& k) { k.parts |= PreludePart::kAttention; }},
  };
  for (const auto& [what, change] : changes) {
    Kernel changed = kernel;
    change(changed);
    INFO(what);
    CHECK(digest({changed}) != plain);
  }
}

}  // namespace
}  // namespace retrograd
