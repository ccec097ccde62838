#include "runtime/ops/attention/fallback_attention.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/attention/emit_warp_attention.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr size_t kLse = 5;
constexpr int64_t kMostHeadSize = 1024;  // of which a block keeps two rows in shared memory
constexpr int64_t kMostExtent = (int64_t{1} << 30) - 1;  // rows and heads have numbers of 32 bits
constexpr int64_t kNumberBytes = int64_t{4} << 10;       // of shared memory beside the tiles

absl::Status Refuse(const AttentionCall& call, absl::string_view why) {
  return absl::UnimplementedError(
      absl::StrCat("attention_backward %", Index(call.node), ", ", Name(call.dtype), " Q[",
                   absl::StrJoin(call.operands[1].shape, ","), "] K[",
                   absl::StrJoin(call.operands[2].shape, ","), "]: ", why));
}

// The rows of all heads. The pitch along an axis of one element is nobody's, but must be one.
OperandMap MapOf(const AttentionOperand& t, DType dtype, int place) {
  const auto pitch = [&](int axis) { return t.shape[axis] == 1 ? t.shape[3] : t.strides[axis]; };
  return {.slot = static_cast<uint32_t>(place),
          .dtype = dtype,
          .offset = t.offset,
          .inner = t.shape[3],
          .outer = t.shape[2],
          .pitch = pitch(2),
          .heads = t.shape[1],
          .head_pitch = pitch(1),
          .batch = t.shape[0],
          .batch_pitch = pitch(0)};
}

// The tables of a bias [batch, heads, queries, keys], which may lack leading axes: one for all
// where it repeats along an axis.
OperandMap MapOfBias(const AttentionOperand& t, DType dtype, int place) {
  const size_t rank = t.shape.size();
  const int64_t table = t.strides[rank - 2] * t.shape[rank - 2];
  const auto tables = [&](size_t from_last) -> std::pair<int64_t, int64_t> {
    if (rank < from_last) return {1, table};
    const int64_t extent = t.shape[rank - from_last], pitch = t.strides[rank - from_last];
    return extent == 1 || pitch == 0 ? std::pair(int64_t{1}, table) : std::pair(extent, pitch);
  };
  const auto [heads, head_pitch] = tables(3);
  const auto [batch, batch_pitch] = tables(4);
  return {.slot = static_cast<uint32_t>(place),
          .dtype = dtype,
          .offset = t.offset,
          .inner = t.shape[rank - 1],
          .outer = t.shape[rank - 2],
          .pitch = t.strides[rank - 2],
          .heads = heads,
          .head_pitch = head_pitch,
          .batch = batch,
          .batch_pitch = batch_pitch};
}

// What the kernel of dQ leaves of each tile of queries: a run of numbers.
OperandMap MapOfNumbers(int64_t rows, int place) {
  constexpr int64_t kNumbers = 128;
  return {.slot = static_cast<uint32_t>(place),
          .dtype = DType::kFp32,
          .inner = kNumbers,
          .outer = rows,
          .pitch = kNumbers,
          .heads = 1,
          .head_pitch = kNumbers,
          .batch = 1,
          .batch_pitch = kNumbers};
}

}  // namespace

absl::StatusOr<FallbackAttention> AttentionLaunches(const AttentionCall& call,
                                                    const AttentionFacts& facts,
                                                    const AttentionKernels& kernels) {
  FallbackAttention made{.scratch_bytes = kernels.workspace_bytes};
  const size_t operands = call.operands.size();
  for (const AttentionKernels::Launch& from : kernels.launches) {
    if (from.kernel.blocks == 0) continue;
    if (from.kernel.blocks > std::numeric_limits<int32_t>::max()) {
      return Refuse(call, absl::StrCat("our kernels would need ", from.kernel.blocks,
                                       " blocks, more than a launch can have"));
    }
    made.kernels.push_back(from.kernel);
    Launch launch{.kernel = from.kernel.name,
                  .blocks = from.kernel.blocks,
                  .threads = from.kernel.threads,
                  .staged_bytes = from.kernel.staged_bytes,
                  .direct = from.kernel.direct};
    for (size_t i = 0; i < from.args.size(); ++i) {
      const size_t place = static_cast<size_t>(from.args[i]);
      LaunchArg arg{.slot = static_cast<uint32_t>(place), .written = from.written[i]};
      if (place < operands) {
        arg.bytes = SpanOf(call.operands[place]) * SizeBytes(facts.operand_dtypes[place]);
        arg.alignment = facts.operand_alignment.empty() ? SizeBytes(facts.operand_dtypes[place])
                                                        : facts.operand_alignment[place];
      } else if (place < operands + call.results.size()) {
        arg.bytes = SpanOf(call.results[place - operands]) * SizeBytes(call.dtype);
        arg.alignment = SizeBytes(call.dtype);
        arg.contents = Contents::kFresh;
      } else {
        arg.bytes = kernels.workspace_bytes;
        arg.alignment = SizeBytes(ComputeType(call.dtype));
        arg.contents = arg.written ? Contents::kFresh : Contents::kWritten;
      }
      launch.args.push_back(arg);
    }
    for (const int place : from.copied) {
      const size_t at = static_cast<size_t>(place);
      launch.maps.push_back(
          at == kAttentionBias ? MapOfBias(call.operands[at], facts.operand_dtypes[at], place)
          : at < operands      ? MapOf(call.operands[at], facts.operand_dtypes[at], place)
                               : MapOfNumbers(kernels.workspace_rows, place));
    }
    made.launches.push_back(std::move(launch));
  }
  return made;
}

