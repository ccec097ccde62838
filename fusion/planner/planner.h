// From a backward graph and a device to a plan: the table of contents of everything left of
// codegen. Pure: the same graph, spec and options give the same plan in any process.
#ifndef RETROGRAD_FUSION_PLANNER_PLANNER_H_
#define RETROGRAD_FUSION_PLANNER_PLANNER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "fusion/cost/device_report.h"
#include "fusion/device/device_spec.h"
#include "fusion/lower/lower.h"
#include "fusion/plan/plan.h"
#include "fusion/search/region_plan.h"
#include "graph/base/cancelled.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// What --disable accepts, each with what is lost.
struct Feature {
  absl::string_view name;
  absl::string_view what;
};
inline constexpr Feature kFeatures[] = {
    {"vectorization", "accesses of up to 16 bytes a thread"},
    {"split_reductions", "reductions spread over more blocks than they have results"},
    {"persistent_reductions", "rows kept in registers between the stages of a kernel"},
    {"gathered_sums",
     "sums at indices known beforehand as gathers; without it their terms are sorted"},
    {"first_writer", "the first contribution to a sum stores; without it a zero fill and an add"},
    {"cast_pairs", "dropping a narrowing that is widened back"},
    {"cast_absorption", "fp32 results of library calls that absorb a cast"},
    {"matmul_accumulate", "matmuls that add to what is there (beta = 1)"},
    {"matmul_epilogues", "matmuls that make more of their product before storing it"},
    {"grouped_epilogues", "the same of grouped matmuls whose rows are in groups"},
    {"merged_matmuls", "one matmul for several that share an operand or are added up"},
    {"concats_in_place", "concats without a copy: their parts are stored side by side"},
    {"scatter_lines", "sums at indices of each line without a sort"},
    {"position_order",
     "what several sums at the same indices read of positions, in the order of these once"},
    {"based_sums", "sums at indices made onto the gradient to which they are added"},
    {"joined_sums", "sums at indices that are added up made as one"},
    {"sums_of_slices", "sums of neighbouring slices made at once"},
    {"image_boxes", "convolutions' operands in boxes that a copy engine takes from images"},
    {"matmul_tiles", "prices of matmuls by tiles of ours; without it by the library alone"},
    {"thin_matmuls", "matmuls of few rows, columns or terms as sums of products"},
    {"image_order",
     "row-major images of convolutions copied, once each, so that channels are last"},
    {"taps_as_channels", "taps as channels of images of few channels, for the weight's gradient"},
    {"depthwise_taps", "depthwise gradients of few taps as sums of shifted products"},
    {"split_scans", "cumulative sums of few long rows in pieces"},
    {"pad_operands", "matmuls whose odd operands are padded where their prices say so"},
    {"padded_rows", "rows computed at the aligned length that a matmul reads"},
    {"pitches", "gaps between what matmuls read, so that all rows begin aligned"},
    {"layouts", "values stored in the order of what makes and reads them; without it row-major"},
    {"walk_order", "elementwise values in the order of most of what is walked with them"},
    {"accumulate_order", "contributions added where they are made; without it all at the last one"},
    {"rematerialization", "values made on both sides of a barrier that cost no more than reading"},
    {"sunk_sources", "values made beside their first reader that what is in memory suffices for"},
    {"sunk_components", "what only a later barrier depth reads, computed there"},
    {"recompute", "cheap producers computed again where they are read"},
    {"exact_search", "regions solved exactly; without it greedily"},
    {"joined_kernels", "kernels of more ops than a search looks at"},
    {"staged_rows", "rows loaded ahead into shared memory"},
    {"register_slack", "registers a little above the cap, which a compiler may fit"},
    {"rows_at_once", "several rows at once in the registers of the same threads"},
    {"passes_by_rows", "threads of passes that stay at their columns for several rows"},
    {"transpose_tiles", "tiles in shared memory where loads and stores run along different axes"},
    {"held_columns", "columns on chip between what folds them and what reads the results"},
    {"held_tiles", "tiles on chip whose rows and columns are folded, or stored across"},
    {"unrolled_reductions", "threads that fold few elements alone, by vectors of results"},
    {"unified_branches", "what both parts of a join do alike, done once for either"},
    {"fusion", "more than one op in a kernel"},
    {"fusion_prices", "fusing only what pays; without them whatever can share a kernel, greedily"},
    {"horizontal", "launches shared by independent small kernels"},
    {"shared_products", "gradients of weights in one launch; without it one by one"},
    {"kept_partitions", "partitions of a representative size; without it each size is searched"},
};

struct PlanPattern;

struct PlanOptions {
  absl::flat_hash_set<std::string> disable;  // names of kFeatures
  absl::flat_hash_set<std::string> tighten;  // names of kLimits
  bool decisions = true;                     // record why groups are as they are
  std::vector<PairChoice> pairs;  // ops of the lowered graph that must, or must not, share a kernel
  int64_t max_memory_bytes = 0;   // ceiling of PlanSummary::peak_bytes; 0: none
  DeviceReport feedback;          // what the device made of earlier plans
  // Matmuls become one where the whole plan wins by it; or wherever they can (for tests).
  enum class Merging : uint8_t { kNever, kPriced, kAlways } merging = Merging::kPriced;
  SearchOptions search;
  uint64_t random_schedules = 0;  // not 0: any admissible schedule by this seed (for tests)
  Cancelled cancelled;            // asked before each region is planned
  // What a plan of the graph at another size has decided (plan_pattern.h), of the same device and
  // options; null: nothing.
  std::shared_ptr<const PlanPattern> pattern;
  // Asked for a second one where the pattern says nothing of a region, or costs too much. Gives
  // null where there is none; may be null itself.
  std::function<absl::StatusOr<std::shared_ptr<const PlanPattern>>()> second_pattern;
};

struct Planned {
  BackwardGraph graph;  // lowered: the plan's ids refer to it. Inputs and outputs keep their order
  FusionPlan plan;
  int64_t memory_ps_per_mib = 0;  // price of what kernels store for one another, under a ceiling
  std::vector<PairChoice> separated;  // ops that a ceiling keeps apart
  int64_t kept_regions = 0;           // distinct ones whose partition is that of the pattern
  // Names of kFeatures without which the plan takes less, or fits below a ceiling. Who plans
  // `graph` again disables them.
  std::vector<std::string> without;
};

PlanOptions Without(PlanOptions options, const std::vector<std::string>& features);

absl::StatusOr<Planned> PlanFusion(const BackwardGraph& graph, const DeviceSpec& device,
                                   const PlanOptions& options = {});

LowerOptions LowerOptionsOf(const PlanOptions& options, const DeviceSpec& device);

// The graph that PlanFusion plans: lowered, with those matmuls merged by which its plan wins. That
// does not depend on the pairs, whose ids are of this graph, nor on a ceiling.
struct LoweredGraph : LegalGraph {
  std::vector<Decision> merges;
  std::vector<std::string> without;  // as of Planned
};
absl::StatusOr<LoweredGraph> LowerAndMerge(const BackwardGraph& graph, const DeviceSpec& device,
                                           const PlanOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLANNER_PLANNER_H_
