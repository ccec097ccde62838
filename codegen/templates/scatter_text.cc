#include "codegen/templates/scatter_text.h"

#include <algorithm>

#include "codegen/print/launch_text.h"
#include "codegen/print/numbers/index_text.h"
#include "codegen/print/numbers/sized_number.h"
#include "fusion/kernel/ir/accesses/vector_access.h"

namespace retrograd {

ScatterText ScatterTextOf(const KernelBody& body) {
  const KernelIr& ir = body.ir;
  ScatterText s{.workspace = ScatterWorkspaceOf(ir),
                .table_rows = ir.scatter->table_rows,
                .width = body.schedule.vector_width,
                .threads = ChunkThreadsOf(ir, body.schedule.vector_width),
                .stored = ir.buffers[ir.scatter->buffer].dtype,
                .accumulator = AccumulatorType(ir.buffers[ir.scatter->buffer].dtype)};
  s.vectors = s.workspace.inner / s.width;
  if (ir.scatter->base >= 0) {
    const Buffer& base = ir.buffers[ir.scatter->base];
    const int64_t size = SizeBytes(base.dtype);
    s.onto = base.dtype;
    s.base_lanes = static_cast<int>(std::min<int64_t>(s.width, kMaxAccessBytes / size));
    while (base.alignment % (s.base_lanes * size) != 0) s.base_lanes /= 2;
  }
  return s;
}

int64_t ReachOf(const ScatterText& s, int64_t blocks) {
  const ScatterWorkspace& ws = s.workspace;
  return std::max({ws.outer * ws.chunks * 2 * ws.inner, blocks * kScatterThreads,
                   (s.table_vectors() + kScatterThreads * kScatterZeros) * s.width});
}

void ScatterText::PrintColumn(SourceWriter& out) const {
  if (workspace.inner <= 1) return;
  out.Line("const ", index, " i = n % ", Sized(vectors),
           width > 1 ? absl::StrCat(" * ", width) : "", ";");
}

void ScatterText::PrintColumnOfThread(SourceWriter& out) const {
  if (!threads.idle()) return PrintColumn(out);
  const std::string vector =
      absl::StrCat("n % ", Sized(threads.count()), " / ", threads.team, " * ", threads.fold,
                   " + rg_min(n % ", threads.team, ", ", threads.fold - 1, ")");
  out.Line("const ", index, " i = ", width > 1 ? absl::StrCat("(", vector, ") * ", width) : vector,
           ";");
}

void ScatterText::PrintSplit(int64_t middle, absl::string_view name, SourceWriter& out) const {
  PrintColumn(out);
  PrintSplit(middle, name, vectors, out);
}

void ScatterText::PrintSplit(int64_t middle, absl::string_view name, int64_t each,
                             SourceWriter& out) const {
  const std::string outside = each > 1 ? absl::StrCat("n / ", Sized(each)) : "n";
  if (workspace.outer > 1) {
    out.Line("const ", index, " o = ", outside, " / ", Sized(middle), ";");
    out.Line("const int ", name, " = static_cast<int>(", outside, " % ", Sized(middle), ");");
  } else {
    out.Line("const int ", name, " = static_cast<int>(", outside, ");");
  }
}

std::string ScatterText::Pair(absl::string_view position) const {
  return absl::StrCat(Sized(workspace.sorted.pairs()), " + 2 * (", position, ")");
}

std::string ScatterText::Key(absl::string_view position) const {
  return absl::StrCat("rg_load(", words, ", ", Pair(position), ")");
}

std::string ScatterText::Start(absl::string_view row) const {
  return absl::StrCat("rg_load(", words, ", ", Sized(workspace.sorted.starts()), " + ", row, ")");
}

std::string ScatterText::TableElement() const {
  const int64_t inner = workspace.inner;
  std::string at = absl::StrCat("static_cast<", index, ">(key)");
  if (workspace.outer > 1) at = absl::StrCat("(o * ", Sized(table_rows), " + ", at, ")");
  return inner > 1 ? absl::StrCat(at, " * ", Sized(inner), " + i") : at;
}

std::string ScatterText::PartialElement(absl::string_view chunk, absl::string_view slot) const {
  const ScatterWorkspace& ws = workspace;
  const std::string row =
      absl::StrCat("(",
                   ws.outer > 1 ? absl::StrCat("(o * ", Sized(ws.chunks), " + ", chunk, ")")
                                : absl::StrCat("static_cast<", index, ">(", chunk, ")"),
                   " * 2 + ", slot, ")");
  return absl::StrCat(row, ws.inner > 1 ? absl::StrCat(" * ", Sized(ws.inner), " + i") : "");
}

std::string ScatterText::Declare(absl::string_view name, int64_t count) const {
  return absl::StrCat(AccumulatorName(accumulator), " ", name, "[", count, "];");
}

bool ScatterText::TakesAccesses() const { return width * SizeBytes(stored) > kMaxAccessBytes; }

std::string ScatterText::Store(absl::string_view to, absl::string_view at) const {
  if (width == 1) return absl::StrCat("rg_store(", to, ", ", at, ", sum[0]);");
  return InAccesses(stored, [&](int lanes, absl::string_view from) {
    return absl::StrCat("rg_store_vec<", lanes, ">(", to, ", ", at, from, ", sum", from, ");");
  });
}

std::string ScatterText::StoreOnto(absl::string_view at) const {
  const std::string store = Store(table, at);
  if (!onto) return store;
  return absl::StrCat("{ ", ComputeName(*onto), " before[", width, "]; ", LoadBase(at, "before"),
                      " for (int j = 0; j < ", width, "; ++j) sum[j] += before[j]; ", store, " }");
}

std::string ScatterText::LoadBase(absl::string_view at, absl::string_view to) const {
  if (base_lanes == 1) {
    return absl::StrCat("for (int j = 0; j < ", width, "; ++j) (", to, ")[j] = rg_load(", base,
                        ", ", at, " + j);");
  }
  return InAccesses(base_lanes, [&](int lanes, absl::string_view from) {
    return absl::StrCat("rg_load_vec<", lanes, ">(", base, ", ", at, from, ", ", to, from, ");");
  });
}

std::string ScatterText::StorePartial(absl::string_view to, absl::string_view at) const {
  return InAccesses(accumulator, [&](int lanes, absl::string_view from) {
    return lanes > 1
               ? absl::StrCat("rg_store_vec<", lanes, ">(", to, ", ", at, from, ", sum", from, ");")
               : Store(to, at);
  });
}

std::string ScatterText::LoadPartial(absl::string_view at, absl::string_view to) const {
  return InAccesses(accumulator, [&](int lanes, absl::string_view from) {
    return lanes > 1 ? absl::StrCat("rg_load_vec<", lanes, ">(", partials, ", ", at, from, ", ", to,
                                    from, ");")
                     : absl::StrCat("*(", to, ") = rg_load(", partials, ", ", at, ");");
  });
}

std::string ScatterText::InAccesses(
    DType type, absl::FunctionRef<std::string(int lanes, absl::string_view from)> print) const {
  return InAccesses(std::min(width, kMaxAccessBytes / static_cast<int>(SizeBytes(type))), print);
}

std::string ScatterText::InAccesses(
    int lanes, absl::FunctionRef<std::string(int lanes, absl::string_view from)> print) const {
  std::string text = print(lanes, "");
  for (int from = lanes; from < width; from += lanes) {
    absl::StrAppend(&text, " ", print(lanes, absl::StrCat(" + ", from)));
  }
  return text;
}

}  // namespace retrograd
