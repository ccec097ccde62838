#include "runtime/schedule/stream_schedule.h"

#include "fusion/device/device_spec.h"
#include "runtime/schedule/happens_before.h"
#include "runtime/schedule/schedule_options.h"
#include "tests/catch.h"
#include "tests/support/plans/calls.h"
#include "tests/support/plans/convolutions.h"
#include "tests/support/plans/random_plan.h"

namespace retrograd {
namespace {

StreamSchedule Scheduled(const BackwardGraph& graph, const FusionPlan& plan,
                         const ScheduleOptions& options) {
  auto schedule = ScheduleStreams(graph, plan, options);
  INFO(schedule.status());
  REQUIRE(schedule.ok());
  return *std::move(schedule);
}

// dx0 -> dx1 -> dx2 with a dw beside each, all of one price; the last of the dx is an output.
RandomPlan Chain(int64_t blocks) {
  GraphBuilder builder("chain");
  ValueId dx = builder.Input({DType::kFp32, {4, 4}}, {.name = "dy"});
  for (int i = 0; i < 3; ++i) {
    builder.Output(builder.Add(Op::exp, {dx}), "dw");
    dx = builder.Add(Op::neg, {dx});
  }
  builder.Output(dx, "dx");
  RandomPlan chain{*builder.Build(), {}};
  chain.plan = OneGroupPerOp(chain.graph);
  for (Group& group : chain.plan.groups) {
    KernelBody body;
    body.schedule.blocks = blocks;
    group.body = LaunchOf(body);
  }
  return chain;
}

TEST_CASE("random plans give schedules that keep S1 to S5 on any number of streams") {
  const uint64_t seed = GENERATE(range(1, 40));
  const int streams = GENERATE(1, 2, 3, 8);
  INFO("seed " << seed << ", streams " << streams);
  const RandomPlan random = MakeRandomPlan(seed, {.ops = 60});
  for (ScheduleObjective objective :
       {ScheduleObjective::kLatency, ScheduleObjective::kPeakMemory}) {
    const StreamSchedule schedule =
        Scheduled(random.graph, random.plan, {.streams = streams, .objective = objective});
    INFO(schedule.Print());
    const absl::Status verified = schedule.Verify(random.graph, random.plan);
    INFO(verified);
    CHECK(verified.ok());
    auto parsed = ParseStreamSchedule(schedule.Print());
    INFO(parsed.status());
    REQUIRE(parsed.ok());
    CHECK(*parsed == schedule);
  }
}

TEST_CASE("one stream needs no waits and takes the sum of the prices") {
  const RandomPlan random = MakeRandomPlan(7);
  const StreamSchedule schedule = Scheduled(random.graph, random.plan, {.streams = 1});
  int64_t sum = 0;
  for (const Group& group : random.plan.groups) sum += group.price_ps;
  CHECK(schedule.makespan_ps == sum);
  for (const Step& step : schedule.steps) CHECK(step.waits.empty());
}

TEST_CASE("under the latency objective the chain of input gradients runs before weight gradients") {
  const RandomPlan chain = Chain(8);
  const StreamSchedule schedule =
      Scheduled(chain.graph, chain.plan, {.streams = 1, .objective = ScheduleObjective::kLatency});
  // Groups in id order: dw0 dx0 dw1 dx1 dw2 dx2.
  CHECK(Index(schedule.steps[0].group) == 1);
  CHECK(Index(schedule.steps[1].group) == 3);
}

TEST_CASE("small weight gradients run beside the chain, large ones wait for the chip") {
  const RandomPlan small = Chain(8);
  const RandomPlan large = Chain(1000);
  CHECK(Scheduled(small.graph, small.plan, {.streams = 2}).makespan_ps == 3'000'000);
  CHECK(Scheduled(large.graph, large.plan, {.streams = 2}).makespan_ps == 6'000'000);
}

InterferenceTable Kernels(double factor) {
  return InterferenceTable({{WorkKind::kKernel, WorkKind::kKernel, 0.25, 0.25, factor}});
}

TEST_CASE("small groups run side by side only where the device's table says that it gains") {
  const RandomPlan small = Chain(8);  // of 132 SMs: a quarter covers it
  const RandomPlan half = Chain(60);
  const auto makespan = [](const RandomPlan& plan, const InterferenceTable& table) {
    const StreamSchedule schedule =
        Scheduled(plan.graph, plan.plan, {.streams = 2, .interference = table});
    CHECK(schedule.Verify(plan.graph, plan.plan).ok());
    return schedule.makespan_ps;
  };
  CHECK(makespan(small, Kernels(1.02)) == 6'000'000);
  CHECK(makespan(small, Kernels(0.5)) == 3'000'000);
  // A pair that takes 0.75 of the time of one after the other is longer than either alone.
  const int64_t between = makespan(small, Kernels(0.75));
  CHECK(between > 3'000'000);
  CHECK(between < 6'000'000);
  CHECK(makespan(half, Kernels(0.5)) == 6'000'000);  // no row is of kernels that large
  // Blocks for every SM fill the chip only where no measurement says otherwise.
  const RandomPlan large = Chain(300);
  CHECK(makespan(large, {}) == 6'000'000);
  const InterferenceTable gains({{WorkKind::kKernel, WorkKind::kKernel, 4, 4, 0.5}});
  CHECK(makespan(large, gains) == 3'000'000);
  RandomPlan longer = large;  // than what such rows are measured with
  for (Group& group : longer.plan.groups) group.price_ps *= 50;
  CHECK(makespan(longer, gains) == 300'000'000);
}

TEST_CASE("a device's own numbers say what is worth overlapping, and up to which length") {
  const RandomPlan small = Chain(8);
  ScheduleOptions options{.streams = 2, .interference = Kernels(0.5)};
  CHECK(Scheduled(small.graph, small.plan, options).makespan_ps == 3'000'000);
  options.worth_overlapping = 0.4;
  CHECK(Scheduled(small.graph, small.plan, options).makespan_ps == 6'000'000);
  RandomPlan longer = small;
  for (Group& group : longer.plan.groups) group.price_ps *= 50;
  options.worth_overlapping = 0.95;
  CHECK(Scheduled(longer.graph, longer.plan, options).makespan_ps == 300'000'000);
  options.most_overlapped_ps = 100'000'000;
  CHECK(Scheduled(longer.graph, longer.plan, options).makespan_ps == 150'000'000);
}

TEST_CASE("random plans under an interference table keep S1 to S5") {
  const uint64_t seed = GENERATE(range(1, 30));
  const double factor = GENERATE(0.5, 0.8, 1.2);
  INFO("seed " << seed << ", factor " << factor);
  const RandomPlan random = MakeRandomPlan(seed, {.ops = 60});
  const StreamSchedule schedule =
      Scheduled(random.graph, random.plan, {.streams = 3, .interference = Kernels(factor)});
  const absl::Status verified = schedule.Verify(random.graph, random.plan);
  INFO(schedule.Print() << verified);
  CHECK(verified.ok());
}

// dx0 -> dx1 -> .. with a dw beside each, and a cast of it that leaves the graph.
RandomPlan LongChain(int links) {
  GraphBuilder builder("long_chain");
  ValueId dx = builder.Input({DType::kFp32, {4, 4}}, {.name = "dy"});
  for (int i = 0; i < links; ++i) {
    builder.Output(builder.Add(Op::abs, {builder.Add(Op::exp, {dx})}), "dw");
    dx = builder.Add(Op::neg, {dx});
  }
  builder.Output(dx, "dx");
  RandomPlan chain{*builder.Build(), {}};
  chain.plan = OneGroupPerOp(chain.graph);
  for (Group& group : chain.plan.groups) {
    KernelBody body;
    body.schedule.blocks = 8;
    group.body = LaunchOf(body);
  }
  return chain;
}

// Groups of an op.
bool IsOf(const RandomPlan& plan, const Step& step, Op op) {
  return plan.graph.op(plan.plan.groups[Index(step.group)].outputs[0].node) == op;
}

TEST_CASE("a side stream takes what nothing of the chain waits for, and the chain waits for none") {
  const RandomPlan chain = LongChain(30);
  ScheduleOptions options{.streams = GENERATE(2, 3), .interference = Kernels(0.5)};
  options.most_overlapped_ps = 3'000'000;
  const StreamSchedule schedule = Scheduled(chain.graph, chain.plan, options);
  INFO(schedule.Print());
  REQUIRE(schedule.Verify(chain.graph, chain.plan).ok());
  std::vector<int> stream_of(chain.plan.groups.size());
  int beside = 0;
  for (const Step& step : schedule.steps) {
    stream_of[Index(step.group)] = step.stream;
    // But for the last ones, which nothing long waits for, the chain is on stream 0.
    if (IsOf(chain, step, Op::neg) && Index(step.group) < 78) CHECK(step.stream == 0);
    if (step.stream == 0) CHECK(step.waits.empty());
    beside += step.stream == 0 ? 0 : 1;
  }
  CHECK(beside > 20);
  // A cast follows its weight gradient to the side stream, so that nothing waits between them.
  int followed = 0;
  for (const Step& step : schedule.steps) {
    if (!IsOf(chain, step, Op::abs) || stream_of[Index(step.group) - 1] == 0) continue;
    CHECK(stream_of[Index(step.group) - 1] == step.stream);
    CHECK(step.waits.empty());
    ++followed;
  }
  CHECK(followed > 10);
}

TEST_CASE("the chain's step stands before what branches off beside it") {
  const RandomPlan chain = LongChain(30);
  const StreamSchedule schedule =
      Scheduled(chain.graph, chain.plan, {.streams = 2, .interference = Kernels(0.5)});
  uint32_t checked = 0;
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    if (step.stream == 0 || step.waits.empty()) continue;
    // The step of stream 0 that follows the one waited for.
    uint32_t next = step.waits.back() + 1;
    while (next < schedule.steps.size() && schedule.steps[next].stream != 0) ++next;
    if (next == schedule.steps.size()) continue;
    CHECK(next < i);
    ++checked;
  }
  CHECK(checked > 0);
}

TEST_CASE("left to choose, a schedule takes more streams only where they are predicted to gain") {
  const RandomPlan chain = LongChain(30);
  const auto streams = [&](const ScheduleOptions& options) {
    const StreamSchedule schedule = Scheduled(chain.graph, chain.plan, options);
    CHECK(schedule.Verify(chain.graph, chain.plan).ok());
    return schedule.streams;
  };
  CHECK(streams({.streams = 0, .interference = Kernels(0.5)}) > 1);
  CHECK(streams({.streams = 0, .interference = Kernels(0.96)}) == 1);  // not worth overlapping
  CHECK(streams({.streams = 0}) == 1);                                 // nothing was measured
  ScheduleOptions dear{.streams = 0, .interference = Kernels(0.5)};
  dear.edge_ps = 5'000'000;
  CHECK(streams(dear) == 1);
  ScheduleOptions asks_for_more{.streams = 0, .interference = Kernels(0.9)};
  asks_for_more.worth_streams = 0.5;
  CHECK(streams(asks_for_more) == 1);
}

TEST_CASE("a step that another stream waits for is predicted to take longer by an edge") {
  const RandomPlan small = Chain(8);
  ScheduleOptions options{.streams = 2, .interference = Kernels(0.5)};
  options.edge_ps = 100'000;
  const StreamSchedule schedule = Scheduled(small.graph, small.plan, options);
  REQUIRE(schedule.Verify(small.graph, small.plan).ok());
  std::vector<bool> waited_for(schedule.steps.size(), false);
  for (const Step& step : schedule.steps) {
    for (uint32_t wait : step.waits) waited_for[wait] = true;
  }
  bool any = false;
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    CHECK(step.end_ps - step.start_ps == (waited_for[i] ? 1'100'000 : 1'000'000));
    any = any || waited_for[i];
  }
  CHECK(any);
}

