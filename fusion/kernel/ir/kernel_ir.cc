#include "fusion/kernel/ir/kernel_ir.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace retrograd {
namespace {

std::string PrintAxes(AxisMask axes) {
  std::vector<std::string> names;
  for (int a = 0; a < kMaxAxes; ++a) {
    if (axes >> a & 1) names.push_back(absl::StrCat("a", a));
  }
  return absl::StrCat("(", absl::StrJoin(names, ","), ")");
}

std::string PrintGuards(absl::Span<const Guard> guards) {
  std::string out;
  for (const Guard& g : guards) {
    absl::StrAppend(&out, " if ", g.begin, "<=", g.expr.Print(), "<", g.end);
  }
  return out;
}

std::string PrintOperands(const Instr& instr) {
  std::string out;
  for (int o : instr.operands) absl::StrAppend(&out, " v", o);
  return out;
}

std::string PrintLoad(const Instr& instr) {
  std::string out = absl::StrCat("load b", instr.buffer, "[", instr.offset.Print());
  for (const Indirect& i : instr.indirect) {
    absl::StrAppend(&out, " + ", i.stride, "*wrap(v", i.instr, ", ", i.extent, ")");
  }
  absl::StrAppend(&out, "]", PrintGuards(instr.guards));
  if (!instr.guards.empty() || !instr.indirect.empty()) {
    absl::StrAppend(&out, absl::StrFormat(" else %.17g", instr.fill));
  }
  return out;
}

std::string PrintInstr(const Instr& instr) {
  switch (instr.kind) {
    case InstrKind::kLoad: return PrintLoad(instr);
    case InstrKind::kConstant: return absl::StrFormat("constant %.17g", instr.constant);
    case InstrKind::kIndex:
      return absl::StrFormat("index %.17g + %.17g*(%s)", instr.start, instr.step,
                             instr.offset.Print());
    case InstrKind::kPointwise:
    case InstrKind::kFold: return absl::StrCat(Name(instr.op), PrintOperands(instr));
    case InstrKind::kSelect:
      return absl::StrCat("select", PrintOperands(instr), PrintGuards(instr.guards));
    case InstrKind::kReduce:
      return absl::StrCat(Name(instr.op), PrintOperands(instr), " over ", PrintAxes(instr.reduced));
    case InstrKind::kScan:
      return absl::StrCat(Name(instr.op), PrintOperands(instr), " along ", PrintAxes(instr.reduced),
                          instr.reverse ? " reversed" : "");
  }
  return "";
}

}  // namespace

int64_t KernelIr::Points(AxisMask axes) const {
  int64_t points = 1;
  for (size_t a = 0; a < extents.size(); ++a) {
    if (axes >> a & 1) points *= extents[a];
  }
  return points;
}

std::string KernelIr::Print() const {
  std::string out = absl::StrCat("axes [", absl::StrJoin(extents, ","), "]\n");
  for (size_t b = 0; b < buffers.size(); ++b) {
    const Buffer& buffer = buffers[b];
    absl::StrAppend(&out, "b", b, " = ", buffer.written ? "output " : "input ", Name(buffer.dtype),
                    "[", buffer.elements, "] align=", buffer.alignment,
                    buffer.sorted_by_list ? " sorted\n" : "\n");
  }
  for (size_t i = 0; i < instrs.size(); ++i) {
    absl::StrAppend(&out, "v", i, " = ", PrintInstr(instrs[i]), " : ", Name(instrs[i].dtype), " ",
                    PrintAxes(instrs[i].axes), instrs[i].round ? " rounded" : "", "\n");
  }
  for (const Store& store : stores) {
    absl::StrAppend(&out, store.mode == StoreMode::kAdd ? "add" : "store", " b", store.buffer, "[",
                    store.offset.Print(), "] v", store.instr, "\n");
  }
  if (scatter.has_value()) {
    absl::StrAppend(&out, "scatter_add b", scatter->buffer, " sorted b", scatter->sorted, " src v",
                    scatter->src_instr, " rows ", PrintAxes(scatter->row_axes), " of ",
                    scatter->table_rows, scatter->in_order ? " in order" : "");
    if (scatter->base >= 0) absl::StrAppend(&out, " onto b", scatter->base);
    absl::StrAppend(&out, "\n");
  }
  return out;
}

}  // namespace retrograd
