#include "fusion/ops/matmul/matmul_tiles_cost.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/matmul/matmul_tiles.h"

namespace retrograd {
namespace {

// Whether the call says how its operands lie.
bool HasLayout(const MatMulCall& call) {
  return call.a.row_stride != 0 && call.b.row_stride != 0 && call.a.col_stride != 0;
}

// Tiles that an SM holds at once, by their threads and shared memory.
int64_t TilesAtOnce(const MatMulTile& tile, const MatMulCall& call, const DeviceSpec& d) {
  const int64_t by_shared =
      d.shared_bytes_per_sm / (TileSharedBytes(tile, call) + d.shared_bytes_reserved);
  const int64_t by_threads = d.max_threads_per_sm / (tile.warps() * d.warp);
  return std::clamp<int64_t>(std::min(by_shared, by_threads), 1, d.max_blocks_per_sm);
}

int64_t ProductsPs(const MatMulTile& tile, const MatMulCall& call, const DeviceSpec& d) {
  const int64_t sm_rate = std::max<int64_t>(d.matmul_tiles_bf16_flops / d.sms, 1);
  const int64_t flops = Product({2, tile.rows, tile.columns, tile.depth, TileSteps(tile, call)});
  const int64_t ps = MulDiv(flops, kPsPerSecond, sm_rate);
  int64_t shifted = 0;  // operands
  if (!LinesAreAligned(call.a, call.k, call.in_dtype, MatMulAlignments{}.a)) ++shifted;
  if (!LinesAreAligned(call.b, call.n, call.in_dtype, MatMulAlignments{}.b)) ++shifted;
  return MulDiv(ps, kPpm + shifted * (d.matmul_tiles_shift_ppm - kPpm), kPpm);
}

}  // namespace

Price PriceMatMulTiles(const MatMulCall& call, const DeviceSpec& d, bool explain) {
  Price price{.ps = kHuge};
  const bool offered = d.matmul_tiles_bf16_flops > 0 && HasLayout(call) &&
                       SizeBytes(call.in_dtype) == 2 && TiledMatMulRefusal(call).ok() &&
                       IsWorthTiles(call, {}, d.sms);
  if (!offered) return price;
  const std::vector<MatMulTile> tiles =
      MatMulTilesFor(call, {.sms = d.sms, .shared_bytes = d.shared_bytes_per_sm}, 1);
  if (tiles.empty()) return price;
  const MatMulTile& tile = tiles[0];
  const int64_t batch = Elements(call.batch);
  const int64_t results = Product({batch, call.m, call.n, SizeBytes(call.out_dtype)});
  price.read_bytes = Product({batch, call.m * call.k + call.k * call.n, SizeBytes(call.in_dtype)}) +
                     (call.accumulate ? results : 0);
  price.written_bytes = results;
  const int64_t of_sm = CeilDiv(BlocksOf(tile, call), d.sms);
  const int64_t rounds = CeilDiv(of_sm, TilesAtOnce(tile, call, d));
  const int64_t products = Product({of_sm, ProductsPs(tile, call, d)});
  const int64_t waits = Product({rounds, TileSteps(tile, call), d.matmul_tiles_wait_ps});
  const int64_t hbm = TransferPs(price.read_bytes + price.written_bytes, d.hbm_bytes_per_s);
  const int64_t longest = std::max({products, waits, hbm});
  price.ps = std::min(kHuge, d.launch_graph_ps + d.matmul_tiles_wait_ps + longest);
  if (!explain) return price;
  price.terms = {
      {"launch", d.launch_graph_ps, false, "one launch"},
      {"flops", products, products == longest,
       absl::StrFormat("%d x %d x %d x %d, %s", batch, call.m, call.n, call.k, tile.Print())},
      {"latency", waits, waits == longest && products < longest,
       absl::StrCat(rounds, " rounds of tiles on an SM")},
      {"hbm", hbm, hbm == longest && products < longest && waits < longest,
       absl::StrCat(price.read_bytes, " B read + ", price.written_bytes, " B written")},
      {"blocks", d.matmul_tiles_wait_ps, false, "the first tile"}};
  return price;
}

}  // namespace retrograd
