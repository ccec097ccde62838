// What a fuzzing run does with one input: load, verify, print, plan, check the plan, print it.
//
// The first byte chooses how the others are read: bit 0 set means the text form, clear a protobuf
// file; the other seven bits number a PlanVariant. Every loaded graph is verified, printed and read
// back in both forms; it is planned unless it is too large for a quick execution (see kMaxPlanned..
// in the .cc file). A broken promise stops the process with a message.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_FUZZ_INPUT_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_FUZZ_INPUT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace retrograd {

inline constexpr char kFuzzProto = 0;
inline constexpr char kFuzzText = 1;

// How far an input came.
enum class FuzzOutcome { kRefused, kTooLarge, kPlanned };

FuzzOutcome RunFuzzInput(absl::string_view input);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_FUZZ_INPUT_H_
