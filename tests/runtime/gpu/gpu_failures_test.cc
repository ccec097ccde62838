// Calls of the driver, the run-time compiler and the library for matmuls that fail on the devices
// of GPUs: a status, nothing lost, and the next attempt works. On drivers that the test suite
// brings along.
#include "runtime/compiler/module_cache.h"
#include "tests/catch.h"
#include "tests/support/fake_gpu.h"

namespace retrograd {
namespace {

TEST_CASE(
    "memory that runs out at any moment of loading is a status that says so, and none is lost") {
  RG_ON_EACH_GPU(gpu);
  FakeOptions options(gpu.vendor);
  const auto work = WorkDirectory::MakeIn("/tmp");
  REQUIRE(work.ok());
  options.cache_dir = work->path() + "/cache";
  gpu.driver.reset();
  REQUIRE(gpu.LoadOn(options).status.ok());
  const int allocations = gpu.driver.calls("MemAlloc");
  REQUIRE(allocations > 2);
  int refused = 0;
  for (int nth = 1; nth <= allocations; ++nth) {
    const long long before = gpu.driver.allocated();
    gpu.driver.fail("MemAlloc", nth, kGpuOutOfMemory);
    const absl::Status status = gpu.LoadOn(options).status;
    INFO("allocation " << nth << ": " << status);
    CHECK((status.ok() || absl::IsResourceExhausted(status)));
    refused += status.ok() ? 0 : 1;
    CHECK(gpu.driver.allocated() == before);
  }
  CHECK(refused > 0);
  gpu.driver.fail_nothing();
  CHECK(gpu.LoadOn(options).status.ok());
}

TEST_CASE("a kernel that does not compile is a status with the compiler's words") {
  RG_ON_EACH_GPU(gpu);
  gpu.driver.fail("CompileProgram", 2, 6);  // 1: the device's own kernels
  const LoadedProgram failed = gpu.LoadOn(FakeOptions(gpu.vendor));
  CHECK(failed.status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(failed.status.message()), ContainsSubstring("error: ordered"));
  CHECK(gpu.LoadOn(FakeOptions(gpu.vendor)).status.ok());
}

TEST_CASE("whichever call fails, the caller gets a status and the next attempt works") {
  RG_ON_EACH_GPU(gpu, .streams = 2);
  const Vendor& vendor = gpu.vendor;
  gpu.driver.reset();
  std::vector<std::string> entries;
  {
    const LoadedProgram loaded = gpu.LoadOn(FakeOptions(vendor));
    REQUIRE(loaded.status.ok());
    CHECK(gpu.Run(*gpu.NewTensors(loaded), loaded) < kFp32Error);
    for (int i = 0; gpu.driver.called(i) != nullptr; ++i) {
      entries.emplace_back(gpu.driver.called(i));
    }
  }
  CHECK(entries.size() > 30);
  for (const std::string& entry : entries) {
    for (int nth : {1, 3}) {
      INFO("call " << nth << " of " << entry << " fails");
      const bool blas = entry.find("blasLt") != std::string::npos;
      const int failure = blas ? kBlasExecutionFailed : kLaunchFailed;
      const long long before = gpu.driver.allocated();
      gpu.driver.reset();
      gpu.driver.fail(entry, nth, failure);
      {
        const LoadedProgram loaded = gpu.LoadOn(FakeOptions(vendor));
        gpu.driver.fail_nothing();
        if (loaded.status.ok()) {
          const auto tensors = gpu.NewTensors(loaded);
          gpu.driver.fail(entry, nth, failure);
          // Nobody is told of some failures: of a candidate for a matmul, or of a release.
          (void)loaded.program->Run(tensors->inputs, tensors->outputs);
          gpu.driver.fail_nothing();
          CHECK(gpu.Run(*tensors, loaded) < kFp32Error);
        } else {
          // hipBLASLt has no words for its statuses.
          CHECK_THAT(std::string(loaded.status.message()),
                     ContainsSubstring("ordered") || ContainsSubstring("status 6"));
        }
      }
      // Memory is lost only where it cannot be freed.
      const bool loses =
          entry == EntryName(vendor, "MemFree") || entry == EntryName(vendor, "MakeCurrent");
      if (!loses) CHECK(gpu.driver.allocated() == before);
    }
  }
}

}  // namespace
}  // namespace retrograd
