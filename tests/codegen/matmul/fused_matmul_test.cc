// Kernels that multiply and make an epilogue of the product in one launch: what they compute, run
// through the host dialect, what they read, what is refused, and that the GPU's form of them
// compiles.
#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/translation_unit.h"
#include "fusion/device/device_numbers.h"
#include "fusion/ops/matmul/gemm_tile_legality.h"
#include "fusion/plan/split_epilogues.h"
#include "graph/reference/reference.h"
#include "runtime/compiler/arch.h"
#include "runtime/compiler/rtc.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/matmul_epilogues.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

// Epilogues wherever tiles could make one, at any price.
DeviceSpec Eager() { return EagerEpilogues({DType::kBf16, DType::kFp16}, 8, 4); }

struct Case {
  int64_t m = 256, n = 256, k = 64;
  DType dtype = DType::kBf16;
  bool a_across = false, b_across = true;  // the operand's rows lie across the sum
  bool column = false;                     // the epilogue also reads a row of column weights
  bool two = false;                        // and two tensors of the product's shape, and stores two
  bool wide = false;                       // and one in fp32
  int64_t batches = 0;                     // and column weights of each so many of the rows
};

std::string Print(const Case& c) {
  return absl::StrCat(c.m, " x ", c.n, " x ", c.k, " ", Name(c.dtype),
                      c.a_across ? " a across" : "", c.b_across ? " b across" : "",
                      c.column ? " column" : "", c.two ? " two" : "", c.wide ? " wide" : "",
                      " batches=", c.batches);
}

