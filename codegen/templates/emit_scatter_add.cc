// segment_add into zeros, bitwise deterministic, in two launches:
//   sums     a thread sums a vector of inner columns over a fixed chunk of sorted positions, many
//   of
//            which it loads at once; a segment that lies inside the chunk is stored, one that
//            crosses its border leaves a partial. Further blocks write zeros into the rows that no
//            index names.
//   combine  a thread stores a vector of a row whose segment begins in its chunk and goes on in
//            others: their partials in order
// A chunk's partial stands in slot 0 if its segment begins at the chunk's first position, else in
// slot 1: a chunk has at most one of each that crosses a border.
#include <utility>

#include "codegen/print/index_text.h"
#include "codegen/print/point_printer.h"
#include "codegen/print/sized_number.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/templates/scatter_workspace.h"

namespace retrograd {
namespace {

constexpr int kSumThreads = 256;
constexpr int kPartialsAtOnce = 16;  // that a thread loads before it adds up the first

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct ScatterShape {
  ScatterWorkspace workspace;
  AxisMask outer = 0, rows = 0, inner = 0;
  int64_t table_rows = 0;
  int width = 1;           // inner columns of a thread
  int64_t vectors = 1;     // of a row
  int64_t sum_blocks = 0;  // of the launch of sums; behind them are those that write zeros
  DType accumulator = DType::kFp32;

  int64_t table_vectors() const { return workspace.outer * table_rows * vectors; }
};

ScatterShape ShapeOf(const KernelBody& body) {
  const KernelIr& ir = body.ir;
  ScatterShape s{.workspace = ScatterWorkspaceOf(ir),
                 .rows = ir.scatter->row_axes,
                 .table_rows = ir.scatter->table_rows,
                 .width = body.schedule.vector_width,
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
  const ScatterWorkspace& ws = s.workspace;
  s.vectors = ws.inner / s.width;
  s.sum_blocks = ws.empty() ? 0 : CeilDiv(ws.outer * ws.chunks * s.vectors, kSumThreads);
  return s;
}

// What the offsets of a launch reach.
int64_t Reach(const ScatterShape& s) {
  const ScatterWorkspace& ws = s.workspace;
  return std::max({ws.outer * ws.chunks * 2 * ws.inner, s.sum_blocks * kSumThreads,
                   (s.table_vectors() + kSumThreads * kScatterZeros) * s.width});
}

// "o", "c" (or whatever stands between outer and inner) and "i" from the number n of a vector.
void PrintSplit(const ScatterShape& s, int64_t middle, absl::string_view name,
                absl::string_view index, SourceWriter& out) {
  if (s.workspace.inner > 1) {
    out.Line("const ", index, " i = n % ", Sized(s.vectors),
             s.width > 1 ? absl::StrCat(" * ", s.width) : "", ";");
  }
  const std::string outside = s.vectors > 1 ? absl::StrCat("n / ", Sized(s.vectors)) : "n";
  if (s.workspace.outer > 1) {
    out.Line("const ", index, " o = ", outside, " / ", Sized(middle), ";");
    out.Line("const int ", name, " = static_cast<int>(", outside, " % ", Sized(middle), ");");
  } else {
    out.Line("const int ", name, " = static_cast<int>(", outside, ");");
  }
}

// The table's element for (o, key, i).
std::string TableElement(const ScatterShape& s, absl::string_view index) {
  const int64_t inner = s.workspace.inner;
  std::string at = absl::StrCat("static_cast<", index, ">(key)");
  if (s.workspace.outer > 1) at = absl::StrCat("(o * ", Sized(s.table_rows), " + ", at, ")");
  return inner > 1 ? absl::StrCat(at, " * ", Sized(inner), " + i") : at;
}

std::string PartialElement(const ScatterShape& s, absl::string_view chunk, absl::string_view slot,
                           absl::string_view index) {
  const ScatterWorkspace& ws = s.workspace;
  const std::string row =
      absl::StrCat("(",
                   ws.outer > 1 ? absl::StrCat("(o * ", Sized(ws.chunks), " + ", chunk, ")")
                                : absl::StrCat("static_cast<", index, ">(", chunk, ")"),
                   " * 2 + ", slot, ")");
  return absl::StrCat(row, ws.inner > 1 ? absl::StrCat(" * ", Sized(ws.inner), " + i") : "");
}

// A vector of accumulators into memory.
std::string StoreText(const ScatterShape& s, absl::string_view to, absl::string_view at,
                      absl::string_view value) {
  return s.width > 1 ? absl::StrCat("rg_store_vec<", s.width, ">(", to, ", ", at, ", ", value, ");")
                     : absl::StrCat("rg_store(", to, ", ", at, ", ", value, "[0]);");
}

class Sums {
 public:
  Sums(const ScatterShape& shape, const KernelBody& body, Dialect dialect)
      : s_(shape),
        ws_(shape.workspace),
        zero_blocks_(CeilDiv(shape.table_vectors(), kSumThreads * kScatterZeros)),
        launch_(body, dialect, kSumThreads, shape.sum_blocks + zero_blocks_),
        printer_(&launch_, shape.width),
        out_(launch_.out),
        source_(body.ir.scatter->src_instr) {
    launch_.UseWideIndexAbove(Reach(s_));
    index_ = std::string(launch_.index_type());
    table_ = launch_.BufferName(body.ir.scatter->buffer);
    if (!ws_.empty()) words_ = launch_.BufferName(body.ir.scatter->sorted);
    out_.SetDepth(1);
  }

  Kernel Print() {
    if (ws_.empty()) {
      PrintZeros();
      return launch_.Finish("zeros");
    }
    if (zero_blocks_ > 0) out_.Open("if (RG_BLOCK < ", Sized(s_.sum_blocks), ")");
    PrintSums();
    if (zero_blocks_ > 0) {
      out_.Else();
      PrintZeros();
      out_.Close();
    }
    return launch_.Finish("sums");
  }

 private:
  std::string Accumulators(absl::string_view name, int64_t count) const {
    return absl::StrCat(AccumulatorName(s_.accumulator), " ", name, "[", count, "];");
  }

  void Unrolled(absl::string_view head) {
    out_.Pragma(SpellingOf(launch_.dialect()).unroll);
    out_.Open(head);
  }

  std::string ClearSum() const {
    return absl::StrCat("for (int j = 0; j < ", s_.width, "; ++j) sum[j] = 0;");
  }

  void PrintSums() {
    out_.Line("const ", index_, " n = static_cast<", index_, ">(RG_BLOCK) * ", kSumThreads,
              " + RG_THREAD;");
    out_.Open("if (n < ", Sized(ws_.outer * ws_.chunks * s_.vectors), ")");
    PrintSplit(s_, ws_.chunks, "c", index_, out_);
    out_.Line("const int begin = c * ", Sized(ws_.chunk), ";");
    out_.Line("const int end = rg_min(begin + ", Sized(ws_.chunk), ", ", Sized(ws_.sorted.indices),
              ");");
    const AxisMask used =
        printer_.UsedAxes(printer_.Needed({source_}), {}, launch_.ir().all_axes());
    printer_.DeclareAxes(s_.outer, used, "o");
    printer_.DeclareAxes(s_.inner, used, "i");
    // Where the segment at hand begins, as far as the chunk knows; before it, if in another chunk.
    out_.Line("int from = begin;");
    out_.Open("if (begin > 0)");
    out_.Line("if (", Key("begin - 1"), " == ", Key("begin"), ") from = -1;");
    out_.Close();
    out_.Line(Accumulators("sum", s_.width));
    out_.Line(ClearSum());
    out_.Open("for (int k0 = begin; k0 < end; k0 += ", kScatterAtOnce, ")");
    PrintLoads(used);
    PrintSteps();
    out_.Close();
    out_.Close();
  }

  // The place of the pair at a sorted position.
  std::string Pair(absl::string_view at) const {
    return absl::StrCat(Sized(ws_.sorted.pairs()), " + 2 * (", at, ")");
  }
  std::string Key(absl::string_view at) const {
    return absl::StrCat("rg_load(", words_, ", ", Pair(at), ")");
  }

  // "keys" of the positions from k0 on, and of the one behind them, and "values". Positions behind
  // the last are read as that one.
  void PrintLoads(AxisMask used) {
    const int last = static_cast<int>(ws_.sorted.indices - 1);
    out_.Line("int keys[", kScatterAtOnce + 1, "];");
    Unrolled(absl::StrCat("for (int u = 0; u <= ", kScatterAtOnce, "; ++u)"));
    out_.Line("keys[u] = ", Key(absl::StrCat("rg_min(k0 + u, ", Sized(last), ")")), ";");
    out_.Close();
    const Instr& source = launch_.ir().instrs[source_];
    const bool lanes = printer_.InLanes(source_);
    const bool constant = source.kind == InstrKind::kConstant;
    if (!constant) {
      out_.Line(ComputeName(source.dtype), " values[", kScatterAtOnce * (lanes ? s_.width : 1),
                "];");
      printer_.SetHome(
          source_, {.lane = lanes ? absl::StrCat("values[u * ", s_.width, " + j]") : "values[u]",
                    .base = lanes ? absl::StrCat("values + u * ", s_.width) : ""});
    }
    value_ = printer_.Ref(source_);
    if (constant) return;
    Unrolled(absl::StrCat("for (int u = 0; u < ", kScatterAtOnce, "; ++u)"));
    out_.Line("const int position = rg_load(", words_, ", 1 + ",
              Pair(absl::StrCat("rg_min(k0 + u, ", Sized(last), ")")), ");");
    printer_.DeclareAxes(s_.rows, used, "position");
    printer_.Print({.instrs = printer_.Needed({source_}),
                    .reductions = {},
                    .stores = {},
                    .level = launch_.ir().all_axes()});
    out_.Close();
  }

  void PrintSteps() {
    Unrolled(absl::StrCat("for (int u = 0; u < ", kScatterAtOnce, "; ++u)"));
    out_.Line("const int k = k0 + u, key = keys[u];");
    out_.Open("if (k < end && key < ", Sized(s_.table_rows), ")");
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) sum[j] += ", value_, ";");
    out_.Line("const bool goes_on = k + 1 < ", Sized(ws_.sorted.indices),
              " && keys[u + 1] == key;");
    out_.Open("if (!goes_on || k + 1 == end)");
    out_.Open("if (from >= 0 && !goes_on)");
    out_.Line(StoreText(s_, table_, TableElement(s_, index_), "sum"));
    out_.Else();
    out_.Line("const int slot = from > begin ? 1 : 0;");
    out_.Line(StoreText(s_, launch_.WorkspaceName(StorageName(s_.accumulator)),
                        PartialElement(s_, "c", "slot", index_), "sum"));
    out_.Close();
    out_.Line("from = k + 1;");
    out_.Line(ClearSum());
    out_.Close();
    out_.Close();
    out_.Close();
  }

  void PrintZeros() {
    out_.Line("const ", index_, " first = static_cast<", index_, ">(RG_BLOCK",
              s_.sum_blocks > 0 ? absl::StrCat(" - ", Sized(s_.sum_blocks)) : "", ") * ",
              kScatterZeros * kSumThreads, " + RG_THREAD;");
    out_.Line(Accumulators("sum", s_.width));
    out_.Line(ClearSum());
    // The compiler moves no load past a store.
    out_.Line("bool zero[", kScatterZeros, "];");
    Unrolled(absl::StrCat("for (int m = 0; m < ", kScatterZeros, "; ++m)"));
    out_.Line("const ", index_, " n = first + m * ", kSumThreads, ";");
    out_.Line("zero[m] = n < ", Sized(s_.table_vectors()), ";");
    if (!ws_.empty()) {
      std::string row = s_.vectors > 1 ? absl::StrCat("n / ", Sized(s_.vectors)) : "n";
      if (ws_.outer > 1) absl::StrAppend(&row, " % ", Sized(s_.table_rows));
      out_.Open("if (zero[m])");
      out_.Line("const int r = static_cast<int>(", row, ");");
      out_.Line("zero[m] = rg_load(", words_, ", ", Sized(ws_.sorted.starts()), " + r) == rg_load(",
                words_, ", ", Sized(ws_.sorted.starts()), " + r + 1);");
      out_.Close();
    }
    out_.Close();
    Unrolled(absl::StrCat("for (int m = 0; m < ", kScatterZeros, "; ++m)"));
    out_.Line("const ", index_, " n = first + m * ", kSumThreads, ";");
    out_.Line("if (zero[m]) ",
              StoreText(s_, table_, s_.width > 1 ? absl::StrCat("n * ", s_.width) : "n", "sum"));
    out_.Close();
  }

  const ScatterShape& s_;
  const ScatterWorkspace& ws_;
  int64_t zero_blocks_ = 0;
  LaunchText launch_;
  PointPrinter printer_;
  SourceWriter& out_;
  int source_ = 0;
  std::string index_, words_, table_, value_;
};

Kernel EmitCombine(const ScatterShape& s, const KernelBody& body, Dialect dialect) {
  const ScatterWorkspace& ws = s.workspace;
  LaunchText launch(body, dialect, kSumThreads, s.sum_blocks);
  launch.UseWideIndexAbove(Reach(s));
  SourceWriter& out = launch.out;
  const absl::string_view index = launch.index_type(), unroll = SpellingOf(dialect).unroll;
  const std::string w = launch.BufferName(body.ir.scatter->sorted);
  const std::string partials = launch.WorkspaceName(StorageName(s.accumulator));
  const std::string table = launch.BufferName(body.ir.scatter->buffer);
  const absl::string_view type = AccumulatorName(s.accumulator);
  const auto load = [&](absl::string_view at, absl::string_view to) {
    return s.width > 1
               ? absl::StrCat("rg_load_vec<", s.width, ">(", partials, ", ", at, ", ", to, ");")
               : absl::StrCat("*(", to, ") = rg_load(", partials, ", ", at, ");");
  };
  out.SetDepth(1);
  out.Line("const ", index, " n = static_cast<", index, ">(RG_BLOCK) * ", kSumThreads,
           " + RG_THREAD;");
  out.Open("if (n < ", Sized(ws.outer * ws.chunks * s.vectors), ")");
  PrintSplit(s, ws.chunks, "c", index, out);
  out.Line("const int begin = c * ", Sized(ws.chunk), ", end = begin + ", Sized(ws.chunk), ";");
  out.Open("if (end < ", Sized(ws.sorted.indices), ")");
  out.Line("const int key = rg_load(", w, ", ", Sized(ws.sorted.pairs()), " + 2 * (end - 1));");
  out.Open("if (key < ", Sized(s.table_rows), ")");
  out.Line("const int from = rg_load(", w, ", ", Sized(ws.sorted.starts()), " + key);");
  out.Line("const int to = rg_load(", w, ", ", Sized(ws.sorted.starts()), " + key + 1);");
  out.Open("if (from >= begin && to > end)");
  out.Line("const int last = (to - 1) / ", Sized(ws.chunk), ";");
  out.Line("const int slot = from > begin ? 1 : 0;");
  out.Line(type, " sum[", s.width, "];");
  out.Line(load(PartialElement(s, "c", "slot", index), "sum"));
  out.Open("for (int c0 = c + 1; c0 <= last; c0 += ", kPartialsAtOnce, ")");
  out.Line(type, " parts[", kPartialsAtOnce * s.width, "];");
  out.Pragma(unroll);
  out.Open("for (int u = 0; u < ", kPartialsAtOnce, "; ++u)");
  out.Line(load(PartialElement(s, "rg_min(c0 + u, last)", "0", index),
                absl::StrCat("parts + u * ", s.width)));
  out.Close();
  out.Pragma(unroll);
  out.Open("for (int u = 0; u < ", kPartialsAtOnce, "; ++u)");
  out.Open("if (c0 + u <= last)");
  out.Line("for (int j = 0; j < ", s.width, "; ++j) sum[j] += parts[u * ", s.width, " + j];");
  out.Close();
  out.Close();
  out.Close();
  out.Line(StoreText(s, table, TableElement(s, index), "sum"));
  for (int i = 0; i < 4; ++i) out.Close();
  return launch.Finish("combine");
}

}  // namespace

GroupKernels EmitScatterAdd(const KernelBody& body, Dialect dialect) {
  const ScatterShape s = ShapeOf(body);
  if (s.workspace.empty()) return {.launches = {Sums(s, body, dialect).Print()}};
  return {.launches = {Sums(s, body, dialect).Print(), EmitCombine(s, body, dialect)}};
}

}  // namespace retrograd
