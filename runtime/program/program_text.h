// What a program does, as text: launches, library calls, copies and where all of their operands
// lie, without names of ops and without predictions. Equal texts are the same program, however
// their plans came to be.
#ifndef RETROGRAD_RUNTIME_PROGRAM_PROGRAM_TEXT_H_
#define RETROGRAD_RUNTIME_PROGRAM_PROGRAM_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/program/compile.h"

namespace retrograd {

// A line for each command in the order in which they are issued, then one for each slot. A kernel
// stands there by its name, which is a digest of its text.
absl::StatusOr<std::string> ProgramText(const CompiledPlan& compiled);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_PROGRAM_TEXT_H_
