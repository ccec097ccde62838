// The arithmetic of the preludes that no instruction does, compiled for the host from the preludes'
// own text: HIP's and the host's rounding to bf16, for every float there is, and to fp8, for every
// float whose lower half lies at or beside the middle of its neighbours; and elements that are
// put together from two aligned loads, for every address.
#include <dlfcn.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/preludes/gpu_prelude.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/host/host_compiler.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

// What HIP's compiler brings along, as far as the prelude's text names it.
constexpr char kDevice[] = R"(
#include <math.h>

#include <initializer_list>
#define __HIPCC_RTC__
#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define _Float16 float
#define int8_t rg_int8
#define uint8_t rg_uint8
#define int32_t rg_int32
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct int4 { int x, y, z, w; };
static struct { unsigned x; } threadIdx, blockIdx;
inline void __syncthreads() {}
template <typename T> T __shfl_xor(T v, int) { return v; }
template <typename T> T __shfl_down(T v, int) { return v; }
inline float rsqrtf(float v) { return 1 / sqrtf(v); }
inline double rsqrt(double v) { return 1 / sqrt(v); }
)";

// The first float of which the prelude makes another bf16 than the nearest, ties to even, in any of
// its three ways to round; a NaN must stay one. 2^32: there is none.
constexpr char kEveryFloat[] = R"(
static unsigned short wanted(unsigned upper, unsigned lower) {
  if ((upper & 0x7fff) > 0x7f80 || ((upper & 0x7fff) == 0x7f80 && lower != 0)) {
    return static_cast<unsigned short>(upper | 0x40);
  }
  const unsigned up = lower > 0x8000 || (lower == 0x8000 && upper % 2 == 1) ? 1 : 0;
  return static_cast<unsigned short>(upper + up);
}
extern "C" unsigned long long first_wrong() {
  rg_bf16* const type = nullptr;
  for (unsigned upper = 0; upper < 0x10000; ++upper) {
    unsigned wrong = 0;
    for (unsigned lower = 0; lower < 0x10000; ++lower) {
      const unsigned bits = upper << 16 | lower;
      const unsigned short want = wanted(upper, lower);
      const float v = rg_from_bits(bits);
      wrong |= rg_narrow(v, type).bits ^ want;
      wrong |= rg_bits(rg_rounded(v, type)) ^ static_cast<unsigned>(want) << 16;
    }
    for (unsigned lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float v = rg_from_bits(upper << 16 | lower), other = rg_from_bits(0x3f80c000u);
      const unsigned want = wanted(upper, lower), rest = wanted(0x3f80, 0xc000);
      wrong |= rg_narrow_two(v, other, type) ^ (want | rest << 16);
      wrong |= rg_narrow_two(other, v, type) ^ (rest | want << 16);
      const rg_bf16 narrow = rg_narrow(v, type);
      wrong |= rg_bits(rg_widen(narrow)) ^ want << 16;
    }
    if (wrong == 0) continue;
    for (unsigned lower = 0; lower < 0x10000; ++lower) {
      const float v = rg_from_bits(upper << 16 | lower);
      const unsigned short want = wanted(upper, lower);
      const bool right = rg_narrow(v, type).bits == want &&
                         rg_bits(rg_rounded(v, type)) == static_cast<unsigned>(want) << 16;
      if (!right) return upper << 16 | lower;
    }
    return upper << 16;
  }
  return 1ull << 32;
}
)";

