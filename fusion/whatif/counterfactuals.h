// The smallest change that makes a plan decide otherwise about two ops: of one number of the
// device, of the batch, or of the dtype. Each is tried by planning their region again.
#ifndef RETROGRAD_FUSION_WHATIF_COUNTERFACTUALS_H_
#define RETROGRAD_FUSION_WHATIF_COUNTERFACTUALS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/device/device_numbers.h"
#include "fusion/planner/planner.h"

namespace retrograd {

// What was asked: the ops are those of `lowered`, lowered from `original` under `options`, whose
// pairs are ignored.
struct FlipQuestion {
  const BackwardGraph& original;
  const BackwardGraph& lowered;
  absl::string_view device_text;  // the spec's text form
  const PlanOptions& options;
  std::vector<std::string> without;  // as of Planned
  int64_t memory_ps_per_mib = 0;
  NodeId a{}, b{};
  bool together = false;  // what the plan does
  bool can_meet = true;   // a region holds both, so that numbers of the device may matter
};

struct Flip {
  std::string name;    // "max_registers", "rows", "dtype"
  std::string change;  // "max_registers were 128 (now 255)"
  std::string option;  // of fusion-explain, which applies it: "--set max_registers=128"
  double factor = 1;   // new / old; 1 for a dtype
  NodeId a{}, b{};     // the two ops in the graph so changed and lowered
};

struct Flips {
  std::vector<Flip> flips;  // of each kind those by the smallest factor; device, rows, dtype
  int64_t tried = 0;        // regions planned again
};

// Factors up to 16 and down to 1/16, the smallest first.
absl::StatusOr<Flips> FindFlips(const FlipQuestion& question);

// The op of `to` that stands where `id` stands in `from`: the same op of the same call, counted
// among its equals. nullopt if there is none.
std::optional<NodeId> Counterpart(const BackwardGraph& from, NodeId id, const BackwardGraph& to);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_WHATIF_COUNTERFACTUALS_H_
