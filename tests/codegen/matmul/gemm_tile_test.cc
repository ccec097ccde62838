// The tiles that a GEMM kernel may have: what they declare, that each compiles and computes what
// the matmul and a pass do, which are refused, and which is chosen.
#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/gemm/gemm_candidates.h"
#include "fusion/ops/matmul/matmul_call.h"
#include "runtime/compiler/rtc.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/matmul_epilogues.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

constexpr int64_t kSharedBytes = int64_t{227} * 1024;

struct Operands {
  DType dtype = DType::kBf16;
  bool a_across = false, b_across = true;  // the operand's rows lie across the sum
};

// du = (dy w) * relu(u), kept by the host.
BackwardGraph Graph(int64_t m, int64_t n, int64_t k, const Operands& operands = {}) {
  GraphBuilder b("tile");
  const auto input = [&](absl::string_view name, Shape shape) {
    return b.Input({operands.dtype, std::move(shape)},
                   {.name = std::string(name), .kind = InputKind::kSaved, .alignment = 16});
  };
  ValueId dy = operands.a_across ? input("dy", {k, m}) : input("dy", {m, k});
  if (operands.a_across) dy = b.Permute(dy, {1, 0});
  ValueId w = operands.b_across ? input("w", {k, n}) : input("w", {n, k});
  if (!operands.b_across) w = b.Permute(w, {1, 0});
  const ValueId u = input("u", {m, n});
  b.Output(b.Add(Op::mul, {b.MatMul(dy, w), b.Add(Op::relu, {u})}), "du");
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// Every tile that kernels can be printed for, in clusters of one, two and four blocks.
std::vector<GemmTileFigure> Tiles() {
  std::vector<GemmTileFigure> tiles;
  for (int m = 64; m <= 512; m += 64) {
    for (int n = 64; n <= 512; n += 64) {
      const GemmTile tile{.m = m, .n = n, .stages = 2};
      if (!WhyNotTile(tile, kSharedBytes).empty()) continue;
      for (int cluster : {1, 2, 4}) tiles.push_back({.m = m, .n = n, .cluster = cluster});
    }
  }
  return tiles;
}

// A device whose GEMM kernels have this tile alone, at next to no price.
DeviceSpec With(const GemmTileFigure& tile) {
  DeviceSpec spec = EagerEpilogues({DType::kBf16, DType::kFp16}, 8, 4);
  spec.matmul_epilogues[0].tiles = {tile};
  return spec;
}

std::string Print(const GemmTileFigure& t) {
  return absl::StrCat(t.m, " x ", t.n, ", clusters of ", t.cluster);
}

const Call& FusedOf(const FusionPlan& plan) {
  for (const Group& group : plan.groups) {
    if (const Call* fused = FusedCallOf(group)) return *fused;
  }
  FAIL("no matmul has an epilogue");
  std::abort();
}

Kernel KernelFor(const BackwardGraph& graph, const GemmTileFigure& tile, Dialect dialect) {
  const Planned planned = PlanWith(graph, With(tile));
  auto compiled =
      Compile(planned.graph, planned.plan, {.dialect = dialect, .epilogue_kernels = true});
  INFO(compiled.status());
  REQUIRE(compiled.ok());
  REQUIRE(compiled->kernels.size() == 1);
  REQUIRE(compiled->kernels[0].launches.size() == 1);
  return compiled->kernels[0].launches[0];
}

TEST_CASE("there are tiles of several shapes, all within registers and shared memory") {
  std::vector<std::pair<int, int>> shapes;
  for (const GemmTileFigure& t : Tiles()) {
    if (t.cluster == 1) shapes.push_back({t.m, t.n});
  }
  CHECK(shapes == std::vector<std::pair<int, int>>{
                      {64, 64}, {64, 128}, {64, 256}, {128, 64}, {128, 128}, {192, 64}});
}

TEST_CASE("a kernel declares the shared memory of its tile, and has its clusters") {
  const BackwardGraph graph = Graph(1000, 520, 64);
  for (const GemmTileFigure& figure : Tiles()) {
    INFO(Print(figure));
    const Planned planned = PlanWith(graph, With(figure));
    const GemmTile tile = FusedOf(planned.plan).epilogue->tile;
    CHECK(tile.m == figure.m);
    CHECK(tile.n == figure.n);
    CHECK(tile.cluster() == figure.cluster);
    CHECK(absl::StrContains(planned.plan.Print(planned.graph), "tile=" + tile.Print()));
    const Kernel cuda = KernelFor(graph, figure, Dialect::kCuda);
    CHECK(cuda.staged_bytes == SharedBytes(tile) / 16 * 16);
    CHECK(cuda.staged_bytes <= kSharedBytes);
    CHECK(cuda.shared_bytes == 0);
    CHECK(cuda.cluster == figure.cluster);
    CHECK(cuda.blocks % figure.cluster == 0);
    CHECK(cuda.blocks / figure.cluster == ClustersOf(tile, 1000, 520));
    const Kernel host = KernelFor(graph, figure, Dialect::kHost);
    CHECK(host.shared_bytes == int64_t{2} * tile.m * tile.n);
  }
}

TEST_CASE("each tile's kernel gives what the product and a pass give") {
  for (const GemmTileFigure& figure : Tiles()) {
    if (figure.cluster != 2) continue;  // the host's blocks share no loads
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{264, 328, 24}, {64, 64, 8}}) {
      INFO(Print(figure) << ": " << m << " x " << n << " x " << k);
      const BackwardGraph graph = Graph(m, n, k);
      const std::vector<Values> inputs = RandomInputs(graph, 7);
      RunSetup setup{.spec = With(figure)};
      setup.plan.disable = {"thin_matmuls"};
      auto apart = RunOnHost(graph, inputs, setup);
      REQUIRE(apart.status().ToString() == "OK");
      setup.compile.epilogue_kernels = true;
      setup.host.compile.check = true;
      auto together = RunOnHost(graph, inputs, setup);
      REQUIRE(together.status().ToString() == "OK");
      REQUIRE(Epilogues(together->planned.plan) == 1);
      double largest = 0, error = 0;
      for (size_t i = 0; i < apart->outputs[0].size(); ++i) {
        largest = std::max(largest, std::fabs(apart->outputs[0][i]));
        error = std::max(error, std::fabs(apart->outputs[0][i] - together->outputs[0][i]));
      }
      CHECK(largest > 0);
      CHECK(error <= largest / 64);  // now and then one is rounded the other way
    }
  }
}

