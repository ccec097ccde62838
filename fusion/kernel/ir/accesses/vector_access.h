// How an access behaves over a vector: `width` consecutive positions of one axis, which begin where
// the position plus `phase` is a multiple of `width`. Candidates ask it what widths pay, the
// emitters what to print.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESSES_VECTOR_ACCESS_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESSES_VECTOR_ACCESS_H_

#include <optional>
#include <vector>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// The widest access of one thread, in bytes.
inline constexpr int kMaxAccessBytes = 16;

struct Vectors {
  int axis = -1;
  int width = 1;
  IndexExpr phase;      // of other axes than `axis`; 0: vectors begin at multiples of the width
  bool shifts = false;  // loads out of phase are put together from aligned ones
};

// The axis along which vectors lie: the last one with more than one position, or -1.
int FastestAxis(const KernelIr& ir);

// s such that e(lane j) = e(lane 0) + s·j in every vector, or nullopt.
std::optional<int64_t> LaneStride(const IndexExpr& e, const Vectors& vectors);

// A number that divides e at lane 0 of every vector (0: e is always 0).
int64_t KnownMultiple(const IndexExpr& e, const Vectors& vectors);

// True if the guard has one truth for all lanes of every vector.
bool LanesAgree(const Guard& guard, const Vectors& vectors, absl::Span<const int64_t> extents);

// By instruction: whether its value may differ between the lanes of one vector.
std::vector<bool> LaneVaries(const KernelIr& ir, const Vectors& vectors);

// Elements of the widest single accesses that cover the `width` lanes of a load or store: a power
// of two up to `width`, 1 where each lane goes alone.
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
