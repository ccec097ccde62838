// The times of kernels' schedules that an earlier run wrote, and whose of a plan's kernels they
// are.
#ifndef RETROGRAD_TOOLS_FIT_TIMED_KERNELS_H_
#define RETROGRAD_TOOLS_FIT_TIMED_KERNELS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace retrograd {

// What tells a kernel from others of its graph's plan.
struct KernelLabel {
  std::string ops;      // names of its ops, in order
  std::string planned;  // text form of the schedule that it was planned with
};

struct TimedKernel {
  std::string graph;  // as GraphLabel has it
  KernelLabel label;
  std::map<std::string, double> us;  // by text form of the schedule
};

// A graph's name, without a file's folders and endings: "llama_small" of "out/llama_small.bwd.pb".
std::string GraphLabel(absl::string_view graph);

// Of the text that schedule-times --json wrote; `where` leads error messages.
absl::StatusOr<std::vector<TimedKernel>> ParseTimedKernels(absl::string_view text,
                                                           absl::string_view where);

// For each kernel of a graph's plan the timed one of the graph that is it, or null. Kernels whose
// ops others of the graph share are told apart by their planned schedules; those that share both
// are taken in order, and are none if there are more of them on one side.
std::vector<const TimedKernel*> MatchTimed(absl::string_view graph,
                                           absl::Span<const KernelLabel> kernels,
                                           absl::Span<const TimedKernel> timed);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_FIT_TIMED_KERNELS_H_
