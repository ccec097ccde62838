// A plan is made again for what the compiler says of its kernels: on a device that compiles
// nothing, and reports what the test has it report.
#include "tools/execute/load_plan.h"

#include <cstdlib>
#include <functional>
#include <set>

#include "tests/catch.h"

namespace retrograd {
namespace {

// What the device says of a kernel, by the number of the load (from 0) and the kernel's name.
using Spills = std::function<int64_t(int load, const std::string& kernel)>;

struct ReportedKernels : LoadedKernels {
  std::vector<KernelResources> reported;
  absl::Span<const KernelResources> resources() const override { return reported; }
};

class ReportingDevice : public Device {
 public:
  ReportingDevice(std::string arch, Spills spills)
      : arch_(std::move(arch)), spills_(std::move(spills)) {}
  int loads() const { return loads_; }
  // Names of the kernels of each load.
  const std::vector<std::set<std::string>>& kernels() const { return kernels_; }

  absl::string_view name() const override { return "reporting"; }
  DeviceFacts Describe() const override { return {.model = "none", .arch = arch_}; }
  Dialect dialect() const override { return Dialect::kCuda; }
  absl::StatusOr<void*> Allocate(int64_t bytes) override { return std::malloc(bytes + 1); }
  void Free(void* data) override { std::free(data); }
  absl::Status Reserve(int, int) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<LoadedKernels>> Load(
      absl::string_view, absl::Span<const retrograd::Launch> launches) override {
    auto loaded = std::make_unique<ReportedKernels>();
    kernels_.emplace_back();
    for (const retrograd::Launch& launch : launches) {
      if (!kernels_.back().insert(launch.kernel).second) continue;
      loaded->reported.push_back(
          {.name = launch.kernel, .registers = 40, .spill_bytes = spills_(loads_, launch.kernel)});
    }
    ++loads_;
    return loaded;
  }
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call&, const CallFacts&) override {
    struct NoCall : LoadedCall {
      NoCall() : LoadedCall(0) {}
      absl::Status Run(int, const CallPointers&, void*) override { return Never(); }
    };
    return std::make_unique<NoCall>();
  }

  // Nothing runs.
  absl::Status CopyIn(void*, const void*, int64_t) override { return Never(); }
  absl::Status CopyOut(void*, const void*, int64_t) override { return Never(); }
  absl::Status UseStream(std::optional<void*>) override { return Never(); }
  absl::Status Bind(int, LoadedKernels&, absl::Span<void* const>) override { return Never(); }
  absl::Status Launch(int, LoadedKernels&, size_t) override { return Never(); }
  absl::Status CopyStrided(int, DType, absl::Span<const int64_t>, void*, absl::Span<const int64_t>,
                           const void*, absl::Span<const int64_t>) override {
    return Never();
  }
  absl::Status Record(int, int) override { return Never(); }
  absl::Status Wait(int, int) override { return Never(); }
  absl::Status Synchronize() override { return Never(); }
  absl::StatusOr<TimeSamples> Time(absl::FunctionRef<absl::Status()>, int, bool) override {
    return Never();
  }

 private:
  static absl::Status Never() { return absl::UnimplementedError("nothing runs here"); }

  const std::string arch_;
  const Spills spills_;
  int loads_ = 0;
  std::vector<std::set<std::string>> kernels_;
};

constexpr char kNorm[] = "norm_stack:layers=1,rows=16384,columns=4096";

PlannedGraph Planned() {
  Progress progress;
  auto planned = OpenAndPlan({.graph = kNorm}, &progress);
  INFO(planned.status());
  REQUIRE(planned.ok());
  return *std::move(planned);
}

LoadedPlan Loaded(PlannedGraph* graph, ReportingDevice* device) {
  Progress progress;
  auto loaded = LoadPlan(graph, kNorm, {.dialect = Dialect::kCuda}, {}, device, &progress);
  INFO(loaded.status());
  REQUIRE(loaded.ok());
  REQUIRE(loaded->program != nullptr);
  return *std::move(loaded);
}

TEST_CASE("a plan whose kernels spill is made again without them, and the new one is loaded") {
  PlannedGraph graph = Planned();
  const FusionPlan first = graph.planned.plan;
  std::set<std::string> spilling;
  ReportingDevice device(graph.spec.arch, [&](int load, const std::string& kernel) -> int64_t {
    if (load == 0) spilling.insert(kernel);
    return spilling.count(kernel) > 0 ? 64 : 0;
  });
  const LoadedPlan loaded = Loaded(&graph, &device);
  CHECK(loaded.plans == 2);
  CHECK(loaded.spilling == 0);
  CHECK(device.loads() == 2);
  CHECK_FALSE(graph.planned.plan == first);
  CHECK(graph.planned.plan == loaded.compiled.plan);
  for (const std::string& kernel : device.kernels().back()) CHECK(spilling.count(kernel) == 0);
  CHECK(loaded.program->resources().size() == device.kernels().back().size());
}

TEST_CASE("a plan that does not spill is loaded once") {
  PlannedGraph graph = Planned();
  const FusionPlan first = graph.planned.plan;
  ReportingDevice device(graph.spec.arch, [](int, const std::string&) { return 0; });
  const LoadedPlan loaded = Loaded(&graph, &device);
  CHECK(loaded.plans == 1);
  CHECK(loaded.spilling == 0);
  CHECK(device.loads() == 1);
  CHECK(graph.planned.plan == first);
}

TEST_CASE("where every kernel spills, planning ends and the program says how many do") {
  PlannedGraph graph = Planned();
  ReportingDevice device(graph.spec.arch, [](int, const std::string&) { return 8; });
  const LoadedPlan loaded = Loaded(&graph, &device);
  CHECK(loaded.plans > 1);
  CHECK(loaded.plans <= kMostPlans);
  CHECK(loaded.spilling == static_cast<int64_t>(device.kernels().back().size()));
  CHECK(loaded.spilling > 0);
  CHECK(device.loads() == loaded.plans);
}

TEST_CASE("what a compiler says for another architecture than the plan's changes nothing") {
  PlannedGraph graph = Planned();
  const FusionPlan first = graph.planned.plan;
  for (const std::string arch : {"sm_80", ""}) {
    ReportingDevice device(arch, [](int, const std::string&) { return 64; });
    const LoadedPlan loaded = Loaded(&graph, &device);
    CHECK(loaded.plans == 1);
    CHECK(device.loads() == 1);
    CHECK(graph.planned.plan == first);
  }
}

}  // namespace
}  // namespace retrograd
