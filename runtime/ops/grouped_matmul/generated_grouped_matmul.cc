#include "runtime/ops/grouped_matmul/generated_grouped_matmul.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/grouped_matmul/emit_grouped_matmul.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int64_t kSharedBytes = 99 << 10;  // that a block may have on NVIDIA GPUs from sm_80 on

class GeneratedGroupedMatMul : public LoadedCall {
 public:
  GeneratedGroupedMatMul(Device& device, std::unique_ptr<LoadedKernels> kernels, std::string how)
      : LoadedCall(0), device_(device), kernels_(std::move(kernels)), how_(std::move(how)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void*) override {
    if (kernels_ == nullptr) return absl::OkStatus();
    void* table[kGroupedSlots];
    table[kGroupedA] = const_cast<void*>(pointers.operands[0]);
    table[kGroupedB] = const_cast<void*>(pointers.operands[1]);
    table[kGroupedEnds] = const_cast<void*>(pointers.operands[2]);
    table[kGroupedResult] = pointers.results[0];
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernels_, table));
    return device_.Launch(stream, *kernels_, 0);
  }
  std::string Describe() const override { return how_; }

 private:
  Device& device_;
  const std::unique_ptr<LoadedKernels> kernels_;  // null: the result has no elements
  const std::string how_;
};

// Bytes known to divide an address: what the facts say, else its elements' size.
int64_t Known(const std::vector<int64_t>& alignments, size_t i, DType dtype) {
  return i < alignments.size() ? alignments[i] : SizeBytes(dtype);
}

GroupedAlignments AlignmentsOf(const Call& call, const CallFacts& facts) {
  return {.a = Known(facts.operand_alignment, 0, call.operands[0].dtype),
          .b = Known(facts.operand_alignment, 1, call.operands[1].dtype),
          .d = Known(facts.result_alignment, 0, call.results[0].dtype)};
}

LaunchArg ArgOf(GroupedSlot slot, const Call& call, const CallFacts& facts) {
  const bool written = slot == kGroupedResult;
  const CallTensor& t = written ? call.results[0] : call.operands[slot];
  return {.slot = static_cast<uint32_t>(slot),
          .bytes = SpanOf(t) * SizeBytes(t.dtype),
          .alignment = Known(written ? facts.result_alignment : facts.operand_alignment,
                             written ? 0 : slot, t.dtype),
          .written = written};
}

absl::Status Refusal(const GroupedMatMulCall& grouped, const GroupedTile& tile) {
  RG_RETURN_IF_ERROR(GroupedMatMulRefusal(grouped));
  constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();
  if (BlocksOf(tile, grouped) <= kMostBlocks) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("grouped_matmul of ", grouped.m, " x ", grouped.n,
                                               " x ", grouped.k, " in ", grouped.groups,
                                               " groups: its tiles are more than a launch takes"));
}

LaunchWriter::Launch Emit(Device& device, const Call& call, const CallFacts& facts,
                          const GroupedTile& tile) {
  const GroupedMatMulCall grouped = GroupedMatMulOf(call);
  return EmitGroupedMatMul(grouped, tile, GroupedVectorsFor(grouped, AlignmentsOf(call, facts)),
                           device.dialect());
}

GroupedTile TileFor(Device& device, const Call& call) {
  return GroupedTileFor(GroupedMatMulOf(call),
                        GroupedMatMulLimits(device.dialect(), device.Describe()));
}

class GeneratedGroupedMatMulLoader : public CallLoader {
 public:
  explicit GeneratedGroupedMatMulLoader(Device& device) : device_(device) {}

  std::vector<Kernel> KernelsOf(const Call& call, const CallFacts& facts) override {
    const GroupedTile tile = TileFor(device_, call);
    if (Elements(call.results[0].shape) == 0 || !Refusal(GroupedMatMulOf(call), tile).ok()) {
      return {};
    }
    return {Emit(device_, call, facts, tile).kernel};
  }
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override {
    return LoadGeneratedGroupedMatMul(device_, call, facts);
  }

 private:
  Device& device_;
};

}  // namespace

GroupedLimits GroupedMatMulLimits(Dialect dialect, const DeviceFacts& device) {
  GroupedLimits limits = {.sms = device.sms};
  if (dialect != Dialect::kHip) limits.shared_bytes = kSharedBytes;
  return limits;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGroupedMatMulTile(Device& device, const Call& call,
                                                                  const CallFacts& facts,
                                                                  const GroupedTile& tile) {
  RG_RETURN_IF_ERROR(Refusal(GroupedMatMulOf(call), tile));
  if (Elements(call.results[0].shape) == 0) {
    return std::make_unique<GeneratedGroupedMatMul>(device, nullptr, "no elements");
  }
  const LaunchWriter::Launch made = Emit(device, call, facts, tile);
  Launch launch{.kernel = made.kernel.name,
                .blocks = made.kernel.blocks,
                .threads = made.kernel.threads,
                .staged_bytes = made.kernel.staged_bytes,
                .direct = made.kernel.direct};
  for (int slot : made.slots) {
    launch.args.push_back(ArgOf(static_cast<GroupedSlot>(slot), call, facts));
  }
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded, device.Load({made.kernel}, {launch}));
  return std::make_unique<GeneratedGroupedMatMul>(device, std::move(loaded),
                                                  absl::StrCat("kernels of ours, ", tile.Print()));
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedGroupedMatMul(Device& device,
                                                                       const Call& call,
                                                                       const CallFacts& facts) {
  RG_RETURN_IF_ERROR(GroupedMatMulRefusal(GroupedMatMulOf(call)));
  return LoadGroupedMatMulTile(device, call, facts, TileFor(device, call));
}

std::unique_ptr<CallLoader> MakeGeneratedGroupedMatMulLoader(Device& device) {
  return std::make_unique<GeneratedGroupedMatMulLoader>(device);
}

}  // namespace retrograd
