#include "fusion/kernel/templates/registers.h"

#include <algorithm>
#include <set>

#include "fusion/kernel/ir/accesses/transposed.h"
#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/column_walks.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/row_walks.h"

namespace retrograd {
namespace {

int Words(DType dtype) { return SizeBytes(ComputeType(dtype)) > 4 ? 2 : 1; }

bool IsInner(const KernelIr& ir, const Instr& instr, const Classification& shape) {
  if (TemplateOf(shape.kind).walk == Walk::kPoints) return instr.axes != 0 || ir.extents.empty();
  const AxisMask columns = shape.shape.column_axes;
  if (ir.Points(shape.shape.row_axes) == 1 && ir.Points(columns) > 1) {
    return (instr.axes & columns) != 0;  // one row: what varies at all varies along it
  }
  return (instr.axes & shape.shape.row_axes) != 0 && (instr.axes & columns) != 0;
}

// Instructions that a stage must evaluate: the operands of its reductions, its stores and what
// those need, back to loads and to what is `kept` of earlier stages, inside the inner domain.
std::vector<int> NeededInStage(const KernelIr& ir, const KernelProfile& p, int stage,
                               const std::vector<bool>& kept) {
  std::vector<bool> need(ir.instrs.size(), false);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind == InstrKind::kReduce && p.inner[instr.operands[0]] &&
        p.stages.stage[instr.operands[0]] == stage) {
      need[instr.operands[0]] = true;
    }
  }
  for (const Store& s : ir.stores) {
    if (p.inner[s.instr] && p.stages.stage[s.instr] == stage) need[s.instr] = true;
  }
  if (ir.scatter && p.stages.stage[ir.scatter->src_instr] == stage) {
    need[ir.scatter->src_instr] = true;
  }
  std::vector<int> out;
  for (size_t i = ir.instrs.size(); i-- > 0;) {
    if (!need[i] || kept[i]) continue;
    out.push_back(static_cast<int>(i));
    if (ir.instrs[i].kind == InstrKind::kReduce) continue;
    for (int operand : ir.instrs[i].operands) {
      if (p.inner[operand]) need[operand] = true;
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Largest number of words live at once while one element goes through a stage's instructions in
// order. Backwards: an instruction's own value ends where it is made, its operands begin.
int LiveWords(const KernelIr& ir, const std::vector<int>& order) {
  std::vector<bool> outside(ir.instrs.size(), true), alive(ir.instrs.size(), false);
  for (int i : order) outside[i] = false;
  int live = 0, most = 0;
  for (size_t k = order.size(); k-- > 0;) {
    const int i = order[k];
    const int own = Words(ir.instrs[i].dtype);
    int here = alive[i] ? live : live + own;
    if (alive[i]) live -= own;
    for (int operand : ir.instrs[i].operands) {
      if (outside[operand] || alive[operand]) continue;
      alive[operand] = true;
      live += Words(ir.instrs[operand].dtype);
      here += Words(ir.instrs[operand].dtype);
    }
    most = std::max(most, here);
  }
  return most;
}

AxisMask LongAxes(const KernelIr& ir, AxisMask mask) {
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (ir.extents[a] == 1) mask &= ~(AxisMask{1} << a);
  }
  return mask;
}

int64_t& At(RegisterCounts& counts, RegisterCount count) { return counts[static_cast<int>(count)]; }

void CountReductions(const KernelIr& ir, KernelProfile& p) {
  for (const Instr& instr : ir.instrs) {
    if (instr.kind != InstrKind::kReduce) continue;
    const bool column = (instr.reduced & p.shape.shape.row_axes) != 0;
    if (column && TemplateOf(p.shape.kind).sums_columns) {
      ++p.column_sums;
      At(p.counts, RegisterCount::kColumnSums) += Words(instr.dtype);
    } else {
      ++p.row_sums;
      At(p.counts, RegisterCount::kRowSums) += Words(instr.dtype);
    }
  }
}

void FindAccumulators(const KernelIr& ir, KernelProfile& p) {
  for (const Instr& instr : ir.instrs) {
    const AxisMask folded = FoldedAxes(ir, instr);
    if (folded == 0) continue;
    const DType type = AccumulatorType(instr.dtype);
    if ((folded & p.shape.shape.column_axes) != 0) {
      p.row_accumulators.push_back(SizeBytes(type));
      continue;
    }
    auto same = std::find_if(p.column_accumulators.begin(), p.column_accumulators.end(),
                             [&](const auto& sums) { return sums.first == type; });
    if (same == p.column_accumulators.end()) {
      same = p.column_accumulators.insert(same, {type, 0});
    }
    ++same->second;
  }
}

void FindSharedColumnValues(const KernelIr& ir, KernelProfile& p) {
  for (const std::vector<int>& values : SharedColumnValues(ir, p.shape.shape, p.stages)) {
    for (int i : values)
      p.shared_column_values.push_back(SizeBytes(ComputeType(ir.instrs[i].dtype)));
  }
}

// A value that all elements of a vector share is loaded once for them, and by all threads of a warp
// at once: it brings in next to nothing.
bool Shared(const KernelIr& ir, const Instr& load) {
  const int fastest = FastestAxis(ir);
  return fastest >= 0 && (load.axes >> fastest & 1) == 0;
}

// Whether a load brings in bytes at each element of the inner domain.
bool BringsIn(const KernelIr& ir, const KernelProfile& p, int i) {
  const bool by_points = TemplateOf(p.shape.kind).walk == Walk::kPoints;
  return p.inner[i] && !(by_points && Shared(ir, ir.instrs[i]));
}

// Of the values that a guard's expression may have, those that it lets through.
int64_t LetThroughPpm(const KernelIr& ir, const Guard& guard) {
  const IndexRange range = Range(guard.expr, ir.extents);
  const int64_t begin = std::max(guard.begin, range.min);
  const int64_t end = std::min(guard.end, range.max + 1);
  return MulDiv(kPpm, std::max<int64_t>(end - begin, 0),
                std::max<int64_t>(range.max + 1 - range.min, 1));
}

}  // namespace

int64_t UnguardedPpm(const KernelIr& ir, const Instr& load) {
  const int64_t positions = ir.Points(load.axes);
  if (load.guards.empty() || !load.indirect.empty() || positions == 0) return kPpm;
  int64_t by_guards = kPpm;
  for (const Guard& g : load.guards) by_guards = Share(by_guards, LetThroughPpm(ir, g));
  const int64_t by_elements = MulDiv(kPpm, ir.buffers[load.buffer].elements, positions);
  return std::min(std::max(by_elements, by_guards), kPpm);
}

namespace {

// Elements of a load that a thread of a wide tile takes: one for each of its points at which the
// load may differ.
int64_t ElementsOfWideTile(const KernelIr& ir, const WideTiles& tiles, const Instr& load) {
  const int64_t across = (load.axes >> tiles.axis & 1) != 0 ? tiles.width : 1;
  return (load.axes >> FastestAxis(ir) & 1) != 0 ? across * WideTiles::kRows : across;
}

void CountAccesses(const KernelIr& ir, KernelProfile& p) {
  const AxisMask rows = LongAxes(ir, p.shape.shape.row_axes);
  const AxisMask columns = LongAxes(ir, p.shape.shape.column_axes);
  const std::optional<WideTiles> tiles =
      TemplateOf(p.shape.kind).transposes ? WideTilesOf(ir) : std::nullopt;
  int64_t unguarded = 0;  // bytes an element, in millionths
  int64_t loaded = 0;     // elements at which some load happens, in millionths
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    p.word_bytes = std::max(p.word_bytes, 4 * Words(instr.dtype));
    At(p.counts, RegisterCount::kGuards) += static_cast<int64_t>(instr.guards.size());
    if (instr.kind != InstrKind::kLoad) continue;
    ++At(p.counts, RegisterCount::kLoads);
    if (tiles) p.wide_tile_bytes += SizeBytes(instr.dtype) * ElementsOfWideTile(ir, *tiles, instr);
    if (BringsIn(ir, p, static_cast<int>(i))) {
      p.loaded_bytes += SizeBytes(instr.dtype);
      const int64_t ppm = UnguardedPpm(ir, instr);
      unguarded += SizeBytes(instr.dtype) * ppm;
      loaded = std::min(loaded + ppm, kPpm);
    } else if (!p.inner[i] && (instr.axes & columns) != 0 && (instr.axes & rows) == 0) {
      At(p.counts, RegisterCount::kColumnLoads) += Words(instr.dtype);
    }
  }
  if (p.loaded_bytes > 0) {
    p.unguarded_ppm = unguarded / p.loaded_bytes;
    p.unloaded_ppm = kPpm - loaded;
  }
  for (const Store& s : ir.stores) {
    if (p.inner[s.instr]) p.stored_bytes += SizeBytes(ir.buffers[s.buffer].dtype);
  }
  // Of a scatter of one number for all, the keys of the sorted positions.
  if (ir.scatter && p.loaded_bytes == 0) p.loaded_bytes = SizeBytes(DType::kInt32);
}

// Loads that a stage which stores is the first to need.
void CountLate(const KernelIr& ir, KernelProfile& p) {
  std::vector<bool> seen(ir.instrs.size(), false);
  for (int stage = 0; stage <= p.stages.row_stages; ++stage) {
    const bool stores = std::any_of(ir.stores.begin(), ir.stores.end(), [&](const Store& s) {
      return p.inner[s.instr] && p.stages.stage[s.instr] == stage;
    });
    for (int i : p.needed[stage]) {
      if (ir.instrs[i].kind != InstrKind::kLoad || seen[i]) continue;
      seen[i] = true;
      if (stores && BringsIn(ir, p, i)) p.late_loaded_bytes += SizeBytes(ir.instrs[i].dtype);
    }
  }
}

// Bytes that a thread has under way, on average over all that it moves. Where it loads nothing it
// waits for nothing: its stores are what is under way.
int64_t BytesUnderWay(const KernelProfile& p, const Schedule& s, const PointsOfThread& points) {
  const int64_t kept = s.turns > 1 ? p.pass_columns.loaded_bytes : 0;
  const int64_t loaded = p.loaded_bytes - kept;
  if (loaded == 0) return p.stored_bytes * points.under_way;
  const int64_t most = MulDiv(loaded * points.under_way, p.unguarded_ppm, kPpm) +
                       MulDiv(p.stored_bytes * points.under_way, p.unloaded_ppm, kPpm);
  if (points.among_stores == 0 || p.late_loaded_bytes == 0) return most;
  const int64_t moved = p.loaded_bytes + p.stored_bytes;
  const int64_t together = moved - p.late_loaded_bytes;
  return MulDiv(moved, most * points.among_stores, together * points.among_stores + most);
}

// By instruction: whether it is needed for these, other than through a fold.
std::vector<bool> NeededBesideFolds(const KernelIr& ir, const std::vector<int>& roots) {
  std::vector<bool> needed(ir.instrs.size(), false);
  for (int root : roots) needed[root] = true;
  for (size_t i = ir.instrs.size(); i-- > 0;) {
    if (!needed[i] || FoldedAxes(ir, ir.instrs[i]) != 0) continue;
    for (int operand : ir.instrs[i].operands) needed[operand] = true;
  }
  return needed;
}

// The threads of a scatter fold the columns of a batch of positions before they sum them: loads
// that both need wait.
void CountKeptForSums(const KernelIr& ir, KernelProfile& p) {
  std::vector<int> folded, summed = {ir.scatter->src_instr};
  for (const Instr& instr : ir.instrs) {
    if (FoldedAxes(ir, instr) != 0) folded.push_back(instr.operands[0]);
  }
  for (const Store& store : ir.stores) summed.push_back(store.instr);
  const std::vector<bool> first = NeededBesideFolds(ir, folded);
  const std::vector<bool> then = NeededBesideFolds(ir, summed);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind != InstrKind::kLoad || !p.inner[i] || Shared(ir, instr)) continue;
    if (first[i] && then[i]) p.carried_load_bytes += SizeBytes(instr.dtype);
  }
}