TEST_CASE("convolutions run beside what the table has rows of") {
  RandomPlan chain = LongChain(20);
  const auto calls = [&](Op op) {
    for (Group& group : chain.plan.groups) {
      if (chain.graph.op(group.outputs[0].node) != Op::exp) continue;
      Call call = MakeConvolution(Op::convolution_weight_gradient,
                                  SquareConvolution(1, 64, 64, 1, 14, 3, 1, 1), {});
      call.op = op;
      group.body = call;
    }
  };
  const auto sum = [&] {
    int64_t ps = 0;
    for (const Group& group : chain.plan.groups) ps += group.price_ps;
    return ps;
  };
  const auto makespan = [&](const InterferenceTable& table) {
    const StreamSchedule schedule =
        Scheduled(chain.graph, chain.plan, {.streams = 2, .interference = table});
    CHECK(schedule.Verify(chain.graph, chain.plan).ok());
    return schedule.makespan_ps;
  };
  const InterferenceTable kernels = Kernels(0.5);
  const InterferenceTable both({{WorkKind::kKernel, WorkKind::kKernel, 0.25, 0.25, 0.5},
                                {WorkKind::kKernel, WorkKind::kConvolution, 0.25, 0.25, 0.5}});
  calls(Op::convolution_weight_gradient);
  CHECK(makespan(both) < makespan(kernels));
  // Without rows of convolutions each of them runs alone.
  const StreamSchedule alone =
      Scheduled(chain.graph, chain.plan, {.streams = 2, .interference = kernels});
  for (const Step& step : alone.steps) CHECK(step.fills_chip == IsOf(chain, step, Op::exp));
  CHECK(makespan(both) < sum());
}

