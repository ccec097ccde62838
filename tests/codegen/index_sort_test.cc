// Sorts of indices through the host dialect: both ways, every access checked.
#include <algorithm>
#include <numeric>
#include <random>

#include "codegen/sort/emit_index_sort.h"
#include "codegen/translation_unit.h"
#include "graph/ir/backward_graph.h"
#include "runtime/compiler/rtc.h"
#include "runtime/devices/host_device.h"
#include "runtime/ops/sort_indices/generated_sort.h"
#include "tests/catch.h"
#include "tests/support/kernels/sorted_list.h"

namespace retrograd {
namespace {

Call SortCall(int64_t indices, int64_t rows, DType dtype, int64_t offset = 0) {
  const SortedIndices sorted{.rows = rows, .indices = indices};
  return {.op = Op::sort_indices,
          .operands = {{.value = {NodeId{0}, 0},
                        .offset = offset,
                        .shape = {indices},
                        .strides = {1},
                        .dtype = dtype}},
          .results = {{.value = {NodeId{1}, 0},
                       .shape = {sorted.elements()},
                       .strides = {1},
                       .dtype = DType::kInt32}},
          .attributes = {{"rows", rows}}};
}

template <typename T>
void Check(const std::vector<double>& indices, int64_t rows, DType dtype, int64_t offset) {
  const auto count = static_cast<int64_t>(indices.size());
  const Call call = SortCall(count, rows, dtype, offset);
  HostDeviceOptions options;
  options.compile.check = true;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  auto loaded = LoadGeneratedSort(*device, call);
  REQUIRE(loaded.status().ToString() == "OK");
  std::vector<T> list(offset, T{1} << 20);
  for (double i : indices) list.push_back(static_cast<T>(i));
  const SortedIndices sorted{.rows = rows, .indices = count};
  std::vector<int32_t> result(sorted.elements(), -7);
  auto scratch = device->Allocate(std::max<int64_t>((*loaded)->scratch_bytes(), 16));
  REQUIRE(scratch.ok());
  const void* operands[] = {list.data()};
  void* results[] = {result.data()};
  const absl::Status ran = (*loaded)->Run(0, {.operands = operands, .results = results}, *scratch);
  CHECK(ran.ToString() == "OK");
  device->Free(*scratch);
  const std::vector<double> wanted = SortedList(indices, rows);
  int64_t differ = 0;
  for (size_t i = 0; i < wanted.size(); ++i) differ += wanted[i] != result[i];
  CHECK(differ == 0);
}

void CheckAll(const std::vector<double>& indices, int64_t rows) {
  INFO(indices.size() << " indices into " << rows << " rows");
  Check<int64_t>(indices, rows, DType::kInt64, 0);
  Check<int32_t>(indices, rows, DType::kInt32, 3);
}

// From a little below the rows to a little above, some of them negative.
std::vector<double> Drawn(int64_t count, int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> indices;
  for (int64_t i = 0; i < count; ++i) {
    indices.push_back(static_cast<double>(random() % static_cast<uint64_t>(2 * rows + 4)) -
                      static_cast<double>(rows) - 2);
  }
  return indices;
}

struct Sizes {
  int64_t indices, rows;
};

bool ByOwners(const Sizes& s) {
  return IndexSortFor({.rows = s.rows, .indices = s.indices}, DType::kInt64).owners;
}

TEST_CASE("short lists are sorted by the owners of rows") {
  const Sizes s = GENERATE(Sizes{0, 5}, Sizes{1, 1}, Sizes{7, 3}, Sizes{600, 65}, Sizes{9000, 40});
  REQUIRE(ByOwners(s));
  CheckAll(Drawn(s.indices, s.rows, 3), s.rows);
}

TEST_CASE("long lists are sorted digit by digit") {
  const Sizes s = GENERATE(Sizes{33'000, 1}, Sizes{33'001, 7}, Sizes{33'002, 63}, Sizes{34'000, 64},
                           Sizes{35'003, 3000}, Sizes{3'000, 1'100'000});
  REQUIRE(!ByOwners(s));
  CheckAll(Drawn(s.indices, s.rows, 4), s.rows);
}

TEST_CASE("blocks that have several tiles go on where the last one ended") {
  const IndexSort sort = IndexSortFor({.rows = 50, .indices = 1'100'000}, DType::kInt64);
  CHECK(sort.tiles == 2);
  Check<int64_t>(Drawn(1'100'000, 50, 5), 50, DType::kInt64, 0);
}

TEST_CASE("sorted, reversed and equal indices are sorted") {
  const int64_t count = GENERATE(500, 33'333);
  std::vector<double> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  CheckAll(indices, count);
  std::reverse(indices.begin(), indices.end());
  CheckAll(indices, count);
  CheckAll(std::vector<double>(count, 11), 12);
  CheckAll(std::vector<double>(count, 12), 12);
}

void CheckCompiles(Dialect dialect, absl::string_view arch) {
  for (const Sizes& s : {Sizes{600, 65}, Sizes{35'003, 3000}, Sizes{600'000, 50}}) {
    for (DType dtype : {DType::kInt32, DType::kInt64}) {
      const IndexSort sort = IndexSortFor({.rows = s.rows, .indices = s.indices}, dtype);
      std::vector<Kernel> kernels;
      for (const SortLaunch& launch : EmitIndexSort(sort, dialect)) {
        CHECK(launch.kernel.shared_bytes <= 48 << 10);
        kernels.push_back(launch.kernel);
      }
      const auto object = CompileKernels(dialect, kernels, arch);
      INFO(object.status());
      CHECK(object.ok());
    }
  }
}

TEST_CASE("sorts compile for sm_90") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  CheckCompiles(Dialect::kCuda, "sm_90");
}

TEST_CASE("sorts compile for gfx90a") {
  RG_NEEDS_COMPILER(HipCompilerAvailable());
  CheckCompiles(Dialect::kHip, "gfx90a");
}

}  // namespace
}  // namespace retrograd
