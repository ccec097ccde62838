// Runs of a program on the devices of GPUs: gradients, the caller's streams, captures and
// addresses, and times. On drivers that the test suite brings along.
#include "tests/catch.h"
#include "tests/support/fake_gpu.h"

namespace retrograd {
namespace {

TEST_CASE("a model's gradients through driver calls are the reference's, on one stream and many") {
  const std::string model =
      GENERATE(as<std::string>{}, FakeRunOptions{}.model,
               "norm_stack:layers=2,rows=40,columns=24,dtype=fp32",
               "transformer:layers=1,d=16,tokens=24,seq=12,heads=4,kv_heads=2,dtype=fp32");
  const int streams = GENERATE(1, 3);
  const bool record = GENERATE(true, false);
  INFO(model << " on " << streams << " streams, recorded " << record);
  RG_ON_EACH_GPU(gpu, .model = model, .streams = streams, .record = record);
  gpu.driver.reset();  // of what loading has recorded to time it
  for (int address_set = 0; address_set < 2; ++address_set) {
    const auto tensors = gpu.NewTensors();
    for (int run = 0; run < 2; ++run) CHECK(gpu.Run(*tensors) < kFp32Error);
  }
  CHECK(gpu.driver.calls("LaunchKernel") > 0);
  CHECK(gpu.driver.calls("GraphLaunch") == (record ? 4 : 0));
}

TEST_CASE("a misaligned address is refused before anything is issued, after a good run too") {
  RG_ON_EACH_GPU(gpu);
  const auto tensors = gpu.NewTensors();
  std::vector<const void*> inputs = tensors->inputs;
  inputs.back() = static_cast<const char*>(inputs.back()) + 1;
  for (int attempt = 0; attempt < 2; ++attempt) {
    gpu.driver.reset();
    const absl::Status refused = gpu.loaded.program->Run(inputs, tensors->outputs);
    CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(refused.message()),
               ContainsSubstring(absl::StrCat("input ", inputs.size() - 1)));
    CHECK(gpu.driver.called(0) == nullptr);
    CHECK(gpu.Run(*tensors) < kFp32Error);
  }
}

TEST_CASE("addresses that were refused in part leave nothing behind for the next run") {
  RG_ON_EACH_GPU(gpu);
  const auto first = gpu.NewTensors(), second = gpu.NewTensors();
  CHECK(gpu.Run(*first) < kFp32Error);
  // All inputs of the other set, and then an output that is nowhere.
  std::vector<void*> outputs = second->outputs;
  size_t last = 0;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (gpu.graph.outputs()[o].value) last = o;
  }
  outputs[last] = nullptr;
  CHECK_FALSE(gpu.loaded.program->Run(second->inputs, outputs).ok());
  for (const void* input : second->inputs) {
    const int64_t nothing = 0;
    REQUIRE(gpu.loaded.device->CopyIn(const_cast<void*>(input), &nothing, sizeof nothing).ok());
  }
  CHECK(gpu.Run(*first) < kFp32Error);
}

TEST_CASE("inside a caller's capture a run issues its launches, which the caller's graph replays") {
  RG_ON_EACH_GPU(gpu, .streams = 3);
  const auto captured = gpu.NewTensors(), other = gpu.NewTensors();
  const bool runs_before = GENERATE(false, true);  // then the addresses are known to be bound
  if (runs_before) CHECK(gpu.Run(*captured) < kFp32Error);
  const int64_t recordings = gpu.stats().recordings;

  auto driver = LoadDriver(gpu.vendor);
  REQUIRE(driver.ok());
  const GpuDriver& d = **driver;
  const auto context = d.Open(0);
  REQUIRE(context.ok());
  auto current = std::make_unique<CurrentContext>(d, *context);
  REQUIRE(current->status().ok());
  GpuStream stream = nullptr;
  REQUIRE(d.StreamCreate(&stream, 0) == kGpuSuccess);
  REQUIRE(d.StreamBeginCapture(stream, kGpuCaptureThreadLocal) == kGpuSuccess);
  const absl::Status ran = gpu.loaded.program->Run(captured->inputs, captured->outputs, stream);
  INFO(ran);
  CHECK(ran.ok());
  GpuGraph recorded = nullptr;
  GpuGraphExec exec = nullptr;
  REQUIRE(d.StreamEndCapture(stream, &recorded) == kGpuSuccess);
  REQUIRE(d.GraphInstantiate(&exec, recorded, 0) == kGpuSuccess);
  CHECK(gpu.stats().recordings == recordings);

  // Its addresses hold whatever the program ran on in between.
  CHECK(gpu.Run(*other) < kFp32Error);
  REQUIRE(d.GraphLaunch(exec, stream) == kGpuSuccess);
  CHECK(captured->Error(gpu.values) < kFp32Error);
  // And the program's hold whenever the caller's graph ran.
  CHECK(gpu.Run(*other) < kFp32Error);
  d.GraphExecDestroy(exec);
  d.GraphDestroy(recorded);
  current.reset();
  // The program lets go of the stream before it ends.
  REQUIRE(gpu.loaded.device->UseStream(std::nullopt).ok());
}

