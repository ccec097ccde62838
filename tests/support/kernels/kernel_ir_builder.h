// KernelIrs written by hand, for tests of schedules and emitters.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_KERNEL_IR_BUILDER_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_KERNEL_IR_BUILDER_H_

#include <utility>
#include <vector>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

inline IndexExpr A(int axis) { return IndexExpr::Axis(axis); }

// Axes are added from what each instruction uses; buffers are named by the value of node 0, 1, ...
class KernelIrBuilder {
 public:
  explicit KernelIrBuilder(std::vector<int64_t> extents) { ir_.extents = std::move(extents); }

  int In(DType dtype, int64_t elements, int64_t alignment = 16) {
    return AddBuffer(dtype, elements, alignment, false);
  }
  int Out(DType dtype, int64_t elements, int64_t alignment = 16) {
    return AddBuffer(dtype, elements, alignment, true);
  }
  int Load(int buffer, IndexExpr offset, std::vector<Guard> guards = {}, double fill = 0) {
    return Add({.kind = InstrKind::kLoad,
                .dtype = ir_.buffers[buffer].dtype,
                .buffer = buffer,
                .offset = std::move(offset),
                .guards = std::move(guards),
                .fill = fill});
  }
  int Gather(int buffer, IndexExpr offset, int index, int64_t stride, int64_t extent) {
    return Add({.kind = InstrKind::kLoad,
                .dtype = ir_.buffers[buffer].dtype,
                .operands = {index},
                .buffer = buffer,
                .offset = std::move(offset),
                .indirect = {{.instr = index, .stride = stride, .extent = extent}}});
  }
  int Constant(double value, DType dtype) {
    return Add({.kind = InstrKind::kConstant, .dtype = dtype, .constant = value});
  }
  int Index(IndexExpr e, DType dtype, double start = 0, double step = 1) {
    return Add({.kind = InstrKind::kIndex,
                .dtype = dtype,
                .offset = std::move(e),
                .start = start,
                .step = step});
  }
  int Do(Op op, std::vector<int> operands) {
    const DType dtype = Info(op).type_rule == TypeRule::kCompare ? DType::kBool
                        : op == Op::where                        ? ir_.instrs[operands.at(1)].dtype
                                                                 : ir_.instrs[operands[0]].dtype;
    return Add({.kind = InstrKind::kPointwise, .op = op, .dtype = dtype, .operands = operands});
  }
  int Cast(int operand, DType dtype) {
    return Add({.kind = InstrKind::kPointwise,
                .op = Op::cast,
                .dtype = dtype,
                .round = true,
                .operands = {operand}});
  }
  int Widen(int operand, AxisMask axes) {
    return Add({.kind = InstrKind::kPointwise,
                .op = Op::copy,
                .dtype = ir_.instrs[operand].dtype,
                .axes = axes,
                .operands = {operand}});
  }
  int Select(std::vector<Guard> guards, int inside, int outside) {
    return Add({.kind = InstrKind::kSelect,
                .op = Op::where,
                .dtype = ir_.instrs[inside].dtype,
                .operands = {inside, outside},
                .guards = std::move(guards)});
  }
  int Reduce(Op op, int operand, AxisMask reduced) {
    return Add({.kind = InstrKind::kReduce,
                .op = op,
                .dtype = ir_.instrs[operand].dtype,
                .operands = {operand},
                .reduced = reduced});
  }
  int Scan(int operand, AxisMask along, bool reverse) {
    return Add({.kind = InstrKind::kScan,
                .op = Op::cumsum,
                .dtype = ir_.instrs[operand].dtype,
                .operands = {operand},
                .reduced = along,
                .reverse = reverse});
  }
  void Store(int instr, int buffer, IndexExpr offset, StoreMode mode = StoreMode::kStore) {
    ir_.stores.push_back({instr, buffer, std::move(offset), mode});
  }
  void Scatter(retrograd::Scatter scatter) { ir_.scatter = scatter; }

  KernelIr Build() { return ir_; }

 private:
  int AddBuffer(DType dtype, int64_t elements, int64_t alignment, bool written) {
    const int number = static_cast<int>(ir_.buffers.size());
    ir_.buffers.push_back({.value = {.node = static_cast<NodeId>(number)},
                           .dtype = dtype,
                           .elements = elements,
                           .alignment = alignment,
                           .written = written});
    return number;
  }
  int Add(Instr instr) {
    for (int o : instr.operands) instr.axes |= ir_.instrs[o].axes;
    for (const Guard& g : instr.guards) instr.axes |= g.expr.axes();
    instr.axes |= instr.offset.axes();
    if (instr.kind == InstrKind::kReduce) instr.axes &= ~instr.reduced;
    ir_.instrs.push_back(std::move(instr));
    return static_cast<int>(ir_.instrs.size()) - 1;
  }
  KernelIr ir_;
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_KERNEL_IR_BUILDER_H_
