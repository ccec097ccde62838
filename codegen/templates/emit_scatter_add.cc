// segment_add into zeros, bitwise deterministic, in two launches:
//   sums     segments of at most a chunk are summed into the table, parts of longer ones into the
//            workspace. Further blocks write zeros into the rows that no index names.
//   combine  a thread stores a vector of a row whose long segment begins in its chunk: its parts in
//            order. Of many parts the threads of the block add up every 32nd each, and then these
//            sums.
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

// Vectors of a block, two for each thread: all of some chunks, or a piece of one chunk's where it
// has more. One thread finds out for all of a chunk whether a long segment begins there.
constexpr int64_t kVectorsOfCombine = 512;

// The launch of parts. Vector number n of the launch has o, c and i in the text.
class Combine {
 public:
  Combine(const KernelBody& body, Dialect dialect)
      : s_(ScatterTextOf(body)),
        all_chunks_(s_.workspace.outer * s_.workspace.chunks),
        chunks_(std::clamp<int64_t>(kVectorsOfCombine / s_.vectors, 1, kScatterThreads)),
        pieces_(CeilDiv(s_.vectors, kVectorsOfCombine)),
        of_block_(pieces_ > 1 ? CeilDiv(s_.vectors, pieces_) : chunks_ * s_.vectors),
        launch_(body, dialect, kScatterThreads, CeilDiv(all_chunks_, chunks_) * pieces_),
        out_(launch_.out) {
    launch_.UseWideIndexAbove(ReachOf(s_, BlocksOfSums(body.ir, body.schedule)));
    s_.index = std::string(launch_.index_type());
    s_.words = launch_.BufferName(body.ir.scatter->sorted);
    s_.partials = launch_.WorkspaceName(StorageName(s_.accumulator));
    s_.table = launch_.BufferName(body.ir.scatter->buffer);
    for (absl::string_view name : {"lasts", "keys", "slots"}) {
      launch_.Shared(DType::kInt32, std::string(name), kScatterThreads);
    }
    launch_.Shared(DType::kInt32, "found", kScatterThreads / 32);
    if (may_have_many()) {
      launch_.Shared(s_.accumulator, "lanes", int64_t{kScatterThreads} * s_.width);
    }
    out_.SetDepth(1);
  }

  Kernel Print() {
    FindLong();
    PrintFew();
    if (may_have_many()) PrintMany();
    return launch_.Finish("combine");
  }

 private:
  bool may_have_many() const { return s_.workspace.may_have_many(); }

  // Of the block, if its vectors are a piece of one chunk's.
  std::string Chunk() const {
    return pieces_ > 1 ? absl::StrCat("RG_BLOCK / ", Sized(pieces_)) : "RG_BLOCK";
  }

  // By chunk of the block, of the long segment that begins there: `lasts`, the chunk in which it
  // ends, or -1 where there is none, `keys`, its row, and `slots`, where its first part stands.
  // `any`: 1 where there is one, 3 where one has many parts, else 0.
  void FindLong() {
    const ScatterWorkspace& ws = s_.workspace;
    out_.Line("int last_of_chunk = -1, key_of_chunk = 0, slot_of_chunk = 0;");
    if (may_have_many()) out_.Line("bool has_many = false;");
    out_.OpenScope();
    out_.Line("const ", s_.index, " chunk = static_cast<", s_.index, ">(", Chunk(), ") * ",
              Sized(chunks_), " + RG_THREAD;");
    out_.Open("if (RG_THREAD < ", Sized(chunks_), " && chunk < ", Sized(all_chunks_), ")");
    const std::string of_slice = ws.outer > 1 ? absl::StrCat(" % ", Sized(ws.chunks)) : "";
    out_.Line("const int c = static_cast<int>(chunk", of_slice, "), begin = c * ", Sized(ws.chunk),
              ", end = begin + ", Sized(ws.chunk), ";");
    out_.Open("if (end < ", Sized(ws.sorted.indices), ")");
    out_.Line("const int key = ", s_.Key("end - 1"), ";");
    out_.Open("if (key < ", Sized(s_.table_rows), ")");
    out_.Line("const int from = ", s_.Start("key"), ", to = ", s_.Start("key + 1"), ";");
    out_.Open("if (from >= begin && to - from > ", Sized(ws.chunk), ")");
    out_.Line("last_of_chunk = (to - 1) / ", Sized(ws.chunk), ";");
    out_.Line("key_of_chunk = key;");
    out_.Line("slot_of_chunk = from > begin ? 1 : 0;");
    out_.Close();
    if (may_have_many()) {
      out_.Line("has_many = last_of_chunk - c > ", Sized(ws.few_parts), ";");
    }
    for (int i = 0; i < 4; ++i) out_.Close();
    out_.Line("lasts[RG_THREAD] = last_of_chunk;");
    out_.Line("keys[RG_THREAD] = key_of_chunk;");
    out_.Line("slots[RG_THREAD] = slot_of_chunk;");
    out_.Line("const unsigned longs = RG_BALLOT(last_of_chunk >= 0);");
    if (may_have_many()) out_.Line("const unsigned manys = RG_BALLOT(has_many);");
    out_.Line("if (RG_THREAD % 32 == 0) found[RG_THREAD / 32] = longs != 0 ? ",
              may_have_many() ? "manys != 0 ? 3 : 1" : "1", " : 0;");
    launch_.Barrier();
    out_.Line("int any = 0;");
    out_.Pragma(SpellingOf(launch_.dialect()).unroll);
    out_.Line("for (int v = 0; v < ", kScatterThreads / 32, "; ++v) any |= found[v];");
  }