// Carried across a stage: made in an earlier stage, used in a later one.
void CountCarried(const KernelIr& ir, KernelProfile& p) {
  std::vector<bool> carried(ir.instrs.size(), false);
  for (size_t j = 0; j < ir.instrs.size(); ++j) {
    if (ir.instrs[j].kind == InstrKind::kReduce || !p.inner[j]) continue;
    for (int operand : ir.instrs[j].operands) {
      if (!p.inner[operand] || carried[operand]) continue;
      if (p.stages.stage[j] <= p.stages.stage[operand]) continue;
      carried[operand] = true;
      if (ir.instrs[operand].kind == InstrKind::kLoad && Words(ir.instrs[operand].dtype) == 1) {
        ++p.carried_loads;
        p.carried_load_bytes += SizeBytes(ir.instrs[operand].dtype);
        continue;
      }
      At(p.counts, RegisterCount::kCarriedHeld) += Words(ir.instrs[operand].dtype);
    }
  }
}

// A division, a special function or slower. A division by a constant is a multiplication.
bool IsCostly(const KernelIr& ir, const Instr& instr) {
  if (instr.kind != InstrKind::kPointwise || Info(instr.op).cost < CostClass::kDivide) return false;
  return instr.op != Op::div || ir.instrs[instr.operands[1]].kind != InstrKind::kConstant;
}

