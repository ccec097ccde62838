#include "fusion/kernel/templates/registers.h"

#include "fusion/device/device_spec.h"
#include "runtime/compiler/rtc.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"
#include "tools/fit/register_samples.h"
#include "tools/support/text_file.h"

#if defined(__SANITIZE_ADDRESS__)
#define RG_ADDRESS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RG_ADDRESS_SANITIZED 1
#endif
#endif

namespace retrograd {
namespace {

DeviceSpec H200() {
  auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  return *std::move(device);
}

TEST_CASE(
    "NVRTC's registers for the kernels of all captured graphs are within 15% of the "
    "prediction, by median, and none spills that was not predicted to") {
#ifdef RG_ADDRESS_SANITIZED
  RG_SKIP("hundreds of NVRTC compilations take too long under AddressSanitizer");
#endif
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  auto measured = MeasureRegisters(H200(), {});
  INFO(measured.status());
  REQUIRE(measured.ok());
  INFO(PrintTable(*measured));
  const std::vector<RegisterErrors> errors = Summarise(measured->samples);
  REQUIRE(errors.size() > 5);
  CHECK(errors.back().launch == "all");
  CHECK(errors.back().kernels > 100);
  CHECK(errors.back().median <= 0.15);
  CHECK(errors.back().surprises == 0);
  for (const RegisterErrors& e : errors) {
    INFO(e.launch);
    if (e.kernels >= 20) CHECK(e.median <= 0.15);
  }
}

RegisterSample Sample(LaunchKind launch, int64_t predicted, int64_t registers, int64_t spill,
                      bool spill_predicted) {
  RegisterSample s{.name = "k", .launch = launch};
  s.predicted = predicted;
  s.registers = registers;
  s.spill_bytes = spill;
  s.spill_predicted = spill_predicted;
  return s;
}

TEST_CASE("the table tells median, worst and surprising spills by kind of launch") {
  const std::vector<RegisterErrors> errors = Summarise({
      Sample(LaunchKind::kPointwise, 10, 20, 0, false),
      Sample(LaunchKind::kPointwise, 20, 20, 4, false),
      Sample(LaunchKind::kPointwise, 22, 20, 0, false),
      Sample(LaunchKind::kRowColumn, 255, 255, 100, true),
  });
  REQUIRE(errors.size() == 3);
  CHECK(errors[0].launch == "pointwise");
  CHECK(errors[0].median == Approx(0.1));
  CHECK(errors[0].worst == Approx(0.5));
  CHECK(errors[0].surprises == 1);
  CHECK(errors[1].launch == "row_column");
  CHECK(errors[1].spills_predicted == 1);
  CHECK(errors[1].surprises == 0);
  CHECK(errors[2].kernels == 4);
  CHECK(errors[2].spills == 2);
}

TEST_CASE("more words held, more rows at once and wider vectors never lower the prediction") {
  const DeviceSpec device = H200();
  for (const KernelExample& example : KernelExamples(DType::kBf16)) {
    const KernelIr& ir = example.ir;
    const Classification shape = Classify(ir);
    if (!shape.feasible) continue;
    const KernelProfile profile = ProfileKernel(ir, shape);
    for (Schedule s : CandidateSchedules(ir, shape, ScheduleLimitsOf(device))) {
      const Footprint f = PredictFootprint(ir, profile, s, device);
      INFO(s.Print());
      CHECK(f.registers >= device.base_registers);
      CHECK(f.registers <= RegisterCap(s.threads, device));
      CHECK((f.spill_bytes > 0) == (f.registers_wanted > RegisterCap(s.threads, device)));
      s.rows_per_thread *= 2;
      CHECK(PredictFootprint(ir, profile, s, device).registers_wanted >= f.registers_wanted);
    }
  }
}

TEST_CASE("a schedule that holds far more than the register file is predicted to spill") {
  const DeviceSpec device = H200();
  KernelProfile profile;
  profile.shape.kind = Template::kRowColumn;
  profile.shape.shape = {.row_axes = 1, .column_axes = 2, .rows = 65536, .columns = 512};
  profile.loaded_bytes = 16;
  profile.counts[static_cast<int>(RegisterCount::kOne)] = 1;
  profile.counts[static_cast<int>(RegisterCount::kBuffers)] = 20;
  profile.counts[static_cast<int>(RegisterCount::kStores)] = 9;
  profile.counts[static_cast<int>(RegisterCount::kCarriedHeld)] = 8;
  profile.counts[static_cast<int>(RegisterCount::kColumnSums)] = 8;
  Schedule s{.kind = Template::kRowColumn, .threads = 64, .vector_width = 8};
  s.threads_per_row = 32;
  s.rows_per_block = 2;
  s.rows_per_thread = 4;  // 2 warps holding 4 rows of 16 elements at once
  s.persistent = true;
  CHECK(PredictFootprint({}, profile, s, device).spill_bytes > 0);
  s.threads_per_row = 256;
  s.threads = 256;
  s.rows_per_block = 1;
  s.rows_per_thread = 1;
  s.vector_width = 2;
  CHECK(PredictFootprint({}, profile, s, device).spill_bytes == 0);
}

TEST_CASE("what a compiler reported takes the place of the prediction, residency included") {
  const DeviceSpec device = H200();
  const Schedule s{.kind = Template::kPointwise, .threads = 256};
  Footprint f;
  UseCompiled({.registers = 64, .spill_bytes = 0, .shared_bytes = 1024}, s, device, f);
  CHECK(f.registers == 64);
  CHECK(f.blocks_per_sm == 4);
  CHECK(f.spill_bytes == 0);
  UseCompiled({.registers = 255, .spill_bytes = 48, .shared_bytes = 0}, s, device, f);
  CHECK(f.registers_wanted == 267);
  CHECK(f.blocks_per_sm == 1);
}

std::string H200Text() {
  auto text = ReadTextFile(RETROGRAD_SOURCE_DIR "/fusion/devices/h200.textproto");
  REQUIRE(text.ok());
  return *std::move(text);
}

std::string Refusal(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  return std::string(ParseDeviceSpec(text, "test").status().message());
}

TEST_CASE("register models that are missing, unknown, doubled, unsourced or negative are refused") {
  const std::string text = H200Text();
  REQUIRE(ParseDeviceSpec(text, "test").ok());
  CHECK_THAT(Refusal(text, "launch: \"pointwise\"", "launch: \"pointwize\""),
             ContainsSubstring("registers of 'pointwize'"));
  CHECK_THAT(Refusal(text, "launch: \"transpose\"", "launch: \"pointwise\""),
             ContainsSubstring("twice"));
  CHECK_THAT(Refusal(text, "source: \"fitted to NVRTC", "# \""), ContainsSubstring("no source"));
  CHECK_THAT(Refusal(text, "spill_margin: 0", "spill_margin: -1"),
             ContainsSubstring("spill_margin"));
  const std::string without = text.substr(0, text.find("\nregisters {"));
  CHECK_THAT(std::string(ParseDeviceSpec(without, "test").status().message()),
             ContainsSubstring("registers of pointwise are missing"));
}

}  // namespace
}  // namespace retrograd
