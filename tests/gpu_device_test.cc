// The devices of GPUs on drivers that the test suite brings along: no GPU is needed.
#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "models/models.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "runtime/fallback_matmul.h"
#include "runtime/gpu_driver.h"
#include "runtime/gpu_support_kernels.h"
#include "runtime/hip_device.h"
#include "runtime/hip_driver.h"
#include "runtime/program.h"
#include "runtime/rtc.h"
#include "tests/catch.h"
#include "tests/fake_gpu/control.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_plan.h"

namespace retrograd {
namespace {

TEST_CASE("the device's own kernels and the fallback of matmuls compile for a GPU") {
  const Dialect dialect = GENERATE(Dialect::kCuda, Dialect::kHip);
  const char* const arch = dialect == Dialect::kCuda ? "sm_90" : "gfx90a";
  if (const auto compiler = CompilerName(dialect); !compiler.ok()) {
    WARN("[SKIP] " << compiler.status());
    return;
  }
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
  auto fallback = CompileFor(dialect, Prelude(dialect) + kernel->source, arch);
  INFO(fallback.status());
  CHECK(fallback.ok());
}

#if !defined(RETROGRAD_FAKE_CUDA)
TEST_CASE("a build without CUDA headers says so when a cuda device is asked for") {
  CHECK(MakeCudaDevice({}).status().code() == absl::StatusCode::kUnavailable);
}
#endif

// Failures that the fake drivers are told to return, as CUresult and hipError_t number them.
constexpr int kLaunchFailed = 719, kCaptureUnsupported = 900, kUpdateFailure = 910;
constexpr int kBlasExecutionFailed = 6;  // HIP's internal error, and none of cuBLAS that means more

struct Vendor {
  const char* device;   // its name
  const char* library;  // the fake
  const char* spec;     // to plan for
  Dialect dialect;
};
constexpr Vendor kVendors[] = {{"hip", RETROGRAD_FAKE_HIP, "mi250x", Dialect::kHip},
#if defined(RETROGRAD_FAKE_CUDA)
                               {"cuda", RETROGRAD_FAKE_CUDA, "h200", Dialect::kCuda}
#endif
};
#define RG_EACH_VENDOR() kVendors[GENERATE(range(size_t{0}, std::size(kVendors)))]

bool IsCuda(const Vendor& vendor) { return vendor.dialect == Dialect::kCuda; }

// The vendor's name for an entry point, by its name in the table of both.
std::string EntryName(const Vendor& vendor, const std::string& entry) {
  static const auto& names = *new std::map<std::string, std::pair<std::string, std::string>>{
#define RG_NAMES(field, cuda, hip, ...) {#field, {#cuda, #hip}},
      RG_GPU_ENTRY_POINTS(RG_NAMES)
#undef RG_NAMES
      {"GraphExecUpdate", {"cuGraphExecUpdate_v2", "hipGraphExecUpdate"}},
      {"MakeCurrent", {"cuCtxPushCurrent_v2", "hipSetDevice"}},
      {"Matmul", {"cublasLtMatmul", "hipblasLtMatmul"}},
      {"CompileProgram", {"nvrtcCompileProgram", "hiprtcCompileProgram"}},
  };
  const auto found = names.find(entry);
  if (found == names.end()) return entry;
  return IsCuda(vendor) ? found->second.first : found->second.second;
}

// What the fake drivers export, see control.h.
struct Fake {
  explicit Fake(const Vendor& vendor)
      : vendor(vendor), library(dlopen(vendor.library, RTLD_NOW | RTLD_LOCAL)) {
    reset = Get<decltype(fake_gpu_reset)>("fake_gpu_reset");
    fail_ = Get<decltype(fake_gpu_fail)>("fake_gpu_fail");
    calls_ = Get<decltype(fake_gpu_calls)>("fake_gpu_calls");
    called = Get<decltype(fake_gpu_called)>("fake_gpu_called");
    set = Get<decltype(fake_gpu_set)>("fake_gpu_set");
    allocated = Get<decltype(fake_gpu_allocated)>("fake_gpu_allocated");
    reset();
  }
  ~Fake() { reset(); }
  template <typename Function>
  Function* Get(const char* name) const {
    REQUIRE(library != nullptr);
    auto* function = reinterpret_cast<Function*>(dlsym(library, name));
    REQUIRE(function != nullptr);
    return function;
  }
  void fail(const std::string& entry, int nth, int result) const {
    fail_(EntryName(vendor, entry).c_str(), nth, result);
  }
  int calls(const std::string& entry) const { return calls_(EntryName(vendor, entry).c_str()); }

