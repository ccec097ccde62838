// Convolutions' gradients by generated kernels, on the host with every access checked, against the
// reference evaluator; and whether the GPU compilers take them.
#include "runtime/ops/convolution/generated_convolution.h"
#include "absl/strings/str_cat.h"

#include <cmath>

#include "absl/strings/str_join.h"
#include "fusion/ops/convolution/depthwise_tiles.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "runtime/devices/host_device.h"
#include "tests/catch.h"
#include "tests/support/drawn_convolutions.h"
#include "tests/support/kernels/gpu_compilers.h"
#include "tests/support/reporting_device.h"

namespace retrograd {
namespace {

constexpr Op kGradients[] = {Op::convolution_input_gradient, Op::convolution_weight_gradient};
constexpr size_t kSchedules = 3;

void LayChannelsLast(Call& call) {
  for (std::vector<CallTensor>* list : {&call.operands, &call.results}) {
    for (CallTensor& t : *list) t.offset = 0, t.strides = ChannelsLastStrides(t.shape);
  }
}

// A depthwise convolution with its channels last.
Call DrawnDepthwise(Draw& draw, Op op, DType dtype) {
  const int dims = static_cast<int>(draw.Int(1, 3));
  const int64_t channels = draw.Int(0, 3) == 0 ? 1 : draw.Int(1, 21);
  const int64_t filters = channels * (draw.Int(0, 3) == 0 ? draw.Int(2, 3) : 1);
  Shape x = {draw.Int(1, 3), channels}, w = {filters, 1}, y = {x[0], filters};
  Shape stride, padding, dilation;
  for (int d = 0; d < dims; ++d) {
    const int64_t kernel = draw.Int(1, dims == 1 ? 9 : 4), dilated = draw.Int(1, 3);
    const int64_t window = dilated * (kernel - 1) + 1, pad = draw.Int(0, 4);
    const int64_t extent = std::max<int64_t>(window - 2 * pad, 1) + draw.Int(0, 12);
    const int64_t step = draw.Int(1, 4);
    x.push_back(extent), w.push_back(kernel);
    y.push_back((extent + 2 * pad - window) / step + 1);
    stride.push_back(step), padding.push_back(pad), dilation.push_back(dilated);
  }
  Call call{.op = op};
  call.attributes = {
      {"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", channels}};
  const bool input = op == Op::convolution_input_gradient;
  input ? call.attributes.Set("input_shape", x) : call.attributes.Set("weight_shape", w);
  const auto tensor = [&](const Shape& shape) {
    return CallTensor{.shape = shape, .dtype = dtype};
  };
  call.operands = {tensor(y), tensor(input ? w : x)};
  call.results = {tensor(input ? x : w)};
  LayChannelsLast(call);
  return call;
}

TEST_CASE("every schedule gives the reference's gradients, with every access checked") {
  HostDeviceOptions options;
  options.compile.check = true;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Draw draw(seed);
    const Call call = DrawnDepthwise(draw, kGradients[seed % 2], DType::kFp64);
    const std::vector<std::vector<double>> values = DrawnValues(draw, call);
    const std::vector<double> wanted = Reference(call, values);
    auto loaded = LoadGeneratedConvolution(*device, call, {}, kSchedules);
    INFO("seed " << seed << " " << Name(call.op) << " " << loaded.status());
    REQUIRE(loaded.ok());
    for (const std::unique_ptr<LoadedCall>& schedule : *loaded) {
      INFO(schedule->Describe());
      const std::vector<double> ours = Run(*schedule, call, values);
      REQUIRE(ours.size() == wanted.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        REQUIRE(std::fabs(ours[i] - wanted[i]) <= 1e-10 * (1 + std::fabs(wanted[i])));
      }
    }
  }
}

TEST_CASE("a schedule is found by its name, and the first one where the call has none of it") {
  HostDeviceOptions options;
  options.compile.check = true;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Draw draw(seed);
    const Call call = DrawnDepthwise(draw, kGradients[seed % 2], DType::kFp64);
    const std::vector<std::vector<double>> values = DrawnValues(draw, call);
    const std::vector<double> wanted = Reference(call, values);
    auto all = LoadGeneratedConvolution(*device, call, {}, kMostSchedules);
    INFO("seed " << seed << " " << Name(call.op) << " " << all.status());
    REQUIRE(all.ok());
    std::vector<std::string> names = {"kernels of ours, that nobody has"};
    for (const std::unique_ptr<LoadedCall>& schedule : *all) names.push_back(schedule->Describe());
    for (const std::string& name : names) {
      const auto loaded = LoadGeneratedConvolutionLike(*device, call, {}, name);
      INFO(name << " " << loaded.status());
      REQUIRE(loaded.ok());
      CHECK((*loaded)->Describe() == (name == names[0] ? names[1] : name));
      const std::vector<double> ours = Run(**loaded, call, values);
      for (size_t i = 0; i < ours.size(); ++i) {
        REQUIRE(std::fabs(ours[i] - wanted[i]) <= 1e-10 * (1 + std::fabs(wanted[i])));
      }
    }
  }
}

