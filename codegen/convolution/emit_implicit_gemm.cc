#include "codegen/convolution/emit_implicit_gemm.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/convolution/convolution_writer.h"
#include "codegen/convolution/implicit_gemm_boxes.h"
#include "codegen/convolution/implicit_gemm_text.h"
#include "codegen/tile_products/tile_product_text.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/convolution/stride_phases.h"

namespace retrograd {
namespace {

constexpr int kAddThreads = 256;
constexpr int64_t kWarpOfHip = 64, kWarpOfOthers = 32;

bool IsInput(const ConvolutionCall& c) { return c.op == Op::convolution_input_gradient; }

// Without gaps between the pixels of all images.
bool DensePixels(const ConvolutionTensor& t) {
  int64_t step = 0;  // of the last dim that has several pixels
  for (const int d : {4, 3, 2, 0}) {
    if (t.shape[d] == 1) continue;
    if (step != 0 && t.strides[d] != step) return false;
    step = t.strides[d] * t.shape[d];
  }
  return t.shape[4] > 1;
}

class Writer {
 public:
  Writer(const ConvolutionCall& call, const ImplicitGemmTile& tile, Dialect dialect)
      : w_(call, dialect, "implicit GEMM"),
        c_(call),
        tile_(tile),
        vectors_(ImplicitGemmVectorsOf(call)),
        threads_(tile.warps() * (dialect == Dialect::kHip ? kWarpOfHip : kWarpOfOthers)) {}

  DType sum_dtype() const { return w_.sum_dtype(); }
  int64_t elements() const { return IsInput(c_) ? Elements(c_.x) : Elements(c_.w); }

  // The sums of each split, or those of the only one.
  ConvolutionKernels::Launch Sums() {
    const ConvolutionTensor& second = IsInput(c_) ? c_.w : c_.x;
    w_.Read(c_.y.dtype, "a", kConvolutionFirst);
    w_.Read(second.dtype, "b", kConvolutionSecond);
    WriteResult(tile_.splits > 1);
    if (tile_.boxes) return SumsOfBoxes();
    const int64_t element_bytes = SizeBytes(c_.y.dtype);
    const int64_t lines_a = IsInput(c_) ? tile_.rows : tile_.depth;
    const int64_t width_a = IsInput(c_) ? tile_.depth : tile_.rows;
    const int64_t pitch_a = PaddedPitch(width_a, element_bytes);
    const int64_t pitch_b = PaddedPitch(tile_.columns, element_bytes);
    const int64_t pitch_d = PaddedPitch(tile_.columns, SizeBytes(sum_dtype()));
    const int64_t stage_a = lines_a * pitch_a, stage = stage_a + tile_.depth * pitch_b;
    w_.Uses(PreludePart::kTensorCores);
    w_.Staged(c_.y.dtype, "tiles", stage * tile_.stages);
    w_.Staged(sum_dtype(), "results", tile_.rows * pitch_d);
    Geometry();
    w_.Constants({{"kRows", tile_.rows},
                  {"kColumns", tile_.columns},
                  {"kDepth", tile_.depth},
                  {"kStages", tile_.stages},
                  {"kPieces", tile_.depth / 16 / tile_.slices},
                  {"kWarpRows", tile_.warp_rows},
                  {"kWarpColumns", tile_.warp_columns},
                  {"kSlices", tile_.slices},
                  {"kSplits", tile_.splits},
                  {"kThreads", threads_},
                  {"kTileRows", tile_.rows / tile_.warp_rows / 16},
                  {"kTileColumns", tile_.columns / tile_.warp_columns / 16},
                  {"kAcrossA", IsInput(c_) ? 0 : 1},
                  {"kAcrossB", 1},
                  {"kColumnTiles", ColumnTiles(tile_, c_)},
                  {"kPitchA", pitch_a},
                  {"kPitchB", pitch_b},
                  {"kPitchD", pitch_d},
                  {"kStageA", stage_a},
                  {"kStage", stage},
                  {"kVD", tile_.splits > 1 ? vectors_.partial : vectors_.result}});
    Copies("A", vectors_.first, lines_a, width_a, c_.y.strides[1] != 1);
    Copies("B", vectors_.second, tile_.depth, tile_.columns,
           !IsInput(c_) && second.strides[1] != 1);
    w_.Text(kGemmHead);
    w_.Text(kGemmCopies);
    IsInput(c_) ? InputPlace(tile_.splits > 1) : WeightPlace(tile_.splits > 1);
    if (IsInput(c_)) {
      PrintPhases();
      w_.Text(kGemmInputPlaces);
      w_.Text(c_.out_channels_of_group() % tile_.depth == 0 ? kGemmInputWholeSteps
                                                            : kGemmInputAnySteps);
    } else {
      w_.Text(kGemmWeightPlaces);
    }
    w_.Text(TileProduct());
    w_.Text(IsInput(c_) ? kGemmStoreInput : kGemmStoreWeight);
    return w_.End(Product({RowTiles(tile_, c_), ColumnTiles(tile_, c_), tile_.splits}), threads_);
  }

