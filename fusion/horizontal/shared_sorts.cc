#include "fusion/horizontal/shared_sorts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/horizontal/group_order.h"
#include "fusion/horizontal/merge_calls.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/sort_indices/sort_price.h"

namespace retrograd {
namespace {

std::string Us(int64_t ps) { return absl::StrFormat("%.2f us", static_cast<double>(ps) / 1e6); }

bool IsSort(const Group& group) {
  const Call* call = CallOf(group);
  return call != nullptr && call->op == Op::sort_indices;
}

// What comes before each group.
struct Before {
  std::vector<int> sorts;       // on one path, at most
  std::vector<int64_t> all_ps;  // no less than all groups take; one on two paths counts twice
};

Before FindBefore(const BackwardGraph& graph, const std::vector<Group>& groups) {
  Successors successors = FindSuccessors(graph, groups);
  Before before{std::vector<int>(groups.size(), 0), std::vector<int64_t>(groups.size(), 0)};
  std::vector<uint32_t> ready;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (successors.before[g] == 0) ready.push_back(g);
  }
  while (!ready.empty()) {
    const uint32_t g = ready.back();
    ready.pop_back();
    for (const uint32_t after : successors.after[g]) {
      before.sorts[after] =
          std::max(before.sorts[after], before.sorts[g] + (IsSort(groups[g]) ? 1 : 0));
      before.all_ps[after] =
          Saturated(before.all_ps[after] + before.all_ps[g] + groups[g].price_ps);
      if (--successors.before[after] == 0) ready.push_back(after);
    }
  }
  return before;
}

class Sharing {
 public:
  Sharing(std::vector<Group> groups, const GroupPricer& pricer)
      : pricer_(pricer), groups_(std::move(groups)) {}

  SharedLaunches Run() {
    if (std::count_if(groups_.begin(), groups_.end(), IsSort) < 2) {
      return {.groups = std::move(groups_)};
    }
    const Before before = FindBefore(pricer_.graph(), groups_);
    std::map<std::pair<int, SortKind>, std::vector<size_t>> alike;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!IsSort(groups_[g]) || before.all_ps[g] > groups_[g].price_ps) continue;
      alike[{before.sorts[g], SharedKindOf(IndexSortOf(*CallOf(groups_[g])))}].push_back(g);
    }
    for (auto& [kind, sorts] : alike) {
      std::sort(sorts.begin(), sorts.end(), [&](size_t a, size_t b) {
        return groups_[a].nodes.front() < groups_[b].nodes.front();
      });
      ShareEvenly(sorts);
    }
    std::erase_if(groups_, [](const Group& group) { return group.nodes.empty(); });
    for (Group& merged : result_.groups) groups_.push_back(std::move(merged));
    result_.groups = std::move(groups_);
    return std::move(result_);
  }

 private:
  // As few launches as may be, each of as many sorts.
  void ShareEvenly(absl::Span<const size_t> sorts) {
    const size_t parts = (sorts.size() + kMostSharedSorts - 1) / kMostSharedSorts;
    for (size_t part = 0; part < parts; ++part) {
      const size_t first = part * sorts.size() / parts, end = (part + 1) * sorts.size() / parts;
      Share(sorts.subspan(first, end - first));
    }
  }

  void Share(absl::Span<const size_t> together) {
    if (together.size() < 2) return;
    std::vector<IndexSort> sorts;
    int64_t apart = 0;
    Decision decision{.a = groups_[together[0]].nodes};
    for (const size_t g : together) {
      sorts.push_back(IndexSortOf(*CallOf(groups_[g])));
      apart += groups_[g].price_ps;
      if (g == together[0]) continue;
      decision.b.insert(decision.b.end(), groups_[g].nodes.begin(), groups_[g].nodes.end());
    }
    std::sort(decision.b.begin(), decision.b.end());
    const Price price = PriceSorts(sorts, pricer_.device(), /*explain=*/true);
    decision.together = price.ps + pricer_.Margin(price.ps) <= apart;
    decision.together_ps = price.ps;
    decision.apart_ps = apart;
    decision.reason = absl::StrCat(together.size(), " sorts that share launches: ", Us(price.ps),
                                   ", apart ", Us(apart));
    const bool wins = decision.together;
    result_.decisions.push_back(std::move(decision));
    if (!wins) return;
    result_.saved += static_cast<int64_t>(together.size() - 1) * sorts[0].launches();
    result_.won_ps += apart - price.ps;
    result_.groups.push_back(MergeCalls(together, price, groups_));
  }

  const GroupPricer& pricer_;
  std::vector<Group> groups_;  // without ops: moved into one that is shared
  SharedLaunches result_;
};

}  // namespace

SharedLaunches ShareSorts(std::vector<Group> groups, const GroupPricer& pricer) {
  return Sharing(std::move(groups), pricer).Run();
}

}  // namespace retrograd
