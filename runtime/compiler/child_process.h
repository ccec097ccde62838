// RunProcesses: runs programs side by side, without a shell, to their ends.
#ifndef RETROGRAD_RUNTIME_COMPILER_CHILD_PROCESS_H_
#define RETROGRAD_RUNTIME_COMPILER_CHILD_PROCESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/base/cancelled.h"

namespace retrograd {

struct ProcessResult {
  int exit_code = 0;   // 128 + the signal's number if one ended it
  std::string output;  // what it wrote to both streams; at most 64 KiB, the beginning
};

// command[0] is a path. The programs put their temporary files into `temporary_folder` (TMPDIR), so
// that whoever removes that folder removes what a killed program left; empty: where TMPDIR says.
// One result a command, in their order; an error if one could not start.
// Cancelled: the programs are told to end (SIGTERM).
absl::StatusOr<std::vector<ProcessResult>> RunProcesses(
    const std::vector<std::vector<std::string>>& commands, const std::string& temporary_folder = "",
    const Cancelled& cancelled = {});

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_COMPILER_CHILD_PROCESS_H_