  ConvolutionKernels::Launch AddSplits() {
    const int64_t packs = elements() / vectors_.partial;
    int64_t parts = 1;  // so that there are some 64 thousand threads
    while (parts < 16 && 2 * parts <= tile_.splits && packs * parts < (1 << 16)) parts *= 2;
    w_.Read(sum_dtype(), "a", kPartials);
    WriteResult(false);
    if (parts > 1) w_.SharedSums("parts", kAddThreads * vectors_.partial);
    Geometry();
    w_.Constants({{"kParts", parts},
                  {"kPacks", kAddThreads / parts},
                  {"kSplits", tile_.splits},
                  {"kVP", vectors_.partial},
                  {"kVD", std::min(vectors_.partial, vectors_.result)}});
    w_.out().Line("constexpr int64_t kElements = ", elements(), ";");
    IsInput(c_) ? InputPlace(false) : WeightPlace(false);
    ElementPlace();
    w_.Text(kGemmAddSplits);
    if (parts > 1) w_.Text(kGemmAddParts);
    w_.Text(kGemmStoreAdded);
    return w_.End(CeilDiv(packs, kAddThreads / parts), kAddThreads);
  }

 private:
  // The same of operands that are loaded by boxes.
  ConvolutionKernels::Launch SumsOfBoxes() {
    const BoxOperands operands = BoxOperandsOf(c_);
    const auto walks = static_cast<int64_t>(operands.walks.size());
    const int64_t element_bytes = SizeBytes(c_.y.dtype);
    const int64_t pitch_d = PaddedPitch(tile_.columns, SizeBytes(sum_dtype()));
    const int64_t stage_a = Product({tile_.rows, tile_.depth});
    const int64_t stage = stage_a + Product({tile_.columns, tile_.depth});
    w_.Uses(PreludePart::kTensorCores);
    w_.Boxes(static_cast<int>(walks) + 1);
    w_.Staged(c_.y.dtype, "tiles", stage * tile_.stages + kBoxAlignment / element_bytes);
    w_.Staged(sum_dtype(), "results", tile_.rows * pitch_d);
    w_.Shared(DType::kInt64, "loaded", tile_.stages);
    Geometry();
    w_.Constants({{"kRows", tile_.rows},
                  {"kColumns", tile_.columns},
                  {"kDepth", tile_.depth},
                  {"kStages", tile_.stages},
                  {"kWarpRows", tile_.warp_rows},
                  {"kWarpColumns", tile_.warp_columns},
                  {"kSplits", tile_.splits},
                  {"kThreads", threads_},
                  {"kTileRows", 1},
                  {"kTileColumns", tile_.columns / 16},
                  {"kAcrossA", IsInput(c_) ? 0 : 1},
                  {"kAcrossB", 1},
                  {"kColumnTiles", ColumnTiles(tile_, c_)},
                  {"kFilterSteps", CeilDiv(c_.out_channels_of_group(), tile_.depth)},
                  {"kChannelBoxes", CeilDiv(c_.in_channels_of_group(), kBoxWidth)},
                  {"kWalks", walks},
                  {"kImageDims", operands.walks[0].dims},
                  {"kPitchD", pitch_d},
                  {"kStageA", stage_a},
                  {"kStage", stage},
                  {"kStageBytes", stage * element_bytes},
                  {"kVD", tile_.splits > 1 ? vectors_.partial : vectors_.result}});
    PrintBoxes(operands);
    w_.Text(kGemmHead);
    IsInput(c_) ? InputPlace(tile_.splits > 1) : WeightPlace(tile_.splits > 1);
    if (IsInput(c_)) PrintPhases();
    w_.Text(IsInput(c_) ? kBoxInputSteps : kBoxWeightSteps);
    w_.Text(kBoxProduct);
    w_.Text(IsInput(c_) ? kGemmStoreInput : kBoxStoreWeight);
    ConvolutionKernels::Launch launch =
        w_.End(Product({RowTiles(tile_, c_), ColumnTiles(tile_, c_), tile_.splits}), threads_);
    launch.boxes = operands;
    return launch;
  }

