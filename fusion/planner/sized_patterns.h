// The patterns of a graph whose sizes vary: a plan of its own for each representative size, and
// what it decides for all sizes that the representative stands for.
//
// The pattern of a size follows from the graph, the size, the device and the options. It does not
// depend on which sizes were planned before, so that a size has the same plan in every process.
#ifndef RETROGRAD_FUSION_PLANNER_SIZED_PATTERNS_H_
#define RETROGRAD_FUSION_PLANNER_SIZED_PATTERNS_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fusion/planner/planner.h"
#include "graph/symbols/bindings.h"

namespace retrograd {

// May be used by several threads at once, which wait for one another.
class SizedPatterns {
 public:
  // `graph` has these symbols.
  SizedPatterns(BackwardGraph graph, std::vector<SizeSymbol> symbols)
      : graph_(std::move(graph)), symbols_(std::move(symbols)) {}

  // For PlanOptions::pattern of the graph bound to `sizes`. The representative is that of
  // graph/symbols/representative.h; where the graph was not made for it, the symbols' hints. Plans
  // the representative when it is first asked for, on `spec_text`'s device, under `options` without
  // their pattern, feedback and decisions. Null under a ceiling of memory, choices of pairs and
  // random plans, and without the feature kept_partitions.
  absl::StatusOr<std::shared_ptr<const PlanPattern>> For(absl::Span<const SizeBinding> sizes,
                                                         const DeviceSpec& device,
                                                         const std::string& spec_text,
                                                         const PlanOptions& options);

  // For PlanOptions::second_pattern: of SecondRepresentativeOf. Null where For's is, where that is
  // For's representative, and where the graph was not made for it.
  absl::StatusOr<std::shared_ptr<const PlanPattern>> Second(absl::Span<const SizeBinding> sizes,
                                                            const DeviceSpec& device,
                                                            const std::string& spec_text,
                                                            const PlanOptions& options);

 private:
  // Null where the graph was not made for the sizes.
  absl::StatusOr<std::shared_ptr<const PlanPattern>> At(absl::Span<const SizeBinding> sizes,
                                                        const DeviceSpec& device,
                                                        const std::string& how,
                                                        const PlanOptions& options);

  const BackwardGraph graph_;
  const std::vector<SizeSymbol> symbols_;
  std::mutex mutex_;
  // By sizes, spec and options.
  std::map<std::string, std::shared_ptr<const PlanPattern>> patterns_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLANNER_SIZED_PATTERNS_H_