TEST_CASE("a spec says what may overlap, what an edge costs, and what one more stream must gain") {
  const auto options = [](const char* name) {
    const std::string text = *ReadDeviceSpec(name);
    return *ScheduleOptionsFor(*ParseDeviceSpec(text, name), text, /*streams=*/0);
  };
  const ScheduleOptions h200 = options("h200");
  CHECK(h200.streams == 0);
  CHECK(h200.edge_ps > 0);
  CHECK(h200.worth_streams < 1);
  CHECK(h200.interference.Pays(WorkKind::kConvolution, 0.2, h200.worth_overlapping));
  CHECK(!h200.interference.Pays(WorkKind::kConvolution, 4, h200.worth_overlapping));
  CHECK(options("mi300x").interference.empty());
}

TEST_CASE("random plans whose number of streams is chosen keep S1 to S5") {
  const uint64_t seed = GENERATE(range(1, 30));
  INFO("seed " << seed);
  const RandomPlan random = MakeRandomPlan(seed, {.ops = 60});
  ScheduleOptions options{.streams = 0, .interference = Kernels(0.6)};
  options.edge_ps = 100'000;
  const StreamSchedule schedule = Scheduled(random.graph, random.plan, options);
  const absl::Status verified = schedule.Verify(random.graph, random.plan);
  INFO(schedule.Print() << verified);
  CHECK(verified.ok());
  CHECK(schedule.makespan_ps <= Scheduled(random.graph, random.plan, {.streams = 1}).makespan_ps);
}

