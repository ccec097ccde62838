#include "codegen/templates/scatter_text.h"

#include <algorithm>

#include "codegen/print/index_text.h"
#include "codegen/print/launch_text.h"
#include "codegen/print/sized_number.h"
#include "fusion/kernel/ir/vector_access.h"

namespace retrograd {

ScatterText ScatterTextOf(const KernelBody& body) {
  const KernelIr& ir = body.ir;
  ScatterText s{.workspace = ScatterWorkspaceOf(ir),
                .table_rows = ir.scatter->table_rows,
                .width = body.schedule.vector_width,
                .accumulator = AccumulatorType(ir.buffers[ir.scatter->buffer].dtype)};
  s.vectors = s.workspace.inner / s.width;
  return s;
}

int64_t ReachOf(const ScatterText& s, const Schedule& schedule) {
  const ScatterWorkspace& ws = s.workspace;
  return std::max({ws.outer * ws.chunks * 2 * ws.inner,
                   BlocksOfSums(ws, schedule) * kScatterThreads,
                   (s.table_vectors() + kScatterThreads * kScatterZeros) * s.width});
}

void ScatterText::PrintColumn(SourceWriter& out) const {
  if (workspace.inner <= 1) return;
  out.Line("const ", index, " i = n % ", Sized(vectors),
           width > 1 ? absl::StrCat(" * ", width) : "", ";");
}

void ScatterText::PrintSplit(int64_t middle, absl::string_view name, SourceWriter& out) const {
  PrintColumn(out);
  const std::string outside = vectors > 1 ? absl::StrCat("n / ", Sized(vectors)) : "n";
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

std::string ScatterText::Store(absl::string_view to, absl::string_view at) const {
  return width > 1 ? absl::StrCat("rg_store_vec<", width, ">(", to, ", ", at, ", sum);")
                   : absl::StrCat("rg_store(", to, ", ", at, ", sum[0]);");
}

std::string ScatterText::StorePartial(absl::string_view to, absl::string_view at) const {
  return InAccesses([&](int lanes, absl::string_view from) {
    return lanes > 1
               ? absl::StrCat("rg_store_vec<", lanes, ">(", to, ", ", at, from, ", sum", from, ");")
               : Store(to, at);
  });
}

std::string ScatterText::LoadPartial(absl::string_view at, absl::string_view to) const {
  return InAccesses([&](int lanes, absl::string_view from) {
    return lanes > 1 ? absl::StrCat("rg_load_vec<", lanes, ">(", partials, ", ", at, from, ", ", to,
                                    from, ");")
                     : absl::StrCat("*(", to, ") = rg_load(", partials, ", ", at, ");");
  });
}

std::string ScatterText::InAccesses(
    absl::FunctionRef<std::string(int lanes, absl::string_view from)> print) const {
  const int lanes = std::min(width, kMaxAccessBytes / static_cast<int>(SizeBytes(accumulator)));
  std::string text = print(lanes, "");
  for (int from = lanes; from < width; from += lanes) {
    absl::StrAppend(&text, " ", print(lanes, absl::StrCat(" + ", from)));
  }
  return text;
}

}  // namespace retrograd
