// How a golden file's stage is run: its line of flags (tests/golden/).
#ifndef RETROGRAD_TESTS_SUPPORT_GOLDEN_GOLDEN_RUN_H_
#define RETROGRAD_TESTS_SUPPORT_GOLDEN_GOLDEN_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/planner/planner.h"

namespace retrograd {

// A stage with its flags, as the flags line of a golden file has them: "plan device=h200".
struct GoldenRun {
  std::string stage;
  // device=NAME, with numbers by set=NAME=VALUE; epilogues=free: an H200 on which any bf16 matmul
  // may have any epilogue and pays nothing for it.
  DeviceSpec device;
  // disable=NAME, tighten=NAME, together=%a,%b (of the lowered graph), merging=always,
  // max-memory=BYTES
  PlanOptions options;
  std::string limit;  // limit=NAME: a decision must be refused by it
  int streams = 1;    // streams=N
  // schedule=WORD,WORD..: all ops are one kernel, by the first schedule that prints these words.
  std::vector<std::string> schedule;
  // implementation=tensor_cores: attention by tiles; otherwise the kernels that take any call.
  std::string implementation;
};

// InvalidArgument for a flag that there is not.
absl::StatusOr<GoldenRun> ParseGoldenRun(absl::string_view flags);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GOLDEN_GOLDEN_RUN_H_
