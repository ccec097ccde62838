// Which calls are timed for which others.
#include <bit>
#include <cstdlib>
#include <numeric>
#include <set>

#include "graph/ir/library/convolution.h"
#include "runtime/ops/attention/attention_class.h"
#include "runtime/ops/convolution/convolution_class.h"
#include "runtime/ops/matmul/matmul_class.h"
#include "runtime/tuning/extent_class.h"
#include "tests/catch.h"
#include "tests/support/plans/convolutions.h"

namespace retrograd {
namespace {

TEST_CASE("an extent is near that of its class, which is its own class's, and aligned like it") {
  for (int64_t alignment : {1, 2, 4, 8}) {
    for (int64_t extent = 0; extent <= 70'000; ++extent) {
      const int64_t of_class = ExtentOfClass(extent, alignment);
      INFO(extent << " -> " << of_class << ", alignment " << alignment);
      REQUIRE(ExtentOfClass(of_class, alignment) == of_class);
      REQUIRE(std::gcd(of_class, alignment) == std::gcd(extent, alignment));
      REQUIRE(8 * std::abs(of_class - extent) <= extent);
    }
  }
}

TEST_CASE("classes are four to an octave and alignment") {
  for (int64_t octave : {64, 1024, 32768}) {
    for (int64_t alignment : {1, 2, 4, 8}) {
      std::set<int64_t> classes;
      for (int64_t extent = octave; extent < 2 * octave; ++extent) {
        const int64_t of_class = ExtentOfClass(extent, alignment);
        if (of_class < 2 * octave) classes.insert(of_class);
      }
      CHECK(classes.size() == 4 * std::bit_width(static_cast<uint64_t>(alignment)));
    }
  }
}

TEST_CASE(
    "the largest extent of a class is its own class's, near, no smaller, and aligned like all") {
  for (int64_t alignment : {1, 2, 4, 8}) {
    for (int64_t extent = 0; extent <= 70'000; ++extent) {
      const int64_t of_class = LargestOfClass(extent, alignment);
      INFO(extent << " -> " << of_class << ", alignment " << alignment);
      REQUIRE(of_class >= extent);
      REQUIRE(LargestOfClass(of_class, alignment) == of_class);
      REQUIRE(std::gcd(of_class, alignment) == std::gcd(extent, alignment));
      REQUIRE(8 * (of_class - extent) <= extent + 8);
    }
  }
}

TEST_CASE("the representative of a matmul has no smaller extents and stands for itself") {
  for (int64_t m = 1; m <= 5000; m += 37) {
    for (const bool by_columns : {false, true}) {
      MatMulCall call{.m = m, .n = 96, .k = 776, .batch = {3}};
      call.a = {.row_stride = 776, .col_stride = 1, .batch_strides = {m * 776}};
      call.b = {.row_stride = 96, .col_stride = 1, .batch_strides = {0}};
      call.d = {.row_stride = 96, .col_stride = 1, .batch_strides = {m * 96}};
      if (by_columns) {
        call.a.row_stride = 1;
        call.a.col_stride = m;
      }
      INFO(m << (by_columns ? " columns" : " rows"));
      const MatMulCall made = RepresentativeOf(call);
      CHECK(made.m >= call.m);
      CHECK(made.m * 8 <= call.m * 9 + 64);
      CHECK(made.n >= call.n);
      CHECK(made.k >= call.k);
      CHECK(made.b.batch_strides[0] == 0);
      if (by_columns) CHECK(std::gcd(made.m, 8) == std::gcd(call.m, 8));
      CHECK(RepresentativeOf(made) == made);
    }
  }
}

TEST_CASE("classes by their largest are at most eight to an octave and alignment") {
  for (int64_t octave : {64, 1024, 32768}) {
    for (int64_t alignment : {1, 2, 4, 8}) {
      std::set<int64_t> classes;
      for (int64_t extent = octave + 1; extent <= 2 * octave; ++extent) {
        const int64_t of_class = LargestOfClass(extent, alignment);
        if (of_class <= 2 * octave) classes.insert(of_class);
      }
      CHECK(classes.size() >= 8);
      CHECK(classes.size() <= 8 * std::bit_width(static_cast<uint64_t>(alignment)));
    }
  }
}

TEST_CASE("counts have two classes to an octave") {
  std::set<int64_t> classes;
  for (int64_t count = 0; count <= 1024; ++count) {
    const int64_t of_class = CountOfClass(count);
    INFO(count << " -> " << of_class);
    REQUIRE(CountOfClass(of_class) == of_class);
    REQUIRE(4 * std::abs(of_class - count) <= count);
    classes.insert(of_class);
  }
  CHECK(classes == std::set<int64_t>{0,  1,  2,  3,   4,   6,   8,   12,  16,  24,  32,
                                     48, 64, 96, 128, 192, 256, 384, 512, 768, 1024});
}

MatMulCall MatMul(int64_t m, int64_t n, int64_t k) {
  MatMulCall call{.m = m, .n = n, .k = k, .batch = {3}};
  call.a = {.offset = 5, .row_stride = 2 * k, .col_stride = 1, .batch_strides = {2 * k * m}};
  call.b = {.row_stride = 1, .col_stride = k, .batch_strides = {0}};
  call.d = {.row_stride = n, .col_stride = 1, .batch_strides = {m * n}};
  return call;
}

TEST_CASE("a call of a class's extents is timed as it is") {
  const MatMulCall call = MatMul(1024, 768, 128);
  CHECK(RepresentativeOf(call) == call);
}

TEST_CASE("another call is timed by packed matrices in the same orders") {
  const MatMulCall made = RepresentativeOf(MatMul(1000, 768, 128));
  CHECK(made.m == 1024);
  CHECK(made.a.offset == 0);
  CHECK(made.a.row_stride == 128);
  CHECK(made.a.batch_strides == std::vector<int64_t>{1024 * 128});
  CHECK(made.b.row_stride == 1);
  CHECK(made.b.col_stride == 128);
  CHECK(made.b.batch_strides == std::vector<int64_t>{0});  // one matrix for all
  CHECK(RepresentativeOf(made) == made);
}

TEST_CASE("an extent that counts lines needs no alignment") {
  // m counts the lines of a and d, n and k are lengths of lines.
  const MatMulCall made = RepresentativeOf(MatMul(1001, 770, 132));
  CHECK(made.m == 1024);
  CHECK(made.n == 770);
  CHECK(made.k == 132);
  CHECK(RepresentativeOf(MatMul(997, 770, 132)) == made);
}

// [B,H,T,D], in memory [B,T,H,D] with gaps between tokens.
AttentionOperand Tokens(int64_t batch, int64_t heads, int64_t tokens) {
  return {.offset = 64,
          .shape = {batch, heads, tokens, 64},
          .strides = {tokens * heads * 192, 64, heads * 192, 1}};
}

AttentionCall Attention(int64_t batch, int64_t queries, int64_t keys) {
  AttentionCall call{.dtype = DType::kBf16};
  const AttentionOperand q = Tokens(batch, 6, queries), k = Tokens(batch, 2, keys);
  call.operands = {q,
                   q,
                   k,
                   k,
                   q,
                   {.shape = {batch, 6, queries}, .strides = {6 * queries, queries, 1}},
                   {.shape = {batch, 1, queries, keys}, .strides = {0, 0, keys, 1}}};
  call.results = {q,
                  k,
                  k,
                  {.shape = {batch, 6, queries, keys},
                   .strides = {6 * queries * keys, queries * keys, keys, 1}}};
  return call;
}

TEST_CASE("attention of a class's extents is timed as it is") {
  const AttentionCall call = Attention(4, 512, 1024);
  CHECK(RepresentativeOf(call) == call);
}

TEST_CASE("other attention is timed by packed tensors in the same orders") {
  const AttentionCall made = RepresentativeOf(Attention(5, 504, 1000));
  CHECK(made.operands[1].shape == Shape{6, 6, 512, 64});
  CHECK(made.operands[1].strides == std::vector<int64_t>{512 * 6 * 64, 64, 6 * 64, 1});
  CHECK(made.operands[1].offset == 0);
  CHECK(made.operands[2].shape == Shape{6, 2, 1024, 64});
  CHECK(made.operands[5].shape == Shape{6, 6, 512});
  CHECK(made.operands[5].strides == std::vector<int64_t>{6 * 512, 512, 1});
  // A bias that all heads and sequences share is shared again.
  CHECK(made.operands[kAttentionBias].shape == Shape{6, 1, 512, 1024});
  CHECK(made.operands[kAttentionBias].strides == std::vector<int64_t>{0, 0, 1024, 1});
  CHECK(made.results[0].shape == made.operands[1].shape);
  CHECK(made.results[2].shape == made.operands[2].shape);
  CHECK(made.results[kScoreGradient].shape == Shape{6, 6, 512, 1024});
  CHECK(made.results[kScoreGradient].strides ==
        std::vector<int64_t>{6 * 512 * 1024, 512 * 1024, 1024, 1});
  CHECK(RepresentativeOf(made) == made);
  CHECK(RepresentativeOf(Attention(6, 520, 984)) == made);
  // Lengths that lines of a bias are not aligned for are of one class.
  const AttentionCall odd = RepresentativeOf(Attention(6, 501, 999));
  CHECK(odd.operands[2].shape == Shape{6, 2, 1025, 64});
  CHECK(RepresentativeOf(odd) == odd);
  CHECK(RepresentativeOf(Attention(6, 516, 1006)) == odd);
}

// Our kernels load such a bias in boxes, and cuDNN by accesses of 16 bytes.
TEST_CASE("a bias whose odd lines begin aligned is timed as one") {
  AttentionCall call = Attention(6, 501, 999);
  call.operands[kAttentionBias].strides[2] = 1000;
  const AttentionCall made = RepresentativeOf(call);
  CHECK(made.operands[kAttentionBias].shape == Shape{6, 1, 513, 1025});
  CHECK(made.operands[kAttentionBias].strides == std::vector<int64_t>{0, 0, 1032, 1});
  CHECK(RepresentativeOf(made) == made);
  call.operands[kAttentionBias].strides[2] = 1001;
  CHECK(RepresentativeOf(call) == RepresentativeOf(Attention(6, 501, 999)));
}

TEST_CASE("a convolution is timed by one of the class's number of images") {
  const Op op =
      GENERATE(Op::convolution, Op::convolution_input_gradient, Op::convolution_weight_gradient);
  const bool channels_last = GENERATE(false, true);
  const auto of_images = [&](int64_t images) {
    return MakeConvolution(op, SquareConvolution(images, 8, 16, 1, 14, 3, 2, 1),
                           {.channels_last = channels_last});
  };
  for (const auto& [images, of_class] : {std::pair{1, 1}, {5, 6}, {7, 8}, {24, 24}, {27, 24}}) {
    CHECK(ConvolutionRepresentativeOf(of_images(images)) == of_images(of_class));
  }
}

}  // namespace
}  // namespace retrograd
