// Programs that differ in sizes alone, each on a device of its own: what one has compiled, loaded
// and timed, the others take over. On drivers that the test suite brings along.
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/support/fake_gpu.h"

namespace retrograd {
namespace {

std::string Model(int64_t tokens) {
  return absl::StrCat("mlp:layers=2,tokens=", tokens, ",in=8,hidden=20,out=12,dtype=fp32");
}

FakeOptions Shared(const Vendor& vendor) {
  FakeOptions options(vendor);
  options.tuning = std::make_shared<Tuning>();
  options.shared_kernels = std::make_shared<SharedKernels<SharedCode>>();
  return options;
}

TEST_CASE("a program loads no module that another one runs, and the last one unloads it") {
  RG_ON_EACH_GPU(gpu);
  const FakeOptions options = Shared(gpu.vendor);
  const int before = gpu.driver.calls("ModuleLoadData") - gpu.driver.calls("ModuleUnload");
  std::optional<LoadedProgram> first = gpu.LoadOn(options);
  REQUIRE(first->status.ok());
  const int loaded = gpu.driver.calls("ModuleLoadData");
  std::optional<LoadedProgram> second = gpu.LoadOn(options);
  REQUIRE(second->status.ok());
  CHECK(gpu.driver.calls("ModuleLoadData") == loaded);
  CHECK(gpu.Run(*gpu.NewTensors(*first), *first) < kFp32Error);
  CHECK(gpu.Run(*gpu.NewTensors(*second), *second) < kFp32Error);
  first.reset();
  CHECK(gpu.Run(*gpu.NewTensors(*second), *second) < kFp32Error);
  second.reset();
  CHECK(gpu.driver.calls("ModuleLoadData") - gpu.driver.calls("ModuleUnload") == before);
  // Then they are loaded anew, from what was compiled.
  const int compilations = gpu.driver.calls("CompileProgram");
  const LoadedProgram third = gpu.LoadOn(options);
  REQUIRE(third.status.ok());
  CHECK(gpu.driver.calls("ModuleLoadData") > loaded);
  CHECK(gpu.driver.calls("CompileProgram") == compilations);
  CHECK(gpu.Run(*gpu.NewTensors(third), third) < kFp32Error);
}

TEST_CASE("a module that does not load is told, and tried again") {
  RG_ON_EACH_GPU(gpu);
  const FakeOptions options = Shared(gpu.vendor);
  gpu.driver.fail("ModuleLoadData", 2, kLaunchFailed);
  CHECK_FALSE(gpu.LoadOn(options).status.ok());
  const LoadedProgram again = gpu.LoadOn(options);
  INFO(again.status);
  REQUIRE(again.status.ok());
  CHECK(gpu.Run(*gpu.NewTensors(again), again) < kFp32Error);
}

TEST_CASE("a matmul of a known size class is made without asking the library for algorithms") {
  const Vendor& vendor = RG_EACH_VENDOR();
  if (!vendor.cuda()) return;  // hipBLASLt's algorithms have no state
  const FakeOptions options = Shared(vendor);
  const auto load = [&](int64_t tokens) {
    const FakeRun gpu(vendor, {.model = Model(tokens)});
    gpu.driver.reset();
    const LoadedProgram loaded = gpu.LoadOn(options);
    INFO(tokens << " tokens: " << loaded.status);
    REQUIRE(loaded.status.ok());
    const int asked = gpu.driver.calls("cublasLtMatmulAlgoGetHeuristic");
    const int timed = gpu.driver.calls("EventElapsedTime");
    return std::pair(asked, timed);
  };
  const auto first = load(1000);  // times those of 1024
  CHECK(first.first > 0);
  CHECK(first.second > 0);
  CHECK(load(1009) == std::pair(0, 0));
  CHECK(load(970) == std::pair(0, 0));
  CHECK(load(700).first > 0);  // another class
}

TEST_CASE("choices that were given come before the state of one that was timed") {
  const Vendor& vendor = RG_EACH_VENDOR();
  if (!vendor.cuda()) return;
  const auto work = WorkDirectory::MakeIn("/tmp");
  REQUIRE(work.ok());
  FakeOptions options = Shared(vendor);
  options.cache_dir = work->path() + "/cache";
  const FakeRun gpu(vendor, {.model = Model(1000)}), other(vendor, {.model = Model(1009)});
  TuningOptions given;
  {
    const LoadedProgram timed = gpu.LoadOn(options);
    REQUIRE(timed.status.ok());
    given.given = *timed.device->choices();
  }
  for (auto& [key, choice] : given.given) {
    choice.state.clear();
    choice.chosen = 2 - choice.chosen / 2;  // another one than was the fastest, or the last
    REQUIRE(choice.candidates.size() == 3);
  }
  options.tuning = std::make_shared<Tuning>(given);
  options.shared_kernels = std::make_shared<SharedKernels<SharedCode>>();
  const LoadedProgram loaded = other.LoadOn(options);
  INFO(loaded.status);
  REQUIRE(loaded.status.ok());
  for (const auto& [key, choice] : *loaded.device->choices()) {
    const auto wanted = given.given.find(key);
    REQUIRE(wanted != given.given.end());
    CHECK(choice.chosen == wanted->second.chosen);
  }
  int products = 0;
  for (const CallInUse& used : loaded.program->CallsInUse()) {
    if (used.call->op != Op::matmul) continue;
    ++products;
    const std::string first = used.implementation.substr(0, used.implementation.find('\n'));
    bool as_given = false;
    for (const auto& [key, choice] : given.given) {
      as_given = as_given || absl::StrContains(first, absl::StrCat(choice.name(), ": "));
    }
    CHECK(as_given);
  }
  CHECK(products > 0);
}

}  // namespace
}  // namespace retrograd
