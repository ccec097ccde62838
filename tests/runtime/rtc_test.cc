#include "runtime/compiler/rtc.h"

#include "codegen/translation_unit.h"
#include "runtime/compiler/code_object.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernels_from_text.h"

namespace retrograd {
namespace {

constexpr char kSum[] = R"(
RG_KERNEL(rg_sum, 128, 2) {
  RG_ARG(const rg_bf16, x, 0);
  RG_ARG(float, y, 1);
  RG_SHARED(float, partial, 128);
  const int t = RG_THREAD, b = RG_BLOCK;
  float v[8];
  rg_load_vec<8>(x, (b * 128 + t) * 8, v);
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += rg_exp(v[i]);
  sum += RG_SHUFFLE_XOR(sum, 16);
  partial[t] = sum;
  RG_BARRIER();
  rg_store(y, b * 128 + t, partial[127 - t]);
}
)";

// 300 values live at once, known only when the kernel runs.
std::string Fat() {
  std::string text =
      "RG_KERNEL(rg_fat, 256, 2) {\n  RG_ARG(const float, x, 0);\n"
      "  RG_ARG(float, y, 1);\n  const int t = RG_THREAD;\n";
  for (int i = 0; i < 300; ++i) {
    text += "  const float v" + std::to_string(i) + " = rg_load(x, t + " + std::to_string(i * 256) +
            ");\n";
  }
  text += "  RG_BARRIER();\n";
  for (int i = 0; i < 300; ++i) {
    text += "  rg_store(y, t + " + std::to_string(i * 256) + ", v" + std::to_string(299 - i) +
            " * v" + std::to_string(i) + " + v" + std::to_string((i * 7) % 300) + ");\n";
  }
  return text + "}\n";
}

TEST_CASE("NVRTC compiles the vocabulary for sm_90 and tells each kernel's resources") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  auto object = CompileKernels(Dialect::kCuda, KernelsFromText(kSum + Fat()), "sm_90");
  INFO(object.status());
  REQUIRE(object.ok());
  INFO(object->log);
  CHECK(object->code.substr(1, 3) == "ELF");
  REQUIRE(object->kernels.size() == 2);
  CHECK(object->kernels[0].name == "rg_fat");
  CHECK(object->kernels[0].registers >= 128);
  CHECK(object->kernels[0].spill_bytes > 0);
  CHECK(object->kernels[1].name == "rg_sum");
  CHECK(object->kernels[1].registers > 0);
  CHECK(object->kernels[1].spill_bytes == 0);
  CHECK(object->kernels[1].shared_bytes >= 512);
}

TEST_CASE("HIPRTC compiles the vocabulary for gfx90a and tells each kernel's resources") {
  RG_NEEDS_COMPILER(HipCompilerAvailable());
  auto object = CompileKernels(Dialect::kHip, KernelsFromText(kSum), "gfx90a");
  INFO(object.status());
  REQUIRE(object.ok());
  REQUIRE(object->kernels.size() == 1);
  CHECK(object->kernels[0].name == "rg_sum");
  CHECK(object->kernels[0].registers > 0);
  CHECK(object->kernels[0].shared_bytes >= 512);
}

// What a compiler writes of spills is a count of registers, each of four bytes.
TEST_CASE("spilled registers of an AMD kernel are told in bytes") {
  RG_NEEDS_COMPILER(HipCompilerAvailable());
  auto object = CompileKernels(Dialect::kHip, KernelsFromText(kSum), "gfx90a");
  REQUIRE(object.ok());
  REQUIRE(object->kernels[0].spill_bytes == 0);
  const std::string kCount = ".vgpr_spill_count";
  std::string code = object->code;
  const size_t at = code.find(kCount);
  REQUIRE(at != std::string::npos);
  REQUIRE(code[at + kCount.size()] == 0);  // small numbers are a byte in msgpack
  code[at + kCount.size()] = 5;
  const std::vector<KernelResources> spilling = ResourcesFromAmdObject(code);
  REQUIRE(spilling.size() == 1);
  CHECK(spilling[0].spill_bytes == 20);
}

TEST_CASE("source that does not compile comes back with the compiler's words") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  auto object = CompileCuda(Prelude(Dialect::kCuda) + "\nint f() { return nonsense; }\n", "sm_90");
  CHECK_THAT(std::string(object.status().message()), ContainsSubstring("nonsense"));
  CHECK_FALSE(CompileCuda("", "sm_1").ok());
}

TEST_CASE("a compiler that is not there is a status that says what to install") {
  const RtcOptions nowhere{.library = "/nowhere/libnvrtc.so"};
  const absl::Status cuda = CompileCuda("", "sm_90", nowhere).status();
  CHECK(cuda.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(cuda.message()), ContainsSubstring("install"));
  CHECK_THAT(std::string(cuda.message()), ContainsSubstring("/nowhere/libnvrtc.so"));
  CHECK(CompileHip("", "gfx90a", nowhere).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("the assembler's log is read kernel by kernel") {
  const std::vector<KernelResources> kernels = ResourcesFromPtxasLog(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'rg_b' for 'sm_90'\n"
      "ptxas info    : Function properties for rg_b\n"
      "    48 bytes stack frame, 44 bytes spill stores, 40 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 2048 bytes smem, 400 bytes cmem[0]\n"
      "ptxas info    : Compiling entry function 'rg_a' for 'sm_90'\n"
      "ptxas info    : Used 12 registers, 400 bytes cmem[0]\n");
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0] == KernelResources{.name = "rg_a", .registers = 12});
  CHECK(kernels[1] == KernelResources{.name = "rg_b",
                                      .registers = 255,
                                      .spill_bytes = 44,
                                      .stack_bytes = 48,
                                      .shared_bytes = 2048});
}

TEST_CASE("bytes that are no code object have no resources and do no harm") {
  CHECK(ResourcesFromAmdObject("").empty());
  CHECK(ResourcesFromAmdObject("\x7f"
                               "ELF")
            .empty());
  std::string elf(400, '\xff');
  elf.replace(0, 4,
              "\x7f"
              "ELF");
  CHECK(ResourcesFromAmdObject(elf).empty());
}

}  // namespace
}  // namespace retrograd
