// The instructions of KernelWork: how often each is evaluated under a schedule, and what that
// takes.
#include <algorithm>
#include <bit>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "fusion/cost/kernel_work.h"
#include "fusion/kernel/ir/accesses/needed_lanes.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/held_tiles/tile_walk.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/row_walks.h"

namespace retrograd {
namespace {

// An instruction count for two aligned accesses of 16 bytes in place of one: a choice of words and
// the shifts, counted in sm_90 code.
constexpr int64_t kShiftSteps = 25;

// What a thread of a pass, or of a tile that transposes, does beside what it makes of its elements:
// it finds its place, an axis at a time, divides for addresses and guards, and addresses and packs
// what it stores. Fitted to the sm_90 code of passes by least squares.
constexpr int64_t kStepsOfThread = 11;
constexpr int64_t kStepsOfAxis = 6;
constexpr int64_t kStepsOfDivision = 3;
constexpr int64_t kStepsOfStore = 6;

// What an end of a row takes of the time of a vector, which has more elements but as many
// addresses: an estimate, tried on passes over rows of 180 and 196 elements.
constexpr int64_t kEndOfVectorPpm = 750'000;

// Adds the divisions and remainders in the expression, each once.
void AddDivisions(const IndexExpr& e, std::set<std::string>& divisions) {
  for (const IndexTerm& t : e.terms()) {
    if (t.kind == IndexTerm::kAxis) continue;
    if (!divisions.insert(absl::StrCat(int{t.kind}, "/", t.divisor, " ", t.inner->Print())).second)
      continue;
    AddDivisions(*t.inner, divisions);
  }
}

int64_t StepsOfThread(const KernelIr& ir) {
  std::set<std::string> divisions;
  for (const Instr& i : ir.instrs) {
    AddDivisions(i.offset, divisions);
    for (const Guard& g : i.guards) AddDivisions(g.expr, divisions);
  }
  for (const Store& s : ir.stores) AddDivisions(s.offset, divisions);
  const int64_t axes = std::max<int64_t>(std::ssize(ir.extents) - 1, 0);
  return kStepsOfThread + kStepsOfAxis * axes +
         kStepsOfDivision * static_cast<int64_t>(divisions.size()) +
         kStepsOfStore * static_cast<int64_t>(ir.stores.size());
}

// What a thread of a scatter does at each sorted position beside making the source: it reads the
// row and the place, tells whether the row ends, and adds. Counted in sm_90 code, with a tenth of
// the code that ends a row.
constexpr int64_t kScatterSteps = 20;

// The same where threads fold the columns of a position: at most a shuffle and an addition for each
// halving.
int64_t FoldSteps(const KernelIr& ir) {
  int64_t steps = 0;
  for (const Instr& instr : ir.instrs) {
    const auto folded = static_cast<uint64_t>(ir.Points(FoldedAxes(ir, instr)));
    if (folded > 1) steps += 2 * std::bit_width(folded - 1);
  }
  return steps;
}

// Integers of 64 bits are worked on in halves.
bool TakesWideIntegers(const KernelIr& ir, const Instr& instr) {
  if (instr.kind == InstrKind::kLoad) return false;
  return instr.dtype == DType::kInt64 ||
         std::any_of(instr.operands.begin(), instr.operands.end(),
                     [&](int o) { return ir.instrs[o].dtype == DType::kInt64; });
}

// What is left of a division for each element where all elements of a thread have one divisor: a
// compiler takes the reciprocal once and scales both sides. Counted in sm_90 code.
constexpr int64_t kStepsOfQuotient = 3;

bool DividesByConstant(const KernelIr& ir, const Instr& instr) {
  return instr.kind == InstrKind::kPointwise && instr.op == Op::div &&
         ir.instrs[instr.operands[1]].kind == InstrKind::kConstant;
}

// Whether neighbours along the fastest axis are divided by one number, in fp32.
bool DividesAlike(const KernelIr& ir, const Instr& instr) {
  if (instr.kind != InstrKind::kPointwise || instr.op != Op::div) return false;
  const int axis = FastestAxis(ir);
  return instr.dtype != DType::kFp64 && axis >= 0 && (instr.axes >> axis & 1) != 0 &&
         (ir.instrs[instr.operands[1]].axes >> axis & 1) == 0;
}

// Of the instructions that each stage needs, how many stages evaluate one; at least one does.
int64_t StagesAmong(const std::vector<std::vector<int>>& needed, size_t instr) {
  const int64_t stages =
      std::count_if(needed.begin(), needed.end(), [&](const std::vector<int>& of_stage) {
        return std::binary_search(of_stage.begin(), of_stage.end(), static_cast<int>(instr));
      });
  return std::max<int64_t>(stages, 1);
}

// Threads side by side along a row, where threads go by rows or columns.
int64_t LanesAcross(const Schedule& s) {
  const int64_t lanes =
      TemplateOf(s).walk == Walk::kRows ? LanesOfRow(s) : s.threads / std::max(s.rows_per_block, 1);
  return std::max<int64_t>(lanes, 1);
}

// The place of a schedule's width in arrays by width.
int WidthIndex(const Schedule& s) {
  return std::bit_width(static_cast<unsigned>(s.vector_width)) - 1;
}

}  // namespace

// Stages that evaluate an inner instruction, if none keeps anything.
int64_t KernelWork::StagesOf(const KernelProfile& p, size_t instr) {
  return p.inner[instr] ? StagesAmong(p.needed, instr) : 1;
}

// An instruction is evaluated wherever it stands in the code, even if its value is the same at many
// points; what every element of a vector shares is evaluated once a vector.
void KernelWork::CountEvaluations(const KernelIr& ir, const KernelProfile& p) {
  const int64_t simple = device_.rate_milli[static_cast<int>(CostClass::kSimple)];
  if (ir.scatter && simple > 0) {
    const int64_t steps = kScatterSteps + FoldSteps(ir);
    evaluations_.push_back({.repeat = Repeat::kPerVector,
                            .rate_milli = simple,
                            .once = steps,
                            .looped = steps,
                            .kept = steps,
                            .in_lanes = steps});
  }
  const bool by_points = TemplateOf(p.shape.kind).walk == Walk::kPoints;
  if (by_points && simple > 0) {
    const int64_t steps = StepsOfThread(ir);
    evaluations_.push_back({.repeat = Repeat::kPerVector,
                            .of_passes = true,
                            .rate_milli = simple,
                            .once = steps,
                            .looped = steps,
                            .kept = steps,
                            .in_lanes = steps});
  }
  // Of vectors of 16 bytes of narrow elements, or as wide as fill a row.
  const Vectors& widest = vectors_[std::min(std::countr_zero(static_cast<uint64_t>(row_ | 8)), 3)];
  const std::vector<int> lanes =
      by_points ? NeededLanes(ir, widest) : std::vector<int>(ir.instrs.size());
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind == InstrKind::kConstant) continue;
    CostClass cost = instr.kind == InstrKind::kPointwise ? Info(instr.op).cost : CostClass::kSimple;
    // The threads of rows have several elements of one, those of points vectors or one.
    const bool by_row = TemplateOf(p.shape.kind).walk == Walk::kRows && DividesAlike(ir, instr);
    if (DividesByConstant(ir, instr) || by_row) cost = CostClass::kSimple;
    int64_t rate = device_.rate_milli[static_cast<int>(cost)];
    if (rate == 0) continue;
    if (TakesWideIntegers(ir, instr)) rate = std::max<int64_t>(rate / device_.int64_steps, 1);
    if (instr.dtype == DType::kFp64) rate = std::max<int64_t>(rate * device_.fp64_ppm / kPpm, 1);
    const AxisMask axes =
        instr.kind == InstrKind::kReduce ? ir.instrs[instr.operands[0]].axes : instr.axes;
    const bool rows = (axes & shape_.row_axes) != 0, columns = (axes & shape_.column_axes) != 0;
    Evaluations here{.load = instr.kind == InstrKind::kLoad, .rate_milli = rate, .once = 1};
    const bool fold = instr.kind == InstrKind::kFold;
    const int64_t steps = fold ? std::max<int64_t>(std::ssize(instr.operands) - 1, 1)
                          : by_row && !DividesByConstant(ir, instr) ? kStepsOfQuotient
                                                                    : 1;
    if (by_points) {
      if (axes != 0 && (axes >> (ir.extents.size() - 1) & 1) != 0) here.once = points_;
      if (axes != 0 && here.once != points_) here.repeat = Repeat::kPerVector;
    } else if (p.stages.finalize[i] || axes == 0) {
      here.once = ir.Points(axes);
    } else if (tile_axes_ != 0 && columns && (tile_axes_ & ~axes) != 0) {
      here.once = ir.Points(axes);
    } else if (rows && columns) {
      here.once = shape_.rows * shape_.columns;
    } else {
      here.repeat = rows ? Repeat::kPerThread : Repeat::kPerColumn;
    }
    const bool each_point = by_points && here.once == points_;
    here.of_columns = by_points && axes != 0 && p.pass_columns.Keeps(instr);
    here.once = Saturated(here.once * steps);
    here.in_lanes = each_point ? MulDiv(here.once, lanes[i], widest.width) : here.once;
    if (by_points && cost == CostClass::kDivide && simple > 0 && DividesAlike(ir, instr)) {
      here.in_lanes = MulDiv(here.in_lanes, kStepsOfQuotient * rate, simple);
    }
    here.looped = here.once * StagesOf(p, i);
    here.kept = here.once * (p.inner[i] ? StagesAmong(p.needed_beside_costly, i) : 1);
    auto known = std::find_if(evaluations_.begin(), evaluations_.end(), [&](const Evaluations& e) {
      return e.repeat == here.repeat && e.load == here.load && !e.of_passes &&
             e.of_columns == here.of_columns && e.rate_milli == here.rate_milli;
    });
    if (known == evaluations_.end()) {
      evaluations_.push_back(here);
    } else {
      known->once = Saturated(known->once + here.once);
      known->in_lanes = Saturated(known->in_lanes + here.in_lanes);
      known->looped = Saturated(known->looped + here.looped);
      known->kept = Saturated(known->kept + here.kept);
    }
  }
}

