#include "codegen/print/point_printer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "codegen/print/numbers/index_text.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/point_text.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/ir/shared_divisors.h"
#include "fusion/kernel/ir/small_exponentials.h"
#include "fusion/kernel/ir/streamed.h"
#include "fusion/kernel/ir/value_range.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// A bool becomes a number by a choice: conversions from integers are an eighth as fast.
std::string Converted(DType from, DType to, absl::string_view value, Dialect dialect) {
  if (from != DType::kBool || !IsFloat(to)) return Cast(ComputeName(to), value);
  return absl::StrCat("(", value, " ? ", Literal(1, to, dialect), " : ", Literal(0, to, dialect),
                      ")");
}

}  // namespace

PointPrinter::PointPrinter(LaunchText* launch, int width)
    : PointPrinter(launch, VectorsOf(launch->ir(), width)) {}

PointPrinter::PointPrinter(LaunchText* launch, const Vectors& vectors)
    : launch_(*launch),
      ir_(launch->ir()),
      out_(launch->out),
      width_(vectors.width),
      vectors_(vectors),
      along_(vectors.axis),
      lane_varies_(LaneVaries(ir_, vectors_)),
      axes_(ir_.extents),
      homes_(ir_.instrs.size()),
      staged_(ir_.instrs.size()),
      known_(ir_.instrs.size(), false),
      array_(ir_.instrs.size(), false),
      accumulators_(ir_.instrs.size()),
      reciprocals_(ir_.instrs.size(), -1),
      zero_where_small_(ZeroWhereSmall(ir_)) {}

void PointPrinter::DeclareAxes(AxisMask mask, const AxisUse& used, absl::string_view number) {
  for (const std::string& line : axes_.Declare(mask, used, number, launch_.index_type())) {
    out_.Line(line);
  }
}

std::vector<int> PointPrinter::Needed(const std::vector<int>& roots) const {
  std::vector<bool> needed(ir_.instrs.size(), false);
  for (int r : roots) needed[r] = true;
  for (size_t i = ir_.instrs.size(); i-- > 0;) {
    if (!needed[i] || known_[i]) continue;
    for (int o : ir_.instrs[i].operands) needed[o] = true;
    for (const Indirect& ind : ir_.instrs[i].indirect) needed[ind.instr] = true;
  }
  std::vector<int> instrs;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (needed[i] && !known_[i] && ir_.instrs[i].kind != InstrKind::kConstant) {
      instrs.push_back(static_cast<int>(i));
    }
  }
  return instrs;
}

AxisUse PointPrinter::UsedAxes(const std::vector<int>& instrs, const std::vector<int>& stores,
                               AxisMask level) const {
  AxisUse used;
  for (int i : instrs) {
    const Instr& instr = ir_.instrs[i];
    if (!staged_[i].array.empty() && !staged_[i].filling) continue;  // lies where the thread put it
    used.AddOffset(instr.offset);
    for (const Guard& g : instr.guards) used.AddGuard(g.expr);
  }
  for (int s : stores) {
    used.AddOffset(ir_.stores[s].offset);
    used.AddCoordinates(level & ~ir_.instrs[ir_.stores[s].instr].axes);
  }
  return used;
}

AxisLane PointPrinter::LaneAt(int plus) const {
  if (along_ < 0) return {};
  return {.axis = along_,
          .plus = in_lane_loop_ ? "j"
                  : plus > 0    ? absl::StrCat(plus)
                                : std::string()};
}

std::string PointPrinter::Text(const IndexExpr& e) const { return axes_.Offset(e, {}); }

// --- values --------------------------------------------------------------------------------------

std::string PointPrinter::Ref(int i) const {
  const Instr& instr = ir_.instrs[i];
  if (instr.kind == InstrKind::kConstant && homes_[i].lane.empty()) {
    return SizedLiteral(Literal(instr.constant, instr.dtype, launch_.dialect()));
  }
  if (!homes_[i].lane.empty()) return homes_[i].lane;
  return array_[i] ? absl::StrCat(Local(i), "[j]") : Local(i);
}

