#include "fusion/ops/convolution/shared_products.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/convolution/convolution_cost.h"
#include "fusion/ops/convolution/image_boxes.h"
#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {
namespace {

// Bounds of a block's cycles that are tried, of all that there are.
constexpr size_t kMostBounds = 24;

// Lines of `channels`, one for each of `lines` pixels of one image.
ConvolutionTensor Lines(const MatrixOperand& m, DType dtype, int64_t channels, int64_t lines,
                        int64_t pitch) {
  return {.offset = m.offset,
          .shape = {1, channels, 1, 1, lines},
          .strides = {0, channels == 1 ? 0 : 1, 0, 0, lines == 1 ? 0 : pitch},
          .dtype = dtype};
}

// a: terms along its columns; b: along its rows; d: its rows are a's, its columns b's.
std::optional<WeightProduct> ProductOfMatMul(const Call& call) {
  const MatMulCall m = MatMulOf(call);
  if (!m.batch.empty() || m.accumulate || std::min({m.m, m.n, m.k}) < 1) return std::nullopt;
  if (m.a.row_stride != 1 || m.b.col_stride != 1) return std::nullopt;
  const bool swapped = m.d.col_stride != 1;
  const int64_t filters = swapped ? m.n : m.m, channels = swapped ? m.m : m.n;
  ConvolutionCall c{.op = Op::convolution_weight_gradient};
  c.geometry.batch = 1;
  c.geometry.in_channels = channels;
  c.geometry.out_channels = filters;
  c.geometry.groups = 1;
  c.in = c.out = {1, 1, m.k};
  c.kernel = c.stride = c.dilation = {1, 1, 1};
  c.padding = {0, 0, 0};
  const ConvolutionTensor a = Lines(m.a, m.in_dtype, m.m, m.k, m.a.col_stride);
  const ConvolutionTensor b = Lines(m.b, m.in_dtype, m.n, m.k, m.b.row_stride);
  c.y = swapped ? b : a;
  c.x = swapped ? a : b;
  c.w = {.offset = m.d.offset,
         .shape = {filters, channels, 1, 1, 1},
         .strides = {swapped ? m.d.col_stride : m.d.row_stride, 1, 0, 0, 0},
         .dtype = m.out_dtype};
  if (!swapped && m.d.col_stride != 1) return std::nullopt;
  if (swapped && m.d.row_stride != 1) return std::nullopt;
  return WeightProduct{.convolution = c, .gradient = swapped ? 1 : 0};
}

// The tile of the least work whose blocks take no more than that; null where there is none.
const BoxTileWork* Least(const std::vector<BoxTileWork>& work, int warps, int64_t bound,
                         int64_t sms) {
  const auto all = [&](const BoxTileWork& w) { return w.busy_cycles + w.adding_cycles * sms; };
  const BoxTileWork* least = nullptr;
  for (const BoxTileWork& w : work) {
    if (w.tile.warps() != warps || w.block_cycles > bound) continue;
    if (least == nullptr || all(w) < all(*least)) least = &w;
  }
  return least;
}

std::vector<int64_t> Bounds(const std::vector<std::vector<BoxTileWork>>& work) {
  std::vector<int64_t> all;
  for (const std::vector<BoxTileWork>& of_product : work) {
    for (const BoxTileWork& w : of_product) all.push_back(w.block_cycles);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.size() <= kMostBounds) return all;
  std::vector<int64_t> bounds;
  for (size_t i = 1; i <= kMostBounds; ++i) bounds.push_back(all[all.size() * i / kMostBounds - 1]);
  return bounds;
}

// Blocks go to SMs as these become free: at the latest the longest begins when all SMs have had
// their share (R. L. Graham, Bounds on multiprocessing timing anomalies, 1969).
std::optional<SharedTiles> TilesWithin(const std::vector<std::vector<BoxTileWork>>& work, int warps,
                                       int64_t bound, int64_t sms) {
  SharedTiles chosen;
  int64_t busy = 0, adding = 0, longest = 0;
  for (const std::vector<BoxTileWork>& of_product : work) {
    const BoxTileWork* least = Least(of_product, warps, bound, sms);
    if (least == nullptr) return std::nullopt;
    chosen.tiles.push_back(least->tile);
    chosen.block_cycles.push_back(least->block_cycles);
    busy += least->busy_cycles;
    adding += least->adding_cycles;
    longest = std::max(longest, least->block_cycles);
    chosen.adds_up = chosen.adds_up || least->tile.splits > 1;
  }
  chosen.cycles = busy / sms + longest + adding + (chosen.adds_up ? kAddingLaunchCycles : 0);
  return chosen;
}

}  // namespace

std::optional<WeightProduct> WeightProductOf(const Call& call) {
  if (call.previous || call.epilogue) return std::nullopt;
  std::optional<WeightProduct> product;
  if (call.op == Op::matmul) product = ProductOfMatMul(call);
  if (call.op == Op::convolution_weight_gradient) product = {.convolution = ConvolutionOf(call)};
  if (!product || !ImplicitGemmRefusal(product->convolution).ok()) return std::nullopt;
  if (!BoxRefusal(product->convolution).ok()) return std::nullopt;
  return product;
}

std::optional<SharedTiles> ChooseSharedTiles(absl::Span<const WeightProduct> products,
                                             const ImplicitGemmLimits& limits) {
  std::vector<std::vector<BoxTileWork>> work;
  for (const WeightProduct& product : products) {
    work.push_back(BoxTileWorkOf(product.convolution, limits));
  }
  const int64_t sms = std::max<int64_t>(limits.sms, 1);
  std::optional<SharedTiles> best;
  for (const int64_t bound : Bounds(work)) {
    for (const int warps : {4, 8}) {
      std::optional<SharedTiles> tiles = TilesWithin(work, warps, bound, sms);
      if (tiles && (!best || tiles->cycles < best->cycles)) best = std::move(tiles);
    }
  }
  return best;
}

Price PriceSharedProducts(absl::Span<const Call* const> calls, const DeviceSpec& d, bool explain) {
  Price price{.ps = kHuge};
  std::vector<WeightProduct> products;
  for (const Call* call : calls) {
    products.push_back(*WeightProductOf(*call));
    for (const CallTensor& t : call->operands) {
      price.read_bytes += Elements(t.shape) * SizeBytes(t.dtype);
    }
    for (const CallTensor& t : call->results) {
      price.written_bytes += Elements(t.shape) * SizeBytes(t.dtype);
    }
  }
  const std::optional<SharedTiles> tiles = ChooseSharedTiles(products, ImplicitGemmLimitsOf(d));
  if (!tiles) return price;
  const int64_t compute = MulDiv(PsOfCycles(tiles->cycles, d), d.convolution_boxes_ppm, kPpm);
  const int64_t hbm = TransferPs(price.read_bytes + price.written_bytes, d.hbm_bytes_per_s);
  price.ps = std::min(kHuge, d.launch_graph_ps + std::max(compute, hbm));
  if (explain) {
    price.terms = {
        {"launch", d.launch_graph_ps, false, absl::StrCat(calls.size(), " products in one")},
        {"compute", compute, compute >= hbm,
         absl::StrCat(tiles->cycles, " cycles", tiles->adds_up ? ", a launch that adds up" : "")},
        {"hbm", hbm, hbm > compute,
         absl::StrCat(price.read_bytes, " B read + ", price.written_bytes, " B written")}};
  }
  return price;
}

}  // namespace retrograd