int64_t KernelWork::Times(const Evaluations& e, const Schedule& s) const {
  if (e.of_passes && s.kind != Template::kPointwise && !TemplateOf(s).transposes) return 0;
  // What is kept from stage to stage is what was loaded, and costly values where they are few; the
  // rest is evaluated again.
  int64_t values = KeepsCostly(profile_, s) ? e.kept : e.looped;
  if (s.persistent && !HoldsRows(s) && e.load) values = e.once;
  if (s.vector_width > 1 && e.once > 0) values = MulDiv(values, e.in_lanes, e.once);
  if (e.of_columns) values = CeilDiv(values, s.turns);
  int64_t each = 1;
  switch (e.repeat) {
    case Repeat::kFixed: break;
    case Repeat::kPerVector: each = std::max<int64_t>(points_ / s.vector_width, 1); break;
    case Repeat::kPerThread:
      each = shape_.rows * (HoldsRows(s) ? s.cluster : std::max<int64_t>(ThreadsOfRow(s), 1));
      break;
    case Repeat::kPerColumn:
      each = (HoldsColumns(s) ? RowBlocks(s) : shape_.rows) * shape_.columns;
      break;
  }
  const int64_t times = MulDiv(values, each, 1);
  return e.load ? MulDiv(times / s.vector_width, address_terms_, 1) : times;
}

