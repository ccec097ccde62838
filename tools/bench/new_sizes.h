// What a new size of a graph whose sizes vary costs: binding, planning by a search and by the
// pattern of a representative size, and making a program of the plan.
#ifndef RETROGRAD_TOOLS_BENCH_NEW_SIZES_H_
#define RETROGRAD_TOOLS_BENCH_NEW_SIZES_H_

#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "tools/support/size_range.h"

namespace retrograd {

// `graph`: a file that leaves sizes open; `bind`: the others, "batch=4". At 24 sizes of the range,
// milliseconds of processor time, medians: binding, the search, planning by the pattern, which is
// made before, and from that plan to kernels' texts for CUDA, streams and memory in up to eight
// phases, all verified; and how many times as long the plan is predicted to take as the search's.
// Prints a line and gives its figures.
absl::StatusOr<nlohmann::ordered_json> BenchNewSizes(const std::string& graph,
                                                     const std::string& device,
                                                     const SizeRange& range,
                                                     const std::string& bind);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_BENCH_NEW_SIZES_H_