// What a stage evaluates of costly values is kept for the stages behind it, and the nearest to what
// they compute: what only those are made of is not evaluated again.
void FindCostly(const KernelIr& ir, KernelProfile& p) {
  const bool any = std::any_of(p.needed.begin(), p.needed.end() - 1, [&](const auto& needed) {
    return std::any_of(needed.begin(), needed.end(),
                       [&](int i) { return IsCostly(ir, ir.instrs[i]); });
  });
  if (!any) return;  // the last stage keeps nothing
  std::vector<bool> made(ir.instrs.size(), false), costly(ir.instrs.size(), false);
  for (int stage = 0; stage <= p.stages.row_stages; ++stage) {
    for (int i : NeededInStage(ir, p, stage, made)) {
      for (int operand : ir.instrs[i].operands) costly[operand] = costly[operand] || made[operand];
    }
    for (int i : p.needed[stage]) made[i] = made[i] || IsCostly(ir, ir.instrs[i]);
  }
  std::vector<bool> kept(ir.instrs.size(), false), seen(ir.instrs.size(), false);
  std::set<int> again;  // loads that several stages need
  for (size_t i = 0; i < costly.size(); ++i) {
    if (costly[i]) p.costly.push_back(static_cast<int>(i));
  }
  for (int stage = 0; stage <= p.stages.row_stages; ++stage) {
    p.needed_beside_costly.push_back(NeededInStage(ir, p, stage, kept));
    for (int i : p.needed_beside_costly.back()) {
      kept[i] = costly[i];
      if (ir.instrs[i].kind == InstrKind::kLoad && seen[i]) again.insert(i);
      seen[i] = true;
    }
  }
  for (int i : p.costly) p.costly_bytes += int64_t{4} * Words(ir.instrs[i].dtype);
  for (int i : again) p.loads_beside_costly_bytes += SizeBytes(ir.instrs[i].dtype);
}

}  // namespace

