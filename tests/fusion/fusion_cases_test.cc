// Backward graphs on which other compilers fused too much or too little, each in both directions: a
// planner that fuses whatever it can fails, and so does one that never fuses. What is right follows
// from arithmetic on bytes, registers and launches that stands at each case; docs/fusion-cases.md
// tells the cases. Sizes are real ones; nothing is executed.
#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fusion/kernel/build/build.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/plans/fusion_cases.h"

namespace retrograd {
namespace {

DeviceSpec H200() {
  auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.status().ToString() == "OK");
  return *spec;
}

// Whose blocks share no rows: each has all columns of its rows.
DeviceSpec BlocksAlone() {
  DeviceSpec spec = H200();
  spec.row_cluster_blocks = 1;
  return spec;
}

// The op that makes an output of the graph.
NodeId Maker(const BackwardGraph& g, absl::string_view output) {
  for (const GraphOutput& out : g.outputs()) {
    if (out.name == output && out.value) return BehindViews(g, *out.value).node;
  }
  FAIL("no output " << output);
  return NodeId{};
}

// Each case is about which ops share a kernel: kernels that only share a launch, and matmuls in one
// call, would hide that.
PlanOptions KernelsAlone() {
  PlanOptions options{.decisions = false};
  options.disable = {"horizontal", "merged_matmuls"};
  return options;
}

// A plan that verified, spills nowhere by prediction and came out the same twice.
class CasePlan {
 public:
  explicit CasePlan(const BackwardGraph& graph, const DeviceSpec& device = H200(),
                    const PlanOptions& options = KernelsAlone()) {
    auto planned = PlanFusion(graph, device, options);
    REQUIRE(planned.status().ToString() == "OK");
    planned_ = *std::move(planned);
    CHECK(plan().Verify(planned_.graph).ToString() == "OK");
    for (const Group& group : groups()) {
      const KernelBody* kernel = KernelOf(group);
      if (kernel != nullptr) CHECK(kernel->spill_bytes == 0);
    }
    CHECK(PlanFusion(graph, device, options)->plan == plan());
  }

  const FusionPlan& plan() const { return planned_.plan; }
  const PlanSummary& summary() const { return plan().summary; }
  const std::vector<Group>& groups() const { return plan().groups; }
  const BackwardGraph& graph() const { return planned_.graph; }

  // The kernel that makes an output.
  const Group& Of(absl::string_view output) const { return groups()[Place(output)]; }
  const KernelBody& Kernel(absl::string_view output) const { return *KernelOf(Of(output)); }
  bool Together(absl::string_view a, absl::string_view b) const { return Place(a) == Place(b); }

  // Time over that of moving so many bytes at the device's bandwidth.
  double OverFloor(int64_t bytes, const DeviceSpec& device = H200()) const {
    const double floor_ps = 1e12 * static_cast<double>(bytes) / device.hbm_bytes_per_s;
    return static_cast<double>(summary().price_ps) / floor_ps;
  }

