#include "graph/ir/library/dropout_mask.h"

#include <cmath>

#include "graph/base/status.h"

namespace retrograd {
namespace {

using Words = std::array<uint32_t, 4>;

// The words of the counter's place `low` + 2^64 `high`.
Words Philox(int rounds, uint64_t low, uint64_t high, uint64_t seed) {
  Words c = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
             static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < rounds; ++round) {
    const uint64_t a = uint64_t{c[0]} * 0xD2511F53u, b = uint64_t{c[2]} * 0xCD9E8D57u;
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace

std::optional<DropoutVariant> DropoutVariantOf(absl::string_view name) {
  if (name == "cudnn") return DropoutVariant::kCudnn;
  if (name == "efficient") return DropoutVariant::kEfficient;
  if (name == "flash") return DropoutVariant::kFlash;
  return std::nullopt;
}

// They have the probability in fp32.
DropoutLimits DropoutLimitsOf(DropoutVariant variant, double dropout_p) {
  const float p = static_cast<float>(dropout_p), keep = 1.0f - p;
  const double steps = variant == DropoutVariant::kCudnn ? 65536.0 : 255.0;
  return {.keep_above = p, .keep_up_to = static_cast<uint32_t>(std::floor(keep * steps))};
}

DropoutMask::DropoutMask(DropoutVariant variant, double dropout_p, uint64_t seed, uint64_t offset,
                         int64_t queries, int64_t keys)
    : variant_(variant),
      limits_(DropoutLimitsOf(variant, dropout_p)),
      share_(1 / (1 - dropout_p)),
      seed_(seed),
      offset_(offset),
      queries_(static_cast<uint64_t>(queries)),
      keys_(static_cast<uint64_t>(keys)) {}

bool DropoutMask::Keeps(uint64_t head, uint64_t i, uint64_t j) const {
  switch (variant_) {
    case DropoutVariant::kEfficient: {
      // Elements in order, four of a counter; curand's uniform numbers.
      const uint64_t element = offset_ + (head * queries_ + i) * keys_ + j;
      const uint32_t word = Philox(10, element / 4, 0, seed_)[element % 4];
      return static_cast<float>(word) * 0x1p-32f + 0x1p-33f > limits_.keep_above;
    }
    case DropoutVariant::kFlash: {
      // A warp's tile of 16 x 32: a thread has bytes of it as the tensor cores deal elements out.
      const uint64_t lane = i % 8 * 4 + j % 8 / 2;
      const Words words = Philox(7, offset_ + 32 * head + lane, i / 16 | j / 32 << 32, seed_);
      const uint64_t byte = i % 16 / 8 * 2 + j % 2;
      return (words[j % 32 / 8] >> (8 * byte) & 0xff) <= limits_.keep_up_to;
    }
    case DropoutVariant::kCudnn: {
      // A tile of 16 x 16: four rows share the numbers of one.
      const uint64_t tile = j / 16 * ((queries_ + 15) / 16) + i / 16;
      const Words words = Philox(7, offset_ / 4 + 8 * head + j % 8, tile, seed_);
      const uint32_t word = words[i % 16 / 8 * 2 + j % 16 / 8];
      return (i % 2 == 1 ? word >> 16 : word & 0xffff) <= limits_.keep_up_to;
    }
  }
  RG_CHECK(false);
}

}  // namespace retrograd
