// Which kernels count offsets in 64 bits.
#include "codegen/print/numbers/index_text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

KernelIr StoresRow(int64_t extent) {
  KernelIr ir;
  ir.extents = {extent};
  ir.stores.push_back({.offset = IndexExpr::Axis(0)});
  return ir;
}

TEST_CASE("offsets are counted in 64 bits where 32 do not hold them, and only there") {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  CHECK_FALSE(NeedsWideIndex(StoresRow(1000), 1000));
  CHECK_FALSE(NeedsWideIndex(StoresRow(kMost), 1));
  CHECK(NeedsWideIndex(StoresRow(kMost + 1), 1));
  CHECK(NeedsWideIndex(StoresRow(1000), kMost + 1));
}

}  // namespace
}  // namespace retrograd
