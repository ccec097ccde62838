// The row of sort_indices.
#include "absl/strings/str_cat.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/sort_indices/index_sort.h"
#include "fusion/ops/sort_indices/sort_price.h"

namespace retrograd {
namespace {

bool IsDense(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  return shape.size() == 1 && (shape[0] <= 1 || strides[0] == 1);
}

Price PriceCall(const Call& call, const DeviceSpec& device, bool explain) {
  const IndexSort sort = IndexSortOf(call);
  return PriceSorts(absl::MakeConstSpan(&sort, 1), device, explain);
}

std::string Describe(const Call& call) {
  const IndexSort s = IndexSortOf(call);
  return absl::StrCat("sort_indices ", s.sorted.indices, " into ", s.sorted.rows, " rows");
}

}  // namespace

const CallOp kSortIndicesCalls = {
    .op = Op::sort_indices,
    .name = "sort",
    .reads = IsDense,
    .stores = IsDense,
    .result_like = [](int) { return -1; },
    .price = PriceCall,
    .blocks = [](const Call& call) { return IndexSortOf(call).most_blocks(); },
    .background = true,
    .together = "sorts that share launches",
    .describe = Describe,
    .sizes =
        [](const Call& call) {
          const IndexSort s = IndexSortOf(call);
          return CallSizes{{"indices", s.sorted.indices}, {"rows", s.sorted.rows}};
        }};

}  // namespace retrograd
