// Kernels written by hand in the vocabulary of the emitters, and what tests need to run them.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_HAND_KERNELS_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_HAND_KERNELS_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernels_from_text.h"

namespace retrograd {

// y = exp(x) of 1000 elements, stored as bf16; four a thread.
inline constexpr char kPointwise[] = R"(
RG_KERNEL(rg_pointwise, 64, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(rg_bf16, y, 1);
  const int64_t point = (static_cast<int64_t>(RG_BLOCK) * 64 + RG_THREAD) * 4;
  if (point < 1000) {
    float v[4];
    rg_load_vec<4>(x, point, v);
    for (int k = 0; k < 4; ++k) v[k] = rg_exp(v[k]);
    rg_store_vec<4>(y, point, v);
  }
}
)";

// A row a block, 200 columns: shuffles within warps, shared memory across them.
inline constexpr char kRowSum[] = R"(
RG_KERNEL(rg_row_sum, 128, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  RG_SHARED(float, partial, 4);
  const int t = RG_THREAD;
  float v = 0;
  for (int64_t c = t; c < 200; c += 128) v += rg_load(x, static_cast<int64_t>(RG_BLOCK) * 200 + c);
  for (int lane = RG_WARP / 2; lane > 0; lane /= 2) v += RG_SHUFFLE_XOR(v, lane);
  if (t % RG_WARP == 0) {
    partial[t / RG_WARP] = v;
  }
  RG_BARRIER();
  float total = 0;
  for (int w = 0; w < 128 / RG_WARP; ++w) total += partial[w];
  if (t < 1) rg_store(y, RG_BLOCK, total);
}
)";

// A 48 x 80 matrix in tiles of 16 x 16, two passes of which use the same tile.
inline constexpr char kTranspose[] = R"(
RG_KERNEL(rg_transpose, 256, 2) {
  RG_ARG(const float, x, 0);
  RG_ARG(float, y, 1);
  RG_SHARED(float, tile, 272);
  const int row = RG_THREAD / 16, column = RG_THREAD % 16;
  for (int pass = 0; pass < 5; ++pass) {
    const int64_t from = (RG_BLOCK * 16 + row) * 80 + pass * 16 + column;
    tile[row * 17 + column] = rg_load(x, from);
    RG_BARRIER();
    const int64_t to = (pass * 16 + row) * 48 + RG_BLOCK * 16 + column;
    rg_store(y, to, tile[column * 17 + row]);
    RG_BARRIER();
  }
}
)";

// 1000 elements summed by 4 blocks into a workspace, and the workspace by one.
inline constexpr char kSplitSum[] = R"(
RG_KERNEL(rg_split_sum, 64, 2) {
  RG_ARG(const double, x, 0);
  RG_ARG(double, workspace, 1);
  RG_SHARED(double, partial, 64);
  double v = 0;
  for (int64_t i = RG_BLOCK * 250 + RG_THREAD; i < RG_BLOCK * 250 + 250; i += 64) v += rg_load(x, i);
  partial[RG_THREAD] = v;
  RG_BARRIER();
  for (int half = 32; half > 0; half /= 2) {
    if (RG_THREAD < half) partial[RG_THREAD] += partial[RG_THREAD + half];
    RG_BARRIER();
  }
  if (RG_THREAD < 1) rg_store(workspace, RG_BLOCK, partial[0]);
}
RG_KERNEL(rg_split_sum_finalize, RG_WARP, 2) {
  RG_ARG(const double, workspace, 0);
  RG_ARG(double, y, 1);
  double v = RG_THREAD < 4 ? rg_load(workspace, RG_THREAD) : 0;
  v += RG_SHUFFLE_DOWN(v, 2);
  v += RG_SHUFFLE_DOWN(v, 1);
  if (RG_THREAD < 1) rg_store(y, 0, v);
}
)";

inline std::shared_ptr<HostModule> MustCompile(const std::string& kernels, bool check,
                                               int warp = 32) {
  HostCompileOptions options;
  options.check = check;
  options.warp = warp;
  auto module = HostModule::Compile(KernelsFromText(kernels, warp), options);
  INFO(module.status().ToString());
  REQUIRE(module.ok());
  return *module;
}

template <typename T>
HostArg In(const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  return {const_cast<T*>(values.data()), bytes, 16, false, HostContents::kDefined};
}
template <typename T>
HostArg Out(std::vector<T>& values, HostContents contents = HostContents::kUndefined) {
  return {values.data(), static_cast<int64_t>(values.size() * sizeof(T)), 16, true, contents};
}

inline std::vector<float> RandomValues(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 256;
  return values;
}

// Statuses of launches, each with what it should say.
inline void Expect(const absl::Status& status, std::initializer_list<const char*> parts) {
  INFO(status.ToString());
  REQUIRE_FALSE(status.ok());
  for (const char* part : parts) {
    CHECK_THAT(std::string(status.message()), ContainsSubstring(part));
  }
}
inline void ExpectOk(const absl::Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_HAND_KERNELS_H_