void CheckGradients(const GpuTarget& target) {
  uint64_t seed = 0;
  for (const Op op : kGradients) {
    for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp64}) {
      Draw draw(++seed);
      const ConvolutionCall call = ConvolutionOf(DrawnDepthwise(draw, op, dtype));
      const auto made = GenerateConvolution(call, target.dialect, {.sms = 132}, kSchedules);
      REQUIRE(made.ok());
      for (const ConvolutionKernels& schedule : *made) {
        for (const ConvolutionKernels::Launch& launch : schedule.launches) {
          CheckCompiles(target, {launch.kernel},
                        absl::StrCat(Name(op), " ", Name(dtype), ", ", schedule.schedule));
        }
      }
    }
  }
}

RG_TEST_COMPILES("generated gradients compile", CheckGradients);

TEST_CASE("each launch of a gradient waits for what is in front, so that it may start early") {
  uint64_t seed = 0;
  for (const Op op : kGradients) {
    Draw draw(++seed);
    const ConvolutionCall call = ConvolutionOf(DrawnDepthwise(draw, op, DType::kFp32));
    const auto made = GenerateConvolution(call, Dialect::kCuda, {.sms = 132}, kSchedules);
    REQUIRE(made.ok());
    for (const ConvolutionKernels& schedule : *made) {
      for (const ConvolutionKernels::Launch& launch : schedule.launches) {
        INFO(schedule.schedule);
        CHECK(launch.kernel.starts_early);
        CHECK(launch.kernel.function.statements.rfind("  RG_EARLY_START();\n", 0) == 0);
      }
    }
  }
}

// Runs nothing: how many launches were early, in their order.
class LaunchCounter : public ReportingDevice {
 public:
  LaunchCounter() : ReportingDevice({}) {}
  std::vector<bool> early;

  absl::Status Bind(int, LoadedKernels&, absl::Span<void* const>) override {
    return absl::OkStatus();
  }
  absl::Status Launch(int, LoadedKernels&, size_t) override {
    early.push_back(false);
    return absl::OkStatus();
  }
  absl::Status LaunchEarly(int, LoadedKernels&, size_t) override {
    early.push_back(true);
    return absl::OkStatus();
  }
};

TEST_CASE("a call's launches start early behind each other, the first one where it may, or none") {
  LaunchCounter device;
  Call call{.op = Op::convolution_weight_gradient};
  const Shape image = {2, 96, 56, 56}, filters = {96, 1, 7, 7}, one = {1, 1}, three = {3, 3};
  call.attributes = {
      {"stride", one}, {"padding", three}, {"dilation", one}, {"groups", int64_t{96}}};
  call.attributes.Set("weight_shape", filters);
  const auto tensor = [](const Shape& shape) {
    return CallTensor{.shape = shape, .dtype = DType::kBf16};
  };
  call.operands = {tensor(image), tensor(image)};
  call.results = {tensor(filters)};
  LayChannelsLast(call);
  const CallFacts aligned{.operand_alignment = {16, 16}, .result_alignment = {16}};
  auto loaded = LoadGeneratedConvolution(device, call, aligned, kMostSchedules);
  INFO(loaded.status());
  REQUIRE(loaded.ok());
  size_t most = 0;
  for (const std::unique_ptr<LoadedCall>& schedule : *loaded) {
    INFO(schedule->Describe());
    const auto launched = [&] {
      device.early.clear();
      const void* const operands[] = {nullptr, nullptr};
      void* const results[] = {nullptr};
      CHECK(schedule->Run(0, {operands, results}, nullptr).ok());
      return device.early;
    };
    std::vector<bool> expected(launched().size(), true);
    most = std::max(most, expected.size());
    schedule->AllowEarlyStart();
    CHECK(launched() == expected);
    schedule->ForbidEarlyLaunches();
    CHECK(launched() == std::vector<bool>(expected.size(), false));
  }
  CHECK(most == 2);
}

TEST_CASE("what our kernels do not take is refused by name") {
  Draw draw(5);
  const Call call = DrawnDepthwise(draw, Op::convolution_weight_gradient, DType::kBf16);
  const std::unique_ptr<Device> device = MakeHostDevice({});
  const auto refusal = [&](const Call& refused, const CallFacts& facts) {
    return std::string(LoadGeneratedConvolution(*device, refused, facts, 1).status().message());
  };
  Call first = DrawnDepthwise(draw, Op::convolution_input_gradient, DType::kBf16);
  first.operands[0].shape = {2, 3, 4, 4}, first.operands[1].shape = {3, 1, 1, 1};
  first.results[0].shape = {2, 3, 4, 4};
  first.attributes = {{"stride", Shape{1, 1}},
                      {"padding", Shape{0, 0}},
                      {"dilation", Shape{1, 1}},
                      {"groups", 3},
                      {"input_shape", Shape{2, 3, 4, 4}}};
  LayChannelsLast(first);
  CHECK(refusal(first, {}).empty());
  first.operands[0].strides = {48, 16, 4, 1};
  CHECK(refusal(first, {}).empty());  // as an implicit GEMM
  CHECK_THAT(std::string(DepthwiseRefusal(ConvolutionOf(first)).message()),
             ContainsSubstring("channels that lie last"));
  CHECK_THAT(refusal(call, {.operand_alignment = {2, 16}}), ContainsSubstring("16 bytes"));
}

}  // namespace
}  // namespace retrograd
