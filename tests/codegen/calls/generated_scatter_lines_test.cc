// The kernel of scatter_lines on the host with every access checked, against the reference
// evaluator; and whether the GPU compilers take it.
#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/scatter_lines/emit_scatter_lines.h"
#include "graph/base/rounding.h"
#include "runtime/devices/host_device.h"
#include "runtime/host/host_numbers.h"
#include "runtime/ops/scatter_lines/generated_scatter_lines.h"
#include "tests/catch.h"
#include "tests/support/call_reference.h"
#include "tests/support/kernels/gpu_compilers.h"

namespace retrograd {
namespace {

struct Case {
  Shape index, src;
  int64_t extent = 0;
  DType dtype = DType::kBf16, index_dtype = DType::kInt64;
  int64_t offset = 0;  // elements, of each tensor
  int warp = 32;

  std::string Print() const {
    return absl::StrCat("index [", absl::StrJoin(index, ", "), "] src [", absl::StrJoin(src, ", "),
                        "] extent ", extent, " ", Name(dtype), " ", Name(index_dtype), " offset ",
                        offset, " warp ", warp);
  }
};

Call CallOf(const Case& c) {
  Shape result = c.src;
  result.back() = c.extent;
  const auto tensor = [&](const Shape& shape, DType dtype) {
    return CallTensor{
        .offset = c.offset, .shape = shape, .strides = DenseStrides(shape), .dtype = dtype};
  };
  return {.op = Op::scatter_lines,
          .operands = {tensor(c.index, c.index_dtype), tensor(c.src, c.dtype)},
          .results = {tensor(result, c.dtype)},
          .attributes = {{"extent", c.extent}}};
}

// Terms are quarters, so that no sum is rounded before the last.
std::vector<double> DrawnTerms(const Case& c, std::mt19937_64& random) {
  std::vector<double> x(Elements(c.src));
  for (double& v : x) v = static_cast<double>(random() % 65) / 4 - 8;
  return x;
}

// What draws indices of a line of `extent` elements.
using DrawIndex = int64_t (*)(int64_t extent, std::mt19937_64& random);

int64_t Any(int64_t extent, std::mt19937_64& random) {
  return static_cast<int64_t>(random() % std::max<int64_t>(extent, 1));
}
int64_t Few(int64_t extent, std::mt19937_64& random) {
  return Any(std::min<int64_t>(extent, 3), random);
}
int64_t Same(int64_t extent, std::mt19937_64&) { return extent / 2; }
int64_t Wild(int64_t extent, std::mt19937_64& random) {
  return static_cast<int64_t>(random() % (4 * static_cast<uint64_t>(extent) + 4)) - 2 * extent - 2;
}

// Nothing is added at an index outside of its line: the reference, which refuses such an index, is
// given a term of zero there.
std::vector<double> Reference(const Case& c, const Call& call, std::vector<double> index,
                              std::vector<double> src) {
  if (c.extent == 0) return {};
  for (size_t i = 0; i < src.size(); ++i) {
    const double at = index[i % index.size()];
    if (at < -c.extent || at >= c.extent) src[i] = 0;
  }
  for (double& at : index) at = at < -c.extent || at >= c.extent ? 0 : at;
  std::vector<double> wanted = EvaluateCall(call, {index, src});
  RoundTo(c.dtype, absl::MakeSpan(wanted));
  return wanted;
}

// Bytes for the tensor and no more.
std::vector<char> BytesOf(const CallTensor& t) {
  return std::vector<char>((SpanOf(t) + t.offset) * SizeBytes(t.dtype));
}

// Whether terms are rounded as they are added: then their order shows.
enum class Sums { kExact, kRounded };

// Of fp32 alone: each element gets its terms in the order of their indices.
std::vector<double> InOrder(const Case& c, const std::vector<double>& index,
                            const std::vector<double>& src) {
  std::vector<float> sums(Elements(c.src) / c.src.back() * c.extent);
  for (size_t i = 0; i < src.size(); ++i) {
    const auto line = static_cast<int64_t>(i) / c.src.back();
    const auto named = static_cast<int64_t>(index[i % index.size()]);
    const int64_t at = named < 0 ? named + c.extent : named;
    if (at >= 0 && at < c.extent) sums[line * c.extent + at] += static_cast<float>(src[i]);
  }
  return {sums.begin(), sums.end()};
}

void Check(const Case& c, uint64_t seed, DrawIndex draw, Sums kind = Sums::kExact) {
  INFO(c.Print() << " seed " << seed);
  std::mt19937_64 random(seed);
  const Call call = CallOf(c);
  std::vector<double> index(Elements(c.index));
  for (double& i : index) i = static_cast<double>(draw(c.extent, random));
  std::vector<double> src = DrawnTerms(c, random);
  if (kind == Sums::kRounded) {
    for (double& v : src) v = static_cast<float>(v / 3);
  }
  HostDeviceOptions options;
  options.compile.check = true;
  options.compile.warp = c.warp;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  CallFacts facts;
  if (seed % 2 == 0) facts.result_alignment = {16};
  auto loaded = LoadGeneratedScatterLines(*device, call, facts);
  REQUIRE(loaded.status().ToString() == "OK");
  std::vector<char> places = BytesOf(call.operands[0]), terms = BytesOf(call.operands[1]),
                    sums = BytesOf(call.results[0]);
  for (size_t i = 0; i < index.size(); ++i) {
    const auto at = static_cast<int64_t>(i) + c.offset;
    if (c.index_dtype == DType::kInt32) {
      reinterpret_cast<int32_t*>(places.data())[at] = static_cast<int32_t>(index[i]);
    } else {
      reinterpret_cast<int64_t*>(places.data())[at] = static_cast<int64_t>(index[i]);
    }
  }
  const std::vector<double> wanted =
      kind == Sums::kExact ? Reference(c, call, index, src) : InOrder(c, index, src);
  WithFloatType(c.dtype, [&](auto* type) {
    auto* const from = reinterpret_cast<decltype(type)>(terms.data());
    for (size_t i = 0; i < src.size(); ++i) {
      StoreAs(from, static_cast<int64_t>(i) + c.offset, src[i]);
    }
    auto* const to = reinterpret_cast<decltype(type)>(sums.data());
    const void* const operands[] = {places.data(), terms.data()};
    void* const results[] = {sums.data()};
    const absl::Status ran = (*loaded)->Run(0, {.operands = operands, .results = results}, nullptr);
    REQUIRE(ran.ToString() == "OK");
    int64_t differ = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double found = LoadAs<double>(to, static_cast<int64_t>(i) + c.offset);
      differ += found == wanted[i] ? 0 : 1;
    }
    CHECK(differ == 0);
  });
}

TEST_CASE("lines of any length add up what any indices name") {
  const DrawIndex draw = GENERATE(Any, Few, Same, Wild);
  Check({.index = {3, 40}, .src = {3, 40}, .extent = 50}, 1, draw);
  Check({.index = {40}, .src = {2, 5, 40}, .extent = 7}, 2, draw);
  Check({.index = {5, 33}, .src = {2, 5, 33}, .extent = 64, .dtype = DType::kFp32}, 3, draw);
  Check({.index = {300}, .src = {300}, .extent = 2500, .dtype = DType::kFp16}, 4, draw);
  Check({.index = {2, 129}, .src = {2, 129}, .extent = 1025, .index_dtype = DType::kInt32}, 5,
        draw);
  Check({.index = {2, 70}, .src = {2, 70}, .extent = 600, .dtype = DType::kFp64, .offset = 3}, 6,
        draw);
  Check({.index = {3, 3, 1}, .src = {3, 3, 1}, .extent = 1}, 7, draw);
  Check({.index = {9, 65}, .src = {9, 65}, .extent = 31, .warp = 64}, 8, draw);
}

TEST_CASE("parts of long lines get what any indices name, in the order of the indices") {
  const DrawIndex draw = GENERATE(Any, Few, Same, Wild);
  const Case cases[] = {
      {.index = {700}, .src = {2, 700}, .extent = 3500},  // four teams
      {.index = {3, 900}, .src = {3, 900}, .extent = 3001, .dtype = DType::kFp32},
      {.index = {300}, .src = {300}, .extent = 5000, .dtype = DType::kFp64, .offset = 1},
      {.index = {2, 400}, .src = {2, 400}, .extent = 9 * 1024 + 2},  // two blocks of five teams
      {.index = {2, 1100}, .src = {2, 1100}, .extent = 4096, .warp = 64},
      {.index = {300}, .src = {300}, .extent = 6 * 1024, .index_dtype = DType::kInt32, .warp = 64},
      {.index = {900},
       .src = {3, 900},
       .extent = 3000,
       .dtype = DType::kFp16,
       .warp = 64},                                                      // three
      {.index = {3, 600}, .src = {3, 600}, .extent = 4700, .warp = 64},  // five, of one line
  };
  uint64_t seed = 0;
  for (const Case& c : cases) {
    INFO(c.Print());
    CHECK(ScatterTeamsFor(ScatterLinesOf(CallOf(c))).together);
    Check(c, ++seed, draw);
  }
}

TEST_CASE("each element gets its terms in the order of the indices") {
  const DrawIndex draw = GENERATE(Any, Few, Same, Wild);
  const Case alone = {.index = {6, 200}, .src = {6, 200}, .extent = 90, .dtype = DType::kFp32};
  const Case together = {.index = {2, 900}, .src = {2, 900}, .extent = 2900, .dtype = DType::kFp32};
  Check(alone, 1, draw, Sums::kRounded);
  Check(together, 2, draw, Sums::kRounded);
  const Case wide = {
      .index = {700}, .src = {700}, .extent = 9000, .dtype = DType::kFp32, .warp = 64};
  Check(wide, 3, draw, Sums::kRounded);
}

TEST_CASE("teams with a few indices do not share them out") {
  const Case few = {.index = {4, 1}, .src = {4, 1}, .extent = 50257};
  CHECK_FALSE(ScatterTeamsFor(ScatterLinesOf(CallOf(few))).together);
  Check(few, 1, Any);
}

TEST_CASE("lines without indices are zeros, and those without elements are left alone") {
  Check({.index = {3, 0}, .src = {3, 0}, .extent = 5}, 1, Any);
  Check({.index = {3, 4}, .src = {3, 4}, .extent = 0}, 1, Same);
  Check({.index = {0, 4}, .src = {0, 4}, .extent = 3}, 1, Any);
}

TEST_CASE("lines of random sizes, at random indices") {
  const auto seed = GENERATE(range<uint64_t>(0, 30));
  std::mt19937_64 random(seed);
  const auto to = [&](uint64_t n) { return static_cast<int64_t>(1 + random() % n); };
  const Shape index = {to(4), to(200)};
  Shape src = index;
  if (random() % 2 == 0) src.insert(src.begin(), to(3));
  Check({.index = index,
         .src = src,
         .extent = to(random() % 2 == 0 ? 40 : 3000),
         .dtype = random() % 2 == 0 ? DType::kBf16 : DType::kFp32,
         .index_dtype = random() % 2 == 0 ? DType::kInt32 : DType::kInt64,
         .offset = static_cast<int64_t>(random() % 3)},
        seed, random() % 3 == 0 ? Few : Wild);
}

TEST_CASE("a launch of more than it can count is refused") {
  const std::unique_ptr<Device> device = MakeHostDevice({});
  const Call call = CallOf({.index = {1}, .src = {int64_t{1} << 34, 1}, .extent = 4096});
  const auto loaded = LoadGeneratedScatterLines(*device, call, {});
  CHECK(absl::IsUnimplemented(loaded.status()));
  CHECK_THAT(std::string(loaded.status().message()),
             ContainsSubstring("larger than one launch takes"));
}

void CheckSums(const GpuTarget& target) {
  const Case cases[] = {
      {.index = {384, 384}, .src = {96, 384, 384}, .extent = 1024},
      {.index = {64, 8}, .src = {64, 8}, .extent = 50257, .dtype = DType::kFp32},
      {.index = {64, 900}, .src = {64, 900}, .extent = 16384},
      {.index = {64, 900}, .src = {64, 900}, .extent = 5001, .dtype = DType::kFp64},
      {.index = {64, 8}, .src = {64, 8}, .extent = 3, .dtype = DType::kFp16},
      {.index = {8}, .src = {64, 8}, .extent = 700, .dtype = DType::kFp64},
      {.index = {8}, .src = {64, 8}, .extent = 1, .index_dtype = DType::kInt32}};
  for (const Case& c : cases) {
    std::vector<Kernel> kernels;
    kernels.push_back(EmitScatterLines(ScatterLinesOf(CallOf(c)), 16, target.dialect).kernel);
    CHECK(kernels[0].shared_bytes <= 48 << 10);
    CheckCompiles(target, kernels, c.Print());
  }
}

RG_TEST_COMPILES("sums of lines compile", CheckSums);

}  // namespace
}  // namespace retrograd
