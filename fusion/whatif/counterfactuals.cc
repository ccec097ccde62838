#include "fusion/whatif/counterfactuals.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "fusion/planner/can_share_kernel.h"
#include "fusion/planner/planning_context.h"
#include "fusion/whatif/why.h"
#include "graph/base/status.h"
#include "graph/passes/expand.h"
#include "graph/passes/rebatch.h"
#include "graph/passes/retype.h"

namespace retrograd {
namespace {

constexpr double kFactors[] = {1.05, 1.1, 1.25, 1.5, 2, 4, 8, 16};
constexpr int64_t kRowFactors[] = {2, 4, 8, 16};

// Numbers that a person could mean by "another device". Left out are those that fused kernels do
// not depend on (matrix rates) and those that other numbers follow from (the width of a warp).
constexpr absl::string_view kNumbers[] = {
    "sms",
    "max_threads_per_sm",
    "max_blocks_per_sm",
    "registers_per_sm",
    "max_registers",
    "shared_bytes_per_sm",
    "shared_bytes_per_block",
    "hbm_bytes_per_s",
    "cache_bytes",
    "cache_bytes_per_s",
    "bytes_in_flight_per_sm",
    "sm_bytes_per_s",
    "launch_graph_us",
    "barrier_us",
    "clock_hz",
    "rate_exponential",
    "rate_special",
    "margin_us",
    "margin_fraction",
};

bool SameCall(const BackwardGraph& g, NodeId a, const BackwardGraph& h, NodeId b) {
  if (g.op(a) != h.op(b)) return false;
  const Origin *one = g.origin(a), *other = h.origin(b);
  if (one == nullptr || other == nullptr) return one == other;
  return *one == *other;
}

// Counts stay counts.
double Times(double value, double factor) {
  const double product = value * factor;
  return value == std::floor(value) && value >= 16 && value < 1e9 ? std::round(product) : product;
}

class FlipSearch {
 public:
  explicit FlipSearch(const FlipQuestion& question) : q_(question) {}

  absl::StatusOr<Flips> Run() {
    RG_RETURN_IF_ERROR(TryDevice());
    RG_RETURN_IF_ERROR(TryRows());
    RG_RETURN_IF_ERROR(TryDTypes());
    return std::move(found_);
  }

 private:
  // Whether a plan of the region has both in one kernel; nullopt if it is not to be had.
  std::optional<bool> Together(const BackwardGraph& lowered,
                               const std::vector<std::string>& without, const DeviceSpec& device,
                               NodeId a, NodeId b) {
    ++found_.tried;
    const PlanOptions chosen = Without(q_.options, without);
    const auto context = PlanningContext::Make(lowered, device, chosen, q_.memory_ps_per_mib);
    if (!context.ok()) return std::nullopt;
    if (!CanMeet(**context, a, b).ok()) return false;
    const RegionOptions options = RegionOptionsOf(chosen, (*context)->limits);
    if (!options.fuse) return false;
    RegionPlanner planner((*context)->regions[(*context)->region_of[Index(a)]], (*context)->pricer,
                          options);
    return ShareAKernel(planner.Solve(), a, b);
  }

  // Whether planning for the device has the same matmuls merged, and so is about the same ops.
  bool MergesTheSame(const DeviceSpec& device) const {
    const absl::StatusOr<LoweredGraph> lowered = LowerAndMerge(q_.original, device, q_.options);
    return lowered.ok() && lowered->graph == q_.lowered && lowered->without == q_.without;
  }