std::string PointPrinter::Rounded(const Instr& instr, std::string value) const {
  if (!instr.round || !IsNarrowFloat(instr.dtype)) return value;
  return absl::StrCat("rg_round<", StorageName(instr.dtype), ">(", value, ")");
}

std::string PointPrinter::OffsetText(int i, int plus) const {
  const Instr& load = ir_.instrs[i];
  std::string text = axes_.Offset(load.offset, LaneAt(plus));
  for (size_t n = 0; n < load.indirect.size(); ++n) {
    absl::StrAppend(&text, " + ", Sized(load.indirect[n].stride), " * i", i, "_", n);
  }
  return text;
}

// In a loop over lanes, lanes that guards leave out in every vector are named by their bits: a
// compiler does not know what divides a position.
std::string PointPrinter::GuardsText(const Instr& instr, int plus) const {
  if (!in_lane_loop_) return GuardText(instr.guards, axes_.Coordinates(LaneAt(plus)), ir_.extents);
  const uint32_t all = (uint32_t{1} << width_) - 1;
  uint32_t never = 0;
  std::vector<uint32_t> varies;  // by guard: the lanes in which it may hold or not
  for (const Guard& g : instr.guards) {
    const std::vector<LaneTruth> truths = LaneTruths(g, vectors_, ir_.extents);
    varies.push_back(0);
    for (int j = 0; j < width_; ++j) {
      if (truths[j] == LaneTruth::kNever) never |= uint32_t{1} << j;
      if (truths[j] == LaneTruth::kVaries) varies.back() |= uint32_t{1} << j;
    }
  }
  std::vector<Guard> open;
  for (size_t n = 0; n < varies.size(); ++n) {
    if ((varies[n] & ~never) != 0) open.push_back(instr.guards[n]);
  }
  const std::string lanes = never == 0 ? "" : absl::StrCat("(", all & ~never, " >> j & 1) != 0");
  return And(lanes, GuardText(open, axes_.Coordinates(LaneAt(plus)), ir_.extents));
}

std::string PointPrinter::AllGuards(int i, int plus) const {
  const Instr& instr = ir_.instrs[i];
  std::string text = GuardsText(instr, plus);
  for (size_t n = 0; n < instr.indirect.size(); ++n) {
    const Home& index = homes_[instr.indirect[n].instr];
    if (index.row && index.certain) continue;
    const std::string row = absl::StrCat("i", i, "_", n);
    text = And(text, absl::StrCat(row, " >= 0"));
    if (index.row) continue;
    text = And(text, absl::StrCat(row, " < ", Sized(instr.indirect[n].extent)));
  }
  return text;
}

// Looked-up rows, counted from the end where negative.
void PointPrinter::PrintIndices(int i) {
  const Instr& load = ir_.instrs[i];
  for (size_t n = 0; n < load.indirect.size(); ++n) {
    if (homes_[load.indirect[n].instr].row) {
      out_.Line("const ", launch_.index_type(), " i", i, "_", n, " = ", Ref(load.indirect[n].instr),
                ";");
      continue;
    }
    const std::string index = Cast("int64_t", Ref(load.indirect[n].instr));
    out_.Line("const int64_t i", i, "_", n, " = ", index, " + (", Ref(load.indirect[n].instr),
              " < 0 ? ", Sized(load.indirect[n].extent), " : 0);");
  }
}

