// Which elements of a value a chain of views leaves, as far as that tells two parts of it apart: a
// rotary embedding reads the two halves of each row, and no kernel gets both for the price of one.
#ifndef RETROGRAD_FUSION_ANALYSIS_VIEW_BOX_H_
#define RETROGRAD_FUSION_ANALYSIS_VIEW_BOX_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// Elements begin + sum of i_d * stride_d for 0 <= i_d < extent_d, numbered row-major in the value.
struct ViewBox {
  int64_t begin = 0;
  std::vector<std::pair<int64_t, int64_t>>
      dims;              // {stride, extent}, strides descending and positive
  int64_t elements = 1;  // each of them once
  friend bool operator==(const ViewBox&, const ViewBox&) = default;
};

// What `seen` shows of the value behind all its views; nullopt where that is no box, shows an
// element twice or pads.
std::optional<ViewBox> BoxBehindViews(const BackwardGraph& graph, ValueId seen);

// True: no element lies in both. False: perhaps one does.
bool LieApart(const ViewBox& a, const ViewBox& b);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_ANALYSIS_VIEW_BOX_H_
