// index_add into zeros, bitwise deterministic, in three launches:
//   sort     one block: stable radix sort of the (wrapped) indices, and where each table row begins
//   sum      a thread sums one inner column over a fixed chunk of sorted positions; a segment that
//            lies inside the chunk is stored, one that crosses its border leaves a partial
//   combine  a thread stores one element of each row that crosses chunks (partials in order) or
//            that no index names (zero)
// A chunk's partial stands in slot 0 if its segment begins at the chunk's first position, else in
// slot 1: a chunk has at most one of each that crosses a border.
#include "codegen/index_text.h"
#include "codegen/point_printer.h"
#include "codegen/templates.h"
#include "fusion/kernel/scatter_workspace.h"

namespace retrograd {
namespace {

constexpr int kSortThreads = 256;
constexpr int kBins = 1 << kSortDigitBits;
constexpr int kSumThreads = 256;

struct ScatterShape {
  ScatterWorkspace workspace;
  AxisMask outer = 0, rows = 0, inner = 0;
  int64_t table_rows = 0;
  DType accumulator = DType::kFp32;
};

ScatterShape ShapeOf(const KernelIr& ir) {
  ScatterShape s{.workspace = ScatterWorkspaceOf(ir),
                 .rows = ir.scatter->row_axes,
                 .table_rows = ir.scatter->table_rows,
                 .accumulator = AccumulatorType(ir.buffers[ir.scatter->buffer].dtype)};
  bool before = true;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    const AxisMask bit = AxisMask{1} << a;
    if ((s.rows & bit) != 0) {
      before = false;
    } else {
      (before ? s.outer : s.inner) |= bit;
    }
  }
  return s;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Keys of this thread's positions: where the first pass reads.
void PrintKeys(const ScatterShape& s, int64_t keys, int64_t order, LaunchText& launch,
               PointPrinter& printer) {
  const KernelIr& ir = launch.ir();
  SourceWriter& out = launch.out;
  const std::string w = launch.WorkspaceName("int32_t");
  const std::vector<int> instrs = printer.Needed({ir.scatter->index_instr});
  out.Open("for (int j = first; j < end; ++j)");
  printer.DeclareAxes(s.rows, printer.UsedAxes(instrs, {}, s.rows), "j");
  printer.Print({.instrs = instrs, .reductions = {}, .stores = {}, .level = s.rows, .keep = true});
  out.Line("int64_t key = ", printer.Ref(ir.scatter->index_instr), ";");
  out.Line("if (key < 0) key += ", s.table_rows, ";");
  out.Line("if (key < 0 || key >= ", s.table_rows, ") key = ", s.table_rows, ";");
  out.Line("rg_store(", w, ", ", keys, " + j, static_cast<int32_t>(key));");
  out.Line("rg_store(", w, ", ", order, " + j, j);");
  out.Close();
}

// One stable pass: counts[digit][thread] become first places, then every thread moves its own.
void PrintPasses(int passes, const std::string& w, SourceWriter& out) {
  out.Open("for (int pass = 0; pass < ", passes, "; ++pass)");
  out.Line("const int shift = pass * ", kSortDigitBits, ";");
  out.Line("const bool back = pass % 2 != ", passes % 2 == 0 ? 0 : 1, ";");
  out.Line("const int from_keys = back ? spare_keys : keys, to_keys = back ? keys : spare_keys;");
  out.Line(
      "const int from_order = back ? spare_order : order, to_order = back ? order : spare_order;");
  out.Line("int mine[", kBins, "];");
  out.Line("for (int d = 0; d < ", kBins, "; ++d) mine[d] = 0;");
  out.Line("for (int j = first; j < end; ++j) ++mine[(rg_load(", w, ", from_keys + j) >> shift) & ",
           kBins - 1, "];");
  out.Line("for (int d = 0; d < ", kBins, "; ++d) counts[d * ", kSortThreads, " + t] = mine[d];");
  out.Line("RG_BARRIER();");
  out.Line("int sum = 0;");
  out.Line("for (int n = 0; n < ", kBins, "; ++n) sum += counts[t * ", kBins, " + n];");
  out.Line("sums[t] = sum;");
  out.Line("RG_BARRIER();");
  out.Open("if (t == 0)");
  out.Line("int total = 0;");
  out.Open("for (int n = 0; n < ", kSortThreads, "; ++n)");
  out.Line("const int here = sums[n];");
  out.Line("sums[n] = total;");
  out.Line("total += here;");
  out.Close();
  out.Close();
  out.Line("RG_BARRIER();");
  out.Line("int place = sums[t];");
  out.Open("for (int n = 0; n < ", kBins, "; ++n)");
  out.Line("const int here = counts[t * ", kBins, " + n];");
  out.Line("counts[t * ", kBins, " + n] = place;");
  out.Line("place += here;");
  out.Close();
  out.Line("RG_BARRIER();");
  out.Line("for (int d = 0; d < ", kBins, "; ++d) mine[d] = counts[d * ", kSortThreads, " + t];");
  out.Open("for (int j = first; j < end; ++j)");
  out.Line("const int key = rg_load(", w, ", from_keys + j);");
  out.Line("const int to = mine[(key >> shift) & ", kBins - 1, "]++;");
  out.Line("rg_store(", w, ", to_keys + to, key);");
  out.Line("rg_store(", w, ", to_order + to, rg_load(", w, ", from_order + j));");
  out.Close();
  out.Line("RG_BARRIER();");
  out.Close();
}

// starts[r]: the first sorted position whose key is at least r.
void PrintStarts(const ScatterShape& s, const std::string& w, SourceWriter& out) {
  const int64_t rows = s.workspace.rows;
  out.Open("for (int k = first; k < end; ++k)");
  out.Line("const int key = rg_load(", w, ", keys + k);");
  out.Line("const int before = k == 0 ? -1 : rg_load(", w, ", keys + k - 1);");
  out.Line("for (int r = before + 1; r <= key; ++r) rg_store(", w, ", starts + r, k);");
  out.Close();
  out.Open("if (t == 0)");
  if (rows > 0) {
    out.Line("const int last = rg_load(", w, ", keys + ", rows - 1, ");");
  } else {
    out.Line("const int last = -1;");
  }
  out.Line("for (int r = last + 1; r <= ", s.table_rows, "; ++r) rg_store(", w, ", starts + r, ",
           rows, ");");
  out.Close();
}

Kernel EmitSort(const ScatterShape& s, const KernelBody& body, Dialect dialect) {
  LaunchText launch(body, dialect, kSortThreads, 1);
  PointPrinter printer(&launch, 1);
  SourceWriter& out = launch.out;
  const ScatterWorkspace& ws = s.workspace;
  const int passes = SortPasses(s.table_rows);
  const std::string w = launch.WorkspaceName("int32_t");
  launch.Shared(DType::kInt32, "counts", kBins * kSortThreads);
  launch.Shared(DType::kInt32, "sums", kSortThreads);
  out.SetDepth(1);
  out.Line("const int keys = ", ws.keys / 4, ", order = ", ws.order / 4, ";");
  out.Line("const int spare_keys = ", ws.spare_keys / 4, ", spare_order = ", ws.spare_order / 4,
           ";");
  out.Line("const int starts = ", ws.starts / 4, ";");
  out.Line("const int t = RG_THREAD;");
  const int64_t piece = CeilDiv(ws.rows, kSortThreads);
  out.Line("const int first = rg_min(t * ", piece, ", ", ws.rows, ");");
  out.Line("const int end = rg_min(first + ", piece, ", ", ws.rows, ");");
  // The last pass must arrive in keys and order.
  const bool start_in_spare = passes % 2 != 0;
  PrintKeys(s, (start_in_spare ? ws.spare_keys : ws.keys) / 4,
            (start_in_spare ? ws.spare_order : ws.order) / 4, launch, printer);
  PrintPasses(passes, w, out);
  PrintStarts(s, w, out);
  return launch.Finish("sort");
}

// The table's element for (o, key, i).
std::string TableElement(const ScatterShape& s, absl::string_view row, absl::string_view index) {
  const int64_t inner = s.workspace.inner;
  std::string at = absl::StrCat("static_cast<", index, ">(", row, ")");
  if (s.workspace.outer > 1) at = absl::StrCat("(o * ", s.table_rows, " + ", at, ")");
  return inner > 1 ? absl::StrCat(at, " * ", inner, " + i") : at;
}

// "o", "c" and "i" from the thread's number n.
void PrintSplit(const ScatterShape& s, int64_t middle, absl::string_view name,
                absl::string_view index, SourceWriter& out) {
  const int64_t inner = s.workspace.inner;
  if (inner > 1) out.Line("const ", index, " i = n % ", inner, ";");
  const std::string outside = inner > 1 ? absl::StrCat("n / ", inner) : "n";
  if (s.workspace.outer > 1) {
    out.Line("const ", index, " o = ", outside, " / ", middle, ";");
    out.Line("const int ", name, " = static_cast<int>(", outside, " % ", middle, ");");
  } else {
    out.Line("const int ", name, " = static_cast<int>(", outside, ");");
  }
}

std::string PartialElement(const ScatterShape& s, absl::string_view chunk, absl::string_view slot,
                           absl::string_view index) {
  const ScatterWorkspace& ws = s.workspace;
  const std::string row =
      absl::StrCat("(",
                   ws.outer > 1 ? absl::StrCat("(o * ", ws.chunks, " + ", chunk, ")")
                                : absl::StrCat("static_cast<", index, ">(", chunk, ")"),
                   " * 2 + ", slot, ")");
  return absl::StrCat(ws.partials / SizeBytes(s.accumulator), " + ", row,
                      ws.inner > 1 ? absl::StrCat(" * ", ws.inner, " + i") : "");
}

Kernel EmitSum(const ScatterShape& s, const KernelBody& body, Dialect dialect) {
  const ScatterWorkspace& ws = s.workspace;
  const int64_t threads = ws.outer * ws.chunks * ws.inner;
  LaunchText launch(body, dialect, kSumThreads, CeilDiv(threads, kSumThreads));
  launch.UseWideIndexAbove(
      std::max(threads + kSumThreads,
               ws.partials / SizeBytes(s.accumulator) + ws.outer * ws.chunks * 2 * ws.inner));
  PointPrinter printer(&launch, 1);
  const KernelIr& ir = body.ir;
  SourceWriter& out = launch.out;
  const absl::string_view index = launch.index_type();
  const std::string w = launch.WorkspaceName("int32_t");
  const std::string partials = launch.WorkspaceName(StorageName(s.accumulator));
  const std::string table = launch.BufferName(ir.scatter->buffer);
  const absl::string_view type = AccumulatorName(s.accumulator);
  out.SetDepth(1);
  out.Line("const ", index, " n = static_cast<", index, ">(RG_BLOCK) * ", kSumThreads,
           " + RG_THREAD;");
  out.Open("if (n < ", threads, ")");
  PrintSplit(s, ws.chunks, "c", index, out);
  out.Line("const int begin = c * ", kScatterChunk, ";");
  out.Line("const int end = rg_min(begin + ", kScatterChunk, ", ", ws.rows, ");");
  const std::vector<int> instrs = printer.Needed({ir.scatter->src_instr});
  const AxisMask used = printer.UsedAxes(instrs, {}, ir.all_axes());
  printer.DeclareAxes(s.outer, used, "o");
  printer.DeclareAxes(s.inner, used, "i");
  out.Line("int k = begin;");
  out.Open("while (k < end)");
  out.Line("const int key = rg_load(", w, ", ", ws.keys / 4, " + k);");
  out.Line("if (key == ", s.table_rows, ") break;");
  out.Line("const int from = rg_load(", w, ", ", ws.starts / 4, " + key);");
  out.Line("const int to = rg_load(", w, ", ", ws.starts / 4, " + key + 1);");
  out.Line("const int slot = k == begin ? 0 : 1;");
  out.Line(type, " sum = 0;");
  out.Open("for (; k < rg_min(to, end); ++k)");
  out.Line("const int j = rg_load(", w, ", ", ws.order / 4, " + k);");
  printer.DeclareAxes(s.rows, used, "j");
  printer.Print(
      {.instrs = instrs, .reductions = {}, .stores = {}, .level = ir.all_axes(), .keep = true});
  out.Line("sum += ", printer.Ref(ir.scatter->src_instr), ";");
  out.Close();
  out.Open("if (from >= begin && to <= end)");
  out.Line("rg_store(", table, ", ", TableElement(s, "key", index), ", sum);");
  out.Else();
  out.Line("rg_store(", partials, ", ", PartialElement(s, "c", "slot", index), ", sum);");
  out.Close();
  out.Close();
  out.Close();
  return launch.Finish("sum");
}

Kernel EmitCombine(const ScatterShape& s, const KernelBody& body, Dialect dialect) {
  const ScatterWorkspace& ws = s.workspace;
  const int64_t threads = ws.outer * s.table_rows * ws.inner;
  LaunchText launch(body, dialect, kSumThreads, CeilDiv(threads, kSumThreads));
  launch.UseWideIndexAbove(
      std::max(threads + kSumThreads,
               ws.partials / SizeBytes(s.accumulator) + ws.outer * ws.chunks * 2 * ws.inner));
  SourceWriter& out = launch.out;
  const absl::string_view index = launch.index_type();
  const std::string w = launch.WorkspaceName("int32_t");
  const std::string partials = launch.WorkspaceName(StorageName(s.accumulator));
  const std::string table = launch.BufferName(body.ir.scatter->buffer);
  out.SetDepth(1);
  out.Line("const ", index, " n = static_cast<", index, ">(RG_BLOCK) * ", kSumThreads,
           " + RG_THREAD;");
  out.Open("if (n < ", threads, ")");
  PrintSplit(s, s.table_rows, "r", index, out);
  out.Line("const int from = rg_load(", w, ", ", ws.starts / 4, " + r);");
  out.Line("const int to = rg_load(", w, ", ", ws.starts / 4, " + r + 1);");
  out.Line("const int last = (to - 1) / ", kScatterChunk, ";");
  out.Line(AccumulatorName(s.accumulator), " sum = 0;");
  out.Line("bool mine = from == to;");
  out.Open("if (from < to && from / ", kScatterChunk, " != last)");
  out.Line("mine = true;");
  out.Open("for (int c = from / ", kScatterChunk, "; c <= last; ++c)");
  out.Line("const int slot = from > c * ", kScatterChunk, " ? 1 : 0;");
  out.Line("sum += rg_load(", partials, ", ", PartialElement(s, "c", "slot", index), ");");
  out.Close();
  out.Close();
  out.Line("if (mine) rg_store(", table, ", ", TableElement(s, "r", index), ", sum);");
  out.Close();
  return launch.Finish("combine");
}

}  // namespace

GroupKernels EmitScatterAdd(const KernelBody& body, Dialect dialect) {
  const ScatterShape s = ShapeOf(body.ir);
  GroupKernels group;
  group.launches.push_back(EmitSort(s, body, dialect));
  if (s.workspace.rows > 0 && s.workspace.outer * s.workspace.inner > 0) {
    group.launches.push_back(EmitSum(s, body, dialect));
  }
  group.launches.push_back(EmitCombine(s, body, dialect));
  return group;
}

}  // namespace retrograd
