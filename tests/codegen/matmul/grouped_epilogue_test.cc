// Grouped matmuls with an epilogue: what they compute for groups that end anywhere, run through the
// host dialect with every access checked; which have none; and that the GPU's form compiles.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/translation_unit.h"
#include "fusion/ops/grouped_matmul/epilogue_product.h"
#include "fusion/plan/split_epilogues.h"
#include "runtime/compiler/rtc.h"
#include "runtime/program/commands.h"
#include "tests/catch.h"
#include "tests/support/plans/matmul_epilogues.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

DeviceSpec Eager() { return EagerEpilogues({DType::kBf16, DType::kFp16}, 8, 4); }

struct Case {
  int64_t rows = 100, n = 136, k = 40;
  std::vector<int32_t> ends = {30, 100};
  DType dtype = DType::kBf16;
  bool across = true;  // the matrices' lines lie across the sum
};

std::string Print(const Case& c) {
  return absl::StrCat(c.rows, " x ", c.n, " x ", c.k, " ", Name(c.dtype), ", ends ",
                      absl::StrJoin(c.ends, " "), c.across ? "" : ", lines along the sum");
}

// A gated unit's backward, of halves of one saved tensor: du = dh * v * (1 + relu(u)), dv = dh * u.
BackwardGraph Gated(const Case& c) {
  GraphBuilder b("gated");
  const auto input = [&](absl::string_view name, Shape shape, DType dtype) {
    return b.Input({dtype, std::move(shape)},
                   {.name = std::string(name), .kind = InputKind::kSaved, .alignment = 16});
  };
  const auto groups = static_cast<int64_t>(c.ends.size());
  const ValueId dy = input("dy", {c.rows, c.k}, c.dtype);
  ValueId w = input("w", c.across ? Shape{groups, c.k, c.n} : Shape{groups, c.n, c.k}, c.dtype);
  if (!c.across) w = b.Permute(w, {0, 2, 1});
  const ValueId ends = input("ends", {groups}, DType::kInt32);
  const ValueId both = input("both", {c.rows, 2 * c.n}, c.dtype);
  const auto half = [&](int64_t start) {
    return b.Add(
        Op::slice, {both},
        {{"axis", int64_t{1}}, {"start", start}, {"stop", start + c.n}, {"step", int64_t{1}}});
  };
  const ValueId u = half(0), v = half(c.n);
  const ValueId dh = b.Add(Op::grouped_matmul, {dy, w, ends});
  const ValueId one = b.Full(1, c.dtype), positive = b.Add(Op::relu, {u});
  const ValueId slope = b.Add(Op::add, {one, positive}), gated = b.Add(Op::mul, {dh, v});
  b.Output(b.Add(Op::mul, {gated, slope}), "du");
  b.Output(b.Add(Op::mul, {dh, u}), "dv");
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// Small whole numbers, whose sums are exact in any order.
std::vector<Values> WholeNumbers(const Case& c) {
  const auto groups = static_cast<int64_t>(c.ends.size());
  std::vector<Values> inputs;
  const auto fill = [&](int64_t count, int64_t step) {
    Values values(count);
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<double>(i * step % 5 - 2);
    inputs.push_back(std::move(values));
  };
  fill(c.rows * c.k, 7);
  fill(groups * c.k * c.n, 11);
  inputs.emplace_back(c.ends.begin(), c.ends.end());
  fill(c.rows * 2 * c.n, 13);
  return inputs;
}

TEST_CASE(
    "the epilogue of a grouped matmul finds its rows: one kernel gives what the product and a pass "
    "give, to the bit") {
  for (const Case& c :
       {Case{}, Case{.ends = {0, 100}}, Case{.ends = {100, 100}}, Case{.ends = {0, 0, 0}},
        Case{.ends = {100}}, Case{.ends = {1, 2, 3, 99}},  // groups of one row, rows behind
        Case{.ends = {60, 20, -5, 70}},                    // ends before the one before
        Case{.ends = {17, 33, 1000}},                      // beyond the rows
        Case{.rows = 300, .n = 264, .k = 72, .ends = {129, 129, 258, 299}},
        Case{.k = 8, .ends = {1, 2, 8}}, Case{.rows = 140, .ends = {5, 139}, .across = false},
        Case{.rows = 140, .ends = {70, 71}, .dtype = DType::kFp16}}) {
    INFO(Print(c));
    const BackwardGraph graph = Gated(c);
    RunSetup setup{.spec = Eager()};
    setup.host.compile.check = true;
    auto apart = RunOnHost(graph, WholeNumbers(c), setup);
    REQUIRE(apart.status().ToString() == "OK");
    REQUIRE(Epilogues(apart->planned.plan) == 1);
    setup.compile.epilogue_kernels = true;
    auto together = RunOnHost(graph, WholeNumbers(c), setup);
    REQUIRE(together.status().ToString() == "OK");
    REQUIRE(together->outputs.size() == 2);
    for (size_t o = 0; o < 2; ++o) CHECK(together->outputs[o] == apart->outputs[o]);
    const auto is_zero = [](double v) { return v == 0; };
    const bool none = std::all_of(c.ends.begin(), c.ends.end(), [](int32_t e) { return e <= 0; });
    const Values& dv = together->outputs[1];
    CHECK(std::all_of(dv.begin(), dv.end(), is_zero) == none);
  }
}

TEST_CASE("an epilogue follows rows in groups that nothing is added to, by its own feature") {
  const BackwardGraph graph = Gated({});
  CHECK(Epilogues(PlanWith(graph, Eager(), {}).plan) == 1);
  CHECK(Epilogues(PlanWith(graph, Eager(), {.disable = {"grouped_epilogues"}}).plan) == 0);
  CHECK(Epilogues(PlanWith(graph, Eager(), {.disable = {"matmul_epilogues"}}).plan) == 0);
  // The copy engine loads no lines that begin anywhere.
  CHECK(Epilogues(PlanWith(Gated({.k = 36}), Eager(), {}).plan) == 0);
  const Planned planned = PlanWith(graph, Eager(), {});
  for (const Group& group : planned.plan.groups) {
    const Call* fused = FusedCallOf(group);
    if (fused == nullptr) continue;
    CHECK(EpilogueProductOf(*fused)->groups.has_value());
    Call other = *fused;
    other.previous = ValueId{};
    CHECK_FALSE(EpilogueProductOf(other).has_value());
    other = *fused;
    other.operands.push_back({.shape = {100}, .strides = {1}});
    other.operands.push_back({.shape = {2, 136}, .strides = {136, 1}});
    CHECK_FALSE(EpilogueProductOf(other).has_value());
  }
}

TEST_CASE("the launch tells the copy engine of one matrix for each group, and reads the ends") {
  const Case c{.rows = 256, .n = 136, .k = 72, .ends = {100, 200, 256}};
  const Planned planned = PlanWith(Gated(c), Eager(), {});
  auto compiled =
      Compile(planned.graph, planned.plan, {.dialect = Dialect::kCuda, .epilogue_kernels = true});
  REQUIRE(compiled.status().ToString() == "OK");
  auto commands = BuildCommands(*compiled, 0);
  REQUIRE(commands.status().ToString() == "OK");
  REQUIRE(commands->launches.size() == 1);
  const Launch& launch = commands->launches[0];
  REQUIRE(launch.maps.size() == 2);
  const OperandMap &a = launch.maps[0], &b = launch.maps[1];
  CHECK((a.inner == 72 && a.outer == 256 && a.pitch == 72 && a.heads == 0));
  CHECK((b.inner == 136 && b.outer == 72 && b.pitch == 136 && b.heads == 3));
  CHECK(b.head_pitch == 72 * 136);
  // Two operands, the ends, the saved halves and two results.
  REQUIRE(launch.args.size() == 6);
  CHECK((launch.args[2].bytes == 12 && launch.args[2].alignment == 4 && !launch.args[2].written));
}

TEST_CASE("a kernel of groups with an epilogue compiles without a spill") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  for (const Case& c : {Case{.rows = 4096, .n = 768, .k = 2048, .ends = {1000, 4096}},
                        Case{.rows = 1000, .n = 72, .k = 64, .ends = {999}, .across = false}}) {
    INFO(Print(c));
    const Planned planned = PlanWith(Gated(c), Eager(), {});
    auto compiled =
        Compile(planned.graph, planned.plan, {.dialect = Dialect::kCuda, .epilogue_kernels = true});
    INFO(compiled.status());
    REQUIRE(compiled.ok());
    const std::vector<Kernel> kernels = DistinctKernels(compiled->kernels);
    REQUIRE(kernels.size() == 1);
    CHECK(absl::StrContains(kernels[0].function.statements, "rg_tiles_of_groups<"));
    auto object = CompileKernels(Dialect::kCuda, kernels, "sm_90a");
    INFO(object.status());
    REQUIRE(object.ok());
    REQUIRE(object->kernels.size() == 1);
    CHECK(object->kernels[0].spill_bytes == 0);
    CHECK(object->kernels[0].registers <= 168);
    CHECK_FALSE(absl::StrContains(object->log, "serialized"));
  }
}

}  // namespace
}  // namespace retrograd
