// Divisions and slower instructions that several stages of a row need: threads keep the values
// where they are few, else evaluate them again. Every schedule, run on the host with each access
// checked, against the interpreter.
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/templates/registers.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/schedule_cases.h"

namespace retrograd {
namespace {

constexpr ScheduleLimits kSmallDevice = {.warp = 32, .sms = 8, .shared_bytes = 48 << 10};
constexpr int64_t kRows = 5;

// softmax's gradient, whose powers are made again from x, the largest of each row and its sum. With
// `sums`, the columns of the result are added up, too.
KernelIr SoftmaxGradient(DType t, int64_t columns, bool sums = false) {
  KernelIrBuilder b({kRows, columns});
  const DType wide = t == DType::kFp64 ? t : DType::kFp32;
  const int64_t all = kRows * columns;
  const IndexExpr at = A(0) * columns + A(1);
  const int x = b.Cast(b.Load(b.In(t, all), at), wide), dy = b.Cast(b.Load(b.In(t, all), at), wide);
  const int most = b.Load(b.In(wide, kRows), A(0)), sum = b.Load(b.In(wide, kRows), A(0));
  const int y = b.Do(Op::div, {b.Do(Op::exp, {b.Do(Op::sub, {x, most})}), sum});
  const int product = b.Do(Op::mul, {dy, y});
  const int dot = b.Reduce(Op::sum, product, AxisMask{2});
  const int dx = b.Do(Op::sub, {product, b.Do(Op::mul, {y, dot})});
  b.Store(b.Cast(dx, t), b.Out(t, all), at);
  if (sums) b.Store(b.Reduce(Op::sum, dx, AxisMask{1}), b.Out(wide, columns), A(1));
  return b.Build();
}

// Three stages: the second keeps a value of its own, which the third needs with that of the first.
KernelIr TwoRoundsOfPowers(DType t, int64_t columns) {
  KernelIrBuilder b({kRows, columns});
  const int64_t all = kRows * columns;
  const IndexExpr at = A(0) * columns + A(1);
  const int x = b.Cast(b.Load(b.In(t, all), at), DType::kFp32);
  const int first = b.Do(Op::exp, {x});
  const int sum = b.Reduce(Op::sum, first, AxisMask{2});
  const int second = b.Do(Op::div, {first, sum});
  const int largest = b.Reduce(Op::amax, second, AxisMask{2});
  b.Store(b.Cast(b.Do(Op::mul, {b.Do(Op::sub, {second, largest}), first}), t), b.Out(t, all), at);
  return b.Build();
}

std::vector<Schedule> AllSchedules(const KernelIr& ir) {
  return CandidateSchedules(ir, Classify(ir), kSmallDevice);
}

int KeepingCases(const std::vector<ScheduleCase>& cases) {
  int keeping = 0;
  for (const ScheduleCase& c : cases) {
    keeping += KeepsCostly(ProfileKernel(c.body.ir, Classify(c.body.ir)), c.body.schedule);
  }
  return keeping;
}

int Count(absl::string_view text, absl::string_view what) {
  int count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST_CASE("kept values give what evaluating them again gives, in rows of any length") {
  std::vector<ScheduleCase> cases;
  for (int64_t columns : {1, 3, 17, 49, 64, 100, 197, 1031}) {
    const KernelIr ir = SoftmaxGradient(DType::kBf16, columns);
    AddCases(absl::StrCat("bf16, ", columns), ir, AllSchedules(ir), cases);
  }
  for (DType t : {DType::kFp32, DType::kFp64}) {
    const KernelIr ir = SoftmaxGradient(t, 49);
    AddCases(absl::StrCat(Name(t)), ir, AllSchedules(ir), cases);
  }
  for (int64_t columns : {49, 96}) {
    const KernelIr ir = SoftmaxGradient(DType::kBf16, columns, /*sums=*/true);
    AddCases(absl::StrCat("column sums, ", columns), ir, AllSchedules(ir), cases);
  }
  CHECK(KeepingCases(cases) > 20);
  RunAll(cases, /*seed=*/41);
}

TEST_CASE("values of several stages are kept, each by the first that makes it") {
  std::vector<ScheduleCase> cases;
  for (int64_t columns : {49, 128, 300}) {
    const KernelIr ir = TwoRoundsOfPowers(DType::kBf16, columns);
    CHECK(ProfileKernel(ir, Classify(ir)).costly.size() == 2);
    AddCases(absl::StrCat(columns), ir, AllSchedules(ir), cases);
  }
  CHECK(KeepingCases(cases) > 5);
  RunAll(cases, /*seed=*/43);
}

TEST_CASE("a power is evaluated once where it is kept, and in each stage where rows are long") {
  bool kept = false, again = false;
  for (int64_t columns : {64, 8192}) {
    const KernelIr ir = SoftmaxGradient(DType::kBf16, columns);
    const KernelProfile profile = ProfileKernel(ir, Classify(ir));
    for (const Schedule& s : AllSchedules(ir)) {
      const GroupKernels kernels = EmitGroup({.ir = ir, .schedule = s}, Dialect::kCuda);
      const int powers = Count(PrintKernel(kernels.launches[0]), "rg_exp_or_zero(");
      const bool keeps = KeepsCostly(profile, s);
      INFO(columns << ": " << s.Print());
      CHECK(powers == (keeps ? 1 : 2));
      (keeps ? kept : again) = true;
    }
  }
  CHECK(kept);
  CHECK(again);
}

}  // namespace
}  // namespace retrograd
