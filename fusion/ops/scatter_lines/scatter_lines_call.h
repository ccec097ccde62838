// The numbers of a scatter_lines, and how its lines are shared out to warps.
#ifndef RETROGRAD_FUSION_OPS_SCATTER_LINES_SCATTER_LINES_CALL_H_
#define RETROGRAD_FUSION_OPS_SCATTER_LINES_SCATTER_LINES_CALL_H_

#include "fusion/cost/kernel_cost.h"
#include "fusion/plan/call.h"

namespace retrograd {

// src [lines][count] at index [index_lines][count], in turns, gives [lines][extent]. Everything is
// without gaps.
struct ScatterLinesCall {
  int64_t lines = 0, index_lines = 0, count = 0, extent = 0;
  DType dtype = DType::kFp32, index_dtype = DType::kInt64;
  int64_t index_offset = 0, src_offset = 0, result_offset = 0;  // elements
};

ScatterLinesCall ScatterLinesOf(const Call& call);

// A team of 32 threads has a part of a line, and adds up, in shared memory, what is in its part:
// nothing is sorted, and each element gets its terms in their order. Either each team goes through
// all indices of its line, or the teams of a line that share a block share out its indices and hand
// the terms to each other.
struct ScatterTeams {
  int64_t part = 0;         // elements of a line, at most; even
  int64_t parts = 0;        // of a line
  int64_t line_teams = 1;   // of a line, in one block
  int line_team_bits = 0;   // of the number of such a team
  int64_t line_blocks = 0;  // that share a line
  int64_t block_lines = 0;  // lines, or shares of one, of a block
  bool together = false;    // indices are shared out
  int64_t teams = 0;        // of a block
  int64_t loads = 0;        // of a thread, before the first of them is added
  int64_t blocks = 0;       // 0: the result has no elements
  int64_t threads() const { return teams * 32; }
};

ScatterTeams ScatterTeamsFor(const ScatterLinesCall& call);

// Whether lines, indices and blocks can be counted in 32 bits.
bool IsCountable(const ScatterLinesCall& call);

Price PriceOfScatterLines(const ScatterLinesCall& call, const DeviceSpec& device, bool explain);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_SCATTER_LINES_SCATTER_LINES_CALL_H_
