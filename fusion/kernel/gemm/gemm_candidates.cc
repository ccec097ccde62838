#include "fusion/kernel/gemm/gemm_candidates.h"

#include <algorithm>

#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr GemmTileFigure kReference;

// Clusters of two share the larger side of a tile where there are two tiles to share it.
GemmTile TileOf(const GemmTileFigure& figure, int64_t m, int64_t n, const DeviceSpec& device) {
  GemmTile tile{.m = figure.m, .n = figure.n};
  tile.tall = tile.wide = figure.cluster == 4 ? 2 : 1;
  if (figure.cluster == 2) {
    const bool rows = m > tile.m, columns = n > tile.n;
    const bool side_by_side = columns && (tile.m >= tile.n || !rows);
    (side_by_side ? tile.wide : tile.tall) = 2;
  }
  const int64_t room = device.staged_bytes_per_block;
  tile.stages = figure.stages > 0 ? figure.stages : MostStages(tile, room);
  return tile;
}

// Proportional to the time: the elements that one of an SM's turns makes, over all waves.
int64_t TimeOf(const GemmTile& tile, int64_t factor_ppm, int64_t m, int64_t n,
               const DeviceSpec& device) {
  const int64_t at_once = std::max<int64_t>(device.sms / tile.cluster(), 1);
  const int64_t waves = CeilDiv(std::max<int64_t>(ClustersOf(tile, m, n), 1), at_once);
  return Product({waves, int64_t{tile.m} * tile.n, factor_ppm});
}

}  // namespace

std::vector<GemmCandidate> GemmCandidates(const MatMulEpilogue& row, int64_t m, int64_t n,
                                          const DeviceSpec& device) {
  const GemmTile reference = TileOf(kReference, m, n, device);
  const int64_t reference_time = TimeOf(reference, kReference.factor_ppm, m, n, device);
  std::vector<GemmCandidate> candidates;
  for (const GemmTileFigure& figure : row.tiles) {
    const GemmTile tile = TileOf(figure, m, n, device);
    if (!WhyNotTile(tile, device.staged_bytes_per_block).empty()) continue;
    candidates.push_back(
        {.tile = tile,
         .time_ppm = MulDiv(TimeOf(tile, figure.factor_ppm, m, n, device), kPpm, reference_time)});
  }
  if (candidates.empty()) candidates.push_back({.tile = reference});
  return candidates;
}

GemmCandidate BestGemmTile(const MatMulEpilogue& row, int64_t m, int64_t n,
                           const DeviceSpec& device) {
  const std::vector<GemmCandidate> all = GemmCandidates(row, m, n, device);
  return *std::min_element(all.begin(), all.end(),
                           [](const auto& a, const auto& b) { return a.time_ppm < b.time_ppm; });
}

}  // namespace retrograd
