// What an executable tells of itself, as JSON.
#ifndef RETROGRAD_API_DESCRIBE_H_
#define RETROGRAD_API_DESCRIBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/executable/executable.h"
#include "runtime/program/stage_seconds.h"

namespace retrograd {

// An object with the spec, dtype and elements of each input and output (and below what an input's
// integers are), kernels, predicted time, a digest of what the program does, bytes; of what is
// runnable also which implementation each library call has, and runs and recordings so far.
// seconds: of what its maker did around Executable::Make, whose own stages stand behind.
absl::StatusOr<std::string> Describe(const Executable& executable, bool runnable,
                                     const StageSeconds& seconds);

}  // namespace retrograd

#endif  // RETROGRAD_API_DESCRIBE_H_
