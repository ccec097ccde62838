// Which pieces of work gain by running side by side: kernels and matmuls with blocks for a quarter
// of the SMs up to several for each, in pairs, on two streams of a recording.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/device_spec.h"
#include "fusion/kernel/interference.h"
#include "graph/status.h"
#include "tools/calibrate.h"
#include "tools/kernel_bench.h"

namespace retrograd {
namespace {

constexpr double kKernelShares[] = {0.25, 1, 4};
constexpr double kMatMulShares[] = {0.25, 0.5, 1, 2};
constexpr double kChainUs = 120;  // each side's work, about
constexpr int kMostLinks = 60;

struct Piece {
  WorkKind kind = WorkKind::kKernel;
  double share = 1;
  std::unique_ptr<BenchWork> work;
  double us = 0;  // of one, in a chain
};

// A kernel that reads twice and writes once, with blocks for this share of the SMs.
absl::StatusOr<Piece> KernelPiece(double share, const DeviceSpec& spec, bool small,
                                  KernelBench* bench) {
  constexpr int64_t kWidth = 8;
  const auto blocks =
      std::max<int64_t>(static_cast<int64_t>(share * static_cast<double>(spec.sms)), 1);
  const int64_t elements = (small ? 4 : blocks) * 256 * kWidth;
  const std::string graph = absl::StrFormat(
      "%%0 = input name=\"x\" kind=tangent alignment=16  bf16[%d]\n"
      "%%1 = input name=\"b\" kind=saved alignment=16  bf16[%d]\n"
      "%%2 = add %%0 %%1\noutput %%2 name=\"y\"\n",
      elements, elements);
  RG_ASSIGN_OR_RETURN(const KernelBody body, PlannedKernel(graph, spec));
  Schedule schedule = body.schedule;
  schedule.vector_width = kWidth;
  schedule.blocks = elements / (int64_t{schedule.threads} * kWidth);
  Piece piece{.kind = WorkKind::kKernel, .share = share};
  RG_ASSIGN_OR_RETURN(piece.work, bench->Kernel(body.ir, schedule));
  return piece;
}

// A matmul of tiles of 128 x 128, three in a row, for this share of the SMs.
absl::StatusOr<Piece> MatMulPiece(double share, const DeviceSpec& spec, bool small,
                                  KernelBench* bench) {
  const auto tiles = static_cast<int64_t>(share * static_cast<double>(spec.sms));
  Piece piece{.kind = WorkKind::kMatMul, .share = share};
  RG_ASSIGN_OR_RETURN(piece.work, small ? bench->MatMul(32, 32, 32, DType::kBf16)
                                        : bench->MatMul(128 * (tiles / 3), 384, 768, DType::kBf16));
  return piece;
}

std::string NameOf(const Piece& p) {
  return absl::StrFormat("%s with %g of the SMs", p.kind == WorkKind::kMatMul ? "matmul" : "kernel",
                         p.share);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MeasureInterference(const std::string& source,
                                                             const CalibrationBench& bench) {
  const BenchSizes& sizes = bench.sizes;
  KernelBench device(bench.device, sizes.repeat);
  std::vector<Piece> pieces;
  for (double share : kKernelShares) {
    pieces.push_back({.kind = WorkKind::kKernel, .share = share});
    if (bench.log->replays()) continue;
    RG_ASSIGN_OR_RETURN(pieces.back(), KernelPiece(share, bench.base, sizes.small, &device));
  }
  for (double share : kMatMulShares) {
    pieces.push_back({.kind = WorkKind::kMatMul, .share = share});
    if (bench.log->replays()) continue;
    RG_ASSIGN_OR_RETURN(pieces.back(), MatMulPiece(share, bench.base, sizes.small, &device));
  }
  for (Piece& piece : pieces) {
    RG_ASSIGN_OR_RETURN(
        piece.us, bench.log->Us(NameOf(piece), [&] { return device.Chain(piece.work.get(), 20); }));
  }
  const auto links = [](const Piece& p) {
    return std::clamp(static_cast<int>(kChainUs / std::max(p.us, 0.1)), 2, kMostLinks);
  };
  std::vector<std::string> lines;
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (size_t j = 0; j <= i; ++j) {
      const Piece &a = pieces[j], &b = pieces[i];
      // A piece beside itself writes what the other does, all the same to its time.
      const std::string names = absl::StrCat(NameOf(a), " and ", NameOf(b));
      KernelBench::Pair pair;
      RG_ASSIGN_OR_RETURN(pair.together_us,
                          bench.log->Us(names + ", side by side", [&]() -> absl::StatusOr<double> {
                            RG_ASSIGN_OR_RETURN(pair, device.SideBySide(a.work.get(), links(a),
                                                                        b.work.get(), links(b)));
                            return pair.together_us;
                          }));
      RG_ASSIGN_OR_RETURN(pair.one_after_other_us, bench.log->Us(names + ", one after the other",
                                                                 [&]() -> absl::StatusOr<double> {
                                                                   return pair.one_after_other_us;
                                                                 }));
      const Interference row{
          .a = a.kind,
          .b = b.kind,
          .share_a = a.share,
          .share_b = b.share,
          .factor =
              std::clamp(pair.together_us / std::max(pair.one_after_other_us, 1e-3), 0.01, 10.0)};
      lines.push_back(
          PrintInterference(row, absl::StrFormat("%s%.1f us beside %.1f us", source, a.us, b.us)));
    }
  }
  return lines;
}

}  // namespace retrograd
