// index_add into zeros, bitwise deterministic, in several launches:
//   count, scan, place   a pass of a stable radix sort of the (wrapped) indices: how many of each
//            digit each piece of them has; where those go; and there they are put
//   starts   where each table row begins
//   sum      a thread sums one inner column over a fixed chunk of sorted positions; a segment that
//            lies inside the chunk is stored, one that crosses its border leaves a partial
//   combine  a thread stores one element of each row that crosses chunks (partials in order) or
//            that no index names (zero)
// A chunk's partial stands in slot 0 if its segment begins at the chunk's first position, else in
// slot 1: a chunk has at most one of each that crosses a border.
#include <utility>

#include "codegen/index_text.h"
#include "codegen/point_printer.h"
#include "codegen/templates.h"
#include "fusion/kernel/scatter_workspace.h"

namespace retrograd {
namespace {

constexpr int kBins = 1 << kSortDigitBits;
constexpr int kScanThreads = 256;
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

// Where a pass of the sort reads and writes, in words of the workspace. The last one writes where the
// sorted indices belong.
struct Pass {
  int number = 0;
  int64_t from_keys = 0, from_order = 0, to_keys = 0, to_order = 0;
};

Pass PassOf(const ScatterWorkspace& ws, int number, int passes) {
  Pass pass{number, ws.spare_keys / 4, ws.spare_order / 4, ws.keys / 4, ws.order / 4};
  if ((passes - number) % 2 == 0) {
    std::swap(pass.from_keys, pass.to_keys);
    std::swap(pass.from_order, pass.to_order);
  }
  return pass;
}

// "key": the wrapped index at position j; the number of table rows if it names none.
void PrintKey(const ScatterShape& s, PointPrinter& printer, SourceWriter& out) {
  const KernelIr& ir = printer.ir();
  const std::vector<int> instrs = printer.Needed({ir.scatter->index_instr});
  printer.DeclareAxes(s.rows, printer.UsedAxes(instrs, {}, s.rows), "j");
  printer.Print({.instrs = instrs, .reductions = {}, .stores = {}, .level = s.rows, .keep = true});
  out.Line("int64_t wrapped = ", printer.Ref(ir.scatter->index_instr), ";");
  out.Line("if (wrapped < 0) wrapped += ", s.table_rows, ";");
  out.Line("if (wrapped < 0 || wrapped >= ", s.table_rows, ") wrapped = ", s.table_rows, ";");
  out.Line("const int key = static_cast<int>(wrapped);");
}

// The piece's digits into a shared array: -1 behind the last index.
void OpenPiece(const ScatterShape& s, LaunchText& launch) {
  SourceWriter& out = launch.out;
  launch.Shared(DType::kInt32, "digits", kSortPiece);
  out.Line("const int first = RG_BLOCK * ", kSortPiece, ";");
  out.Open("for (int n = RG_THREAD; n < ", kSortPiece, "; n += ", kBins, ")");
  out.Line("const int j = first + n;");
  out.Line("digits[n] = -1;");
  out.Open("if (j < ", s.workspace.rows, ")");
}

void ClosePiece(int pass, SourceWriter& out) {
  out.Line("digits[n] = (key >> ", pass * kSortDigitBits, ") & ", kBins - 1, ";");
  out.Close();
  out.Close();
  out.Line("RG_BARRIER();");
}

// A thread counts one digit.
Kernel EmitCount(const ScatterShape& s, const Pass& pass, const KernelBody& body, Dialect dialect) {
  LaunchText launch(body, dialect, kBins, s.workspace.pieces);
  PointPrinter printer(&launch, 1);
  SourceWriter& out = launch.out;
  const std::string w = launch.WorkspaceName("int32_t");
  out.SetDepth(1);
  OpenPiece(s, launch);
  if (pass.number == 0) {
    PrintKey(s, printer, out);
    out.Line("rg_store(", w, ", ", pass.from_keys, " + j, key);");
    out.Line("rg_store(", w, ", ", pass.from_order, " + j, j);");
  } else {
    out.Line("const int key = rg_load(", w, ", ", pass.from_keys, " + j);");
  }
  ClosePiece(pass.number, out);
  out.Line("int count = 0;");
  out.Line("for (int n = 0; n < ", kSortPiece, "; ++n) count += digits[n] == RG_THREAD ? 1 : 0;");
  out.Line("rg_store(", w, ", ", s.workspace.counts / 4, " + RG_THREAD * ", s.workspace.pieces,
           " + RG_BLOCK, count);");
  return launch.Finish("count");
}

// Counts become first places, digit by digit and piece by piece.
Kernel EmitScan(const ScatterShape& s, const KernelBody& body, Dialect dialect) {
  LaunchText launch(body, dialect, kScanThreads, 1);
  SourceWriter& out = launch.out;
  const std::string w = launch.WorkspaceName("int32_t");
  launch.Shared(DType::kInt32, "sums", kScanThreads);
  const int64_t counts = s.workspace.counts / 4, all = kBins * s.workspace.pieces;
  const int64_t run = CeilDiv(all, kScanThreads);
  out.SetDepth(1);
  out.Line("const int first = rg_min(RG_THREAD * ", run, ", ", all, ");");
  out.Line("const int end = rg_min(first + ", run, ", ", all, ");");
  out.Line("int sum = 0;");
  out.Line("for (int n = first; n < end; ++n) sum += rg_load(", w, ", ", counts, " + n);");
  out.Line("sums[RG_THREAD] = sum;");
  out.Line("RG_BARRIER();");
  out.Open("if (RG_THREAD == 0)");
  out.Line("int total = 0;");
  out.Open("for (int n = 0; n < ", kScanThreads, "; ++n)");
  out.Line("const int here = sums[n];");
  out.Line("sums[n] = total;");
  out.Line("total += here;");
  out.Close();
  out.Close();
  out.Line("RG_BARRIER();");
  out.Line("int place = sums[RG_THREAD];");
  out.Open("for (int n = first; n < end; ++n)");
  out.Line("const int here = rg_load(", w, ", ", counts, " + n);");
  out.Line("rg_store(", w, ", ", counts, " + n, place);");
  out.Line("place += here;");
  out.Close();
  return launch.Finish("scan");
}

// A thread moves the indices of one digit, in their order.
Kernel EmitPlace(const ScatterShape& s, const Pass& pass, const KernelBody& body, Dialect dialect) {
  LaunchText launch(body, dialect, kBins, s.workspace.pieces);
  SourceWriter& out = launch.out;
  const std::string w = launch.WorkspaceName("int32_t");
  launch.Shared(DType::kInt32, "held_keys", kSortPiece);
  out.SetDepth(1);
  OpenPiece(s, launch);
  out.Line("const int key = rg_load(", w, ", ", pass.from_keys, " + j);");
  out.Line("held_keys[n] = key;");
  ClosePiece(pass.number, out);
  out.Line("int to = rg_load(", w, ", ", s.workspace.counts / 4, " + RG_THREAD * ",
           s.workspace.pieces, " + RG_BLOCK);");
  out.Open("for (int n = 0; n < ", kSortPiece, "; ++n)");
  out.Open("if (digits[n] == RG_THREAD)");
  out.Line("rg_store(", w, ", ", pass.to_keys, " + to, static_cast<int>(held_keys[n]));");
  out.Line("rg_store(", w, ", ", pass.to_order, " + to, rg_load(", w, ", ", pass.from_order,
           " + first + n));");
  out.Line("++to;");
  out.Close();
  out.Close();
  return launch.Finish("place");
}

// starts[r]: the first sorted position whose key is at least r.
Kernel EmitStarts(const ScatterShape& s, const KernelBody& body, Dialect dialect) {
  const ScatterWorkspace& ws = s.workspace;
  LaunchText launch(body, dialect, kSumThreads, CeilDiv(s.table_rows + 1, kSumThreads));
  SourceWriter& out = launch.out;
  const std::string w = launch.WorkspaceName("int32_t");
  out.SetDepth(1);
  out.Line("const int r = RG_BLOCK * ", kSumThreads, " + RG_THREAD;");
  out.Open("if (r <= ", s.table_rows, ")");
  out.Line("int low = 0, high = ", ws.rows, ";");
  out.Open("while (low < high)");
  out.Line("const int middle = low + (high - low) / 2;");
  out.Open("if (rg_load(", w, ", ", ws.keys / 4, " + middle) < r)");
  out.Line("low = middle + 1;");
  out.Else();
  out.Line("high = middle;");
  out.Close();
  out.Close();
  out.Line("rg_store(", w, ", ", ws.starts / 4, " + r, low);");
  out.Close();
  return launch.Finish("starts");
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
  const int passes = s.workspace.rows == 0 ? 0 : SortPasses(s.table_rows);
  for (int number = 0; number < passes; ++number) {
    const Pass pass = PassOf(s.workspace, number, passes);
    group.launches.push_back(EmitCount(s, pass, body, dialect));
    group.launches.push_back(EmitScan(s, body, dialect));
    group.launches.push_back(EmitPlace(s, pass, body, dialect));
  }
  group.launches.push_back(EmitStarts(s, body, dialect));
  if (s.workspace.rows > 0 && s.workspace.outer * s.workspace.inner > 0) {
    group.launches.push_back(EmitSum(s, body, dialect));
  }
  group.launches.push_back(EmitCombine(s, body, dialect));
  return group;
}

}  // namespace retrograd
