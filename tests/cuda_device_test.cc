// The cuda device on a driver that the test suite brings along: no GPU is needed.
#include "runtime/cuda_device.h"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "models/models.h"
#include "runtime/gpu_support_kernels.h"
#include "runtime/fallback_matmul.h"
#include "runtime/program.h"
#include "runtime/rtc.h"
#include "tests/catch.h"
#include "tests/fake_cuda/control.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_plan.h"

namespace retrograd {
namespace {

TEST_CASE("the device's own kernels and the fallback of matmuls compile for a GPU") {
  if (!CudaCompilerAvailable().ok()) {
    WARN("[SKIP] no NVRTC");
    return;
  }
  auto support = CompileCuda(kGpuSupportKernels, "sm_90");
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
  auto kernel = FallbackMatMul(call, Dialect::kCuda);
  REQUIRE(kernel.ok());
  auto fallback = CompileCuda(Prelude(Dialect::kCuda) + kernel->source, "sm_90");
  INFO(fallback.status());
  CHECK(fallback.ok());
}

}  // namespace
}  // namespace retrograd

#if !defined(RETROGRAD_FAKE_CUDA)
TEST_CASE("a build without CUDA headers says so when a cuda device is asked for") {
  CHECK(retrograd::MakeCudaDevice({}).status().code() == absl::StatusCode::kUnavailable);
}
#else

#include "runtime/cublas_matmul.h"
#include "runtime/cuda_driver.h"