 private:
  uint32_t Place(absl::string_view output) const {
    return Index(plan().group_of[Index(Maker(graph(), output))]);
  }
  Planned planned_;
};

using Outputs = std::pair<absl::string_view, absl::string_view>;

// The plan in which the ops of each two outputs must, or must not, share a kernel.
absl::StatusOr<Planned> Forced(const BackwardGraph& graph, const std::vector<Outputs>& pairs,
                               bool together, const DeviceSpec& device = H200()) {
  auto lowered = Lower(graph);
  REQUIRE(lowered.status().ToString() == "OK");
  PlanOptions options = KernelsAlone();
  for (const auto& [a, b] : pairs) {
    options.pairs.push_back(
        {.a = Maker(*lowered, a), .b = Maker(*lowered, b), .together = together});
  }
  return PlanFusion(graph, device, options);
}

// What the plan costs with two outputs forced together or apart, over what it costs freely; nullopt
// if no plan is so.
std::optional<double> CostOfForcing(const BackwardGraph& graph, absl::string_view a,
                                    absl::string_view b, bool together,
                                    const DeviceSpec& device = H200()) {
  auto forced = Forced(graph, {{a, b}}, together, device);
  if (!forced.ok()) return std::nullopt;
  auto free = PlanFusion(graph, device, KernelsAlone());
  return static_cast<double>(forced->plan.summary.cost_ps) /
         static_cast<double>(free->plan.summary.cost_ps);
}

int64_t Matrix(Extent e, DType dtype = DType::kBf16) {
  return e.rows * e.columns * SizeBytes(dtype);
}

// --- the column sums of a vision transformer beside a norm's backward ----------------------------

TEST_CASE("a column sum of what a norm's backward reads or makes joins its kernel") {
  const Extent vit = {.rows = 256 * 197, .columns = 768};  // ViT-B, 256 images
  // Apart, dy would be read a second time: a third more traffic.
  const CasePlan input(LayerNormWithSums(vit, SiblingOf::kNormInput, 1));
  CHECK(input.Together("dx", "sum0"));
  CHECK(input.OverFloor(3 * Matrix(vit)) < 1.2);
  // Apart, dx would be stored unrounded for the sums, and each would read it again.
  const CasePlan result(LayerNormWithSums(vit, SiblingOf::kNormResult, 3));
  for (int k = 0; k < 3; ++k) CHECK(result.Together("dx", absl::StrCat("sum", k)));
  CHECK(result.OverFloor(6 * Matrix(vit)) < 1.2);  // with the waits between batches of rows
}

TEST_CASE("a column sum of a tensor that the norm's backward does not read keeps its own kernel") {
  // Joining saves a launch and its finalize (1.9 us of some 490) and no traffic: less than any
  // prediction can tell, for an accumulator and a load more in every thread.
  const CasePlan lean(LayerNormWithSums({131072, 2048}, SiblingOf::kOtherTensor, 3));
  for (int k = 0; k < 3; ++k) CHECK_FALSE(lean.Together("dx", absl::StrCat("sum", k)));
  CHECK(lean.Kernel("sum0").schedule.kind == Template::kColumnReduction);
}

TEST_CASE("column sums whose accumulators exceed the register file are not kept beside rows") {
  // 8 sums x 16384 columns x 4 B = 512 KiB of accumulators; an SM has 256 KiB of registers.
  const Extent wide = {.rows = 16384, .columns = 16384};
  const CasePlan plan(LayerNormWithSums(wide, SiblingOf::kNormResult, 8), BlocksAlone());
  constexpr int64_t kRegisterFile = 256 << 10;  // bytes, of an SM
  int64_t kept = 0;
  for (int k = 0; k < 8; ++k) {
    if (plan.Kernel(absl::StrCat("sum", k)).schedule.kind == Template::kRowColumn)
      kept += wide.columns * SizeBytes(DType::kFp32);
  }
  CHECK(kept < kRegisterFile / 2);  // the rows that are under way want registers as well
  CHECK(plan.groups().size() == 2);
  // Nor does each op or sum go alone: dy, x, eight t and dx once, dy and x again, or little more.
  // Few threads with much under way compute a part of the time in which nothing is loaded, and most
  // of what is read again has left the caches: the t pass through them in between.
  int64_t moved = 0;
  for (const Group& group : plan.groups()) moved += group.read_bytes + group.written_bytes;
  CHECK(moved < 15.1 * Matrix(wide));
  CHECK(plan.OverFloor(13 * Matrix(wide)) < 1.62);
  // Blocks that share rows leave each fewer sums, and are planned where that costs no more.
  const CasePlan shared(LayerNormWithSums(wide, SiblingOf::kNormResult, 8));
  CHECK(shared.summary().cost_ps <= plan.summary().cost_ps);
}

// --- pytorch#179423: a norm's backward that collects column sums ---------------------------------

TEST_CASE("up to eight scale gradients share one pass with a narrow norm's backward") {
  const Extent golf = {.rows = 98304, .columns = 512};
  for (const int sums : {2, 4, 8}) {
    INFO(sums << " sums");
    const CasePlan plan(RmsNormWithScaleSums(golf, sums));
    for (int k = 0; k < sums; ++k) CHECK(plan.Together("dx", absl::StrCat("dscale", k)));
    // A good schedule was measured at 1.01 of the traffic's floor, the wrong one at 10.9; batches
    // of rows that wait for memory are priced at up to a seventh.
    CHECK(plan.OverFloor((4 + sums) * Matrix(golf)) < 1.2);
  }
}

TEST_CASE(
    "eight scale gradients are separated from a norm whose rows leave no registers for them") {
  // 8 x 8192 and 8 x 16384 accumulators of 4 B: the whole register file, or twice that.
  for (const Extent wide : {Extent{16384, 8192}, Extent{8192, 16384}}) {
    INFO(wide.columns << " columns");
    const CasePlan plan(RmsNormWithScaleSums(wide, 8), BlocksAlone());
    for (const Group& group : plan.groups()) {
      const auto& kernel = *KernelOf(group);
      if (kernel.schedule.kind != Template::kRowColumn) continue;
      int64_t sums = 0;
      for (const ValueId v : group.outputs) sums += plan.graph().type(v).shape.size() == 1;
      CHECK(sums * wide.columns * 4 < 4 * H200().registers_per_sm);
    }
    CHECK(plan.groups().size() > 1);
    // Separated once: dy, x, the residual and eight t, dx written, dy and x again for the norm's
    // mean, of which caches have lost the most where columns are 16384.
    CHECK(plan.groups().size() <= 3);
    CHECK(plan.OverFloor(14 * Matrix(wide)) < 1.59);
    const CasePlan shared(RmsNormWithScaleSums(wide, 8));
    CHECK(shared.summary().cost_ps <= plan.summary().cost_ps);
  }
  // Two sums of the same norms fit and stay.
  const CasePlan two(RmsNormWithScaleSums({16384, 8192}, 2));
  CHECK(two.groups().size() == 1);
}

// --- pytorch#168209: two norms' backward ---------------------------------------------------------

TEST_CASE("two norms' backward that share only the weight stay apart, each with its own dw") {
  for (const Extent e : {Extent{98304, 512}, Extent{16384, 4096}, Extent{16384, 8192}}) {
    INFO(e.rows << " x " << e.columns);
    const BackwardGraph graph = TwoRmsNorms(e, NormsShare::kWeight);
    const CasePlan plan(graph);
    CHECK_FALSE(plan.Together("dx0", "dx1"));
    CHECK(plan.Together("dx0", "dw0"));
    CHECK(plan.Together("dx1", "dw1"));
    const std::optional<double> together = CostOfForcing(graph, "dx0", "dx1", true);
    if (together) CHECK(*together > 1);
  }
}

TEST_CASE("two norms' backward of the same x share one pass") {
  // One pass reads x and two dy and writes dx: 8 B an element. Apart, x comes twice and the first
  // dx is stored unrounded and read back: 18 B.
  for (const Extent e : {Extent{98304, 512}, Extent{16384, 4096}, Extent{16384, 8192}}) {
    INFO(e.rows << " x " << e.columns);
    const BackwardGraph graph = TwoRmsNorms(e, NormsShare::kInput);
    const CasePlan plan(graph);
    CHECK(plan.groups().size() == 1);
    CHECK(plan.OverFloor(4 * Matrix(e)) < 1.2);
    CHECK(CostOfForcing(graph, "dw0", "dw1", false).value_or(2) > 1.15);
  }
}

// --- pytorch#185814: rows at once and splits -----------------------------------------------------

TEST_CASE("dx and dw of a norm draw most of the bandwidth at every width and height") {
  for (const int64_t columns : {256, 512, 1024, 2048, 4096, 8192, 16384}) {
    for (const int64_t rows : {16384, 131072}) {
      const Extent e = {rows, columns};
      if (Matrix(e) < 32 << 20) continue;  // launches and first copies, not bandwidth
      INFO(rows << " x " << columns);
      const CasePlan plan(RmsNormBackward(e));
      CHECK(plan.OverFloor(3 * Matrix(e)) < 1 / 0.6);
    }
  }
}

TEST_CASE("a block takes fewer rows at once as they get wider, however many there are") {
  auto at_once = [](int64_t columns) {
    const CasePlan plan(RmsNormBackward({131072, columns}));
    const Schedule& s = plan.Kernel("dx").schedule;
    return int64_t{s.rows_per_block} * s.rows_per_thread;
  };
  CHECK(at_once(512) >= 4);
  CHECK(at_once(16384) <= 2);  // four rows of x and dy alone would fill an SM's registers twice
}

TEST_CASE("a norm of few thousand rows is not split so far that partial sums cost what it saves") {
  for (const int64_t columns : {512, 4096, 16384}) {
    const CasePlan plan(RmsNormBackward({4096, columns}));
    INFO(columns << " columns");
    REQUIRE(plan.groups().size() == 1);
    const KernelBody& kernel = plan.Kernel("dx");
    CHECK(kernel.schedule.blocks * 10 >= H200().sms * 9);  // hardly an SM stands idle
    // Partial sums are written and read back.
    CHECK(2 * plan.groups()[0].workspace_bytes < 3 * Matrix({4096, columns}) / 5);
  }
}

// --- pytorch#166938, #186370: dx and dw in one kernel or two -------------------------------------

TEST_CASE("dx and dw of a square norm share a kernel from 4096 on, and by far") {
  for (const int64_t n : {4096, 5120, 6144, 8192}) {
    INFO(n);
    const BackwardGraph graph = RmsNormBackward({n, n});
    CHECK(CasePlan(graph).Together("dx", "dw"));
    CHECK(CostOfForcing(graph, "dx", "dw", false).value_or(2) > 1.2);
  }
}

TEST_CASE("the row sums and the column sums of a few wide rows are two kernels") {
  // One kernel would use as many SMs as there are rows, park partial sums of 8 B for every row and
  // column to save a read of 4 B, and need a finalize launch. dx may stand in either. (With eight
  // rows both ways cost the same. Blocks that share rows are more.)
  for (const int64_t rows : {2, 4}) {
    INFO(rows << " rows");
    const BackwardGraph graph = RmsNormBackward({rows, 16384});
    const CasePlan plan(graph, BlocksAlone());
    CHECK(plan.groups().size() == 2);
    const Schedule& schedule = plan.Kernel("dw").schedule;
    // Each thread adds up two rows alone; four are columns of a reduction.
    CHECK(schedule.unrolled == (rows == 2));
    CHECK(schedule.kind == (rows == 2 ? Template::kPointwise : Template::kColumnReduction));
    CHECK(schedule.blocks > 4 * rows);
    CHECK(CasePlan(graph).summary().cost_ps <= plan.summary().cost_ps);
  }
}

TEST_CASE("one kernel for dx and dw saves less where a cache holds x and dy, more as they grow") {
  auto gain_ps = [](int64_t n, NormOperands operands) {
    const BackwardGraph graph = RmsNormBackward({n, n}, operands);
    auto together = Forced(graph, {{"dx", "dw"}}, true);
    auto apart = Forced(graph, {{"dx", "dw"}}, false);
    REQUIRE(together.ok());
    REQUIRE(apart.ok());
    return apart->plan.summary.price_ps - together->plan.summary.price_ps;
  };
  const int64_t small = gain_ps(1024, NormOperands::kInputs);
  const int64_t cached = gain_ps(1024, NormOperands::kMadeHere);
  // Few rows: mostly launches. No more than what prices are uncertain by, 0.4 us.
  CHECK(cached < small + 400'000);
  // What is won is a second read of x and dy: it grows with the area, launches do not.
  CHECK(gain_ps(4096, NormOperands::kInputs) > 8 * small);
  CHECK(gain_ps(8192, NormOperands::kMadeHere) > 8 * gain_ps(2048, NormOperands::kMadeHere));
}

// --- tensorflow#57829: arithmetic under a broadcast ----------------------------------------------

TEST_CASE("fifty cheap ops on a mask that 512 positions share are evaluated once by each thread") {
  // 50 ops an element at 30e12 ops/s take 1.7 ps; reading and writing two bytes each 0.9 ps.
  const CasePlan fused(BroadcastMask(16, 512, 1024, 50));
  REQUIRE(fused.groups().size() == 1);
  CHECK(fused.Kernel("dx").schedule.turns > 4);
  CHECK(fused.OverFloor(2 * 2 * 16 * 512 * 1024) < 1.6);  // 7.6 us of traffic, a launch
  CHECK(CasePlan(BroadcastMask(16, 1, 1024, 50)).groups().size() == 1);
  // A mask of two ops is not worth a launch.
  CHECK(CasePlan(BroadcastMask(16, 512, 1024, 2)).groups().size() == 1);
}

TEST_CASE("the plan checker refuses threads that leave out rows, and turns where there are none") {
  const BackwardGraph graph = BroadcastMask(16, 512, 1024, 50);
  const auto with_turns = [](const CasePlan& good, int turns) {
    FusionPlan plan = good.plan();
    KernelOf(plan.groups.back())->schedule.turns = turns;
    return plan;
  };
  const CasePlan by_rows(graph);
  const int turns = by_rows.Kernel("dx").schedule.turns;
  CHECK(with_turns(by_rows, turns).Verify(by_rows.graph()).ok());
  for (int wrong : {0, turns / 2}) {
    const std::string why(with_turns(by_rows, wrong).Verify(by_rows.graph()).message());
    INFO(wrong << " turns: " << why);
    CHECK(absl::StrContains(why, wrong == 0 ? "out of range" : "leaves out rows"));
  }
  FusionPlan together = by_rows.plan();
  KernelOf(together.groups.back())->schedule.rows_per_thread = turns + 1;
  CHECK(absl::StrContains(together.Verify(by_rows.graph()).message(), "leaves out rows"));
  together = with_turns(by_rows, 1);
  KernelOf(together.groups.back())->schedule.rows_per_thread = 2;
  CHECK(absl::StrContains(together.Verify(by_rows.graph()).message(), "where it has one"));
  const CasePlan norm(RmsNormBackward({4096, 4096}));
  const std::string why(with_turns(norm, 2).Verify(norm.graph()).message());
  CHECK(absl::StrContains(why, "where no points are passed"));
}

TEST_CASE("an expensive scale of the columns is computed once, unless the rows are few") {
  // erf takes 25 instructions: 10 of them for each of 98304 rows take ten times what memory takes.
  const Extent tall = {.rows = 98304, .columns = 1024};
  const CasePlan stored(BroadcastScale(tall, 10));
  CHECK(stored.groups().size() == 2);
  CHECK(stored.OverFloor(2 * Matrix(tall)) < 1.15);
  CHECK(CasePlan(BroadcastScale({16, 1024}, 10)).groups().size() == 1);
}

TEST_CASE("a cast that two kernels read is done twice; ten erf are done once and stored") {
  const int64_t elements = int64_t{2048} * 64 * 1024;
  // Read twice in bf16: 4 B an element. Stored in fp32 for the second kernel: 10 B.
  const CasePlan cheap(TwoReadersOfOne(2048, 64, 1024, 0));
  CHECK_FALSE(cheap.Together("sum0", "sum1"));
  CHECK(cheap.summary().recomputed_ops == 1);
  CHECK(cheap.OverFloor(4 * elements) < 1.2);
  // Ten erf take 8.6 ps an element; storing and loading 8 B takes 1.8 ps.
  const CasePlan dear(TwoReadersOfOne(2048, 64, 1024, 10));
  CHECK_FALSE(dear.Together("sum0", "sum1"));
  CHECK(dear.summary().recomputed_ops == 0);
  CHECK(dear.summary().bytes > 10 * elements);
}

// --- openxla#2201: memory ------------------------------------------------------------------------

PlanOptions Ceiling(int64_t bytes) {
  PlanOptions options = KernelsAlone();
  options.max_memory_bytes = bytes;
  return options;
}

TEST_CASE("under a ceiling what was stored is computed again, for more time and never for less") {
  const int64_t elements = int64_t{2048} * 64 * 1024;
  const BackwardGraph graph = TwoReadersOfOne(2048, 64, 1024, 4);  // t: 4 B, x: 2 B an element
  const CasePlan free(graph);
  CHECK(free.summary().peak_bytes > 6 * elements);
  CHECK(free.summary().recomputed_ops == 0);
  const int64_t ceiling = 3 * elements;
  const CasePlan low(graph, H200(), Ceiling(ceiling));
  CHECK(low.summary().peak_bytes <= ceiling);
  CHECK(low.summary().recomputed_ops > 0);
  CHECK(low.summary().price_ps > free.summary().price_ps);
  // A ceiling that the fastest plan obeys changes nothing.
  const CasePlan high(graph, H200(), Ceiling(free.summary().peak_bytes));
  CHECK(high.plan() == free.plan());
}

TEST_CASE("a ceiling that another order of the kernels obeys costs no time") {
  const BackwardGraph graph = ScaledBranches({65536, 1024}, 6, BranchesRead::kTheirOwn);
  const int64_t t = Matrix({65536, 1024});
  const CasePlan free(graph);
  const CasePlan low(graph, H200(), Ceiling(free.summary().peak_bytes - 4 * t));
  CHECK(low.summary().peak_bytes <= free.summary().peak_bytes - 4 * t);
  CHECK(low.summary().price_ps == free.summary().price_ps);
}

TEST_CASE("a ceiling below what the inputs take is refused with the least peak found") {
  const int64_t elements = int64_t{2048} * 64 * 1024;
  const BackwardGraph graph = TwoReadersOfOne(2048, 64, 1024, 4);
  const auto refused = PlanFusion(graph, H200(), Ceiling(elements));
  REQUIRE(refused.status().code() == absl::StatusCode::kResourceExhausted);
  const CasePlan least(graph, H200(), Ceiling(3 * elements));
  const std::string bytes = absl::StrCat(least.summary().peak_bytes);
  CHECK(refused.status().message().find(bytes) != absl::string_view::npos);
}

TEST_CASE("branches that read one tensor are made by one kernel when memory is free") {
  // One read of x and six writes: 7 passes. A kernel each: 12.
  const CasePlan free(ScaledBranches({65536, 1024}, 6, BranchesRead::kOneTensor));
  CHECK(free.groups().size() == 7);  // six matmuls
}

TEST_CASE(
    "under a ceiling branches that read one tensor are made in turns, a few more at a time if it "
    "is higher") {
  const BackwardGraph graph = ScaledBranches({65536, 1024}, 6, BranchesRead::kOneTensor);
  const CasePlan free(graph);
  const int64_t t = Matrix({65536, 1024});
  size_t kernels = free.groups().size();
  int64_t price_ps = free.summary().price_ps;
  // Six at once; then three, two and one of them may be alive, beside the small gradients that are
  // there by then.
  for (const int64_t fewer : {3, 4, 5}) {
    const int64_t ceiling = free.summary().peak_bytes - fewer * t + (1 << 20);
    INFO(fewer << " fewer");
    const auto low = PlanFusion(graph, H200(), Ceiling(ceiling));
    REQUIRE(low.status().ToString() == "OK");
    CHECK(low->plan.Verify(low->graph).ToString() == "OK");
    CHECK(low->plan.summary.peak_bytes <= ceiling);
    CHECK(low->plan.groups.size() > kernels);
    CHECK(low->plan.summary.price_ps > price_ps);
    CHECK(PlanFusion(graph, H200(), Ceiling(ceiling))->plan == low->plan);
    CHECK_FALSE(low->separated.empty());
    kernels = low->plan.groups.size();
    price_ps = low->plan.summary.price_ps;
  }
}

TEST_CASE("a plan that a ceiling separated says so for each pair") {
  const BackwardGraph graph = ScaledBranches({65536, 1024}, 6, BranchesRead::kOneTensor);
  PlanOptions options = Ceiling(CasePlan(graph).summary().peak_bytes - 4 * Matrix({65536, 1024}));
  options.decisions = true;
  const auto low = PlanFusion(graph, H200(), options);
  REQUIRE(low.status().ToString() == "OK");
  for (const PairChoice& pair : low->separated) {
    CHECK(low->plan.group_of[Index(pair.a)] != low->plan.group_of[Index(pair.b)]);
    const auto says = [&](const Decision& d) {
      return d.limit == "memory" && !d.together && d.a == std::vector{pair.a} &&
             d.b == std::vector{pair.b};
    };
    const auto& decisions = low->plan.decisions;
    CHECK(std::any_of(decisions.begin(), decisions.end(), says));
  }
}

// --- every case ----------------------------------------------------------------------------------

TEST_CASE("the plans of all cases verify and spill nowhere on every device") {
  for (const std::string& name : DeviceSpecNames()) {
    INFO(name);
    const DeviceSpec device = *LoadDeviceSpec(name);
    CasePlan(LayerNormWithSums({16384, 16384}, SiblingOf::kNormResult, 3), device);
    CasePlan(RmsNormWithScaleSums({98304, 512}, 8), device);
    CasePlan(RmsNormWithScaleSums({16384, 8192}, 8), device);
    CasePlan(TwoRmsNorms({16384, 4096}, NormsShare::kInput), device);
    CasePlan(RmsNormBackward({8, 16384}), device);
    CasePlan(BroadcastMask(16, 512, 1024, 50), device);
    CasePlan(TwoReadersOfOne(2048, 64, 1024, 10), device);
  }
}

TEST_CASE("narrow rows: dx and dw of 128 columns share one pass") {
  CHECK(CasePlan(RmsNormBackward({131072, 128})).OverFloor(3 * Matrix({131072, 128})) < 1 / 0.6);
}

TEST_CASE("two ops that share only a tensor that they read share one kernel") {
  CHECK(CasePlan(TwoScalingsOfOne({16384, 4096})).groups().size() == 1);
}

TEST_CASE("no choice about pairs is cheaper than the free plan: wide column sums") {
  const BackwardGraph graph = LayerNormWithSums({16384, 16384}, SiblingOf::kNormResult, 3);
  auto forced = Forced(graph, {{"dx", "sum0"}, {"sum0", "sum1"}, {"sum1", "sum2"}}, true);
  REQUIRE(forced.status().ToString() == "OK");
  CHECK(forced->plan.summary.cost_ps >= CasePlan(graph).summary().cost_ps);
}

TEST_CASE("no choice about pairs is cheaper than the free plan: costly partial sums") {
  DeviceSpec device = H200();
  device.cache_bytes_per_s /= 10;
  const BackwardGraph graph = RmsNormBackward({256, 4096});
  CHECK(CostOfForcing(graph, "dx", "dw", false, device).value_or(1) >= 1);
}

}  // namespace
}  // namespace retrograd
