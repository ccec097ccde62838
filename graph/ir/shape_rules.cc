#include "graph/ir/shape_rules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/malformations.h"
#include "graph/base/tensor_type.h"

namespace retrograd {
namespace {

std::string Print(absl::Span<const int64_t> list) {
  return absl::StrCat("[", absl::StrJoin(list, ","), "]");
}

}  // namespace

absl::Status CheckShape(absl::Span<const int64_t> shape) {
  if (shape.size() > static_cast<size_t>(kMaxRank)) {
    return Malformed(
        Malformation::kRankTooLarge,
        absl::StrCat("a shape has ", shape.size(), " dims; at most ", kMaxRank, " are supported"));
  }
  for (int64_t extent : shape) {
    if (extent < 0) {
      return Malformed(Malformation::kNegativeExtent,
                       absl::StrCat("shape ", Print(shape), " has a negative extent"));
    }
  }
  if (!CheckedElements(shape).has_value()) {
    return Malformed(Malformation::kTooManyElements,
                     absl::StrCat("shape ", Print(shape), " has more than 2^48 elements"));
  }
  return absl::OkStatus();
}

absl::Status CheckStrides(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides,
                          bool distinct) {
  if (strides.empty()) return absl::OkStatus();
  if (strides.size() != shape.size()) {
    return Malformed(Malformation::kStrideRank,
                     absl::StrCat(strides.size(), " strides for the shape ", Print(shape)));
  }
  int64_t reach = 0;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, extent
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t steps = std::max<int64_t>(shape[i] - 1, 0);
    if (strides[i] < 0 || strides[i] > kMaxElements ||
        (steps > 0 && strides[i] > (kMaxElements - reach) / steps)) {
      return Malformed(Malformation::kStrideRange,
                       absl::StrCat("strides ", Print(strides), " for the shape ", Print(shape),
                                    " are negative or reach beyond 2^48 elements"));
    }
    reach += steps * strides[i];
    if (shape[i] > 1) dims.emplace_back(strides[i], shape[i]);
  }
  if (!distinct) return absl::OkStatus();
  // Sufficient, and what every tensor that is a permuted, sliced dense one satisfies: each stride
  // steps over all that the smaller ones reach.
  std::sort(dims.begin(), dims.end());
  int64_t inner_reach = 0;
  for (const auto& [stride, extent] : dims) {
    if (stride <= inner_reach) {
      return Malformed(Malformation::kStrideOverlap,
                       absl::StrCat("strides ", Print(strides), " for the shape ", Print(shape),
                                    " put two elements at one address"));
    }
    inner_reach += (extent - 1) * stride;
  }
  return absl::OkStatus();
}

}  // namespace retrograd