// How many floats become another fp8 than the nearest, ties to the even code, or come back as
// another number. The numbers are those of the formats' definition: (1 + f / 2^bits) 2^(e - bias),
// and f / 2^bits 2^(1 - bias) of exponent 0.
constexpr char kFp8[] = R"(
struct format {
  int fraction, bias;
  unsigned largest, past;  // codes of the largest number and of what lies half a unit beyond it
  bool fnuz = false;       // zero and NaN, which is code 0x80, have no sign
  double value(unsigned code) const {
    const int e = static_cast<int>(code >> fraction), f = code & ((1u << fraction) - 1);
    return e == 0 ? ldexp(f, 1 - bias - fraction) : ldexp(f + (1 << fraction), e - bias - fraction);
  }
  unsigned wanted(float v) const {
    const unsigned sign = rg_bits(v) >> 24 & 0x80u;
    if (v != v) return fnuz ? 0x80u : sign | 0x7fu;
    const double size = fabs(static_cast<double>(v));
    unsigned low = 0, high = largest + 1;  // its value, were there room, is the next number
    while (high - low > 1) {
      const unsigned middle = (low + high) / 2;
      (value(middle) <= size ? low : high) = middle;
    }
    const double center = (value(low) + value(high)) / 2;
    const unsigned code = size > center || (size == center && low % 2 == 1) ? high : low;
    if (fnuz && code == 0) return 0;
    return sign | (code > largest ? past : code);
  }
};
template <typename T>
unsigned long long wrong_codes(const format& f) {
  T* const type = nullptr;
  unsigned long long wrong = 0;
  for (unsigned upper = 0; upper < 0x10000; ++upper) {
    for (unsigned lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float v = rg_from_bits(upper << 16 | lower);
      const unsigned want = f.wanted(v);
      wrong += rg_narrow(v, type).bits != want;
      wrong += rg_narrow_two(v, 1.0f, type) != (want | f.wanted(1.0f) << 8);
      wrong += rg_narrow_two(-2.0f, v, type) != (f.wanted(-2.0f) | want << 8);
    }
  }
  for (unsigned code = 0; code < 256; ++code) {
    T narrow;
    narrow.bits = static_cast<unsigned char>(code);
    const unsigned size = code & 0x7fu;
    const float wide = rg_widen(narrow), sign = code < 128 ? 1.0f : -1.0f;
    if (f.fnuz && code == 0x80u) {
      wrong += wide == wide;
      wrong += rg_narrow(wide, type).bits != 0x80u;
      continue;
    }
    if (size <= f.largest) {
      wrong += wide != sign * f.value(size) || rg_bits(wide) >> 31 != code >> 7;
    } else if (size == 0x7cu) {
      wrong += rg_bits(wide) != ((code & 0x80u) << 24 | 0x7f800000u);
    } else {
      wrong += wide == wide;
    }
    if (size <= f.largest) wrong += rg_bits(rg_rounded(wide, type)) != rg_bits(wide);
  }
  return wrong;
}
extern "C" unsigned long long first_wrong() {
  return wrong_codes<rg_f8e4m3>({3, 7, 0x7e, 0x7f}) +
         wrong_codes<rg_f8e5m2>({2, 15, 0x7b, 0x7c}) +
         wrong_codes<rg_f8e4m3fnuz>({3, 8, 0x7f, 0x80, true}) +
         wrong_codes<rg_f8e5m2fnuz>({2, 16, 0x7f, 0x80, true});
}
)";

// The number of elements that a load at some address gets wrong.
constexpr char kEveryAddress[] = R"(
template <typename T, int V>
unsigned long long wrong_elements(const unsigned char* bytes) {
  unsigned long long wrong = 0;
  for (int at = 0; at + V * static_cast<int>(sizeof(T)) <= 64; at += sizeof(T)) {
    const T* const from = reinterpret_cast<const T*>(bytes + at);
    rg_vector<T, V> pack;
    T lanes[V];
    rg_load_pack_shifted(from, 0, &pack);
    rg_load_vec_shifted<V>(from, 0, lanes);
    for (int k = 0; k < V; ++k) wrong += pack.element[k] != from[k] || lanes[k] != from[k];
  }
  return wrong;
}
extern "C" unsigned long long first_wrong() {
  alignas(16) unsigned char bytes[64];
  for (int i = 0; i < 64; ++i) bytes[i] = static_cast<unsigned char>(37 * i + 11);
  unsigned long long wrong = 0;
  wrong += wrong_elements<unsigned char, 4>(bytes) + wrong_elements<unsigned char, 8>(bytes);
  wrong += wrong_elements<short, 2>(bytes) + wrong_elements<short, 4>(bytes);
  wrong += wrong_elements<short, 8>(bytes) + wrong_elements<int, 2>(bytes);
  wrong += wrong_elements<int, 4>(bytes) + wrong_elements<long long, 2>(bytes);
  return wrong;
}
)";

