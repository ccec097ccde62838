#include "fusion/ops/sort_indices/sort_price.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Of all sorts together.
struct Work {
  int64_t indices = 0, rows = 0, visits = 0;  // visits: of a thread of one launch, at most
  int64_t buckets = 0, read_bytes = 0, written_bytes = 0;
  int launches = 0;
};

Work WorkOf(absl::Span<const IndexSort> sorts) {
  Work work;
  for (const IndexSort& s : sorts) {
    work.indices += s.sorted.indices;
    work.rows += s.sorted.rows;
    work.visits = std::max(work.visits, s.items);
    work.buckets += s.buckets;
    work.launches = std::max(work.launches, s.launches());
    work.read_bytes += s.sorted.indices * SizeBytes(s.index_dtype);
    work.written_bytes += 4 * s.sorted.elements();
  }
  return work;
}

}  // namespace

SortKind SharedKindOf(const IndexSort& sort) {
  const int launches = sort.way == SortWay::kDigits ? sort.launches() : 0;
  return {sort.way, launches, sort.threads, KeptBytes(sort) > 0};
}

Price PriceSorts(absl::Span<const IndexSort> sorts, const DeviceSpec& d, bool explain) {
  RG_CHECK(!sorts.empty());
  const IndexSort& first = sorts[0];
  const Work work = WorkOf(sorts);
  Price price;
  price.read_bytes = work.read_bytes;
  price.written_bytes = work.written_bytes;
  const int64_t launches = Product({work.launches, d.launch_graph_ps + d.sort_launch_ps});
  const int64_t at_once = Product({sorts.size() == 1 ? 4 : 1, d.sms});
  const int64_t passes =
      first.way == SortWay::kOneLaunch
          ? Product({work.visits, CeilDiv(work.buckets, at_once), d.sort_visit_ps})
          : Product({first.passes, work.indices, d.sort_pass_ps});
  const int64_t starts = TransferPs(4 * work.rows, d.hbm_bytes_per_s);
  price.ps = std::min(kHuge, launches + passes + starts);
  if (!explain) return price;
  const int64_t longest = std::max({launches, passes, starts});
  const std::string how = sorts.size() == 1
                              ? Describe(first)
                              : absl::StrCat(sorts.size(), " sorts, each ", Describe(first));
  price.terms = {
      {"launch", launches, launches == longest, how},
      {"sort", passes, passes == longest && launches < longest,
       first.way == SortWay::kOneLaunch ? absl::StrCat(work.visits, " indices a thread")
                                        : absl::StrCat(first.passes, " passes over the indices")},
      {"rows", starts, starts == longest && std::max(launches, passes) < longest,
       absl::StrCat("where each of ", work.rows, " rows begins")}};
  return price;
}

}  // namespace retrograd
