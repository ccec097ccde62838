#include "runtime/ops/matmul/tiled_matmul.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "codegen/gemm/emit_tiled_matmul.h"
#include "graph/base/status.h"
#include "runtime/ops/matmul/blas_operands.h"

namespace retrograd {
namespace {

// What a block may have: on NVIDIA GPUs from sm_80 on, and on AMD's.
constexpr int64_t kSharedBytes = 99 << 10;
constexpr int64_t kSharedBytesOfHip = 64 << 10;

constexpr size_t kMostTiles = 1;  // that are timed

// The same matrices at the first elements of their stored values.
MatMulCall WithoutOffsets(MatMulCall call) {
  call.a.offset = call.b.offset = call.d.offset = 0;
  return call;
}

LaunchArg ArgOf(int slot, const MatMulCall& call, const MatMulAlignments& known) {
  const bool written = slot == kTiledResult;
  const int64_t alignments[] = {known.a, known.b, known.d};
  return {.slot = static_cast<uint32_t>(slot),
          .bytes = OperandSpan(call, slot) * SizeBytes(written ? call.out_dtype : call.in_dtype),
          .alignment = alignments[slot],
          .written = written};
}

LaunchWriter::Launch Emitted(const MatMulCall& call, const MatMulFacts& facts,
                             const MatMulTile& tile, const Device& device) {
  return EmitTiledMatMul(WithoutOffsets(call), tile, AlignmentsOf(call, facts), device.dialect(),
                         device.Describe().warp);
}

}  // namespace

MatMulAlignments AlignmentsOf(const MatMulCall& call, const MatMulFacts& facts) {
  return {.a = OperandAlignment(call, 0, facts.a_alignment),
          .b = OperandAlignment(call, 1, facts.b_alignment),
          .d = OperandAlignment(call, 2, facts.d_alignment)};
}

std::vector<MatMulTile> MatMulTilesOn(const MatMulCall& call, Device& device) {
  if (!TiledMatMulRefusal(call).ok()) return {};
  if (call.m == 0 || call.n == 0 || call.k == 0 || absl::c_linear_search(call.batch, 0)) return {};
  const bool hip = device.dialect() == Dialect::kHip;
  return MatMulTilesFor(
      call, {.sms = device.Describe().sms, .shared_bytes = hip ? kSharedBytesOfHip : kSharedBytes},
      kMostTiles);
}

Kernel TiledMatMulKernel(const MatMulCall& call, const MatMulFacts& facts, const MatMulTile& tile,
                         const Device& device) {
  return Emitted(call, facts, tile, device).kernel;
}

absl::StatusOr<std::unique_ptr<TiledMatMul>> TiledMatMul::Load(Device& device,
                                                               const MatMulCall& call,
                                                               const MatMulFacts& facts,
                                                               const MatMulTile& tile) {
  const LaunchWriter::Launch made = Emitted(call, facts, tile, device);
  const MatMulAlignments known = AlignmentsOf(call, facts);
  Launch launch{.kernel = made.kernel.name,
                .blocks = made.kernel.blocks,
                .threads = made.kernel.threads,
                .staged_bytes = made.kernel.staged_bytes,
                .direct = made.kernel.direct};
  for (int slot : made.slots) launch.args.push_back(ArgOf(slot, call, known));
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded, device.Load({made.kernel}, {launch}));
  return std::unique_ptr<TiledMatMul>(new TiledMatMul(device, std::move(loaded), call));
}

absl::Status TiledMatMul::Run(int stream, const MatMulPointers& pointers,
                              const int64_t offsets[3]) const {
  const auto at = [](const void* base, int64_t elements, DType dtype) {
    return const_cast<char*>(static_cast<const char*>(base)) + elements * SizeBytes(dtype);
  };
  void* table[kTiledMatMulSlots];
  table[kTiledA] = at(pointers.a, offsets[0], in_);
  table[kTiledB] = at(pointers.b, offsets[1], in_);
  table[kTiledResult] = at(pointers.d, offsets[2], out_);
  RG_RETURN_IF_ERROR(device_.Bind(stream, *kernels_, table));
  return device_.Launch(stream, *kernels_, 0);
}

}  // namespace retrograd
