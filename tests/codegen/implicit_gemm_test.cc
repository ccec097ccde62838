// Convolutions' gradients as implicit GEMMs, on the host with every access checked, against the
// reference evaluator; and whether the GPU compilers take them.
#include "absl/strings/str_cat.h"
#include "codegen/convolution/emit_implicit_gemm.h"

#include <cmath>

#include "fusion/ops/convolution/image_boxes.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "graph/base/rounding.h"
#include "runtime/devices/host_device.h"
#include "runtime/host/host_numbers.h"
#include "runtime/ops/convolution/generated_convolution.h"
#include "tests/catch.h"
#include "tests/support/drawn_convolutions.h"
#include "tests/support/kernels/gpu_compilers.h"
#include "tests/support/plans/convolution_gradient.h"

namespace retrograd {
namespace {

constexpr Op kGradients[] = {Op::convolution_input_gradient, Op::convolution_weight_gradient};
constexpr ImplicitGemmLimits kLimits = {.sms = 132, .shared_bytes = 99 << 10};
constexpr ImplicitGemmLimits kHipLimits = {.sms = 110};

std::vector<int64_t> RowMajor(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// Any convolution whose tensors lie channels last, or row-major now and then. Of channels that fill
// whole packs of 16 bytes, some of them, or none, and more than a tile has columns now and then.
Call DrawnGradient(Draw& draw, Op op, DType dtype) {
  constexpr int64_t kChannels[] = {1, 2, 3, 4, 8, 12, 16, 33, 40, 72};
  const int dims = static_cast<int>(draw.Int(1, 3));
  const int64_t groups = draw.Int(0, 2) == 0 ? draw.Int(2, 3) : 1;
  Shape x = {draw.Int(1, 3), groups * kChannels[draw.Int(0, 9)]};
  Shape w = {groups * kChannels[draw.Int(0, 9)], x[1] / groups};
  Shape y = {x[0], w[0]}, stride, padding, dilation;
  for (int d = 0; d < dims; ++d) {
    const int64_t kernel = draw.Int(1, 4 - dims + 1), dilated = draw.Int(1, 3),
                  pad = draw.Int(0, 4);
    const int64_t window = dilated * (kernel - 1) + 1;
    const int64_t extent = std::max<int64_t>(window - 2 * pad, 1) + draw.Int(0, dims == 1 ? 40 : 6);
    const int64_t step = draw.Int(1, 4);
    x.push_back(extent), w.push_back(kernel);
    y.push_back((extent + 2 * pad - window) / step + 1);
    stride.push_back(step), padding.push_back(pad), dilation.push_back(dilated);
  }
  Call call{.op = op};
  call.attributes = {
      {"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  const bool input = op == Op::convolution_input_gradient;
  input ? call.attributes.Set("input_shape", x) : call.attributes.Set("weight_shape", w);
  const auto tensor = [&](const Shape& shape) {
    return CallTensor{.offset = draw.Int(0, 3) == 0 ? draw.Int(1, 24) : 8 * draw.Int(0, 2),
                      .shape = shape,
                      .strides = draw.Int(0, 3) == 0 ? RowMajor(shape) : ChannelsLastStrides(shape),
                      .dtype = dtype};
  };
  call.operands = {tensor(y), tensor(input ? w : x)};
  call.results = {tensor(input ? x : w)};
  return call;
}

// One whose operands a copy engine loads by boxes: channels that fill some, or parts of one.
Call DrawnForBoxes(Draw& draw, Op op, DType dtype) {
  constexpr int64_t kChannels[] = {32, 40, 64, 72, 136};
  const int dims = static_cast<int>(draw.Int(1, 3));
  const int64_t groups = draw.Int(0, 4) == 0 ? 2 : 1;
  const auto channels = [&] { return groups > 1 ? int64_t{64} : kChannels[draw.Int(0, 4)]; };
  Shape x = {draw.Int(1, 3), groups * channels()}, w = {groups * channels(), x[1] / groups};
  Shape y = {x[0], w[0]}, stride, padding, dilation;
  for (int d = 0; d < dims; ++d) {
    const int64_t kernel = draw.Int(1, 3), dilated = draw.Int(1, 2), pad = draw.Int(0, 3);
    const int64_t window = dilated * (kernel - 1) + 1;
    const int64_t extent = std::max<int64_t>(window - 2 * pad, 1) + draw.Int(0, dims == 1   ? 70
                                                                                : dims == 2 ? 5
                                                                                            : 2);
    const int64_t step = draw.Int(0, 1) == 0 ? 1 : draw.Int(2, 3);
    x.push_back(extent), w.push_back(kernel);
    y.push_back((extent + 2 * pad - window) / step + 1);
    stride.push_back(step), padding.push_back(pad), dilation.push_back(dilated);
  }
  Call call{.op = op};
  call.attributes = {
      {"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  const bool input = op == Op::convolution_input_gradient;
  input ? call.attributes.Set("input_shape", x) : call.attributes.Set("weight_shape", w);
  const auto tensor = [&](const Shape& shape) {
    return CallTensor{.offset = 8 * draw.Int(0, 2),
                      .shape = shape,
                      .strides = ChannelsLastStrides(shape),
                      .dtype = dtype};
  };
  call.operands = {tensor(y), tensor(input ? w : x)};
  call.results = {tensor(input ? x : w)};
  return call;
}

// Of 64 channels, in three dims, with so much padding and taps so far apart along the last.
ConvolutionCall GradientInThreeDims(Op op, int64_t padding, int64_t dilation) {
  const Shape x = {1, 64, 3, 4, 80}, w = {64, 64, 2, 3, 3};
  const Shape y = {1, 64, 2, 2, 80 + 2 * padding - 2 * dilation}, ones = {1, 1, 1};
  Call call{.op = op};
  call.attributes = {{"stride", ones},
                     {"padding", Shape{0, 0, padding}},
                     {"dilation", Shape{1, 1, dilation}},
                     {"groups", int64_t{1}}};
  const bool input = op == Op::convolution_input_gradient;
  input ? call.attributes.Set("input_shape", x) : call.attributes.Set("weight_shape", w);
  const auto tensor = [](const Shape& shape) {
    return CallTensor{.shape = shape, .strides = ChannelsLastStrides(shape), .dtype = DType::kBf16};
  };
  call.operands = {tensor(y), tensor(input ? w : x)};
  call.results = {tensor(input ? x : w)};
  return ConvolutionOf(call);
}

// The schedules that load boxes.
std::vector<ImplicitGemmTile> BoxTiles(const ConvolutionCall& call) {
  ImplicitGemmLimits limits = kLimits;
  limits.boxes = true;
  std::vector<ImplicitGemmTile> tiles = ImplicitGemmTiles(call, limits, 1000);
  std::erase_if(tiles, [](const ImplicitGemmTile& tile) { return !tile.boxes; });
  return tiles;
}

// Small integers, whose products add up without rounding in fp32.
std::vector<std::vector<double>> Integers(Draw& draw, const Call& call) {
  std::vector<std::vector<double>> values;
  for (const CallTensor& t : call.operands) {
    values.emplace_back(static_cast<size_t>(Elements(t.shape)));
    for (double& v : values.back()) v = static_cast<double>(draw.Int(-3, 3));
  }
  return values;
}

// The result's elements, row-major, of operands in the call's dtype.
template <typename T>
std::vector<double> RunAs(LoadedCall& loaded, const Call& call,
                          const std::vector<std::vector<double>>& values) {
  const auto room = [](int64_t elements) {
    return std::vector<T>(static_cast<size_t>(elements) + 16 / sizeof(T));
  };
  const auto aligned = [](std::vector<T>& of) {
    const auto at = reinterpret_cast<uintptr_t>(of.data());
    return reinterpret_cast<T*>((at + 15) / 16 * 16);
  };
  std::vector<std::vector<T>> stored;
  std::vector<const void*> operands;
  for (size_t i = 0; i < 2; ++i) {
    stored.push_back(room(SpanOf(call.operands[i])));
    T* const data = aligned(stored.back());
    ForElements(call.operands[i], [&](int64_t e, int64_t at) { StoreAs(data, at, values[i][e]); });
    operands.push_back(data);
  }
  std::vector<T> result = room(SpanOf(call.results[0]));
  T* const data = aligned(result);
  for (int64_t i = 0; i < SpanOf(call.results[0]); ++i) StoreAs(data, i, 77.0);
  void* const results[] = {data};
  std::vector<double> scratch(static_cast<size_t>(loaded.scratch_bytes() / 8 + 8));
  REQUIRE(loaded.Run(0, {operands, results}, scratch.data()).ok());
  std::vector<double> dense(static_cast<size_t>(Elements(call.results[0].shape)));
  ForElements(call.results[0], [&](int64_t e, int64_t at) { dense[e] = LoadAs<double>(data, at); });
  return dense;
}

std::vector<double> RunOn(LoadedCall& loaded, const Call& call,
                          const std::vector<std::vector<double>>& values) {
  switch (call.operands[0].dtype) {
    case DType::kBf16: return RunAs<HostBf16>(loaded, call, values);
    case DType::kFp16: return RunAs<HostFp16>(loaded, call, values);
    case DType::kFp32: return RunAs<float>(loaded, call, values);
    default: return RunAs<double>(loaded, call, values);
  }
}

// Of the schedules that the call can have, some.
std::vector<ConvolutionKernels> SomeSchedules(Draw& draw, const Call& call, Dialect dialect,
                                              size_t some) {
  const ConvolutionCall convolution = ConvolutionOf(call);
  const std::vector<ImplicitGemmTile> all =
      ImplicitGemmTiles(convolution, dialect == Dialect::kHip ? kHipLimits : kLimits, 1000);
  std::vector<ConvolutionKernels> made;
  for (size_t i = 0; i < some; ++i) {
    const auto last = static_cast<int64_t>(all.size()) - 1;
    made.push_back(EmitImplicitGemm(convolution, all[draw.Int(0, last)], dialect));
  }
  return made;
}

TEST_CASE("an implicit GEMM's gradients are the reference's, with every access checked") {
  HostDeviceOptions options;
  options.compile.check = true;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  constexpr DType kTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp64};
  for (uint64_t seed = 1; seed <= 48; ++seed) {
    Draw draw(seed);
    const DType dtype = kTypes[seed % 4];
    const Call call = DrawnGradient(draw, kGradients[seed / 4 % 2], dtype);
    INFO("seed " << seed << " " << Name(call.op) << " " << Name(dtype));
    REQUIRE(ImplicitGemmRefusal(ConvolutionOf(call)).ok());
    const std::vector<std::vector<double>> values = Integers(draw, call);
    std::vector<double> wanted = Reference(call, values);
    RoundTo(dtype, absl::MakeSpan(wanted));
    for (const ConvolutionKernels& schedule : SomeSchedules(draw, call, Dialect::kHost, 2)) {
      INFO(schedule.schedule);
      auto loaded = LoadConvolutionKernels(*device, call, {schedule});
      REQUIRE(loaded.status().ToString() == "OK");
      const std::vector<double> ours = RunOn(*loaded->front(), call, values);
      REQUIRE(ours == wanted);
    }
  }
}

TEST_CASE("gradients of operands in boxes are the reference's, with every access checked") {
  for (uint64_t seed = 1; seed <= 32; ++seed) {
    HostDeviceOptions options;
    options.compile.check = seed % 4 == 0;
    const std::unique_ptr<Device> device = MakeHostDevice(options);
    Draw draw(seed);
    const DType dtype = seed % 3 == 0 ? DType::kFp16 : DType::kBf16;
    const Call call = DrawnForBoxes(draw, kGradients[seed % 2], dtype);
    const ConvolutionCall convolution = ConvolutionOf(call);
    INFO("seed " << seed << " " << Name(call.op) << " " << Name(dtype));
    REQUIRE(BoxRefusal(convolution).ToString() == "OK");
    const std::vector<std::vector<double>> values = Integers(draw, call);
    std::vector<double> wanted = Reference(call, values);
    RoundTo(dtype, absl::MakeSpan(wanted));
    const std::vector<ImplicitGemmTile> tiles = BoxTiles(convolution);
    REQUIRE(!tiles.empty());
    const ImplicitGemmTile tile = tiles[draw.Int(0, static_cast<int64_t>(tiles.size()) - 1)];
    INFO(tile.Print());
    auto loaded = LoadConvolutionKernels(*device, call,
                                         {EmitImplicitGemm(convolution, tile, Dialect::kHost)});
    REQUIRE(loaded.status().ToString() == "OK");
    REQUIRE(RunOn(*loaded->front(), call, values) == wanted);
  }
}

TEST_CASE("lines of a matrix of one line lie at a pitch that the copy engine takes") {
  for (const int64_t filters : {4, 10, 20, 36, 40}) {
    const Call call = ConvolutionGradient(
        Op::convolution_weight_gradient,
        {.batch = 1, .channels = 512, .extent = 1, .filters = filters, .taps = 1});
    const ConvolutionCall convolution = ConvolutionOf(call);
    REQUIRE(BoxRefusal(convolution).ToString() == "OK");
    CHECK(BoxOperandsOf(convolution).matrix.pitch % 8 == 0);
  }
}

TEST_CASE("gradients of operands in boxes compile for sm_90a") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Draw draw(seed);
    const DType dtype = seed <= 2 ? DType::kFp16 : DType::kBf16;
    const Call call = DrawnForBoxes(draw, kGradients[seed % 2], dtype);
    const ConvolutionCall convolution = ConvolutionOf(call);
    std::vector<ConvolutionKernels> made;
    for (const ImplicitGemmTile& tile : BoxTiles(convolution)) {
      if (tile.splits > 1) continue;
      made.push_back(EmitImplicitGemm(convolution, tile, Dialect::kCuda));
    }
    REQUIRE(!made.empty());
    CheckCompiles({Dialect::kCuda, "sm_90a", 32}, DistinctKernels(made),
                  absl::StrCat("seed ", seed));
  }
}

TEST_CASE("schedules of boxes are for devices and calls that have boxes") {
  Draw draw(3);
  const auto boxes = [](const ConvolutionCall& call, const ImplicitGemmLimits& limits) {
    const auto tiles = ImplicitGemmTiles(call, limits, 1000);
    return std::any_of(tiles.begin(), tiles.end(), [](const auto& tile) { return tile.boxes; });
  };
  ImplicitGemmLimits with = kLimits;
  with.boxes = true;
  for (const Op op : kGradients) {
    const ConvolutionCall call = ConvolutionOf(DrawnForBoxes(draw, op, DType::kBf16));
    CHECK(boxes(call, with));
    CHECK_FALSE(boxes(call, kLimits));
    const auto refusal = [&](const ConvolutionCall& refused) {
      CHECK_FALSE(boxes(refused, with));
      return std::string(BoxRefusal(refused).message());
    };
    ConvolutionCall other = call;
    other.x.dtype = other.w.dtype = other.y.dtype = DType::kFp32;
    CHECK_THAT(refusal(other), ContainsSubstring("of bf16 and fp16, not f32"));
    other = call, other.y.offset = 4;
    CHECK_THAT(refusal(other), ContainsSubstring("begin at 16 bytes"));
    other = call, other.padding[2] = 2000;
    CHECK_THAT(refusal(other), ContainsSubstring("nearer to the image"));
  }
}

TEST_CASE("in three dims boxes reach less far from an image than in two") {
  for (const Op op : kGradients) {
    CHECK(BoxRefusal(GradientInThreeDims(op, 1, 1)).ok());
    CHECK(BoxRefusal(GradientInThreeDims(op, 16, 15)).ok());
    CHECK_THAT(std::string(BoxRefusal(GradientInThreeDims(op, 20, 1)).message()),
               ContainsSubstring("nearer to the image"));
    CHECK_THAT(std::string(BoxRefusal(GradientInThreeDims(op, 16, 16)).message()),
               ContainsSubstring("31 pixels away"));
  }
}

void CheckGradients(const GpuTarget& target) {
  uint64_t seed = 0;
  for (const Op op : kGradients) {
    for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp64}) {
      Draw draw(++seed);
      const Call call = DrawnGradient(draw, op, dtype);
      for (const ConvolutionKernels& schedule : SomeSchedules(draw, call, target.dialect, 2)) {
        for (const ConvolutionKernels::Launch& launch : schedule.launches) {
          CheckCompiles(target, {launch.kernel},
                        absl::StrCat(Name(op), " ", Name(dtype), ", ", schedule.schedule));
        }
      }
    }
  }
}

RG_TEST_COMPILES("implicit GEMMs compile", CheckGradients);

TEST_CASE("a tile's schedules fit what a block may have") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Draw draw(seed);
    constexpr DType kTypes[] = {DType::kBf16, DType::kFp32, DType::kFp64};
    const Call drawn = DrawnGradient(draw, kGradients[seed % 2], kTypes[seed / 2 % 3]);
    const ConvolutionCall call = ConvolutionOf(drawn);
    for (const int64_t bytes : {64 << 10, 99 << 10, 227 << 10}) {
      const auto tiles = ImplicitGemmTiles(call, {.sms = 132, .shared_bytes = bytes}, 1000);
      INFO("seed " << seed << ", " << bytes << " bytes");
      REQUIRE(!tiles.empty());
      for (const ImplicitGemmTile& tile : tiles) CHECK(SharedBytes(tile, call) <= bytes);
    }
  }
}

