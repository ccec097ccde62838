// Sorts of indices run beside whatever runs, where there is a stream for them.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "fusion/plan/plan.h"
#include "runtime/schedule/happens_before.h"
#include "runtime/schedule/schedule_options.h"
#include "runtime/schedule/stream_schedule.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/plans/plan_of.h"

namespace retrograd {
namespace {

// What is summed is made of values that take as long to make as the two lists take to sort.
constexpr absl::string_view kTwoLists = R"(
%near = input i64[200000]
%far = input i64[200000]
%g = input f32[20000,128]
%a = exp %g
%b = mul %a %g
%z = full dtype=f32 shape=[20000,128] value=0.0
%r = index_select %b %far axis=0
%s = index_add %z %near %r axis=0
%t = index_select %s %near axis=0
%u = index_add %z %far %t axis=0
output %u
)";

constexpr absl::string_view kOneList = R"(
%near = input i64[200000]
%m = input f32[200000,8]
%z = full dtype=f32 shape=[20000,8] value=0.0
%s = index_add %z %near %m axis=0
output %s
)";

struct Scheduled {
  Planned planned;
  StreamSchedule schedule;
};

Scheduled ScheduleOf(absl::string_view text, int streams) {
  const DeviceSpec device = Device("h200");
  Scheduled made{.planned = PlanOf(Parse(text), device), .schedule = {}};
  const std::string spec = *ReadDeviceSpec("h200");
  const ScheduleOptions options = *ScheduleOptionsFor(device, spec, streams);
  auto schedule = ScheduleStreams(made.planned.graph, made.planned.plan, options);
  REQUIRE(schedule.status().ToString() == "OK");
  made.schedule = *std::move(schedule);
  INFO(made.schedule.Print());
  REQUIRE(made.schedule.Verify(made.planned.graph, made.planned.plan).ToString() == "OK");
  return made;
}

bool IsSort(const Scheduled& made, const Step& step) {
  const Call* call = CallOf(made.planned.plan.groups[Index(step.group)]);
  return call != nullptr && call->op == Op::sort_indices;
}

TEST_CASE("sorts run on a side stream, beside steps that fill the chip") {
  const Scheduled made = ScheduleOf(kTwoLists, /*streams=*/0);
  CHECK(made.schedule.streams > 1);
  CHECK(made.schedule.makespan_ps < ScheduleOf(kTwoLists, 1).schedule.makespan_ps);
  const HappensBefore order(made.schedule);
  int sorts = 0, beside = 0;
  for (uint32_t i = 0; i < made.schedule.steps.size(); ++i) {
    const Step& step = made.schedule.steps[i];
    CHECK(step.background == IsSort(made, step));
    if (!step.background) continue;
    ++sorts;
    CHECK(step.stream > 0);
    CHECK(!step.fills_chip);
    for (uint32_t k = 0; k < made.schedule.steps.size(); ++k) {
      if (!made.schedule.steps[k].fills_chip) continue;
      beside += !order.Precedes(i, k) && !order.Precedes(k, i);
    }
  }
  CHECK(sorts == 2);
  CHECK(beside > 0);
  auto parsed = ParseStreamSchedule(made.schedule.Print());
  REQUIRE(parsed.status().ToString() == "OK");
  CHECK(*parsed == made.schedule);
}

TEST_CASE("a sort that all others wait for stays on the chain, and so does each on one stream") {
  CHECK(ScheduleOf(kOneList, /*streams=*/0).schedule.streams == 1);
  for (const Step& step : ScheduleOf(kTwoLists, /*streams=*/1).schedule.steps) {
    CHECK(step.stream == 0);
    CHECK(!step.background);
  }
}

// So many pairs of a gather and a sum of rows of so many columns, each at so many indices of its
// own, one behind the other.
std::string ChainOfLists(int lists, int columns = 128, int indices = 200000) {
  const std::string rows = "f32[20000," + std::to_string(columns) + "]";
  std::string text = "%g = input " + rows + "\n%v0 = exp %g\n";
  text += "%z = full dtype=f32 shape=[20000," + std::to_string(columns) + "] value=0.0\n";
  for (int i = 0; i < lists; ++i) {
    const std::string n = std::to_string(i), next = std::to_string(i + 1);
    text += "%i" + n + " = input i64[" + std::to_string(indices) + "]\n";
    text += "%r" + n + " = index_select %v" + n + " %i" + n + " axis=0\n";
    text += "%v" + next + " = index_add %z %i" + n + " %r" + n + " axis=0\n";
  }
  return text + "output %v" + std::to_string(lists) + "\n";
}

// The most lists that have been begun and not read, as the schedule predicts.
int MostUnread(const Scheduled& made) {
  int most = 0;
  for (const Step& at : made.schedule.steps) {
    int unread = 0;
    for (const Step& sort : made.schedule.steps) {
      if (!sort.background || sort.start_ps > at.start_ps) continue;
      const ValueId list = made.planned.plan.groups[Index(sort.group)].outputs[0];
      bool read = false;
      for (const Step& reader : made.schedule.steps) {
        const std::vector<ValueId>& in = made.planned.plan.groups[Index(reader.group)].inputs;
        const bool reads = std::find(in.begin(), in.end(), list) != in.end();
        read = read || (reads && reader.start_ps <= at.start_ps);
      }
      unread += !read;
    }
    most = std::max(most, unread);
  }
  return most;
}

