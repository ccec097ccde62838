// Passes whose threads stay at their columns for several rows: which columns they are, and every
// schedule that does so, run on the host with each access checked, against the interpreter.
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/ir/accesses/pass_columns.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/schedule_cases.h"

namespace retrograd {
namespace {

constexpr DType kBf16 = DType::kBf16, kF32 = DType::kFp32;

// One SM, so that small tensors leave several rows for each thread.
constexpr ScheduleLimits kOneSm = {.sms = 1};

std::vector<Schedule> ByRows(const KernelIr& ir, const ScheduleLimits& limits = kOneSm) {
  std::vector<Schedule> schedules;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), limits)) {
    if (s.turns > 1) schedules.push_back(s);
  }
  return schedules;
}

// x[r,c] * scale[c] + shift[c], and the square of the scales beside it.
KernelIr Scaled(int64_t rows, int64_t columns) {
  KernelIrBuilder b({rows, columns});
  const int x = b.Cast(b.Load(b.In(kBf16, rows * columns), A(0) * columns + A(1)), kF32);
  const int scale = b.Load(b.In(kF32, columns), A(1)), shift = b.Load(b.In(kF32, columns), A(1));
  const int y = b.Do(Op::add, {b.Do(Op::mul, {x, scale}), shift});
  b.Store(b.Cast(y, kBf16), b.Out(kBf16, rows * columns), A(0) * columns + A(1));
  b.Store(b.Do(Op::mul, {scale, scale}), b.Out(kF32, columns), A(1));
  return b.Build();
}

// x[n,p,c] * gate[n,c] * scale[c]: channels of images, as squeeze-and-excitation gates them.
KernelIr Gated(int64_t images, int64_t places, int64_t channels) {
  KernelIrBuilder b({images, places, channels});
  const IndexExpr all = A(0) * (places * channels) + A(1) * channels + A(2);
  const int x = b.Load(b.In(kF32, images * places * channels), all);
  const int gate = b.Load(b.In(kF32, images * channels), A(0) * channels + A(2));
  const int scale = b.Load(b.In(kF32, channels), A(2));
  const int y = b.Do(Op::mul, {x, b.Do(Op::mul, {gate, scale})});
  b.Store(y, b.Out(kF32, images * places * channels), all);
  return b.Build();
}

TEST_CASE("columns are the axes along which most of what rows share varies") {
  const PassColumns of_channels = PassColumnsOf(Scaled(300, 24));
  CHECK(of_channels.axes == 0b10);
  CHECK(of_channels.inner == 24);
  CHECK(of_channels.outer == 1);
  CHECK(of_channels.rows == 300);
  CHECK(of_channels.loaded_bytes == 8);
  CHECK(of_channels.words == 2);  // scale and shift; its square no row needs
  CHECK(of_channels.stores == 1);

  const PassColumns of_images = PassColumnsOf(Gated(4, 50, 24));
  CHECK(of_images.axes == 0b101);
  CHECK(of_images.inner == 24);
  CHECK(of_images.outer == 4);
  CHECK(of_images.rows == 50);
  CHECK(of_images.words == 1);
}

TEST_CASE("a pass that reads each element once, or one number a row, has no columns") {
  KernelIrBuilder b({100, 32});
  const IndexExpr all = A(0) * 32 + A(1);
  const int x = b.Load(b.In(kF32, 3200), all), of_row = b.Load(b.In(kF32, 100), A(0));
  b.Store(b.Do(Op::mul, {x, of_row}), b.Out(kF32, 3200), all);
  CHECK(PassColumnsOf(b.Build()).axes == 0);
}

TEST_CASE("a pass over no points has no columns") {
  CHECK(PassColumnsOf(Scaled(100, 0)).axes == 0);
  CHECK(PassColumnsOf(Scaled(0, 100)).axes == 0);
  CHECK(ByRows(Scaled(100, 0)).empty());
}

TEST_CASE("threads that stay at their columns are candidates where they have several rows") {
  CHECK(!ByRows(Scaled(4000, 24)).empty());
  CHECK(ByRows(Scaled(4, 24)).empty());  // one block has all rows
  CHECK(ByRows(Scaled(4000, 24), {.sms = 1, .passes_by_rows = false}).empty());
  for (const Schedule& s : ByRows(Scaled(4000, 24))) {
    INFO(s.Print());
    CHECK(s.blocks <= 8 * kOneSm.sms);
    CHECK(s.blocks * s.threads * s.vector_width * s.turns >= 4000 * 24);
  }
}

TEST_CASE("rows that vectors do not fill have no such schedule of those vectors") {
  const std::vector<Schedule> schedules = ByRows(Scaled(4000, 27));
  REQUIRE(!schedules.empty());
  for (const Schedule& s : schedules) CHECK(s.vector_width == 1);
}

// The sum of some tensors of scaled rows.
KernelIr Sum(int64_t rows, int64_t columns, int tensors) {
  KernelIrBuilder b({rows, columns});
  const IndexExpr all = A(0) * columns + A(1);
  int sum = b.Load(b.In(kF32, columns), A(1));
  for (int i = 0; i < tensors; ++i) {
    sum = b.Do(Op::add, {sum, b.Load(b.In(kF32, rows * columns), all)});
  }
  b.Store(sum, b.Out(kF32, rows * columns), all);
  return b.Build();
}

TEST_CASE("a thread loads several rows together, or one where it asks for much of that") {
  std::set<int> together;
  for (const Schedule& s : ByRows(Scaled(4000, 24))) {
    together.insert(s.rows_per_thread);
    CHECK(s.rows_per_thread <= s.turns);
  }
  CHECK(together == std::set<int>{1, 2, 4});
  const std::vector<Schedule> of_much = ByRows(Sum(4000, 24, 5));
  CHECK(!of_much.empty());
  for (const Schedule& s : of_much) CHECK(s.rows_per_thread == 1);
}

TEST_CASE("each row is computed once, with the columns of its own place") {
  std::vector<ScheduleCase> cases;
  for (int64_t columns : {1, 3, 8, 24, 27, 100, 1000}) {
    const KernelIr ir = Scaled(40 + 30000 / columns, columns);
    AddCases(absl::StrCat("scaled by ", columns), ir, ByRows(ir), cases);
  }
  for (int64_t channels : {1, 8, 20, 36}) {
    const KernelIr ir = Gated(3, 8000 / channels + 7, channels);
    AddCases(absl::StrCat("gated by ", channels), ir, ByRows(ir), cases);
  }
  for (int tensors : {1, 2, 5}) {
    const KernelIr ir = Sum(3001, 20, tensors);
    AddCases(absl::StrCat("the sum of ", tensors), ir, ByRows(ir), cases);
  }
  const KernelIr wide = Gated(40, 5, 320);  // columns alone are more than fill the device
  AddCases("wide", wide, ByRows(wide), cases);
  CHECK(cases.size() > 40);
  RunAll(cases, /*seed=*/53);
}

}  // namespace
}  // namespace retrograd
