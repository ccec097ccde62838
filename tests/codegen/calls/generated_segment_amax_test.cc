// segment_amax's kernels on the host with every access checked, against the reference evaluator;
// and whether the GPU compilers take them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/segment_amax/emit_segment_amax.h"
#include "graph/base/rounding.h"
#include "runtime/devices/host_device.h"
#include "runtime/host/host_numbers.h"
#include "runtime/ops/segment_amax/generated_segment_amax.h"
#include "tests/catch.h"
#include "tests/support/call_memory.h"
#include "tests/support/call_reference.h"
#include "tests/support/kernels/gpu_compilers.h"

namespace retrograd {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  Shape shape;
  int64_t axis = 0;
  std::vector<int32_t> ends;
  DType dtype = DType::kBf16;
  bool magnitude = false;
  bool turned = false;  // of a matrix: the columns have unit stride, those of the result too
  int64_t gap = 0;      // elements between the lines of a matrix
  int64_t offset = 0;   // elements, of each tensor
  int64_t alignment = 16;

  std::string Print() const {
    return absl::StrCat("[", absl::StrJoin(shape, ", "), "] axis ", axis, " ends ",
                        absl::StrJoin(ends, ","), " ", Name(dtype), magnitude ? " magnitudes" : "",
                        turned ? " turned" : "", " gap ", gap, " offset ", offset);
  }
};

std::vector<int64_t> StridesOf(const Shape& shape, const Case& c) {
  if (shape.size() != 2) return DenseStrides(shape);
  if (c.turned) return {1, shape[0] + c.gap};
  return {shape[1] + c.gap, 1};
}

Call CallOf(const Case& c) {
  const auto groups = static_cast<int64_t>(c.ends.size());
  Shape result = c.shape;
  result[c.axis] = groups;
  const auto tensor = [&](const Shape& shape) {
    return CallTensor{
        .offset = c.offset, .shape = shape, .strides = StridesOf(shape, c), .dtype = c.dtype};
  };
  return {
      .op = Op::segment_amax,
      .operands = {tensor(c.shape),
                   {.offset = c.offset, .shape = {groups}, .strides = {1}, .dtype = DType::kInt32}},
      .results = {tensor(result)},
      .attributes = {{"axis", c.axis}, {"magnitude", int64_t{c.magnitude}}}};
}

std::vector<double> Drawn(const Case& c, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> x(Elements(c.shape));
  for (double& v : x) v = static_cast<double>(random() % 4001) / 16 - 200;
  if (random() % 3 == 0) return x;
  for (int n = 0; n < 3 && !x.empty(); ++n) {
    x[random() % x.size()] = n == 0 ? kNan : n == 1 ? kInfinity : -kInfinity;
  }
  return x;
}

std::vector<double> Reference(const Case& c, const Call& call, const std::vector<double>& x) {
  std::vector<double> wanted = EvaluateCall(call, {x, {c.ends.begin(), c.ends.end()}});
  RoundTo(c.dtype, absl::MakeSpan(wanted));
  return wanted;
}

bool Same(double a, double b) { return a == b || (a != a && b != b); }

// Runs the schedule, or the one that is chosen.
void Check(const Case& c, uint64_t seed, const SegmentSchedule* schedule = nullptr) {
  INFO(c.Print() << " seed " << seed);
  const Call call = CallOf(c);
  std::vector<double> x = Drawn(c, seed);
  RoundTo(c.dtype, absl::MakeSpan(x));
  HostDeviceOptions options;
  options.compile.check = true;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  const CallFacts facts = {.operand_alignment = {c.alignment, 4}};
  auto loaded = schedule == nullptr ? LoadGeneratedSegmentAmax(*device, call, facts)
                                    : LoadSegmentAmaxBy(*device, call, facts, *schedule);
  REQUIRE(loaded.status().ToString() == "OK");
  auto scratch = device->Allocate(std::max<int64_t>((*loaded)->scratch_bytes(), 16));
  REQUIRE(scratch.ok());
  CallMemory in(call.operands[0], c.alignment), ends(call.operands[1], 16);
  CallMemory result(call.results[0], 16);
  std::copy(c.ends.begin(), c.ends.end(), static_cast<int32_t*>(ends.data()) + c.offset);
  const std::vector<double> wanted = Reference(c, call, x);
  WithFloatType(c.dtype, [&](auto* type) {
    auto* const from = static_cast<decltype(type)>(in.data());
    for (int64_t i = 0; i < SpanOf(call.operands[0]); ++i) StoreAs(from, i, kNan);
    ForElements(call.operands[0], [&](int64_t e, int64_t at) { StoreAs(from, at, x[e]); });
    auto* const to = static_cast<decltype(type)>(result.data());
    const void* const operands[] = {from, ends.data()};
    void* const results[] = {to};
    const absl::Status ran =
        (*loaded)->Run(0, {.operands = operands, .results = results}, *scratch);
    REQUIRE(ran.ToString() == "OK");
    int64_t differ = 0;
    ForElements(call.results[0], [&](int64_t e, int64_t at) {
      differ += Same(LoadAs<double>(to, at), wanted[e]) ? 0 : 1;
    });
    CHECK(differ == 0);
  });
  device->Free(*scratch);
}

