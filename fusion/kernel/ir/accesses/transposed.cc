#include "fusion/kernel/ir/accesses/transposed.h"

#include <algorithm>

#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

// Shorter axes fill too little of a tile to be worth one.
constexpr int64_t kMinExtent = kTransposeTile / 2;

// Of a thread of square tiles, each with kSquareTurns registers: so many leave an SM 1,536 threads.
constexpr size_t kMostLoadsAhead = 4;

// The axis nearest to the fastest one, of those long enough, along which some accesses run.
std::optional<int> AxisOf(const KernelIr& ir,
                          std::vector<int> (*accesses)(const KernelIr&, int axis)) {
  for (int a = FastestAxis(ir) - 1; a >= 0; --a) {
    if (ir.extents[a] >= kMinExtent && !accesses(ir, a).empty()) return a;
  }
  return std::nullopt;
}

bool StoresAlong(const KernelIr& ir, int axis) {
  return std::any_of(ir.stores.begin(), ir.stores.end(), [&](const Store& s) {
    return LaneStride(s.offset, {axis, 2}) == 1;
  });
}

bool LoadsAlong(const KernelIr& ir, int axis) {
  return std::any_of(ir.instrs.begin(), ir.instrs.end(), [&](const Instr& i) {
    return i.kind == InstrKind::kLoad && LaneStride(i.offset, {axis, 2}) == 1;
  });
}

// Every load is of the same places along the axis, or of neighbours, the transposed ones by whole
// accesses.
bool LoadsWide(const KernelIr& ir, const WideTiles& tiles) {
  const Vectors v = {.axis = tiles.axis, .width = tiles.width};
  for (const Instr& instr : ir.instrs) {
    if (instr.kind != InstrKind::kLoad) continue;
    const std::optional<int64_t> stride = LaneStride(instr.offset, v);
    if (!stride.has_value() || (*stride != 0 && *stride != 1)) return false;
  }
  int64_t widest = 0;
  for (int i : TransposedLoads(ir, tiles.axis)) {
    const int64_t access = kMaxAccessBytes / SizeBytes(ir.buffers[ir.instrs[i].buffer].dtype);
    if (LoadWidth(ir, i, v) < std::min<int64_t>(tiles.width, access)) return false;
    widest = std::max(widest, access);
  }
  return tiles.width <= widest && ir.extents[tiles.axis] % tiles.width == 0;
}

// A search bound: what a block of any device has.
constexpr int64_t kMostTileBytes = 48 << 10;

// Tiles that cover both axes, at each place along the others.
int64_t CountOf(const KernelIr& ir, const WideTiles& tiles) {
  const int64_t slow = ir.extents[tiles.axis], fast = ir.extents[FastestAxis(ir)];
  const int64_t others = ir.Points(ir.all_axes()) / std::max<int64_t>(slow * fast, 1);
  return others * CeilDiv(slow, tiles.slow()) * CeilDiv(fast, tiles.fast());
}

// Those that differ in fast_tile alone, the longest along the stores first.
std::vector<WideTiles> TilesAlike(WideTiles tiles) {
  std::vector<WideTiles> alike;
  tiles.fast_tile = WideTiles::kLongest * tiles.width;
  for (; tiles.fast_tile >= WideTiles::kShortest; tiles.fast_tile /= 2) alike.push_back(tiles);
  return alike;
}

// The fewest of those that fit; of as many, the longest along the stores. The shorter, the more
// shared memory they take for the same elements.
WideTiles FewestOf(const KernelIr& ir, const WideTiles& tiles) {
  int64_t bytes = 0;
  for (const Store& s : ir.stores) bytes += SizeBytes(ir.buffers[s.buffer].dtype);
  const std::vector<WideTiles> alike = TilesAlike(tiles);
  WideTiles fewest = alike.front();
  for (const WideTiles& of : alike) {
    const bool fits = bytes * of.slow() * of.pitch() <= kMostTileBytes;
    if (fits && CountOf(ir, of) < CountOf(ir, fewest)) fewest = of;
  }
  return fewest;
}

