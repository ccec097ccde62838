// An executable: by whose numbers it is planned, what the device's abilities make of the plan, and
// a plan that is made again for what the compiler says of its kernels.
#include "runtime/executable/executable.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "runtime/executable/choose_spec.h"
#include "tests/catch.h"
#include "tests/support/plans/matmul_epilogues.h"
#include "tests/support/reporting_device.h"

namespace retrograd {
namespace {

BackwardGraph Model(const std::string& name) {
  auto graph = BuildModel(name);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

BackwardGraph Norm() { return Model("norm_stack:layers=1,rows=16384,columns=4096"); }

Executable Made(const BackwardGraph& graph, Device& device, const ExecutableOptions& options = {}) {
  auto made = Executable::Make(graph, device, options);
  INFO(made.status());
  REQUIRE(made.ok());
  return *std::move(made);
}

FusionPlan PlanOf(const BackwardGraph& graph, const char* spec) {
  auto planned = PlanFusion(graph, *LoadDeviceSpec(spec));
  REQUIRE(planned.ok());
  return planned->plan;
}

ChosenSpec ChosenFor(const DeviceFacts& facts, Dialect dialect = Dialect::kCuda) {
  const ReportingDevice device({.facts = facts, .dialect = dialect});
  auto chosen = SpecOf(device);
  INFO(chosen.status());
  REQUIRE(chosen.ok());
  return *std::move(chosen);
}

// --- whose numbers

TEST_CASE(
    "a device whose model and arch a spec names is planned for by that spec, without a note") {
  struct Case {
    const char *model, *arch, *spec;
    Dialect dialect;
  };
  const Case cases[] = {{"NVIDIA H100 80GB HBM3", "sm_90", "h100", Dialect::kCuda},
                        {"NVIDIA H200", "sm_90", "h200", Dialect::kCuda},
                        {"AMD Instinct MI250X", "gfx90a", "mi250x", Dialect::kHip},
                        {"AMD Instinct MI300X", "gfx942", "mi300x", Dialect::kHip}};
  for (const Case& c : cases) {
    INFO(c.model);
    // The number of SMs does not matter then.
    const ChosenSpec chosen = ChosenFor({.model = c.model, .arch = c.arch, .sms = 7}, c.dialect);
    CHECK(chosen.spec.name == c.spec);
    CHECK(chosen.text == *ReadDeviceSpec(c.spec));
    CHECK(chosen.note.empty());
  }
}

TEST_CASE("another model of the same arch is planned for by the spec whose model is most like it") {
  struct Case {
    const char *model, *arch, *spec;
    Dialect dialect;
  };
  const Case cases[] = {{"NVIDIA H100 PCIe", "sm_90", "h100", Dialect::kCuda},
                        {"NVIDIA H200 NVL", "sm_90", "h200", Dialect::kCuda},
                        // Like neither: the calibrated one.
                        {"Fake GPU", "sm_90", "h200", Dialect::kCuda},
                        {"AMD Instinct MI210", "gfx90a", "mi250x", Dialect::kHip},
                        {"AMD Instinct MI300A", "gfx942", "mi300x", Dialect::kHip}};
  for (const Case& c : cases) {
    INFO(c.model);
    const ChosenSpec chosen = ChosenFor({.model = c.model, .arch = c.arch, .sms = 132}, c.dialect);
    CHECK(chosen.spec.name == c.spec);
    CHECK_THAT(chosen.note, ContainsSubstring(c.model));
    CHECK_THAT(chosen.note, ContainsSubstring(absl::StrCat("the numbers of ", c.spec)));
    CHECK_THAT(chosen.note, ContainsSubstring("retrograd calibrate --device "));
    CHECK(chosen.note.find('\n') == std::string::npos);
  }
}

TEST_CASE("a device of another arch is planned for by the nearest of its vendor, with a note") {
  struct Case {
    const char *model, *arch, *spec;
    Dialect dialect;
  };
  const Case cases[] = {{"NVIDIA A100-SXM4-80GB", "sm_80", "h200", Dialect::kCuda},
                        {"NVIDIA B200", "sm_100", "h200", Dialect::kCuda},
                        {"AMD Instinct MI100", "gfx908", "mi250x", Dialect::kHip},
                        {"AMD Instinct MI355X", "gfx950", "mi300x", Dialect::kHip},
                        // A name that a spec has, of an arch that the spec is not of.
                        {"NVIDIA H100 80GB HBM3", "sm_80", "h100", Dialect::kCuda}};
  for (const Case& c : cases) {
    INFO(c.model);
    const ChosenSpec chosen = ChosenFor({.model = c.model, .arch = c.arch, .sms = 132}, c.dialect);
    CHECK(chosen.spec.name == c.spec);
    CHECK_THAT(chosen.note, ContainsSubstring(absl::StrCat(c.model, " (", c.arch, ")")));
    CHECK_THAT(chosen.note, ContainsSubstring(absl::StrCat("the numbers of ", c.spec)));
  }
}

TEST_CASE("a device that says nothing of itself, or says it in control characters, gets one line") {
  CHECK(ChosenFor({.model = "none", .arch = ""}).spec.vendor == "nvidia");
  const ChosenSpec odd = ChosenFor({.model = "a\nb", .arch = "sm_ninety"});
  CHECK(odd.spec.vendor == "nvidia");
  CHECK(odd.note.find('\n') == std::string::npos);
  CHECK(ChosenFor({.model = "none", .arch = "gfx"}, Dialect::kHip).spec.vendor == "amd");
}

TEST_CASE("an executable is planned by its device's spec, or by another that the caller gives") {
  const BackwardGraph graph = Norm();
  ReportingDevice device({.facts = {.model = "NVIDIA H100 80GB HBM3", .arch = "sm_90"}});
  const Executable own = Made(graph, device);
  CHECK(own.spec().name == "h100");
  CHECK(own.note().empty());
  CHECK(own.plan() == PlanOf(graph, "h100"));
  const Executable given = Made(graph, device, {.spec = *NamedSpec("mi300x")});
  CHECK(given.spec().name == "mi300x");
  CHECK(given.plan() == PlanOf(graph, "mi300x"));
  ReportingDevice unknown({.facts = {.model = "NVIDIA A100", .arch = "sm_80"}});
  CHECK_THAT(Made(graph, unknown).note(), ContainsSubstring("NVIDIA A100 (sm_80)"));
}

TEST_CASE("a spec can be taken with other numbers, and is refused with what is wrong about them") {
  const DeviceNumber registers{"max_registers", 128}, none{"max_register", 128}, bad{"warp", 7};
  const auto chosen = NamedSpec("h200", {&registers, 1});
  REQUIRE(chosen.ok());
  CHECK(chosen->spec.max_registers == 128);
  CHECK(chosen->spec.name == "h200 with max_registers=128");
  CHECK_THAT(std::string(NamedSpec("h200", {&none, 1}).status().message()),
             ContainsSubstring("max_registers"));
  CHECK_THAT(std::string(NamedSpec("h200", {&bad, 1}).status().message()),
             ContainsSubstring("h200 with --set warp=7: warp is 7: a number from 32 to 64"));
  CHECK_THAT(std::string(NamedSpec("h300").status().message()), ContainsSubstring("h200"));
}

TEST_CASE("a compiler's report of another arch than the spec's is refused") {
  ReportingDevice device({});
  ExecutableOptions options;
  options.plan.feedback = {.compiler = "c", .arch = "sm_80", .kernels = {{1, {}}}};
  const auto made = Executable::Make(Norm(), device, options);
  REQUIRE(!made.ok());
  CHECK(made.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(made.status().message()), ContainsSubstring("'sm_80'"));
  CHECK(device.loads() == 0);
}

// --- what the device can do

TEST_CASE("products are made with their epilogues on a device that does so, and on no other") {
  const auto parsed = ParseGraph(kMatMulWithEpilogue);
  INFO(parsed.status());
  REQUIRE(parsed.ok());
  const BackwardGraph& graph = *parsed;
  ReportingDevice with({.epilogues = true}), without({});
  const Executable fused = Made(graph, with), split = Made(graph, without);
  CHECK(Epilogues(fused.plan()) > 0);
  CHECK(Epilogues(split.plan()) == 0);
  CHECK(Epilogues(fused.compiled().plan) > 0);
  CHECK(with.fused() == Epilogues(fused.compiled().plan));
  CHECK(Epilogues(split.compiled().plan) == 0);
  CHECK(without.fused() == 0);
}

// Columns scaled by their largest magnitudes, which the H200's spec has clusters of blocks hold.
constexpr char kScaledColumns[] = R"(
%0 = input name="x" kind=tangent alignment=16  bf16[16,8192,5120]
%1 = cast %0 dtype=f32
%2 = abs %1
%3 = amax %2 axes=[1]
%4 = reshape %3 shape=[16,1,5120]
%5 = div %1 %4
%6 = cast %5 dtype=f8e4m3
output %6 name="q"
)";

TEST_CASE("columns are held by clusters on a device that runs them, and on no other") {
  const auto parsed = ParseGraph(kScaledColumns);
  INFO(parsed.status());
  REQUIRE(parsed.ok());
  const auto holds = [&](bool clusters) {
    ReportingDevice device({.clusters = clusters});
    const Executable made = Made(*parsed, device);
    const std::string plan = made.plan().Print(made.compiled().graph);
    return absl::StrContains(plan, "out=[%6] held_columns threads=");
  };
  CHECK(holds(true));
  CHECK(!holds(false));
}

// --- planned again

TEST_CASE("a plan whose kernels spill is made again without them, and the new one is loaded") {
  const BackwardGraph graph = Norm();
  std::set<std::string> spilling;
  ReportingDevice device({}, [&](int load, const std::string& kernel) -> int64_t {
    if (load == 0) spilling.insert(kernel);
    return spilling.count(kernel) > 0 ? 64 : 0;
  });
  const Executable made = Made(graph, device);
  CHECK(made.plans() == 2);
  CHECK(made.spilling() == 0);
  CHECK(device.loads() == 2);
  CHECK_FALSE(made.plan() == PlanOf(graph, "h200"));
  CHECK(made.plan() == made.compiled().plan);
  for (const std::string& kernel : device.kernels().back()) CHECK(spilling.count(kernel) == 0);
  CHECK(made.program().resources().size() == device.kernels().back().size());
  CHECK(made.feedback().arch == "sm_90");
  CHECK_FALSE(made.feedback().empty());
}

TEST_CASE("a plan whose kernels spill is kept where a second one is not wanted") {
  const BackwardGraph graph = Norm();
  ReportingDevice device({}, [](int, const std::string&) { return 8; });
  const auto made = Executable::Make(graph, device, {.plan_again = false});
  REQUIRE(made.ok());
  CHECK(made->plans() == 1);
  CHECK(made->spilling() > 0);
  CHECK(device.loads() == 1);
  CHECK(made->plan() == PlanOf(graph, "h200"));
}

TEST_CASE("what shall not run has its kernels compiled, is planned for spills, and makes no call") {
  const BackwardGraph graph = *ParseGraph(kMatMulWithEpilogue);
  const auto plans = [&](bool runnable) {
    ReportingDevice device({}, [](int load, const std::string&) { return load == 0 ? 64 : 0; });
    const auto made = Executable::Make(graph, device, {.runnable = runnable});
    REQUIRE(made.ok());
    CHECK(device.loads() == made->plans());
    return std::pair(made->plans(), made->plan());
  };
  CHECK(plans(false) == plans(true));
}

TEST_CASE("a plan that does not spill is loaded once") {
  const BackwardGraph graph = Norm();
  ReportingDevice device({});
  const Executable made = Made(graph, device);
  CHECK(made.plans() == 1);
  CHECK(made.spilling() == 0);
  CHECK(device.loads() == 1);
  CHECK(made.plan() == PlanOf(graph, "h200"));
  CHECK(made.feedback().empty());
}

TEST_CASE("where every kernel spills, planning ends and the executable says how many do") {
  ReportingDevice device({}, [](int, const std::string&) { return 8; });
  const Executable made = Made(Norm(), device);
  CHECK(made.plans() > 1);
  CHECK(made.plans() <= kMostPlans);
  CHECK(made.spilling() == static_cast<int64_t>(device.kernels().back().size()));
  CHECK(made.spilling() > 0);
  CHECK(device.loads() == made.plans());
}

TEST_CASE("what a compiler says for another architecture than the spec's changes nothing") {
  const BackwardGraph graph = Norm();
  for (const std::string arch : {"sm_80", ""}) {
    ReportingDevice device({.facts = {.model = "none", .arch = arch}},
                           [](int, const std::string&) { return 64; });
    const Executable made = Made(graph, device, {.spec = *NamedSpec("h200")});
    CHECK(made.plans() == 1);
    CHECK(device.loads() == 1);
    CHECK(made.plan() == PlanOf(graph, "h200"));
  }
}

// Two gradients of inputs that share dy: one matmul where that is faster.
constexpr char kTwoMatMuls[] = R"(
%0 = input name="dy" kind=tangent alignment=16  bf16[4096,512]
%1 = input name="w" kind=parameter alignment=16  bf16[512,512]
%2 = input name="v" kind=parameter alignment=16  bf16[512,512]
%3 = matmul %0 %1
%4 = matmul %0 %2
output %3 name="dx"
output %4 name="dz"
)";

BackwardGraph TwoMatMuls() {
  auto parsed = ParseGraph(kTwoMatMuls);
  INFO(parsed.status());
  REQUIRE(parsed.ok());
  return *std::move(parsed);
}

int Calls(const FusionPlan& plan) {
  return static_cast<int>(std::count_if(plan.groups.begin(), plan.groups.end(),
                                        [](const Group& g) { return CallOf(g) != nullptr; }));
}

const ExecutableOptions kMeasured = {.measured_calls = true};

TEST_CASE("a library call costs what the device measured, in the plan that runs") {
  ReportingDevice device({.call_us = [](const Call&) { return 7.5; }});
  const Executable made = Made(TwoMatMuls(), device, kMeasured);
  CHECK(device.loads() == 1);  // the same work at other prices
  CHECK(made.plans() == 2);
  CHECK(Calls(made.plan()) == Calls(PlanOf(TwoMatMuls(), "h200")));
  for (const Group& group : made.plan().groups) {
    if (CallOf(group) == nullptr) continue;
    CHECK(group.price_ps == 7'500'000);
    REQUIRE(group.terms.size() == 1);
    CHECK(group.terms[0].name == "measured");
  }
  CHECK(made.feedback().calls.size() == 1);
  CHECK(made.plan() == made.compiled().plan);
}

TEST_CASE("unless it is asked for, the plan is by the spec's prices, and is made once") {
  ReportingDevice device({.call_us = [](const Call&) { return 7.5; }});
  const Executable made = Made(TwoMatMuls(), device);
  CHECK(made.plans() == 1);
  CHECK(made.plan() == PlanOf(TwoMatMuls(), "h200"));
}

TEST_CASE("matmuls that were merged are separate again where the merged one is measured slow") {
  const BackwardGraph graph = *ParseGraph(R"(
%0 = input name="dy" kind=tangent alignment=16  bf16[4096,512]
%1 = input name="w" kind=parameter alignment=16  bf16[512,64]
%2 = input name="v" kind=parameter alignment=16  bf16[512,64]
%3 = input name="u" kind=parameter alignment=16  bf16[512,64]
%4 = matmul %0 %1
%5 = matmul %0 %2
%6 = matmul %0 %3
%7 = add %4 %5
%8 = add %7 %6
output %8 name="dx"
)");
  REQUIRE(Calls(PlanOf(graph, "h200")) == 1);
  const auto is_merged = [](const Call& call) { return call.results[0].shape.back() > 64; };
  ReportingDevice slow(
      {.call_us = [&](const Call& call) { return is_merged(call) ? 1000.0 : 5.0; }});
  const Executable apart = Made(graph, slow, kMeasured);
  CHECK(Calls(apart.plan()) == 3);
  CHECK(slow.loads() == 2);
  ReportingDevice fast({.call_us = [&](const Call&) { return 5.0; }});
  CHECK(Calls(Made(graph, fast, kMeasured).plan()) == 1);
}

TEST_CASE("a process plans at once what an earlier one came to, by the cache of the device") {
  const auto directory = WorkDirectory::MakeIn(std::filesystem::temp_directory_path().string());
  REQUIRE(directory.ok());
  const auto cache = ModuleCache::Open(directory->path() + "/cache", int64_t{1} << 30);
  REQUIRE(cache.ok());
  int loaded = 0;
  const ReportingFacts facts = {.call_us = [&](const Call&) { return ++loaded, 7.5; },
                                .cache = &*cache};
  ReportingDevice first(facts), second(facts);
  const Executable cold = Made(TwoMatMuls(), first, kMeasured),
                   warm = Made(TwoMatMuls(), second, kMeasured);
  CHECK(cold.plans() == 2);
  CHECK(warm.plans() == 1);
  CHECK(warm.plan() == cold.plan());
  // Who does not ask plans by the spec's prices, whatever is remembered.
  ReportingDevice unasked(facts);
  CHECK(Made(TwoMatMuls(), unasked).plan() == PlanOf(TwoMatMuls(), "h200"));
  // Another graph has a memory of its own.
  ReportingDevice third(facts);
  CHECK(Made(Norm(), third, kMeasured).feedback().empty());
}

TEST_CASE("whoever waits is told of each plan and of each time that kernels are compiled") {
  std::string told;
  ExecutableOptions options;
  options.progress = [&](ExecutableStage stage, const DeviceSpec& spec) {
    CHECK(spec.name == "h200");
    told += stage == ExecutableStage::kPlan ? "p" : "c";
  };
  ReportingDevice once({});
  Made(Norm(), once, options);
  CHECK(told == "pc");
  told.clear();
  ReportingDevice twice({}, [](int load, const std::string&) { return load == 0 ? 8 : 0; });
  Made(Norm(), twice, options);
  CHECK(told == "pcpc");
}

}  // namespace
}  // namespace retrograd