KernelProfile ProfileKernel(const KernelIr& ir, const Classification& shape) {
  KernelProfile p;
  p.shape = shape;
  p.stages = AssignStages(ir, shape);
  p.inner.resize(ir.instrs.size());
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    p.inner[i] = IsInner(ir, ir.instrs[i], shape) && !p.stages.finalize[i];
  }
  int64_t& live = At(p.counts, RegisterCount::kLiveWords);
  p.needed.reserve(p.stages.row_stages + 1);
  const std::vector<bool> none(ir.instrs.size(), false);
  for (int s = 0; s <= p.stages.row_stages; ++s) {
    p.needed.push_back(NeededInStage(ir, p, s, none));
    live = std::max<int64_t>(live, LiveWords(ir, p.needed.back()));
  }
  At(p.counts, RegisterCount::kOne) = 1;
  At(p.counts, RegisterCount::kBuffers) = static_cast<int64_t>(ir.buffers.size());
  At(p.counts, RegisterCount::kStores) = static_cast<int64_t>(ir.stores.size());
  At(p.counts, RegisterCount::kInstructions) = static_cast<int64_t>(ir.instrs.size());
  CountReductions(ir, p);
  FindAccumulators(ir, p);
  if (TemplateOf(shape.kind).holds) FindSharedColumnValues(ir, p);
  CountAccesses(ir, p);
  ir.scatter ? CountKeptForSums(ir, p) : CountCarried(ir, p);
  CountLate(ir, p);
  if (TemplateOf(shape.kind).walk == Walk::kRows) FindCostly(ir, p);
  if (shape.kind == Template::kPointwise) {
    p.point_rows = PointRowsOf(ir);
    p.pass_columns = PassColumnsOf(ir);
  }
  return p;
}

