// What a walk over rows prints where the blocks of a cluster share them.
#include "absl/strings/str_cat.h"
#include "codegen/templates/row_walk.h"

namespace retrograd {

// One meeting a stage, or one of each turn. The last one of a block is over when all have sent it
// their sums, so it may end while others have not read what it has sent.
void RowWalk::BeginMeetings(bool loop) {
  if (schedule_.cluster == 1) return;
  const int64_t count = MeetingsOfCluster(schedule_, shape_.shape.rows, stages_.row_stages);
  launch_.Shared(DType::kInt64, "meetings", count);
  launch_.SetThreadsMeet();
  out_.Line("RG_BEGIN_MEETINGS(meetings, ", count, ");");
  if (loop) out_.Line("int parity = 0;");
}

// The sums of a cluster's blocks: each sends its own to all, and adds up what came by rank.
void RowWalk::CombineAcrossCluster(const std::vector<int>& reductions, int stage, bool loop) {
  const int cluster = schedule_.cluster;
  const std::string meeting = turns_ ? "turn" : absl::StrCat(stage);
  const std::string first = turns_ ? absl::StrCat("turn * ", cluster) : "0";
  int64_t bytes = 0;
  for (int r : reductions) {
    const DType type = AccumulatorType(ir_.instrs[r].dtype);
    bytes += cluster * SizeBytes(type);
    launch_.Shared(type, absl::StrCat("sums", r), (turns_ ? 2 : 1) * cluster);
  }
  if (!loop && stage == 0) out_.Line("RG_MEETINGS_BEGUN();");
  out_.Line("if (RG_THREAD == 0) RG_EXPECT(meetings, ", meeting, ", ", bytes, ");");
  out_.Open("if (RG_THREAD < ", cluster, ")");
  for (int r : reductions) {
    out_.Line("RG_PUSH(sums", r, ", ", first, ", rank, RG_THREAD, ", RowAccumulator(r, 1),
              ", meetings, ", meeting, ");");
  }
  out_.Close();
  out_.Line("RG_MEET(meetings, ", meeting, ", ", loop ? "parity" : "0", ");");
  for (int r : reductions) {
    const std::string acc = RowAccumulator(r, 1), sums = absl::StrCat("sums", r, ", ", first);
    out_.Line(acc, " = RG_PUSHED(", sums, ", 0);");
    out_.Pragma(SpellingOf(launch_.dialect()).unroll);
    out_.Open("for (int b = 1; b < ", cluster, "; ++b)");
    out_.Line(acc, " = ",
              printer_.Folded(ir_.instrs[r], acc, absl::StrCat("RG_PUSHED(", sums, ", b)")), ";");
    out_.Close();
  }
}

}  // namespace retrograd
