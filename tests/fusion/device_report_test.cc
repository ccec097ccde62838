#include "fusion/cost/device_report.h"

#include <algorithm>

#include "fusion/plan/call_key.h"
#include "fusion/planner/planner.h"
#include "models/models.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

Planned Plan(const std::string& model, const DeviceReport& feedback = {}) {
  auto graph = OpenGraph(model);
  REQUIRE(graph.ok());
  auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  PlanOptions options;
  options.feedback = feedback;
  auto planned = PlanFusion(*graph, *device, options);
  INFO(planned.status());
  REQUIRE(planned.ok());
  return *std::move(planned);
}

uint64_t KeyOf(const Group& group) {
  const auto& body = *KernelOf(group);
  return FingerprintOf(FingerprintOf(body.ir), body.schedule);
}

int CountKernels(const FusionPlan& plan, uint64_t key) {
  int n = 0;
  for (const Group& group : plan.groups) {
    n += (KernelOf(group) != nullptr) && KeyOf(group) == key;
  }
  return n;
}

// The kernel of most ops that reduces rows.
const Group* LargestReduction(const FusionPlan& plan) {
  const Group* largest = nullptr;
  for (const Group& group : plan.groups) {
    const KernelBody* body = KernelOf(group);
    if (body == nullptr || body->schedule.threads_per_row == 0) continue;
    if (largest == nullptr || group.nodes.size() > largest->nodes.size()) largest = &group;
  }
  return largest;
}

TEST_CASE("a kernel that is reported to spill is not planned again, and the plan says why") {
  const Planned first = Plan("golf_tiny");
  const Group* group = LargestReduction(first.plan);
  REQUIRE(group != nullptr);
  DeviceReport report{.compiler = "NVRTC 13.0", .arch = "sm_90"};
  report.kernels[KeyOf(*group)] = {.registers = 255, .spill_bytes = 444, .shared_bytes = 0};
  const Planned second = Plan("golf_tiny", report);
  CHECK(CountKernels(first.plan, KeyOf(*group)) >= 1);
  CHECK(CountKernels(second.plan, KeyOf(*group)) == 0);
  CHECK(second.plan.Verify(second.graph).ok());
  const auto& decisions = second.plan.decisions;
  const auto why = std::find_if(decisions.begin(), decisions.end(), [](const Decision& d) {
    return d.limit == "registers" && d.reason.rfind("planned again", 0) == 0;
  });
  REQUIRE(why != decisions.end());
  CHECK_THAT(why->reason, ContainsSubstring("NVRTC 13.0 spills 444 B"));
  CHECK(second.plan.summary.cost_ps >= first.plan.summary.cost_ps);
  // Once: the same report gives the same plan again.
  CHECK(Plan("golf_tiny", report).plan == second.plan);
}

TEST_CASE("an empty report, or one of other kernels, leaves the plan as it is") {
  const Planned first = Plan("bert_tiny");
  CHECK(Plan("bert_tiny", {.compiler = "NVRTC 13.0", .arch = "sm_90"}).plan == first.plan);
  DeviceReport other{.compiler = "NVRTC 13.0", .arch = "sm_90"};
  other.kernels[12345] = {.registers = 255, .spill_bytes = 1000};
  CHECK(Plan("bert_tiny", other).plan == first.plan);
}

TEST_CASE("real registers take the place of predicted ones in the plan") {
  const Planned first = Plan("bert_tiny");
  const Group* group = LargestReduction(first.plan);
  REQUIRE(group != nullptr);
  DeviceReport report{.compiler = "NVRTC 13.0", .arch = "sm_90"};
  const int real = KernelOf(*group)->registers - 1;
  report.kernels[KeyOf(*group)] = {.registers = real, .spill_bytes = 0, .shared_bytes = 0};
  const Planned second = Plan("bert_tiny", report);
  for (const Group& g : second.plan.groups) {
    if (!(KernelOf(g) != nullptr) || KeyOf(g) != KeyOf(*group)) continue;
    CHECK(KernelOf(g)->registers == real);
  }
  CHECK(CountKernels(second.plan, KeyOf(*group)) >= 1);
}

TEST_CASE("fingerprints tell kernels apart by what they compute, not by the graph's numbers") {
  const Planned planned = Plan("bert_tiny");
  const Group* group = LargestReduction(planned.plan);
  REQUIRE(group != nullptr);
  const KernelIr ir = KernelOf(*group)->ir;
  KernelIr renumbered = ir;
  for (Buffer& b : renumbered.buffers) b.value.node = NodeId{Index(b.value.node) + 7};
  for (Instr& i : renumbered.instrs) i.value.node = NodeId{Index(i.value.node) + 7};
  CHECK(FingerprintOf(renumbered) == FingerprintOf(ir));
  KernelIr longer = ir;
  longer.extents[0] *= 2;
  CHECK(FingerprintOf(longer) != FingerprintOf(ir));
  KernelIr narrower = ir;
  narrower.buffers[0].alignment = 2;
  CHECK(FingerprintOf(narrower) != FingerprintOf(ir));
  KernelIr onto_zeros = ir;
  onto_zeros.scatter = Scatter{.sorted = 0, .src_instr = 0, .buffer = 1};
  KernelIr onto_first = onto_zeros;
  onto_first.scatter->base = 0;
  CHECK(FingerprintOf(onto_first) != FingerprintOf(onto_zeros));
  Schedule s = KernelOf(*group)->schedule, t = s;
  t.blocks += 1;
  CHECK(FingerprintOf(1, s) != FingerprintOf(1, t));
  Schedule by_rows = s;
  by_rows.turns = 4;
  CHECK(FingerprintOf(1, by_rows) != FingerprintOf(1, s));
}