namespace {

constexpr int64_t kMostRegisters = 1 << 20;  // far above any cap
constexpr int64_t kRegistersForAddresses = 16;

// Of the costly values and loads beside them, in a thread.
int64_t KeptWords(const KernelProfile& p, const Schedule& s) {
  const int64_t element = p.costly_bytes + (s.staged > 0 ? 0 : p.loads_beside_costly_bytes);
  return CeilDiv(Product({element, ElementsOfRow(p, s), s.rows_per_thread}), 4);
}

// Whether a thread's runs of columns are one straight line of code.
bool Unrolled(const Schedule& s) { return s.persistent || TemplateOf(s).keeps_columns; }

bool WalksRows(const Schedule& s) { return TemplateOf(s).walk == Walk::kRows; }

// Whether what varies over columns alone stays in registers: where a thread needs it for several
// rows. A walk that keeps nothing loads it again.
bool KeepsColumns(const KernelProfile& p, const Schedule& s) {
  return !s.persistent || s.rows_per_thread > 1 || LoopsOverRows(p, s);
}

bool IsCut(const KernelProfile& p, const Schedule& s) {
  if (s.turns > 1) return true;
  return WalksRows(s) ? LoopsOverRows(p, s) : s.split > 1;
}

bool OfWideTiles(const Schedule& s) { return TemplateOf(s).transposes && s.vector_width > 1; }

// What no order of the instructions avoids: sums of columns, and the words alive at one element.
int64_t LeastRegisters(const RegisterCounts& counts) {
  return std::min(counts[static_cast<int>(RegisterCount::kColumnSums)] +
                      counts[static_cast<int>(RegisterCount::kLiveWords)],
                  kMostRegisters);
}

// What a thread of a row that a cluster shares keeps from stage to stage beside that, as it lies in
// memory: no compiler loads it again. The model of other kernels is fitted as it is. A thread that
// has a part of a tile keeps what it loaded, and makes the results of a turn before it stores them:
// 40 to 96 registers of nine kernels were within 8 of this (NVRTC 13.0, sm_90), and 127 of one of
// two turns. A thread of a wide tile has all that it loads before it evaluates the first point, and
// its results take the place of that: seven kernels of 32 to 60 registers were predicted 2 below to
// 16 above, one of 138 as 116.
int64_t KeptRegisters(const RegisterCounts& counts, const Schedule& s) {
  const auto count = [&](RegisterCount c) {
    return std::min(counts[static_cast<int>(c)], kMostRegisters);
  };
  if (OfWideTiles(s)) {
    const int64_t stored = WideTiles::kRows * count(RegisterCount::kStoredVector);
    return std::max(count(RegisterCount::kLoadedHeld), stored) +
           2 * count(RegisterCount::kLiveWords) + 14;
  }
  if (TemplateOf(s).tiles && s.persistent) {
    return count(RegisterCount::kLoadedHeld) + int64_t{WideTiles::kRows} * s.vector_width + 10;
  }
  if (!s.persistent || s.cluster == 1) return 0;
  return LeastRegisters(counts) + count(RegisterCount::kCarriedHeld);
}

// What a thread has that keeps costly values: them, and what one element takes.
int64_t RegistersForCostly(const KernelProfile& p, const Schedule& s,
                           const RegisterCounts& counts) {
  if (!KeepsCostly(p, s)) return 0;
  return LeastRegisters(counts) + KeptWords(p, s) + kRegistersForAddresses;
}

// The registers that a thread is taken to want: as expected, `kept` at least; with the margin where
// that is more than the cap and the slack does not cover it.
int64_t WantedRegisters(const Schedule& s, const RegisterCounts& counts, int64_t kept, int64_t cap,
                        const DeviceSpec& device, Footprint& f) {
  const LaunchKind launch = MainLaunch(s);
  const RegisterModel& model = device.registers[static_cast<int>(launch)];
  const int64_t expected = std::max(ExpectedRegisters(launch, counts, s, device), kept);
  const int64_t guards = std::min(counts[static_cast<int>(RegisterCount::kGuards)], kMostRegisters);
  const bool in_shared = s.staged > 0 && !StagesPoints(s);
  const int64_t margin = in_shared ? model.staged_spill_margin_ppm : model.spill_margin_ppm;
  const int64_t cautious =
      expected + expected * margin / 1'000'000 + guards * model.spill_guards_milli / 1000;
  if (cautious <= cap) return expected;
  const RegisterModel::Slack& slack = in_shared ? model.staged_slack : model.slack;
  const int64_t covered = cap + cap * slack.share_ppm / 1'000'000;
  if (!device.trusts_slack || slack.share_ppm == 0 || expected > covered ||
      LeastRegisters(counts) > cap)
    return cautious;
  f.doubtful_bytes = 4 * MulDiv(cautious - cap, slack.spill_chance_ppm, 1'000'000);
  return std::min(expected, cap);
}

void FillRegisters(const KernelProfile& p, const Schedule& s, const DeviceSpec& device,
                   Footprint& f) {
  const int64_t cap = RegisterCap(s.threads, device);
  const RegisterCounts counts = CountForRegisters(p, s, MainLaunch(s));
  const int64_t wanted =
      WantedRegisters(s, counts, RegistersForCostly(p, s, counts), cap, device, f);
  f.registers_wanted = static_cast<int>(std::min(wanted, kMostRegisters));
  f.registers = static_cast<int>(std::min(wanted, cap));
  f.spill_bytes = 4 * std::max<int64_t>(wanted - cap, 0);
}

int64_t StagedBytes(const KernelIr& ir, const KernelProfile& p, const Schedule& s) {
  const KernelTemplate& t = TemplateOf(s);
  return s.staged == 0 || t.staged_bytes == nullptr ? 0 : t.staged_bytes(ir, p, s);
}

void FillResidency(const Schedule& s, const DeviceSpec& device, Footprint& f) {
  const int64_t warps = CeilDiv(s.threads, device.warp);
  const int64_t warp_registers =
      CeilDiv(f.registers * device.warp, device.register_granule) * device.register_granule;
  f.blocks_per_sm = std::min({device.max_blocks_per_sm, device.max_threads_per_sm / s.threads,
                              device.registers_per_sm / (warp_registers * warps)});
  const int64_t shared = f.shared_bytes + f.staged_bytes;
  if (shared >
      (f.staged_bytes > 0 ? device.staged_bytes_per_block : device.shared_bytes_per_block)) {
    f.blocks_per_sm = 0;
  }
  if (shared > 0) {
    f.blocks_per_sm = std::min(
        f.blocks_per_sm, device.shared_bytes_per_sm / (shared + device.shared_bytes_reserved));
  }
}

// Partial results of the splits that a thread of a finalize launch loads at once.
int64_t PartialWordsUnderWay(const KernelProfile& p, const Schedule& s) {
  int64_t bytes = 0;
  for (const auto& [type, sums] : p.column_accumulators) bytes += sums * SizeBytes(type);
  return bytes == 0 ? 0 : PartialsAtOnce(s.split, bytes) * bytes / 4;
}

}  // namespace

