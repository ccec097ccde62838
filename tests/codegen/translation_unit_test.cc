// Kernels as values: what they say of their text, and how texts become one source.
#include "codegen/translation_unit.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/preludes/attention_prelude.h"
#include "codegen/preludes/dropout_prelude.h"
#include "codegen/preludes/hopper_prelude.h"
#include "codegen/preludes/multiplier_prelude.h"
#include "codegen/print/dialect.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"
#include "tests/support/kernels/kernels_from_text.h"

namespace retrograd {
namespace {

Kernel Named(const std::string& name) {
  return {.name = name,
          .threads = 32,
          .arguments = 1,
          .function = {.declarations = {{.type = "float", .name = "y"}},
                       .statements = "  rg_store(y, RG_THREAD, 1.0f);\n"}};
}

int Count(absl::string_view text, absl::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != absl::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// Every schedule of every example, with the staged ones.
std::vector<Kernel> AllKernels(Dialect dialect, int warp) {
  constexpr int64_t kBytes = 48 << 10;
  const ScheduleLimits limits = {.warp = warp,
                                 .sms = 3,
                                 .shared_bytes = kBytes,
                                 .staged_bytes = kBytes,
                                 .shared_bytes_per_sm = 2 * kBytes};
  std::vector<GroupKernels> groups;
  for (const KernelExample& example : KernelExamples(DType::kBf16)) {
    for (const Schedule& s : CandidateSchedules(example.ir, Classify(example.ir), limits)) {
      groups.push_back(EmitGroup({.ir = example.ir, .schedule = s}, dialect));
    }
  }
  return DistinctKernels(groups);
}

TEST_CASE("a kernel says that its threads meet where its text has a barrier, shuffle or array") {
  const int warp = GENERATE(32, 64);
  const Dialect dialect = GENERATE(Dialect::kCuda, Dialect::kHip, Dialect::kHost);
  int meet = 0, alone = 0;
  for (const Kernel& kernel : AllKernels(dialect, warp)) {
    const std::string text = PrintKernel(kernel);
    INFO(text);
    CHECK(kernel.threads_meet == ThreadsMeetIn(text));
    CHECK(kernel.arguments == static_cast<int>(kernel.args.size()));
    CHECK(kernel.parts.empty());
    (kernel.threads_meet ? meet : alone) += 1;
  }
  CHECK(meet > 50);
  CHECK(alone > 50);
}

TEST_CASE(
    "declared shared arrays are the shared bytes of a kernel, each from a multiple of 16 on") {
  const auto size = [](const std::string& type) -> int64_t {
    for (DType dtype : kAllDTypes) {
      if (StorageName(dtype) == type) return SizeBytes(dtype);
    }
    FAIL("no type " << type);
    return 0;
  };
  int with_arrays = 0;
  for (const Kernel& kernel : AllKernels(Dialect::kCuda, 32)) {
    INFO(PrintKernel(kernel));
    int64_t shared = 0, staged = 0;
    for (const Declaration& d : kernel.function.declarations) {
      if (d.kind == Declaration::kArgument) continue;
      const int64_t bytes = (d.count * size(d.type) + 15) / 16 * 16;
      if (d.kind == Declaration::kStaged) CHECK(d.at == staged);
      (d.kind == Declaration::kShared ? shared : staged) += bytes;
    }
    CHECK(kernel.shared_bytes == shared);
    CHECK(kernel.staged_bytes == staged);
    with_arrays += shared > 0;
  }
  CHECK(with_arrays > 20);
}

TEST_CASE("a unit begins with the parts that its kernels need, and with what parts share once") {
  Kernel plain = Named("rg_plain"), multiplier = plain, attention = plain;
  multiplier.name = "rg_multiplier";
  multiplier.head = KernelHead::kMultiplier;
  multiplier.parts = PreludePart::kMultiplier;
  attention.name = "rg_attention";
  attention.head = KernelHead::kAttention;
  attention.parts = PreludePart::kAttention;
  const std::string base = Prelude(Dialect::kCuda);
  CHECK(TranslationUnit({plain}, Dialect::kCuda) == base + PrintKernels({plain}));
  const std::string both = TranslationUnit({plain, multiplier, attention}, Dialect::kCuda);
  CHECK(absl::StartsWith(both, base));
  CHECK(Count(both, HopperPrelude()) == 1);
  CHECK(Count(both, MultiplierPrelude()) == 1);
  CHECK(Count(both, AttentionPrelude()) == 1);
  CHECK(Count(both, "\nRG_KERNEL(rg_plain, 32, 1) {\n") == 1);
  CHECK(Count(both, "\nRG_MULTIPLIER(rg_multiplier, 32, 1) {\n") == 1);
  CHECK(Count(both, "\nRG_ATTENTION(rg_attention, 32, 1) {\n") == 1);
  const std::string one = TranslationUnit({attention}, Dialect::kCuda);
  CHECK(Count(one, HopperPrelude()) == 1);
  CHECK(Count(one, MultiplierPrelude()) == 0);
}

TEST_CASE(
    "what dropout needs is in a unit of any dialect, and for tensor cores what they need too") {
  Kernel dropout = Named("rg_dropout");
  dropout.parts = PreludePart::kDropout;
  for (const Dialect dialect : {Dialect::kCuda, Dialect::kHip, Dialect::kHost}) {
    const std::string unit = TranslationUnit({dropout}, dialect);
    CHECK(unit == absl::StrCat(Prelude(dialect), DropoutPrelude(), PrintKernels({dropout})));
  }
  Kernel tiled = Named("rg_tiled");
  tiled.head = KernelHead::kAttention;
  tiled.parts = PreludePart::kAttention;
  const std::string unit = TranslationUnit({dropout, tiled}, Dialect::kCuda);
  CHECK(Count(unit, DropoutPrelude()) == 1);
  CHECK(Count(unit, TiledDropoutPrelude()) == 1);
  CHECK(Count(TranslationUnit({tiled}, Dialect::kCuda), TiledDropoutPrelude()) == 0);
}

TEST_CASE("a kernel that several groups launch is printed once, where it is launched first") {
  const std::vector<Kernel> kernels = DistinctKernels(
      {{{Named("rg_b"), Named("rg_a")}}, {{}}, {{Named("rg_b")}}, {{Named("rg_c")}}});
  REQUIRE(kernels.size() == 3);
  CHECK(kernels[0].name == "rg_b");
  CHECK(kernels[1].name == "rg_a");
  CHECK(kernels[2].name == "rg_c");
}

TEST_CASE("names that no function can have, or that two kernels have, are refused") {
  CHECK(CheckNames({Named("rg_a"), Named("_b2")}).ok());
  for (const char* name : {"", "2x", "a b", "a;b"}) {
    const absl::Status status = CheckNames({Named("rg_a"), Named(name)});
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring("kernel 1 of 2") && ContainsSubstring("is not a kernel's name"));
  }
  CHECK_THAT(std::string(CheckNames({Named("rg_a"), Named("rg_b"), Named("rg_a")}).message()),
             ContainsSubstring("two kernels are named rg_a"));
}

TEST_CASE("a name depends on all of the text but itself") {
  Kernel kernel = Named("rg_a");
  NameKernel(&kernel);
  const std::string name = kernel.name;
  NameKernel(&kernel);
  CHECK(kernel.name == name);
  const auto changed = [&](auto change) {
    Kernel other = kernel;
    change(other);
    NameKernel(&other);
    return other.name != name;
  };
  CHECK(changed([](Kernel& k) { k.threads = 64; }));
  CHECK(changed([](Kernel& k) { k.arguments = 2; }));
  CHECK(changed([](Kernel& k) { k.head = KernelHead::kMultiplier; }));
  CHECK(changed([](Kernel& k) { k.function.comment = "// other\n"; }));
  CHECK(changed([](Kernel& k) { k.function.declarations[0].type = "double"; }));
  CHECK(changed([](Kernel& k) { k.function.statements += "  RG_BARRIER();\n"; }));
  CHECK_FALSE(changed([](Kernel& k) { k.blocks = 7; }));
}

}  // namespace
}  // namespace retrograd
