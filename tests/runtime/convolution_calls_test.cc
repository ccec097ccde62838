// Convolutions and their gradients as calls: the host's loops against the reference evaluator, and
// the kernel that needs no library against the host's loops, in any layout, and casts behind calls.
#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/devices/host_device.h"
#include "runtime/ops/convolution/fallback_convolution.h"
#include "runtime/ops/convolution/host_convolution.h"
#include "runtime/ops/convolution/widened_call.h"
#include "tests/catch.h"
#include "tests/support/drawn_convolutions.h"
#include "tests/support/kernels/gpu_compilers.h"

namespace retrograd {
namespace {

TEST_CASE("the host's convolutions give the reference's values in any geometry and layout") {
  for (uint64_t seed = 1; seed <= 240; ++seed) {
    Draw draw(seed);
    const Call call = DrawnCall(draw, kConvolutionOps[seed % 3]);
    INFO("seed " << seed << " " << Name(call.op));
    const std::vector<std::vector<double>> values = DrawnValues(draw, call);
    auto loaded = LoadHostConvolution(call);
    REQUIRE(loaded.ok());
    const std::vector<double> ours = Run(**loaded, call, values);
    const std::vector<double> wanted = Reference(call, values);
    REQUIRE(ours.size() == wanted.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      REQUIRE(std::fabs(ours[i] - wanted[i]) <= 1e-10 * (1 + std::fabs(wanted[i])));
    }
  }
}

TEST_CASE("the kernel that needs no library gives the same, with every access checked") {
  HostDeviceOptions options;
  options.compile.check = true;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  const std::unique_ptr<CallLoader> loader = MakeFallbackConvolutionLoader(*device);
  for (uint64_t seed = 301; seed <= 312; ++seed) {
    Draw draw(seed);
    const Call call = DrawnCall(draw, kConvolutionOps[seed % 3]);
    INFO("seed " << seed << " " << Name(call.op));
    const std::vector<std::vector<double>> values = DrawnValues(draw, call);
    auto loaded = loader->Load(call, {});
    INFO(loaded.status());
    REQUIRE(loaded.ok());
    const std::vector<double> ours = Run(**loaded, call, values);
    const std::vector<double> wanted = Reference(call, values);
    for (size_t i = 0; i < ours.size(); ++i) {
      REQUIRE(std::fabs(ours[i] - wanted[i]) <= 1e-10 * (1 + std::fabs(wanted[i])));
    }
  }
}

void CheckFallback(const GpuTarget& target) {
  for (Op op : kConvolutionOps) {
    Draw draw(7);
    Call call = DrawnCall(draw, op);
    for (std::vector<CallTensor>* list : {&call.operands, &call.results}) {
      for (CallTensor& t : *list) t.dtype = DType::kBf16;
    }
    const auto kernel = FallbackConvolution(ConvolutionOf(call), target.dialect);
    REQUIRE(kernel.ok());
    CheckCompiles(target, {*kernel}, std::string(Name(op)));
  }
}

RG_TEST_COMPILES("the kernel that needs no library compiles", CheckFallback);

TEST_CASE("integers are refused before anything runs") {
  Draw draw(3);
  Call call = DrawnCall(draw, Op::convolution);
  CallTensor& result = call.results[0];
  result.dtype = DType::kInt32;
  CHECK_THAT(std::string(LoadHostConvolution(call).status().message()),
             ContainsSubstring("floating"));
}

// Element i of a result of `elements` is -i, as bf16; it writes all of its scratch memory first.
class Counting : public LoadedCall {
 public:
  explicit Counting(int64_t elements) : LoadedCall(96), elements_(elements) {}
  absl::Status Run(int, const CallPointers& pointers, void* scratch) override {
    std::memset(scratch, 0xff, 96);
    auto* const to = static_cast<uint16_t*>(pointers.results[0]);
    for (int64_t i = 0; i < elements_; ++i) {
      to[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(-static_cast<float>(i % 256)) >> 16);
    }
    return absl::OkStatus();
  }
  std::string Describe() const override { return "counting"; }

 private:
  const int64_t elements_;
};

Call WideCall(Shape shape, int64_t offset) {
  Call call{.op = Op::convolution_weight_gradient};
  call.operands.assign(2, {.shape = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .dtype = DType::kBf16});
  const std::vector<int64_t> strides = {shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3],
                                        shape[1]};
  call.results = {{.offset = offset, .shape = shape, .strides = strides, .dtype = DType::kFp32}};
  return call;
}

TEST_CASE("what a call stores in 16 bits is widened in the order in which it lies") {
  HostDeviceOptions options;
  options.compile.check = true;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  for (const auto& [shape, offset] : std::vector<std::pair<Shape, int64_t>>{
           {{1, 1, 1, 1}, 0}, {{8, 4, 3, 3}, 0}, {{7, 5, 3, 1}, 3}, {{64, 8, 3, 3}, 8}}) {
    for (const int64_t alignment : {4, 16}) {
      const Call call = WideCall(shape, offset);
      const int64_t elements = Elements(shape);
      INFO(elements << " elements from " << offset << " on, " << alignment << " bytes");
      REQUIRE(NarrowOf(call).has_value());
      auto loaded = LoadWidened(*device, call, {.result_alignment = {alignment}},
                                std::make_unique<Counting>(elements));
      INFO(loaded.status());
      REQUIRE(loaded.ok());
      CHECK((*loaded)->scratch_bytes() >= 2 * elements + 96);
      std::vector<float> result(static_cast<size_t>(offset + elements + 1), 7.0F);
      std::vector<double> scratch(static_cast<size_t>((*loaded)->scratch_bytes() / 8 + 1));
      void* const results[] = {result.data()};
      const void* const operands[] = {nullptr, nullptr};
      REQUIRE((*loaded)->Run(0, {operands, results}, scratch.data()).ok());
      for (int64_t i = 0; i < elements; ++i) {
        REQUIRE(result[static_cast<size_t>(offset + i)] == -static_cast<float>(i % 256));
      }
      for (int64_t i = 0; i < offset; ++i) CHECK(result[static_cast<size_t>(i)] == 7.0F);
      CHECK(result.back() == 7.0F);
    }
  }
}

TEST_CASE("there is nothing to widen where a result has the operands' dtype, or gaps") {
  Call call = WideCall({4, 4, 3, 3}, 0);
  SECTION("16 bits asked for") { call.results[0].dtype = DType::kBf16; }
  SECTION("operands of fp32") {
    for (CallTensor& t : call.operands) t.dtype = DType::kFp32;
  }
  SECTION("gaps") { call.results[0].strides[0] += 4; }
  CHECK_FALSE(NarrowOf(call).has_value());
}

void CheckCast(const GpuTarget& target) {
  const Kernel kernel =
      WideningKernel(WideCall({64, 64, 3, 3}, 0), {.result_alignment = {16}}, target.dialect);
  CheckCompiles(target, {kernel}, "the cast");
}

RG_TEST_COMPILES("the cast behind a call compiles", CheckCast);

}  // namespace
}  // namespace retrograd