TEST_CASE("a removed wait, a moved step and a stretched time are found and named") {
  const RandomPlan small = Chain(8);
  const StreamSchedule good = Scheduled(small.graph, small.plan, {.streams = 2});
  const auto message = [&](const StreamSchedule& s) {
    return std::string(s.Verify(small.graph, small.plan).message());
  };
  StreamSchedule bad = good;
  bool had_wait = false;
  for (Step& step : bad.steps) {
    had_wait = had_wait || !step.waits.empty();
    step.waits.clear();
  }
  REQUIRE(had_wait);
  CHECK_THAT(message(bad), ContainsSubstring("S2"));
  bad = good;
  std::swap(bad.steps.front().group, bad.steps.back().group);
  CHECK_THAT(message(bad), ContainsSubstring("S2"));
  bad = good;
  bad.steps.pop_back();
  CHECK_THAT(message(bad), ContainsSubstring("S1"));
  bad = good;
  bad.steps.back().start_ps = 0;
  CHECK_THAT(message(bad), ContainsSubstring("S4"));
  bad = good;
  for (Step& step : bad.steps) step.fills_chip = true;
  CHECK_THAT(message(bad), ContainsSubstring("S5"));
}

TEST_CASE("a wait that another wait implies is dropped, and one put back is found") {
  // Three streams: step 2 waits for step 1, which waited for step 0.
  StreamSchedule schedule;
  schedule.streams = 3;
  const RandomPlan chain = Chain(8);
  GraphBuilder builder("line");
  ValueId v = builder.Input({DType::kFp32, {4}}, {.name = "x"});
  for (int i = 0; i < 3; ++i) v = builder.Add(Op::neg, {v});
  builder.Output(v, "y");
  const BackwardGraph graph = *builder.Build();
  const FusionPlan plan = OneGroupPerOp(graph);
  schedule.makespan_ps = 3;
  schedule.steps = {{.group = GroupId{0}, .stream = 0, .start_ps = 0, .end_ps = 1},
                    {.group = GroupId{1}, .stream = 1, .waits = {0}, .start_ps = 1, .end_ps = 2},
                    {.group = GroupId{2}, .stream = 2, .waits = {1}, .start_ps = 2, .end_ps = 3}};
  CHECK(schedule.Verify(graph, plan).ok());
  schedule.steps[2].waits = {0, 1};
  CHECK_THAT(std::string(schedule.Verify(graph, plan).message()), ContainsSubstring("S3"));
}

