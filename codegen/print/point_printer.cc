#include "codegen/print/point_printer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "codegen/print/index_text.h"
#include "codegen/print/sized_number.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/ir/shared_divisors.h"
#include "fusion/kernel/ir/small_exponentials.h"
#include "fusion/kernel/ir/streamed.h"
#include "fusion/kernel/ir/value_range.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

std::string Local(int instr) { return absl::StrCat("v", instr); }

std::string Cast(absl::string_view type, absl::string_view value) {
  return absl::StrCat("static_cast<", type, ">(", value, ")");
}

// A bool becomes a number by a choice: conversions from integers are an eighth as fast.
std::string Converted(DType from, DType to, absl::string_view value, Dialect dialect) {
  if (from != DType::kBool || !IsFloat(to)) return Cast(ComputeName(to), value);
  return absl::StrCat("(", value, " ? ", Literal(1, to, dialect), " : ", Literal(0, to, dialect),
                      ")");
}

std::string If(absl::string_view condition, absl::string_view statement) {
  return condition.empty() ? std::string(statement)
                           : absl::StrCat("if (", condition, ") ", statement);
}

std::string And(absl::string_view a, absl::string_view b) {
  if (a.empty() || b.empty()) return absl::StrCat(a, b);
  return absl::StrCat(a, " && ", b);
}

// What the load's guards leave out is 0, all of whose bits are 0.
bool FillsZeros(const Instr& load) { return load.fill == 0 && !std::signbit(load.fill); }

}  // namespace

absl::string_view VectorStoreName(const KernelIr& ir, const Store& store) {
  return StoresWithinType(ir, store) ? "rg_store_vec_within" : "rg_store_vec";
}

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
      axis_names_(ir_.extents.size()),
      homes_(ir_.instrs.size()),
      staged_(ir_.instrs.size()),
      known_(ir_.instrs.size(), false),
      array_(ir_.instrs.size(), false),
      accumulators_(ir_.instrs.size()),
      reciprocals_(ir_.instrs.size(), -1),
      zero_where_small_(ZeroWhereSmall(ir_)) {
  for (size_t a = 0; a < axis_names_.size(); ++a) axis_names_[a] = absl::StrCat("a", a);
}

void PointPrinter::DeclareAxes(AxisMask mask, AxisMask used, absl::string_view number) {
  int64_t stride = 1;
  std::vector<std::string> lines;
  AxisMask outer = mask;  // axes of the mask outside of the current one
  for (int a = static_cast<int>(ir_.extents.size()) - 1; a >= 0; --a) {
    if ((mask >> a & 1) == 0) continue;
    outer &= ~(AxisMask{1} << a);
    const int64_t extent = std::max<int64_t>(ir_.extents[a], 1);
    if ((used >> a & 1) != 0 && extent > 1) {
      std::string text(number);
      if (stride > 1) absl::StrAppend(&text, " / ", Sized(stride));
      if (ir_.Points(outer) != 1) absl::StrAppend(&text, " % ", Sized(extent));
      lines.push_back(absl::StrCat("const ", launch_.index_type(), " a", a, " = ", text, ";"));
    }
    stride *= extent;
  }
  for (size_t i = lines.size(); i-- > 0;) out_.Line(lines[i]);
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

AxisMask PointPrinter::UsedAxes(const std::vector<int>& instrs, const std::vector<int>& stores,
                                AxisMask level) const {
  AxisMask used = 0;
  for (int i : instrs) {
    const Instr& instr = ir_.instrs[i];
    if (!staged_[i].array.empty() && !staged_[i].filling) continue;  // lies where the thread put it
    used |= instr.offset.axes();
    for (const Guard& g : instr.guards) used |= g.expr.axes();
  }
  for (int s : stores) {
    used |= ir_.stores[s].offset.axes();
    used |= level & ~ir_.instrs[ir_.stores[s].instr].axes;
  }
  return used;
}

std::vector<std::string> PointPrinter::NamesAt(int plus) const {
  std::vector<std::string> names = axis_names_;
  if (along_ < 0) return names;
  if (in_lane_loop_) {
    names[along_] = absl::StrCat("(", names[along_], " + j)");
  } else if (plus > 0) {
    names[along_] = absl::StrCat("(", names[along_], " + ", plus, ")");
  }
  return names;
}

std::string PointPrinter::Text(const IndexExpr& e) const {
  return IndexText(e, axis_names_, ir_.extents);
}

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
  std::string text = IndexText(load.offset, NamesAt(plus), ir_.extents);
  for (size_t n = 0; n < load.indirect.size(); ++n) {
    absl::StrAppend(&text, " + ", Sized(load.indirect[n].stride), " * i", i, "_", n);
  }
  return text;
}

