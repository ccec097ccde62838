#include "runtime/ops/grouped_matmul/grouped_matmul_launch.h"

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/grouped_matmul/emit_grouped_matmul.h"
#include "codegen/grouped_matmul/emit_grouped_multiplier.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// What a block may have: on NVIDIA GPUs from sm_80 on, on AMD's, and on sm_90.
constexpr int64_t kSharedBytes = 99 << 10;
constexpr int64_t kSharedBytesOfHip = 64 << 10;
constexpr int64_t kSharedBytesOfHopper = 227 << 10;

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

GroupedMatMulLaunch LaunchOf(LaunchWriter::Launch made, std::string how, const Call& call,
                             const CallFacts& facts) {
  Launch launch{.kernel = made.kernel.name,
                .blocks = made.kernel.blocks,
                .threads = made.kernel.threads,
                .staged_bytes = made.kernel.staged_bytes,
                .direct = made.kernel.direct};
  for (int slot : made.slots) {
    launch.args.push_back(ArgOf(static_cast<GroupedSlot>(slot), call, facts));
  }
  return {std::move(made.kernel), std::move(launch),
          absl::StrCat("kernels of ours, ", std::move(how))};
}

absl::Status Refuse(const GroupedMatMulCall& c, absl::string_view why) {
  return absl::UnimplementedError(absl::StrCat("grouped_matmul of ", c.m, " x ", c.n, " x ", c.k,
                                               " in ", c.groups, " groups: ", why));
}

// How the copy engine finds a matrix of rows x columns, or one for each of `groups`.
OperandMap MapOf(const GroupedMatrix& m, DType dtype, int64_t rows, int64_t columns,
                 int64_t groups) {
  const bool down = m.col_stride != 1;
  return {.dtype = dtype,
          .offset = m.offset,
          .inner = down ? rows : columns,
          .outer = down ? columns : rows,
          .pitch = down ? m.col_stride : m.row_stride,
          .heads = groups,
          .head_pitch = m.group_stride};
}

int TurnedSlot(int slot) {
  if (slot == kGroupedRowScales) return kGroupedColumnScales;
  return slot == kGroupedColumnScales ? kGroupedRowScales : slot;
}

std::vector<OperandMap> MapsOf(const GroupedMatMulCall& c, bool turned) {
  OperandMap a = MapOf(c.a, c.in_dtype, c.m, c.k, 0);
  OperandMap b = MapOf(c.b, c.in_dtype, c.k, c.n, c.sums_in_groups ? 0 : c.groups);
  a.slot = turned ? kGroupedB : kGroupedA;
  b.slot = turned ? kGroupedA : kGroupedB;
  return {a, b};
}

}  // namespace

GroupedLimits GroupedMatMulLimits(Dialect dialect, const DeviceFacts& device) {
  return {.sms = device.sms,
          .shared_bytes = dialect == Dialect::kHip ? kSharedBytesOfHip : kSharedBytes};
}

absl::StatusOr<GroupedMatMulLaunch> LaunchByWarps(const Call& call, const CallFacts& facts,
                                                  const GroupedTile& tile, Dialect dialect,
                                                  int warp) {
  const GroupedMatMulCall grouped = GroupedMatMulOf(call);
  RG_RETURN_IF_ERROR(GroupedMatMulRefusal(grouped));
  if (BlocksOf(tile, grouped) > std::numeric_limits<int32_t>::max()) {
    return Refuse(grouped, "its tiles are more than a launch takes");
  }
  const GroupedVectors vectors = GroupedVectorsFor(grouped, AlignmentsOf(call, facts));
  return LaunchOf(EmitGroupedMatMul(grouped, tile, vectors, dialect, warp), tile.Print(), call,
                  facts);
}

absl::StatusOr<GroupedMatMulLaunch> LaunchByWarpgroups(const Call& call, const CallFacts& facts,
                                                       const GemmTile& tile) {
  const GroupedMatMulCall given = GroupedMatMulOf(call);
  RG_RETURN_IF_ERROR(GroupedMatMulRefusal(given));
  GroupedMatMulCall grouped = given;
  GroupedAlignments known = AlignmentsOf(call, facts);
  const bool turned = IsTurned(grouped);
  if (turned) {
    grouped = Turned(grouped);
    std::swap(known.a, known.b);
  }
  if (std::string why = WhyNoMultiplier(grouped, known); !why.empty()) return Refuse(given, why);
  if (std::string why = WhyNotTile(tile, kSharedBytesOfHopper); !why.empty()) {
    return Refuse(given, why);
  }
  if (!ServesBlocks(tile, grouped)) {
    return Refuse(given, absl::StrCat("with scales of blocks a tile has 128 rows and at most 128 ",
                                      "columns, not ", tile.Print()));
  }
  LaunchWriter::Launch emitted = EmitGroupedMultiplier(grouped, tile);
  if (turned) {
    for (int& slot : emitted.slots) slot = TurnedSlot(slot);
  }
  GroupedMatMulLaunch made =
      LaunchOf(std::move(emitted), absl::StrCat("warpgroups, ", tile.Print()), call, facts);
  made.launch.maps = MapsOf(grouped, turned);
  made.launch.cluster = tile.cluster();
  return made;
}

std::vector<GemmTile> GroupedTilesOn(const Call& call, const CallFacts& facts, Device& device) {
  if (!device.multiplies_with_epilogues()) return {};
  GroupedMatMulCall grouped = GroupedMatMulOf(call);
  if (!GroupedMatMulRefusal(grouped).ok()) return {};
  GroupedAlignments known = AlignmentsOf(call, facts);
  if (IsTurned(grouped)) {
    grouped = Turned(grouped);
    std::swap(known.a, known.b);
  }
  if (!WhyNoMultiplier(grouped, known).empty()) return {};
  return MultiplierTilesFor(grouped,
                            {.sms = device.Describe().sms, .shared_bytes = kSharedBytesOfHopper});
}

absl::StatusOr<GroupedMatMulLaunch> LaunchGroupedMatMul(const Call& call, const CallFacts& facts,
                                                        Device& device) {
  const GroupedMatMulCall grouped = GroupedMatMulOf(call);
  const std::vector<GemmTile> tiles = GroupedTilesOn(call, facts, device);
  if (!tiles.empty()) return LaunchByWarpgroups(call, facts, tiles[0]);
  const DeviceFacts described = device.Describe();
  const GroupedLimits limits = GroupedMatMulLimits(device.dialect(), described);
  return LaunchByWarps(call, facts, GroupedTileFor(grouped, limits), device.dialect(),
                       described.warp);
}

}  // namespace retrograd
