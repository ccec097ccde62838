// The pieces of `retrograd calibrate`: fits, the spec's text, and the parts that a processor can
// do.
#include "tools/calibrate/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fusion/device/device_numbers.h"
#include "fusion/device/device_spec.h"
#include "fusion/device/interference.h"
#include "fusion/device/spec_models.h"
#include "runtime/devices/host_device.h"
#include "tests/catch.h"
#include "tools/calibrate/calibration_kernels.h"
#include "tools/fit/price_fit.h"
#include "tools/fit/schedule_regret.h"
#include "tools/fit/timed_kernels.h"

namespace retrograd {
namespace {

using Numbers = std::vector<SpecNumber>;
using Names = std::vector<std::string>;

std::string H200() {
  auto text = ReadDeviceSpec("h200");
  REQUIRE(text.ok());
  return *text;
}

DeviceSpec Spec(const std::string& text) {
  auto spec = ParseDeviceSpec(text, "test");
  REQUIRE(spec.ok());
  return *spec;
}

BenchLog HostLog(const Device& device) {
  const DeviceFacts facts = device.Describe();
  return BenchLog({.model = facts.model,
                   .arch = "x86_64",
                   .date = "2026-11-22",
                   .sms = facts.sms,
                   .cache_bytes = facts.cache_bytes});
}

// The committed measurements of an H200.
BenchLog H200Log() {
  std::ifstream file(RETROGRAD_SOURCE_DIR "/bench/results/calibration_h200.json");
  std::stringstream text;
  text << file.rdbuf();
  auto log = BenchLog::Parse(text.str(), "calibration_h200.json");
  INFO(log.status());
  REQUIRE(log.ok());
  return *std::move(log);
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

TEST_CASE("a spec gets another name, arch and model, and says that it is calibrated") {
  const std::string text = WithSpecName(H200(), "mine", "sm_100", "NVIDIA \"Mine\"");
  const auto models = ParseSpecModels(text, "mine");
  REQUIRE(models.ok());
  CHECK(*models == std::vector<std::string>{"NVIDIA \"Mine\""});
  const auto spec = ParseDeviceSpec(text, "mine");
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
  CHECK(fit->at_range.empty());
}

TEST_CASE("a number that a fit would move out of its range is said to, and stays the base's") {
  const double factor = GENERATE(0.05, 20.0);
  const int64_t waits = Spec(H200()).row_batch_ps;
  const auto price = [](const DeviceSpec& d) { return 100 * d.row_batch_ps; };
  const std::vector<PricedSample> samples = {
      {1e-6 * 100 * factor * static_cast<double>(waits), price}};
  const auto fit = FitNumbers(H200(), Names{"row_batch_us", "barrier_us"}, samples);
  INFO(fit.status());
  REQUIRE(fit.ok());
  CHECK(fit->at_range == Names{"row_batch_us"});
  CalibrationBench bench;
  REQUIRE(FoundNumbers(*fit, "a test", bench).size() == 1);
  CHECK(FoundNumbers(*fit, "a test", bench)[0].field == "barrier_us");
  bench.sizes.small = true;
  CHECK(FoundNumbers(*fit, "a test", bench).size() == 2);
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
      GENERATE(Part{CalibrateLaunches, 3}, Part{CalibrateBandwidth, 4}, Part{CalibrateRates, 5},
               Part{CalibrateAccesses, 4}, Part{CalibrateRowWalks, 2}, Part{CalibrateSorts, 3},
               Part{CalibrateMatMuls, 7}, Part{CalibrateAttention, 1});
  const std::unique_ptr<Device> device = MakeHostDevice({});
  BenchLog log = HostLog(*device);
  const CalibrationBench bench{{.small = true, .repeat = 1}, device.get(), &log, Spec(H200())};
  const auto numbers = part.measure(H200(), bench);
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

// Fitted from the spec as it is: a number that its own measurements would move was not theirs.
// Sorts have none: those in the file are of other kernels.
TEST_CASE("the h200 spec is what the committed measurements of an H200 make of it") {
  BenchLog log = H200Log();
  const CalibrationBench bench{{}, nullptr, &log, Spec(H200())};
  const auto before = DeviceNumbers(H200(), "h200");
  REQUIRE(before.ok());
  Names fields;
  for (const Calibration part :
       {CalibrateLaunches, CalibrateBandwidth, CalibrateRates, CalibrateAccesses, CalibrateRowWalks,
        CalibrateMatMuls, CalibrateAttention}) {
    const auto measured = part(H200(), bench);
    INFO(measured.status());
    REQUIRE(measured.ok());
    for (const SpecNumber& n : *measured) {
      const auto known = std::find_if(before->begin(), before->end(),
                                      [&](const DeviceNumber& d) { return d.name == n.field; });
      INFO(n.field << " " << n.value);
      REQUIRE(known != before->end());
      CHECK(std::abs(n.value / known->value - 1) < 0.01);
      fields.push_back(n.field);
    }
  }
  CHECK(fields == Names{"launch_graph_us",
                        "launch_stream_us",
                        "library_call_us",
                        "hbm_bytes_per_s",
                        "cache_bytes_per_s",
                        "sm_bytes_per_s",
                        "sms",
                        "cache_bytes",
                        "rate_divide",
                        "rate_exponential",
                        "rate_special",
                        "rate_erf",
                        "barrier_us",
                        "bytes_in_flight_per_sm",
                        "efficiency_8_bytes",
                        "efficiency_4_bytes",
                        "efficiency_2_bytes",
                        "row_batch_us",
                        "row_batch_staged_us",
                        "matmul_bf16_flops",
                        "matmul_step_ns",
                        "matmul_tile_overhead",
                        "matmul_split_us",
                        "matmul_split_bytes_per_s",
                        "matmul_fp32_flops",
                        "matmul_fp64_flops",
                        "attention_flops"});
}

TEST_CASE("the h200 spec's prices choose well among the schedules that an H200 was timed under") {
  BenchLog log = H200Log();
  const CalibrationBench bench{{}, nullptr, &log, Spec(H200())};
  struct Kind {
    std::vector<CalibrationKernel> kernels;
    int64_t schedules;
    double most_regret, least_right;  // a little worse than what they are
  };
  const Kind kind = GENERATE(
      Kind{PassKernels({}), 19, 1.01, 0.95}, Kind{RowKernels({}), 58, 1.13, 0.65},
      Kind{RowColumnKernels({}), 172, 1.06, 0.74}, Kind{ColumnKernels({}), 135, 1.03, 0.88});
  INFO(kind.kernels[0].name);
  const auto samples = TimeSchedules(kind.kernels, bench);
  INFO(samples.status());
  REQUIRE(samples.ok());
  std::vector<TimedSchedules> timed(kind.kernels.size());
  for (const ScheduleSample& s : *samples) {
    TimedSchedules& kernel = timed[static_cast<size_t>(s.sample.kernel)];
    kernel.predicted_us.push_back(1e-6 * static_cast<double>(s.sample.price_ps(bench.base)));
    kernel.measured_us.push_back(s.sample.measured_us);
  }
  const RankingError e = RankingErrorOf(timed);
  INFO(PrintRankingError(e));
  CHECK(e.schedules == kind.schedules);
  CHECK(e.mean_regret < kind.most_regret);
  CHECK(e.right_order > kind.least_right);
}

TEST_CASE("a log's times read back as they were, and take the place of measuring") {
  BenchLog log({.model = "a \"GPU\"", .arch = "sm_1", .date = "2026-11-22", .sms = 3});
  log.Add("b: x", 1.23456789);
  log.Add("a", 7);
  const auto read = BenchLog::Parse(log.Print(), "test");
  INFO(read.status());
  REQUIRE(read.ok());
  CHECK(read->Print() == log.Print());
  CHECK(read->device().model == "a \"GPU\"");
  CHECK(read->device().sms == 3);
  auto again = *read;
  const auto measure = []() -> absl::StatusOr<double> { return 5.0; };
  CHECK(*again.Us("b: x", measure) == 1.2346);
  const auto missing = again.Us("c", measure);
  CHECK(absl::StrContains(missing.status().message(), "\"c\""));
  CHECK(*log.Us("c", measure) == 5);  // one that measures does
}

TEST_CASE("files that are no measurements are refused") {
  for (const char* text : {"", "7", "[]", "{}", R"({"device": "x", "sms": 1, "cache_bytes": 0})",
                           R"({"device": "x", "sms": -1, "cache_bytes": 0, "us": {}})",
                           R"({"device": "x", "sms": 1e300, "cache_bytes": 0, "us": {}})",
                           R"({"device": "x", "sms": 1, "cache_bytes": 0, "us": {"a": -1}})",
                           R"({"device": "x", "sms": 1, "cache_bytes": 0, "us": {"a": 0}})",
                           R"({"device": "x", "sms": 1, "cache_bytes": 0, "us": {"a": "b"}})",
                           R"({"device": "x", "sms": 1, "cache_bytes": 0, "us": [1]})"}) {
    INFO(text);
    CHECK(!BenchLog::Parse(text, "test").ok());
  }
}

TEST_CASE("a ranking's regret is what the chosen schedule takes over the best") {
  // The second is chosen: 12 us instead of 10. Of the three pairs the first two are out of order.
  const TimedSchedules kernel{.predicted_us = {9, 8, 20}, .measured_us = {10, 12, 11}};
  CHECK(std::abs(RegretOf(kernel) - 1.2) < 1e-9);
  const RankingError e = RankingErrorOf({&kernel, 1});
  CHECK(e.pairs == 3);
  CHECK(std::abs(e.right_order - 1.0 / 3) < 1e-9);
  CHECK(e.schedules == 3);
  CHECK(RankingErrorOf({}).mean_regret == 1);
}

TEST_CASE("a kernel's times are those of its graph and its ops, and of its planned schedule") {
  const auto timed = ParseTimedKernels(R"({"kernels": [
      {"graph": "a", "ops": "mul cast sum", "planned": "p", "schedules": [
        {"schedule": "s", "measured_us": 1.5}]},
      {"graph": "models/b.bwd.pb", "ops": "mul cast sum", "planned": "p", "schedules": []},
      {"graph": "b", "ops": "cast", "planned": "p", "schedules": []},
      {"graph": "b", "ops": "cast", "planned": "q", "schedules": []},
      {"graph": "b", "ops": "neg", "planned": "p", "schedules": []},
      {"graph": "b", "ops": "neg", "planned": "p", "schedules": []},
      {"graph": "b", "ops": "add", "planned": "p", "schedules": []},
      {"graph": "b", "ops": "add", "planned": "p", "schedules": []}]})",
                                       "test");
  INFO(timed.status());
  REQUIRE(timed.ok());
  CHECK(timed->at(0).us.at("s") == 1.5);
  const TimedKernel* t = timed->data();
  using Kernels = std::vector<KernelLabel>;
  using Matches = std::vector<const TimedKernel*>;
  // Of another graph's kernel the times are never taken; another schedule may be planned now, but
  // not where kernels share their ops.
  CHECK(MatchTimed("b", Kernels{{"mul cast sum", "new"}}, *timed) == Matches{t + 1});
  CHECK(MatchTimed("c", Kernels{{"mul cast sum", "p"}}, *timed) == Matches{nullptr});
  CHECK(MatchTimed("graphs/b.bwd.pb", Kernels{{"cast", "q"}, {"cast", "new"}}, *timed) ==
        Matches{t + 3, nullptr});
  CHECK(MatchTimed("a", Kernels{{"mul cast sum", "q"}, {"mul cast sum", "r"}}, *timed) ==
        Matches{nullptr, nullptr});
  // Those that share schedules too come in order, if there are as many.
  CHECK(MatchTimed("b", Kernels{{"neg", "p"}, {"add", "p"}, {"neg", "p"}}, *timed) ==
        Matches{t + 4, nullptr, t + 5});
}

TEST_CASE("files that are no times of schedules are refused") {
  for (const char* text :
       {"", "[]", "{}", R"({"kernels": [7]})", R"({"kernels": [{"ops": "add"}]})",
        R"({"kernels": [{"graph": "a", "ops": "add", "planned": 7, "schedules": []}]})",
        R"({"kernels": [{"graph": "a", "ops": "add", "planned": "p", "schedules": [1]}]})"}) {
    INFO(text);
    CHECK(!ParseTimedKernels(text, "test").ok());
  }
}

TEST_CASE("a number is fitted to the works that show it") {
  // The second's price hardly holds the number, and is far off.
  const auto price = [](int64_t waits, int64_t rest) {
    return [=](const DeviceSpec& d) { return waits * d.row_batch_ps + rest; };
  };
  const std::vector<PricedSample> samples = {{120, price(100, 0), 0},
                                             {500, price(1, 1'000'000), 0}};
  const auto shown = Isolating(H200(), "row_batch_us", samples);
  INFO(shown.status());
  REQUIRE(shown.ok());
  REQUIRE(shown->size() == 2);  // 0.6 of 1.6 us is enough
  CHECK(shown->at(0).measured_us == 120);
  CHECK(shown->at(0).kernel == -1);
  const auto fewer = Isolating(
      H200(), "row_batch_us", std::vector<PricedSample>{samples[0], {500, price(1, 9'000'000), 0}});
  REQUIRE(fewer.ok());
  CHECK(fewer->size() == 1);
  CHECK(!Isolating(H200(), "warp_speed", samples).ok());
}

TEST_CASE("times that are not there are no calibration, and no spec is written") {
  const std::string path =
      (std::filesystem::temp_directory_path() / absl::StrCat("calibrate_from_", getpid())).string();
  CHECK(CalibrateCommand({.output = path, .from = path + ".json"}) == 1);
  std::ofstream(path + ".json") << "{}";
  CHECK(CalibrateCommand({.output = path, .from = path + ".json"}) == 1);
  CHECK(!std::filesystem::exists(path));
  std::filesystem::remove(path + ".json");
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
  BenchLog log = HostLog(*device);
  const auto rows = MeasureInterference(
      "a test: ", {{.small = true, .repeat = 1}, device.get(), &log, Spec(H200())});
  INFO(rows.status());
  REQUIRE(rows.ok());
  CHECK(rows->size() == 66);  // pairs of eleven, each with itself too
  const std::string text = WithInterference(WithInterference(H200(), *rows), *rows);
  const auto table = ParseInterference(text, "measured");
  INFO(table.status());
  REQUIRE(table.ok());
  CHECK(table->rows().size() == 66);
  CHECK_THAT(text, ContainsSubstring("a: \"kernel\" b: \"convolution\" share_a: 4 share_b: 2"));
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
