// Square tiles of transposing kernels: whatever their loads and stores, and wherever tiles end, run
// on the host with each access checked, against the interpreter; and what a thread asks for.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/accesses/transposed.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/schedule_cases.h"

namespace retrograd {
namespace {

constexpr DType kBf16 = DType::kBf16;

constexpr ScheduleLimits kSmallDevice = {
    .warp = 32, .sms = 3, .shared_bytes = 48 << 10, .shared_bytes_per_sm = 96 << 10};

std::vector<Schedule> SquareTiles(const KernelIr& ir) {
  std::vector<Schedule> tiles;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), kSmallDevice)) {
    if (s.kind == Template::kTranspose && s.vector_width == 1) tiles.push_back(s);
  }
  return tiles;
}

// The sum of so many loads that lie across and so many that lie along the result, which may be
// stored across, too.
KernelIr Sum(int64_t batch, int64_t slow, int64_t fast, int across, int along, bool store_across) {
  KernelIrBuilder b({batch, slow, fast});
  const int64_t all = batch * slow * fast;
  const IndexExpr natural = A(0) * (slow * fast) + A(1) * fast + A(2);
  const IndexExpr transposed = A(0) * (slow * fast) + A(1) + A(2) * slow;
  std::vector<int> loads;
  for (int n = 0; n < across; ++n) loads.push_back(b.Load(b.In(kBf16, all), transposed));
  for (int n = 0; n < along; ++n) loads.push_back(b.Load(b.In(kBf16, all), natural));
  loads.push_back(b.Load(b.In(kBf16, batch * slow), A(0) * slow + A(1)));
  int sum = loads[0];
  for (size_t n = 1; n < loads.size(); ++n) sum = b.Do(Op::add, {sum, loads[n]});
  b.Store(sum, b.Out(kBf16, all), natural);
  if (store_across) b.Store(sum, b.Out(kBf16, all), transposed);
  return b.Build();
}

TEST_CASE("square tiles that end anywhere hold any number of loads on either side") {
  std::vector<ScheduleCase> cases;
  for (const auto& [slow, fast] : {std::pair<int64_t, int64_t>{49, 33}, {32, 64}, {17, 100}}) {
    for (const auto& [across, along] : {std::pair<int, int>{1, 0}, {1, 2}, {2, 5}, {5, 1}}) {
      for (bool store_across : {false, true}) {
        const std::string name = absl::StrCat(slow, " x ", fast, ", ", across, " and ", along);
        AddCases(name, Sum(2, slow, fast, across, along, store_across),
                 SquareTiles(Sum(2, slow, fast, across, along, store_across)), cases);
      }
    }
  }
  RunAll(cases, /*seed=*/31);
}

TEST_CASE("a thread asks for all of its elements before it waits for any") {
  const KernelIr ir = Sum(2, 49, 33, 1, 2, false);
  std::vector<ScheduleCase> cases;
  AddCases("sum", ir, SquareTiles(ir), cases);
  REQUIRE(cases.size() == 1);
  const std::string text = PrintKernel(cases[0].kernels.launches[0]);
  const size_t barrier = text.find("RG_BARRIER");
  for (int load : {0, 1, 2}) {
    const size_t asked = text.find(absl::StrCat("asked", load, "[k] = rg_load"));
    CHECK(asked < barrier);
  }
}

TEST_CASE("few loads are ahead, those by tiles first") {
  CHECK(LoadsAhead(Sum(2, 49, 33, 1, 2, false), 1).size() == 2);
  CHECK(LoadsAhead(Sum(2, 49, 33, 2, 5, false), 1).size() == 2);
  CHECK(LoadsAhead(Sum(2, 49, 33, 5, 1, false), 1).empty());
}

}  // namespace
}  // namespace retrograd
