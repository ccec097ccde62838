// Kernels whose numbers are arguments: what two of them have in common, and that they are the
// kernels that they stand for.
#include "codegen/print/lift_numbers.h"

#include <cstring>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/print/kernel_text.h"
#include "codegen/translation_unit.h"
#include "runtime/compiler/rtc.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"

namespace retrograd {
namespace {

Kernel Scaling(int64_t points, const std::string& factor, int threads = 64) {
  Kernel kernel{.threads = threads, .arguments = 2};
  kernel.function = {.comment = absl::StrCat("// ", points, " points\n"),
                     .declarations = {{.type = "const float", .name = "x", .at = 0},
                                      {.type = "float", .name = "y", .at = 1}},
                     .statements = absl::StrCat("  const int i = RG_BLOCK * ", threads,
                                                " + RG_THREAD;\n  if (i < ", Sized(points),
                                                ") rg_store(y, i, rg_load(x, i) * ",
                                                SizedLiteral(factor), ");\n")};
  NameKernel(&kernel);
  return kernel;
}

Kernel WithAllLifted(const Kernel& kernel) {
  std::vector<int> all(NumbersOf(kernel).size());
  std::iota(all.begin(), all.end(), 0);
  return LiftNumbers(kernel, std::move(all));
}

TEST_CASE("a printed kernel has its numbers as literals, without their marks") {
  const std::string text = PrintKernel(Scaling(1000, "0.5f"));
  CHECK_THAT(text, ContainsSubstring("if (i < 1000) rg_store(y, i, rg_load(x, i) * 0.5f);"));
  for (char c : text) CHECK((c >= ' ' || c == '\n'));
}

TEST_CASE("literals are marked by what they are") {
  struct Case {
    const char *literal, *number;
    SizedType type;
  };
  const Case cases[] = {{"3", "3", SizedType::kInt},
                        {"(-3)", "-3", SizedType::kInt},
                        {"3000000000", "3000000000", SizedType::kInt64},
                        {"int64_t(3LL)", "3LL", SizedType::kInt64},
                        {"0.5f", "0.5f", SizedType::kFloat},
                        {"(-1e-05f)", "-1e-05f", SizedType::kFloat},
                        {"1.5", "1.5", SizedType::kDouble}};
  for (const Case& c : cases) {
    INFO(c.literal);
    std::vector<std::string> found;
    const std::string marked = SizedLiteral(c.literal);
    ReplaceSized(marked, [&](absl::string_view number) {
      found.emplace_back(number);
      return std::string();
    });
    REQUIRE(found == std::vector<std::string>{c.number});
    CHECK(WithoutMarks(marked) == c.literal);
    CHECK(TypeOfLiteral(found[0]) == c.type);
    CHECK(static_cast<int>(WordsOfLiteral(found[0]).size()) == WordsOf(c.type));
  }
  for (const char* other : {"__int_as_float(0x7f800000)", "true", "(-2147483647 - 1)",
                            "int64_t(-9223372036854775807LL - 1)", "__builtin_nanf(\"\")"}) {
    INFO(other);
    CHECK(SizedLiteral(other) == other);
  }
}

TEST_CASE("words are the bits of a number, the lower ones first") {
  CHECK(WordsOfLiteral("-2") == std::vector<int32_t>{-2});
  CHECK(WordsOfLiteral("4294967297") == std::vector<int32_t>{1, 1});
  float single = 0;
  const int32_t word = WordsOfLiteral("0.333333343f")[0];
  std::memcpy(&single, &word, sizeof single);
  CHECK(single == 0.333333343f);
  double number = 0;
  const std::vector<int32_t> words = WordsOfLiteral("0.10000000000000001");
  std::memcpy(&number, words.data(), sizeof number);
  CHECK(number == 0.1);
}

TEST_CASE("kernels have one skeleton if they differ in numbers, comments and blocks alone") {
  const std::string skeleton = SkeletonOf(Scaling(1000, "0.5f"));
  CHECK(SkeletonOf(Scaling(7, "0.25f")) == skeleton);
  CHECK(SkeletonOf(Scaling(1000, "0.5f", 128)) != skeleton);
  CHECK(SkeletonOf(Scaling(1000, "0.5")) != skeleton);            // another type
  CHECK(SkeletonOf(Scaling(3'000'000'000, "0.5f")) != skeleton);  // an int no more
}

TEST_CASE("a lifted kernel takes the numbers behind its pointers") {
  const Kernel kernel = Scaling(1000, "0.5f");
  const Kernel lifted = LiftNumbers(kernel, {0, -1});
  CHECK(lifted.arguments == 3);
  const std::string text = PrintKernel(lifted);
  CHECK_THAT(text, ContainsSubstring("RG_NUMBER(int, n_0, 2);"));
  CHECK_THAT(text, ContainsSubstring("if (i < n_0) rg_store(y, i, rg_load(x, i) * 0.5f);"));
  CHECK(WordsOf(lifted.lifted, NumbersOf(Scaling(7, "0.5f"))) == std::vector<int32_t>{7});
  // Its text, and so its name, tells nothing of the size that it was made from.
  CHECK(LiftNumbers(Scaling(7, "0.5f"), {0, -1}).name == lifted.name);
  CHECK(LiftNumbers(Scaling(7, "0.25f"), {0, -1}).name != lifted.name);
}

std::vector<Kernel> AllLifted(DType dtype, Dialect dialect, int warp) {
  std::vector<GroupKernels> groups;
  for (const KernelExample& example : KernelExamples(dtype)) {
    const ScheduleLimits limits = {.warp = warp,
                                   .sms = 3,
                                   .shared_bytes = 48 << 10,
                                   .staged_bytes = 48 << 10,
                                   .shared_bytes_per_sm = 96 << 10};
    for (const Schedule& s : CandidateSchedules(example.ir, Classify(example.ir), limits)) {
      groups.push_back(EmitGroup({.ir = example.ir, .schedule = s}, dialect));
    }
  }
  for (GroupKernels& group : groups) {
    for (Kernel& kernel : group.launches) kernel = WithAllLifted(kernel);
  }
  return DistinctKernels(groups);
}

TEST_CASE("with all numbers lifted every schedule of every template compiles for sm_90") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  const std::vector<Kernel> kernels = AllLifted(DType::kBf16, Dialect::kCuda, 32);
  const auto object = CompileKernels(Dialect::kCuda, kernels, "sm_90");
  INFO(object.status().ToString());
  REQUIRE(object.ok());
  CHECK(kernels.size() > 50);
  INFO(object->log);
  CHECK_FALSE(absl::StrContains(object->log, "warning"));
}

TEST_CASE("with all numbers lifted every schedule of every template compiles for gfx90a") {
  RG_NEEDS_COMPILER(HipCompilerAvailable());
  const std::vector<Kernel> kernels = AllLifted(DType::kFp16, Dialect::kHip, 64);
  const auto object = CompileKernels(Dialect::kHip, kernels, "gfx90a");
  INFO(object.status().ToString());
  REQUIRE(object.ok());
}

}  // namespace
}  // namespace retrograd