TEST_CASE("an implicit GEMM refuses by name") {
  Draw draw(5);
  const ConvolutionCall call =
      ConvolutionOf(DrawnGradient(draw, Op::convolution_weight_gradient, DType::kBf16));
  const auto refusal = [](const ConvolutionCall& refused) {
    return std::string(ImplicitGemmRefusal(refused).message());
  };
  CHECK(refusal(call).empty());
  ConvolutionCall other = call;
  other.y.dtype = DType::kFp32;
  CHECK_THAT(refusal(other), ContainsSubstring("operands of one dtype"));
  other.y.dtype = DType::kInt32;
  CHECK_THAT(refusal(other), ContainsSubstring("floating types only"));
  other = call, other.op = Op::convolution;
  CHECK_THAT(refusal(other), ContainsSubstring("gradients only"));
  other = call, other.op = Op::convolution_input_gradient;
  other.stride = {1, 9, 8}, other.in = {1, 20, 20};
  CHECK_THAT(refusal(other), ContainsSubstring("up to 64 phases, not 72"));
  other = call, other.x.strides[0] = int64_t{1} << 31, other.x.shape[0] = 2;
  CHECK_THAT(refusal(other), ContainsSubstring("2^30 elements"));
}

}  // namespace
}  // namespace retrograd
