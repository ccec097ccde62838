// The row of sort_indices.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/sort_indices/index_sort.h"

namespace retrograd {
namespace {

bool IsDense(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  return shape.size() == 1 && (shape[0] <= 1 || strides[0] == 1);
}

// Each launch has its time, and each pass over the indices. In one launch a thread goes through its
// part of the list, in as many blocks at a time as the device holds.
Price PriceCall(const Call& call, const DeviceSpec& d, bool explain) {
  const IndexSort s = IndexSortOf(call);
  Price price;
  price.read_bytes = s.sorted.indices * SizeBytes(s.index_dtype);
  price.written_bytes = 4 * s.sorted.elements();
  const int64_t launches = Product({s.launches(), d.launch_graph_ps + d.sort_launch_ps});
  const int64_t passes =
      s.way == SortWay::kOneLaunch
          ? Product({s.items, CeilDiv(s.buckets, Product({4, d.sms})), d.sort_visit_ps})
          : Product({s.passes, s.sorted.indices, d.sort_pass_ps});
  const int64_t starts = TransferPs(4 * s.sorted.rows, d.hbm_bytes_per_s);
  price.ps = std::min(kHuge, launches + passes + starts);
  if (!explain) return price;
  const int64_t longest = std::max({launches, passes, starts});
  price.terms = {
      {"launch", launches, launches == longest, Describe(s)},
      {"sort", passes, passes == longest && launches < longest,
       s.way == SortWay::kOneLaunch ? absl::StrCat(s.items, " indices a thread")
                                    : absl::StrCat(s.passes, " passes over the indices")},
      {"rows", starts, starts == longest && std::max(launches, passes) < longest,
       absl::StrCat("where each of ", s.sorted.rows, " rows begins")}};
  return price;
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
    .describe = Describe,
    .sizes =
        [](const Call& call) {
          const IndexSort s = IndexSortOf(call);
          return CallSizes{{"indices", s.sorted.indices}, {"rows", s.sorted.rows}};
        }};

}  // namespace retrograd
