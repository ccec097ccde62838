// KernelIr: what one fused kernel computes, before any schedule. Axes, and a list of instructions
// each of which yields one scalar at every point of the axes it varies over. Rows x columns is a
// schedule's reading of the axes; the IR only says over which axes each reduction folds.
//
// Invariants, named in Verify():
//   K1  operands are earlier instructions
//   K2  an instruction varies over at least its operands' axes (a reduction: less what it folds);
//       a scan runs along one axis over which it and its operand vary
//   K3  loads and stores stay inside their buffers wherever their guards hold
//   K4  a store writes each element of its region exactly once: its offset is one-to-one over the
//       axes that its instruction varies over, and its instruction varies over no other axis;
//       several stores of one buffer write different elements
//   K5  guards and offsets mention only axes of the instruction
#ifndef RETROGRAD_FUSION_KERNEL_IR_KERNEL_IR_H_
#define RETROGRAD_FUSION_KERNEL_IR_KERNEL_IR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fusion/kernel/ir/access_map.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

using AxisMask = uint32_t;  // bit a: axis a. At most 16 axes.
inline constexpr int kMaxAxes = 16;

enum class InstrKind : uint8_t {
  kLoad,       // an element of a buffer, or `fill` where a guard fails
  kConstant,   // `constant`
  kIndex,      // the value of an index expression (iota), times step plus start
  kPointwise,  // op(operands)
  kSelect,     // operand 0 where the guards hold, else operand 1
  kReduce,     // op folded over the axes `reduced`, starting from the op's identity
  kFold,       // op, a reduction's, folded over the operands in their order
  kScan,       // op folded over the places up to this one along the axis `reduced`
};

// An indirect part of a load's offset: (wrapped) index value times stride. Negative indices count
// from the end; an index outside [-extent, extent) reads `fill`.
struct Indirect {
  int instr = 0;       // an earlier instruction of integer type
  int64_t stride = 0;  // elements
  int64_t extent = 0;
  friend bool operator==(const Indirect&, const Indirect&) = default;
};

struct Instr {
  InstrKind kind = InstrKind::kConstant;
  Op op = Op::full;
  DType dtype = DType::kFp32;  // as in the graph; arithmetic is in ComputeType(dtype)
  bool round = false;  // the result is rounded to dtype: explicit casts, operands of compares
  AxisMask axes = 0;   // what it varies over
  std::vector<int> operands;
  // kLoad
  int buffer = -1;
  IndexExpr offset;  // kLoad: element in the buffer; kIndex: the value
  std::vector<Indirect> indirect;
  // kLoad, kSelect
  std::vector<Guard> guards;
  double fill = 0;
  double constant = 0;         // kConstant
  double start = 0, step = 1;  // kIndex: start + step * offset
  AxisMask reduced = 0;        // kReduce, kScan
  bool reverse = false;        // kScan: over the places from this one on
  ValueId value;               // the graph value that it computes or loads
  friend bool operator==(const Instr&, const Instr&) = default;
};

enum class StoreMode : uint8_t {
  kStore,
  kAdd,  // the element is read, added to in the compute type, rounded once and written
};

struct Store {
  int instr = 0;
  int buffer = 0;
  IndexExpr offset;
  StoreMode mode = StoreMode::kStore;
  friend bool operator==(const Store&, const Store&) = default;
};

// A tensor in device memory: a kernel argument.
// What divides the address of each stored value, in bytes: as much as the widest access wants.
inline constexpr int64_t kStoredAlignment = 16;

struct Buffer {
  ValueId value;
  DType dtype = DType::kFp32;
  int64_t elements = 0;   // storage span that accesses must stay inside
  int64_t alignment = 0;  // bytes known to divide the address, at least the element size
  bool written = false;
  bool fresh = false;  // read, and written earlier in this backward: perhaps still in a cache
  // The indices that the scatter's list has sorted: at a position, the list tells them, too.
  bool sorted_by_list = false;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

// segment_add, deterministic: contributions to one element are summed in the order of
// their position. The source varies over all axes; the axes `row_axes` number the indices, whose
// sorted list (graph/ir/sorted_indices.h) says which of them name a table row. Stores beside it are
// of what each position has: they vary over the row axes, whether the index names a row or not.
struct Scatter {
  int sorted = -1;  // input: the buffer of the sorted indices
  int src_instr = -1;
  int buffer = -1;  // output, dense [outer, table_rows, inner]
  AxisMask row_axes =
      0;  // axes that number the indices; axes before them are outer, after them inner
  int64_t table_rows = 0;  // extent of the indexed axis
  bool in_order = false;   // positions of the source are those of the sorted list
  // Input onto which the sums are added, element e of the table onto its element e; -1: onto zeros.
  int base = -1;
  friend bool operator==(const Scatter&, const Scatter&) = default;
};

struct KernelIr {
  std::vector<int64_t> extents;  // one per axis, outermost first; the last is the fastest in memory
  std::vector<Buffer> buffers;   // inputs in order of first use, then outputs
  std::vector<Instr> instrs;
  std::vector<Store> stores;
  std::optional<Scatter> scatter;

  AxisMask all_axes() const { return (AxisMask{1} << extents.size()) - 1; }
  int64_t Points(AxisMask axes) const;  // product of the extents in the mask
  std::string Print() const;
  absl::Status Verify() const;
  friend bool operator==(const KernelIr&, const KernelIr&) = default;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_KERNEL_IR_H_