int64_t KernelWork::Shifts(const Schedule& s) const {
  int64_t shifts = 0;
  if (HoldsRows(s)) return shifts;
  for (const Access& a : accesses_) {
    if (FormUnder(a, s).shifted) shifts += a.bytes / kMaxAccessBytes * kShiftSteps;
  }
  return shifts;
}

int64_t KernelWork::EndsOfRow(const Schedule& s) const {
  return row_ % s.vector_width + s.vector_width;
}

// The threads of both ends of a row have one element, and a warp that has ends as well as vectors
// waits for both, one after the other.
int64_t KernelWork::UnderWayPpm(const Schedule& s) const {
  const int64_t width = s.vector_width;
  const KernelTemplate& t = TemplateOf(s);
  if (t.walk != Walk::kPoints && !t.tiles && !t.holds) {  // threads without columns have nothing
    const int64_t vectors = VectorsOfRow(s), lanes = LanesAcross(s);
    return MulDiv(vectors, kPpm, CeilDiv(vectors, lanes) * lanes);
  }
  if (width <= 1 || row_ % width == 0 || s.kind != Template::kPointwise) return kPpm;
  const int64_t places = row_ / width + EndsOfRow(s);
  const int64_t twice = places + std::min(places, EndsOfRow(s) + device_.warp - 1);
  return MulDiv(row_, kPpm, width * twice);
}

int64_t KernelWork::EndsPpm(const Schedule& s) const {
  const int64_t width = s.vector_width;
  const KernelTemplate& t = TemplateOf(s);
  if (width <= 1 || row_ % width == 0 || HoldsRows(s) || t.tiles || t.transposes) return kPpm;
  const int64_t ends = EndsOfRow(s);
  if (t.walk == Walk::kRows) {  // the threads of a row take one more turn
    const int64_t team = std::max<int64_t>(LanesOfRow(s), 1);
    const int64_t at_ends = CeilDiv(ends, team) * std::min<int64_t>(team, device_.warp);
    return MulDiv(row_ / width * width + at_ends, kPpm, row_);
  }
  // In a pass they stand beside vectors in a warp, which takes the time of both.
  const int64_t places = row_ / width + ends;
  const int64_t beside = std::min(places, ends + device_.warp - 1);
  return MulDiv(width, places * kPpm + beside * kEndOfVectorPpm, row_);
}

