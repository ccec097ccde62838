// segment_add, bitwise deterministic, in two launches:
//   sums     segments of at most a chunk are summed into the table, parts of longer ones into the
//            workspace. Further blocks write the rows that no index names: zeros, or what the
//            sums are added onto.
//   combine  a thread stores a vector of a row whose long segment begins in its chunk: its parts in
//            order. Of many parts the threads of the block add up every 32nd each, and then these
//            sums.
// A chunk's part stands in slot 0 if its segment goes through the chunk's first position, else in
// slot 1.
#include <algorithm>
#include <utility>

#include "codegen/print/launch_text.h"
#include "codegen/print/numbers/index_text.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/templates/scatter_sums.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

// Partial sums that a thread loads before it adds up the first vector of them.
constexpr int kSumsAtOnce = 64;
constexpr int kMostPartsAtOnce = 16;

// The launch of parts. Each thread has a vector of a chunk's; that of number `owner` is n, of which
// the text has o, c and i.
class Combine {
 public:
  Combine(const KernelBody& body, Dialect dialect)
      : s_(ScatterTextOf(body)),
        vectors_(s_.workspace.outer * s_.slice_vectors()),
        unroll_(SpellingOf(dialect).unroll),
        launch_(body, dialect, kScatterThreads, CeilDiv(vectors_, kScatterThreads)),
        out_(launch_.out) {
    launch_.UseWideIndexAbove(ReachOf(s_, BlocksOfSums(body.ir, body.schedule)));
    s_.index = std::string(launch_.index_type());
    s_.words = launch_.BufferName(body.ir.scatter->sorted);
    s_.partials = launch_.WorkspaceName(StorageName(s_.accumulator));
    s_.table = launch_.BufferName(body.ir.scatter->buffer);
    if (s_.onto) s_.base = launch_.BufferName(body.ir.scatter->base);
    if (s_.workspace.may_have_many()) {
      launch_.Shared(DType::kInt32, "lasts", kScatterThreads);
      launch_.Shared(DType::kInt32, "found", kScatterThreads / 32);
      launch_.Shared(s_.accumulator, "lanes", int64_t{kScatterThreads} * s_.width);
    }
    out_.SetDepth(1);
  }

  Kernel Print() {
    if (s_.workspace.may_have_many()) out_.Line("int owned = -1;");
    PrintFew();
    if (s_.workspace.may_have_many()) ShareMany();
    return launch_.Finish("combine");
  }

 private:
  // Tells all threads which of them own a segment of many parts, and adds these up together.
  void ShareMany() {
    out_.Line("lasts[RG_THREAD] = owned;");
    out_.Line("const unsigned many = RG_BALLOT(owned >= 0);");
    out_.Line("if (RG_THREAD % 32 == 0) found[RG_THREAD / 32] = static_cast<int>(many);");
    launch_.Barrier();
    PrintMany();
  }

  void PrintNumber(absl::string_view thread) {
    out_.Line("const ", s_.index, " n = static_cast<", s_.index, ">(RG_BLOCK) * ", kScatterThreads,
              " + ", thread, ";");
  }