namespace retrograd {
namespace {

// Failures that the fake driver is told to return, as CUresult numbers them.
constexpr int kLaunchFailed = 719, kCaptureUnsupported = 900, kUpdateFailure = 910;

// What the fake driver exports, see control.h.
struct Fake {
  void* library = dlopen(RETROGRAD_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  template <typename Function>
  Function* Get(const char* name) const {
    REQUIRE(library != nullptr);
    auto* function = reinterpret_cast<Function*>(dlsym(library, name));
    REQUIRE(function != nullptr);
    return function;
  }
  decltype(&fake_cuda_fail) fail = Get<decltype(fake_cuda_fail)>("fake_cuda_fail");
  decltype(&fake_cuda_calls) calls = Get<decltype(fake_cuda_calls)>("fake_cuda_calls");
  decltype(&fake_cuda_called) called = Get<decltype(fake_cuda_called)>("fake_cuda_called");
  decltype(&fake_cuda_set) set = Get<decltype(fake_cuda_set)>("fake_cuda_set");
  decltype(&fake_cuda_allocated) allocated =
      Get<decltype(fake_cuda_allocated)>("fake_cuda_allocated");
  decltype(&fake_cuda_reset) reset = Get<decltype(fake_cuda_reset)>("fake_cuda_reset");
  Fake() { reset(); }
  ~Fake() { reset(); }
};

CudaDeviceOptions FakeOptions() {
  CudaDeviceOptions options{.driver_library = RETROGRAD_FAKE_CUDA,
                            .cublas_library = RETROGRAD_FAKE_CUDA};
  options.compile.rtc.library = RETROGRAD_FAKE_CUDA;
  options.cache = false;
  options.attention.allow_cudnn = false;  // a real one would take the fake streams
  return options;
}

std::unique_ptr<Device> MakeFake() {
  auto device = MakeCudaDevice(FakeOptions());
  INFO(device.status());
  REQUIRE(device.ok());
  return *std::move(device);
}

BackwardGraph Model(absl::string_view name) {
  auto graph = BuildModel(name);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

CompiledPlan CompiledFor(const BackwardGraph& graph, int streams) {
  auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  auto planned = PlanFusion(graph, *spec);
  INFO(planned.status());
  REQUIRE(planned.ok());
  CompileOptions options{.dialect = Dialect::kCuda};
  options.schedule.streams = streams;
  auto compiled = Compile(planned->graph, planned->plan, options);
  INFO(compiled.status());
  REQUIRE(compiled.ok());
  return *std::move(compiled);
}

// Inputs and outputs of a graph in device memory.
struct Tensors {
  Device* device;
  const BackwardGraph& graph;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;

  Tensors(Device* device, const BackwardGraph& graph, const std::vector<Values>& values)
      : device(device), graph(graph) {
    const std::vector<NodeId> nodes = InputNodes(graph);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::vector<char> bytes =
          Pack(graph.type(nodes[i]), graph.node(nodes[i]).input->strides, values[i]);
      auto data = device->Allocate(static_cast<int64_t>(bytes.size()));
      REQUIRE(data.ok());
      REQUIRE(device->CopyIn(*data, bytes.data(), static_cast<int64_t>(bytes.size())).ok());
      inputs.push_back(*data);
    }
    for (const GraphOutput& o : graph.outputs()) {
      auto data = device->Allocate(o.value ? graph.type(*o.value).size_bytes() + 16 : 0);
      REQUIRE(data.ok());
      outputs.push_back(*data);
    }
  }
  ~Tensors() {
    for (const void* p : inputs) device->Free(const_cast<void*>(p));
    for (void* p : outputs) device->Free(p);
  }

  // The largest error of an output against the reference, as a part of its largest value.
  double Error(const std::vector<Values>& values) const {
    auto expected = Evaluate(graph, values);
    REQUIRE(expected.ok());
    double worst = 0;
    for (size_t o = 0; o < graph.outputs().size(); ++o) {
      const auto& value = graph.outputs()[o].value;
      if (!value) continue;
      std::vector<char> bytes(graph.type(*value).size_bytes() + 16);
      REQUIRE(device->CopyOut(bytes.data(), outputs[o], static_cast<int64_t>(bytes.size())).ok());
      const Values found = Unpack(graph.type(*value), graph.outputs()[o].strides, bytes);
      const Values& want = (*expected)[graph.value_index(*value)];
      double largest = 1e-30, error = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        largest = std::max(largest, std::abs(want[i]));
        const double difference = std::abs(found[i] - want[i]);
        error = difference <= error ? error : difference;  // keeps a NaN
      }
      worst = error / largest <= worst ? worst : error / largest;
    }
    return worst;
  }
};

constexpr char kMlp[] = "mlp:layers=2,tokens=24,in=8,hidden=20,out=12,dtype=fp32";

struct Loaded {
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program;
  absl::Status status;
};

Loaded Load(const CompiledPlan& compiled, const ProgramOptions& options = {},
            const CudaDeviceOptions& device_options = FakeOptions()) {
  Loaded loaded;
  auto device = MakeCudaDevice(device_options);
  loaded.status = device.status();
  if (!device.ok()) return loaded;
  loaded.device = *std::move(device);
  auto program = Program::Load(compiled, loaded.device.get(), options);
  loaded.status = program.status();
  if (program.ok()) loaded.program = *std::move(program);
  return loaded;
}

// Runs once and returns the error of the gradients.
double RunOn(const Loaded& loaded, const Tensors& tensors, const std::vector<Values>& values) {
  const absl::Status ran = loaded.program->Run(tensors.inputs, tensors.outputs);
  INFO(ran);
  REQUIRE(ran.ok());
  REQUIRE(loaded.device->Synchronize().ok());
  return tensors.Error(values);
}

TEST_CASE("a model's gradients through driver calls are the reference's, on one stream and many") {
  const Fake fake;
  const std::string model =
      GENERATE(as<std::string>{}, kMlp, "norm_stack:layers=2,rows=40,columns=24,dtype=fp32",
               "transformer:layers=1,d=16,tokens=24,seq=12,heads=4,kv_heads=2,dtype=fp32");
  const int streams = GENERATE(1, 3);
  const bool record = GENERATE(true, false);
  INFO(model << " on " << streams << " streams, recorded " << record);
  const BackwardGraph graph = Model(model);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(CompiledFor(graph, streams), {.record = record});
  INFO(loaded.status);
  REQUIRE(loaded.status.ok());
  for (int address_set = 0; address_set < 2; ++address_set) {
    const Tensors tensors(loaded.device.get(), graph, values);
    for (int run = 0; run < 2; ++run) CHECK(RunOn(loaded, tensors, values) < 2e-5);
  }
  CHECK(fake.calls("cuLaunchKernel") > 0);
  CHECK(fake.calls("cuGraphLaunch") == (record ? 4 : 0));
}

TEST_CASE("a run with known addresses is one launch; new ones cost a recording, at most four kept") {
  const Fake fake;
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(CompiledFor(graph, 2));
  INFO(loaded.status);
  REQUIRE(loaded.status.ok());
  std::vector<std::unique_ptr<Tensors>> sets;
  for (int i = 0; i < 6; ++i) {
    sets.push_back(std::make_unique<Tensors>(loaded.device.get(), graph, values));
    CHECK(RunOn(loaded, *sets.back(), values) < 2e-5);
    CHECK(loaded.program->stats().recordings == i + 1);
  }
  CHECK(fake.calls("cuGraphInstantiate") == 4);
  CHECK(fake.calls("cuGraphExecUpdate") == 2);
  // Sets 2 to 5 are known. The first run on another set writes the table, the second nothing.
  for (int i : {2, 5, 3, 4}) {
    CHECK(RunOn(loaded, *sets[i], values) < 2e-5);
    fake.reset();
    CHECK(RunOn(loaded, *sets[i], values) < 2e-5);
    CHECK(fake.calls("cuGraphLaunch") == 1);
    CHECK(fake.calls("cuLaunchKernel") == 0);
    CHECK(fake.calls("cuMemAlloc") == 0);
  }
  CHECK(loaded.program->stats().recordings == 6);
  CHECK(RunOn(loaded, *sets[0], values) < 2e-5);  // forgotten: recorded again
  CHECK(loaded.program->stats().recordings == 7);
  CHECK(loaded.program->stats().runs == 15);
}

TEST_CASE("a graph that cannot be updated is made anew") {
  const Fake fake;
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(CompiledFor(graph, 1));
  REQUIRE(loaded.status.ok());
  fake.fail("cuGraphExecUpdate", 1, kUpdateFailure);
  std::vector<std::unique_ptr<Tensors>> sets;
  for (int i = 0; i < 5; ++i) {
    sets.push_back(std::make_unique<Tensors>(loaded.device.get(), graph, values));
    CHECK(RunOn(loaded, *sets.back(), values) < 2e-5);
  }
  CHECK(fake.calls("cuGraphInstantiate") == 5);
  CHECK(fake.calls("cuGraphExecDestroy") == 1);
}

TEST_CASE("where a recording fails the run's work is issued piece by piece, and later runs record") {
  const Fake fake;
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(CompiledFor(graph, 2));
  REQUIRE(loaded.status.ok());
  const Tensors tensors(loaded.device.get(), graph, values);
  int failures = 0;
  for (const char* entry : {"cuStreamBeginCapture", "cublasLtMatmul", "cuStreamEndCapture",
                            "cuGraphInstantiate"}) {
    INFO(entry);
    fake.fail(entry, 1, kCaptureUnsupported);
    CHECK(RunOn(loaded, tensors, values) < 2e-5);
    CHECK(loaded.program->stats().failed_recordings == ++failures);
    CHECK(loaded.program->stats().replays == 0);
  }
  CHECK(RunOn(loaded, tensors, values) < 2e-5);
  CHECK(loaded.program->stats().replays == 1);
}

TEST_CASE("a misaligned address is refused before anything is issued") {
  const Fake fake;
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(CompiledFor(graph, 1));
  REQUIRE(loaded.status.ok());
  const Tensors tensors(loaded.device.get(), graph, values);
  std::vector<const void*> inputs = tensors.inputs;
  inputs[0] = static_cast<const char*>(inputs[0]) + 1;
  fake.reset();
  const absl::Status refused = loaded.program->Run(inputs, tensors.outputs);
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("input 0"));
  CHECK(fake.called(0) == nullptr);
  CHECK(RunOn(loaded, tensors, values) < 2e-5);
}

TEST_CASE("inside a caller's capture a run issues its launches, which the caller's graph replays") {
  const Fake fake;
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(CompiledFor(graph, 3));
  REQUIRE(loaded.status.ok());
  const Tensors captured(loaded.device.get(), graph, values);
  const Tensors other(loaded.device.get(), graph, values);

  auto driver = LoadCudaDriver(RETROGRAD_FAKE_CUDA);
  REQUIRE(driver.ok());
  const GpuDriver& d = **driver;
  const auto context = d.Open(0);
  REQUIRE(context.ok());
  auto current = std::make_unique<CurrentContext>(d, *context);
  REQUIRE(current->status().ok());
  GpuStream stream = nullptr;
  REQUIRE(d.StreamCreate(&stream, 0) == kGpuSuccess);
  REQUIRE(d.StreamBeginCapture(stream, kGpuCaptureThreadLocal) == kGpuSuccess);
  const absl::Status ran = loaded.program->Run(captured.inputs, captured.outputs, stream);
  INFO(ran);
  CHECK(ran.ok());
  GpuGraph recorded = nullptr;
  GpuGraphExec exec = nullptr;
  REQUIRE(d.StreamEndCapture(stream, &recorded) == kGpuSuccess);
  REQUIRE(d.GraphInstantiate(&exec, recorded, 0) == kGpuSuccess);
  CHECK(loaded.program->stats().recordings == 0);

  // Its addresses hold whatever the program ran on in between.
  CHECK(RunOn(loaded, other, values) < 2e-5);
  REQUIRE(d.GraphLaunch(exec, stream) == kGpuSuccess);
  CHECK(captured.Error(values) < 2e-5);
  CHECK(RunOn(loaded, other, values) < 2e-5);
  d.GraphExecDestroy(exec);
  d.GraphDestroy(recorded);
  current.reset();
  // The program lets go of the stream before it ends.
  REQUIRE(loaded.device->UseStream(std::nullopt).ok());
}

TEST_CASE("a stream of another device is refused") {
  const Fake fake;
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(CompiledFor(graph, 1));
  REQUIRE(loaded.status.ok());
  const Tensors tensors(loaded.device.get(), graph, values);
  fake.set("devices", 2);  // then the fake's streams belong to another
  int stream;
  const absl::Status refused = loaded.program->Run(tensors.inputs, tensors.outputs, &stream);
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("another device"));
  CHECK(RunOn(loaded, tensors, values) < 2e-5);
}