TEST_CASE("a report is read back as it was written; damage is told with its line") {
  DeviceReport report{.compiler = "NVRTC 13.0", .arch = "sm_90"};
  report.kernels[0xff] = {.registers = 64, .spill_bytes = 8, .shared_bytes = 2048};
  report.kernels[0x8f14e45fceea167a] = {.registers = 32};
  report.calls["matmul bf16[4,4]4,1 bf16[4,4]4,1 bf16[4,4]4,1"] = 12'500'000;
  auto back = ParseDeviceReport(report.Print(), "x");
  INFO(back.status());
  REQUIRE(back.ok());
  CHECK(*back == report);
  const std::string head = "retrograd device report 1\n";
  auto refusal = [](const std::string& text) {
    return std::string(ParseDeviceReport(text, "x.report").status().message());
  };
  CHECK_THAT(refusal(""), ContainsSubstring("x.report, line 1: no device report"));
  CHECK_THAT(refusal(head + "\nkernel 12\n"), ContainsSubstring("line 3: a kernel's line"));
  CHECK_THAT(refusal(head + "what\n"), ContainsSubstring("line 2: a line begins with"));
  const std::string line = "kernel 00000000000000ff registers 1 spill_bytes 0 shared_bytes 0\n";
  CHECK_THAT(refusal(head + line + line), ContainsSubstring("line 3: kernel 00000000000000ff"));
  CHECK_THAT(refusal(head + "kernel 00000000000000ff registers -1 spill_bytes 0 shared_bytes 0\n"),
             ContainsSubstring("registers must be a number from 0"));
  CHECK_THAT(refusal(head + "kernel 00000000000000ff spill_bytes 1 spill_bytes 0 shared_bytes 0\n"),
             ContainsSubstring("'registers' is expected"));
  CHECK_THAT(refusal(head + "call 0 matmul\n"), ContainsSubstring("line 2: a call's line"));
  CHECK_THAT(refusal(head + "call 99999999999999999 matmul\n"), ContainsSubstring("picoseconds"));
  CHECK_THAT(refusal(head + "call 12\n"), ContainsSubstring("the call's key"));
  CHECK_THAT(refusal(head + "call 1 a b\ncall 2 a b\n"),
             ContainsSubstring("line 3: the call 'a b' is given twice"));
}

TEST_CASE("equal calls have equal keys, and each thing that a time depends on tells them apart") {
  const Call call{.op = Op::matmul,
                  .operands = {{.value = {NodeId{1}, 0}, .shape = {8, 4}, .strides = {4, 1}},
                               {.value = {NodeId{2}, 0}, .shape = {4, 2}, .strides = {2, 1}}},
                  .results = {{.value = {NodeId{3}, 0}, .shape = {8, 2}, .strides = {2, 1}}}};
  Call same = call;
  same.node = NodeId{9};
  same.operands[0].value = {NodeId{7}, 0};
  same.operands[0].offset = 64;
  CHECK(CallKey(same) == CallKey(call));
  const auto other = [&](auto change) {
    Call changed = call;
    change(changed);
    return CallKey(changed) != CallKey(call);
  };
  CHECK(other([](Call& c) { c.op = Op::attention_backward; }));
  CHECK(other([](Call& c) { c.operands[1].strides = {1, 4}; }));
  CHECK(other([](Call& c) { c.operands[1].shape = {4, 3}; }));
  CHECK(other([](Call& c) { c.results[0].dtype = DType::kBf16; }));
  CHECK(other([](Call& c) { c.previous = ValueId{NodeId{4}, 0}; }));
  CHECK(other([](Call& c) { c.attributes.Set("scale", 0.5); }));
  CHECK(other([](Call& c) { c.attributes.Set("causal", int64_t{1}); }));
}

TEST_CASE("what is news replaces what was known, and nothing else changes") {
  DeviceReport known{.compiler = "a", .arch = "sm_90", .calls = {{"x", 1}, {"y", 2}}};
  known.Update({});
  CHECK(known.arch == "sm_90");
  known.Update({.compiler = "b", .arch = "sm_90", .kernels = {{7, {}}}, .calls = {{"y", 3}}});
  CHECK(known.compiler == "b");
  CHECK(known.kernels.size() == 1);
  CHECK(known.calls == std::map<std::string, int64_t>{{"x", 1}, {"y", 3}});
}

}  // namespace
}  // namespace retrograd