  // The parts in the chunks behind c, up to the last; each `step` chunks behind the one before.
  void PrintParts(absl::string_view first, int step) {
    const int at_once = std::min(kSumsAtOnce / s_.width, kMostPartsAtOnce);
    const std::string u = step > 1 ? absl::StrCat("u * ", step) : "u";
    out_.Open("for (int c0 = ", first, "; c0 <= last; c0 += ", at_once * step, ")");
    out_.Line(s_.Declare("parts", at_once * s_.width));
    out_.Pragma(unroll_);
    out_.Open("for (int u = 0; u < ", at_once, "; ++u)");
    out_.Line(s_.LoadPartial(s_.PartialElement(absl::StrCat("rg_min(c0 + ", u, ", last)"), "0"),
                             absl::StrCat("parts + u * ", s_.width)));
    out_.Close();
    out_.Pragma(unroll_);
    out_.Open("for (int u = 0; u < ", at_once, "; ++u)");
    out_.Open("if (c0 + ", u, " <= last)");
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) sum[j] += parts[u * ", s_.width, " + j];");
    for (int i = 0; i < 3; ++i) out_.Close();
  }

  // The thread's own segment, if it has few parts; `owned`: the last chunk of one of many.
  void PrintFew() {
    const ScatterWorkspace& ws = s_.workspace;
    out_.OpenScope();
    PrintNumber("RG_THREAD");
    out_.Open("if (n < ", Sized(vectors_), ")");
    s_.PrintSplit(ws.chunks, "c", out_);
    out_.Line("const int begin = c * ", Sized(ws.chunk), ", end = begin + ", Sized(ws.chunk), ";");
    out_.Open("if (end < ", Sized(ws.sorted.indices), ")");
    out_.Line("const int key = ", s_.Key("end - 1"), ";");
    out_.Open("if (key < ", Sized(s_.table_rows), ")");
    out_.Line("const int from = ", s_.Start("key"), ", to = ", s_.Start("key + 1"), ";");
    out_.Open("if (from >= begin && to - from > ", Sized(ws.chunk), ")");
    out_.Line("const int last = (to - 1) / ", Sized(ws.chunk), ";");
    if (s_.workspace.may_have_many()) {
      out_.Line("if (last - c > ", Sized(ws.few_parts), ") owned = last;");
      out_.Open("if (owned < 0)");
    }
    out_.Line("const int slot = from > begin ? 1 : 0;");
    out_.Line(s_.Declare("sum", s_.width));
    out_.Line(s_.LoadPartial(s_.PartialElement("c", "slot"), "sum"));
    PrintParts("c + 1", 1);
    out_.Line(s_.StoreOnto(s_.TableElement()));
    const int open = s_.workspace.may_have_many() ? 6 : 5;
    for (int i = 0; i < open; ++i) out_.Close();
  }

  // Eight owners at a time, with as many threads as there are lanes for each.
  void PrintMany() {
    const ScatterWorkspace& ws = s_.workspace;
    constexpr int kOwners = kScatterThreads / kCombineLanes;
    out_.Open("for (int warp = 0; warp < ", kScatterThreads / 32, "; ++warp)");
    out_.Line("unsigned left = static_cast<unsigned>(found[warp]);");
    out_.Open("for (int first = warp * 32; left != 0; first += ", kOwners, ", left >>= ", kOwners,
              ")");
    out_.Open("if ((left & ", (1 << kOwners) - 1, ") != 0)");
    out_.Line("const int owner = first + RG_THREAD % ", kOwners, ", lane = RG_THREAD / ", kOwners,
              ";");
    out_.Line("const int last = lasts[owner];");
    PrintNumber("owner");
    s_.PrintSplit(ws.chunks, "c", out_);
    out_.Line(s_.Declare("sum", s_.width));
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) sum[j] = 0;");
    PrintParts("c + 1 + lane", kCombineLanes);
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) lanes[RG_THREAD * ", s_.width,
              " + j] = sum[j];");
    launch_.Barrier();
    out_.Open("for (int step = ", kCombineLanes / 2, "; step > 0; step /= 2)");
    out_.Open("if (lane < step)");
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) lanes[RG_THREAD * ", s_.width,
              " + j] += lanes[(RG_THREAD + step * ", kOwners, ") * ", s_.width, " + j];");
    out_.Close();
    launch_.Barrier();
    out_.Close();
    out_.Open("if (lane == 0 && last >= 0)");
    out_.Line("const int begin = c * ", Sized(ws.chunk), ";");
    out_.Line("const int key = ", s_.Key(absl::StrCat("begin + ", Sized(ws.chunk - 1))), ";");
    out_.Line("const int slot = ", s_.Start("key"), " > begin ? 1 : 0;");
    out_.Line(s_.LoadPartial(s_.PartialElement("c", "slot"), "sum"));
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) sum[j] += lanes[RG_THREAD * ", s_.width,
              " + j];");
    out_.Line(s_.StoreOnto(s_.TableElement()));
    out_.Close();  // what a thread writes next in `lanes` no other one reads before a barrier
    for (int i = 0; i < 3; ++i) out_.Close();
  }

  ScatterText s_;
  const int64_t vectors_;
  const absl::string_view unroll_;
  LaunchText launch_;
  SourceWriter& out_;
};

}  // namespace

GroupKernels EmitScatterAdd(const KernelBody& body, Dialect dialect) {
  GroupKernels kernels;
  kernels.launches.push_back(PrintScatterSums(body, dialect));
  if (!ScatterWorkspaceOf(body.ir).empty()) {
    kernels.launches.push_back(Combine(body, dialect).Print());
  }
  return kernels;
}

}  // namespace retrograd