// The host's names for the same.
constexpr char kHostNames[] = R"(
inline unsigned rg_bits(float v) { return rg_bits_of(v); }
inline float rg_from_bits(unsigned v) { return rg_float_of(v); }
inline rg_bf16 rg_narrow(float v, rg_bf16*) { return rg_narrow_bf16(v); }
inline rg_f8e4m3 rg_narrow(float v, rg_f8e4m3*) { return rg_narrow_f8e4m3(v); }
inline rg_f8e5m2 rg_narrow(float v, rg_f8e5m2*) { return rg_narrow_f8e5m2(v); }
inline rg_f8e4m3fnuz rg_narrow(float v, rg_f8e4m3fnuz*) { return rg_narrow_f8e4m3fnuz(v); }
inline rg_f8e5m2fnuz rg_narrow(float v, rg_f8e5m2fnuz*) { return rg_narrow_f8e5m2fnuz(v); }
template <typename T>
inline float rg_rounded(float v, T*) { return rg_round<T>(v); }
template <typename T>
inline unsigned rg_narrow_two(float low, float high, T*) {
  T both[2];
  const float values[2] = {low, high};
  for (int k = 0; k < 2; ++k) rg_store(both, k, values[k]);
  return both[0].bits | static_cast<unsigned>(both[1].bits) << 8 * sizeof(T);
}
)";

std::string HostDialect() {
  std::string prelude;
  for (const char* name : {"host_abi.h", "host_simt.h"}) {
    std::ifstream file(absl::StrCat(RETROGRAD_SOURCE_DIR, "/codegen/preludes/", name));
    std::string line;
    while (std::getline(file, line)) {
      if (line.rfind("#include \"", 0) != 0) absl::StrAppend(&prelude, line, "\n");
    }
  }
  return absl::StrCat(prelude, kHostNames, "#include <math.h>\n#include <initializer_list>\n");
}

uint64_t FirstWrong(const std::string& source) {
  auto work = WorkDirectory::MakeIn("/tmp");
  REQUIRE(work.ok());
  const std::string file = work->path() + "/rounding.cc", object = work->path() + "/rounding.so";
  std::ofstream(file) << source;
  const auto compiler = FindHostCompiler("");
  REQUIRE(compiler.ok());
  const absl::Status compiled =
      CompileSharedObject(*compiler, {"-std=c++17", "-O3", "-fPIC", "-w"}, {file}, object);
  INFO(compiled);
  REQUIRE(compiled.ok());
  void* const library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  auto* const first_wrong =
      reinterpret_cast<unsigned long long (*)()>(dlsym(library, "first_wrong"));
  REQUIRE(first_wrong != nullptr);
  const uint64_t wrong = first_wrong();
  dlclose(library);
  return wrong;
}

TEST_CASE("HIP rounds every float to the nearest bf16, ties to even, and keeps NaNs") {
  const uint64_t wrong = FirstWrong(absl::StrCat(kDevice, HipPrelude(), kEveryFloat));
  INFO("0x" << std::hex << wrong);
  CHECK(wrong == uint64_t{1} << 32);
}

TEST_CASE("so does the host dialect") {
  const uint64_t wrong = FirstWrong(absl::StrCat(HostDialect(), kEveryFloat));
  INFO("0x" << std::hex << wrong);
  CHECK(wrong == uint64_t{1} << 32);
}

TEST_CASE("HIP and the host dialect round to the nearest fp8, ties to even") {
  CHECK(FirstWrong(absl::StrCat(kDevice, HipPrelude(), kFp8)) == 0);
  CHECK(FirstWrong(absl::StrCat(HostDialect(), kFp8)) == 0);
}

TEST_CASE("what lies at any address is put together from aligned loads") {
  CHECK(FirstWrong(absl::StrCat(kDevice, HipPrelude(), kEveryAddress)) == 0);
}

}  // namespace
}  // namespace retrograd