  // All numbers at one factor before any at the next.
  absl::Status TryDevice() {
    if (!q_.can_meet) return absl::OkStatus();
    RG_ASSIGN_OR_RETURN(const std::vector<DeviceNumber> numbers,
                        DeviceNumbers(q_.device_text, "device"));
    const size_t before = found_.flips.size();
    for (const double factor : kFactors) {
      for (const DeviceNumber& number : numbers) {
        if (std::find(std::begin(kNumbers), std::end(kNumbers), number.name) ==
            std::end(kNumbers)) {
          continue;
        }
        TryNumber(number, factor);
        TryNumber(number, 1 / factor);
      }
      if (found_.flips.size() > before) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  void TryNumber(const DeviceNumber& number, double factor) {
    const DeviceNumber changed{number.name, Times(number.value, factor)};
    if (changed.value == number.value) return;
    const auto text = WithDeviceNumbers(q_.device_text, "device", absl::MakeConstSpan(&changed, 1));
    if (!text.ok()) return;
    const absl::StatusOr<DeviceSpec> device = ParseDeviceSpec(*text, "device");
    if (!device.ok()) return;  // no device has such a number
    if (Together(q_.lowered, q_.without, *device, q_.a, q_.b) != std::optional<bool>(!q_.together))
      return;
    if (!MergesTheSame(*device)) return;
    found_.flips.push_back(
        {.name = number.name,
         .change = absl::StrCat(number.name, " were ", PrintNumber(changed.value), " (now ",
                                PrintNumber(number.value), ")"),
         .option = absl::StrCat("--set ", changed.name, "=", PrintNumber(changed.value)),
         .factor = factor,
         .a = q_.a,
         .b = q_.b});
  }

  // Whether the plan of another graph decides otherwise about the ops that stand for these two.
  absl::StatusOr<bool> TryGraph(const absl::StatusOr<BackwardGraph>& changed, Flip flip) {
    if (!changed.ok()) return false;
    RG_ASSIGN_OR_RETURN(const DeviceSpec device, ParseDeviceSpec(q_.device_text, "device"));
    const absl::StatusOr<LoweredGraph> lowered = LowerAndMerge(*changed, device, q_.options);
    if (!lowered.ok()) return false;
    const std::optional<NodeId> a = Counterpart(q_.lowered, q_.a, lowered->graph);
    const std::optional<NodeId> b = Counterpart(q_.lowered, q_.b, lowered->graph);
    if (!a.has_value() || !b.has_value() || *a == *b) return false;
    if (Together(lowered->graph, lowered->without, device, *a, *b) !=
        std::optional<bool>(!q_.together))
      return false;
    flip.a = *a;
    flip.b = *b;
    found_.flips.push_back(std::move(flip));
    return true;
  }

  absl::Status TryRows() {
    RG_ASSIGN_OR_RETURN(const BackwardGraph primitives, ExpandComposites(q_.original));
    const absl::StatusOr<Rows> rows = FindRows(primitives);
    if (!rows.ok()) return absl::OkStatus();
    for (const int64_t factor : kRowFactors) {
      bool flipped = false;
      for (const bool more : {false, true}) {
        const int64_t up = more ? factor : 1, down = more ? 1 : factor;
        const double scale = static_cast<double>(up) / static_cast<double>(down);
        const int64_t now = rows->largest / down * up;
        RG_ASSIGN_OR_RETURN(
            const bool flips,
            TryGraph(RescaleRows(primitives, up, down),
                     {.name = "rows",
                      .change = absl::StrCat("rows were ", now, " (now ", rows->largest, ")"),
                      .option = absl::StrCat("--scale-rows ", PrintNumber(scale)),
                      .factor = scale}));
        flipped |= flips;
      }
      if (flipped) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status TryDTypes() {
    for (const DType dtype : {DType::kBf16, DType::kFp32}) {
      const std::string name = dtype == DType::kBf16 ? "bf16" : "fp32";
      RG_RETURN_IF_ERROR(TryGraph(RetypeFloats(q_.original, dtype),
                                  {.name = "dtype",
                                   .change = absl::StrCat("all floating values were ", name),
                                   .option = absl::StrCat("--dtype ", name)})
                             .status());
    }
    return absl::OkStatus();
  }

  const FlipQuestion& q_;
  Flips found_;
};

}  // namespace

std::optional<NodeId> Counterpart(const BackwardGraph& from, NodeId id, const BackwardGraph& to) {
  int place = 0;
  for (uint32_t i = 0; i < Index(id); ++i) place += SameCall(from, id, from, NodeId{i}) ? 1 : 0;
  for (uint32_t i = 0; i < to.num_nodes(); ++i) {
    if (SameCall(from, id, to, NodeId{i}) && place-- == 0) return NodeId{i};
  }
  return std::nullopt;
}

absl::StatusOr<Flips> FindFlips(const FlipQuestion& question) { return FlipSearch(question).Run(); }

}  // namespace retrograd
