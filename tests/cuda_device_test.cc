// The cuda device on a driver that the test suite brings along: no GPU is needed.
#include "runtime/cuda_device.h"

#include <dlfcn.h>

#include "models/models.h"
#include "runtime/program.h"
#include "tests/catch.h"
#include "tests/fake_cuda/control.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_plan.h"

#if !defined(RETROGRAD_FAKE_CUDA)
TEST_CASE("a build without CUDA headers says so when a cuda device is asked for") {
  CHECK(retrograd::MakeCudaDevice({}).status().code() == absl::StatusCode::kUnavailable);
}
#else

namespace retrograd {
namespace {

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

TEST_CASE("a model's gradients through driver calls are the reference's, on one stream and many") {
  const Fake fake;
  const std::string model =
      GENERATE(as<std::string>{}, kMlp, "norm_stack:layers=2,rows=40,columns=24,dtype=fp32");
  const int streams = GENERATE(1, 3);
  INFO(model << " on " << streams << " streams");
  const BackwardGraph graph = Model(model);
  const std::vector<Values> values = RandomInputs(graph, 5);
  const std::unique_ptr<Device> device = MakeFake();
  auto program = Program::Load(CompiledFor(graph, streams), device.get());
  INFO(program.status());
  REQUIRE(program.ok());
  for (int address_set = 0; address_set < 3; ++address_set) {
    const Tensors tensors(device.get(), graph, values);
    for (int run = 0; run < 2; ++run) {
      const absl::Status ran = (*program)->Run(tensors.inputs, tensors.outputs);
      INFO(ran);
      REQUIRE(ran.ok());
      REQUIRE(device->Synchronize().ok());
      CHECK(tensors.Error(values) < 2e-5);
    }
  }
}

}  // namespace
}  // namespace retrograd

#endif
