// Prices of matmuls by tiles of ours, and which tiles there are.
#include "fusion/ops/matmul/matmul_tiles_cost.h"

#include <vector>

#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/matmul/matmul_cost.h"
#include "fusion/ops/matmul/matmul_tiles.h"
#include "tests/catch.h"
#include "tests/support/plans/changed_spec.h"

namespace retrograd {
namespace {

DeviceSpec With(const std::vector<DeviceNumber>& numbers) { return ChangedSpec("h100", numbers); }

// Row-major and dense.
MatMulCall Batch(int64_t batch, int64_t m, int64_t n, int64_t k, DType dtype = DType::kBf16) {
  return {.m = m,
          .n = n,
          .k = k,
          .batch = {batch},
          .in_dtype = dtype,
          .out_dtype = dtype,
          .a = {.row_stride = k, .col_stride = 1, .batch_strides = {m * k}},
          .b = {.row_stride = n, .col_stride = 1, .batch_strides = {k * n}},
          .d = {.row_stride = n, .col_stride = 1, .batch_strides = {m * n}}};
}

TEST_CASE("tiles have a price where lines begin anywhere or matrices are small, and nowhere else") {
  const DeviceSpec device = With({});
  CHECK(PriceMatMulTiles(Batch(64, 49, 49, 32), device).ps < kHuge);
  CHECK(PriceMatMulTiles(Batch(64, 64, 64, 64), device).ps < kHuge);
  CHECK(PriceMatMulTiles(Batch(1, 4096, 1000, 767), device).ps < kHuge);
  CHECK(PriceMatMulTiles(Batch(1, 4096, 1024, 768), device).ps == kHuge);
  CHECK(PriceMatMulTiles(Batch(1, 64, 64, 64), device).ps == kHuge);
  CHECK(PriceMatMulTiles(Batch(1, 4096, 1000, 766), device).ps == kHuge);  // 4 bytes
  CHECK(PriceMatMulTiles(Batch(1, 64, 64, 20001), device).ps == kHuge);    // one tile
  CHECK(PriceMatMulTiles(Batch(1, 4096, 1023, 768), device).ps < kHuge);   // of b and d
  CHECK(PriceMatMulTiles(Batch(64, 49, 49, 32, DType::kFp32), device).ps == kHuge);
  MatMulCall unknown = Batch(64, 49, 49, 32);
  unknown.a = unknown.b = {};
  CHECK(PriceMatMulTiles(unknown, device).ps == kHuge);
}

TEST_CASE("a matmul's price is that of whoever takes less") {
  const MatMulCall call = Batch(1536, 49, 49, 32);
  const DeviceSpec slow_library = With({{"library_call_us", 1000}});
  CHECK(PriceMatMul(call, slow_library).ps == PriceMatMulTiles(call, slow_library).ps);
  const DeviceSpec slow_tiles = With({{"matmul_tiles_wait_us", 1000}});
  CHECK(PriceMatMul(call, slow_tiles).ps == PriceLibraryMatMul(call, slow_tiles).ps);
}

TEST_CASE("a device without tiles of ours has the library's prices alone") {
  DeviceSpec device = With({});
  const DeviceSpec with_tiles = device;
  device.matmul_tiles_bf16_flops = 0;
  for (const MatMulCall& call :
       {Batch(6144, 49, 49, 32), Batch(4096, 16, 16, 16), Batch(1, 4096, 1000, 767)}) {
    CHECK(PriceMatMulTiles(call, device).ps == kHuge);
    CHECK(PriceMatMul(call, device).ps == PriceLibraryMatMul(call, with_tiles).ps);
  }
}

TEST_CASE("the terms of a price by tiles add up to it, and one binds") {
  const DeviceSpec device = With({});
  for (const MatMulCall& call : {Batch(6144, 49, 49, 32), Batch(4, 49, 49, 32),
                                 Batch(192, 250, 250, 64), Batch(1, 4096, 1000, 767)}) {
    const Price price = PriceMatMulTiles(call, device, /*explain=*/true);
    CHECK(price.ps == PriceMatMulTiles(call, device).ps);
    int64_t sum = 0;
    int binding = 0;
    for (const Term& term : price.terms) {
      const bool beside = term.name == "launch" || term.name == "blocks";
      if (beside || term.binds) sum += term.ps;
      binding += term.binds ? 1 : 0;
    }
    CHECK(binding == 1);
    CHECK(sum == price.ps);
  }
}

TEST_CASE("many small matrices take what their bytes take, few what a tile waits") {
  const DeviceSpec device = With({});
  const auto bytes_ps = [&](const MatMulCall& call) {
    const Price price = PriceMatMulTiles(call, device);
    return TransferPs(price.read_bytes + price.written_bytes, device.hbm_bytes_per_s);
  };
  const MatMulCall many = Batch(20000, 49, 49, 32), few = Batch(2, 49, 49, 32);
  CHECK(PriceMatMulTiles(many, device).ps < bytes_ps(many) * 5 / 4);
  CHECK(PriceMatMulTiles(few, device).ps > 10 * bytes_ps(few));
}

TEST_CASE("tiles hold whole small matrices, keep to the shared memory and use every thread") {
  for (const int64_t shared : {32 << 10, 64 << 10, 99 << 10}) {
    for (int64_t side = 1; side <= 300; side += 13) {
      for (const int64_t k : {1, 33, 128, 129, 1000}) {
        for (const DType dtype : {DType::kBf16, DType::kFp32, DType::kFp64}) {
          const MatMulCall call = Batch(7, side, 61, k, dtype);
          const std::vector<MatMulTile> tiles =
              MatMulTilesFor(call, {.sms = 132, .shared_bytes = shared}, 4);
          INFO(side << " x 61 x " << k << " " << Name(dtype) << ", " << shared);
          REQUIRE(!tiles.empty());
          for (const MatMulTile& tile : tiles) {
            INFO(tile.Print());
            CHECK(TileSharedBytes(tile, call) <= shared);
            CHECK(tile.rows % (16 * tile.warp_rows) == 0);
            CHECK(tile.columns % (16 * tile.warp_columns) == 0);
            CHECK(tile.depth % 16 == 0);
            CHECK((tile.stages == 2 || k <= tile.depth));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace retrograd
