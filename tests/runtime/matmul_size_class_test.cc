// Which matmuls are timed for which others.
#include "runtime/ops/matmul/size_class.h"

#include <bit>
#include <cstdlib>
#include <numeric>
#include <set>

#include "tests/catch.h"

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

MatMulCall Call(int64_t m, int64_t n, int64_t k) {
  MatMulCall call{.m = m, .n = n, .k = k, .batch = {3}};
  call.a = {.offset = 5, .row_stride = 2 * k, .col_stride = 1, .batch_strides = {2 * k * m}};
  call.b = {.row_stride = 1, .col_stride = k, .batch_strides = {0}};
  call.d = {.row_stride = n, .col_stride = 1, .batch_strides = {m * n}};
  return call;
}

TEST_CASE("a call of a class's extents is timed as it is") {
  const MatMulCall call = Call(1024, 768, 128);
  CHECK(RepresentativeOf(call) == call);
}

TEST_CASE("another call is timed by packed matrices in the same orders") {
  const MatMulCall made = RepresentativeOf(Call(1000, 768, 128));
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
  const MatMulCall made = RepresentativeOf(Call(1001, 770, 132));
  CHECK(made.m == 1024);
  CHECK(made.n == 770);
  CHECK(made.k == 132);
  CHECK(RepresentativeOf(Call(997, 770, 132)) == made);
}

}  // namespace
}  // namespace retrograd