bool KeepsCostly(const KernelProfile& p, const Schedule& s) {
  const KernelTemplate& t = TemplateOf(s);
  if (p.costly.empty() || !s.persistent || (s.staged > 0 && t.keeps_columns)) return false;
  if (t.walk != Walk::kRows || t.holds || t.tiles) return false;
  return KeptWords(p, s) <= kMostKeptWords;
}

LaunchKind MainLaunch(const Schedule& s) { return TemplateOf(s).main_launch(s); }

// The emitters keep column sums and what varies over columns alone for all columns of a thread;
// persistent walks keep what several stages read for all elements; everything else lives for one
// vector. Unrolled runs of columns let the compiler load ahead.
RegisterCounts CountForRegisters(const KernelProfile& p, const Schedule& s, LaunchKind launch) {
  RegisterCounts counts = p.counts;
  const bool main = launch == MainLaunch(s);
  const int64_t width = main ? s.vector_width : 1;
  const int64_t rows = main ? s.rows_per_thread : 1;
  const int64_t columns = main && WalksRows(s) ? ElementsOfRow(p, s) : width;
  const int64_t held = columns * rows;
  Schedule launched = s;
  launched.rows_per_thread = static_cast<int>(rows);
  const int64_t ahead = TemplateOf(s).points_of_thread(p, launched).vectors;
  const int64_t kept = s.turns > 1 ? p.pass_columns.loaded_bytes : 0;
  At(counts, RegisterCount::kLoadedVector) = CeilDiv((p.loaded_bytes - kept) * width * ahead, 4);
  At(counts, RegisterCount::kLoadedHeld) = launch == LaunchKind::kColumnFinalize
                                               ? PartialWordsUnderWay(p, s)
                                           : OfWideTiles(s) ? CeilDiv(p.wide_tile_bytes, 4)
                                                            : CeilDiv(p.loaded_bytes * held, 4);
  At(counts, RegisterCount::kStoredVector) = CeilDiv(p.stored_bytes * width, 4);
  // Vectors that are kept are kept as they lie in memory; of rows in shared memory none are.
  At(counts, RegisterCount::kCarriedHeld) =
      At(counts, RegisterCount::kCarriedHeld) * held +
      (width > 1 ? CeilDiv(p.carried_load_bytes * held, 4) : p.carried_loads * held);
  const bool sums = launch == LaunchKind::kScatterSum;
  if (main && s.staged > 0 && !sums) At(counts, RegisterCount::kCarriedHeld) = 0;
  At(counts, RegisterCount::kColumnSums) *= columns;
  At(counts, RegisterCount::kColumnLoads) *= main && !KeepsColumns(p, s) ? 0 : columns;
  if (s.turns > 1) {
    At(counts, RegisterCount::kColumnLoads) = p.pass_columns.words * width;
    At(counts, RegisterCount::kStores) -= p.pass_columns.stores;
  }
  At(counts, RegisterCount::kRowSums) *= rows;
  At(counts, RegisterCount::kGuards) *= Unrolled(s) ? held : width * rows;
  At(counts, RegisterCount::kStaged) = main && s.staged > 0;
  At(counts, RegisterCount::kRuns) = columns / width;
  At(counts, RegisterCount::kSplit) = main ? IsCut(p, s) : FinalizeThreadRows(s.split) > 1;
  return counts;
}