// dU = (dY W) * u * (1 - u) and the like, kept by the host.
BackwardGraph Graph(const Case& c) {
  GraphBuilder b("activation");
  const auto input = [&](absl::string_view name, Shape shape) {
    return b.Input({c.dtype, std::move(shape)},
                   {.name = std::string(name), .kind = InputKind::kSaved, .alignment = 16});
  };
  ValueId dy = c.a_across ? input("dy", {c.k, c.m}) : input("dy", {c.m, c.k});
  if (c.a_across) dy = b.Permute(dy, {1, 0});
  ValueId w = c.b_across ? input("w", {c.k, c.n}) : input("w", {c.n, c.k});
  if (!c.b_across) w = b.Permute(w, {1, 0});
  const ValueId u = input("u", {c.m, c.n});
  const ValueId product = b.MatMul(dy, w);
  ValueId du = b.Add(Op::mul, {product, b.Add(Op::relu, {u})});
  if (c.column) du = b.Add(Op::mul, {du, input("scale", {c.n})});
  if (c.batches > 0) {
    const ValueId rows = b.Reshape(du, {c.batches, c.m / c.batches, c.n});
    du = b.Reshape(b.Add(Op::mul, {rows, input("of_batches", {c.batches, 1, c.n})}), {c.m, c.n});
  }
  if (c.wide) {
    const ValueId weights =
        b.Input({DType::kFp32, {c.m, c.n}},
                {.name = "weights", .kind = InputKind::kSaved, .alignment = 16});
    du = b.Cast(b.Add(Op::mul, {b.Cast(du, DType::kFp32), weights}), c.dtype);
  }
  if (c.two) {
    const ValueId gate = input("gate", {c.m, c.n});
    b.Output(b.Add(Op::mul, {product, b.Add(Op::sub, {gate, u})}), "dgate");
  }
  b.Output(du, "du");
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

Planned PlanOf(const BackwardGraph& graph) { return PlanWith(graph, Eager()); }

CompiledPlan CompiledFor(Dialect dialect, const Planned& planned) {
  auto compiled =
      Compile(planned.graph, planned.plan, {.dialect = dialect, .epilogue_kernels = true});
  INFO(compiled.status());
  REQUIRE(compiled.ok());
  return *std::move(compiled);
}

TEST_CASE(
    "a product's epilogue finds its tile: one kernel gives what the product and a pass give, to "
    "the bit") {
  for (const Case& c :
       {Case{}, Case{.m = 136, .n = 392, .k = 24}, Case{.m = 8, .n = 8, .k = 8},
        Case{.m = 200, .n = 72, .k = 40, .a_across = true},
        Case{.m = 130, .n = 264, .k = 16, .b_across = false},
        Case{.m = 130, .n = 264, .k = 16, .dtype = DType::kFp16, .column = true},
        Case{.m = 128, .n = 128, .k = 32, .column = true, .two = true},
        Case{.m = 256, .n = 264, .k = 48, .wide = true},
        Case{.m = 264, .n = 136, .k = 32, .b_across = false, .column = true, .two = true},
        Case{.m = 264, .n = 136, .k = 32, .batches = 3},
        Case{.m = 256, .n = 128, .k = 32, .column = true, .batches = 4},
        Case{.m = 160, .n = 8, .k = 32, .column = true, .batches = 160}}) {
    INFO(Print(c));
    const BackwardGraph graph = Graph(c);
    const std::vector<Values> inputs = RandomInputs(graph, 7);
    RunSetup setup{.spec = Eager(), .plan = {.disable = {"thin_matmuls"}}};
    auto apart = RunOnHost(graph, inputs, setup);
    REQUIRE(apart.status().ToString() == "OK");
    REQUIRE(Epilogues(apart->planned.plan) == 1);
    setup.compile.epilogue_kernels = true;
    setup.host.compile.check = true;
    auto together = RunOnHost(graph, inputs, setup);
    REQUIRE(together.status().ToString() == "OK");
    REQUIRE(together->outputs.size() == apart->outputs.size());
    for (size_t o = 0; o < apart->outputs.size(); ++o) {
      REQUIRE(together->outputs[o].size() == apart->outputs[o].size());
      double least = 0, error = 0;
      for (size_t i = 0; i < apart->outputs[o].size(); ++i) {
        least = std::max(least, std::fabs(apart->outputs[o][i]));
        error = std::max(error, std::fabs(apart->outputs[o][i] - together->outputs[o][i]));
      }
      // The library may add the products up in another order: now and then one is rounded the other
      // way.
      CHECK(least > 0);
      CHECK(error <= least / 64);
    }
  }
}

TEST_CASE("a kernel that multiplies names its operands first, and how the copy engine finds them") {
  const Planned planned = PlanOf(Graph({.m = 512, .n = 384, .k = 64}));
  const CompiledPlan compiled = CompiledFor(Dialect::kCuda, planned);
  REQUIRE(Epilogues(compiled.plan) == 1);
  for (size_t g = 0; g < compiled.plan.groups.size(); ++g) {
    const Call* fused = FusedCallOf(compiled.plan.groups[g]);
    if (fused == nullptr) continue;
    REQUIRE(compiled.kernels[g].launches.size() == 1);
    const Kernel& kernel = compiled.kernels[g].launches[0];
    CHECK(kernel.head == KernelHead::kMultiplier);
    CHECK(kernel.parts.Has(PreludePart::kMultiplier));
    CHECK(absl::StrContains(kernel.function.statements, "rg_multiply<rg_bf16, 0, 1, 1, 2, 5>("));
    CHECK(kernel.args[0].value == fused->operands[0].value);
    CHECK(kernel.args[1].value == fused->operands[1].value);
    CHECK(kernel.blocks == int64_t{4} * 2 * 2);  // 4 rows of 2 pairs of tiles
    CHECK(kernel.staged_bytes <= int64_t{227} * 1024);
  }
}

TEST_CASE("what the copy engine cannot read, or tiles do not hold, is multiplied by a library") {
  const Planned planned = PlanOf(Graph({}));
  REQUIRE(Epilogues(planned.plan) == 1);
  MatMulCall good;
  KernelIr epilogue;
  for (const Group& group : planned.plan.groups) {
    if (const Call* fused = FusedCallOf(group)) {
      good = MatMulOf(*fused);
      epilogue = fused->epilogue->kernel.ir;
    }
  }
  CHECK(WhyNoTiles(good).empty());
  CHECK(WhyNotByTiles(epilogue, good.d.value).empty());
  const auto why = [&](auto change) {
    MatMulCall call = good;
    change(call);
    return WhyNoTiles(call);
  };
  CHECK_THAT(why([](MatMulCall& c) { c.in_dtype = c.out_dtype = DType::kFp32; }),
             ContainsSubstring("16 bits"));
  CHECK_THAT(why([](MatMulCall& c) { c.out_dtype = DType::kFp32; }), ContainsSubstring("16 bits"));
  CHECK_THAT(why([](MatMulCall& c) { c.batch = {2}; }), ContainsSubstring("batch"));
  CHECK_THAT(why([](MatMulCall& c) { c.accumulate = true; }), ContainsSubstring("added"));
  CHECK_THAT(why([](MatMulCall& c) { c.n = c.d.row_stride = 250; }),
             ContainsSubstring("packs of 8"));
  CHECK_THAT(why([](MatMulCall& c) { c.d.row_stride += 8; }),
             ContainsSubstring("one after the other"));
  CHECK_THAT(why([](MatMulCall& c) { c.a.row_stride = 65; }),
             ContainsSubstring("multiples of 16 bytes"));
  CHECK_THAT(why([](MatMulCall& c) { c.b.offset = 3; }),
             ContainsSubstring("multiples of 16 bytes"));
  CHECK_THAT(why([](MatMulCall& c) { c.m = int64_t{1} << 24; }), ContainsSubstring("32 bits"));
  // Nothing is promised of where this input begins.
  GraphBuilder b("unaligned");
  const ValueId dy =
      b.Input({DType::kBf16, {256, 64}}, {.name = "dy", .kind = InputKind::kTangent});
  const ValueId w =
      b.Input({DType::kBf16, {64, 256}}, {.name = "w", .kind = InputKind::kParameter});
  b.Output(b.Add(Op::relu, {b.MatMul(dy, w)}), "d");
  auto graph = b.Build();
  REQUIRE(graph.ok());
  CHECK(Epilogues(PlanOf(*graph).plan) == 0);
}

TEST_CASE("a device without such kernels refuses the plan, and takes it with its halves apart") {
  const Planned planned = PlanOf(Graph({}));
  REQUIRE(Epilogues(planned.plan) == 1);
  const auto refused = Compile(planned.graph, planned.plan, {.dialect = Dialect::kCuda});
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.status().message()),
             ContainsSubstring("plan without matmul_epilogues"));
  auto compiled = Compile(planned.graph, SplitEpilogues(planned.plan), {.dialect = Dialect::kCuda});
  REQUIRE(compiled.ok());
  CHECK(compiled->plan.groups.size() == planned.plan.groups.size() + 1);
  for (const Kernel& kernel : DistinctKernels(compiled->kernels)) {
    CHECK(kernel.head == KernelHead::kPlain);
    CHECK(kernel.parts.empty());
  }
}