TEST_CASE("no driver, no device, an old device and too little memory are said in a sentence") {
  const Fake fake;
  CudaDeviceOptions nowhere = FakeOptions();
  nowhere.driver_library = "/nonexistent/libcuda.so.1";
  CHECK(MakeCudaDevice(nowhere).status().code() == absl::StatusCode::kUnavailable);
  CudaDeviceOptions second = FakeOptions();
  second.ordinal = 1;
  CHECK_THAT(std::string(MakeCudaDevice(second).status().message()), ContainsSubstring("cuda:1"));
  fake.set("devices", 0);
  CHECK(MakeCudaDevice(FakeOptions()).status().code() == absl::StatusCode::kUnavailable);
  fake.reset();
  fake.set("major", 7);
  CHECK_THAT(std::string(MakeCudaDevice(FakeOptions()).status().message()),
             ContainsSubstring("sm_70"));
  fake.reset();
  CudaDeviceOptions no_compiler = FakeOptions();
  no_compiler.compile.rtc.library = "/nonexistent/libnvrtc.so";
  CHECK(MakeCudaDevice(no_compiler).status().code() == absl::StatusCode::kUnavailable);

  const BackwardGraph graph = Model(kMlp);
  const CompiledPlan compiled = CompiledFor(graph, 1);
  fake.set("memory_mib", 0);
  CHECK(Load(compiled).status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(fake.allocated() == 0);
  fake.reset();
  CudaDeviceOptions no_cublas = FakeOptions();
  no_cublas.cublas_library = "/nonexistent/libcublasLt.so";
  auto device = MakeCudaDevice(no_cublas);
  REQUIRE(device.ok());
  CHECK(Program::Load(compiled, device->get()).status().code() == absl::StatusCode::kUnavailable);
  CHECK(Load(compiled).status.ok());
}

TEST_CASE("a kernel that does not compile is a status with the compiler's words") {
  const Fake fake;
  const CompiledPlan compiled = CompiledFor(Model(kMlp), 1);
  fake.fail("nvrtcCompileProgram", 2, 6);  // 1: the device's own kernels
  const Loaded loaded = Load(compiled);
  CHECK(loaded.status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(loaded.status.message()), ContainsSubstring("error: ordered"));
  CHECK(Load(compiled).status.ok());
}

TEST_CASE("whichever call fails, the caller gets a status and the next attempt works") {
  const Fake fake;
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const CompiledPlan compiled = CompiledFor(graph, 2);
  std::vector<std::string> entries;
  {
    const Loaded loaded = Load(compiled);
    REQUIRE(loaded.status.ok());
    const Tensors tensors(loaded.device.get(), graph, values);
    CHECK(RunOn(loaded, tensors, values) < 2e-5);
    for (int i = 0; fake.called(i) != nullptr; ++i) entries.emplace_back(fake.called(i));
  }
  CHECK(entries.size() > 30);
  for (const std::string& entry : entries) {
    for (int nth : {1, 3}) {
      INFO("call " << nth << " of " << entry << " fails");
      const bool cublas = entry.rfind("cublas", 0) == 0;
      const int failure = cublas ? static_cast<int>(CUBLAS_STATUS_EXECUTION_FAILED)
                                 : kLaunchFailed;
      const long long before = fake.allocated();
      fake.reset();
      fake.fail(entry.c_str(), nth, failure);
      {
        const Loaded loaded = Load(compiled);
        fake.fail("", 0, 0);
        if (loaded.status.ok()) {
          const Tensors tensors(loaded.device.get(), graph, values);
          fake.fail(entry.c_str(), nth, failure);
          // Nobody is told of some failures: of a candidate for a matmul, or of a release.
          (void)loaded.program->Run(tensors.inputs, tensors.outputs);
          fake.fail("", 0, 0);
          CHECK(RunOn(loaded, tensors, values) < 2e-5);
        } else {
          CHECK_THAT(std::string(loaded.status.message()), ContainsSubstring("ordered"));
        }
      }
      // Memory is lost only where it cannot be freed.
      if (entry != "cuMemFree" && entry != "cuCtxPushCurrent") CHECK(fake.allocated() == before);
    }
  }
}

TEST_CASE("a second load compiles nothing and times no matmul; damaged entries are made anew") {
  const Fake fake;
  const auto work = WorkDirectory::MakeIn("/tmp");
  REQUIRE(work.ok());
  CudaDeviceOptions options = FakeOptions();
  options.cache = true;
  options.cache_dir = work->path() + "/cache";
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const CompiledPlan compiled = CompiledFor(graph, 1);
  const auto works = [&] {
    fake.reset();
    const Loaded loaded = Load(compiled, {}, options);
    INFO(loaded.status);
    REQUIRE(loaded.status.ok());
    const int compilations = fake.calls("nvrtcCompileProgram");
    const int timed = fake.calls("cuEventElapsedTime");
    const Tensors tensors(loaded.device.get(), graph, values);
    CHECK(RunOn(loaded, tensors, values) < 2e-5);
    return std::pair(compilations, timed);
  };
  const auto cold = works();
  CHECK(cold.first > 1);
  CHECK(cold.second > 1);
  CHECK(works() == std::pair(0, 0));

  std::mt19937 random(7);
  std::vector<std::filesystem::path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(options.cache_dir)) {
    entries.push_back(entry.path());
  }
  CHECK(entries.size() > 2);
  for (const std::filesystem::path& entry : entries) {
    const auto bytes = std::filesystem::file_size(entry);
    if (random() % 2 == 0) {
      std::filesystem::resize_file(entry, random() % bytes);
      continue;
    }
    std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(random() % bytes);
    file.seekg(at);
    const char flipped = static_cast<char>(file.get() ^ 4);
    file.seekp(at);
    file.put(flipped);
  }
  CHECK(works() == cold);
  CHECK(works() == std::pair(0, 0));

  // Where nothing can be kept, or nothing of others be trusted, everything is made each time.
  std::filesystem::permissions(options.cache_dir, std::filesystem::perms::all);
  CHECK(works() == cold);
  options.cache_dir = "/proc/nothing/here";
  CHECK(works() == cold);
}

TEST_CASE("the device's own time of some work counts each repetition") {
  const Fake fake;
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(CompiledFor(graph, 1));
  REQUIRE(loaded.status.ok());
  const Tensors tensors(loaded.device.get(), graph, values);
  const auto run = [&] { return loaded.program->Run(tensors.inputs, tensors.outputs); };
  const auto times = loaded.device->Time(run, 3, true);
  REQUIRE(times.ok());
  CHECK(times->size() == 3);
  const auto steps = loaded.program->TimeSteps(tensors.inputs, tensors.outputs, 2, false);
  REQUIRE(steps.ok());
  CHECK(steps->size() > 3);
  for (const StepTime& step : *steps) CHECK(step.microseconds.size() == 2);
}

}  // namespace
}  // namespace retrograd

#endif