TEST_CASE("of many lists a side stream begins the next one when the last one is read") {
  for (const int streams : {2, 3}) {
    const Scheduled made = ScheduleOf(ChainOfLists(8), streams);
    int sorts = 0;
    for (const Step& step : made.schedule.steps) sorts += step.background;
    CHECK(sorts == 8);
    CHECK(MostUnread(made) <= streams - 1);
    CHECK(made.schedule.makespan_ps < ScheduleOf(ChainOfLists(8), 1).schedule.makespan_ps);
  }
}

TEST_CASE("on one stream a list is sorted when its reader is next") {
  // A sort takes longer than several of the sums.
  const Scheduled made = ScheduleOf(ChainOfLists(8, /*columns=*/8, /*indices=*/2'000'000), 1);
  const std::vector<Step>& steps = made.schedule.steps;
  int sorts = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!IsSort(made, steps[i])) continue;
    ++sorts;
    REQUIRE(i + 1 < steps.size());
    CHECK(!IsSort(made, steps[i + 1]));
  }
  CHECK(sorts == 8);
}

TEST_CASE("on one stream no list waits for what later readers read to be made") {
  // So many products, each scaled by sums at indices of its own behind the ones before.
  constexpr int kPairs = 6;
  std::string text = "%v0 = input bf16[20000,128]\n%far = input i64[200000]\n";
  text += "%z = full dtype=bf16 shape=[20000,128] value=0.0\n";
  for (int k = 0; k < kPairs; ++k) {
    const std::string n = std::to_string(k), next = std::to_string(k + 1);
    text += "%a" + n + " = input bf16[200000,64]\n%b" + n + " = input bf16[64,128]\n";
    text += "%i" + n + " = input i64[200000]\n%m" + n + " = matmul %a" + n + " %b" + n + "\n";
    text += "%g" + n + " = index_select %v" + n + " %far axis=0\n";
    text += "%p" + n + " = mul %g" + n + " %m" + n + "\n";
    text += "%v" + next + " = index_add %z %i" + n + " %p" + n + " axis=0\n";
  }
  const Scheduled made = ScheduleOf(text + "output %v6\n", 1);
  int unread = 0, most = 0;
  for (const Step& step : made.schedule.steps) {
    const Group& group = made.planned.plan.groups[Index(step.group)];
    const Call* call = CallOf(group);
    if (call != nullptr && call->op == Op::matmul) ++unread;
    if (call == nullptr) --unread;  // the sum that reads it
    most = std::max(most, unread);
  }
  CHECK(most <= 2);
}

TEST_CASE("lists that one group reads together are all made, on however few streams") {
  // The second sum waits for both lists: that of the other indices and its own.
  constexpr absl::string_view kBoth = R"(
%near = input i64[200000]
%far = input i64[200000]
%m = input f32[200000,8]
%z = full dtype=f32 shape=[20000,8] value=0.0
%s = index_add %z %near %m axis=0
%t = index_add %z %far %m axis=0
%u = mul %s %t
output %u
)";
  for (const int streams : {1, 2, 3}) {
    const Scheduled made = ScheduleOf(kBoth, streams);
    CHECK(made.schedule.steps.size() == made.planned.plan.groups.size());
  }
}

TEST_CASE("lists that any sums read in any order are made, and every schedule is legal") {
  const unsigned seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](int n) { return std::to_string(random() % static_cast<unsigned>(n)); };
  for (int graph = 0; graph < 25; ++graph) {
    constexpr int kLists = 5, kSums = 8;
    std::string text = "%v0 = input f32[20000,32]\n";
    text += "%z = full dtype=f32 shape=[20000,32] value=0.0\n";
    for (int i = 0; i < kLists; ++i) text += "%i" + std::to_string(i) + " = input i64[200000]\n";
    for (int k = 0; k < kSums; ++k) {
      const std::string r = "%r" + std::to_string(k), v = "%v" + std::to_string(k + 1);
      text += r + " = index_select %v" + below(k + 1) + " %i" + below(kLists) + " axis=0\n";
      text += v + " = index_add %z %i" + below(kLists) + " " + r + " axis=0\n";
    }
    for (int k = 1; k <= kSums; ++k) text += "output %v" + std::to_string(k) + "\n";
    const Scheduled made = ScheduleOf(text, 2 + graph % 3);
    CHECK(made.schedule.steps.size() == made.planned.plan.groups.size());
  }
}

TEST_CASE("what is no sort, or stands on the chain, is found in the background") {
  const Scheduled made = ScheduleOf(kTwoLists, /*streams=*/2);
  for (size_t i = 0; i < made.schedule.steps.size(); ++i) {
    StreamSchedule bad = made.schedule;
    if (bad.steps[i].background) {
      bad.steps[i].fills_chip = true;
    } else {
      bad.steps[i].background = true;
    }
    const std::string message(bad.Verify(made.planned.graph, made.planned.plan).message());
    CHECK_THAT(message, ContainsSubstring("S5"));
  }
}

}  // namespace
}  // namespace retrograd
