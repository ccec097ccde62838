// Row reductions whose blocks walk rows, the next ones on their way into shared memory: every such
// schedule, run on the host with each access checked, against the interpreter.
#include <set>

#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/device/device_spec.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/row_walks.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/schedule_cases.h"
#include "tests/support/kernels/wide_rows.h"

namespace retrograd {
namespace {

constexpr DType kBf16 = DType::kBf16, kF32 = DType::kFp32;

constexpr ScheduleLimits kSmallDevice = {.warp = 32,
                                         .sms = 3,
                                         .shared_bytes = 48 << 10,
                                         .staged_bytes = 200 << 10,
                                         .shared_bytes_per_sm = 200 << 10};

std::vector<Schedule> WalkedSchedules(const KernelIr& ir,
                                      const ScheduleLimits& limits = kSmallDevice) {
  std::vector<Schedule> walked;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), limits)) {
    if (s.kind == Template::kRowReduction && s.staged > 0) walked.push_back(s);
  }
  return walked;
}

// The gradient of a softmax whose powers are made again from the scores, a largest score and a sum
// of each row. `pitch`: of the rows of its gradient; 0: as many elements as a row has.
KernelIr SoftmaxBackward(DType t, int64_t rows, int64_t columns, bool weighted = true,
                         int64_t pitch = 0) {
  KernelIrBuilder b({rows, columns});
  const int64_t all = rows * columns;
  const IndexExpr at = A(0) * columns + A(1);
  const int64_t step = pitch > 0 ? pitch : columns;
  const int dy = b.Cast(b.Load(b.In(t, rows * step), A(0) * step + A(1)), kF32);
  const int x = b.Cast(b.Load(b.In(t, all), at), kF32);
  const int most = b.Load(b.In(kF32, rows), A(0)), sum = b.Load(b.In(kF32, rows), A(0));
  const int p = b.Do(Op::div, {b.Do(Op::exp, {b.Do(Op::sub, {x, most})}), sum});
  int g = dy;
  if (weighted) g = b.Do(Op::mul, {dy, b.Cast(b.Load(b.In(t, columns), A(1)), kF32)});
  const int dot = b.Reduce(Op::sum, b.Do(Op::mul, {p, g}), AxisMask{2});
  b.Store(b.Cast(b.Do(Op::mul, {p, b.Do(Op::sub, {g, dot})}), t), b.Out(t, all), at);
  return b.Build();
}