  // As the host's copy engine reads them.
  void PrintBoxes(const BoxOperands& operands) {
    const auto list = [](const std::array<int64_t, 3>& of) {
      return absl::StrCat("{", of[0], ", ", of[1], ", ", of[2], "}");
    };
    w_.out().Line("[[maybe_unused]] constexpr rg_walk walks[] = {");
    for (const ImageWalk& walk : operands.walks) {
      std::array<int64_t, 3> last = walk.Beyond();
      for (size_t d = 0; d < last.size(); ++d) last[d] += walk.extent[d] - 1;
      w_.out().Line("    {", walk.offset, ", ", walk.channels, ", ", walk.images, ", ",
                    walk.image_pitch, ", ", list(walk.extent), ", ", list(walk.pitch), ", ",
                    list(walk.first), ", ", list(last), ", ", list(walk.step), "},");
    }
    w_.out().Line("};");
    const BoxMatrix& m = operands.matrix;
    w_.out().Line("[[maybe_unused]] constexpr rg_matrix matrix = {", m.offset, ", ", m.columns,
                  ", ", m.lines, ", ", m.pitch, "};");
  }

  static int64_t Elements(const ConvolutionTensor& t) {
    return Product({t.shape[0], t.shape[1], t.shape[2], t.shape[3], t.shape[4]});
  }

  void WriteResult(bool partial) {
    if (partial) return w_.Write(sum_dtype(), "d", kPartials);
    w_.Write(IsInput(c_) ? c_.x.dtype : c_.w.dtype, "d", kConvolutionResult);
  }

  // Offsets inside a tensor have 32 bits.
  void Geometry() {
    w_.Geometry();
    for (const auto& [name, t] : {std::pair("kX", &c_.x), {"kW", &c_.w}, {"kY", &c_.y}}) {
      w_.Constants({{absl::StrCat(name, "N"), t->strides[0]},
                    {absl::StrCat(name, "C"), t->strides[1]},
                    {absl::StrCat(name, "0"), t->strides[2]},
                    {absl::StrCat(name, "1"), t->strides[3]},
                    {absl::StrCat(name, "2"), t->strides[4]}});
    }
    w_.Constants({{"kBatch", c_.geometry.batch},
                  {"kGroups", c_.geometry.groups},
                  {"kFiltersOfGroup", c_.out_channels_of_group()},
                  {"kChannelsOfGroup", c_.in_channels_of_group()},
                  {"kPixels", Product({c_.geometry.batch, c_.out[0], c_.out[1], c_.out[2]})},
                  {"kDenseY", DensePixels(c_.y) ? 1 : 0},
                  {"kAllColumns", Product({c_.kernel[0], c_.kernel[1], c_.kernel[2],
                                           c_.in_channels_of_group()})}});
  }

  // Of lines of so many elements; down: elements of one column lie together.
  void Copies(absl::string_view of, int vector, int64_t lines, int64_t width, bool down) {
    w_.Constants({{absl::StrCat("kV", of), vector},
                  {absl::StrCat("kLines", of), lines},
                  {absl::StrCat("kPacks", of), width / vector},
                  {absl::StrCat("kDown", of), down && vector == 1 ? 1 : 0},
                  {absl::StrCat("kCopies", of), CeilDiv(lines * (width / vector), threads_)}});
  }