bool StoresWide(const KernelIr& ir) {
  const int64_t fast = ir.extents[FastestAxis(ir)];
  for (const Store& s : ir.stores) {
    const DType from = ir.instrs[s.instr].dtype, to = ir.buffers[s.buffer].dtype;
    for (size_t a = 0; a < ir.extents.size(); ++a) {
      if (ir.extents[a] > 1 && (ir.instrs[s.instr].axes >> a & 1) == 0) return false;
    }
    const int width = WideStoreWidth(ir, s);
    if (s.mode != StoreMode::kStore || ComputeType(from) != ComputeType(to) ||
        width < WideTiles::kRows || fast % width != 0) {
      return false;
    }
  }
  return !ir.stores.empty();
}

}  // namespace

int WideStoreWidth(const KernelIr& ir, const Store& store) {
  const auto size = static_cast<int>(SizeBytes(ir.buffers[store.buffer].dtype));
  return StoreWidth(ir, store, {.axis = FastestAxis(ir), .width = kMaxAccessBytes / size});
}

std::optional<WideTiles> WideTilesOf(const KernelIr& ir, int64_t blocks) {
  const std::optional<WideTiles> fewest = WideTilesOf(ir);
  if (!fewest) return std::nullopt;
  for (const WideTiles& tiles : TilesAlike(*fewest)) {
    if (CountOf(ir, tiles) == blocks) return tiles;
  }
  return std::nullopt;
}

std::optional<WideTiles> WideTilesOf(const KernelIr& ir) {
  const std::optional<int> axis = TransposedLoadAxis(ir);
  if (!axis.has_value() || !StoresWide(ir)) return std::nullopt;
  for (const int width : {8, 4}) {
    const WideTiles tiles = {.axis = *axis, .width = width};
    if (LoadsWide(ir, tiles)) return FewestOf(ir, tiles);
  }
  return std::nullopt;
}

bool RunsAlong(const IndexExpr& offset, int axis, int fastest) {
  const std::optional<int64_t> across = LaneStride(offset, {fastest, 2});
  return LaneStride(offset, {axis, 2}) == 1 && across != 0 && across != 1;
}

std::vector<int> TransposedLoads(const KernelIr& ir, int axis) {
  std::vector<int> loads;
  const int fastest = FastestAxis(ir);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind == InstrKind::kLoad && instr.indirect.empty() &&
        RunsAlong(instr.offset, axis, fastest)) {
      loads.push_back(static_cast<int>(i));
    }
  }
  return loads;
}

std::vector<int> TransposedStores(const KernelIr& ir, int axis) {
  std::vector<int> stores;
  const int fastest = FastestAxis(ir);
  for (size_t s = 0; s < ir.stores.size(); ++s) {
    const Store& store = ir.stores[s];
    const AxisMask axes = ir.instrs[store.instr].axes;
    if ((axes >> axis & axes >> fastest & 1) != 0 && RunsAlong(store.offset, axis, fastest)) {
      stores.push_back(static_cast<int>(s));
    }
  }
  return stores;
}

std::vector<int> LoadsAhead(const KernelIr& ir, int axis) {
  std::vector<int> ahead;
  const AxisMask tile = AxisMask{1} << axis | AxisMask{1} << FastestAxis(ir);
  const std::vector<int> by_tiles = TransposedLoads(ir, axis);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (by_tiles.size() + ahead.size() >= kMostLoadsAhead) break;
    if (instr.kind != InstrKind::kLoad || !instr.indirect.empty()) continue;
    if ((instr.axes & tile) != tile || RunsAlong(instr.offset, axis, FastestAxis(ir))) continue;
    ahead.push_back(static_cast<int>(i));
  }
  return ahead;
}

std::optional<int> TransposedLoadAxis(const KernelIr& ir) {
  const int fastest = FastestAxis(ir);
  if (fastest < 0 || ir.extents[fastest] < kMinExtent || !StoresAlong(ir, fastest)) {
    return std::nullopt;
  }
  return AxisOf(ir, TransposedLoads);
}

std::optional<int> TransposedAxis(const KernelIr& ir) {
  const std::optional<int> of_loads = TransposedLoadAxis(ir);
  const int fastest = FastestAxis(ir);
  if (of_loads.has_value() || fastest < 0 || ir.extents[fastest] < kMinExtent) return of_loads;
  if (!StoresAlong(ir, fastest) && !LoadsAlong(ir, fastest)) return std::nullopt;
  return AxisOf(ir, TransposedStores);
}

}  // namespace retrograd
