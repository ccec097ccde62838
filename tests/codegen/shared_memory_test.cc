// The shared memory that a template predicts, held against what its emitter declares: for every
// candidate schedule of many kernels, in every launch, and for launches that several kernels share.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/kernels/kernel_ir_examples.h"

namespace retrograd {
namespace {

// Devices with and without staged loads, in warps of 32 and of 64, each with the other warp too.
std::vector<DeviceSpec> Devices() {
  std::vector<DeviceSpec> devices;
  for (const char* name : {"h200", "h100", "mi300x", "mi250x"}) {
    auto device = LoadDeviceSpec(name);
    INFO(device.status());
    REQUIRE(device.ok());
    for (int warp : {32, 64}) {
      devices.push_back(*device);
      devices.back().warp = warp;
    }
  }
  return devices;
}

Dialect DialectOf(const DeviceSpec& device) {
  return device.vendor == "nvidia" ? Dialect::kCuda : Dialect::kHip;
}

// How many schedules of each template were compared.
using Seen = std::map<Template, int>;

// "" if what is emitted under this schedule declares what the footprint says, in each launch.
std::string Compare(const KernelIr& ir, const KernelProfile& profile, const Schedule& s,
                    const DeviceSpec& device) {
  const GroupKernels kernels = EmitGroup({.ir = ir, .schedule = s}, DialectOf(device));
  const int64_t launches = static_cast<int64_t>(kernels.launches.size());
  std::string wrong;
  const auto expect = [&](absl::string_view what, int64_t declared, int64_t predicted) {
    if (declared == predicted) return;
    absl::StrAppend(&wrong, device.name, " warp ", device.warp, ", ", s.Print(), ": ", what,
                    " declares ", declared, " B, predicted ", predicted, " B\n");
  };
  expect("launches:", launches, LaunchesOf(ir, s));
  for (int64_t n = 0; n < launches; ++n) {
    expect(absl::StrCat("launch ", n), kernels.launches[n].shared_bytes,
           SharedBytes(ir, profile, s, n));
  }
  const Footprint f = PredictFootprint(ir, profile, s, device);
  const int64_t main = MainLaunchNumber(ir, s);
  if (main >= launches) return wrong;
  expect("the main launch", kernels.launches[main].shared_bytes, f.shared_bytes);
  expect("staging", kernels.launches[main].staged_bytes, f.staged_bytes);
  return wrong;
}

std::string CompareAll(const KernelIr& ir, const DeviceSpec& device, Seen& seen) {
  const Classification shape = Classify(ir);
  if (!shape.feasible) return "";
  const KernelProfile profile = ProfileKernel(ir, shape);
  std::string wrong;
  for (const Schedule& s : CandidateSchedules(ir, profile, ScheduleLimitsOf(device))) {
    absl::StrAppend(&wrong, Compare(ir, profile, s, device));
    ++seen[s.kind];
  }
  return wrong;
}

std::vector<const KernelBody*> BodiesOf(const FusionPlan& plan) {
  std::vector<const KernelBody*> bodies;
  for (const Group& group : plan.groups) {
    for (const KernelBody* body : KernelsOf(group)) bodies.push_back(body);
  }
  return bodies;
}

Planned PlanOf(const BackwardGraph& graph, const DeviceSpec& device) {
  auto planned = PlanFusion(graph, device, {.decisions = false});
  INFO(planned.status());
  REQUIRE(planned.ok());
  return *std::move(planned);
}

BackwardGraph Model(const std::string& name) {
  auto graph = BuildModel(name);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

TEST_CASE("every template's candidates declare the shared memory that is predicted") {
  Seen seen;
  for (const DeviceSpec& device : Devices()) {
    for (DType dtype : {DType::kBf16, DType::kFp32, DType::kFp64}) {
      for (const KernelExample& example : KernelExamples(dtype)) {
        INFO(example.name << " of " << Name(dtype));
        CHECK(CompareAll(example.ir, device, seen) == "");
      }
    }
  }
  for (const KernelTemplate* t : KernelTemplates()) {
    INFO(t->name);
    CHECK(seen[t->id] >= 20);
  }
}

TEST_CASE("so do the kernels of models, under each schedule that was priced for them") {
  Seen seen;
  for (const char* name : {"golf_tiny", "gpt2_tiny_h200", "llama_tiny_h200", "bert_tiny_h200",
                           "norm_stack:layers=1,rows=512,columns=4096,norm=layer",
                           "norm_stack:layers=2,rows=16384,columns=8192",
                           "transformer:layers=1,d=512,heads=8,tokens=1024",
                           "resnet:blocks1=1,blocks2=1,blocks3=1,blocks4=1,batch=2,image=64"}) {
    const BackwardGraph graph = Model(name);
    for (const char* spec : {"h200", "mi300x"}) {
      DeviceSpec device = *LoadDeviceSpec(spec);
      const Planned planned = PlanOf(graph, device);
      for (const KernelBody* body : BodiesOf(planned.plan)) {
        for (int warp : {32, 64}) {
          device.warp = warp;
          INFO(name << " on " << spec);
          CHECK(CompareAll(body->ir, device, seen) == "");
        }
      }
    }
  }
  CHECK(seen[Template::kRowReduction] > 100);
  CHECK(seen[Template::kRowColumn] > 100);
  CHECK(seen[Template::kColumnReduction] > 100);
}

TEST_CASE("so do the kernels of random graphs") {
  Seen seen;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const BackwardGraph graph =
        RandomGraph(seed, {.dtypes = static_cast<RandomGraphOptions::DTypes>(seed % 4),
                           .max_extent = 70,
                           .max_elements = 1 << 16});
    DeviceSpec device = *LoadDeviceSpec(seed % 2 == 0 ? "h200" : "mi300x");
    const Planned planned = PlanOf(graph, device);
    for (const KernelBody* body : BodiesOf(planned.plan)) {
      device.warp = seed % 3 == 0 ? 32 : 64;
      INFO("seed " << seed << "\n" << Print(graph));
      CHECK(CompareAll(body->ir, device, seen) == "");
    }
  }
  CHECK(seen.size() >= 5);
}

TEST_CASE("each shared launch declares what its member of the largest footprint does") {
  int launches = 0, with_pool = 0, of_several = 0;
  for (const char* spec : {"h200", "mi300x"}) {
    const DeviceSpec device = *LoadDeviceSpec(spec);
    for (const char* name : {"golf_tiny_h200", "gpt2_tiny_h200", "bert_tiny_h200",
                             "transformer:layers=2,d=256,heads=4,tokens=512,bias=1,norm=layer"}) {
      const Planned planned = PlanOf(Model(name), device);
      for (const Group& group : planned.plan.groups) {
        if (SharedLaunchOf(group) == nullptr) continue;
        const GroupKernels kernels = EmitGroup(group, DialectOf(device));
        INFO(name << " on " << spec);
        for (size_t l = 0; l < kernels.launches.size(); ++l) {
          int64_t most = 0;
          for (const KernelBody* body : KernelsOf(group)) {
            const KernelProfile profile = ProfileKernel(body->ir, Classify(body->ir));
            if (static_cast<int64_t>(l) >= LaunchesOf(body->ir, body->schedule)) continue;
            most = std::max(most, SharedBytes(body->ir, profile, body->schedule, l));
          }
          CHECK(kernels.launches[l].shared_bytes == most);
          with_pool += most > 0;
        }
        ++launches;
        of_several += kernels.launches.size() > 1;
      }
    }
  }
  CHECK(launches >= 10);
  CHECK(with_pool >= 2);
  CHECK(of_several >= 2);
}

}  // namespace
}  // namespace retrograd