  // Of an element of the result, or of a split's sums of it.
  void InputPlace(bool partial) {
    w_.out().Line(
        "[[maybe_unused]] const auto place = [&](int n, int h0, int h1, int h2, int channel) {");
    w_.out().Line(
        partial
            ? "  return ((((int64_t(split) * kBatch + n) * kIn0 + h0) * kIn1 + h1) * kIn2 + h2) * "
              "kChannels + channel;"
            : "  return kXFirst + n * kXN + h0 * kX0 + h1 * kX1 + h2 * kX2 + channel * kXC;");
    w_.out().Line("};");
  }
  void WeightPlace(bool partial) {
    w_.out().Line("[[maybe_unused]] const auto place = [&](int filter, int column) {");
    if (partial) {
      w_.out().Line("  return (int64_t(split) * kFilters + filter) * kAllColumns + column;");
    } else {
      w_.out().Line("  const int tap = column / kChannelsOfGroup;");
      w_.out().Line(
          "  return kWFirst + filter * kWN + column % kChannelsOfGroup * kWC + tap / kKernel2 / "
          "kKernel1 * kW0 +");
      w_.out().Line("         tap / kKernel2 % kKernel1 * kW1 + tap % kKernel2 * kW2;");
    }
    w_.out().Line("};");
  }
  // Of an element in the order of a split's sums.
  void ElementPlace() {
    w_.out().Line("const auto place_of = [&](int element) {");
    w_.out().Line(IsInput(c_) ? "  return place(element / kChannels / kIn2 / kIn1 / kIn0, element "
                                "/ kChannels / kIn2 / "
                                "kIn1 % kIn0, element / kChannels / kIn2 % kIn1, element / "
                                "kChannels % kIn2, element % "
                                "kChannels);"
                              : "  return place(element / kAllColumns, element % kAllColumns);");
    w_.out().Line("};");
  }

  // Numbers of the phase that a block's rows belong to.
  void PrintPhases() {
    const std::vector<ConvolutionPhase> all = ConvolutionPhases(c_);
    std::vector<int64_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    // The longest sums first: what begins last ends soon.
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return all[a].depth > all[b].depth; });
    std::vector<ConvolutionPhase> phases;
    for (const int64_t p : order) phases.push_back(all[p]);
    std::vector<int64_t> ends = {0};
    for (const ConvolutionPhase& phase : phases)
      ends.push_back(ends.back() + CeilDiv(phase.rows, tile_.rows));
    const auto print = [&](const std::string& name, const std::function<int64_t(size_t)>& value) {
      std::string text;
      bool same = true;
      for (size_t p = 0; p < phases.size(); ++p) {
        same = same && value(p) == value(0);
        if (p + 1 < phases.size()) absl::StrAppend(&text, "row_tile < ", ends[p + 1], " ? ");
        absl::StrAppend(&text, value(p), p + 1 < phases.size() ? " : " : "");
      }
      if (same) return w_.Constants({{name, value(0)}});
      w_.out().Line("[[maybe_unused]] const int ", name, " = ", text, ";");
    };
    if (tile_.boxes) print("walk", [&](size_t p) { return order[p]; });
    print("first_tile", [&](size_t p) { return ends[p]; });
    print("depth_here", [&](size_t p) { return phases[p].depth; });
    for (int d = 0; d < kSpatialDims; ++d) {
      const auto of = [&](size_t p) -> const StridePhase& { return phases[p].of[d]; };
      print(absl::StrCat("first", d), [&](size_t p) { return of(p).first; });
      print(absl::StrCat("pixels", d), [&](size_t p) { return of(p).pixels; });
      print(absl::StrCat("shift", d), [&](size_t p) { return of(p).shift; });
      print(absl::StrCat("first_tap", d), [&](size_t p) { return of(p).tap0; });
      // A divisor, also where no tap is met and nothing is divided.
      print(absl::StrCat("taps", d), [&](size_t p) { return std::max<int64_t>(of(p).taps, 1); });
      w_.Constants({{absl::StrCat("kReach", d), of(0).reach},
                    {absl::StrCat("kTapStep", d), of(0).tap_step}});
    }
  }

  ConvolutionWriter w_;
  const ConvolutionCall& c_;
  const ImplicitGemmTile tile_;
  const ImplicitGemmVectors vectors_;
  const int64_t threads_;
};

}  // namespace

ConvolutionKernels EmitImplicitGemm(const ConvolutionCall& call, const ImplicitGemmTile& tile,
                                    Dialect dialect) {
  ConvolutionKernels kernels{.schedule = tile.Print()};
  Writer sums(call, tile, dialect);
  kernels.partial_dtype = sums.sum_dtype();
  kernels.launches.push_back(sums.Sums());
  if (tile.splits > 1) {
    kernels.partial_elements = Product({tile.splits, sums.elements()});
    kernels.launches.push_back(Writer(call, tile, dialect).AddSplits());
  }
  return kernels;
}

}  // namespace retrograd