int64_t ExpectedRegisters(LaunchKind launch, const RegisterCounts& counts, const Schedule& s,
                          const DeviceSpec& device) {
  const RegisterModel& model = device.registers[static_cast<int>(launch)];
  const auto count = [&](RegisterCount c) {
    return std::min(counts[static_cast<int>(c)], kMostRegisters);
  };
  const RegisterModel::Long& longs = model.long_kernels;
  const bool is_long = longs.above > 0 && count(RegisterCount::kInstructions) > longs.above &&
                       s.vector_width == 1 && s.rows_per_thread == 1;
  int64_t milli = 0;
  if (is_long) {
    milli = longs.one_milli + longs.stores_milli * count(RegisterCount::kStores) +
            longs.live_words_milli * count(RegisterCount::kLiveWords);
  } else {
    for (int i = 0; i < kNumRegisterCounts; ++i)
      milli += model.milli[i] * std::min(counts[i], kMostRegisters);
  }
  return std::clamp(std::max((milli + 500) / 1000, KeptRegisters(counts, s)), device.base_registers,
                    kMostRegisters);
}

int64_t RegisterCap(int threads, const DeviceSpec& device) {
  const int64_t granule = device.register_granule / device.warp;
  return std::min(device.max_registers,
                  device.registers_per_sm / std::max(threads, 1) / granule * granule);
}

int64_t SharedBytes(const KernelIr& ir, const KernelProfile& p, const Schedule& s, int64_t launch) {
  const KernelTemplate& t = TemplateOf(s);
  return t.shared_bytes == nullptr ? 0 : t.shared_bytes(ir, p, s, launch);
}

Footprint PredictFootprint(const KernelIr& ir, const KernelProfile& p, const Schedule& s,
                           const DeviceSpec& device) {
  const KernelTemplate& t = TemplateOf(s);
  Footprint f;
  const PointsOfThread points = t.points_of_thread(p, s);
  f.elements = points.at_once;
  f.bytes_in_flight = BytesUnderWay(p, s, points);
  FillRegisters(p, s, device, f);
  f.shared_bytes = SharedBytes(ir, p, s, MainLaunchNumber(ir, s));
  f.staged_bytes = StagedBytes(ir, p, s);
  FillResidency(s, device, f);
  return f;
}

void UseCompiled(const CompiledResources& compiled, const Schedule& s, const DeviceSpec& device,
                 Footprint& f) {
  f.registers = static_cast<int>(std::clamp<int64_t>(compiled.registers, 1, device.max_registers));
  f.spill_bytes = compiled.spill_bytes;
  f.doubtful_bytes = 0;
  f.registers_wanted = f.registers + static_cast<int>(CeilDiv(compiled.spill_bytes, 4));
  f.shared_bytes = compiled.shared_bytes;
  FillResidency(s, device, f);
}

}  // namespace retrograd