std::string PointPrinter::LoadText(int i) const {
  const Instr& load = ir_.instrs[i];
  const Buffer& buffer = ir_.buffers[load.buffer];
  const StagedLoad& stage = staged_[i];
  const bool shared = !stage.array.empty();
  const std::string element = absl::StrCat(shared ? stage.array : launch_.BufferName(load.buffer),
                                           ", ", shared ? stage.place : OffsetText(i, 0));
  const std::string guards = And(load_condition_, AllGuards(i, 0));
  const std::string fill = Literal(load.fill, load.dtype, launch_.dialect());
  const bool converts = ComputeType(buffer.dtype) != ComputeType(load.dtype);
  if (!guards.empty() && !converts) {
    const std::string otherwise = FillsZeros(load) ? "" : absl::StrCat(", ", fill);
    return absl::StrCat("rg_load_where(", guards, ", ", element, otherwise, ")");
  }
  const std::string value = absl::StrCat("rg_load(", element, ")");
  if (!converts) return value;
  const std::string converted = Converted(buffer.dtype, load.dtype, value, launch_.dialect());
  return guards.empty() ? converted : absl::StrCat(guards, " ? ", converted, " : ", fill);
}

std::string PointPrinter::IndexValueText(const Instr& instr) const {
  const std::string position = axes_.Offset(instr.offset, LaneAt(0));
  const absl::string_view type = ComputeName(instr.dtype);
  std::string value = Cast(type, position);
  if (instr.step != 1) {
    value = absl::StrCat(SizedLiteral(Literal(instr.step, instr.dtype, launch_.dialect())), " * ",
                         value);
  }
  if (instr.start != 0) {
    value = absl::StrCat(SizedLiteral(Literal(instr.start, instr.dtype, launch_.dialect())), " + ",
                         value);
  }
  return SizeBytes(instr.dtype) < 4 && !IsFloat(instr.dtype) ? Cast(type, value) : value;
}

std::string PointPrinter::PointwiseText(int i) const {
  const Instr& instr = ir_.instrs[i];
  const DType to = ComputeType(instr.dtype);
  if (instr.op == Op::cast || instr.kind == InstrKind::kReduce) {
    const std::string value = Ref(instr.operands[0]);
    const DType from = ComputeType(ir_.instrs[instr.operands[0]].dtype);
    if (from == to) return value;
    return to == DType::kBool ? absl::StrCat(value, " != 0")
                              : Converted(from, to, value, launch_.dialect());
  }
  if (reciprocals_[i] >= 0) {
    const std::string reciprocal = absl::StrCat("r", reciprocals_[i]);
    return instr.op == Op::div ? absl::StrCat(Ref(instr.operands[0]), " * ", reciprocal)
                               : reciprocal;
  }
  std::vector<std::pair<std::string, std::string>> operands;
  for (size_t o = 0; o < instr.operands.size(); ++o) {
    operands.push_back({absl::StrCat("$", o), Ref(instr.operands[o])});
  }
  if (zero_where_small_[i]) return absl::StrCat("rg_exp_or_zero(", Ref(instr.operands[0]), ")");
  std::string value = absl::StrReplaceAll(Info(instr.op).expr, operands);
  // Narrow integers are promoted to int by C arithmetic.
  return !IsFloat(to) && SizeBytes(to) < 4 && to != DType::kBool ? Cast(ComputeName(to), value)
                                                                 : value;
}

std::string PointPrinter::ValueText(int i) const {
  const Instr& instr = ir_.instrs[i];
  switch (instr.kind) {
    case InstrKind::kLoad: return LoadText(i);
    case InstrKind::kConstant:
      return SizedLiteral(Literal(instr.constant, instr.dtype, launch_.dialect()));
    case InstrKind::kIndex: return IndexValueText(instr);
    case InstrKind::kPointwise:
    case InstrKind::kReduce: return PointwiseText(i);  // a reduction over nothing copies
    case InstrKind::kFold: return absl::StrCat("f", i);
    case InstrKind::kScan: break;  // its template knows the value
    case InstrKind::kSelect: {
      const std::string guards = GuardsText(instr, 0);
      if (guards.empty()) return Ref(instr.operands[0]);
      return absl::StrCat(guards, " ? ", Ref(instr.operands[0]), " : ", Ref(instr.operands[1]));
    }
  }
  RG_CHECK(false);
}