  // How many vectors the block has.
  std::string Vectors() const { return pieces_ > 1 ? "here" : Sized(of_block_); }
  void PrintVectors() {
    if (pieces_ == 1) return;
    out_.Line("const int first_of_piece = static_cast<int>(RG_BLOCK % ", Sized(pieces_), ") * ",
              Sized(of_block_), ";");
    out_.Line("const int here = rg_min(", Sized(of_block_), ", ", Sized(s_.vectors),
              " - first_of_piece);");
  }

  // "last", "key", "slot", o, c and i of one of them.
  void PrintVector(absl::string_view number) {
    const std::string of_chunk = pieces_ > 1 || s_.vectors == 1
                                     ? std::string(pieces_ > 1 ? "0" : number)
                                     : absl::StrCat(number, " / ", Sized(s_.vectors));
    out_.Line("const int of_chunk = ", of_chunk, ";");
    out_.Line("const int last = lasts[of_chunk], key = keys[of_chunk], slot = slots[of_chunk];");
    out_.Line("const ", s_.index, " n = static_cast<", s_.index, ">(", Chunk(), ") * ",
              Sized(chunks_ * s_.vectors), " + ", pieces_ > 1 ? "first_of_piece + " : "", number,
              ";");
    s_.PrintSplit(s_.workspace.chunks, "c", out_);
  }

  // The parts in the chunks behind c, up to the last; each `step` chunks behind the one before.
  void PrintParts(absl::string_view first, int step) {
    const int at_once = std::min(kSumsAtOnce / s_.width, kMostPartsAtOnce);
    const std::string u = step > 1 ? absl::StrCat("u * ", step) : "u";
    const absl::string_view unroll = SpellingOf(launch_.dialect()).unroll;
    out_.Open("for (int c0 = ", first, "; c0 <= last; c0 += ", at_once * step, ")");
    out_.Line(s_.Declare("parts", at_once * s_.width));
    out_.Pragma(unroll);
    out_.Open("for (int u = 0; u < ", at_once, "; ++u)");
    out_.Line(s_.LoadPartial(s_.PartialElement(absl::StrCat("rg_min(c0 + ", u, ", last)"), "0"),
                             absl::StrCat("parts + u * ", s_.width)));
    out_.Close();
    out_.Pragma(unroll);
    out_.Open("for (int u = 0; u < ", at_once, "; ++u)");
    out_.Open("if (c0 + ", u, " <= last)");
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) sum[j] += parts[u * ", s_.width, " + j];");
    for (int i = 0; i < 3; ++i) out_.Close();
  }

  // Segments of few parts: a thread adds up a vector of all.
  void PrintFew() {
    out_.Open("if (any != 0)");
    PrintVectors();
    out_.Open("for (int v = RG_THREAD; v < ", Vectors(), "; v += ", kScatterThreads, ")");
    PrintVector("v");
    out_.Open(
        "if (last >= 0",
        may_have_many() ? absl::StrCat(" && last - c <= ", Sized(s_.workspace.few_parts)) : "",
        ")");
    out_.Line(s_.Declare("sum", s_.width));
    out_.Line(s_.LoadPartial(s_.PartialElement("c", "slot"), "sum"));
    PrintParts("c + 1", 1);
    out_.Line(s_.Store(s_.table, s_.TableElement()));
    for (int i = 0; i < 3; ++i) out_.Close();
  }

  // Segments of many parts: eight vectors at a time, with as many threads as there are lanes for
  // each.
  void PrintMany() {
    constexpr int kOwners = kScatterThreads / kCombineLanes;
    out_.Open("if (any > 1)");
    PrintVectors();
    out_.Open("for (int first = 0; first < ", Vectors(), "; first += ", kOwners, ")");
    out_.Line("const int owner = rg_min(first + RG_THREAD % ", kOwners, ", ", Vectors(),
              " - 1), lane = RG_THREAD / ", kOwners, ";");
    PrintVector("owner");
    out_.Line("const bool own = last - c > ", Sized(s_.workspace.few_parts),
              " && owner == first + ", "RG_THREAD % ", kOwners, ";");
    // All warps have threads of all of the eight.
    out_.Open("if (RG_BALLOT(own) != 0)");
    out_.Line(s_.Declare("sum", s_.width));
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) sum[j] = 0;");
    out_.Open("if (own)");
    PrintParts("c + 1 + lane", kCombineLanes);
    out_.Close();
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
    out_.Open("if (lane == 0 && own)");
    out_.Line(s_.LoadPartial(s_.PartialElement("c", "slot"), "sum"));
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) sum[j] += lanes[RG_THREAD * ", s_.width,
              " + j];");
    out_.Line(s_.Store(s_.table, s_.TableElement()));
    out_.Close();  // what a thread writes next in `lanes` no other one reads before a barrier
    for (int i = 0; i < 3; ++i) out_.Close();
  }

  ScatterText s_;
  const int64_t all_chunks_, chunks_;  // of the launch, and of a block
  const int64_t pieces_, of_block_;    // of a chunk's vectors, and vectors of a block
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
