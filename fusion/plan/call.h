// Call: one op that stays whole for a library, with all that it reads and writes. Plans, commands,
// schedules and memory plans treat every op alike; what differs between ops stands in its row
// (fusion/ops/call_op.h) and in its folder under runtime/ops/.
#ifndef RETROGRAD_FUSION_PLAN_CALL_H_
#define RETROGRAD_FUSION_PLAN_CALL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fusion/kernel/gemm/gemm_tile.h"
#include "fusion/kernel/ir/kernel_ir.h"
#include "fusion/kernel/templates/schedule.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// A fused kernel: what it computes and how.
struct KernelBody {
  KernelIr ir;
  Schedule schedule;
  int registers = 0;        // predicted, of a thread
  int64_t spill_bytes = 0;  // predicted, of a thread
  int resident = 0;  // blocks of the main launch on an SM that the price counts on; 0: not known
  friend bool operator==(const KernelBody&, const KernelBody&) = default;
};

// A tensor inside a stored value, as a call reads or writes it.
struct CallTensor {
  ValueId value;       // the stored value, behind any views
  int64_t offset = 0;  // elements, of the tensor's first element
  Shape shape;
  std::vector<int64_t> strides;  // elements, one for each dim of the shape
  DType dtype = DType::kFp32;
  friend bool operator==(const CallTensor&, const CallTensor&) = default;
};

// What is made of a call's result, point by point, before anything is stored: the result itself
// never leaves the kernel that makes it.
struct CallEpilogue {
  KernelBody kernel;                   // reads the result where it would lie
  std::string implementation;          // of the device's matmul_epilogues
  GemmTile tile;                       // of elements of 16 bits
  int64_t call_ps = 0, kernel_ps = 0;  // each as a launch of its own
  friend bool operator==(const CallEpilogue&, const CallEpilogue&) = default;
};

struct Call {
  NodeId node{};  // whose op it is
  Op op{};
  std::vector<CallTensor> operands, results;  // in the op's order
  Attrs attributes;                           // the op's
  bool tf32 = false;  // operands in fp32 may be rounded to TF32: as the graph's numerics say
  // The first result is added to this value, whose storage it takes over.
  std::optional<ValueId> previous;
  std::optional<CallEpilogue> epilogue;
  friend bool operator==(const Call&, const Call&) = default;
};

// Elements from the stored value's first to past the last that the tensor touches; 0 if it is
// empty.
int64_t SpanOf(const CallTensor& tensor);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLAN_CALL_H_