void PointPrinter::Assign(int i, const std::string& value) {
  if (!homes_[i].lane.empty()) {
    out_.Line(homes_[i].lane, " = ", value, ";");
  } else if (array_[i]) {
    out_.Line(Local(i), "[j] = ", value, ";");
  } else {
    out_.Line("const ", ComputeName(ir_.instrs[i].dtype), " ", Local(i), " = ", value, ";");
  }
}

// A value that is only stored is rounded there.
bool PointPrinter::OnlyStored(int i) const {
  bool stored = false;
  for (const Store& store : ir_.stores) {
    if (store.instr != i) continue;
    if (store.mode != StoreMode::kStore || ir_.buffers[store.buffer].dtype != ir_.instrs[i].dtype) {
      return false;
    }
    stored = true;
  }
  if (ir_.scatter && ir_.scatter->src_instr == i) return false;
  return stored && std::none_of(ir_.instrs.begin(), ir_.instrs.end(), [&](const Instr& user) {
           return std::find(user.operands.begin(), user.operands.end(), i) != user.operands.end() ||
                  std::any_of(user.indirect.begin(), user.indirect.end(),
                              [&](const Indirect& ind) { return ind.instr == i; });
         });
}

void PointPrinter::FindSharedDivisors(const Work& work) {
  reciprocals_.assign(ir_.instrs.size(), -1);
  for (const std::vector<int>& of : SharedDivisors(ir_, work.instrs)) {
    // What is equal in all lanes stands before them.
    const auto equal = std::find_if(of.begin(), of.end(), [&](int i) { return !InLanes(i); });
    const int first = equal != of.end() ? *equal : of[0];
    for (int i : of) reciprocals_[i] = first;
  }
}

void PointPrinter::PrintReciprocal(int i) {
  if (reciprocals_[i] != i) return;
  out_.Line("const float r", i, " = 1 / ", Ref(ir_.instrs[i].operands.back()), ";");
}

// The fold of its operands, one after the other.
void PointPrinter::PrintFold(int i) {
  const Instr& fold = ir_.instrs[i];
  if (fold.kind != InstrKind::kFold) return;
  const std::string acc = absl::StrCat("f", i);
  const absl::string_view type = AccumulatorName(fold.dtype);
  for (size_t o = 0; o < fold.operands.size(); ++o) {
    const std::string value = Cast(type, Ref(fold.operands[o]));
    if (o == 0) {
      out_.Line(type, " ", acc, " = ", value, ";");
    } else {
      out_.Line(acc, " = ", Folded(fold, acc, value), ";");
    }
  }
}

void PointPrinter::Evaluate(int i) {
  PrintIndices(i);
  PrintReciprocal(i);
  PrintFold(i);
  Assign(i, OnlyStored(i) ? ValueText(i) : Rounded(ir_.instrs[i], ValueText(i)));
}

std::string PointPrinter::Folded(const Instr& reduction, absl::string_view acc,
                                 absl::string_view value) const {
  return absl::StrReplaceAll(Info(reduction.op).expr, {{"$0", acc}, {"$1", value}});
}

std::string PointPrinter::Identity(const Instr& reduction) const {
  return Literal(Info(reduction.op).identity, AccumulatorType(reduction.dtype), launch_.dialect());
}

void PointPrinter::Accumulate(int r) {
  const Instr& reduction = ir_.instrs[r];
  const int operand = reduction.operands[0];
  std::string value = Ref(operand);
  if (ComputeType(ir_.instrs[operand].dtype) != AccumulatorType(reduction.dtype)) {
    value = Cast(AccumulatorName(reduction.dtype), value);
  }
  out_.Line(accumulators_[r], " = ", Folded(reduction, accumulators_[r], value), ";");
}

