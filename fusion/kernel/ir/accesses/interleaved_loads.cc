#include "fusion/kernel/ir/accesses/interleaved_loads.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace retrograd {
namespace {

// Of an access of the widest kind at least two elements are read.
constexpr int64_t kMostStride = 8;

// The places of the lanes if the load may be one of a run's.
int64_t StrideOf(const KernelIr& ir, int i, const Vectors& vectors) {
  const Instr& load = ir.instrs[i];
  if (load.kind != InstrKind::kLoad || !load.guards.empty() || !load.indirect.empty()) return 0;
  if (ComputeType(ir.buffers[load.buffer].dtype) != ComputeType(load.dtype)) return 0;
  const std::optional<int64_t> stride = LaneStride(load.offset, vectors);
  return stride && *stride > 1 && *stride <= kMostStride ? *stride : 0;
}

// Elements of the widest accesses that cover the run; 1: none of several elements does.
int WidthOf(const Buffer& buffer, const InterleavedLoads& run, const Vectors& vectors) {
  const int64_t size = SizeBytes(buffer.dtype);
  const int64_t multiple = KnownMultiple(run.offset, vectors);
  for (int64_t width = kMaxAccessBytes / size; width > 1; width /= 2) {
    const bool covers = run.stride * vectors.width % width == 0;
    if (covers && multiple % width == 0 && buffer.alignment % (width * size) == 0) {
      return static_cast<int>(width);
    }
  }
  return 1;
}

// At least half of a run is read, its ends among that.
bool ReadsEnough(const InterleavedLoads& run) {
  const auto reads = [&](int place) {
    return std::any_of(run.members.begin(), run.members.end(),
                       [&](const InterleavedLoads::Member& m) { return m.place == place; });
  };
  return reads(0) && reads(run.stride - 1) && 2 * run.places() >= run.stride;
}

}  // namespace

int InterleavedLoads::places() const {
  uint32_t read = 0;
  for (const Member& m : members) read |= 1u << m.place;
  return std::popcount(read);
}

std::vector<InterleavedLoads> FindInterleavedLoads(const KernelIr& ir, absl::Span<const int> loads,
                                                   const Vectors& vectors) {
  std::vector<InterleavedLoads> runs;
  if (vectors.width <= 1) return runs;
  for (int i : loads) {
    const int64_t stride = StrideOf(ir, i, vectors);
    if (stride == 0) continue;
    const Instr& load = ir.instrs[i];
    const int64_t place = (load.offset.offset() % stride + stride) % stride;
    IndexExpr offset = load.offset;
    offset.AddScaled(IndexExpr::Constant(place), -1);
    const auto known = std::find_if(runs.begin(), runs.end(), [&](const InterleavedLoads& run) {
      return run.stride == stride && run.offset == offset &&
             ir.instrs[run.members[0].instr].buffer == load.buffer;
    });
    InterleavedLoads& run = known == runs.end() ? runs.emplace_back() : *known;
    run.members.push_back({i, static_cast<int>(place)});
    run.stride = static_cast<int>(stride);
    run.offset = std::move(offset);
  }
  std::erase_if(runs, [&](InterleavedLoads& run) {
    run.width = WidthOf(ir.buffers[ir.instrs[run.members[0].instr].buffer], run, vectors);
    return run.width == 1 || !ReadsEnough(run);
  });
  return runs;
}

}  // namespace retrograd
