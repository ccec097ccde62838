// What is expected is compiled once, and equals what is not.
#include "runtime/gpu/kernel_compiler.h"

#include <atomic>

#include "tests/catch.h"
#include "tests/support/kernels/kernels_from_text.h"

namespace retrograd {
namespace {

// A kernel for each number, each with a text of its own.
std::vector<Kernel> Scaling(int count, int first = 0) {
  std::string text;
  for (int i = first; i < first + count; ++i) {
    const std::string number = std::to_string(i);
    text += "RG_KERNEL(rg_scale_" + number + ", 32, 1) {\n  RG_ARG(const float, x, 0);\n" +
            "  RG_ARG(float, y, 1);\n  rg_store(y, RG_THREAD, rg_load(x, RG_THREAD) * " + number +
            ".0f);\n}\n";
  }
  return KernelsFromText(text);
}

std::vector<std::string> NamesOf(const std::vector<CompiledObject>& objects) {
  std::vector<std::string> names;
  for (const CompiledObject& object : objects) {
    for (const KernelResources& kernel : object.kernels) names.push_back(kernel.name);
  }
  return names;
}

// Options that count the parts that are compiled.
struct Counted {
  std::shared_ptr<std::atomic<int>> parts = std::make_shared<std::atomic<int>>(0);
  GpuCompileOptions options{.jobs = 2, .cancelled = [parts = parts] {
                              ++*parts;
                              return false;
                            }};
};

TEST_CASE("kernels that were expected are compiled once, however often they are asked for") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  Counted counted;
  KernelCompiler compiler(Dialect::kCuda, counted.options, nullptr);
  const std::vector<Kernel> kernels = Scaling(3);
  compiler.Expect(kernels, "sm_90");
  compiler.Expect(kernels, "sm_90");
  const auto objects = compiler.Compile(kernels, "sm_90");
  INFO(objects.status());
  REQUIRE(objects.ok());
  CHECK(NamesOf(*objects) == std::vector<std::string>{"rg_scale_0", "rg_scale_1", "rg_scale_2"});
  const auto again = compiler.Compile(kernels, "sm_90");
  REQUIRE(again.ok());
  CHECK((*again)[0].code == (*objects)[0].code);
  CHECK(*counted.parts == 1);
}

TEST_CASE("kernels that nobody expected are compiled as those that were") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  Counted counted;
  KernelCompiler compiler(Dialect::kCuda, counted.options, nullptr);
  compiler.Expect(Scaling(2), "sm_90");
  const auto expected = compiler.Compile(Scaling(2), "sm_90");
  KernelCompiler other(Dialect::kCuda, {}, nullptr);
  const auto unexpected = other.Compile(Scaling(2), "sm_90");
  REQUIRE((expected.ok() && unexpected.ok()));
  CHECK((*expected)[0].code == (*unexpected)[0].code);
  // Of another architecture, or with another text, they are others.
  CHECK(compiler.Compile(Scaling(2), "sm_80").ok());
  CHECK(compiler.Compile(Scaling(2, 5), "sm_90").ok());
  CHECK(*counted.parts == 3);
}

TEST_CASE("what is forgotten is compiled again, and what nobody asks for does no harm") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  Counted counted;
  {
    KernelCompiler compiler(Dialect::kCuda, counted.options, nullptr);
    for (int i = 0; i < 200; ++i) compiler.Expect(Scaling(1, i), "sm_90");
    compiler.Forget();
    const int begun = *counted.parts;
    CHECK(begun < 200);  // which would take many seconds
    CHECK(compiler.Compile(Scaling(1), "sm_90").ok());
    CHECK(*counted.parts == begun + 1);
    compiler.Expect(Scaling(4), "sm_90");
  }
}

TEST_CASE("a kernel that does not compile fails when it is asked for, and others do not") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  KernelCompiler compiler(Dialect::kCuda, {.jobs = 2}, nullptr);
  const std::vector<Kernel> bad =
      KernelsFromText("RG_KERNEL(rg_bad, 32, 1) {\n  RG_ARG(float, y, 0);\n  nonsense;\n}\n");
  compiler.Expect(bad, "sm_90");
  compiler.Expect(Scaling(1), "sm_90");
  const absl::Status status = compiler.Compile(bad, "sm_90").status();
  INFO(status);
  CHECK(!status.ok());
  CHECK(std::string(status.message()).find("nonsense") != std::string::npos);
  CHECK(compiler.Compile(Scaling(1), "sm_90").ok());
}

TEST_CASE("a compilation that is cancelled says so") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  KernelCompiler compiler(Dialect::kCuda, {.cancelled = [] { return true; }}, nullptr);
  compiler.Expect(Scaling(1), "sm_90");
  CHECK(absl::IsCancelled(compiler.Compile(Scaling(1), "sm_90").status()));
  CHECK(absl::IsCancelled(compiler.Compile(Scaling(1, 1), "sm_90").status()));
}

}  // namespace
}  // namespace retrograd