TEST_CASE("a group that adds to a value in place runs after its other readers") {
  GraphBuilder builder("accumulate");
  const ValueId x = builder.Input({DType::kFp32, {4, 4}}, {.name = "x"});
  const ValueId previous = builder.Add(Op::neg, {x});
  const ValueId sum = builder.Add(Op::add, {previous, x});  // overwrites `previous`
  const ValueId reader = builder.Add(Op::exp, {previous});
  builder.Output(sum, "sum");
  builder.Output(reader, "reader");
  const BackwardGraph graph = *builder.Build();
  FusionPlan plan = OneGroupPerOp(graph);
  plan.groups[1].body = AddingMatMul(x, sum, previous);
  plan.groups[1].price_ps = 1'000'000'000;  // the most urgent otherwise
  const StreamSchedule schedule = Scheduled(graph, plan, {.streams = 2});
  CHECK(schedule.Verify(graph, plan).ok());
  CHECK(schedule.steps[2].group == GroupId{1});
}

TEST_CASE("a plan whose groups wait for each other is refused, as is a wrong number of streams") {
  const RandomPlan chain = Chain(8);
  CHECK_THAT(
      std::string(ScheduleStreams(chain.graph, chain.plan, {.streams = 17}).status().message()),
      ContainsSubstring("1 to 16"));
  FusionPlan plan = chain.plan;
  plan.groups[1].inputs.push_back(plan.groups[5].outputs[0]);
  CHECK_THAT(std::string(ScheduleStreams(chain.graph, plan, {}).status().message()),
             ContainsSubstring("waits for itself"));
}

TEST_CASE("text that is no schedule is refused with the line") {
  for (const char* text :
       {"", "schedule", "schedule streams=1 objective=fast makespan=0",
        "schedule streams=1 objective=latency makespan=9\n0 s0 group 0 1..2",
        "schedule streams=1 objective=latency makespan=9\n1 s0 group 0 1..2 ps",
        "schedule streams=1 objective=latency makespan=9\n0 s0 group 0 1..2 ps fills wait x"}) {
    INFO(text);
    CHECK_FALSE(ParseStreamSchedule(text).ok());
  }
}

}  // namespace
}  // namespace retrograd
