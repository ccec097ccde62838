// The pieces of `retrograd calibrate`: fits, the spec's text, and the parts that a processor can
// do.
#include "tools/calibrate.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fusion/kernel/device_spec.h"
#include "fusion/kernel/interference.h"
#include "runtime/host_device.h"
#include "tests/catch.h"
#include "tools/price_fit.h"

namespace retrograd {
namespace {

using Numbers = std::vector<SpecNumber>;
using Names = std::vector<std::string>;

std::string H200() {
  auto text = ReadDeviceSpec("h200");
  REQUIRE(text.ok());
  return *text;
}

TEST_CASE("numbers of a spec's text are replaced, the rest keeps its words, and is marked") {
  const auto changed =
      WithSpecNumbers(H200(), Numbers{{"row_batch_us", 0.5, "a \"test\""}}, "kept");
  INFO(changed.status());
  REQUIRE(changed.ok());
  CHECK(absl::StrContains(*changed, "row_batch_us { value: 0.5 source: \"a \\\"test\\\"\" }\n"));
  CHECK(absl::StrContains(*changed, "sector_bytes { value: 32"));
  CHECK(absl::StrContains(*changed, "  # kept\n"));
  auto before = ParseDeviceSpec(H200(), "before"), after = ParseDeviceSpec(*changed, "after");
  REQUIRE(before.ok());
  REQUIRE(after.ok());
  CHECK(after->row_batch_ps == 500'000);
  CHECK(after->hbm_bytes_per_s == before->hbm_bytes_per_s);
  // Marking twice marks once.
  const auto again = WithSpecNumbers(*changed, {}, "kept");
  REQUIRE(again.ok());
  CHECK(!absl::StrContains(*again, "# kept  # kept"));
}

TEST_CASE("a number that no spec has is refused by name") {
  const auto changed = WithSpecNumbers(H200(), Numbers{{"warp_speed", 9, "a test"}}, "");
  REQUIRE(!changed.ok());
}

TEST_CASE("a spec gets another name and arch, and says that it is calibrated") {
  const auto spec = ParseDeviceSpec(WithSpecName(H200(), "mine", "sm_100"), "mine");
  INFO(spec.status());
  REQUIRE(spec.ok());
  CHECK(spec->name == "mine");
  CHECK(spec->arch == "sm_100");
  CHECK(spec->calibrated);
}

TEST_CASE("a fit finds the numbers that times were made with") {
  auto truth_text = WithSpecNumbers(
      H200(), Numbers{{"row_batch_us", 1.1, "t"}, {"hbm_bytes_per_s", 3.1e12, "t"}}, "");
  REQUIRE(truth_text.ok());
  auto truth = ParseDeviceSpec(*truth_text, "truth");
  REQUIRE(truth.ok());
  std::vector<PricedSample> samples;
  for (int64_t n : {1, 3, 10, 40}) {
    const auto price = [n](const DeviceSpec& d) {
      return n * d.row_batch_ps +
             40'000'000'000'000'000'000.0 / static_cast<double>(d.hbm_bytes_per_s);
    };
    samples.push_back({1e-6 * price(*truth),
                       [price](const DeviceSpec& d) { return static_cast<int64_t>(price(d)); }});
  }
  const auto fit = FitNumbers(H200(), Names{"row_batch_us", "hbm_bytes_per_s"}, samples);
  INFO(fit.status());
  REQUIRE(fit.ok());
  CHECK(fit->error_after < 0.02);
  CHECK(fit->error_before > 0.1);
  CHECK(std::abs(fit->numbers[0].value / 1.1 - 1) < 0.06);
  CHECK(std::abs(fit->numbers[1].value / 3.1e12 - 1) < 0.06);
}

TEST_CASE("a fit by a number that there is not is refused") {
  CHECK(!FitNumbers(H200(), Names{"warp_speed"}, {}).ok());
}

// Small sizes: what is tested is that each part runs and gives a number that a spec may hold.
TEST_CASE("each part of a calibration gives positive numbers of a valid spec, on a processor") {
  struct Part {
    Calibration measure;
    size_t numbers;
  };
  const Part part =
      GENERATE(Part{CalibrateLaunches, 3}, Part{CalibrateBandwidth, 7}, Part{CalibrateRates, 3},
               Part{CalibrateRowWalks, 5}, Part{CalibrateScatter, 1}, Part{CalibrateMatMuls, 7},
               Part{CalibrateAttention, 1});
  const std::unique_ptr<Device> device = MakeHostDevice({});
  const auto numbers = part.measure(H200(), {.small = true, .repeat = 1}, device.get());
  INFO(numbers.status());
  REQUIRE(numbers.ok());
  CHECK(numbers->size() == part.numbers);
  for (const SpecNumber& n : *numbers) {
    INFO(n.field);
    CHECK(n.value > 0);
    CHECK(!n.source.empty());
  }
  const auto text = WithSpecNumbers(H200(), *numbers, "");
  INFO(text.status());
  REQUIRE(text.ok());
  const auto spec = ParseDeviceSpec(*text, "measured");
  INFO(spec.status());
  CHECK(spec.ok());
}

TEST_CASE("a device that is not there is refused, and no spec is written") {
  const std::string path =
      (std::filesystem::temp_directory_path() / absl::StrCat("calibrate_test_", getpid())).string();
  CHECK(CalibrateCommand({.device = "cuda:99", .output = path}) == 1);
  CHECK(CalibrateCommand({.device = "tpu", .output = path}) == 1);
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("the interference table is measured, read back, and asked by what is no smaller") {
  const std::unique_ptr<Device> device = MakeHostDevice({});
  const auto rows =
      MeasureInterference(H200(), "a test: ", {.small = true, .repeat = 1}, device.get());
  INFO(rows.status());
  REQUIRE(rows.ok());
  CHECK(rows->size() == 28);  // pairs of seven, each with itself too
  const std::string text = WithInterference(WithInterference(H200(), *rows), *rows);
  const auto table = ParseInterference(text, "measured");
  INFO(table.status());
  REQUIRE(table.ok());
  CHECK(table->rows().size() == 28);
  REQUIRE(ParseDeviceSpec(text, "measured").ok());
}

TEST_CASE("a pair takes the row with the least shares that cover it, and none is no overlap") {
  const WorkKind kernel = WorkKind::kKernel, matmul = WorkKind::kMatMul;
  const InterferenceTable table({{kernel, matmul, 0.5, 0.25, 0.7},
                                 {kernel, matmul, 1, 1, 1.4},
                                 {kernel, kernel, 0.25, 0.25, 0.6}});
  CHECK(table.Factor(kernel, 0.4, matmul, 0.1) == 0.7);
  CHECK(table.Factor(matmul, 0.1, kernel, 0.4) == 0.7);
  CHECK(table.Factor(kernel, 0.1, matmul, 0.4) == 1.4);
  CHECK(table.Factor(kernel, 0.3, kernel, 0.1) == 1);
  CHECK(table.Factor(matmul, 0.1, matmul, 0.1) == 1);
  CHECK(table.Pays(matmul, 0.2, 0.95));
  CHECK(!table.Pays(matmul, 0.3, 0.95));
  CHECK(table.Pays(kernel, 0.5, 0.95));
  CHECK(!table.Pays(kernel, 0.5, 0.65));
}

TEST_CASE("rows of an interference table that make no sense are refused") {
  for (const char* row :
       {"interference { a: \"tree\" b: \"kernel\" share_a: 1 share_b: 1 factor: 1 source: \"x\" }",
        "interference { a: \"kernel\" b: \"kernel\" share_a: 100 share_b: 1 factor: 1 source: "
        "\"x\" }",
        "interference { a: \"kernel\" b: \"kernel\" share_a: 1 share_b: 1 factor: -1 source: \"x\" "
        "}",
        "interference { a: \"kernel\" b: \"kernel\" share_a: 1 share_b: 1 factor: 1 }"}) {
    INFO(row);
    CHECK(!ParseInterference(WithInterference(H200(), {row}), "test").ok());
  }
}

}  // namespace
}  // namespace retrograd
