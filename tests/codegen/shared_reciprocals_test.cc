// Quotients by one divisor are products with its reciprocal where no divisor is too small for one.
#include <cmath>
#include <limits>

#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/run_kernel.h"

namespace retrograd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSmall = 0x1p-149;  // the smallest number of fp32

constexpr ScheduleLimits kDevice = {.warp = 32, .sms = 3, .shared_bytes = 48 << 10};

int64_t Divisions(const std::string& text) {
  int64_t count = 0;
  for (size_t at = 0; (at = text.find(" / v", at)) != std::string::npos; ++at) ++count;
  return count;
}

// y / d and 1 / d of the numbers that stand in x; of the sigmoid's divisor d = exp(-x) + 1, or d =
// x.
KernelIr Quotients(DType dtype, int64_t points, bool sigmoid) {
  KernelIrBuilder b({points});
  const int x = b.In(dtype, points), y = b.In(dtype, points);
  const int quotient = b.Out(dtype, points), reciprocal = b.Out(dtype, points);
  int d = b.Load(x, A(0));
  if (sigmoid) d = b.Do(Op::add, {b.Do(Op::exp, {b.Do(Op::neg, {d})}), b.Constant(1, dtype)});
  b.Store(b.Do(Op::div, {b.Load(y, A(0)), d}), quotient, A(0));
  b.Store(b.Do(Op::reciprocal, {d}), reciprocal, A(0));
  return b.Build();
}

struct Ran {
  std::string text;
  BufferValues after;
};

// By every schedule.
std::vector<Ran> Run(const KernelIr& ir, const BufferValues& before) {
  REQUIRE(ir.Verify().ToString() == "OK");
  std::vector<Ran> all;
  for (const Schedule& schedule : CandidateSchedules(ir, Classify(ir), kDevice)) {
    const KernelBody body{.ir = ir, .schedule = schedule};
    const GroupKernels kernels = EmitGroup(body, Dialect::kHost);
    auto module = HostModule::Compile(DistinctKernels({kernels}), {.check = true});
    REQUIRE(module.status().ToString() == "OK");
    auto after = RunKernels(**module, body, kernels, before, 3);
    REQUIRE(after.status().ToString() == "OK");
    all.push_back({PrintKernel(kernels.launches[0]), *std::move(after)});
  }
  REQUIRE(all.size() > 1);
  return all;
}

TEST_CASE("a divisor that is never small divides once, and quotients keep their precision") {
  const std::vector<double> xs = {-kInfinity, -200, -90,       -88.5,       -87.5, -87,
                                  -30,        -1.5, -0.0,      0.0,         1,     88,
                                  90,         200,  kInfinity, std::nan("")};
  const auto points = static_cast<int64_t>(xs.size());
  const KernelIr ir = Quotients(DType::kFp32, points, true);
  for (const Ran& ran :
       Run(ir, {xs, xs, std::vector<double>(points), std::vector<double>(points)})) {
    INFO(ran.text);
    CHECK(Divisions(ran.text) == 1);
    for (int64_t i = 0; i < points; ++i) {
      // The divisor as fp32 has it.
      const double d = std::exp(static_cast<float>(-xs[i])) + 1.0f;
      INFO(xs[i] << ": " << ran.after[2][i] << " of " << xs[i] / d);
      for (const auto& [made, exact] :
           {std::pair{ran.after[2][i], xs[i] / d}, std::pair{ran.after[3][i], 1 / d}}) {
        if (!std::isfinite(exact)) {
          CHECK((std::isnan(exact) ? std::isnan(made) : made == exact));
        } else {
          // Two roundings of quotients, one of the exponential and one of the sum, none of them far
          // off among the numbers below the normal ones.
          CHECK(std::fabs(made - exact) <= 4 * 0x1p-23 * std::fabs(exact) + 4 * kSmall);
        }
      }
    }
  }
}

TEST_CASE("one that may be small, or of fp64, divides each number") {
  const std::vector<double> xs = {kSmall, 0, 1, -2}, ys = {0, 0, kSmall, 3};
  const BufferValues before = {xs, ys, std::vector<double>(4), std::vector<double>(4)};
  for (const Ran& ran : Run(Quotients(DType::kFp32, 4, false), before)) {
    INFO(ran.text);
    CHECK(Divisions(ran.text) == 2);
    CHECK(ran.after[2][0] == 0);  // by its reciprocal, an infinity, it would be NaN
    CHECK(std::isnan(ran.after[2][1]));
    CHECK(ran.after[2][3] == -1.5);
  }
  for (const Ran& ran : Run(Quotients(DType::kFp64, 4, true), before)) {
    INFO(ran.text);
    CHECK(Divisions(ran.text) == 2);
  }
}

}  // namespace
}  // namespace retrograd