TEST_CASE("each tile's kernel compiles for sm_90a without a spill") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  std::vector<Kernel> kernels;
  for (const GemmTileFigure& figure : Tiles()) {
    // Every way in which operands lie, by turns.
    const size_t turn = kernels.size();
    const Operands operands{.dtype = turn % 5 == 0 ? DType::kFp16 : DType::kBf16,
                            .a_across = turn % 4 >= 2,
                            .b_across = turn % 2 == 1};
    kernels.push_back(KernelFor(Graph(1000, 520, 200, operands), figure, Dialect::kCuda));
  }
  auto object = CompileKernels(Dialect::kCuda, kernels, "sm_90a");
  INFO(object.status());
  REQUIRE(object.ok());
  CHECK(object->kernels.size() == kernels.size());
  for (const KernelResources& kernel : object->kernels) {
    const auto emitted = std::find_if(kernels.begin(), kernels.end(),
                                      [&](const Kernel& k) { return k.name == kernel.name; });
    REQUIRE(emitted != kernels.end());
    INFO(PrintHead(*emitted) << emitted->function.statements.substr(0, 200));
    CHECK(kernel.spill_bytes == 0);
    CHECK(kernel.registers <= 168);  // of 384 threads, before they trade registers
  }
  // Nothing that makes the tensor cores wait for the threads.
  CHECK_FALSE(absl::StrContains(object->log, "serialized"));
}

TEST_CASE("tiles that no kernel can have are refused with the reason") {
  const auto why = [](auto change) {
    GemmTile tile;
    change(tile);
    return WhyNotTile(tile, kSharedBytes);
  };
  CHECK(why([](GemmTile&) {}).empty());
  CHECK_THAT(why([](GemmTile& t) { t.m = 96; }), ContainsSubstring("boxes of 64"));
  CHECK_THAT(why([](GemmTile& t) { t.n = 192; }), ContainsSubstring("192 columns"));
  CHECK_THAT(why([](GemmTile& t) { t.k = 128; }), ContainsSubstring("a box holds 64"));
  CHECK_THAT(why([](GemmTile& t) { t.n = 256; }), ContainsSubstring("256 accumulators"));
  CHECK_THAT(why([](GemmTile& t) { t.m = 256; }), ContainsSubstring("at most 192"));
  CHECK_THAT(why([](GemmTile& t) { t.wide = 4; }), ContainsSubstring("at most two share"));
  CHECK_THAT(why([](GemmTile& t) { t.stages = 1; }), ContainsSubstring("loaded ahead"));
  CHECK_THAT(why([](GemmTile& t) { t.stages = 6; }), ContainsSubstring("shared memory"));
  CHECK(MostStages({}, kSharedBytes) == 5);
  CHECK(MostStages({.m = 64, .n = 64}, kSharedBytes) == 8);
  CHECK(MostStages({}, 48 << 10) == 0);
}

