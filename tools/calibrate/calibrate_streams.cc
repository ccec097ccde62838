// Which pieces of work gain by running side by side: kernels, matmuls and convolutions with blocks
// for a quarter of the SMs up to several for each, in pairs, on two streams of a recording.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/device/device_spec.h"
#include "fusion/device/interference.h"
#include "graph/base/status.h"
#include "tools/calibrate/calibrate.h"
#include "tools/calibrate/chain_graph.h"
#include "tools/calibrate/kernel_bench.h"

namespace retrograd {
namespace {

constexpr double kKernelShares[] = {0.25, 1, 4};
constexpr double kMatMulShares[] = {0.25, 0.5, 1, 2};
constexpr double kConvolutionShares[] = {0.25, 0.5, 1, 2};
constexpr double kChainUs = 120;  // each side's work, about
constexpr int kMostLinks = 60;

struct Piece {
  WorkKind kind = WorkKind::kKernel;
  double share = 1;
  std::unique_ptr<BenchWork> work;
  double us = 0;  // of one, in a chain
};

// That share of the SMs of the device that is measured, whatever the base spec has: at least one.
int64_t OfSms(double share, const CalibrationBench& bench) {
  const auto sms = static_cast<double>(bench.log->device().sms);
  return std::max<int64_t>(static_cast<int64_t>(share * sms), 1);
}

// A kernel that reads twice and writes once, with blocks for this share of the SMs.
absl::StatusOr<Piece> KernelPiece(double share, const CalibrationBench& bench,
                                  KernelBench* device) {
  constexpr int64_t kWidth = 8;
  const int64_t blocks = bench.sizes.small ? 4 : OfSms(share, bench);
  const int64_t elements = blocks * 256 * kWidth;
  RG_ASSIGN_OR_RETURN(const KernelBody body,
                      PlannedKernel(ChainGraph("add", true, elements, 1, "bf16"), bench.base));
  Schedule schedule = body.schedule;
  schedule.vector_width = kWidth;
  schedule.blocks = elements / (int64_t{schedule.threads} * kWidth);
  Piece piece{.kind = WorkKind::kKernel, .share = share};
  RG_ASSIGN_OR_RETURN(piece.work, device->Kernel(body.ir, schedule));
  return piece;
}

// A matmul of tiles of 128 x 128, three in a row, for this share of the SMs.
absl::StatusOr<Piece> MatMulPiece(double share, const CalibrationBench& bench,
                                  KernelBench* device) {
  const int64_t rows = std::max<int64_t>(OfSms(share, bench) / 3, 1);
  Piece piece{.kind = WorkKind::kMatMul, .share = share};
  RG_ASSIGN_OR_RETURN(piece.work, bench.sizes.small
                                      ? device->MatMul(32, 32, 32, DType::kBf16)
                                      : device->MatMul(128 * rows, 384, 768, DType::kBf16));
  return piece;
}

// A convolution's gradient of tiles of 128 x 128 for this share of the SMs.
absl::StatusOr<Piece> ConvolutionPiece(double share, const CalibrationBench& bench,
                                       KernelBench* device) {
  Piece piece{.kind = WorkKind::kConvolution, .share = share};
  RG_ASSIGN_OR_RETURN(piece.work, bench.sizes.small ? device->Convolution(1, 4, 4, 4, DType::kBf16)
                                                    : device->Convolution(OfSms(share, bench), 128,
                                                                          8, 16, DType::kBf16));
  return piece;
}

std::string NameOf(const Piece& p) {
  return absl::StrFormat("%s with %g of the SMs", Name(p.kind), p.share);
}

// Pieces of one kind, whose work is made unless a log replays.
using MakePiece =
    absl::FunctionRef<absl::StatusOr<Piece>(double, const CalibrationBench&, KernelBench*)>;
absl::Status AddPieces(WorkKind kind, absl::Span<const double> shares, MakePiece make,
                       const CalibrationBench& bench, KernelBench* device,
                       std::vector<Piece>* pieces) {
  for (double share : shares) {
    pieces->push_back({.kind = kind, .share = share});
    if (bench.log->replays()) continue;
    RG_ASSIGN_OR_RETURN(pieces->back(), make(share, bench, device));
  }
  return absl::OkStatus();
}

// A log of times that were taken before convolutions were measured has none of them.
bool LogHasConvolutions(const BenchLog& log) {
  return !log.replays() ||
         log.Holds(NameOf({.kind = WorkKind::kConvolution, .share = kConvolutionShares[0]}));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MeasureInterference(const std::string& source,
                                                             const CalibrationBench& bench) {
  KernelBench device(bench.device, bench.sizes.repeat);
  std::vector<Piece> pieces;
  RG_RETURN_IF_ERROR(
      AddPieces(WorkKind::kKernel, kKernelShares, KernelPiece, bench, &device, &pieces));
  RG_RETURN_IF_ERROR(
      AddPieces(WorkKind::kMatMul, kMatMulShares, MatMulPiece, bench, &device, &pieces));
  if (LogHasConvolutions(*bench.log)) {
    RG_RETURN_IF_ERROR(AddPieces(WorkKind::kConvolution, kConvolutionShares, ConvolutionPiece,
                                 bench, &device, &pieces));
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