TEST_CASE("long rows are walked with the next ones ahead, whatever the rounds and the rows") {
  std::vector<ScheduleCase> cases;
  const auto add = [&](const std::string& name, const KernelIr& ir) {
    INFO(name);
    const std::vector<Schedule> walked = WalkedSchedules(ir);
    CHECK_FALSE(walked.empty());
    AddCases(name, ir, walked, cases);
  };
  for (int64_t columns : {4104, 6000, 12'672}) {
    add(absl::StrCat("two rounds of ", columns), WideSoftmax(kBf16, 17, columns));
    add(absl::StrCat("costly values of ", columns), SoftmaxBackward(kBf16, 14, columns));
  }
  for (int64_t columns : {4105, 6002, 12'671}) {  // rows with ends
    add(absl::StrCat("two rounds of ", columns), WideSoftmax(kBf16, 17, columns));
    add(absl::StrCat("costly values of ", columns),
        SoftmaxBackward(kBf16, 14, columns, /*weighted=*/false));
  }
  add("fp32", SoftmaxBackward(kF32, 11, 4100));
  add("fp32 with ends", SoftmaxBackward(kF32, 11, 4101, /*weighted=*/false));
  add("rows with ends and the same gaps",
      SoftmaxBackward(kBf16, 14, 4105, /*weighted=*/false, /*pitch=*/4105 + 16));
  add("rows that end within a round of blocks", SoftmaxBackward(kBf16, 4, 4104));
  std::set<int> batches, threads;
  std::set<bool> kept;
  for (const ScheduleCase& c : cases) {
    const Schedule& s = c.body.schedule;
    batches.insert(s.staged);
    threads.insert(s.threads);
    const Classification shape = Classify(c.body.ir);
    CHECK(LoopsOverRows(s, shape.shape.rows));
    kept.insert(KeepsCostly(ProfileKernel(c.body.ir, shape), s));
  }
  CHECK(batches.size() > 1);
  CHECK(threads == std::set<int>{512, 1024});
  CHECK(kept.size() == 2);
  RunAll(cases, /*seed=*/29);
}

TEST_CASE("rows that are too long for one block's shared memory are walked by two") {
  ScheduleLimits limits = kSmallDevice;
  limits.sms = 9;
  limits.staged_bytes = limits.shared_bytes_per_sm = 60 << 10;
  limits.row_cluster_blocks = 4;
  std::vector<ScheduleCase> cases;
  std::set<int> clusters;
  for (int64_t columns : {6000, 6001, 7992, 7993}) {
    const KernelIr ir = SoftmaxBackward(kBf16, 14, columns, columns % 8 == 0);
    const std::vector<Schedule> walked = WalkedSchedules(ir, limits);
    INFO(columns);
    CHECK_FALSE(walked.empty());
    for (const Schedule& s : walked) clusters.insert(s.cluster);
    AddCases(absl::StrCat("rows of ", columns), ir, walked, cases);
  }
  CHECK(clusters == std::set<int>{2});
  CHECK(WalkedSchedules(SoftmaxBackward(kBf16, 14, 20'002), limits).empty());
  RunAll(cases, /*seed=*/31);
}

TEST_CASE("no more blocks share a row than its loads need") {
  const ScheduleLimits limits = ScheduleLimitsOf(*LoadDeviceSpec("h100"));
  const auto clusters = [&](int64_t columns) {
    std::set<int> found;
    const KernelIr ir = SoftmaxBackward(kBf16, 4096, columns, /*weighted=*/false);
    for (const Schedule& s : WalkedSchedules(ir, limits)) found.insert(s.cluster);
    return found;
  };
  CHECK(clusters(20'000) == std::set<int>{1});
  CHECK(clusters(32'768) == std::set<int>{2});
  CHECK(clusters(50'257) == std::set<int>{2});
  CHECK(clusters(65'536).empty());
}

TEST_CASE("short rows, few rows and devices without such loads have none") {
  CHECK_FALSE(WalkedSchedules(SoftmaxBackward(kBf16, 14, 8192)).empty());
  CHECK(WalkedSchedules(SoftmaxBackward(kBf16, 14, 4096)).empty());
  CHECK(WalkedSchedules(SoftmaxBackward(kBf16, 3, 8192)).empty());
  // Of rows with ends nothing is kept from row to row, and what is out of step with the vectors
  // does not pass through shared memory.
  CHECK(WalkedSchedules(SoftmaxBackward(kBf16, 14, 8191, /*weighted=*/true)).empty());
  CHECK(WalkedSchedules(SoftmaxBackward(kBf16, 14, 8191, /*weighted=*/false, /*pitch=*/8193))
            .empty());
  ScheduleLimits limits = kSmallDevice;
  limits.staged_bytes = 0;
  CHECK(WalkedSchedules(SoftmaxBackward(kBf16, 14, 8192), limits).empty());
}

TEST_CASE("rows that one block holds are not walked by two because they are few") {
  ScheduleLimits limits = kSmallDevice;
  limits.row_cluster_blocks = 2;
  CHECK(WalkedSchedules(SoftmaxBackward(kBf16, 3, 8192), limits).empty());
}

TEST_CASE("a device of one SM walks rows") {
  ScheduleLimits limits = kSmallDevice;
  limits.sms = 1;
  limits.row_cluster_blocks = 2;
  for (const int64_t columns : {8192, 100'000}) {
    const KernelIr ir = SoftmaxBackward(kBf16, 14, columns);
    std::vector<ScheduleCase> cases;
    AddCases("one SM", ir, WalkedSchedules(ir, limits), cases);
    RunAll(cases, /*seed=*/37);
  }
}

TEST_CASE("costly values are kept of rows in shared memory where a thread has few") {
  const KernelIr ir = SoftmaxBackward(kBf16, 4096, 8192);
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  for (const Schedule& s : WalkedSchedules(ir, ScheduleLimitsOf(*LoadDeviceSpec("h100")))) {
    const int64_t words = 8192 / s.threads;  // a power of each element
    INFO(s.Print());
    CHECK(KeepsCostly(profile, s) == (words <= kMostKeptWords));
  }
}

}  // namespace
}  // namespace retrograd
