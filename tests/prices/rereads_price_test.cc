// What a kernel reads again at steps of many elements is looked up element by element, and
// divisions by one number of a row are multiplications where a thread has several elements of it.
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/term_ps.h"

namespace retrograd {
namespace {

constexpr int64_t kSide = 4096;

// Of x[r,c] y[r,c], where y is a later part of x, or its transpose.
KernelIr SumsOfRows(bool transposed) {
  KernelIrBuilder b({kSide, kSide});
  const int buffer = b.In(DType::kFp32, (kSide + 1) * kSide);
  const int x = b.Load(buffer, A(0) * kSide + A(1));
  const int y = transposed ? b.Load(buffer, A(1) * kSide + A(0))
                           : b.Load(buffer, A(0) * kSide + A(1) + IndexExpr::Constant(kSide));
  b.Store(b.Reduce(Op::sum, b.Do(Op::mul, {x, y}), AxisMask{2}), b.Out(DType::kFp32, kSide), A(0));
  return b.Build();
}

TEST_CASE("elements that are read again a row apart cost a lookup each") {
  Schedule s{.kind = Template::kRowReduction, .threads = 256};
  s.threads_per_row = 32;
  s.rows_per_block = 8;
  s.blocks = kSide / 8;
  const int64_t apart = TermPs(SumsOfRows(true), s, "cache");
  const int64_t beside = TermPs(SumsOfRows(false), s, "cache");
  CHECK(beside > 0);
  CHECK(apart > 8 * beside);
}

// Rows across which x lies; each place of it is read by so many neighbouring rows.
KernelIr Across(int64_t readers) {
  const std::vector<int64_t> extents = {kSide, kSide};
  KernelIrBuilder b(extents);
  const int64_t places = kSide / readers;
  const IndexExpr at = A(1) * places + FloorDiv(A(0), readers, extents);
  b.Store(b.Load(b.In(DType::kFp32, kSide * places), at), b.Out(DType::kFp32, kSide * kSide),
          A(0) * kSide + A(1));
  return b.Build();
}

TEST_CASE("elements a step apart are looked up by each of their readers") {
  const Schedule s{.kind = Template::kPointwise, .threads = 256, .blocks = kSide * kSide / 256};
  const int64_t once = TermPs(Across(1), s, "cache");
  const int64_t by_two = TermPs(Across(2), s, "cache"), by_four = TermPs(Across(4), s, "cache");
  CHECK(by_two > once + 1'000'000);
  CHECK(by_four > by_two * 14 / 10);  // three of four reads are further ones in place of one of two
}

TEST_CASE("tiles that transpose look up whole vectors, however often they are read") {
  constexpr int64_t kCopies = 4, kTurned = 1024, kMatrix = kTurned * kTurned;
  const std::vector<int64_t> extents = {kCopies, kTurned, kTurned};
  KernelIrBuilder b(extents);
  const IndexExpr turned = FloorDiv(A(0), 2, extents) * kMatrix + A(2) * kTurned + A(1);
  b.Store(b.Load(b.In(DType::kFp32, kCopies / 2 * kMatrix), turned),
          b.Out(DType::kFp32, kCopies * kMatrix), A(0) * kMatrix + A(1) * kTurned + A(2));
  const KernelIr ir = b.Build();
  const auto cache_ps = [&](Template kind) {
    return TermPs(ir, {.kind = kind, .threads = 256, .blocks = 4096}, "cache");
  };
  CHECK(cache_ps(Template::kPointwise) > cache_ps(Template::kTranspose) + 1'000'000);
}

KernelIr Quotients(const IndexExpr& divisor, DType dtype = DType::kFp32) {
  KernelIrBuilder b({kSide, kSide});
  const int x = b.Load(b.In(dtype, kSide * kSide), A(0) * kSide + A(1));
  const int d = b.Load(b.In(dtype, kSide), divisor);
  b.Store(b.Do(Op::div, {x, d}), b.Out(dtype, kSide * kSide), A(0) * kSide + A(1));
  return b.Build();
}

TEST_CASE("one reciprocal serves the elements of a thread") {
  const auto compute_ps = [](const KernelIr& ir, int width) {
    return TermPs(ir,
                  {.kind = Template::kPointwise,
                   .threads = 256,
                   .vector_width = width,
                   .blocks = kSide * kSide / 256 / width},
                  "compute");
  };
  const auto divisions = [&](DType dtype, int width) {
    const int64_t by_row = compute_ps(Quotients(A(0), dtype), width);
    const int64_t by_column = compute_ps(Quotients(A(1), dtype), width);
    return static_cast<double>(by_row) / static_cast<double>(by_column);
  };
  CHECK(divisions(DType::kFp32, 4) < 0.7);
  CHECK(divisions(DType::kFp32, 1) >= 0.95);  // an element a thread
  CHECK(divisions(DType::kFp64, 2) > 0.9);
}

}  // namespace
}  // namespace retrograd
