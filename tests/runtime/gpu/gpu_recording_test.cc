// Recordings of a program's runs on the devices of GPUs: when one is made, updated, kept and
// replayed. On drivers that the test suite brings along.
#include "tests/catch.h"
#include "tests/support/fake_gpu.h"

namespace retrograd {
namespace {

// Nobody knows the addresses in what the driver tells of a library's kernels: no recording moves.
void Hide(const FakeRun& gpu) { gpu.driver.set("hides_addresses", 1); }

TEST_CASE(
    "a run with known addresses is one launch; new ones cost a recording, at most four kept") {
  RG_ON_EACH_GPU(gpu, .streams = 2);
  gpu.driver.reset();  // of what loading has recorded to time it
  Hide(gpu);
  std::vector<std::unique_ptr<DeviceTensors>> sets;
  for (int i = 0; i < 6; ++i) {
    sets.push_back(gpu.NewTensors());
    CHECK(gpu.Run(*sets.back()) < kFp32Error);
    CHECK(gpu.stats().recordings == i + 1);
  }
  CHECK(gpu.driver.calls("GraphInstantiate") == 4);
  CHECK(gpu.driver.calls("GraphExecUpdate") == 2);
  // Sets 2 to 5 are known. The first run on another set writes the table, the second nothing.
  for (int i : {2, 5, 3, 4}) {
    CHECK(gpu.Run(*sets[i]) < kFp32Error);
    gpu.driver.reset();
    Hide(gpu);
    CHECK(gpu.Run(*sets[i]) < kFp32Error);
    CHECK(gpu.driver.calls("GraphLaunch") == 1);
    CHECK(gpu.driver.calls("LaunchKernel") == 0);
    CHECK(gpu.driver.calls("MemAlloc") == 0);
  }
  CHECK(gpu.stats().recordings == 6);
  CHECK(gpu.Run(*sets[0]) < kFp32Error);  // forgotten: recorded again
  CHECK(gpu.stats().recordings == 7);
  CHECK(gpu.stats().runs == 15);
  CHECK(gpu.stats().replays == 15);
}

TEST_CASE("where new addresses are not recorded, those that come again are") {
  RG_ON_EACH_GPU(gpu, .streams = 2);
  const LoadedProgram loaded =
      Load(FakeOptions(gpu.vendor), gpu.compiled, {.record_new_addresses = false});
  REQUIRE(loaded.status.ok());
  const ProgramStats& stats = loaded.program->stats();
  std::vector<std::unique_ptr<DeviceTensors>> sets;
  for (int i = 0; i < 12; ++i) sets.push_back(gpu.NewTensors(loaded));
  const auto run = [&](int i) {
    gpu.driver.reset();
    Hide(gpu);
    CHECK(gpu.Run(*sets[i], loaded) < kFp32Error);
  };
  run(0);
  CHECK(stats.recordings == 0);
  CHECK(gpu.driver.calls("GraphLaunch") == 0);
  CHECK(gpu.driver.calls("StreamBeginCapture") == 0);
  run(0);  // the second time
  CHECK(stats.recordings == 1);
  run(0);
  CHECK(stats.recordings == 1);
  CHECK(gpu.driver.calls("LaunchKernel") == 0);
  // Others in between: their first time issues, their second records.
  for (int i = 1; i < 4; ++i) run(i);
  CHECK(stats.recordings == 1);
  run(0);
  CHECK(gpu.driver.calls("GraphLaunch") == 1);
  for (int i = 1; i < 4; ++i) run(i);
  CHECK(stats.recordings == 4);
  // What came longer ago than eight others is new.
  for (int i = 4; i < 12; ++i) run(i);
  CHECK(stats.recordings == 4);
  run(4);
  CHECK(stats.recordings == 5);
  for (int i = 5; i < 12; ++i) run(i);
  CHECK(stats.recordings == 12);
  CHECK(stats.failed_recordings == 0);
}

#if defined(RETROGRAD_FAKE_CUDA)
constexpr const char* kMovedModels[] = {
    "mlp:layers=2,tokens=24,in=16,hidden=20,out=12,dtype=fp32",
    "transformer:layers=1,tokens=12,d=16,heads=2,vocab=20,dtype=fp32",
};

TEST_CASE("a fifth set of addresses is recorded once for all that come behind it") {
  const char* const model = kMovedModels[GENERATE(range(size_t{0}, std::size(kMovedModels)))];
  INFO(model);
  const FakeRun gpu(kVendors[std::size(kVendors) - 1], {.model = model, .streams = 2});
  std::vector<std::unique_ptr<DeviceTensors>> sets;
  for (int i = 0; i < 5; ++i) {
    sets.push_back(gpu.NewTensors());
    CHECK(gpu.Run(*sets.back()) < kFp32Error);
  }
  CHECK(gpu.stats().recordings == 5);
  for (int i = 0; i < 20; ++i) {
    sets.push_back(gpu.NewTensors());
    gpu.driver.reset();
    CHECK(gpu.Run(*sets.back()) < kFp32Error);
    CHECK(gpu.driver.calls("GraphLaunch") == 1);
    CHECK(gpu.driver.calls("StreamBeginCapture") == 0);
    CHECK(gpu.driver.calls("GraphInstantiate") == 0);
    CHECK(gpu.driver.calls("MemAlloc") == 0);
    // Right behind itself nothing moves.
    gpu.driver.reset();
    CHECK(gpu.Run(*sets.back()) < kFp32Error);
    CHECK(gpu.driver.calls("GraphLaunch") == 1);
    CHECK(gpu.driver.calls("cuGraphExecKernelNodeSetParams_v2") == 0);
  }
  CHECK(gpu.stats().moves == 20);
  CHECK(gpu.stats().recordings == 5);
  CHECK(gpu.stats().failed_recordings == 0);
  // Those with recordings of their own have them still.
  for (int i : {0, 3}) {
    CHECK(gpu.Run(*sets[i]) < kFp32Error);
    CHECK(gpu.stats().moves == 20);
  }
}

TEST_CASE("where new addresses are not recorded, the second run's recording moves to all others") {
  const char* const model = kMovedModels[GENERATE(range(size_t{0}, std::size(kMovedModels)))];
  INFO(model);
  const FakeRun gpu(kVendors[std::size(kVendors) - 1], {.model = model, .streams = 2});
  const LoadedProgram loaded =
      Load(FakeOptions(gpu.vendor), gpu.compiled, {.record_new_addresses = false});
  REQUIRE(loaded.status.ok());
  const ProgramStats& stats = loaded.program->stats();
  std::vector<std::unique_ptr<DeviceTensors>> sets;
  for (int i = 0; i < 12; ++i) {
    sets.push_back(gpu.NewTensors(loaded));
    gpu.driver.reset();
    CHECK(gpu.Run(*sets.back(), loaded) < kFp32Error);
    CHECK(gpu.driver.calls("StreamBeginCapture") == (i == 1 ? 4 : 0));
    CHECK(gpu.driver.calls("GraphInstantiate") == (i == 1 ? 1 : 0));
    CHECK(gpu.driver.calls("GraphLaunch") == (i == 0 ? 0 : 1));
    if (i > 1) CHECK(gpu.driver.calls("Matmul") == 0);
  }
  for (int i : {0, 7, 3, 3, 11}) CHECK(gpu.Run(*sets[i], loaded) < kFp32Error);
  CHECK(stats.recordings == 1);
  CHECK(stats.moves == 10 + 4);
  CHECK(stats.failed_recordings == 0);
}

TEST_CASE("a recording that cannot move is given up, and runs go on as without it") {
  const FakeRun gpu(kVendors[std::size(kVendors) - 1], {.streams = 2});
  for (const char* entry :
       {"StreamBeginCapture", "Matmul", "StreamEndCapture", "GraphInstantiate",
        "cuGraphKernelNodeGetParams_v2", "cuFuncGetParamInfo", "cuGraphNodeGetType"}) {
    INFO(entry);
    const LoadedProgram loaded =
        Load(FakeOptions(gpu.vendor), gpu.compiled, {.record_new_addresses = false});
    REQUIRE(loaded.status.ok());
    const auto first = gpu.NewTensors(loaded), second = gpu.NewTensors(loaded);
    CHECK(gpu.Run(*first, loaded) < kFp32Error);
    gpu.driver.fail(entry, entry == std::string("GraphInstantiate") ? 1 : 2, kLaunchFailed);
    for (int i = 0; i < 3; ++i) {
      for (const auto* tensors : {second.get(), first.get()}) {
        CHECK(gpu.Run(*tensors, loaded) < kFp32Error);
      }
    }
    gpu.driver.fail_nothing();
    for (int i = 0; i < 3; ++i) CHECK(gpu.Run(*gpu.NewTensors(loaded), loaded) < kFp32Error);
    CHECK(!loaded.program->stats().unmovable.empty());
  }
}

TEST_CASE("a move that fails ends the recording, not the run") {
  const FakeRun gpu(kVendors[std::size(kVendors) - 1], {});
  const LoadedProgram loaded =
      Load(FakeOptions(gpu.vendor), gpu.compiled, {.record_new_addresses = false});
  REQUIRE(loaded.status.ok());
  std::vector<std::unique_ptr<DeviceTensors>> sets;
  for (int i = 0; i < 6; ++i) {
    sets.push_back(gpu.NewTensors(loaded));
    if (i == 3) gpu.driver.fail("cuGraphExecKernelNodeSetParams_v2", 2, kLaunchFailed);
    CHECK(gpu.Run(*sets.back(), loaded) < kFp32Error);
  }
  CHECK(loaded.program->stats().moves == 1);
  CHECK(loaded.program->stats().recordings == 1);
  CHECK(gpu.Run(*sets.back(), loaded) < kFp32Error);  // the second time
  CHECK(loaded.program->stats().recordings == 2);
}
#endif

TEST_CASE("a run with the last one's addresses asks whether the caller records, and launches") {
  RG_ON_EACH_GPU(gpu, .streams = 2);
  const auto tensors = gpu.NewTensors();
  CHECK(gpu.Run(*tensors) < kFp32Error);
  gpu.driver.reset();
  REQUIRE(gpu.loaded.program->Run(tensors->inputs, tensors->outputs).ok());
  CHECK(gpu.driver.calls("StreamIsCapturing") == 1);
  CHECK(gpu.driver.calls("GraphLaunch") == 1);
  // What else is called makes the context current and lets it go, twice.
  int calls = 0;
  for (int i = 0; gpu.driver.called(i) != nullptr; ++i) {
    const std::string name = gpu.driver.called(i);
    if (name.find(' ') == std::string::npos) calls += gpu.driver.calls(name);
  }
  CHECK(calls == (gpu.vendor.cuda() ? 2 + 2 * 2 : 2 + 2 * 3));
  CHECK(gpu.stats().last_run_ns > 0);
}

#if defined(RETROGRAD_FAKE_CUDA)
TEST_CASE("a recording launches early what the program says, and nothing else does") {
  const int streams = GENERATE(1, 3);
  const FakeRun gpu(kVendors[std::size(kVendors) - 1],
                    {.model = "norm_stack:layers=2,rows=2000,columns=24,dtype=fp32",
                     .streams = streams,
                     .early = true});
  REQUIRE(gpu.vendor.cuda());
  const auto commands = BuildCommands(gpu.compiled, /*order_seed=*/0);
  REQUIRE(commands.ok());
  int early = 0;
  for (const Command& command : commands->commands) early += command.early ? 1 : 0;
  REQUIRE(early > 0);
  const auto tensors = gpu.NewTensors();
  gpu.driver.reset();
  CHECK(gpu.Run(*tensors) < kFp32Error);
  CHECK(gpu.stats().failed_recordings == 0);
  CHECK(gpu.driver.calls("cuLaunchKernelEx") == early);
  gpu.driver.reset();
  CHECK(gpu.Run(*tensors) < kFp32Error);  // a replay
  CHECK(gpu.driver.calls("cuLaunchKernelEx") == 0);
  // Traces have marks between the launches; steps that are timed stand alone.
  CHECK(gpu.loaded.program->Trace(tensors->inputs, tensors->outputs, 1).ok());
  CHECK(gpu.loaded.program->TimeSteps(tensors->inputs, tensors->outputs, 1, false).ok());

  SECTION("without recordings") {
    const LoadedProgram on = Load(FakeOptions(gpu.vendor), gpu.compiled, {.record = false});
    const auto there = gpu.NewTensors(on);
    gpu.driver.reset();
    CHECK(gpu.Run(*there, on) < kFp32Error);
    CHECK(gpu.driver.calls("cuLaunchKernelEx") == 0);
  }
  SECTION("on a device before sm_90") {
    gpu.driver.set("major", 8);
    const LoadedProgram on = gpu.LoadOn(FakeOptions(gpu.vendor));
    const auto there = gpu.NewTensors(on);
    CHECK(gpu.Run(*there, on) < kFp32Error);
    CHECK(gpu.driver.calls("cuLaunchKernelEx") == 0);
    CHECK(on.program->stats().replays > 0);
  }
}

TEST_CASE("fills that a library records become kernels, and each replay still fills") {
  const FakeRun gpu(kVendors[std::size(kVendors) - 1], {});
  const auto tensors = gpu.NewTensors();
  CHECK(gpu.Run(*tensors) < kFp32Error);
  gpu.driver.reset();
  CHECK(gpu.Run(*tensors) < kFp32Error);
  CHECK(gpu.driver.calls("GraphLaunch") == 1);
  CHECK(gpu.driver.calls("a fill in a launched graph") == 0);
  CHECK(gpu.driver.calls("rg_fill in a launched graph") > 0);
}
#endif

TEST_CASE("a graph that cannot be updated is made anew") {
  RG_ON_EACH_GPU(gpu);
  gpu.driver.reset();
  Hide(gpu);
  gpu.driver.fail("GraphExecUpdate", 1, kUpdateFailure);
  std::vector<std::unique_ptr<DeviceTensors>> sets;
  for (int i = 0; i < 5; ++i) {
    sets.push_back(gpu.NewTensors());
    CHECK(gpu.Run(*sets.back()) < kFp32Error);
  }
  CHECK(gpu.driver.calls("GraphInstantiate") == 5);
  CHECK(gpu.driver.calls("GraphExecDestroy") == 1);
}

TEST_CASE(
    "where a recording fails the run's work is issued piece by piece, and later runs record") {
  RG_ON_EACH_GPU(gpu, .streams = 2);
  const auto tensors = gpu.NewTensors();
  int failures = 0;
  for (const char* entry :
       {"StreamBeginCapture", "LaunchKernel", "Matmul", "StreamEndCapture", "GraphInstantiate"}) {
    INFO(entry);
    gpu.driver.fail(entry, 1, kCaptureUnsupported);
    CHECK(gpu.Run(*tensors) < kFp32Error);
    CHECK(gpu.stats().failed_recordings == ++failures);
    CHECK(gpu.stats().replays == 0);
  }
  CHECK(gpu.Run(*tensors) < kFp32Error);
  CHECK(gpu.stats().replays == 1);
}

TEST_CASE("a failed recording leaves those of other addresses as they were") {
  RG_ON_EACH_GPU(gpu);
  Hide(gpu);
  std::vector<std::unique_ptr<DeviceTensors>> sets;
  for (int i = 0; i < 5; ++i) {
    sets.push_back(gpu.NewTensors());
    CHECK(gpu.Run(*sets.back()) < kFp32Error);
  }
  // The sixth set's recording takes the place of the second's, and then fails.
  sets.push_back(gpu.NewTensors());
  gpu.driver.fail("StreamEndCapture", 1, kCaptureUnsupported);
  CHECK(gpu.Run(*sets[5]) < kFp32Error);
  CHECK(gpu.stats().failed_recordings == 1);
  for (const auto& set : sets) CHECK(gpu.Run(*set) < kFp32Error);
  CHECK(gpu.stats().failed_recordings == 1);
}

}  // namespace
}  // namespace retrograd
