// segment_add into zeros, bitwise deterministic, in two launches:
//   sums     segments of at most a chunk are summed into the table, parts of longer ones into the
//            workspace. Further blocks write zeros into the rows that no index names.
//   combine  a thread stores a vector of a row whose long segment begins in its chunk: its parts in
//            order
// A chunk's part stands in slot 0 if its segment goes through the chunk's first position, else in
// slot 1.
#include <algorithm>
#include <utility>

#include "codegen/print/index_text.h"
#include "codegen/print/launch_text.h"
#include "codegen/print/sized_number.h"
#include "codegen/templates/scatter_sums.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

// Partial sums that a thread loads before it adds up the first vector of them.
constexpr int kSumsAtOnce = 64;
constexpr int kMostPartsAtOnce = 16;

// The parts in the chunks behind c, up to the last.
void PrintParts(const ScatterText& s, absl::string_view unroll, SourceWriter& out) {
  const int at_once = std::min(kSumsAtOnce / s.width, kMostPartsAtOnce);
  out.Open("for (int c0 = c + 1; c0 <= last; c0 += ", at_once, ")");
  out.Line(s.Declare("parts", at_once * s.width));
  out.Pragma(unroll);
  out.Open("for (int u = 0; u < ", at_once, "; ++u)");
  out.Line(s.LoadPartial(s.PartialElement("rg_min(c0 + u, last)", "0"),
                         absl::StrCat("parts + u * ", s.width)));
  out.Close();
  out.Pragma(unroll);
  out.Open("for (int u = 0; u < ", at_once, "; ++u)");
  out.Open("if (c0 + u <= last)");
  out.Line("for (int j = 0; j < ", s.width, "; ++j) sum[j] += parts[u * ", s.width, " + j];");
  for (int i = 0; i < 3; ++i) out.Close();
}

Kernel PrintCombine(const KernelBody& body, Dialect dialect) {
  ScatterText s = ScatterTextOf(body);
  const ScatterWorkspace& ws = s.workspace;
  const int64_t vectors = ws.outer * s.slice_vectors();
  LaunchText launch(body, dialect, kScatterThreads, CeilDiv(vectors, kScatterThreads));
  launch.UseWideIndexAbove(ReachOf(s, BlocksOfSums(body.ir, body.schedule)));
  SourceWriter& out = launch.out;
  s.index = std::string(launch.index_type());
  s.words = launch.BufferName(body.ir.scatter->sorted);
  s.partials = launch.WorkspaceName(StorageName(s.accumulator));
  s.table = launch.BufferName(body.ir.scatter->buffer);
  out.SetDepth(1);
  out.Line("const ", s.index, " n = static_cast<", s.index, ">(RG_BLOCK) * ", kScatterThreads,
           " + RG_THREAD;");
  out.Open("if (n < ", Sized(vectors), ")");
  s.PrintSplit(ws.chunks, "c", out);
  out.Line("const int begin = c * ", Sized(ws.chunk), ", end = begin + ", Sized(ws.chunk), ";");
  out.Open("if (end < ", Sized(ws.sorted.indices), ")");
  out.Line("const int key = ", s.Key("end - 1"), ";");
  out.Open("if (key < ", Sized(s.table_rows), ")");
  out.Line("const int from = ", s.Start("key"), ", to = ", s.Start("key + 1"), ";");
  out.Open("if (from >= begin && to - from > ", Sized(ws.chunk), ")");
  out.Line("const int last = (to - 1) / ", Sized(ws.chunk), ";");
  out.Line("const int slot = from > begin ? 1 : 0;");
  out.Line(s.Declare("sum", s.width));
  out.Line(s.LoadPartial(s.PartialElement("c", "slot"), "sum"));
  PrintParts(s, SpellingOf(dialect).unroll, out);
  out.Line(s.Store(s.table, s.TableElement()));
  for (int i = 0; i < 4; ++i) out.Close();
  return launch.Finish("combine");
}

}  // namespace

GroupKernels EmitScatterAdd(const KernelBody& body, Dialect dialect) {
  GroupKernels kernels;
  kernels.launches.push_back(PrintScatterSums(body, dialect));
  if (!ScatterWorkspaceOf(body.ir).empty()) {
    kernels.launches.push_back(PrintCombine(body, dialect));
  }
  return kernels;
}

}  // namespace retrograd
