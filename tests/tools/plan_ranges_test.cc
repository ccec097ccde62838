// Which kernels hold at which sizes: borders to the step, what one plan says at any size, and what
// is wrong with a range.
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "graph/proto/bind_graph.h"
#include "tests/catch.h"
#include "tools/explain/plan_ranges.h"
#include "tools/support/group_variant.h"

namespace retrograd {
namespace {

const std::string kGpt2 = RETROGRAD_SOURCE_DIR "/tests/data/sizes/gpt2.bwd.pb";

SizeRange Range(const std::string& text) {
  const auto range = ParseSizeRange(text);
  INFO(range.status());
  REQUIRE(range.ok());
  return *range;
}

PlanRanges RangesOf(const PlanArguments& arguments, const std::string& range,
                    int most = kMostPlansOfRange) {
  Progress progress;
  auto ranges = FindPlanRanges(arguments, Range(range), &progress, most);
  INFO(ranges.status());
  REQUIRE(ranges.ok());
  return *std::move(ranges);
}

std::string Refusal(const PlanArguments& arguments, const std::string& range) {
  Progress progress;
  const auto ranges = FindPlanRanges(arguments, Range(range), &progress);
  CHECK_FALSE(ranges.ok());
  return std::string(ranges.status().message());
}

TEST_CASE("a range is a name, two ends and a step") {
  CHECK(Range("s0=64..4096").Print() == "s0 = 64 to 4096 in steps of 8");
  CHECK(Range("s0=1..100").Print() == "s0 = 1 to 100");
  CHECK(Range("s0=2..100").Print() == "s0 = 2 to 100 in steps of 2");
  CHECK(Range("s0=64..4096:1").Print() == "s0 = 64 to 4096");
  CHECK(Range("s0=10..30:7").Print() == "s0 = 10 to 24 in steps of 7");
  CHECK(Range("s0=5..5").Print() == "s0 = 5 to 5");
  for (const char* text : {"", "s0", "=1..2", "s0=1", "s0=1..", "s0=..2", "s0=a..b", "1..2=s0",
                           "s0=1..2,s1=3..4", "s0=1..2:", "s0=1..99999999999999999999"}) {
    const auto range = ParseSizeRange(text);
    CHECK(range.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(range.status().message()), ContainsSubstring("write NAME=LOW..HIGH"));
  }
  CHECK_THAT(std::string(ParseSizeRange("s0=9..2").status().message()),
             ContainsSubstring("--range s0=9..2: the low end is above the high one"));
  CHECK_THAT(std::string(ParseSizeRange("s0=-1..2").status().message()),
             ContainsSubstring("a size is at least 0"));
  CHECK_THAT(std::string(ParseSizeRange("s0=1..2:0").status().message()),
             ContainsSubstring("the step is less than 1"));
}

TEST_CASE("samples are sizes of the range, ascending, with both ends") {
  std::mt19937 rng(5);
  for (int i = 0; i < 2000; ++i) {
    const int64_t low = rng() % 3000, high = low + rng() % 100'000;
    const SizeRange range = Range(absl::StrCat("s=", low, "..", high, ":", 1 + rng() % 20));
    const int most = 2 + static_cast<int>(rng() % 20);
    const std::vector<int64_t> samples = SamplesOf(range, most);
    INFO(range.Print());
    REQUIRE(samples.size() <= static_cast<size_t>(most));
    REQUIRE(samples.front() == low);
    REQUIRE(samples.back() == range.high);
    for (size_t s = 1; s < samples.size(); ++s) {
      REQUIRE(samples[s] > samples[s - 1]);
      REQUIRE((samples[s] - low) % range.step == 0);
    }
  }
}

TEST_CASE("intervals end where the next size is another plan's") {
  const PlanRanges ranges = RangesOf({.graph = kGpt2, .spec = "h200"}, "length=512..640");
  CHECK(ranges.others == "batch=4");
  CHECK(ranges.unknown_borders == 0);
  REQUIRE_FALSE(ranges.partitions.empty());
  CHECK(ranges.partitions.front().low == 512);
  CHECK(ranges.partitions.back().high == 640);
  for (size_t i = 1; i < ranges.partitions.size(); ++i) {
    CHECK(ranges.partitions[i].low - ranges.partitions[i - 1].high == 8);
  }
  for (const PlanRanges::Kernel& kernel : ranges.kernels) {
    INFO(kernel.what);
    REQUIRE_FALSE(kernel.intervals.empty());
    for (size_t i = 1; i < kernel.intervals.size(); ++i) {
      const auto &before = kernel.intervals[i - 1], &after = kernel.intervals[i];
      CHECK(after.low > before.high);
      if (after.low - before.high == 8) CHECK(after.variant != before.variant);
    }
  }
}

// How often the plan runs each variant.
std::map<std::string, int64_t> VariantsAt(const std::string& bind) {
  Progress progress;
  auto planned = OpenAndPlan({.graph = kGpt2, .spec = "h200", .bind = bind}, &progress);
  REQUIRE(planned.ok());
  std::map<std::string, int64_t> variants;
  for (const Group& group : planned->planned.plan.groups) ++variants[VariantOf(group)];
  return variants;
}

TEST_CASE("at a size that was planned a range says what the plan of that size is") {
  const PlanRanges ranges =
      RangesOf({.graph = kGpt2, .spec = "h200", .bind = "batch=3"}, "length=96..240:16");
  CHECK(ranges.others == "batch=3");
  for (const int64_t size : {96, 112, 160, 240}) {
    INFO(size);
    std::map<std::string, int64_t> variants;
    for (const PlanRanges::Kernel& kernel : ranges.kernels) {
      for (const auto& interval : kernel.intervals) {
        if (interval.low <= size && size <= interval.high)
          variants[interval.variant] += kernel.times;
      }
    }
    CHECK(variants == VariantsAt(absl::StrCat("batch=3,length=", size)));
  }
}

TEST_CASE("a variant has no number that a launch may be given") {
  for (const auto& [variant, count] : VariantsAt("batch=4,length=1000")) {
    INFO(variant);
    for (const char* number : {"blocks=", "split=", "staged="}) {
      CHECK_THAT(variant, !ContainsSubstring(number));
    }
  }
}

TEST_CASE("too many borders are counted and not looked for") {
  const PlanRanges ranges = RangesOf({.graph = kGpt2, .spec = "h200"}, "length=64..1024", 20);
  CHECK(ranges.planned.size() == 20);
  CHECK(ranges.unknown_borders > 0);
  CHECK_THAT(RangesAsText(ranges), ContainsSubstring("borders were not looked for"));
}

TEST_CASE("a table of ranges fits a screen, and its JSON holds everything") {
  const PlanRanges ranges = RangesOf({.graph = kGpt2, .spec = "h200"}, "length=64..1024:64");
  const std::string text = RangesAsText(ranges);
  CHECK(std::count(text.begin(), text.end(), '\n') <= 60);
  for (absl::string_view line : absl::StrSplit(text, '\n')) CHECK(line.size() <= 120);
  CHECK_THAT(text, ContainsSubstring("length = 64 to 1024 in steps of 64, batch=4: planned at 16"));
  const auto json = nlohmann::json::parse(RangesAsJson(ranges));
  CHECK(json["format"] == "retrograd.ranges");
  CHECK(json["step"] == 64);
  CHECK(json["planned"].size() == 16);
  CHECK(json["kernels"].size() == ranges.kernels.size());
  CHECK(json["partitions"].size() == ranges.partitions.size());
  for (size_t k = 0; k < ranges.kernels.size(); ++k) {
    CHECK(json["kernels"][k]["intervals"].size() == ranges.kernels[k].intervals.size());
  }
}

TEST_CASE("what is printed of ranges") {
  PlanRanges ranges{.graph = "step",
                    .device = "h200",
                    .range = Range("s0=64..4096"),
                    .others = "s1=2",
                    .planned = {64, 128, 136, 4096}};
  ranges.partitions = {{{64, 128, 2'000'000, 3'500'000}, 2, 2},
                       {{136, 4096, 4'000'000, 90'000'000}, 2, 1}};
  ranges.refused = {{8, 56, "the graph was not made for these sizes"}};
  ranges.kernels = {
      {.what = "mul, sum  from aten.mul",
       .times = 12,
       .intervals = {{{64, 128, 1'000'000, 1'500'000}, "row_reduction threads=256 vec=8"},
                     {{136, 136, 2'000'000, 2'000'000}, "row_reduction threads=256 vec=8 split"}}},
      {.what = "matmul",
       .is_call = true,
       .intervals = {{{64, 72, 1'000'000, 1'000'000}, "matmul 64x8x8 bf16"},
                     {{80, 80, 1'000'000, 1'000'000}, "matmul 80x8x8 bf16"},
                     {{88, 128, 1'000'000, 1'000'000}, "matmul 96x8x8 bf16"},
                     {{136, 4096, 1'000'000, 70'000'000}, "matmul 128x8x8 bf16"}}}};
  CHECK(RangesAsText(ranges) ==
        R"(step on h200, s0 = 64 to 4096 in steps of 8, s1=2: planned at 4 sizes
no plan at 8 to 56: the graph was not made for these sizes
Plans by which ops share a kernel: 2 intervals
        64 to 128      2 kernels and calls, predicted 2.00 us to 3.50 us
        136 to 4096    1 to 2 kernels and calls, predicted 4.00 us to 90.0 us
Most expensive of 2 distinct kernels and calls, by size:
  12x  mul, sum  from aten.mul
        64 to 128      1.00 us to 1.50 us     row_reduction threads=256 vec=8
        136            2.00 us                row_reduction threads=256 vec=8 split
   1x  matmul
        64 to 4096     1.00 us to 70.0 us     4 size classes, first matmul 64x8x8 bf16; others from 80, 88, 136
)");
}

TEST_CASE("ranges that a graph does not have are refused with what it has") {
  const PlanArguments gpt2{.graph = kGpt2, .spec = "h200"};
  CHECK_THAT(Refusal(gpt2, "length=64..2048"),
             ContainsSubstring("length=2048 is none of its numbers: 2 to 1024"));
  CHECK_THAT(Refusal(gpt2, "len=64..128"), ContainsSubstring("no size is called 'len'; those of"));
  CHECK_THAT(Refusal({.graph = kGpt2, .spec = "h200", .bind = "length=3"}, "length=64..128"),
             ContainsSubstring("--bind and --range both give length"));
  CHECK_THAT(Refusal({.graph = "golf_tiny"}, "length=64..128"),
             ContainsSubstring("the graph has numbers alone"));
  CHECK_THAT(Refusal({.graph = "no_such_model"}, "length=64..128"),
             ContainsSubstring("no_such_model"));
}

}  // namespace
}  // namespace retrograd
