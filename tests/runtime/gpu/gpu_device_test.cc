// The devices of GPUs as they are made: what they say of themselves, what they say where they
// cannot be had, and that their own kernels compile. On drivers that the test suite brings along.
#include "runtime/compiler/rtc.h"
#include "runtime/devices/cuda_device.h"
#include "runtime/gpu/gpu_support_kernels.h"
#include "runtime/gpu/hip/hip_driver.h"
#include "runtime/ops/matmul/fallback_matmul.h"
#include "tests/catch.h"
#include "tests/support/fake_gpu.h"

namespace retrograd {
namespace {

TEST_CASE("the device's own kernels and the fallback of matmuls compile for a GPU") {
  const Dialect dialect = GENERATE(Dialect::kCuda, Dialect::kHip);
  const char* const arch = dialect == Dialect::kCuda ? "sm_90" : "gfx90a";
  RG_NEEDS_COMPILER(CompilerName(dialect).status());
  auto support = CompileFor(dialect, kGpuSupportKernels, arch);
  INFO(support.status());
  REQUIRE(support.ok());
  MatMulCall call{.m = 4,
                  .n = 3,
                  .k = 5,
                  .batch = {6, 2},
                  .in_dtype = GENERATE(DType::kFp16, DType::kBf16, DType::kFp32, DType::kFp64),
                  .out_dtype = GENERATE(DType::kFp16, DType::kBf16, DType::kFp32, DType::kFp64),
                  .a = {.row_stride = 2, .col_stride = 9, .batch_strides = {1, 40}},
                  .b = {.row_stride = 0, .col_stride = 1, .batch_strides = {0, 3}},
                  .d = {.row_stride = 6, .col_stride = 2, .batch_strides = {48, 24}},
                  .accumulate = true};
  auto kernel = FallbackMatMul(call, dialect);
  REQUIRE(kernel.ok());
  auto fallback = CompileKernels(dialect, {*kernel}, arch);
  INFO(fallback.status());
  CHECK(fallback.ok());
}

#if !defined(RETROGRAD_FAKE_CUDA)
TEST_CASE("a build without CUDA headers says so when a cuda device is asked for") {
  CHECK(MakeCudaDevice({}).status().code() == absl::StatusCode::kUnavailable);
}
#endif

TEST_CASE("an installed HIP runtime has every function that is asked for, with or without a GPU") {
  const auto driver = LoadHipDriver("");
  INFO(driver.status());
  if (!driver.ok()) {
    CHECK(absl::IsUnavailable(driver.status()));
    CHECK_THAT(std::string(driver.status().message()),
               ContainsSubstring("no HIP runtime found") || ContainsSubstring("no AMD GPU"));
  }
}

TEST_CASE("a device says what the driver knows of it, the number of its multiprocessors included") {
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const FakeDriver driver(vendor);
  driver.set("sms", 78);
  const auto device = MakeDevice(FakeOptions(vendor));
  REQUIRE(device.ok());
  const DeviceFacts facts = (*device)->Describe();
  CHECK(facts.sms == 78);
  CHECK(facts.arch == (vendor.cuda() ? "sm_90" : "gfx90a"));
  CHECK_FALSE(facts.model.empty());
  CHECK(facts.cache_bytes > 0);
}

TEST_CASE("a number of compute units that no chip has is not believed") {
  const Vendor& hip = kVendors[0];
  const FakeDriver driver(hip);
  for (const int units : {0, -1, 1 << 20}) {
    driver.set("sms", units);
    const auto device = MakeDevice(FakeOptions(hip));
    REQUIRE(device.ok());
    CHECK((*device)->Describe().sms == 1);
  }
}

TEST_CASE("no driver, no device, an old device and too little memory are said in a sentence") {
  RG_ON_EACH_GPU(gpu);
  const Vendor& vendor = gpu.vendor;
  gpu.driver.reset();
  FakeOptions nowhere(vendor);
  nowhere.driver = "/nonexistent/libcuda.so.1";
  CHECK(MakeDevice(nowhere).status().code() == absl::StatusCode::kUnavailable);
  FakeOptions second(vendor);
  second.ordinal = 1;
  CHECK_THAT(std::string(MakeDevice(second).status().message()),
             ContainsSubstring(absl::StrCat(vendor.device, ":1")));
  gpu.driver.set("devices", 0);
  CHECK(MakeDevice(FakeOptions(vendor)).status().code() == absl::StatusCode::kUnavailable);
  gpu.driver.reset();
  gpu.driver.set("major", 7);
  gpu.driver.set("gfx", 0x1100);  // whose wavefronts have 32 threads
  CHECK_THAT(std::string(MakeDevice(FakeOptions(vendor)).status().message()),
             ContainsSubstring(vendor.cuda() ? "sm_70" : "gfx1100"));
  gpu.driver.reset();
  FakeOptions no_compiler(vendor);
  no_compiler.rtc = "/nonexistent/libnvrtc.so";
  CHECK(MakeDevice(no_compiler).status().code() == absl::StatusCode::kUnavailable);

  const long long before = gpu.driver.allocated();
  gpu.driver.set("memory_mib", 0);
  CHECK(gpu.LoadOn(FakeOptions(vendor)).status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(gpu.driver.allocated() == before);
  gpu.driver.reset();
  FakeOptions no_blas(vendor);
  no_blas.blas = "/nonexistent/libcublasLt.so";
  const absl::Status without = gpu.LoadOn(no_blas).status;
  INFO(without);  // AMD's matmuls are then kernels of ours
  CHECK(without.code() == (vendor.cuda() ? absl::StatusCode::kUnavailable : absl::StatusCode::kOk));
  CHECK(gpu.LoadOn(FakeOptions(vendor)).status.ok());
}

}  // namespace
}  // namespace retrograd
