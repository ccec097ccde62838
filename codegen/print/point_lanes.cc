// PointPrinter: loads and stores of several lanes, by vectors, in runs or through shared memory.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codegen/print/numbers/index_text.h"
#include "codegen/print/point_printer.h"
#include "codegen/print/point_text.h"
#include "fusion/kernel/ir/streamed.h"
#include "fusion/kernel/ir/value_range.h"

namespace retrograd {

absl::string_view VectorStoreName(const KernelIr& ir, const Store& store) {
  return StoresWithinType(ir, store) ? "rg_store_vec_within" : "rg_store_vec";
}

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
  const std::string guards = GuardText(run.guards, axes_.Coordinates(LaneAt(0)), ir_.extents);
  for (size_t n = 0; n < run.begin.size(); ++n) {
    const std::string pack = absl::StrCat(packs, " + ", n);
    out_.Line(
        If(guards, absl::StrCat("rg_load_pack(", launch_.BufferName(ir_.instrs[first].buffer), ", ",
                                axes_.Offset(run.begin[n], LaneAt(0)), ", ", pack, ");")));
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
    condition = And(condition, absl::StrCat(axes_.Coordinates({})[a], " == 0"));
  }
  return condition;
}

void PointPrinter::StoreLane(int s, const Work& work) {
  const Store& store = ir_.stores[s];
  const Buffer& buffer = ir_.buffers[store.buffer];
  const std::string name = launch_.BufferName(store.buffer);
  const std::string offset = axes_.Offset(store.offset, LaneAt(0));
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
      out_.Line("rg_load_vec<", w, ">(", name, ", ", axes_.Offset(store.offset, LaneAt(m)), ", ",
                base, " + ", m, ");");
    }
    in_lane_loop_ = true;
    out_.Line("for (int j = 0; j < ", width_, "; ++j) ", base, "[j] = ", base, "[j] + ",
              Ref(store.instr), ";");
    in_lane_loop_ = false;
  }
  for (int m = 0; m < width_; m += w) {
    out_.Line(way, "<", w, ">(", name, ", ", axes_.Offset(store.offset, LaneAt(m)), ", ", base,
              m == 0 ? std::string() : absl::StrCat(" + ", m), ");");
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
                                         axes_.Offset(run.begin[n], LaneAt(0)), ", ", array, " + ",
                                         n * run.width, ");")));
  }
}

}  // namespace retrograd