// In a loop over lanes, lanes that guards leave out in every vector are named by their bits: a
// compiler does not know what divides a position.
std::string PointPrinter::GuardsText(const Instr& instr, int plus) const {
  if (!in_lane_loop_) return GuardText(instr.guards, NamesAt(plus), ir_.extents);
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
  return And(lanes, GuardText(open, NamesAt(plus), ir_.extents));
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
  const std::string position = IndexText(instr.offset, NamesAt(0), ir_.extents);
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

// --- loads and stores of several lanes -----------------------------------------------------------

// Packs on their way into shared memory, or out of it.
void PointPrinter::LoadStaged(int i) {
  const Instr& load = ir_.instrs[i];
  const StagedLoad& stage = staged_[i];
  const int w = LoadWidth(ir_, i, vectors_);
  const auto place = [&](int m) {
    return m == 0 ? stage.place : absl::StrCat(stage.place, " + ", m / w * stage.step);
  };
  if (stage.filling) {
    const std::string name = launch_.BufferName(load.buffer);
    for (int m = 0; m < width_; m += w) {
      out_.Line("rg_copy_ahead<", w, ">(", stage.array, ", ", place(m), ", ", name, ", ",
                OffsetText(i, m), ");");
    }
    return;
  }
  const std::string name = Local(i);
  out_.Line("rg_pack<", StorageName(ir_.buffers[load.buffer].dtype), ", ", w, "> ", name, "[",
            width_ / w, "];");
  for (int m = 0; m < width_; m += w) {
    out_.Line("rg_load_pack(", stage.array, ", ", place(m), ", ", name,
              m == 0 ? std::string() : absl::StrCat(" + ", m / w), ");");
  }
  homes_[i] = {.lane =
                   absl::StrCat("rg_lane(", name, "[", width_ > w ? absl::StrCat("j / ", w) : "0",
                                "], ", width_ > w ? absl::StrCat("j % ", w) : "j", ")")};
}

void PointPrinter::LoadVector(int i) {
  const Instr& load = ir_.instrs[i];
  if (!staged_[i].array.empty()) {
    LoadStaged(i);
    return;
  }
  const LoadForm form = FormOfLoad(ir_, i, vectors_);
  const int w = form.width;
  const absl::string_view way = form.shifted ? "_shifted" : LoadsOnce(ir_, load) ? "_once" : "";
  std::string base = homes_[i].base;
  if (homes_[i].lane.empty()) {
    out_.Line(ComputeName(load.dtype), " ", Local(i), "[", width_, "];");
    array_[i] = true;
    base = Local(i);
  }
  PrintIndices(i);
  const std::string name = launch_.BufferName(load.buffer);
  for (int m = 0; m < width_; m += w) {
    const std::string guards = AllGuards(i, m);
    if (!homes_[i].pack.empty()) {
      const std::string pack = m == 0 ? homes_[i].pack : absl::StrCat(homes_[i].pack, " + ", m / w);
      out_.Line(If(guards, absl::StrCat("rg_load_pack", way, "(", name, ", ", OffsetText(i, m),
                                        ", ", pack, ");")));
      if (!guards.empty()) out_.Line("else rg_clear(", pack, ");");
      continue;
    }
    const std::string to = m == 0 ? base : absl::StrCat(base, " + ", m);
    const std::string access = absl::StrCat("rg_load_vec", way, "<", w, ">(", name, ", ",
                                            OffsetText(i, m), ", ", to, ");");
    if (guards.empty()) {
      out_.Line(access);
      continue;
    }
    if (FillsZeros(load)) {
      // Zeros are loaded as zeros: a compiler that widens behind the branch keeps lanes as they lie
      // until they are used.
      out_.OpenScope();
      out_.Line("rg_pack<", StorageName(ir_.buffers[load.buffer].dtype), ", ", w, "> pack;");
      out_.Line("rg_clear(&pack);");
      out_.Line(If(guards, absl::StrCat("rg_load_pack", way, "(", name, ", ", OffsetText(i, m),
                                        ", &pack);")));
      out_.Line("for (int j = 0; j < ", w, "; ++j) (", to, ")[j] = rg_lane(pack, j);");
      out_.Close();
      continue;
    }
    out_.Open("if (", guards, ")");
    out_.Line(access);
    out_.Else();
    out_.Line("for (int j = 0; j < ", w, "; ++j) (", to,
              ")[j] = ", Literal(load.fill, load.dtype, launch_.dialect()), ";");
    out_.Close();
  }
}

void PointPrinter::LoadInterleaved(std::vector<int>* instrs) {
  std::vector<int> alone;  // what has no place yet
  for (int i : *instrs) {
    if (homes_[i].lane.empty() && staged_[i].array.empty()) alone.push_back(i);
  }
  for (const InterleavedRun& run : FindInterleavedLoads(ir_, alone, vectors_)) {
    const std::string packs = LoadRun(run);
    for (const auto& [i, element] : run.members) {
      array_[i] = true;
      const Instr& load = ir_.instrs[i];
      out_.Line(ComputeName(load.dtype), " ", Local(i), "[", width_, "];");
      for (int j = 0; j < width_; ++j) {
        const int e = element[j], w = run.width;
        const std::string lane =
            e < 0 ? Literal(load.fill, load.dtype, launch_.dialect())
                  : absl::StrCat("rg_lane(", packs, "[", e / w, "], ", e % w, ")");
        out_.Line(Local(i), "[", j, "] = ", lane, ";");
      }
      instrs->erase(std::find(instrs->begin(), instrs->end(), i));
    }
  }
}

// The name of the packs that hold the run.
std::string PointPrinter::LoadRun(const InterleavedRun& run) {
  const int first = run.members[0].number;
  const Buffer& buffer = ir_.buffers[ir_.instrs[first].buffer];
  const std::string packs = absl::StrCat("u", first);
  out_.Line("rg_pack<", StorageName(buffer.dtype), ", ", run.width, "> ", packs, "[",
            run.begin.size(), "];");
  const std::string guards = GuardText(run.guards, NamesAt(0), ir_.extents);
  for (size_t n = 0; n < run.begin.size(); ++n) {
    const std::string pack = absl::StrCat(packs, " + ", n);
    out_.Line(If(guards,
                 absl::StrCat("rg_load_pack(", launch_.BufferName(ir_.instrs[first].buffer), ", ",
                              IndexText(run.begin[n], NamesAt(0), ir_.extents), ", ", pack, ");")));
    if (!guards.empty()) out_.Line("else rg_clear(", pack, ");");
  }
  return packs;
}

int PointPrinter::PackWidth(int i) const {
  const Instr& load = ir_.instrs[i];
  return load.guards.empty() && load.indirect.empty() ? GuardedPackWidth(i) : 0;
}

int PointPrinter::GuardedPackWidth(int i) const {
  const Instr& load = ir_.instrs[i];
  return InLanes(i) && VectorLoad(i) && FillsZeros(load) ? FormOfLoad(ir_, i, vectors_).width : 0;
}

bool PointPrinter::VectorLoad(int i) const {
  const Instr& load = ir_.instrs[i];
  return load.kind == InstrKind::kLoad &&
         ComputeType(ir_.buffers[load.buffer].dtype) == ComputeType(load.dtype) &&
         FormOfLoad(ir_, i, vectors_).width > 1;
}

bool PointPrinter::VectorStore(int s) const {
  const Store& store = ir_.stores[s];
  const DType from = ir_.instrs[store.instr].dtype, to = ir_.buffers[store.buffer].dtype;
  return width_ > 1 && ComputeType(from) == ComputeType(to) &&
         LaneStride(ir_.stores[s].offset, vectors_) != 0 &&
         StoreWidth(ir_, ir_.stores[s], vectors_) > 1;
}

std::string PointPrinter::StoreCondition(int s, const Work& work) const {
  std::string condition = work.store_condition;
  const AxisMask missing = work.level & ~ir_.instrs[ir_.stores[s].instr].axes;
  for (size_t a = 0; a < ir_.extents.size(); ++a) {
    if ((missing >> a & 1) == 0 || ir_.extents[a] <= 1) continue;
    condition = And(condition, absl::StrCat(axis_names_[a], " == 0"));
  }
  return condition;
}

void PointPrinter::StoreLane(int s, const Work& work) {
  const Store& store = ir_.stores[s];
  const Buffer& buffer = ir_.buffers[store.buffer];
  const std::string name = launch_.BufferName(store.buffer);
  const std::string offset = IndexText(store.offset, NamesAt(0), ir_.extents);
  std::string value = Ref(store.instr);
  if (ComputeType(buffer.dtype) != ComputeType(ir_.instrs[store.instr].dtype)) {
    value = Cast(ComputeName(buffer.dtype), value);
  }
  if (store.mode == StoreMode::kAdd) {
    value = absl::StrCat("rg_load(", name, ", ", offset, ") + ", value);
  }
  out_.Line(If(StoreCondition(s, work),
               absl::StrCat("rg_store(", name, ", ", offset, ", ", value, ");")));
}

void PointPrinter::StoreVector(int s, const Work& work) {
  const Store& store = ir_.stores[s];
  const Buffer& buffer = ir_.buffers[store.buffer];
  const std::string name = launch_.BufferName(store.buffer);
  const int w = StoreWidth(ir_, store, vectors_);
  const std::string condition = StoreCondition(s, work);
  const bool once = StoresOnce(ir_, store) && !StoresWithinType(ir_, store);
  const absl::string_view way = once ? "rg_store_vec_once" : VectorStoreName(ir_, store);
  std::string base = absl::StrCat("o", s);
  if (store.mode == StoreMode::kStore) {
    base = homes_[store.instr].lane.empty() ? Local(store.instr) : homes_[store.instr].base;
  }
  if (!condition.empty()) out_.Open("if (", condition, ")");
  if (store.mode == StoreMode::kAdd) {
    out_.Line(ComputeName(buffer.dtype), " ", base, "[", width_, "];");
    for (int m = 0; m < width_; m += w) {
      out_.Line("rg_load_vec<", w, ">(", name, ", ",
                IndexText(store.offset, NamesAt(m), ir_.extents), ", ", base, " + ", m, ");");
    }
    in_lane_loop_ = true;
    out_.Line("for (int j = 0; j < ", width_, "; ++j) ", base, "[j] = ", base, "[j] + ",
              Ref(store.instr), ";");
    in_lane_loop_ = false;
  }
  for (int m = 0; m < width_; m += w) {
    out_.Line(way, "<", w, ">(", name, ", ", IndexText(store.offset, NamesAt(m), ir_.extents), ", ",
              base, m == 0 ? std::string() : absl::StrCat(" + ", m), ");");
  }
  if (!condition.empty()) out_.Close();
}

// Lanes change places into an array that lies as memory does.
void PointPrinter::StoreRun(const InterleavedRun& run, const Work& work) {
  const int first = run.members[0].number;
  const Store& store = ir_.stores[first];
  const bool within = std::all_of(run.members.begin(), run.members.end(), [&](const auto& m) {
    return StoresWithinType(ir_, ir_.stores[m.number]);
  });
  const std::string array = absl::StrCat("q", first);
  out_.Line(ComputeName(ir_.buffers[store.buffer].dtype), " ", array, "[", run.elements(), "];");
  for (const InterleavedRun::Member& m : run.members) {
    const int i = ir_.stores[m.number].instr;
    const std::string base = homes_[i].lane.empty() ? Local(i) : homes_[i].base;
    for (int j = 0; j < width_; ++j) {
      out_.Line(array, "[", m.element[j], "] = ", base, "[", j, "];");
    }
  }
  const std::string condition = StoreCondition(first, work);
  for (size_t n = 0; n < run.begin.size(); ++n) {
    out_.Line(If(condition, absl::StrCat(within ? "rg_store_vec_within" : "rg_store_vec", "<",
                                         run.width, ">(", launch_.BufferName(store.buffer), ", ",
                                         IndexText(run.begin[n], NamesAt(0), ir_.extents), ", ",
                                         array, " + ", n * run.width, ");")));
  }
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
