// Which elements a kernel is done with once it has touched them, and that the GPU compilers take
// what such accesses are written as.
#include "fusion/kernel/ir/streamed.h"

#include "absl/strings/match.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "runtime/compiler/rtc.h"
#include "tests/catch.h"
#include "tests/support/kernels/gpu_compilers.h"
#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {
namespace {

constexpr int64_t kWidth = 32;

struct Weighted {
  KernelIr ir;
  int index = 0, row = 0, weight = 0;  // the loads
};

// y[i] = table[index[i]] * weight[i], for `rows` rows of a table of `table` rows. twice: the
// weights are also read in the opposite order.
Weighted WeightedRows(DType t, int64_t rows, int64_t table, bool twice = false) {
  KernelIrBuilder b({rows, kWidth});
  const int from = b.In(t, table * kWidth), index = b.In(DType::kInt64, rows);
  const int weights = b.In(t, rows * kWidth), y = b.Out(t, rows * kWidth);
  Weighted made;
  made.index = b.Load(index, A(0));
  made.row = b.Gather(from, A(1), made.index, kWidth, table);
  made.weight = b.Load(weights, A(0) * kWidth + A(1));
  int result = b.Do(Op::mul, {made.row, made.weight});
  if (twice) {
    const int last =
        b.Load(weights, A(0) * -kWidth + A(1) + IndexExpr::Constant((rows - 1) * kWidth));
    result = b.Do(Op::mul, {result, last});
  }
  b.Store(result, y, A(0) * kWidth + A(1));
  made.ir = b.Build();
  return made;
}

TEST_CASE("beside rows that are looked up again, what is touched once is streamed") {
  const Weighted made = WeightedRows(DType::kBf16, 40, 9);
  REQUIRE(made.ir.Verify().ToString() == "OK");
  CHECK(LooksUpAgain(made.ir));
  CHECK(LoadsOnce(made.ir, made.ir.instrs[made.weight]));
  CHECK(StoresOnce(made.ir, made.ir.stores[0]));
  CHECK_FALSE(LoadsOnce(made.ir, made.ir.instrs[made.row]));
  CHECK_FALSE(LoadsOnce(made.ir, made.ir.instrs[made.index]));  // each for a whole row
}

TEST_CASE("what is read at two places is not streamed") {
  const Weighted made = WeightedRows(DType::kBf16, 40, 9, true);
  REQUIRE(made.ir.Verify().ToString() == "OK");
  CHECK_FALSE(LoadsOnce(made.ir, made.ir.instrs[made.weight]));
  CHECK(StoresOnce(made.ir, made.ir.stores[0]));
}

TEST_CASE("nothing is streamed where no row is looked up again") {
  const Weighted made = WeightedRows(DType::kBf16, 9, 9);
  CHECK_FALSE(LooksUpAgain(made.ir));
  CHECK_FALSE(LoadsOnce(made.ir, made.ir.instrs[made.weight]));
  CHECK_FALSE(StoresOnce(made.ir, made.ir.stores[0]));
}

TEST_CASE("what is added to is not streamed") {
  Weighted made = WeightedRows(DType::kBf16, 40, 9);
  made.ir.stores[0].mode = StoreMode::kAdd;
  CHECK_FALSE(StoresOnce(made.ir, made.ir.stores[0]));
}

void CheckStreamed(const GpuTarget& target) {
  std::vector<GroupKernels> all;
  for (const DType t : kAllDTypes) {
    if (!IsFloat(t)) continue;
    const KernelIr ir = WeightedRows(t, 40, 9).ir;
    const ScheduleLimits limits = {
        .warp = target.warp, .sms = 3, .shared_bytes = 48 << 10, .staged_bytes = 48 << 10};
    for (const Schedule& schedule : CandidateSchedules(ir, Classify(ir), limits)) {
      all.push_back(EmitGroup({.ir = ir, .schedule = schedule}, target.dialect));
    }
  }
  const std::vector<Kernel> kernels = DistinctKernels(all);
  CHECK(absl::StrContains(TranslationUnit(kernels, target.dialect), "rg_load_vec_once<"));
  const auto object = CompileKernels(target.dialect, kernels, target.arch);
  INFO(object.status().ToString());
  REQUIRE(object.ok());
  CHECK(object->kernels.size() == kernels.size());
}

RG_TEST_COMPILES("streamed accesses of every type compile", CheckStreamed);

}  // namespace
}  // namespace retrograd
