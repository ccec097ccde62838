// How an access behaves over a vector of lanes. Candidates ask it what widths pay, the emitters
// what to print.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESSES_VECTOR_ACCESS_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESSES_VECTOR_ACCESS_H_

#include <vector>

#include "fusion/kernel/ir/accesses/lanes.h"
#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// The widest access of one thread, in bytes.
inline constexpr int kMaxAccessBytes = 16;

// The axis along which vectors lie: the last one with more than one position, or -1.
int FastestAxis(const KernelIr& ir);

// By instruction: whether its value may differ between the lanes of one vector.
std::vector<bool> LaneVaries(const KernelIr& ir, const Vectors& vectors);

// Elements of the widest single accesses that cover the `width` lanes of a load or store: a power
// of two that divides `width`, 1 where each lane goes alone.
int LoadWidth(const KernelIr& ir, int instr, const Vectors& vectors);
int StoreWidth(const KernelIr& ir, const Store& store, const Vectors& vectors);

// How the lanes of a load come in: by single accesses, or each time by the two aligned ones that
// hold them and a shift.
struct LoadForm {
  int width = 1;  // elements of one access, or of one pair
  bool shifted = false;
  friend bool operator==(const LoadForm&, const LoadForm&) = default;
};
LoadForm FormOfLoad(const KernelIr& ir, int instr, const Vectors& vectors);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_ACCESSES_VECTOR_ACCESS_H_