TEST_CASE(
    "the multiplying kernel compiles for the architecture whose instructions it takes, without a "
    "spill") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  for (const Case& c : {Case{.m = 4096, .n = 2048, .k = 512}, Case{.m = 1000,
                                                              .n = 520,
                                                              .k = 200,
                                                              .dtype = DType::kFp16,
                                                              .a_across = true,
                                                              .b_across = false,
                                                              .column = true,
                                                              .two = true}}) {
    INFO(Print(c));
    const CompiledPlan compiled = CompiledFor(Dialect::kCuda, PlanOf(Graph(c)));
    const std::vector<Kernel> kernels = DistinctKernels(compiled.kernels);
    // Their instructions are one architecture's own.
    CHECK(ArchFor({}, "sm_90") == "sm_90");
    CHECK(ArchFor(kernels, "sm_90a") == "sm_90a");
    CHECK(ArchFor(kernels, "gfx942") == "gfx942");
    auto object = CompileKernels(Dialect::kCuda, kernels, ArchFor(kernels, "sm_90"));
    INFO(object.status());
    REQUIRE(object.ok());
    int multipliers = 0;
    for (const KernelResources& kernel : object->kernels) {
      const auto emitted = std::find_if(kernels.begin(), kernels.end(),
                                        [&](const Kernel& k) { return k.name == kernel.name; });
      REQUIRE(emitted != kernels.end());
      if (emitted->head != KernelHead::kMultiplier) continue;
      ++multipliers;
      CHECK(kernel.spill_bytes == 0);
      CHECK(kernel.registers <= 168);
    }
    CHECK(multipliers == 1);
    // Nothing that makes the tensor cores wait for the threads.
    CHECK_FALSE(absl::StrContains(object->log, "serialized"));
  }
}

}  // namespace
}  // namespace retrograd
