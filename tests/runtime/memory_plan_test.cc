#include "runtime/memory/memory_plan.h"
#include "runtime/memory/lifetimes.h"

#include "tests/catch.h"
#include "tests/support/plans/calls.h"
#include "tests/support/plans/random_plan.h"

namespace retrograd {
namespace {

StreamSchedule Scheduled(const RandomPlan& p, int streams) {
  auto schedule = ScheduleStreams(p.graph, p.plan, {.streams = streams});
  REQUIRE(schedule.ok());
  return *std::move(schedule);
}

MemoryPlan Planned(const RandomPlan& p, const StreamSchedule& schedule,
                   const MemoryOptions& options = {}) {
  auto memory = PlanMemory(p.graph, p.plan, schedule, options);
  INFO(memory.status());
  REQUIRE(memory.ok());
  return *std::move(memory);
}

// x -> a -> b -> c, each 4 KiB; c is the output.
RandomPlan Line(int64_t in_place_pairs) {
  GraphBuilder builder("line");
  ValueId v =
      builder.Input({DType::kFp32, {1024}}, {.name = "x", .alignment = 256, .donated = true});
  std::vector<ValueId> values{v};
  for (int i = 0; i < 3; ++i) values.push_back(v = builder.Add(Op::neg, {v}));
  builder.Output(v, "y");
  RandomPlan line{*builder.Build(), {}};
  line.plan = OneGroupPerOp(line.graph);
  for (int64_t i = 0; i < in_place_pairs; ++i) {
    line.plan.groups[i].in_place = {{values[i], values[i + 1]}};
  }
  return line;
}

TEST_CASE("random schedules give memory plans that keep M1 to M4, with and without reuse") {
  const uint64_t seed = GENERATE(range(1, 60));
  const int streams = GENERATE(1, 2, 5);
  INFO("seed " << seed << ", streams " << streams);
  const RandomPlan random = MakeRandomPlan(seed, {.ops = 60});
  const StreamSchedule schedule = Scheduled(random, streams);
  int64_t arena_with_reuse = 0;
  for (const MemoryOptions& options :
       {MemoryOptions{}, MemoryOptions{.overwrite_donated = true}, MemoryOptions{.in_place = false},
        MemoryOptions{.phases = {.most = 5}}, MemoryOptions{.reuse = false}}) {
    const MemoryPlan memory = Planned(random, schedule, options);
    INFO(schedule.Print());
    INFO(memory.Print());
    const absl::Status verified = memory.Verify(random.graph, random.plan, schedule);
    INFO(verified);
    CHECK(verified.ok());
    auto parsed = ParseMemoryPlan(memory.Print());
    INFO(parsed.status());
    REQUIRE(parsed.ok());
    CHECK(*parsed == memory);
    if (options.reuse) arena_with_reuse = memory.arena_bytes;
    CHECK(memory.phases.size() <= static_cast<size_t>(options.phases.most));
    CHECK(memory.arena_bytes <= memory.bytes_without_reuse);
    MemoryOptions apart = options;
    apart.reuse = false;
    CHECK(memory.bytes_without_reuse == Planned(random, schedule, apart).arena_bytes);
  }
  CHECK(Planned(random, schedule, {.reuse = false}).arena_bytes >= arena_with_reuse);
}

TEST_CASE("values whose lives do not meet share bytes, and reuse off gives each its own") {
  const RandomPlan line = Line(0);
  const StreamSchedule schedule = Scheduled(line, 1);
  // a and b live together, c is the caller's.
  CHECK(Planned(line, schedule).arena_bytes == 8192);
  CHECK(Planned(line, schedule).bytes_without_reuse == 8192);
  GraphBuilder builder("long");
  ValueId v = builder.Input({DType::kFp32, {1024}}, {.name = "x"});
  for (int i = 0; i < 10; ++i) v = builder.Add(Op::neg, {v});
  builder.Output(v, "y");
  RandomPlan chain{*builder.Build(), {}};
  chain.plan = OneGroupPerOp(chain.graph);
  CHECK(Planned(chain, Scheduled(chain, 1)).arena_bytes == 2 * 4096);
  CHECK(Planned(chain, Scheduled(chain, 1), {.reuse = false}).arena_bytes == 9 * 4096);
}

TEST_CASE("a last reader's output takes over its input's bytes; a donated input only if allowed") {
  const RandomPlan line = Line(3);
  const StreamSchedule schedule = Scheduled(line, 1);
  const MemoryPlan kept = Planned(line, schedule);
  CHECK(kept.arena_bytes == 4096);
  CHECK(kept.Find({NodeId{2}, 0})->takes_over == ValueId{NodeId{1}, 0});
  CHECK_FALSE(kept.Find({NodeId{1}, 0})->takes_over);
  const MemoryPlan apart = Planned(line, schedule, {.in_place = false});
  CHECK(apart.arena_bytes == 8192);
  CHECK_FALSE(apart.Find({NodeId{2}, 0})->takes_over);
  const MemoryPlan given = Planned(line, schedule, {.overwrite_donated = true});
  CHECK(given.arena_bytes == 0);
  CHECK(given.Find({NodeId{1}, 0})->takes_over == ValueId{NodeId{0}, 0});
  CHECK(given.Find({NodeId{2}, 0})->place == Placement::kInput);
  CHECK(given.Find({NodeId{3}, 0})->place == Placement::kOutput);
}

TEST_CASE("a donated input is taken over only if it lies as well aligned as kernels expect") {
  for (const int64_t alignment : {256, 512}) {
    RandomPlan line = Line(3);
    KernelBody reader;
    reader.ir.buffers.push_back({.value = {NodeId{1}, 0}, .alignment = alignment});
    line.plan.groups[1].body = LaunchOf(reader);
    const MemoryPlan memory =
        Planned(line, Scheduled(line, 1), {.overwrite_donated = true});  // x is aligned by 256
    CHECK(memory.Find({NodeId{1}, 0})->takes_over.has_value() == (alignment == 256));
  }
}

TEST_CASE("a value does not take over fewer bytes than it has") {
  GraphBuilder builder("grows");
  const ValueId x = builder.Input({DType::kFp32, {64}}, {.name = "x"});
  const ValueId wide = builder.Input({DType::kFp32, {8, 64}}, {.name = "wide"});
  const ValueId small = builder.Add(Op::neg, {x});
  const ValueId large = builder.Add(Op::add, {small, wide});
  builder.Output(builder.Add(Op::neg, {large}), "y");
  RandomPlan p{*builder.Build(), {}};
  p.plan = OneGroupPerOp(p.graph);
  for (Group& group : p.plan.groups) {
    if (group.nodes == std::vector<NodeId>{large.node}) group.in_place = {{small, large}};
  }
  const MemoryPlan memory = Planned(p, Scheduled(p, 1));
  CHECK_FALSE(memory.Find(large)->takes_over);
}

TEST_CASE("a sum that is an output takes what it adds to into the output's memory") {
  GraphBuilder builder("accumulate");
  const ValueId x = builder.Input({DType::kFp32, {4, 4}}, {.name = "x"});
  const ValueId first = builder.Add(Op::neg, {x});
  const ValueId sum = builder.Add(Op::add, {first, x});
  builder.Output(sum, "sum");
  RandomPlan p{*builder.Build(), {}};
  p.plan = OneGroupPerOp(p.graph);
  p.plan.groups[1].body = AddingMatMul(x, sum, first);
  for (bool reuse : {true, false}) {
    const MemoryPlan memory = Planned(p, Scheduled(p, 1), {.reuse = reuse});
    CHECK(memory.arena_bytes == 0);
    CHECK(memory.Find(first)->place == Placement::kOutput);
    CHECK(memory.Find(first)->number == 0);
  }
  // An input that is not given up cannot be added to.
  p.plan.groups[1].body = AddingMatMul(x, sum, x);
  CHECK_THAT(std::string(PlanMemory(p.graph, p.plan, Scheduled(p, 1), {}).status().message()),
             ContainsSubstring("may not be overwritten"));
}

TEST_CASE("outputs that repeat a value, pass an input on or want other strides are copied") {
  GraphBuilder builder("outputs");
  const ValueId x = builder.Input({DType::kFp32, {4, 8}}, {.name = "x"});
  const ValueId y = builder.Add(Op::neg, {x});
  const ValueId z = builder.Add(Op::exp, {y});
  builder.Output(y, "y");
  builder.Output(y, "again");
  builder.Output(x, "input");
  builder.AbsentOutput("none");
  builder.Output(z, "transposed", {1, 4});
  RandomPlan p{*builder.Build(), {}};
  p.plan = OneGroupPerOp(p.graph);
  const MemoryPlan memory = Planned(p, Scheduled(p, 1));
  CHECK(memory.copies == std::vector<OutputCopy>{{1, y}, {2, x}, {4, z}});
  CHECK(memory.Find(z)->place == Placement::kArena);
  CHECK(memory.Verify(p.graph, p.plan, Scheduled(p, 1)).ok());
}

TEST_CASE(
    "an output that is a view lies in the memory of the stored value if its strides allow it") {
  GraphBuilder builder("views");
  const ValueId x = builder.Input({DType::kFp32, {4, 8}}, {.name = "x"});
  const ValueId y = builder.Add(Op::neg, {x}), z = builder.Add(Op::exp, {x});
  builder.Output(builder.Permute(y, {1, 0}), "as it lies", {1, 8});
  builder.Output(builder.Permute(z, {1, 0}), "row-major");
  builder.Output(builder.Reshape(z, {32}), "flat");
  RandomPlan p{*builder.Build(), {}};
  p.plan = OneGroupPerOp(p.graph);
  const MemoryPlan memory = Planned(p, Scheduled(p, 1));
  CHECK(memory.Find(y)->place == Placement::kOutput);
  CHECK(memory.Find(z)->place == Placement::kOutput);
  CHECK(memory.Find(z)->number == 2);
  CHECK(memory.copies == std::vector<OutputCopy>{{1, *p.graph.outputs()[1].value}});
  CHECK(memory.Verify(p.graph, p.plan, Scheduled(p, 1)).ok());
}

TEST_CASE("steps that may run together never share bytes, though one is launched after the other") {
  // Two independent branches on two streams.
  GraphBuilder builder("branches");
  const ValueId x = builder.Input({DType::kFp32, {1024}}, {.name = "x"});
  for (int branch = 0; branch < 2; ++branch) {
    ValueId v = x;
    for (int i = 0; i < 3; ++i) v = builder.Add(Op::neg, {v});
    builder.Output(v, "y");
  }
  RandomPlan p{*builder.Build(), {}};
  p.plan = OneGroupPerOp(p.graph);
  for (Group& group : p.plan.groups) group.body = LaunchOf(KernelBody{});
  const StreamSchedule one = Scheduled(p, 1), two = Scheduled(p, 2);
  CHECK(Planned(p, one).arena_bytes == 2 * 4096);
  const MemoryPlan memory = Planned(p, two);
  CHECK(memory.arena_bytes == 4 * 4096);
  CHECK(memory.Verify(p.graph, p.plan, two).ok());
  // The plan for one stream does not hold on two.
  CHECK_THAT(std::string(Planned(p, one).Verify(p.graph, p.plan, two).message()),
             ContainsSubstring("M1"));
}

TEST_CASE("overlapping, misaligned, missing and stolen bytes are found and named") {
  const RandomPlan random = MakeRandomPlan(11, {.ops = 60});
  const StreamSchedule schedule = Scheduled(random, 1);
  const MemoryPlan good = Planned(random, schedule);
  const auto message = [&](const MemoryPlan& m) {
    return std::string(m.Verify(random.graph, random.plan, schedule).message());
  };
  MemoryPlan bad = good;
  for (Placement& p : bad.placements) {
    if (p.place == Placement::kArena) p.offset = 0;
  }
  for (Workspace& w : bad.workspaces) w.offset = 0;
  CHECK_THAT(message(bad), ContainsSubstring("M1"));
  bad = good;
  bad.workspaces.at(0).offset += 8;
  bad.arena_bytes += 8;
  CHECK_THAT(message(bad), ContainsSubstring("M3"));
  bad = good;
  bad.arena_bytes = 1;
  CHECK_THAT(message(bad), ContainsSubstring("M2"));
  bad = good;
  bad.placements.pop_back();
  CHECK_THAT(message(bad), ContainsSubstring("M2"));
  bad = good;
  bad.copies.clear();
  REQUIRE_FALSE(good.copies.empty());
  CHECK_THAT(message(bad), ContainsSubstring("M2"));

  const MemoryPlan phased = Planned(random, schedule, {.phases = {.most = 5}});
  REQUIRE(phased.phases.size() > 1);
  bad = phased;
  bad.phases[1] = 0;
  CHECK_THAT(message(bad), ContainsSubstring("M6: phase 1 begins"));
  bad = phased;
  bad.blocks.pop_back();
  CHECK_THAT(message(bad), ContainsSubstring("M6"));
  bad = phased;
  bad.phases.resize(2);
  for (ArenaBlock& block : bad.blocks) block.first = block.last = 0;
  CHECK_THAT(message(bad), ContainsSubstring("in no block of the phases that use it"));

  const RandomPlan line = Line(0);  // permits no take-over
  const StreamSchedule order = Scheduled(line, 1);
  MemoryPlan stolen = Planned(line, order);
  stolen.placements[2].takes_over = ValueId{NodeId{1}, 0};
  stolen.placements[2].offset = stolen.placements[1].offset;
  CHECK_THAT(std::string(stolen.Verify(line.graph, line.plan, order).message()),
             ContainsSubstring("M4"));
}

TEST_CASE("text that is no memory plan is refused with the line") {
  for (const char* text : {"", "memory", "memory arena=1 without_reuse=1\n%1 @0",
                           "memory arena=1 without_reuse=1\n%1 @x +4 steps 0..1",
                           "memory arena=1 without_reuse=1\nworkspace 1 @0 +3",
                           "memory arena=1 without_reuse=1\ncopy %1 to input 3"}) {
    INFO(text);
    CHECK_FALSE(ParseMemoryPlan(text).ok());
  }
}

TEST_CASE("bytes that two values share are in use from the first use of one to the last of both") {
  Lifetime early{.first = 2, .used_through = {3, 0}, .last = 2};
  early.Merge({.first = 4, .used_through = {0, 6}, .last = 9});
  CHECK(early.first == 2);
  CHECK(early.last == 9);
  CHECK(early.used_through == std::vector<uint32_t>{3, 6});
}

}  // namespace
}  // namespace retrograd