  const Vendor& vendor;
  void* library;
  decltype(&fake_gpu_reset) reset;
  decltype(&fake_gpu_called) called;
  decltype(&fake_gpu_set) set;
  decltype(&fake_gpu_allocated) allocated;

 private:
  decltype(&fake_gpu_fail) fail_;
  decltype(&fake_gpu_calls) calls_;
};

// What the tests choose of either device's options.
struct FakeOptions {
  explicit FakeOptions(const Vendor& vendor)
      : vendor(vendor), driver(vendor.library), blas(vendor.library), rtc(vendor.library) {}
  const Vendor& vendor;
  int ordinal = 0;
  std::string driver, blas, rtc;
  std::string cache_dir;  // empty: no cache
  int64_t cache_bytes = int64_t{512} << 20;
};

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const FakeOptions& fake) {
  if (!IsCuda(fake.vendor)) {
    HipDeviceOptions options{
        .ordinal = fake.ordinal, .driver_library = fake.driver, .hipblaslt_library = fake.blas};
    options.compile.rtc.library = fake.rtc;
    options.cache = !fake.cache_dir.empty();
    options.cache_dir = fake.cache_dir;
    options.cache_bytes = fake.cache_bytes;
    return MakeHipDevice(options);
  }
  CudaDeviceOptions options{
      .ordinal = fake.ordinal, .driver_library = fake.driver, .cublas_library = fake.blas,
      .cupti_library = "/no/libcupti.so"};
  options.compile.rtc.library = fake.rtc;
  options.cache = !fake.cache_dir.empty();
  options.cache_dir = fake.cache_dir;
  options.cache_bytes = fake.cache_bytes;
  options.attention.allow_cudnn = false;  // a real one would take the fake streams
  return MakeCudaDevice(options);
}

absl::StatusOr<const GpuDriver*> LoadDriver(const Vendor& vendor) {
#if defined(RETROGRAD_FAKE_CUDA)
  if (IsCuda(vendor)) return LoadCudaDriver(vendor.library);
#endif
  return LoadHipDriver(vendor.library);
}

BackwardGraph Model(absl::string_view name) {
  auto graph = BuildModel(name);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

CompiledPlan CompiledFor(const Vendor& vendor, const BackwardGraph& graph, int streams) {
  auto spec = LoadDeviceSpec(vendor.spec);
  REQUIRE(spec.ok());
  auto planned = PlanFusion(graph, *spec);
  INFO(planned.status());
  REQUIRE(planned.ok());
  CompileOptions options{.dialect = vendor.dialect};
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

Loaded Load(const FakeOptions& device_options, const CompiledPlan& compiled,
            const ProgramOptions& options = {}) {
  Loaded loaded;
  auto device = MakeDevice(device_options);
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
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const std::string model =
      GENERATE(as<std::string>{}, kMlp, "norm_stack:layers=2,rows=40,columns=24,dtype=fp32",
               "transformer:layers=1,d=16,tokens=24,seq=12,heads=4,kv_heads=2,dtype=fp32");
  const int streams = GENERATE(1, 3);
  const bool record = GENERATE(true, false);
  INFO(model << " on " << streams << " streams, recorded " << record);
  const BackwardGraph graph = Model(model);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded =
      Load(FakeOptions(vendor), CompiledFor(vendor, graph, streams), {.record = record});
  INFO(loaded.status);
  REQUIRE(loaded.status.ok());
  for (int address_set = 0; address_set < 2; ++address_set) {
    const Tensors tensors(loaded.device.get(), graph, values);
    for (int run = 0; run < 2; ++run) CHECK(RunOn(loaded, tensors, values) < 2e-5);
  }
  CHECK(fake.calls("LaunchKernel") > 0);
  CHECK(fake.calls("GraphLaunch") == (record ? 4 : 0));
}

TEST_CASE("a run with known addresses is one launch; new ones cost a recording, at most four kept") {
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(FakeOptions(vendor), CompiledFor(vendor, graph, 2));
  INFO(loaded.status);
  REQUIRE(loaded.status.ok());
  std::vector<std::unique_ptr<Tensors>> sets;
  for (int i = 0; i < 6; ++i) {
    sets.push_back(std::make_unique<Tensors>(loaded.device.get(), graph, values));
    CHECK(RunOn(loaded, *sets.back(), values) < 2e-5);
    CHECK(loaded.program->stats().recordings == i + 1);
  }
  CHECK(fake.calls("GraphInstantiate") == 4);
  CHECK(fake.calls("GraphExecUpdate") == 2);
  // Sets 2 to 5 are known. The first run on another set writes the table, the second nothing.
  for (int i : {2, 5, 3, 4}) {
    CHECK(RunOn(loaded, *sets[i], values) < 2e-5);
    fake.reset();
    CHECK(RunOn(loaded, *sets[i], values) < 2e-5);
    CHECK(fake.calls("GraphLaunch") == 1);
    CHECK(fake.calls("LaunchKernel") == 0);
    CHECK(fake.calls("MemAlloc") == 0);
  }
  CHECK(loaded.program->stats().recordings == 6);
  CHECK(RunOn(loaded, *sets[0], values) < 2e-5);  // forgotten: recorded again
  CHECK(loaded.program->stats().recordings == 7);
  CHECK(loaded.program->stats().runs == 15);
}

#if defined(RETROGRAD_FAKE_CUDA)
TEST_CASE("fills that a library records become kernels, and each replay still fills") {
  const Vendor& vendor = kVendors[std::size(kVendors) - 1];
  const Fake fake(vendor);
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(FakeOptions(vendor), CompiledFor(vendor, graph, 1));
  REQUIRE(loaded.status.ok());
  const Tensors tensors(loaded.device.get(), graph, values);
  CHECK(RunOn(loaded, tensors, values) < 2e-5);
  fake.reset();
  CHECK(RunOn(loaded, tensors, values) < 2e-5);
  CHECK(fake.calls("GraphLaunch") == 1);
  CHECK(fake.calls("a fill in a launched graph") == 0);
  CHECK(fake.calls("rg_fill in a launched graph") > 0);
}
#endif

TEST_CASE("without CUPTI a run is traced by events, where the driver can in a recording of the trace's own") {
  const Vendor& vendor = RG_EACH_VENDOR();
  const int streams = GENERATE(1, 3);
  const bool record = GENERATE(true, false);
  INFO(vendor.device << ", " << streams << " streams, recorded " << record);
  const Fake fake(vendor);
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const CompiledPlan compiled = CompiledFor(vendor, graph, streams);
  const Loaded loaded = Load(FakeOptions(vendor), compiled, {.record = record});
  REQUIRE(loaded.status.ok());
  const Tensors tensors(loaded.device.get(), graph, values);
  CHECK(RunOn(loaded, tensors, values) < 2e-5);
  if (record && IsCuda(vendor)) {
    fake.fail("cuEventRecordWithFlags", 2, kLaunchFailed);
    CHECK(!loaded.program->Trace(tensors.inputs, tensors.outputs, 2).ok());
  }
  const auto trace = loaded.program->Trace(tensors.inputs, tensors.outputs, 2);
  INFO(trace.status());
  REQUIRE(trace.ok());
  CHECK(trace->source == (record && IsCuda(vendor) ? "events between the steps of a recording"
                                                   : "events between the steps"));
  if (IsCuda(vendor)) CHECK_THAT(trace->without, ContainsSubstring("/no/libcupti.so"));
  std::vector<int> times(compiled.plan.groups.size(), 0);
  for (const StepSpan& step : trace->steps) {
    CHECK(step.begin_us <= step.end_us);
    if (step.group != kNoGroup) ++times[Index(step.group)];
  }
  for (size_t g = 0; g < times.size(); ++g) {
    const bool joined = std::holds_alternative<PlacedJoin>(compiled.plan.groups[g].body);
    CHECK(times[g] == (joined ? 0 : 1));
  }
  const int64_t recordings = loaded.program->stats().recordings;
  CHECK(RunOn(loaded, tensors, values) < 2e-5);
  CHECK(loaded.program->stats().recordings == recordings);
}

TEST_CASE("a graph that cannot be updated is made anew") {
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(FakeOptions(vendor), CompiledFor(vendor, graph, 1));
  REQUIRE(loaded.status.ok());
  fake.fail("GraphExecUpdate", 1, kUpdateFailure);
  std::vector<std::unique_ptr<Tensors>> sets;
  for (int i = 0; i < 5; ++i) {
    sets.push_back(std::make_unique<Tensors>(loaded.device.get(), graph, values));
    CHECK(RunOn(loaded, *sets.back(), values) < 2e-5);
  }
  CHECK(fake.calls("GraphInstantiate") == 5);
  CHECK(fake.calls("GraphExecDestroy") == 1);
}

TEST_CASE("where a recording fails the run's work is issued piece by piece, and later runs record") {
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(FakeOptions(vendor), CompiledFor(vendor, graph, 2));
  REQUIRE(loaded.status.ok());
  const Tensors tensors(loaded.device.get(), graph, values);
  int failures = 0;
  for (const char* entry : {"StreamBeginCapture", "LaunchKernel", "Matmul", "StreamEndCapture",
                            "GraphInstantiate"}) {
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
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(FakeOptions(vendor), CompiledFor(vendor, graph, 1));
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
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(FakeOptions(vendor), CompiledFor(vendor, graph, 3));
  REQUIRE(loaded.status.ok());
  const Tensors captured(loaded.device.get(), graph, values);
  const Tensors other(loaded.device.get(), graph, values);

  auto driver = LoadDriver(vendor);
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
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(FakeOptions(vendor), CompiledFor(vendor, graph, 1));
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
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  FakeOptions nowhere(vendor);
  nowhere.driver = "/nonexistent/libcuda.so.1";
  CHECK(MakeDevice(nowhere).status().code() == absl::StatusCode::kUnavailable);
  FakeOptions second(vendor);
  second.ordinal = 1;
  CHECK_THAT(std::string(MakeDevice(second).status().message()),
             ContainsSubstring(absl::StrCat(vendor.device, ":1")));
  fake.set("devices", 0);
  CHECK(MakeDevice(FakeOptions(vendor)).status().code() == absl::StatusCode::kUnavailable);
  fake.reset();
  fake.set("major", 7);
  fake.set("gfx", 0x1100);  // whose wavefronts have 32 threads
  CHECK_THAT(std::string(MakeDevice(FakeOptions(vendor)).status().message()),
             ContainsSubstring(IsCuda(vendor) ? "sm_70" : "gfx1100"));
  fake.reset();
  FakeOptions no_compiler(vendor);
  no_compiler.rtc = "/nonexistent/libnvrtc.so";
  CHECK(MakeDevice(no_compiler).status().code() == absl::StatusCode::kUnavailable);

  const BackwardGraph graph = Model(kMlp);
  const CompiledPlan compiled = CompiledFor(vendor, graph, 1);
  fake.set("memory_mib", 0);
  CHECK(Load(FakeOptions(vendor), compiled).status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(fake.allocated() == 0);
  fake.reset();
  FakeOptions no_blas(vendor);
  no_blas.blas = "/nonexistent/libcublasLt.so";
  auto device = MakeDevice(no_blas);
  REQUIRE(device.ok());
  const absl::Status without = Program::Load(compiled, device->get()).status();
  INFO(without);  // AMD's matmuls are then kernels of ours
  CHECK(without.code() == (IsCuda(vendor) ? absl::StatusCode::kUnavailable : absl::StatusCode::kOk));
  CHECK(Load(FakeOptions(vendor), compiled).status.ok());
}

TEST_CASE("memory that runs out at any moment of loading is a status that says so, and none is lost") {
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const CompiledPlan compiled = CompiledFor(vendor, Model(kMlp), 1);
  FakeOptions options(vendor);
  const auto work = WorkDirectory::MakeIn("/tmp");
  REQUIRE(work.ok());
  options.cache_dir = work->path() + "/cache";
  REQUIRE(Load(options, compiled).status.ok());
  const int allocations = fake.calls("MemAlloc");
  REQUIRE(allocations > 2);
  int refused = 0;
  for (int nth = 1; nth <= allocations; ++nth) {
    const long long before = fake.allocated();
    fake.fail("MemAlloc", nth, kGpuOutOfMemory);
    const absl::Status status = Load(options, compiled).status;
    INFO("allocation " << nth << ": " << status);
    CHECK((status.ok() || absl::IsResourceExhausted(status)));
    refused += status.ok() ? 0 : 1;
    CHECK(fake.allocated() == before);
  }
  CHECK(refused > 0);
  fake.fail("", 0, 0);
  CHECK(Load(options, compiled).status.ok());
}

TEST_CASE("an installed HIP runtime has every function that is asked for, with or without a GPU") {
  const auto driver = LoadHipDriver("");
  INFO(driver.status());
  if (!driver.ok()) {
    CHECK(absl::IsUnavailable(driver.status()));
    CHECK_THAT(std::string(driver.status().message()),
               ContainsSubstring("no HIP runtime found") || ContainsSubstring("no AMD GPU"));
  }
}

TEST_CASE("a kernel that does not compile is a status with the compiler's words") {
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const CompiledPlan compiled = CompiledFor(vendor, Model(kMlp), 1);
  fake.fail("CompileProgram", 2, 6);  // 1: the device's own kernels
  const Loaded loaded = Load(FakeOptions(vendor), compiled);
  CHECK(loaded.status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(loaded.status.message()), ContainsSubstring("error: ordered"));
  CHECK(Load(FakeOptions(vendor), compiled).status.ok());
}

TEST_CASE("whichever call fails, the caller gets a status and the next attempt works") {
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const CompiledPlan compiled = CompiledFor(vendor, graph, 2);
  std::vector<std::string> entries;
  {
    const Loaded loaded = Load(FakeOptions(vendor), compiled);
    REQUIRE(loaded.status.ok());
    const Tensors tensors(loaded.device.get(), graph, values);
    CHECK(RunOn(loaded, tensors, values) < 2e-5);
    for (int i = 0; fake.called(i) != nullptr; ++i) entries.emplace_back(fake.called(i));
  }
  CHECK(entries.size() > 30);
  for (const std::string& entry : entries) {
    for (int nth : {1, 3}) {
      INFO("call " << nth << " of " << entry << " fails");
      const bool blas = entry.find("blasLt") != std::string::npos;
      const int failure = blas ? kBlasExecutionFailed : kLaunchFailed;
      const long long before = fake.allocated();
      fake.reset();
      fake.fail(entry.c_str(), nth, failure);
      {
        const Loaded loaded = Load(FakeOptions(vendor), compiled);
        fake.fail("", 0, 0);
        if (loaded.status.ok()) {
          const Tensors tensors(loaded.device.get(), graph, values);
          fake.fail(entry.c_str(), nth, failure);
          // Nobody is told of some failures: of a candidate for a matmul, or of a release.
          (void)loaded.program->Run(tensors.inputs, tensors.outputs);
          fake.fail("", 0, 0);
          CHECK(RunOn(loaded, tensors, values) < 2e-5);
        } else {
          // hipBLASLt has no words for its statuses.
          CHECK_THAT(std::string(loaded.status.message()),
                     ContainsSubstring("ordered") || ContainsSubstring("status 6"));
        }
      }
      // Memory is lost only where it cannot be freed.
      const bool loses = entry == EntryName(vendor, "MemFree") ||
                         entry == EntryName(vendor, "MakeCurrent");
      if (!loses) CHECK(fake.allocated() == before);
    }
  }
}

TEST_CASE("a second load compiles nothing and times no matmul; damaged entries are made anew") {
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const auto work = WorkDirectory::MakeIn("/tmp");
  REQUIRE(work.ok());
  FakeOptions options(vendor);
  options.cache_dir = work->path() + "/cache";
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const CompiledPlan compiled = CompiledFor(vendor, graph, 1);
  const auto works = [&] {
    fake.reset();
    const Loaded loaded = Load(options, compiled);
    INFO(loaded.status);
    REQUIRE(loaded.status.ok());
    const int compilations = fake.calls("CompileProgram");
    const int timed = fake.calls("EventElapsedTime");
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
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const Fake fake(vendor);
  const BackwardGraph graph = Model(kMlp);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const Loaded loaded = Load(FakeOptions(vendor), CompiledFor(vendor, graph, 1));
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
