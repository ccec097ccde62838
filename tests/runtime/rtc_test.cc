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

// So many values live at once, known only when the kernel runs.
std::string Fat(int values = 300) {
  std::string text =
      "RG_KERNEL(rg_fat, 256, 2) {\n  RG_ARG(const float, x, 0);\n"
      "  RG_ARG(float, y, 1);\n  const int t = RG_THREAD;\n";
  for (int i = 0; i < values; ++i) {
    text += "  const float v" + std::to_string(i) + " = rg_load(x, t + " + std::to_string(i * 256) +
            ");\n";
  }
  text += "  RG_BARRIER();\n";
  for (int i = 0; i < values; ++i) {
    text += "  rg_store(y, t + " + std::to_string(i * 256) + ", v" +
            std::to_string(values - 1 - i) + " * v" + std::to_string(i) + " + v" +
            std::to_string((i * 7) % values) + ");\n";
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

// What is generated of a GELU's backward with the sum down its columns: the assembler takes 72
// registers where 64 do.
constexpr char kEager[] = R"(
RG_KERNEL(rg_eager, 256, 4) {
  RG_ARG(const rg_bf16, p0, 0);
  RG_ARG(const rg_bf16, p1, 1);
  RG_ARG(rg_bf16, p2, 2);
  RG_SHARED(float, tile_float, 2304);
  RG_ARG(float, w_float, 3);
  const int lane = RG_THREAD % 8;
  const int thread_row = RG_THREAD / 8;
  const int piece = RG_BLOCK / 48;
  const int c = (static_cast<int>(RG_BLOCK % 48) * 8 + lane) * 8;
  float v21[8];
#pragma unroll
  for (int n = 0; n < 8; ++n) v21[n] = 0.0f;
  if (c < 3072) {
    const int a1 = c;
    const int end = rg_min((piece + 1) * 364, static_cast<int>(4000));
    for (int row0 = piece * 364 + thread_row; row0 < end; row0 += 128) {
      rg_pack<rg_bf16, 8> v0[4];
      rg_pack<rg_bf16, 8> v2[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int row = row0 + r * 32;
        if (row < end) {
          const int a0 = row;
          rg_load_pack(p0, 3072 * a0 + a1, v0 + r);
          rg_load_pack(p1, 3072 * a0 + a1, v2 + r);
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int row = row0 + r * 32;
        if (row < end) {
          const int a0 = row;
          float v20[8];
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const float v1 = rg_lane(v0[r], j);
            const float v3 = rg_lane(v2[r], j);
            const float v5 = v3 * 0.707106769f;
            const float v6 = rg_erf(v5);
            const float v8 = v6 + 1.0f;
            const float v10 = v8 * 0.5f;
            const float v11 = v3 * v3;
            const float v13 = v11 * (-0.5f);
            const float v14 = rg_exp_or_zero(v13);
            const float v16 = v14 * 0.398942292f;
            const float v17 = v3 * v16;
            const float v18 = v10 + v17;
            const float v19 = v1 * v18;
            v20[j] = rg_round<rg_bf16>(v19);
            v21[j] = v21[j] + v20[j];
          }
          rg_store_vec<8>(p2, 3072 * a0 + a1, v20);
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    tile_float[j * 256 + thread_row * 8 + lane] = v21[j];
  }
  RG_BARRIER();
  if (RG_THREAD < 256) {
    const int at = RG_THREAD / 32 * 256 + RG_THREAD % 32;
    float part0 = tile_float[at];
#pragma unroll
    for (int i = 1; i < 8; ++i) {
      part0 = part0 + tile_float[at + i * 32];
    }
    tile_float[2048 + RG_THREAD] = part0;
  }
  RG_BARRIER();
  if (thread_row == 0) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v21[j] = tile_float[2048 + j * 32 + lane];
    }
#pragma unroll
    for (int i = 1; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        v21[j] = v21[j] + tile_float[2048 + j * 32 + i * 8 + lane];
      }
    }
  }
  if (thread_row == 0 && c < 3072) {
    rg_store_vec<4>(w_float, piece * 3072 + c / 64 * 64 + (0 * 8 + c % 64 / 8) * 4, v21);
    rg_store_vec<4>(w_float, piece * 3072 + c / 64 * 64 + (1 * 8 + c % 64 / 8) * 4, v21 + 4);
  }
}
)";

TEST_CASE("a kernel is held to the registers that its plan counts on, where it can be") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  const auto compiled = [](const std::string& text, int resident, int64_t blocks, int64_t sms) {
    std::vector<Kernel> kernels = KernelsFromText(text);
    REQUIRE(kernels.size() == 1);
    kernels[0].resident = resident;
    kernels[0].blocks = blocks;
    auto object = CompileKernels(Dialect::kCuda, kernels, "sm_90", {.sms = sms});
    REQUIRE(object.ok());
    REQUIRE(object->kernels.size() == 1);
    return object->kernels[0];
  };
  const KernelResources alone = compiled(kEager, 0, 100000, 132);
  const int resident = 65536 / ((alone.registers + 7) / 8 * 8 * 256);
  INFO(alone.registers << " registers, " << resident << " blocks");
  REQUIRE(resident >= 2);
  const KernelResources held = compiled(kEager, resident + 1, 100000, 132);
  CHECK(held.registers < alone.registers);
  CHECK(held.spill_bytes == 0);
  // All blocks are resident; nobody says how many are; more than it counts on are.
  CHECK(compiled(kEager, resident + 1, resident * 132, 132) == alone);
  CHECK(compiled(kEager, resident + 1, 100000, 0) == alone);
  CHECK(compiled(kEager, resident, 100000, 132) == alone);
  // A kernel that would spill stays as it is: all of its values are needed behind a barrier.
  const KernelResources fat = compiled(Fat(72), 0, 100000, 132);
  INFO(fat.registers << " registers");
  REQUIRE(fat.spill_bytes == 0);
  REQUIRE((fat.registers > 72 && fat.registers <= 80));  // three blocks; four would have 64
  CHECK(compiled(Fat(72), 4, 100000, 132) == fat);
  // One that spills by itself is compiled as if its plan said nothing.
  CHECK(compiled(Fat(), 2, 100000, 132) == compiled(Fat(), 0, 100000, 132));
}

TEST_CASE("compiled code is found by grids and planned blocks, but for kernels of any size") {
  std::vector<Kernel> kernels = KernelsFromText(kSum);
  const std::string unplanned = CompiledBy(kernels, {.sms = 132});
  CHECK(CompiledBy(kernels, {.sms = 114}) != unplanned);
  kernels[0].resident = 4;
  const std::string planned = CompiledBy(kernels, {.sms = 132});
  CHECK(planned != unplanned);
  kernels[0].blocks += 1;
  CHECK(CompiledBy(kernels, {.sms = 132}) != planned);
  kernels[0].lifted.types = {SizedType::kInt};
  CHECK(CompiledBy(kernels, {.sms = 132}) == unplanned);
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