AttentionTarget::AttentionTarget(const Device& device)
    : dialect(device.dialect()),
      warp(device.Describe().warp),
      shared_bytes(device.Describe().shared_bytes) {}

absl::StatusOr<FallbackAttention> MakeFallbackAttention(const AttentionCall& call,
                                                        const AttentionFacts& facts,
                                                        const AttentionTarget& target) {
  const absl::Span<const DType> operand_dtypes = facts.operand_dtypes;
  RG_CHECK(call.operands.size() > kLse && operand_dtypes.size() == call.operands.size());
  RG_CHECK(call.results.size() == 3 || call.results.size() == 4);
  for (const DType dtype : operand_dtypes.first(AttentionSeed(call))) {
    if (!IsFloat(dtype)) return Refuse(call, absl::StrCat("an operand is ", Name(dtype)));
  }
  for (const CallTensor& t : call.operands) {
    for (const int64_t extent : t.shape) {
      if (extent > kMostExtent) return Refuse(call, "our kernels take extents of less than 2^30");
    }
  }
  const std::optional<WarpAttentionTiles> tiles =
      ChooseWarpAttentionTiles(call, target.shared_bytes - kNumberBytes);
  if (tiles.has_value()) {
    return AttentionLaunches(call, facts,
                             EmitWarpAttention(call, operand_dtypes, facts.operand_alignment,
                                               *tiles, target.dialect, target.warp));
  }
  const int64_t most = std::max(call.operands[1].shape[3], call.operands[3].shape[3]);
  if (most > kMostHeadSize) {
    return Refuse(call, absl::StrCat("our kernels take head sizes up to ", kMostHeadSize));
  }
  return AttentionLaunches(call, facts, EmitAttention(call, operand_dtypes, target.dialect));
}

FallbackAttentionTable FallbackAttentionAddresses(const AttentionPointers& pointers,
                                                  void* scratch) {
  FallbackAttentionTable table{};
  RG_CHECK(pointers.operands.size() + pointers.results.size() < table.size());
  size_t at = 0;
  for (const void* operand : pointers.operands) table[at++] = const_cast<void*>(operand);
  for (void* result : pointers.results) table[at++] = result;
  table[at] = scratch;
  return table;
}

absl::Status RunFallbackAttention(Device& device, int stream, LoadedKernels& kernels,
                                  size_t launches, const AttentionPointers& pointers,
                                  void* scratch) {
  const FallbackAttentionTable table = FallbackAttentionAddresses(pointers, scratch);
  RG_RETURN_IF_ERROR(device.Bind(stream, kernels, table));
  for (size_t launch = 0; launch < launches; ++launch) {
    RG_RETURN_IF_ERROR(device.Launch(stream, kernels, launch));
  }
  return absl::OkStatus();
}

namespace {

class FallbackAttentionCall : public LoadedCall {
 public:
  FallbackAttentionCall(Device& device, std::vector<DType> dtypes, int64_t scratch_bytes)
      : LoadedCall(scratch_bytes), device_(device), dtypes_(std::move(dtypes)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    return RunFallbackAttention(device_, stream, *kernels, launches,
                                {pointers.operands, dtypes_, pointers.results}, scratch);
  }
  std::string Describe() const override { return "our kernels"; }

  std::unique_ptr<LoadedKernels> kernels;
  size_t launches = 0;

 private:
  Device& device_;
  const std::vector<DType> dtypes_;  // of the operands
};

class FallbackAttentionLoader : public CallLoader {
 public:
  explicit FallbackAttentionLoader(Device& device) : device_(device) {}

  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override {
    const AttentionRequest request(call, facts);
    RG_RETURN_IF_ERROR(CheckDropout(request));
    RG_ASSIGN_OR_RETURN(
        const FallbackAttention fallback,
        MakeFallbackAttention(request.call, request.facts(), AttentionTarget(device_)));
    auto loaded =
        std::make_unique<FallbackAttentionCall>(device_, request.dtypes, fallback.scratch_bytes);
    RG_ASSIGN_OR_RETURN(loaded->kernels, device_.Load(fallback.kernels, fallback.launches));
    loaded->launches = fallback.launches.size();
    return loaded;
  }

 private:
  Device& device_;
};

}  // namespace

std::unique_ptr<CallLoader> MakeFallbackAttentionLoader(Device& device) {
  return std::make_unique<FallbackAttentionLoader>(device);
}

}  // namespace retrograd
