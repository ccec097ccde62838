#include "runtime/schedule/stream_schedule.h"

#include "runtime/schedule/happens_before.h"
#include "tests/catch.h"
#include "tests/support/plans/calls.h"
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
