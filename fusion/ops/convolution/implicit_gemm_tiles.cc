#include "fusion/ops/convolution/implicit_gemm_tiles.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/convolution/image_boxes.h"
#include "fusion/ops/convolution/stride_phases.h"

namespace retrograd {
namespace {

constexpr int64_t kMostPhases = 64;
constexpr int64_t kPackBytes = 16;  // that a thread moves at most at once
constexpr int64_t kBarrierBytes = 8;

// What orders schedules, in cycles of one SM: fitted to 8 to 60 schedules of each of 130 gradients
// of four networks in bf16 on one H200, 2026-11-24 (bench/results/convolution_schedules_h200.json),
// of which the best of the first three are 3.3% over the best in the mean, and 22% at most.
constexpr int64_t kLatency = 2382;        // of loads, which the stages under way share
constexpr int64_t kLoadBytes = 208;       // from L2 into an SM in a cycle
constexpr int64_t kCopyIssues = 10;       // instructions of a copy, with its address and bounds
constexpr int64_t kProductIssues = 3;     // of 16 x 16 x 16 products and what brings the operands
constexpr int64_t kStepIssues = 16;       // of a warp in a step beside these
constexpr int64_t kTenthsOfAnIssue = 50;  // of cycles, from an instruction of a warp to its next
constexpr int64_t kStepCycles = 174;      // of a step at least: a barrier, and the products' chain
constexpr int64_t kBlockCycles = 1207;    // before the first product of a block and after the last
constexpr int64_t kWaveCycles = 82;       // of one more block on an SM
constexpr int64_t kPartialBytes = 2065;   // in a cycle of all SMs, of the splits' sums
constexpr int64_t kSchedulers = 4;
constexpr int64_t kSharedOfSm = 220 << 10;

// The same of schedules that load boxes: fitted by hand to those of 72 gradients in bf16 on one
// H100, 2026-11-27 (bench/results/convolution_boxes_h100.json), whose time they tell within 9% in
// the mean, times the spec's factor.
constexpr int64_t kBoxLatency = 1100;    // of a box, with the engine's own work
constexpr int64_t kBoxLoadBytes = 65;    // from L2 into an SM in a cycle
constexpr int64_t kBoxStepCycles = 340;  // a barrier, and the products of a step one after another
constexpr int64_t kBoxBlockCycles = 1100;
constexpr int64_t kBoxIssues = 30;        // instructions of a warp in a step
constexpr int64_t kGroupProducts = 1780;  // that the tensor cores of an SM make in a cycle

bool IsInput(const ConvolutionCall& c) { return c.op == Op::convolution_input_gradient; }

DType SumType(const ConvolutionCall& c) {
  return ComputeType(c.y.dtype) == DType::kFp64 ? DType::kFp64 : DType::kFp32;
}

// Elements of the channels, `channels` of them in a group, that a thread can move at once.
int ChannelVector(const ConvolutionTensor& t, int64_t channels) {
  if (t.strides[1] != 1) return 1;
  const auto moves = [&](int64_t v) {
    if (channels % v != 0 || t.offset % v != 0) return false;
    for (size_t d = 0; d < t.shape.size(); ++d) {
      if (d != 1 && t.shape[d] > 1 && t.strides[d] % v != 0) return false;
    }
    return true;
  };
  int64_t v = kPackBytes / SizeBytes(t.dtype);
  while (!moves(v)) v /= 2;
  return static_cast<int>(v);
}

// Products of rows x columns sums over so many depths: the phases of an input's gradient.
struct Products {
  std::vector<std::pair<int64_t, int64_t>> rows_depth;  // of a group
  int64_t columns = 0;
};

Products ProductsOf(const ConvolutionCall& c) {
  Products made;
  if (!IsInput(c)) {
    made.columns = Product({c.kernel[0], c.kernel[1], c.kernel[2], c.in_channels_of_group()});
    made.rows_depth = {
        {c.out_channels_of_group(), Product({c.geometry.batch, c.out[0], c.out[1], c.out[2]})}};
    return made;
  }
  made.columns = c.in_channels_of_group();
  for (const ConvolutionPhase& phase : ConvolutionPhases(c)) {
    made.rows_depth.push_back({phase.rows, phase.depth});
  }
  return made;
}

int64_t ResultElements(const ConvolutionCall& c) {
  const ConvolutionTensor& t = IsInput(c) ? c.x : c.w;
  return Product({t.shape[0], t.shape[1], t.shape[2], t.shape[3], t.shape[4]});
}

// Instructions that a block issues in a step.
int64_t StepIssues(const ImplicitGemmTile& t, const ImplicitGemmVectors& v) {
  if (t.boxes) return t.warps() * kBoxIssues;
  const int64_t copies =
      CeilDiv(int64_t{t.rows} * t.depth, v.first) + CeilDiv(int64_t{t.columns} * t.depth, v.second);
  const int64_t products = int64_t{t.rows} * t.columns * t.depth / (16 * 16 * 16);
  return CeilDiv(copies, 32) * kCopyIssues + products * kProductIssues + t.warps() * kStepIssues;
}

// Of a sum of so many products. A box has channels of one tap.
int64_t Steps(const ImplicitGemmTile& t, const ConvolutionCall& c, int64_t depth) {
  if (!t.boxes || !IsInput(c)) return CeilDiv(depth, t.depth);
  const int64_t filters = c.out_channels_of_group();
  return depth / filters * CeilDiv(filters, t.depth);
}

// Cycles of a step of a block.
struct StepCycles {
  int64_t busy = 0;   // that an SM is busy with it
  int64_t alone = 0;  // of a block that has the SM for itself
};
StepCycles StepCyclesOf(const ImplicitGemmTile& t, const ConvolutionCall& c,
                        const ImplicitGemmVectors& vectors) {
  const int64_t bytes = SizeBytes(c.y.dtype), issues = StepIssues(t, vectors);
  const int64_t products =
      t.boxes ? Product({t.rows, t.columns, t.depth}) / kGroupProducts : int64_t{0};
  return {.busy = std::max({(int64_t{t.rows} + t.columns) * t.depth * bytes /
                                (t.boxes ? kBoxLoadBytes : kLoadBytes),
                            CeilDiv(issues, kSchedulers), products}),
          .alone = t.boxes ? std::max(kBoxStepCycles, kBoxLatency / (t.stages - 1))
                           : std::max({kStepCycles, kLatency / (t.stages - 1),
                                       issues / t.warps() * kTenthsOfAnIssue / 10})};
}

// Of all SMs, that add up the sums of the splits.
int64_t AddingCycles(const ImplicitGemmTile& t, const ConvolutionCall& c) {
  if (t.splits == 1) return 0;
  return Product({2, t.splits, ResultElements(c), SizeBytes(SumType(c))}) / kPartialBytes;
}

int64_t Cycles(const ImplicitGemmTile& t, const ConvolutionCall& c, const Products& made,
               const ImplicitGemmVectors& vectors, int64_t sms) {
  const auto [of_step, alone] = StepCyclesOf(t, c, vectors);
  int64_t blocks = 0, steps = 0, longest = 0;
  for (const auto& [rows, depth] : made.rows_depth) {
    const int64_t tiles = Product({CeilDiv(rows, t.rows), ColumnTiles(t, c), c.geometry.groups});
    const int64_t of_tile = Steps(t, c, depth), each = CeilDiv(of_tile, t.splits);
    blocks += tiles * t.splits;
    steps += Product({tiles, of_tile});
    longest = std::max(longest, each);
  }
  const int64_t waves = CeilDiv(blocks, sms);
  const int64_t resident = std::max<int64_t>(kSharedOfSm / SharedBytes(t, c), 1);
  const int64_t turns = CeilDiv(waves, resident);
  // An SM is busy with the steps of all its blocks, the first of which it waits for, and no block
  // is faster than alone.
  const int64_t busy = MulDiv(steps, of_step, std::min(blocks, sms)) + alone * 3 / 2;
  int64_t cycles = std::max(busy, Product({turns, longest, alone})) +
                   Product({turns, t.boxes ? kBoxBlockCycles : kBlockCycles}) +
                   Product({waves - 1, kWaveCycles});
  if (t.splits > 1) cycles += kAddingLaunchCycles + AddingCycles(t, c);
  return cycles;
}

BoxTileWork WorkOf(const ImplicitGemmTile& t, const ConvolutionCall& c, const Products& made,
                   const ImplicitGemmVectors& vectors) {
  const auto [of_step, alone] = StepCyclesOf(t, c, vectors);
  const int64_t resident = std::max<int64_t>(kSharedOfSm / SharedBytes(t, c), 1);
  BoxTileWork work{.tile = t, .adding_cycles = AddingCycles(t, c)};
  for (const auto& [rows, depth] : made.rows_depth) {
    const int64_t tiles = Product({CeilDiv(rows, t.rows), ColumnTiles(t, c), c.geometry.groups});
    const int64_t each = CeilDiv(Steps(t, c, depth), int64_t{t.splits});
    work.block_cycles = std::max(work.block_cycles, each * alone + kBoxBlockCycles);
    const int64_t of_block =
        each * std::max(of_step, alone / resident) + kBoxBlockCycles / resident;
    work.busy_cycles += Product({tiles, t.splits, of_block});
  }
  return work;
}

// Tiles and how warps share them; each warp makes 16 x 16 tiles.
constexpr ImplicitGemmTile kForms[] = {
    {.rows = 64, .columns = 64, .warp_rows = 2, .warp_columns = 2},
    {.rows = 64, .columns = 64, .warp_rows = 2, .warp_columns = 2, .slices = 2},
    {.rows = 64, .columns = 64, .warp_rows = 2, .warp_columns = 4},
    {.rows = 128, .columns = 64, .warp_rows = 4, .warp_columns = 2},
    {.rows = 64, .columns = 128, .warp_rows = 2, .warp_columns = 4},
    {.rows = 128, .columns = 128, .stages = 3, .warp_rows = 4, .warp_columns = 2},
    {.rows = 32, .columns = 64, .warp_rows = 1, .warp_columns = 2, .slices = 2},
    {.rows = 64, .columns = 32, .warp_rows = 2, .warp_columns = 1, .slices = 2},
    {.rows = 32, .columns = 32, .warp_rows = 1, .warp_columns = 1, .slices = 2},
    {.rows = 32, .columns = 32, .warp_rows = 1, .warp_columns = 1, .slices = 4},
    {.rows = 128, .columns = 32, .warp_rows = 4, .warp_columns = 1},
    {.rows = 32, .columns = 128, .warp_rows = 1, .warp_columns = 4},
};
constexpr ImplicitGemmTile kBoxForms[] = {
    {.rows = 64, .columns = 64, .stages = 6, .warp_rows = 4, .warp_columns = 1, .boxes = true},
    {.rows = 64, .columns = 64, .stages = 4, .warp_rows = 4, .warp_columns = 1, .boxes = true},
    {.rows = 128, .columns = 64, .stages = 4, .warp_rows = 8, .warp_columns = 1, .boxes = true},
    {.rows = 64, .columns = 128, .stages = 4, .warp_rows = 4, .warp_columns = 1, .boxes = true},
    {.rows = 128, .columns = 128, .stages = 3, .warp_rows = 8, .warp_columns = 1, .boxes = true},
};
constexpr int kSplits[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr int64_t kLeastSteps = 2;  // of a split

// Whether half of a tile's columns or rows or more are none of the result's, and there are smaller
// tiles.
bool Wastes(int64_t tile, int64_t extent, bool boxes) {
  return tile > (boxes ? kBoxLines : 32) && tile >= 2 * extent;
}

// All tiles that the call can have, with their cycles.
std::vector<std::pair<int64_t, ImplicitGemmTile>> TilesWithCycles(
    const ConvolutionCall& call, const ImplicitGemmLimits& limits) {
  const Products made = ProductsOf(call);
  const ImplicitGemmVectors vectors = ImplicitGemmVectorsOf(call);
  int64_t rows = 0, depth = 0;
  for (const auto& [r, d] : made.rows_depth) rows = std::max(rows, r), depth = std::max(depth, d);
  std::vector<ImplicitGemmTile> forms(std::begin(kForms), std::end(kForms));
  if (limits.boxes && BoxRefusal(call).ok()) {
    forms.insert(forms.end(), std::begin(kBoxForms), std::end(kBoxForms));
  }
  std::vector<std::pair<int64_t, ImplicitGemmTile>> tiles;
  for (ImplicitGemmTile tile : forms) {
    // As many bytes a line as of 16-bit types.
    tile.depth =
        static_cast<int>(std::max<int64_t>(128 / SizeBytes(call.y.dtype), 16 * tile.slices));
    if (Wastes(tile.rows, rows, tile.boxes)) continue;
    if (Wastes(tile.columns, made.columns, tile.boxes)) continue;
    while (tile.stages > 2 && SharedBytes(tile, call) > limits.shared_bytes) --tile.stages;
    if (SharedBytes(tile, call) > limits.shared_bytes) continue;
    for (const int splits : kSplits) {
      if (splits > 1 && Steps(tile, call, depth) < kLeastSteps * splits) break;
      tile.splits = splits;
      tiles.push_back({Cycles(tile, call, made, vectors, limits.sms), tile});
    }
  }
  return tiles;
}

}  // namespace

std::string ImplicitGemmTile::Print() const {
  return absl::StrCat(rows, " x ", columns, " x ", depth, boxes ? " boxes by " : " tiles by ",
                      warp_rows, " x ", warp_columns, " warps",
                      slices > 1 ? absl::StrCat(" in ", slices, " slices") : "", ", ", stages,
                      " stages, ", splits, splits == 1 ? " split" : " splits");
}

ImplicitGemmVectors ImplicitGemmVectorsOf(const ConvolutionCall& c) {
  const int64_t channels = c.in_channels_of_group(), filters = c.out_channels_of_group();
  ImplicitGemmVectors v;
  v.first = ChannelVector(c.y, filters);
  v.second = ChannelVector(IsInput(c) ? c.w : c.x, channels);
  v.result = ChannelVector(IsInput(c) ? c.x : c.w, channels);
  const int64_t line = IsInput(c) ? channels : ProductsOf(c).columns;
  v.partial = static_cast<int>(kPackBytes / SizeBytes(SumType(c)));
  while (line % v.partial != 0) v.partial /= 2;
  return v;
}

int64_t RowTiles(const ImplicitGemmTile& tile, const ConvolutionCall& call) {
  int64_t tiles = 0;
  for (const auto& [rows, depth] : ProductsOf(call).rows_depth) tiles += CeilDiv(rows, tile.rows);
  return tiles * call.geometry.groups;
}

int64_t ColumnTiles(const ImplicitGemmTile& tile, const ConvolutionCall& call) {
  if (tile.boxes && !IsInput(call)) {
    const int64_t boxes = Product({call.kernel[0], call.kernel[1], call.kernel[2],
                                   CeilDiv(call.in_channels_of_group(), kBoxWidth)});
    return CeilDiv(boxes, tile.columns / kBoxWidth);
  }
  return CeilDiv(ProductsOf(call).columns, tile.columns);
}

int64_t PaddedPitch(int64_t line, int64_t element_bytes) {
  return line + kPackBytes / element_bytes;
}

int64_t SharedBytes(const ImplicitGemmTile& t, const ConvolutionCall& c) {
  const int64_t bytes = SizeBytes(c.y.dtype), sum_bytes = SizeBytes(SumType(c));
  const int64_t results = t.rows * PaddedPitch(t.columns, sum_bytes) * sum_bytes;
  if (t.boxes) {
    const int64_t stage = Product({t.rows + t.columns, t.depth, bytes});
    return std::max(kBoxAlignment + stage * t.stages, results) + kBarrierBytes * t.stages;
  }
  const int64_t first =
      IsInput(c) ? t.rows * PaddedPitch(t.depth, bytes) : t.depth * PaddedPitch(t.rows, bytes);
  const int64_t second = t.depth * PaddedPitch(t.columns, bytes);
  return std::max((first + second) * t.stages * bytes, results);
}

absl::Status ImplicitGemmRefusal(const ConvolutionCall& call) {
  const auto refuse = [&](const auto&... why) {
    return absl::UnimplementedError(absl::StrCat("our implicit GEMM kernels take ", why...));
  };
  if (call.op == Op::convolution) return refuse("gradients only");
  for (const ConvolutionTensor* t : {&call.x, &call.w, &call.y}) {
    if (!IsFloat(t->dtype)) return refuse("floating types only, not ", Name(t->dtype));
    int64_t elements = 1, last = t->offset;
    for (size_t d = 0; d < t->shape.size(); ++d) {
      if (t->shape[d] == 0) return refuse("no empty tensors");
      elements = Product({elements, t->shape[d]});
      last += Product({t->shape[d] - 1, t->strides[d]});
    }
    // Offsets have 32 bits, also those of pixels outside, up to a window and a step away.
    constexpr int64_t kMost = int64_t{1} << 30;
    if (std::max(elements, last) >= kMost) return refuse("tensors of less than 2^30 elements");
  }
  // Each phase of an input's gradient has numbers of its own in the text.
  if (IsInput(call)) {
    int64_t phases = 1;
    for (int d = 0; d < kSpatialDims; ++d) {
      phases = Product({phases, std::min(call.stride[d], call.in[d])});
    }
    if (phases > kMostPhases) {
      return refuse("strides that make up to ", kMostPhases, " phases, not ", phases);
    }
  }
  const DType second = IsInput(call) ? call.w.dtype : call.x.dtype;
  if (second != call.y.dtype) return refuse("operands of one dtype");
  const DType result = IsInput(call) ? call.x.dtype : call.w.dtype;
  if ((result == DType::kFp64) != (call.y.dtype == DType::kFp64)) {
    return refuse("fp64 for all tensors or none");
  }
  return absl::OkStatus();
}

std::vector<ImplicitGemmTile> ImplicitGemmTiles(const ConvolutionCall& call,
                                                const ImplicitGemmLimits& limits, size_t most) {
  std::vector<std::pair<int64_t, ImplicitGemmTile>> priced = TilesWithCycles(call, limits);
  std::stable_sort(priced.begin(), priced.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ImplicitGemmTile> tiles;
  for (const auto& [cycles, tile] : priced) {
    if (tiles.size() == most) break;
    tiles.push_back(tile);
  }
  return tiles;
}

int64_t ImplicitGemmCycles(const ConvolutionCall& call, const ImplicitGemmLimits& limits,
                           bool boxes) {
  int64_t least = kHuge;
  for (const auto& [cycles, tile] : TilesWithCycles(call, limits)) {
    if (tile.boxes == boxes) least = std::min(least, cycles);
  }
  return least;
}

std::vector<BoxTileWork> BoxTileWorkOf(const ConvolutionCall& call,
                                       const ImplicitGemmLimits& limits) {
  const Products made = ProductsOf(call);
  const ImplicitGemmVectors vectors = ImplicitGemmVectorsOf(call);
  std::vector<BoxTileWork> work;
  for (const auto& [cycles, tile] : TilesWithCycles(call, limits)) {
    if (tile.boxes) work.push_back(WorkOf(tile, call, made, vectors));
  }
  return work;
}

}  // namespace retrograd