// --- a point -------------------------------------------------------------------------------------

// Values that are equal in all lanes first, then whole vectors, then a loop over the lanes.
void PointPrinter::PrintLanes(const Work& work) {
  for (int i : work.instrs) array_[i] = false;
  for (int i : work.instrs) {
    if (!InLanes(i)) Evaluate(i);
  }
  std::vector<int> in_loop;
  for (int i : work.instrs) {
    if (!InLanes(i)) continue;
    if (VectorLoad(i)) {
      LoadVector(i);
    } else {
      in_loop.push_back(i);
    }
  }
  LoadInterleaved(&in_loop);
  // Arrays of their own: what outlives the loop over lanes, and what a vector store writes.
  std::vector<int> copied;  // equal in all lanes or standing elsewhere, but stored as a vector
  auto declare = [&](int i) {
    array_[i] = true;
    out_.Line(ComputeName(ir_.instrs[i].dtype), " ", Local(i), "[", width_, "];");
  };
  for (int i : in_loop) {
    if (work.keep && homes_[i].lane.empty()) declare(i);
  }
  std::vector<int> lane_stores, vector_stores, point_stores;
  for (int s : work.stores) {
    if (LaneStride(ir_.stores[s].offset, vectors_) == 0) {
      point_stores.push_back(s);
    } else {
      (VectorStore(s) ? vector_stores : lane_stores).push_back(s);
    }
  }
  const std::vector<InterleavedRun> runs = FindInterleavedStores(ir_, lane_stores, vectors_);
  std::vector<int> from_arrays = vector_stores;
  for (const InterleavedRun& run : runs) {
    for (const InterleavedRun::Member& m : run.members) {
      from_arrays.push_back(m.number);
      lane_stores.erase(std::find(lane_stores.begin(), lane_stores.end(), m.number));
    }
  }
  for (int s : from_arrays) {
    const Store& store = ir_.stores[s];
    const int i = store.instr;
    if (array_[i] || !homes_[i].base.empty()) continue;
    const bool here = std::find(in_loop.begin(), in_loop.end(), i) != in_loop.end();
    if (here) {
      declare(i);
    } else if (store.mode == StoreMode::kStore &&
               std::find(copied.begin(), copied.end(), i) == copied.end()) {
      copied.push_back(i);
    }
  }
  std::vector<std::string> spread;
  for (int i : copied) {  // "s4": v4 in every lane
    out_.Line(ComputeName(ir_.instrs[i].dtype), " s", i, "[", width_, "];");
    spread.push_back(Ref(i));
  }
  if (!in_loop.empty() || !lane_stores.empty() || !copied.empty() || !work.reductions.empty()) {
    launch_.OpenUnrolled("j", width_);
    in_lane_loop_ = true;
    for (int i : in_loop) Evaluate(i);
    for (int r : work.reductions) Accumulate(r);
    for (size_t c = 0; c < copied.size(); ++c) out_.Line("s", copied[c], "[j] = ", spread[c], ";");
    for (int s : lane_stores) StoreLane(s, work);
    in_lane_loop_ = false;
    out_.Close();
  }
  std::vector<Home> homes = homes_;
  for (int i : copied) {
    homes_[i] = {.lane = absl::StrCat("s", i, "[j]"), .base = absl::StrCat("s", i)};
  }
  for (int s : vector_stores) StoreVector(s, work);
  for (const InterleavedRun& run : runs) StoreRun(run, work);
  homes_ = std::move(homes);
  for (int s : point_stores) StoreLane(s, work);
}

void PointPrinter::Print(const Work& work) {
  FindSharedDivisors(work);
  if (width_ > 1) {
    PrintLanes(work);
    return;
  }
  for (int i : work.instrs) Evaluate(i);
  for (int r : work.reductions) Accumulate(r);
  for (int s : work.stores) StoreLane(s, work);
}

}  // namespace retrograd
