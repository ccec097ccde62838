// What the planner knows of an op that stays whole for a library: a row for each, made in a folder
// of its own. Layouts, legalization, concats in place, prices, schedules and explanations ask the
// row and never which op it is.
#ifndef RETROGRAD_FUSION_OPS_CALL_OP_H_
#define RETROGRAD_FUSION_OPS_CALL_OP_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_spec.h"
#include "fusion/device/interference.h"
#include "fusion/plan/call.h"

namespace retrograd {

// Named numbers of a call, for reports: {"m", 4096}, ...
using CallSizes = std::vector<std::pair<std::string, int64_t>>;

struct CallOp {
  Op op{};
  absl::string_view name;  // of the kind of call in reports

  // Whether a call reads an operand of this shape, or stores a result, with these strides
  // (elements). Anything else is copied first.
  bool (*reads)(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);
  bool (*stores)(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);
  // The strides as the call is told them: along an extent of 1 any stride is the same memory.
  void (*normalize)(absl::Span<const int64_t> shape, std::vector<int64_t>& strides) = nullptr;
  // The strides that an operand of this shape should have beside another one that lies so; empty:
  // any that the call reads.
  std::vector<int64_t> (*beside)(absl::Span<const int64_t> shape,
                                 absl::Span<const int64_t> other_shape,
                                 absl::Span<const int64_t> other_strides) = nullptr;
  // The axis along which neighbours of this operand should lie side by side, where a device's call
  // is many times slower on others; -1: along any.
  int (*lies_along)(int operand, const TensorType& type) = nullptr;
  // The operand whose memory order a result takes; -1: what reads the result decides.
  int (*result_like)(int result);
  // Whether results may be stored as slices of a larger value.
  bool stores_slices = false;
  // What the call may do of what follows it: widen its result to fp32; add it to what is there.
  bool widens = false, adds = false;

  // `explain` fills the terms; the figures are the same without.
  Price (*price)(const Call& call, const DeviceSpec& device, bool explain);
  // Blocks that the call is taken to launch: its share of the device.
  int64_t (*blocks)(const Call& call);
  // Its rows in the device's table of interference; none: that says nothing of it, and nothing runs
  // beside it.
  std::optional<WorkKind> work_kind = std::nullopt;
  // Its launches wait for each other and for memory most of their time and leave the device to
  // others, so that anything may run beside them.
  bool background = false;

  // What several calls are called that share launches.
  absl::string_view together = "products in one launch";
  // One line for people: "matmul 4096x1024x8192 bf16".
  std::string (*describe)(const Call& call);
  CallSizes (*sizes)(const Call& call);
};

#define RG_CALL_OP(OP, ROW) extern const CallOp ROW;
#include "fusion/ops/call_ops.def"
#undef RG_CALL_OP

inline bool IsLibrary(const BackwardGraph& graph, NodeId id) {
  return graph.pattern(id) == Pattern::kLibrary;
}

// The row of an op whose pattern is library.
const CallOp& CallOpOf(Op op);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_CALL_OP_H_
