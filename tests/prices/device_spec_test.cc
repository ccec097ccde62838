// Device specs: numbers that make no device are refused by name, and what they say reaches prices.
#include "fusion/device/device_spec.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fusion/analysis/free_reads.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_numbers.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

std::string Text(const std::string& name) {
  auto text = ReadDeviceSpec(name);
  REQUIRE(text.ok());
  return *std::move(text);
}

absl::StatusOr<DeviceSpec> With(const std::string& text, std::vector<DeviceNumber> numbers) {
  const auto changed = WithDeviceNumbers(text, "test", numbers);
  REQUIRE(changed.ok());
  return ParseDeviceSpec(*changed, "test");
}

std::string RefusalOf(std::vector<DeviceNumber> numbers) {
  return std::string(With(Text("h200"), std::move(numbers)).status().message());
}

TEST_CASE("each number of each device is refused by its name where it is negative") {
  for (const std::string& name : DeviceSpecNames()) {
    const std::string text = Text(name);
    REQUIRE(ParseDeviceSpec(text, name).ok());
    const auto numbers = DeviceNumbers(text, name);
    REQUIRE(numbers.ok());
    for (const DeviceNumber& n : *numbers) {
      // What only matters to loads into shared memory is not read where there are none.
      if (n.value == 0 && n.name != "epilogue_kernels") continue;
      const auto spec = With(text, {{n.name, -1}});
      INFO(name << ": " << n.name << ": " << spec.status());
      CHECK_FALSE(spec.ok());
      CHECK(absl::StrContains(spec.status().message(), n.name));
    }
  }
}

TEST_CASE("numbers out of their range are refused with the range") {
  const auto [name, value] =
      GENERATE(std::pair("shared_bytes_reserved", 1e6), std::pair("sm_share_factor", 0.5),
               std::pair("sm_streaming_factor", 0.9), std::pair("broadcast_miss_share", 1.5),
               std::pair("held_elements_twice", 0.0), std::pair("held_beside_sums_twice", 0.0),
               std::pair("block_us", 1e9), std::pair("int64_steps", 0.5),
               std::pair("matmul_least_slice", 0.0), std::pair("matmul_step_terms", 0.0),
               std::pair("attention_fp32_factor", 1e-6), std::pair("matmul_alignment_bytes", 1e5),
               std::pair("matmul_odd_pitch_factor", 0.5),
               std::pair("matmul_odd_extent_factor", 0.9), std::pair("overlap_blocks", 0.0),
               std::pair("barrier_overlap_blocks", 0.0), std::pair("row_batch_two_blocks", 0.5),
               std::pair("staged_held_elements_twice", 0.0), std::pair("staged_pair_factor", 0.5),
               std::pair("shuffles_per_barrier", 0.0), std::pair("runs_per_barrier", 0.0),
               std::pair("sort_launch_us", 0.0), std::pair("remade_ops", 65.0),
               std::pair("scarce_memory_bytes", 0.0), std::pair("stream_worth_factor", 1.5));
  const std::string refusal = RefusalOf({{name, value}});
  INFO(refusal);
  CHECK(absl::StrContains(refusal,
                          absl::StrCat(name, " is ", PrintNumber(value), ": a number from ")));
}

TEST_CASE("numbers that contradict each other are refused") {
  CHECK(absl::StrContains(RefusalOf({{"cache_lost_share", 0.6}}), "above cache_kept_share"));
  CHECK(absl::StrContains(RefusalOf({{"overlap_threads", 1024}}), "above least_overlap_threads"));
  CHECK(absl::StrContains(RefusalOf({{"no_overlap_threads", 2048}}), "no_overlap_threads"));
  CHECK(absl::StrContains(RefusalOf({{"row_batch_four_blocks", 2.7}}), "three times"));
}

std::string Without(std::string text, const std::string& line) {
  const size_t at = text.find(line);
  REQUIRE(at != std::string::npos);
  text.erase(at, line.size());
  return std::string(ParseDeviceSpec(text, "test").status().message());
}

TEST_CASE("numbers of tables that are missing are refused") {
  CHECK(absl::StrContains(Without(Text("h200"), "  arithmetic_factor: 3\n"),
                          "arithmetic_factor is 0: a number from 1e-06 to 100 is needed"));
  CHECK(absl::StrContains(Without(Text("h200"), "  staged_spill_margin: 0.10\n"),
                          "staged_spill_margin"));
}

TEST_CASE("what a spec says of the first block, the cache and free reads reaches prices") {
  const std::string text = Text("h200");
  const auto changed = With(text, {{"block_us", 3},
                                   {"cache_kept_share", 0.1},
                                   {"cache_lost_share", 0.2},
                                   {"large_elements", 64},
                                   {"remade_ops", 2}});
  REQUIRE(changed.ok());
  const DeviceSpec known = *ParseDeviceSpec(text, "h200");
  CHECK(LeastKernelPs(*changed) == LeastKernelPs(known) + 3'000'000 - known.block_ps);
  const int64_t half = known.cache_bytes / 2;
  CHECK(CachedBytes(half, half, known) == half);
  CHECK(CachedBytes(half, half, *changed) == 0);
  CHECK(FreeReadsOf(*changed).large_elements == 64);
  CHECK(FreeReadsOf(*changed).remade_ops == 2);
}

}  // namespace
}  // namespace retrograd
