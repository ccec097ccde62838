// A set of ops becomes a KernelIr, or the reason why it can't.
//
// The ops of a kernel walk one iteration space. Its axes are the dims of the op with the most
// points, split where another op's view cuts through a dim, put into the order in which the
// largest access lies in memory, and merged again where every access allows it. Each op's place in
// that space follows from its neighbours' through the views between them; whatever is only read
// (not stored, not folded) may be evaluated anywhere.
#ifndef RETROGRAD_FUSION_KERNEL_BUILD_BUILD_H_
#define RETROGRAD_FUSION_KERNEL_BUILD_BUILD_H_

#include <optional>
#include <vector>

#include "fusion/kernel/build/build_limit.h"
#include "fusion/kernel/ir/kernel_ir.h"
#include "fusion/kernel/ir/layout.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

class KernelMaps;

struct KernelRequest {
  const BackwardGraph& graph;
  absl::Span<const Layout> layouts;  // by value_index; of every value that may be stored or read
  // Ops computed in the kernel, ascending; no views, constants, composites and library ops.
  absl::Span<const NodeId> nodes;
  absl::Span<const ValueId> stores;  // their results that others need, ascending
  bool unify_branches = true;        // see fusion/kernel/build/unify_branches.h
  KernelMaps* maps = nullptr;        // of the graph's kernels before this one; may be null
};

struct KernelOutcome {
  std::optional<KernelIr> ir;
  std::optional<BuildRefusal> refusal;  // where there is no ir
};

KernelOutcome BuildKernel(const KernelRequest& request);

// The value behind a chain of views: the operand of the first one.
ValueId BehindViews(const BackwardGraph& graph, ValueId value);

// Constants: pointwise ops without operands. They belong to no group and are evaluated in place.
bool IsConstant(const BackwardGraph& graph, NodeId id);

// Whether the value is a constant of zeros, or a view of one that adds no other elements.
bool IsZero(const BackwardGraph& graph, ValueId value);

// Pointwise values and sums of contributions: each element follows from elements at its place.
bool IsElementwise(const BackwardGraph& graph, NodeId id);

// Whether a kernel or a library call has to compute the node: not an input, view or constant.
bool Computes(const BackwardGraph& graph, NodeId id);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_BUILD_BUILD_H_