TEST_CASE("a stream of another device is refused") {
  RG_ON_EACH_GPU(gpu);
  const auto tensors = gpu.NewTensors();
  gpu.driver.set("devices", 2);  // then the fake's streams belong to another
  int stream;
  const absl::Status refused = gpu.loaded.program->Run(tensors->inputs, tensors->outputs, &stream);
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("another device"));
  CHECK(gpu.Run(*tensors) < kFp32Error);
}

TEST_CASE("the device's own time of some work counts each repetition") {
  RG_ON_EACH_GPU(gpu);
  const auto tensors = gpu.NewTensors();
  Program& program = *gpu.loaded.program;
  const auto run = [&] { return program.Run(tensors->inputs, tensors->outputs); };
  const auto times = gpu.loaded.device->Time(run, 3, true);
  REQUIRE(times.ok());
  CHECK(times->size() == 3);
  const auto steps = program.TimeSteps(tensors->inputs, tensors->outputs, 2, false);
  REQUIRE(steps.ok());
  CHECK(steps->size() > 3);
  for (const StepTime& step : *steps) CHECK(step.microseconds.size() == 2);
}

TEST_CASE(
    "without CUPTI a run is traced by events, where the driver can in a recording of the trace's "
    "own") {
  const int streams = GENERATE(1, 3);
  const bool record = GENERATE(true, false);
  INFO(streams << " streams, recorded " << record);
  RG_ON_EACH_GPU(gpu, .streams = streams, .record = record);
  Program& program = *gpu.loaded.program;
  const auto tensors = gpu.NewTensors();
  CHECK(gpu.Run(*tensors) < kFp32Error);
  const bool in_a_recording = record && gpu.vendor.cuda();
  if (in_a_recording) {
    gpu.driver.fail("cuEventRecordWithFlags", 2, kLaunchFailed);
    CHECK(!program.Trace(tensors->inputs, tensors->outputs, 2).ok());
  }
  const auto trace = program.Trace(tensors->inputs, tensors->outputs, 2);
  INFO(trace.status());
  REQUIRE(trace.ok());
  CHECK(trace->source ==
        (in_a_recording ? "events between the steps of a recording" : "events between the steps"));
  if (gpu.vendor.cuda()) CHECK_THAT(trace->without, ContainsSubstring("/no/libcupti.so"));
  std::vector<int> times(gpu.compiled.plan.groups.size(), 0);
  for (const StepSpan& step : trace->steps) {
    CHECK(step.begin_us <= step.end_us);
    if (step.group != kNoGroup) ++times[Index(step.group)];
  }
  for (size_t g = 0; g < times.size(); ++g) {
    const bool joined = (AliasOf(gpu.compiled.plan.groups[g]) != nullptr);
    CHECK(times[g] == (joined ? 0 : 1));
  }
  const int64_t recordings = gpu.stats().recordings;
  CHECK(gpu.Run(*tensors) < kFp32Error);
  CHECK(gpu.stats().recordings == recordings);
}

}  // namespace
}  // namespace retrograd
