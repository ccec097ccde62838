// Which element of a tensor a kernel touches at each point of its axes: one index expression per
// tensor dim, guards that must hold, and the value that stands in where they don't.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESS_MAP_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESS_MAP_H_

#include <optional>
#include <string>
#include <vector>

#include "fusion/kernel/ir/index_expr.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// begin <= expr < end.
struct Guard {
  IndexExpr expr;
  int64_t begin = 0, end = 0;
  friend bool operator==(const Guard&, const Guard&) = default;
};

struct AccessMap {
  std::vector<IndexExpr> coords;  // one per dim of the tensor
  std::vector<Guard> guards;      // all must hold; elsewhere the element is `fill`
  double fill = 0;
  friend bool operator==(const AccessMap&, const AccessMap&) = default;
};

// Whether `other` holds wherever `guard` does, as their numbers tell if they are about expressions
// that differ by a constant.
bool Implies(const Guard& guard, const Guard& other, absl::Span<const int64_t> extents);

// The guards that no other one of them implies.
std::vector<Guard> WithoutImplied(std::vector<Guard> guards, absl::Span<const int64_t> extents);

// Given how a view's result is accessed, how its operand is. Every op of pattern kView.
AccessMap ThroughView(const BackwardGraph& graph, NodeId view, const AccessMap& result,
                      absl::Span<const int64_t> extents);

// Given how a view's operand is walked, how its result is; nullopt where a view is not a bijection
// that extents can express (expand, slice, pad, a reshape that cuts across axes).
std::optional<AccessMap> ThroughViewForward(const BackwardGraph& graph, NodeId view,
                                            const AccessMap& operand,
                                            absl::Span<const int64_t> extents);

// How operand `number` of a join or accumulate is accessed where the result is accessed by
// `result`: shifted into the operand's region and guarded by it.
AccessMap ThroughJoin(const BackwardGraph& graph, NodeId join, int number, const AccessMap& result,
                      absl::Span<const int64_t> extents);

// How an operand that broadcasts like numpy is accessed.
AccessMap ThroughBroadcast(absl::Span<const int64_t> operand_shape,
                           absl::Span<const int64_t> result_shape, const AccessMap& result);

// The element offset in storage with these strides.
IndexExpr Linearize(absl::Span<const IndexExpr> coords, absl::Span<const int64_t> strides);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_ACCESS_MAP_H_
