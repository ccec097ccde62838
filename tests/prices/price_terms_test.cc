// A price is what its printed terms add up to, and every number of a device spec that a price is
// made of is in one.
#include "fusion/cost/price_terms.h"
#include "fusion/device/device_spec.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/cost/kernel_work.h"
#include "fusion/device/device_numbers.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/row_walks.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/matmul/matmul_cost.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/kernel_ir_examples.h"
#include "tests/support/plans/convolution_gradient.h"
#include "tests/support/plans/matmul_epilogues.h"
#include "tests/support/plans/plan_of.h"

namespace retrograd {
namespace {

// The spec with one number times `factor`; nullopt where that makes no device.
std::optional<DeviceSpec> Scaled(const std::string& name, const DeviceNumber& number,
                                 double factor) {
  const auto text = ReadDeviceSpec(name);
  REQUIRE(text.ok());
  const auto changed = WithDeviceNumbers(*text, name, {{number.name, number.value * factor}});
  if (!changed.ok()) return std::nullopt;
  auto spec = ParseDeviceSpec(*changed, name);
  return spec.ok() ? std::optional(*std::move(spec)) : std::nullopt;
}

BackwardGraph Model(const std::string& name) {
  auto graph = BuildModel(name);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

std::string Print(absl::Span<const Term> terms) {
  std::string text;
  for (const Term& t : terms) absl::StrAppend(&text, t.name, " ", t.ps, t.binds ? "*" : "", ", ");
  return text;
}

using Seen = std::map<std::string, int>;

// "" if all terms that count are the price, and one of those that overlap binds, if there are any.
std::string WhyWrong(absl::Span<const Term> terms, int64_t price_ps, Seen& seen) {
  int overlapping = 0, binding = 0;
  bool positive = true;
  for (const Term& term : terms) {
    ++seen[term.name];
    positive = positive && term.ps > 0;
    if (!Overlaps(term)) continue;
    ++overlapping;
    binding += term.binds;
  }
  const bool right = SumOf(terms) == price_ps && positive && binding == (overlapping > 0 ? 1 : 0);
  return right ? "" : absl::StrCat(Print(terms), "priced ", price_ps);
}

void CheckSum(absl::Span<const Term> terms, int64_t price_ps, Seen& seen) {
  CHECK(WhyWrong(terms, price_ps, seen) == "");
}

void CheckPlan(const Planned& planned, Seen& seen) {
  int64_t all = 0;
  for (const Group& group : planned.plan.groups) {
    all += group.price_ps;
    if (AliasOf(group) != nullptr) {
      CHECK(group.price_ps == 0);
      continue;
    }
    CheckSum(group.terms, group.price_ps, seen);
    if (const KernelLaunch* launch = SharedLaunchOf(group)) {
      for (const auto& member : launch->members) CheckSum(member.terms, member.price_ps, seen);
    }
  }
  CHECK(all == planned.plan.summary.price_ps);
  for (const Decision& decision : planned.plan.decisions) {
    for (const auto& other : decision.alternatives) CheckSum(other.terms, other.price_ps, seen);
  }
}

constexpr const char* kModels[] = {"golf_tiny",
                                   "gpt2_tiny_h200",
                                   "llama_tiny_h200",
                                   "bert_tiny_h200",
                                   "norm_stack:layers=2,rows=16384,columns=1024",
                                   "transformer:layers=1,d=512,heads=8,tokens=1024",
                                   "mlp:tokens=64,layers=2",
                                   "resnet:batch=2,image=32,width=16"};

// A kernel with what is asked again and again of it.
struct Example {
  std::string name;
  KernelIr ir;
  KernelProfile profile;
};

// Rows of threes, each third of which is stored elsewhere: lane by lane, where vectors are short.
KernelIr Thirds(DType dtype) {
  constexpr int64_t kRows = 8192, kColumns = 384;
  const std::vector<int64_t> extents = {kRows, kColumns};
  KernelIrBuilder b(extents);
  const IndexExpr apart = A(0) * (kColumns / 3) + FloorDiv(A(1), 3, extents) +
                          Mod(A(1), 3, extents) * (kRows * kColumns / 3);
  b.Store(b.Load(b.In(dtype, kRows * kColumns), A(0) * kColumns + A(1)),
          b.Out(dtype, kRows * kColumns), apart);
  return b.Build();
}

std::vector<Example> Examples() {
  std::vector<Example> examples;
  for (DType dtype : {DType::kFp32, DType::kBf16, DType::kFp64}) {
    for (KernelExample& example : KernelExamples(dtype)) {
      const Classification shape = Classify(example.ir);
      REQUIRE(shape.feasible);
      KernelProfile profile = ProfileKernel(example.ir, shape);
      examples.push_back({absl::StrCat(example.name, " of ", Name(dtype)), std::move(example.ir),
                          std::move(profile)});
    }
    KernelIr thirds = Thirds(dtype);
    KernelProfile profile = ProfileKernel(thirds, Classify(thirds));
    examples.push_back({absl::StrCat("thirds of ", Name(dtype)), std::move(thirds), profile});
  }
  return examples;
}

// So many quotients of two numbers that no memory is as slow.
BackwardGraph ManyQuotients() {
  GraphBuilder builder("quotients");
  const auto input = [&] {
    return builder.Input({DType::kFp32, {1 << 20}}, {.name = "x", .alignment = 256});
  };
  const ValueId by = input();
  ValueId value = input();
  for (int i = 0; i < 40; ++i) value = builder.Add(Op::div, {value, by});
  builder.Output(value, "y");
  auto graph = builder.Build();
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// Little is written of much that is read again and again.
BackwardGraph ManyBroadcasts() {
  GraphBuilder builder("broadcasts");
  std::vector<ValueId> rows;
  for (int i = 0; i < 16; ++i) {
    rows.push_back(builder.Input({DType::kFp32, {4096}}, {.name = "x", .alignment = 256}));
  }
  ValueId sum = builder.Expand(rows[0], {4096, 4096});
  for (int i = 1; i < 16; ++i) sum = builder.Add(Op::add, {sum, rows[i]});
  builder.Output(builder.Cast(sum, DType::kBf16), "y");
  auto graph = builder.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// So many rows that their numbers are sorted digit by digit.
BackwardGraph WideScatter() {
  GraphBuilder builder("scatter");
  const auto input = [&](DType dtype, Shape shape) {
    return builder.Input({dtype, std::move(shape)}, {.name = "x", .alignment = 256});
  };
  const ValueId zero = builder.Full(0, DType::kFp32, {1 << 20, 16});
  builder.Output(
      builder.Add(Op::index_add,
                  {zero, input(DType::kInt64, {1 << 18}), input(DType::kFp32, {1 << 18, 16})},
                  {{"axis", int64_t{0}}}),
      "y");
  auto graph = builder.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// Narrow rows of a table that is larger than any cache, in any order.
BackwardGraph LookUps() {
  GraphBuilder builder("lookups");
  const ValueId table =
      builder.Input({DType::kFp32, {1 << 23, 4}}, {.name = "table", .alignment = 256});
  const ValueId indices =
      builder.Input({DType::kInt64, {1 << 22}}, {.name = "indices", .alignment = 256});
  const ValueId rows = builder.Add(Op::index_select, {table, indices}, {{"axis", int64_t{0}}});
  builder.Output(builder.Add(Op::neg, {rows}), "y");
  auto graph = builder.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// Softmax's backward along rows of an odd length.
BackwardGraph OddRows() {
  GraphBuilder builder("odd_rows");
  const auto input = [&] {
    return builder.Cast(
        builder.Input({DType::kBf16, {1 << 14, 50257}}, {.name = "x", .alignment = 256}),
        DType::kFp32);
  };
  const ValueId p = input(), dp = builder.Add(Op::mul, {p, input()});
  const ValueId sum = builder.Expand(builder.Sum(dp, {1}, /*keep=*/true), {1 << 14, 50257});
  builder.Output(
      builder.Cast(builder.Add(Op::sub, {dp, builder.Add(Op::mul, {p, sum})}), DType::kBf16), "y");
  auto graph = builder.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// Kernels that fill a device many times over: of norms, of biases, of an embedding, and of what
// models have little of.
std::vector<Example> MakeLargeExamples() {
  std::vector<BackwardGraph> graphs;
  for (const char* model : {"norm_stack:layers=1,rows=65536,columns=1024",
                            "norm_stack:layers=1,rows=16384,columns=8192",
                            "transformer:layers=1,d=512,heads=8,tokens=4096",
                            "mlp:tokens=8192,layers=2", "golf_gpt_34m_b32"}) {
    graphs.push_back(Model(model));
  }
  for (const auto& make : {ManyQuotients, ManyBroadcasts, WideScatter, LookUps, OddRows})
    graphs.push_back(make());
  std::vector<Example> examples;
  std::set<std::string> seen;
  for (const BackwardGraph& graph : graphs) {
    const Planned planned = PlanOf(graph, Device("h200"));
    for (const Group& group : planned.plan.groups) {
      for (const KernelBody* body : KernelsOf(group)) {
        if (!seen.insert(absl::StrCat(graph.name(), body->schedule.Print())).second) continue;
        examples.push_back(
            {std::string(graph.name()), body->ir, ProfileKernel(body->ir, Classify(body->ir))});
      }
    }
  }
  return examples;
}

const std::vector<Example>& LargeExamples() {
  static const auto& examples = *new std::vector<Example>(MakeLargeExamples());
  return examples;
}

template <typename Visit>  // (example, pricer, schedule)
void ForEachSchedule(const std::vector<Example>& examples, const DeviceSpec& device, Visit visit) {
  for (const Example& example : examples) {
    const KernelPricer pricer(example.ir, example.profile, device);
    for (const Schedule& s :
         CandidateSchedules(example.ir, example.profile, ScheduleLimitsOf(device))) {
      INFO(example.name << ", " << s.Print() << " on " << device.name);
      visit(example, pricer, s);
    }
  }
}

int64_t PsOf(const Price& price, absl::string_view name) {
  for (const Term& term : price.terms) {
    if (term.name == name) return term.ps;
  }
  return 0;
}

TEST_CASE("the price of every schedule is what its terms add up to, explained or not") {
  Seen seen;
  for (const char* name : {"h200", "mi250x"}) {
    DeviceSpec device = Device(name);
    for (const int64_t registers : {device.max_registers, int64_t{24}}) {  // few: they spill
      device.max_registers = registers;
      for (const auto& examples : {Examples(), LargeExamples()}) {
        ForEachSchedule(examples, device,
                        [&](const Example&, const KernelPricer& pricer, const Schedule& s) {
                          const Price price = pricer.Of(s, /*explain=*/true);
                          CheckSum(price.terms, price.ps, seen);
                          const Price plain = pricer.Of(s);
                          CHECK(plain.ps == price.ps);
                          CHECK(plain.read_bytes == price.read_bytes);
                        });
      }
    }
  }
  for (const char* name : {"spill", "finalize", "latency", "wave", "overlap"}) {
    INFO(name);
    CHECK(seen[name] > 0);
  }
}

// Its stores are under way all the same.
TEST_CASE("a kernel that reads one number, or nothing, costs what one costs that reads a row") {
  const auto price = [](const std::string& operand) {
    const auto graph = ParseGraph(operand +
                                  "%b = expand %a shape=[1024,256]\n%c = exp %b\n"
                                  "output %c\n");
    REQUIRE(graph.ok());
    const auto planned = PlanFusion(*graph, Device("h200"), {});
    INFO(planned.status());
    REQUIRE(planned.ok());
    return static_cast<double>(planned->plan.summary.price_ps);
  };
  const double row = price("%a = input f32[256] alignment=16\n");
  CHECK(price("%a = input f32[]\n") == Approx(row).epsilon(0.1));
  CHECK(price("%a = iota axis=0 start=0 step=1 dtype=f32 shape=[256]\n") ==
        Approx(row).epsilon(0.1));
}

TEST_CASE("threads that go down columns with much under way leave less of what they compute bare") {
  DeviceSpec device = Device("h100");
  device.balanced_ppm = 0;
  KernelIrBuilder b({16'384, 4096});
  const IndexExpr at = A(0) * 4096 + A(1);
  const int64_t all = 16'384 * 4096;
  const int x = b.Cast(b.Load(b.In(DType::kBf16, all), at), DType::kFp32);
  const int y = b.Cast(b.Load(b.In(DType::kBf16, all), at), DType::kFp32);
  const int dx = b.Do(Op::mul, {b.Do(Op::exp, {b.Do(Op::erf, {x})}), y});
  b.Store(b.Cast(dx, DType::kBf16), b.Out(DType::kBf16, all), at);
  b.Store(b.Reduce(Op::sum, dx, AxisMask{1}), b.Out(DType::kFp32, 4096), A(1));
  const KernelIr ir = b.Build();
  const Classification shape = Classify(ir);
  const KernelProfile profile = ProfileKernel(ir, shape);
  DeviceSpec slower = device;  // takes much more under way to be busy
  slower.hiding_depth_ppm *= 100;
  const auto bare = [&](const Schedule& s, const DeviceSpec& d) {
    const Price price = KernelPricer(ir, profile, d).Of(s, /*explain=*/true);
    for (const Term& term : price.terms) {
      if (term.name == "overlap") return term.ps;
    }
    return int64_t{0};
  };
  int compared = 0;
  for (const Schedule& s : CandidateSchedules(ir, shape, ScheduleLimitsOf(device))) {
    const int64_t all_of_it = bare(s, slower), here = bare(s, device);
    INFO(s.Print() << ": " << here << " of " << all_of_it);
    const Footprint f = PredictFootprint(ir, profile, s, device);
    const int64_t resident = std::min(f.blocks_per_sm, CeilDiv(s.blocks, device.sms));
    const int64_t enough = Share(device.bytes_in_flight_per_sm, device.hiding_depth_ppm);
    const bool much = resident * s.threads * f.bytes_in_flight > enough;
    CHECK((here < all_of_it) == (much && all_of_it > 0));
    compared += here < all_of_it;
  }
  CHECK(compared > 0);
}

TEST_CASE("what computes about as long as it loads takes longer than either") {
  const DeviceSpec d = Device("h200");
  int no_more = 0;
  const auto visit = [&](const Example&, const KernelPricer& pricer, const Schedule& chosen) {
    const Price price = pricer.Of(chosen, true);
    const int64_t compute = PsOf(price, "compute");
    const int64_t loading =
        std::max({PsOf(price, "hbm"), PsOf(price, "cache"), PsOf(price, "stores")});
    const auto shorter = static_cast<double>(std::min(compute, loading));
    const auto longer = static_cast<double>(std::max<int64_t>({compute, loading, 1}));
    const double least = shorter * std::pow(shorter / longer, 4) * d.balanced_ppm / 1e6;
    const auto overlap = static_cast<double>(PsOf(price, "overlap"));
    CHECK(overlap >= least * (1 - 1e-3) - 2);
    no_more += least > 1000 && overlap < least * (1 + 1e-3) + 2;
  };
  ForEachSchedule(LargeExamples(), d, visit);
  CHECK(no_more >= 8);  // threads enough for all else
}

TEST_CASE("one wave of blocks computes as long as the SM that has most of them") {
  const DeviceSpec d = Device("h200");
  int uneven = 0, later = 0;
  const auto visit = [&](const Example& e, const KernelPricer& pricer, const Schedule& s) {
    const KernelTemplate& t = TemplateOf(s);
    const bool rows = t.walk != Walk::kPoints && t.walk != Walk::kColumns;
    if (rows || t.holds || e.ir.scatter.has_value() || s.cluster > 1) return;
    const Price price = pricer.Of(s, true);
    const int64_t resident = std::max<int64_t>(price.footprint.blocks_per_sm, 1);
    const int64_t all = KernelWork(e.ir, e.profile, d).ComputePs(s);
    const int64_t most = CeilDiv(s.blocks, d.sms);
    const bool one_wave = most <= resident;
    const int64_t busiest = MulDiv(all, most * d.sms, s.blocks);
    // What the few blocks of a small kernel compute is counted with the block.
    const int64_t few = std::max(all, busiest - d.block_ps);
    CHECK(PsOf(price, "compute") == (!one_wave ? all : s.blocks < d.sms ? few : busiest));
    uneven += one_wave && s.blocks > d.sms && most * d.sms > s.blocks && all > 0;
    later += !one_wave && all > 0;
  };
  ForEachSchedule(LargeExamples(), d, visit);
  CHECK(uneven >= 8);
  CHECK(later >= 8);
}

TEST_CASE(
    "a quarter of the SMs draws no more than a quarter of the bandwidth with little under way") {
  const DeviceSpec d = Device("h200");
  const int64_t rows = d.sms / 4, columns = 524288;
  KernelIrBuilder b({rows, columns});
  const int x = b.In(DType::kBf16, rows * columns), y = b.Out(DType::kFp32, rows);
  b.Store(b.Reduce(Op::sum, b.Load(x, A(0) * columns + A(1)), 0b10), y, A(0));
  const KernelIr ir = b.Build();
  int few = 0;
  const auto visit = [&](const Example&, const KernelPricer& pricer, const Schedule& s) {
    const Price price = pricer.Of(s, true);
    const int64_t under_way = s.threads * price.footprint.bytes_in_flight;
    if (s.blocks != rows || under_way >= d.bytes_in_flight_per_sm) return;
    CHECK(PsOf(price, "hbm") >= 3 * TransferPs(rows * columns * 2, d.hbm_bytes_per_s));
    ++few;
  };
  ForEachSchedule({{"long sums", ir, ProfileKernel(ir, Classify(ir))}}, d, visit);
  CHECK(few > 0);
}

// One for each row and stage of a cluster that shares rows.
int64_t ExchangesOf(const KernelProfile& p, const Schedule& s) {
  if (s.cluster == 1 || TemplateOf(s).holds) return 0;
  return CeilDiv(p.shape.shape.rows, RowBlocks(s)) * p.stages.row_stages;
}

TEST_CASE("barriers cost their rounds in each wave of blocks, and clusters their exchanges") {
  const DeviceSpec d = Device("h200");
  int64_t later = 0;
  ForEachSchedule(
      LargeExamples(), d,
      [&](const Example& e, const KernelPricer& pricer, const Schedule& chosen) {
        const KernelTemplate& t = TemplateOf(chosen);
        if (t.barrier_rounds == nullptr || t.working_launch != nullptr) return;
        const Price price = pricer.Of(chosen, true);
        const int64_t blocks = std::max<int64_t>(price.footprint.blocks_per_sm, 1);
        const int64_t sms = t.holds ? d.sms : SmsForClusters(d.sms, chosen.cluster);
        const int64_t waves = CeilDiv(chosen.blocks, sms * blocks);
        later += waves > 1;
        const int64_t first = StagesAhead(chosen) && t.walk == Walk::kRows ? d.staged_start_ps : 0;
        const int64_t barriers = t.barrier_rounds(e.profile, chosen, d) * waves * d.barrier_ps /
                                 std::min(blocks, d.barrier_overlap_blocks);
        const int64_t exchanges = ExchangesOf(e.profile, chosen) * waves;
        CHECK(PsOf(price, "latency") == barriers + exchanges * d.cluster_exchange_ps + first);
      });
  CHECK(later >= 8);
}

// Blocks that load a batch of rows at a time wait for each batch, beside what the bytes take.
TEST_CASE("waits for batches of rows are in the price, once a batch, pass and wave") {
  const DeviceSpec once = Device("h200");
  DeviceSpec twice = once, none = once;
  twice.row_batch_ps *= 2;
  none.row_batch_ps = 0;
  int64_t waited = 0;
  for (const auto& examples : {Examples(), LargeExamples()}) {
    ForEachSchedule(
        examples, once, [&](const Example& e, const KernelPricer& pricer, const Schedule& s) {
          const KernelTemplate& t = TemplateOf(s);
          if (t.row_batches == nullptr || s.staged > 0) return;
          const RowBatches batches = t.row_batches(e.profile, s);
          if (batches.count <= 1) return;
          const Price price = pricer.Of(s, true);
          const auto hbm = [&](const DeviceSpec& d) {
            return PsOf(KernelPricer(e.ir, e.profile, d).Of(s, true), "hbm");
          };
          const int64_t blocks = std::max<int64_t>(price.footprint.blocks_per_sm, 1);
          const int64_t waves = CeilDiv(s.blocks, once.sms * blocks);
          const int64_t wait = hbm(twice) - hbm(once);
          if (batches.passes > 1) {  // or few bytes in flight are what binds
            CHECK((wait >= 0 && hbm(once) >= hbm(none)));
            return;
          }
          const int64_t resident = std::min(blocks, CeilDiv(s.blocks, once.sms));
          const int64_t alone = batches.count * waves * once.row_batch_ps;
          INFO(resident << " blocks, " << batches.count << " batches, " << waves << " waves");
          if (resident == 1) {
            CHECK(std::abs(wait - alone) <= 1);
          } else {
            CHECK((wait < alone && wait * resident >= alone * 9 / 10));
          }
          ++waited;
        });
  }
  CHECK(waited > 20);
}

// A kernel under a schedule, a call or a matmul, and its price on the device as it is.
struct Priced {
  const Example* kernel = nullptr;
  Schedule schedule;
  const Call* call = nullptr;
  MatMulCall matmul;
  int64_t ps = 0;

  int64_t On(const DeviceSpec& device) const {
    if (kernel != nullptr) {
      return KernelPricer(kernel->ir, kernel->profile, device).Of(schedule).ps;
    }
    if (call != nullptr) return CallOpOf(call->op).price(*call, device, false).ps;
    return PriceMatMul(matmul, device).ps;
  }
};

MatMulCall Product(int64_t m, int64_t n, int64_t k, DType dtype) {
  return {.m = m,
          .n = n,
          .k = k,
          .in_dtype = dtype,
          .out_dtype = dtype,
          .a = {.row_stride = k, .col_stride = 1},
          .b = {.row_stride = n, .col_stride = 1},
          .d = {.row_stride = n, .col_stride = 1}};
}

TEST_CASE("so is the price of each kernel, call and launch of a plan") {
  Seen seen;
  for (const char* device : {"h200", "mi300x"}) {
    INFO(device);
    CheckPlan(PlanOf(Model("golf_tiny"), Device(device), /*decisions=*/true), seen);
    for (uint32_t seed = 0; seed < 30; ++seed) {
      INFO("random graph " << seed << " on " << device);
      CheckPlan(PlanOf(RandomGraph(seed), Device(device), /*decisions=*/true), seen);
    }
  }
  for (const char* model : kModels) {
    INFO(model);
    CheckPlan(PlanOf(Model(model), Device("h200")), seen);
  }
  CheckPlan(PlanOf(Model("mlp:tokens=8192,layers=2"), EagerEpilogues({DType::kBf16, DType::kFp32})),
            seen);
  for (const char* name :
       {"launch", "hbm", "cache", "compute", "wave", "overlap", "blocks", "latency", "sort",
        "finalize", "flops", "result", "product", "turns", "longest"}) {
    INFO(name);
    CHECK(seen[name] > 0);
  }
}

TEST_CASE("every number that says how long something takes is in some price") {
  // What decides other than by the price of a kernel or call: which schedules there are, which
  // fusions must win by how much, what runs beside what, epilogues and shared launches.
  const std::set<std::string> elsewhere = {"warp",
                                           "max_threads_per_block",
                                           "max_blocks_per_sm",
                                           "shared_bytes_per_block",
                                           "shared_bytes_reserved",
                                           "staged_bytes_per_block",
                                           "cluster_blocks",
                                           "row_cluster_blocks",
                                           "cluster_exchange_us",  // of rows that are shared
                                           "staged_bytes_under_way",
                                           "base_registers",
                                           "sector_bytes",
                                           "launch_stream_us",
                                           "margin_us",
                                           "margin_fraction",
                                           "small_kernel_bytes",
                                           "large_elements",
                                           "remade_ops",
                                           "scarce_memory_bytes",
                                           "convolution_transpose_factor",  // of row-major images
                                           "side_products_factor",
                                           "stream_worth_factor",
                                           "stream_longest_us",
                                           "stream_edge_us",
                                           "stream_gain_factor",
                                           "early_launch_gain_us",
                                           "early_launch_longest_us",
                                           "early_launch_bytes",
                                           "matmul_least_slice",
                                           "epilogue_kernels"};
  const DeviceSpec base = Device("h200");
  const std::vector<Example>& large = LargeExamples();
  const std::vector<Example> small = Examples();
  std::vector<Priced> all;
  for (const std::vector<Example>* examples : {&large, &small}) {
    ForEachSchedule(*examples, base, [&](const Example& e, const KernelPricer&, const Schedule& s) {
      all.push_back({.kernel = &e, .schedule = s});
    });
  }
  std::vector<Call> calls;
  const auto add_calls = [&](const BackwardGraph& graph) {
    for (const Group& group : PlanOf(graph, base).plan.groups) {
      const Call* call = CallOf(group);
      if (call != nullptr && !call->epilogue) calls.push_back(*call);
    }
  };
  for (const char* model : kModels) add_calls(Model(model));
  add_calls(WideScatter());
  for (const Op op : {Op::convolution_input_gradient, Op::convolution_weight_gradient}) {
    for (const ConvolutionSizes& sizes : std::vector<ConvolutionSizes>{
             {},                                                      // by boxes
             {.channels = 24, .filters = 24},                         // by gathers
             {.channels = 24, .filters = 24, .stride = 2},            // of phases
             {.batch = 64, .channels = 512, .filters = 512},          // by the library
             {.channels = 3, .extent = 224, .taps = 7, .stride = 2},  // of few channels
             {.channels = 96, .filters = 96, .groups = 96}}) {
      for (const DType dtype : {DType::kBf16, DType::kFp32}) {
        calls.push_back(ConvolutionGradient(op, sizes, dtype));
      }
    }
    calls.push_back(
        RowMajor(ConvolutionGradient(op, {.channels = 96, .filters = 96, .groups = 96})));
  }
  for (const Call& call : calls) all.push_back({.call = &call});
  for (DType dtype : {DType::kBf16, DType::kFp8E4M3, DType::kFp32, DType::kFp64}) {
    MatMulCall odd = Product(1000, 1001, 1024, dtype);  // whose rows begin aligned
    odd.b.row_stride = odd.d.row_stride = 1008;
    for (const MatMulCall& call :
         {Product(64, 64, 1 << 18, dtype), Product(4096, 4096, 4096, dtype),
          Product(1000, 1001, 1003, dtype), Product(64, 64, 64, dtype), odd}) {
      all.push_back({.matmul = call});
      if (IsFp8(dtype)) all.back().matmul.out_dtype = DType::kBf16;
    }
  }
  all.push_back({.matmul = Product(4096, 4096, 4096, DType::kFp32)});
  all.back().matmul.tf32 = true;
  // Whose rows begin at multiples of 4 and of 8 bytes; by tiles, whose first or products bind.
  for (const int64_t off : {2, 4}) {
    all.push_back({.matmul = Product(1000 + off, 1000 + off, 1000 + off, DType::kBf16)});
  }
  for (const int64_t batch : {4, 4000}) {
    MatMulCall small = Product(127, 127, 127, DType::kBf16);
    small.batch = {batch};
    for (MatrixOperand* operand : {&small.a, &small.b, &small.d}) {
      operand->batch_strides = {127 * 127};
    }
    all.push_back({.matmul = small});
  }
  for (Priced& priced : all) priced.ps = priced.On(base);
  const auto numbers = DeviceNumbers(*ReadDeviceSpec("h200"), "h200");
  REQUIRE(numbers.ok());
  int asked = 0;
  for (const DeviceNumber& number : *numbers) {
    if (elsewhere.contains(number.name)) continue;
    bool changes = false, possible = false;
    for (double factor : {2.0, 0.5, 1.25, 0.8}) {
      const std::optional<DeviceSpec> device = Scaled("h200", number, factor);
      if (!device) continue;
      possible = true;
      changes = std::any_of(all.begin(), all.end(),
                            [&](const Priced& priced) { return priced.On(*device) != priced.ps; });
      if (changes) break;
    }
    INFO(number.name << " = " << number.value);
    CHECK(possible);
    CHECK(changes);
    ++asked;
  }
  CHECK(asked > 60);
}

TEST_CASE("what a matmul reads grows with its batch, and causal attention has half the products") {
  const DeviceSpec d = Device("h200");
  MatMulCall one = Product(512, 64, 64, DType::kFp32);
  one.batch = {1};
  MatMulCall many = one;
  many.batch = {24, 2};
  const int64_t single = PsOf(PriceMatMul(one, d, true), "hbm");
  CHECK(single > 0);
  CHECK(std::abs(PsOf(PriceMatMul(many, d, true), "hbm") - 48 * single) <= 48);
  CHECK(PriceMatMul(many, d).read_bytes == 48 * PriceMatMul(one, d).read_bytes);

  int attentions = 0;
  for (const Group& group : PlanOf(Model("gpt2_tiny_h200"), d).plan.groups) {
    const Call* call = CallOf(group);
    if (call == nullptr || call->op != Op::attention_backward) continue;
    Call full = *call, causal = *call;
    full.attributes.Set("causal", int64_t{0});
    causal.attributes.Set("causal", int64_t{1});
    const CallOp& row = CallOpOf(call->op);
    const int64_t all = PsOf(row.price(full, d, true), "flops");
    CHECK(std::abs(all - 2 * PsOf(row.price(causal, d, true), "flops")) <= 2);
    ++attentions;
  }
  CHECK(attentions > 0);
}

}  // namespace
}  // namespace retrograd