// Vectors of a row, or of the piece of it that a block has; without the ends, which EndsPpm counts.
int64_t KernelWork::VectorsOfRow(const Schedule& s) const {
  const bool by_row = TemplateOf(s).walk == Walk::kRows;
  const int64_t columns =
      by_row && TemplateOf(s).splits_rows ? CeilDiv(shape_.columns, s.split) : shape_.columns;
  return std::max<int64_t>(columns / s.vector_width, 1);
}

// A team of threads that has lanes side by side goes through so many vectors. In the last turn
// some of its threads have none. They compute for nothing beside others of their warp, and a warp
// without any vector ends its turn at once.
int64_t KernelWork::IdleInWarpsPpm(int64_t vectors, int64_t lanes) const {
  const int64_t turns = CeilDiv(vectors, lanes), last = vectors - (turns - 1) * lanes;
  const int64_t busy = std::min(lanes, CeilDiv(last, device_.warp) * device_.warp);
  return MulDiv((turns - 1) * lanes + busy, kPpm, vectors);
}

// Threads without columns in the last run of a row wait. Nobody computes in their place where a
// block that walks rows has an SM for itself.
int64_t KernelWork::IdlePpm(const Schedule& s) const {
  const KernelTemplate& t = TemplateOf(s);
  if (t.tiles) {  // all teams go through as many parts, which may reach out of the tile
    const TileParts& parts = tile_parts_[WidthIndex(s)];
    const int64_t teams = s.threads / kThreadsOfTileTeam;
    const int64_t turns = CeilDiv(parts.number, teams);
    return MulDiv(parts.idle_ppm, turns * teams, std::max<int64_t>(parts.number, 1));
  }
  if (t.holds || t.walk == Walk::kPoints) return kPpm;
  if (StagesAhead(s) && t.walk == Walk::kRows && !t.keeps_columns) {
    return MulDiv(ElementsOfRow(profile_, s) * LanesOfRow(s), kPpm,
                  std::max<int64_t>(shape_.columns, 1));
  }
  return IdleInWarpsPpm(VectorsOfRow(s), LanesAcross(s));
}

int64_t KernelWork::PsOf(int64_t results, int64_t rate_milli) const {
  return MulDiv(results, 1000 * kPsPerSecond / device_.sms / rate_milli, device_.clock_hz);
}

int64_t KernelWork::ComputePs(const Schedule& s) const {
  int64_t total = 0;
  if (ThreadsOfRow(s) > 1 && !TemplateOf(s).tiles) {
    const int64_t sums = static_cast<int64_t>(row_partials_.size() - column_partials_.size());
    const int64_t in_warp = HoldsRows(s) ? 0 : device_.warp_sum_steps;
    const int64_t steps =
        in_warp + (HoldsRows(s) || ThreadsOfRow(s) > device_.warp ? device_.block_sum_steps : 0);
    const int64_t times = MulDiv(shape_.rows * ThreadsOfRow(s), sums * steps, 1);
    total += PsOf(times, device_.rate_milli[static_cast<int>(CostClass::kSimple)]);
  }
  if (TemplateOf(s).tiles) {
    const int64_t turns = points_ / (kRowsOfTileThread * s.vector_width);
    const int64_t steps = MulDiv(turns, 2 * tile_shuffles_[WidthIndex(s)], 1);  // with the folds
    total += MulDiv(PsOf(steps, device_.rate_milli[static_cast<int>(CostClass::kSimple)]),
                    IdlePpm(s), kPpm);
  }
  for (const Evaluations& e : evaluations_) {
    int64_t ps = PsOf(Times(e, s), e.rate_milli);
    // What is the same for a whole row its threads compute once, whatever they have of it.
    if (e.repeat != Repeat::kPerThread) ps = MulDiv(MulDiv(ps, EndsPpm(s), kPpm), IdlePpm(s), kPpm);
    total += ps;
  }
  total += PsOf(Shifts(s), device_.rate_milli[static_cast<int>(CostClass::kSimple)]);
  return Saturated(total);
}

}  // namespace retrograd
