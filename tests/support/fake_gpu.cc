#include "tests/support/fake_gpu.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "runtime/devices/cuda_device.h"
#include "runtime/devices/hip_device.h"
#include "runtime/gpu/cuda/cuda_driver.h"
#include "runtime/gpu/hip/hip_driver.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

BackwardGraph BuiltModel(absl::string_view name) {
  auto graph = BuildModel(name);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

CompiledPlan CompiledFor(const Vendor& vendor, const BackwardGraph& graph,
                         const FakeRunOptions& run) {
  auto spec = LoadDeviceSpec(vendor.spec);
  REQUIRE(spec.ok());
  auto planned = PlanFusion(graph, *spec);
  INFO(planned.status());
  REQUIRE(planned.ok());
  CompileOptions options{.dialect = vendor.dialect};
  options.schedule.streams = run.streams;
  if (run.early) options.early = {.gain_ps = 1, .longest_ps = INT64_MAX, .most_bytes = INT64_MAX};
  auto compiled = Compile(planned->graph, planned->plan, options);
  INFO(compiled.status());
  REQUIRE(compiled.ok());
  return *std::move(compiled);
}

}  // namespace

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
  return vendor.cuda() ? found->second.first : found->second.second;
}

FakeDriver::FakeDriver(const Vendor& vendor)
    : vendor_(vendor), library_(dlopen(vendor.library, RTLD_NOW | RTLD_LOCAL)) {
  reset = Get<decltype(fake_gpu_reset)>("fake_gpu_reset");
  fail_ = Get<decltype(fake_gpu_fail)>("fake_gpu_fail");
  calls_ = Get<decltype(fake_gpu_calls)>("fake_gpu_calls");
  called = Get<decltype(fake_gpu_called)>("fake_gpu_called");
  set = Get<decltype(fake_gpu_set)>("fake_gpu_set");
  allocated = Get<decltype(fake_gpu_allocated)>("fake_gpu_allocated");
  reset();
}

template <typename Function>
Function* FakeDriver::Get(const char* name) const {
  REQUIRE(library_ != nullptr);
  auto* function = reinterpret_cast<Function*>(dlsym(library_, name));
  REQUIRE(function != nullptr);
  return function;
}

void FakeDriver::fail(const std::string& entry, int nth, int result) const {
  fail_(EntryName(vendor_, entry).c_str(), nth, result);
}

int FakeDriver::calls(const std::string& entry) const {
  return calls_(EntryName(vendor_, entry).c_str());
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const FakeOptions& fake) {
  if (!fake.vendor.cuda()) {
    HipDeviceOptions options{
        .ordinal = fake.ordinal, .driver_library = fake.driver, .hipblaslt_library = fake.blas};
    options.compile.rtc.library = fake.rtc;
    options.cache = !fake.cache_dir.empty();
    options.cache_dir = fake.cache_dir;
    options.tuning = fake.tuning;
    options.shared_kernels = fake.shared_kernels;
    return MakeHipDevice(options);
  }
  CudaDeviceOptions options{.ordinal = fake.ordinal,
                            .driver_library = fake.driver,
                            .cublas_library = fake.blas,
                            .cupti_library = "/no/libcupti.so"};
  options.compile.rtc.library = fake.rtc;
  options.cache = !fake.cache_dir.empty();
  options.cache_dir = fake.cache_dir;
  options.tuning = fake.tuning;
  options.shared_kernels = fake.shared_kernels;
  options.attention.cudnn_library = "/no/libcudnn.so.9";  // a real one would take the fake streams
  options.convolution.allow_cudnn = false;
  return MakeCudaDevice(options);
}

absl::StatusOr<const GpuDriver*> LoadDriver(const Vendor& vendor) {
#if defined(RETROGRAD_FAKE_CUDA)
  if (vendor.cuda()) return LoadCudaDriver(vendor.library);
#endif
  return LoadHipDriver(vendor.library);
}

LoadedProgram Load(const FakeOptions& device_options, const CompiledPlan& compiled,
                   const ProgramOptions& options) {
  LoadedProgram loaded;
  auto device = MakeDevice(device_options);
  loaded.status = device.status();
  if (!device.ok()) return loaded;
  loaded.device = *std::move(device);
  auto program = Program::Load(compiled, loaded.device.get(), options);
  loaded.status = program.status();
  if (program.ok()) loaded.program = *std::move(program);
  return loaded;
}

DeviceTensors::DeviceTensors(Device* device, const BackwardGraph& graph,
                             const std::vector<Values>& values)
    : device_(device), graph_(graph) {
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

DeviceTensors::~DeviceTensors() {
  for (const void* p : inputs) device_->Free(const_cast<void*>(p));
  for (void* p : outputs) device_->Free(p);
}

double DeviceTensors::Error(const std::vector<Values>& values) const {
  auto expected = Evaluate(graph_, values);
  REQUIRE(expected.ok());
  double worst = 0;
  for (size_t o = 0; o < graph_.outputs().size(); ++o) {
    const auto& value = graph_.outputs()[o].value;
    if (!value) continue;
    std::vector<char> bytes(graph_.type(*value).size_bytes() + 16);
    REQUIRE(device_->CopyOut(bytes.data(), outputs[o], static_cast<int64_t>(bytes.size())).ok());
    const Values found = Unpack(graph_.type(*value), graph_.outputs()[o].strides, bytes);
    const Values& want = (*expected)[graph_.value_index(*value)];
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

FakeRun::FakeRun(const Vendor& vendor, const FakeRunOptions& options)
    : vendor(vendor),
      driver(vendor),
      graph(BuiltModel(options.model)),
      values(RandomInputs(graph, 5)),
      compiled(CompiledFor(vendor, graph, options)),
      loaded(Load(FakeOptions(vendor), compiled, {.record = options.record})) {
  INFO(vendor.device << ": " << loaded.status);
  REQUIRE(loaded.status.ok());
}

std::unique_ptr<DeviceTensors> FakeRun::NewTensors(const LoadedProgram& on) const {
  return std::make_unique<DeviceTensors>(on.device.get(), graph, values);
}

double FakeRun::Run(const DeviceTensors& tensors, const LoadedProgram& on) const {
  const absl::Status ran = on.program->Run(tensors.inputs, tensors.outputs);
  INFO(ran);
  REQUIRE(ran.ok());
  REQUIRE(on.device->Synchronize().ok());
  return tensors.Error(values);
}

}  // namespace retrograd
