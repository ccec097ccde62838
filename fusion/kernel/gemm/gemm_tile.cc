#include "fusion/kernel/gemm/gemm_tile.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int kMostStages = 8;
// Of a multiplying thread's 232 registers; the others address the loads of the epilogue.
constexpr int kMostAccumulators = 128;
// Each 64 rows have addresses of their own: of 256 some were spilled (NVRTC 13.0).
constexpr int kMostRows = 192;

}  // namespace

std::string GemmTile::Print() const {
  return absl::StrCat(m, "x", n, "x", k, " stages=", stages, " cluster=", tall, "x", wide);
}

int64_t SharedBytes(const GemmTile& t) {
  const int64_t stage = int64_t{t.m + t.n} * t.k * kGemmElementBytes;
  const int64_t product = int64_t{t.m} * t.n * kGemmElementBytes;
  return 1024 + t.stages * stage + 2 * product + 16 * t.stages + 16;
}

std::string WhyNotTile(const GemmTile& t, int64_t shared_bytes) {
  if (t.m < kGemmBox || t.m % kGemmBox != 0) {
    return absl::StrCat(t.m, " rows are not made of boxes of ", kGemmBox);
  }
  if (t.m > kMostRows) {
    return absl::StrCat(t.m, " rows, of which registers address at most ", kMostRows);
  }
  // A warpgroup takes whole rows of the tile in packs of 8, and the tensor cores 64, 128 or 256
  // columns.
  if (t.n != 64 && t.n != 128 && t.n != 256) {
    return absl::StrCat(t.n, " columns: the tensor cores are given 64, 128 or 256");
  }
  if (t.k != kGemmBox) return absl::StrCat(t.k, " terms at once: a box holds ", kGemmBox);
  const int accumulators = t.m * t.n / kGemmThreads;
  if (accumulators > kMostAccumulators) {
    return absl::StrCat(accumulators, " accumulators of a thread, at most ", kMostAccumulators);
  }
  if (t.tall < 1 || t.tall > 2 || t.wide < 1 || t.wide > 2) {
    return absl::StrCat("a cluster of ", t.tall, " x ", t.wide, " blocks: at most two share");
  }
  if (t.stages < 2) return "fewer than two stages: nothing is loaded ahead";
  const int64_t bytes = SharedBytes(t);
  if (bytes > shared_bytes) {
    return absl::StrCat(bytes, " B of shared memory, a block may have ", shared_bytes);
  }
  return "";
}

int MostStages(const GemmTile& tile, int64_t shared_bytes) {
  GemmTile t = tile;
  for (t.stages = kMostStages; t.stages >= 2; --t.stages) {
    if (SharedBytes(t) <= shared_bytes) return t.stages;
  }
  return 0;
}

int64_t ClustersOf(const GemmTile& t, int64_t m, int64_t n) {
  return CeilDiv(CeilDiv(m, t.m), t.tall) * CeilDiv(CeilDiv(n, t.n), t.wide);
}

}  // namespace retrograd