TEST_CASE("groups of rows, of columns and in the middle are compared") {
  const bool magnitude = GENERATE(false, true);
  const auto check = [&](Case c) {
    c.magnitude = magnitude;
    Check(c, 1);
  };
  check({.shape = {300, 40}, .ends = {0, 7, 7, 200, 290}});
  check({.shape = {300, 24}, .ends = {300}, .dtype = DType::kFp32});
  check({.shape = {24, 300}, .axis = 1, .ends = {0, 7, 7, 200, 290}});
  check({.shape = {3, 300}, .axis = 1, .ends = {10, 11, 300}, .dtype = DType::kFp64});
  check({.shape = {70, 40}, .axis = 1, .ends = {1, 39, 40}, .turned = true});
  check({.shape = {40, 70}, .ends = {1, 39, 40}, .turned = true});
  check({.shape = {2, 90, 3, 8}, .axis = 1, .ends = {30, 90}, .dtype = DType::kFp16});
  check({.shape = {2, 3, 90}, .axis = 2, .ends = {30, 90}});
  check({.shape = {5000}, .ends = {30, 4990}});
  check({.shape = {64, 33}, .ends = {64}, .dtype = DType::kFp8E4M3});
}

TEST_CASE("tensors lie anywhere in memory") {
  for (const bool turned : {false, true}) {
    for (const int64_t axis : {0, 1}) {
      Check({.shape = {50, 48}, .axis = axis, .ends = {3, 40}, .turned = turned, .gap = 3}, 2);
      Check({.shape = {50, 48},
             .axis = axis,
             .ends = {3, 40},
             .turned = turned,
             .gap = 8,
             .offset = 1},
            2);
      Check({.shape = {50, 48},
             .axis = axis,
             .ends = {3, 40},
             .turned = turned,
             .gap = 8,
             .alignment = 2},
            2);
    }
  }
}

TEST_CASE("tensors and groups without elements give what nothing gives") {
  Check({.shape = {0, 8}, .ends = {0, 0}}, 1);
  Check({.shape = {8, 0}, .ends = {0, 0}}, 1);
  Check({.shape = {8, 8}, .ends = {}}, 1);
  Check({.shape = {8, 8}, .ends = {0, 0, 0}}, 1);
  Check({.shape = {8, 8}, .axis = 1, .ends = {0, 0, 0}, .magnitude = true}, 1);
  Check({.shape = {2000, 8}, .ends = {0, 0}}, 1);
  Check({.shape = {8, 8}, .ends = {0, 5, 5}, .dtype = DType::kFp8E4M3}, 1);
  Check({.shape = {8, 8}, .ends = {0, 5, 5}, .dtype = DType::kFp8E5M2}, 1);
  Check({.shape = {8, 8}, .ends = {0, 5, 5}, .dtype = DType::kFp8E4M3Fnuz}, 1);
  Check({.shape = {8, 8}, .ends = {0, 5, 5}, .dtype = DType::kFp8E5M2Fnuz}, 1);
}

// Ascending ends, or any at all: what they say stays inside of the tensor.
std::vector<int32_t> DrawnEnds(int64_t places, std::mt19937_64& random) {
  std::vector<int32_t> ends(1 + random() % 40);
  const auto limit = static_cast<uint64_t>(places + 1);
  for (int32_t& end : ends) end = static_cast<int32_t>(random() % limit);
  std::sort(ends.begin(), ends.end());
  if (random() % 2 == 0) ends.back() = static_cast<int32_t>(places);
  if (random() % 3 == 0) {
    for (int n = 0; n < 3; ++n) {
      const auto wild = static_cast<int32_t>(random() % (4 * limit));
      ends[random() % ends.size()] = wild - static_cast<int32_t>(limit);
    }
    if (random() % 2 == 0) ends[random() % ends.size()] = std::numeric_limits<int32_t>::max();
    if (random() % 2 == 0) ends[random() % ends.size()] = std::numeric_limits<int32_t>::min();
  }
  return ends;
}

