#include "fusion/ops/matmul/matmul_cost.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/matmul/matmul_tiles_cost.h"

namespace retrograd {
namespace {

int64_t MatMulRate(const MatMulCall& call, const DeviceSpec& d) {
  const DType dtype = call.in_dtype;
  if (dtype == DType::kFp64) return d.matmul_fp64_flops;
  if (dtype == DType::kFp32) return call.tf32 ? d.matmul_tf32_flops : d.matmul_fp32_flops;
  return IsFp8(dtype) ? d.matmul_fp8_flops : d.matmul_bf16_flops;
}

// Tiles of the result that a matmul library offers.
struct Tile {
  int64_t rows, columns;
};
constexpr Tile kTiles[] = {{128, 256}, {256, 128}, {128, 128}, {64, 256},
                           {256, 64},  {64, 128},  {128, 64},  {64, 64}};

// Slices of a sum that a matmul library is taken to try: few, powers of two, and divisors of the
// SMs, so that the blocks of one tile fill whole waves.
bool TriesSlices(int64_t slices, int64_t sms) {
  const bool power = slices <= 16 && (slices & (slices - 1)) == 0;
  return slices <= 6 || power || sms % slices == 0;
}

// One way to run a matmul.
struct Cut {
  Tile tile{};
  int64_t pieces = 1;
  int64_t blocks = 0;
  int64_t compute_ps = 0;  // waves of blocks
  int64_t split_ps = 0;    // partial sums written and added up
  int64_t total_ps = kHuge;
};

// What is known to divide the lengths of an operand's lines, and where they begin: elements, of
// powers of two up to the alignment.
struct Divisors {
  int64_t pitch = 0;  // of where its lines begin; 0: they all begin at one place
  int64_t extent = 0;
};

int64_t DivisorOf(std::initializer_list<int64_t> lengths, int64_t most) {
  int64_t divisor = most;
  for (int64_t length : lengths) divisor = std::gcd(divisor, length);
  return divisor;
}

// Of a matrix whose layout the call does not say, nothing is known to be odd.
Divisors DivisorsOf(const MatrixOperand& o, int64_t rows, int64_t columns, int64_t unit) {
  if (o.row_stride == 0 && o.col_stride == 0) return {unit, unit};
  const bool by_rows = o.col_stride == 1;
  const int64_t run = by_rows ? columns : rows, runs = by_rows ? rows : columns;
  if (run == 1) return {unit, unit};
  const int64_t pitch = by_rows ? o.row_stride : o.col_stride;
  int64_t begins = DivisorOf({o.offset, runs > 1 ? pitch : 0}, unit);
  for (int64_t stride : o.batch_strides) begins = DivisorOf({begins, stride}, unit);
  return {begins, DivisorOf({run}, unit)};
}

// How much longer a matmul takes because the library cannot move whole vectors of its matrices. Of
// other than 16-bit types nothing was measured.
int64_t MisalignedPpm(const MatMulCall& call, const DeviceSpec& d) {
  const int64_t size = SizeBytes(call.in_dtype), out_size = SizeBytes(call.out_dtype);
  if (size != 2) return kPpm;
  const int64_t unit = std::max<int64_t>(d.matmul_alignment_bytes / size, 1);
  const int64_t out_unit = std::max<int64_t>(d.matmul_alignment_bytes / out_size, 1);
  const Divisors a = DivisorsOf(call.a, call.m, call.k, unit);
  const Divisors b = DivisorsOf(call.b, call.k, call.n, unit);
  const Divisors result = DivisorsOf(call.d, call.m, call.n, out_unit);
  // A sum's length counts where an operand lies along it.
  const int64_t sum_of_a = call.a.col_stride == 1 ? a.extent : unit;
  const int64_t sum_of_b = call.b.col_stride == 1 ? unit : b.extent;
  const int64_t bytes =
      std::min(size * std::min({a.pitch, b.pitch, sum_of_a, sum_of_b}), out_size * result.pitch);
  if (bytes < 4) return d.matmul_odd_pitch_ppm;
  if (bytes < 8) return d.matmul_pitch_4_ppm;
  if (bytes < d.matmul_alignment_bytes) return d.matmul_pitch_8_ppm;
  return std::min(a.extent, b.extent) < unit ? d.matmul_odd_extent_ppm : kPpm;
}

// What all ways to run a call share.
struct CallNumbers {
  int64_t batch = 1, rate = 0, read_ps = 0, misaligned_ppm = kPpm;
};

CallNumbers NumbersOf(const MatMulCall& call, const DeviceSpec& d) {
  CallNumbers w{.rate = MatMulRate(call, d), .misaligned_ppm = MisalignedPpm(call, d)};
  for (int64_t b : call.batch) w.batch *= b;
  const int64_t operands = w.batch * (call.m * call.k + call.k * call.n) * SizeBytes(call.in_dtype);
  w.read_ps = TransferPs(operands, d.hbm_bytes_per_s);
  return w;
}

int64_t Tiles(const MatMulCall& call, const CallNumbers& w, const Tile& tile) {
  return Product({w.batch, CeilDiv(call.m, tile.rows), CeilDiv(call.n, tile.columns)});
}

Cut CutInto(const MatMulCall& call, const CallNumbers& w, const Tile& tile, int64_t pieces,
            const DeviceSpec& d) {
  const int64_t sm_rate = std::max<int64_t>(w.rate / d.sms, 1);
  const int64_t area = tile.rows * tile.columns + d.matmul_tile_overhead;
  const int64_t wait_ps = d.matmul_step_ps * std::max<int64_t>(SizeBytes(call.in_dtype) / 2, 1);
  const int64_t step_ps = std::max(MulDiv(2 * area, kPsPerSecond, sm_rate), wait_ps);
  Cut cut{.tile = tile, .pieces = pieces, .blocks = Product({Tiles(call, w, tile), pieces})};
  const int64_t terms = std::max<int64_t>(CeilDiv(call.k, pieces), 1);
  const int64_t steps = CeilDiv(terms, d.matmul_step_terms) * d.matmul_step_terms;
  cut.compute_ps =
      MulDiv(Product({CeilDiv(cut.blocks, d.sms), steps, step_ps}), w.misaligned_ppm, kPpm);
  if (pieces > 1) {
    const int64_t partial_bytes =
        Product({w.batch, call.m, call.n, call.in_dtype == DType::kFp64 ? 8 : 4});
    cut.split_ps = d.matmul_split_ps +
                   TransferPs(Product({2, pieces, partial_bytes}), d.matmul_split_bytes_per_s);
  }
  cut.total_ps = std::max(cut.compute_ps, w.read_ps) + cut.split_ps;
  return cut;
}

Cut BestCut(const MatMulCall& call, const CallNumbers& w, const DeviceSpec& d) {
  Cut best;
  for (const Tile& tile : kTiles) {
    const int64_t tiles = Tiles(call, w, tile);
    for (int64_t pieces = 1; pieces <= std::max<int64_t>(d.sms / 2, 1); ++pieces) {
      if (!TriesSlices(pieces, d.sms)) continue;
      const bool thin = call.k / pieces < d.matmul_least_slice;
      if (pieces > 1 && (thin || tiles > 2 * d.sms / pieces)) break;
      const Cut cut = CutInto(call, w, tile, pieces, d);
      if (cut.total_ps < best.total_ps) best = cut;
    }
  }
  return best;
}

std::string Misaligned(const MatMulCall& call, const DeviceSpec& d) {
  const int64_t ppm = MisalignedPpm(call, d);
  if (ppm == kPpm) return "";
  return absl::StrFormat(", %.2f times as long for rows that %d bytes do not divide",
                         static_cast<double>(ppm) / 1e6, d.matmul_alignment_bytes);
}

}  // namespace

Price PriceMatMul(const MatMulCall& call, const DeviceSpec& d, bool explain) {
  Price library = PriceLibraryMatMul(call, d, explain);
  Price tiles = PriceMatMulTiles(call, d, explain);
  return tiles.ps < library.ps ? tiles : library;
}

Price PriceLibraryMatMul(const MatMulCall& call, const DeviceSpec& d, bool explain) {
  Price price;
  const CallNumbers w = NumbersOf(call, d);
  const int64_t batch = w.batch;
  const int64_t in = SizeBytes(call.in_dtype), out = SizeBytes(call.out_dtype);
  const int64_t operands = batch * (call.m * call.k + call.k * call.n) * in;
  const int64_t previous = call.accumulate ? batch * call.m * call.n * out : 0;
  price.read_bytes = operands + previous;
  price.written_bytes = batch * call.m * call.n * out;
  if (price.written_bytes == 0) {  // no elements: nothing but the call
    price.ps = d.launch_graph_ps;
    if (explain) price.terms = {{"launch", price.ps, false, "an empty product"}};
    return price;
  }
  const int64_t rate = w.rate, read = w.read_ps;
  const int64_t result = TransferPs(price.written_bytes + previous, d.hbm_bytes_per_s);
  const Cut cut = BestCut(call, w, d);
  price.ps = std::min(kHuge, d.launch_graph_ps + d.library_call_ps + cut.total_ps + result);
  if (!explain) return price;
  const bool computes = cut.compute_ps >= read;
  price.terms = {
      {"launch", d.launch_graph_ps + d.library_call_ps, false, "one library call"},
      {"flops", cut.compute_ps, computes,
       absl::StrFormat("%d x %d x %d x %d, %d blocks of %d x %d at %.0f TFLOP/s%s", batch, call.m,
                       call.n, call.k, cut.blocks, cut.tile.rows, cut.tile.columns,
                       static_cast<double>(rate) / 1e12, Misaligned(call, d))},
      {"hbm", read, !computes, absl::StrCat(operands, " B of operands")},
      {"result", result, false,
       absl::StrCat(price.written_bytes, " B written",
                    previous > 0 ? absl::StrCat(" onto ", previous, " B read") : "")}};
  if (cut.pieces > 1) {
    price.terms.push_back(
        {"split", cut.split_ps, false, absl::StrCat(cut.pieces, " partial sums of each element")});
  }
  return price;
}

int64_t TiledMatMulPs(const MatMulCall& call, int64_t tile, const DeviceSpec& d) {
  const CallNumbers w = NumbersOf(call, d);
  const int64_t result = Product({w.batch, call.m, call.n, SizeBytes(call.out_dtype)});
  const Cut cut = CutInto(call, w, {tile, tile}, /*pieces=*/1, d);
  return std::min(kHuge, d.launch_graph_ps + d.library_call_ps + cut.total_ps +
                             TransferPs(result, d.hbm_bytes_per_s));
}

}  // namespace retrograd
