// How much memory a program is said to hold, against what the allocator gave for it.
#include "runtime/program/held_memory.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/translation_unit.h"
#include "fusion/planner/planner.h"
#include "graph/proto/bind_graph.h"
#include "graph/proto/proto.h"
#include "runtime/program/early_launches.h"
#include "tests/catch.h"
#include "tests/support/allocation_count.h"

namespace retrograd {
namespace {

DeviceSpec H200() {
  const auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  return *spec;
}

BackwardGraph Graph(const std::string& name) {
  auto graph = LoadGraph(absl::StrCat(RETROGRAD_SOURCE_DIR "/tests/data/sizes/", name, ".bwd.pb"));
  REQUIRE(graph.ok());
  return *std::move(graph);
}

CompiledPlan Compiled(const BackwardGraph& graph, const DeviceSpec& spec) {
  auto planned = PlanFusion(graph, spec, {.decisions = false});
  REQUIRE(planned.ok());
  const CompileOptions options{.dialect = Dialect::kCuda,
                               .epilogue_kernels = true,
                               .memory = {.phases = PhaseOptionsOf(spec, 8)},
                               .early = EarlyLaunchLimitsOf(spec)};
  auto compiled = Compile(std::move(planned->graph), std::move(planned->plan), options);
  REQUIRE(compiled.ok());
  return *std::move(compiled);
}

// A graph of tests/data/sizes at some sizes.
struct Sized {
  std::string graph;
  std::vector<SizeBinding> sizes;
};

TEST_CASE("what a plan is said to hold is what the allocator gave for it") {
  const Sized sized = GENERATE(Sized{"gpt2", {{"batch", 4}, {"length", 517}}},
                               Sized{"gpt2", {{"batch", 2}, {"length", 64}}},
                               Sized{"bert_base", {{"batch", 8}, {"length", 211}}},
                               Sized{"golf_gpt_34m_b32", {{"batch", 17}}});
  const DeviceSpec spec = H200();
  const auto binder = GraphBinder::Of(Graph(sized.graph));
  REQUIRE(binder.ok());
  // Once before, for what stays from the first plan on.
  { const CompiledPlan warm = Compiled(*binder->Bind(sized.sizes), spec); }
  const int64_t before = AllocatedBytes();
  const BackwardGraph bound = *binder->Bind(sized.sizes);
  const CompiledPlan compiled = Compiled(bound, spec);
  const auto list = BuildCommands(compiled, /*order_seed=*/0);
  REQUIRE(list.ok());
  const auto held = static_cast<double>(AllocatedBytes() - before);
  if (held <= 0) SUCCEED("the allocator tells no sizes");
  INFO(sized.graph << ": " << held << " bytes");
  const auto said = static_cast<double>(HeldByPlan(compiled, *list));
  const HeldMemory recorded = HeldByRecordings(compiled, *list);
  CHECK(said + static_cast<double>(recorded.host_bytes + recorded.device_bytes) < 6e6);
  CHECK(said > 0.85 * held);
  CHECK(said < 1.15 * held);
}

TEST_CASE("the text of a kernel that several layers run is held once") {
  const CompiledPlan compiled =
      Compiled(*BindGraph(Graph("gpt2"), {{"batch", 4}, {"length", 517}}), H200());
  size_t launches = 0, texts = 0;
  for (const GroupKernels& group : compiled.kernels) {
    for (const Kernel& kernel : group.launches) {
      ++launches;
      texts += !kernel.function.statements.empty() || !kernel.members.empty();
    }
  }
  const std::vector<Kernel> distinct = DistinctKernels(compiled.kernels);
  CHECK(texts == distinct.size());
  CHECK(texts * 2 < launches);
  for (const Kernel& kernel : distinct) {
    INFO(kernel.name);
    Kernel again = kernel;
    NameKernel(&again);
    CHECK(again.name == kernel.name);
  }
}

TEST_CASE("a program of more launches, phases and streams is said to hold more") {
  CompiledPlan compiled;
  CommandList list;
  list.phase_begins = {0};
  const HeldMemory empty = HeldByRecordings(compiled, list);
  list.launches.resize(100);
  const HeldMemory more = HeldByRecordings(compiled, list);
  list.phase_begins = {0, 50};
  const HeldMemory phased = HeldByRecordings(compiled, list);
  compiled.schedule.streams = 2;
  CHECK(phased.device_bytes < HeldByRecordings(compiled, list).device_bytes);
  CHECK(empty.host_bytes < more.host_bytes);
  CHECK(more.host_bytes < phased.host_bytes);
  CHECK(empty.device_bytes <= more.device_bytes);
  CHECK(more.device_bytes <= phased.device_bytes);
}

}  // namespace
}  // namespace retrograd