TEST_CASE("whatever the ends say, no access leaves the tensors, and chunks change nothing") {
  const auto seed = GENERATE(range<uint64_t>(0, 40));
  std::mt19937_64 random(seed);
  const auto places = static_cast<int64_t>(1 + random() % 400);
  const auto lanes = static_cast<int64_t>(1 + random() % 70);
  const int64_t axis = seed % 2;
  Case c{.shape = axis == 0 ? Shape{places, lanes} : Shape{lanes, places},
         .axis = axis,
         .ends = DrawnEnds(places, random),
         .dtype = random() % 2 == 0 ? DType::kBf16 : DType::kFp32,
         .magnitude = random() % 2 == 0,
         .turned = random() % 2 == 0};
  SegmentSchedule schedule = SegmentScheduleFor(SegmentAmaxOf(CallOf(c)), c.alignment);
  schedule.chunk = schedule.walk.lines ? 8 * (1 + static_cast<int64_t>(random() % 20))
                                       : 1 + static_cast<int64_t>(random() % 90);
  schedule.chunks = (places + schedule.chunk - 1) / schedule.chunk;
  Check(c, seed, &schedule);
}

TEST_CASE("matrices of neighbours are read as they lie, all else without gaps") {
  const auto reads = [](const Shape& shape, const std::vector<int64_t>& strides) {
    return HasSegmentStrides(shape, strides);
  };
  CHECK(reads({4, 6}, {9, 1}));
  CHECK(reads({4, 6}, {1, 5}));
  CHECK(reads({4, 1}, {1, 77}));
  CHECK(!reads({4, 6}, {12, 2}));
  CHECK(!reads({4, 6}, {-6, 1}));
  CHECK(reads({2, 1, 3}, {3, 50, 1}));
  CHECK(reads({2, 0, 3}, {1, 1, 1}));
  CHECK(!reads({2, 4, 3}, {24, 3, 1}));
  CHECK(!reads({5}, {2}));
}

TEST_CASE("chunks are long enough for a thread's loads, and blocks many where places are") {
  const auto schedule = [](int64_t places, int64_t lanes, int64_t groups) {
    const SegmentAmaxCall call = {.places = places,
                                  .lanes = lanes,
                                  .groups = groups,
                                  .dtype = DType::kBf16,
                                  .x = {.along = lanes, .across = 1},
                                  .result = {.along = lanes, .across = 1}};
    return SegmentScheduleFor(call, 16);
  };
  for (const int64_t groups : {1, 16, 64}) {
    for (const int64_t lanes : {2048, 5120, 8192}) {
      const SegmentSchedule s = schedule(16640, lanes, groups);
      INFO(lanes << " lanes: chunks of " << s.chunk);
      CHECK(s.walk.vector == 8);
      CHECK(s.walk.packs == 32);
      CHECK(s.chunks * s.walk.slabs >= 1024);
      CHECK(s.launches() == 2);
    }
  }
  CHECK(schedule(32, 4096, 4).launches() == 1);
}

void CheckComparisons(const GpuTarget& target) {
  const Case cases[] = {
      {.shape = {16640, 2048}, .ends = {100, 16640}, .magnitude = true},
      {.shape = {2048, 16640}, .axis = 1, .ends = {100, 16640}, .magnitude = true},
      {.shape = {16640, 33}, .ends = {100, 16640}, .dtype = DType::kFp32},
      {.shape = {3, 16640}, .axis = 1, .ends = {100, 16640}, .dtype = DType::kFp16},
      {.shape = {20, 512}, .ends = {100, 16640}, .dtype = DType::kFp64},
      {.shape = {40, 512}, .axis = 1, .ends = {100, 16640}, .dtype = DType::kFp64},
      {.shape = {20, 512}, .axis = 1, .ends = {100, 16640}, .dtype = DType::kFp8E5M2}};
  for (const Case& c : cases) {
    const SegmentAmaxCall call = SegmentAmaxOf(CallOf(c));
    std::vector<Kernel> kernels;
    for (LaunchWriter::Launch& made :
         EmitSegmentAmax(call, SegmentScheduleFor(call, 16), target.dialect)) {
      CHECK(made.kernel.shared_bytes <= 48 << 10);
      kernels.push_back(std::move(made.kernel));
    }
    CheckCompiles(target, kernels, c.Print());
  }
}

RG_TEST_COMPILES("comparisons of groups compile", CheckComparisons);

}  // namespace
}  // namespace retrograd
