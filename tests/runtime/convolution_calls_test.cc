// Convolutions and their gradients as calls: the host's loops against the reference evaluator, and
// the kernel that needs no library against the host's loops, in any layout.
#include <cmath>

#include "runtime/compiler/rtc.h"
#include "runtime/devices/host_device.h"
#include "runtime/ops/convolution/fallback_convolution.h"
#include "runtime/ops/convolution/host_convolution.h"
#include "tests/catch.h"
#include "tests/support/drawn_convolutions.h"

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

void CheckCompiles(Dialect dialect, absl::string_view arch) {
  for (Op op : kConvolutionOps) {
    Draw draw(7);
    Call call = DrawnCall(draw, op);
    for (std::vector<CallTensor>* list : {&call.operands, &call.results}) {
      for (CallTensor& t : *list) t.dtype = DType::kBf16;
    }
    const auto kernel = FallbackConvolution(ConvolutionOf(call), dialect);
    REQUIRE(kernel.ok());
    const auto object = CompileKernels(dialect, {*kernel}, arch);
    INFO(Name(op) << ": " << object.status());
    CHECK(object.ok());
  }
}

TEST_CASE("the kernel that needs no library compiles for sm_90") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  CheckCompiles(Dialect::kCuda, "sm_90");
}

TEST_CASE("the kernel that needs no library compiles for gfx90a") {
  RG_NEEDS_COMPILER(HipCompilerAvailable());
  CheckCompiles(Dialect::kHip, "gfx90a");
}

TEST_CASE("integers are refused before anything runs") {
  Draw draw(3);
  Call call = DrawnCall(draw, Op::convolution);
  CallTensor& result = call.results[0];
  result.dtype = DType::kInt32;
  CHECK_THAT(std::string(LoadHostConvolution(call).status().message()),
             ContainsSubstring("floating"));
}

}  // namespace
}  // namespace retrograd
