// What each stage prints for a golden file (tests/golden/), without prices: they change with every
// calibration, behaviour should not.
#ifndef RETROGRAD_TESTS_SUPPORT_GOLDEN_GOLDEN_STAGES_H_
#define RETROGRAD_TESTS_SUPPORT_GOLDEN_GOLDEN_STAGES_H_

#include <string>

#include "absl/status/statusor.h"
#include "tests/support/golden/golden_run.h"

namespace retrograd {

// The text; of a malformed graph the message that refuses it. An error is one of the golden file or
// of the stage, such as a plan that is wrong or a limit that refuses nothing.
absl::StatusOr<std::string> TextOfStage(const GoldenRun& run, absl::string_view graph);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GOLDEN_GOLDEN_STAGES_H_