TEST_CASE("the plan checker refuses a tile that its kernel cannot have") {
  const Planned good = PlanWith(Graph(512, 512, 64), With({}));
  const auto refused = [&](auto change) {
    FusionPlan plan = good.plan;
    for (Group& group : plan.groups) {
      if (FusedCallOf(group) != nullptr) change(CallOf(group)->epilogue->tile);
    }
    return std::string(plan.Verify(good.graph).message());
  };
  CHECK_THAT(refused([](GemmTile& t) { t.m = 100; }), ContainsSubstring("P7"));
  CHECK_THAT(refused([](GemmTile& t) { t.n = 192; }), ContainsSubstring("P7"));
  CHECK_THAT(refused([](GemmTile& t) { t.k = 32; }), ContainsSubstring("P7"));
  CHECK_THAT(refused([](GemmTile& t) { t.m = 256; }), ContainsSubstring("registers"));
  CHECK_THAT(refused([](GemmTile& t) { t.tall = 3; }), ContainsSubstring("one or two blocks"));
  CHECK_THAT(refused([](GemmTile& t) { t.stages = 1; }), ContainsSubstring("nothing ahead"));
  CHECK_THAT(refused([](GemmTile& t) { t.stages = 6; }), ContainsSubstring("227 KiB"));
}

TEST_CASE("large products take the reference tile, small ones tiles that fill the SMs") {
  const DeviceSpec h200 = *LoadDeviceSpec("h200");
  const MatMulEpilogue& row = h200.matmul_epilogues[0];
  const auto best = [&](int64_t m, int64_t n) { return BestGemmTile(row, m, n, h200); };
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{98304, 2048},
                             {32768, 2048},
                             {8192, 4096},
                             {8192, 8192},
                             {4096, 3072},
                             {16384, 3072},
                             {8192, 2816}}) {
    INFO(m << " x " << n);
    CHECK(best(m, n).tile == GemmTile{});
    CHECK(best(m, n).time_ppm == 1'000'000);
  }
  const GemmCandidate small = best(1024, 1024);  // 64 of the reference tiles, for 132 SMs
  CHECK(small.tile.m * small.tile.n == 128 * 64);
  const auto figure = std::find_if(row.tiles.begin(), row.tiles.end(), [&](const auto& f) {
    return f.m == small.tile.m && f.n == small.tile.n;
  });
  REQUIRE(figure != row.tiles.end());
  CHECK(small.time_ppm == figure->factor_ppm / 2);  // half the elements in one wave
}

TEST_CASE("a device's tiles need a shape, a cluster, a factor and a source") {
  const auto text = ReadDeviceSpec("h200");
  REQUIRE(text.ok());
  const auto refused = [&](absl::string_view tile) {
    std::string changed = *text;
    const std::string anchor = "max_stores: 2";
    const size_t at = changed.find(anchor);
    REQUIRE(at != std::string::npos);
    changed.insert(at + anchor.size(), absl::StrCat("\n  tiles { ", tile, " }\n"));
    return std::string(ParseDeviceSpec(changed, "test").status().message());
  };
  CHECK(refused("rows: 64 columns: 64 cluster: 1 factor: 2 source: \"estimate\"").empty());
  CHECK_THAT(refused("columns: 64 cluster: 1 factor: 2 source: \"e\""),
             ContainsSubstring("rows is 0: a number from 1 to 1024"));
  CHECK_THAT(refused("rows: 64 columns: 64 cluster: 3 factor: 2 source: \"e\""),
             ContainsSubstring("1, 2 or 4 blocks"));
  CHECK_THAT(refused("rows: 64 columns: 64 cluster: 2 source: \"e\""), ContainsSubstring("factor"));
  CHECK_THAT(refused("rows: 64 columns: 64 cluster: 2 factor: 2"), ContainsSubstring("source"));
}

}  // namespace
}  // namespace retrograd
