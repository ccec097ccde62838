#include "fusion/horizontal/shared_sorts.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
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

// What comes before and behind each group.
struct Around {
  std::vector<int> sorts_before;   // on one path, at most
  std::vector<int64_t> before_ps;  // of the longest path to it
  // Of those that wait for it the first one: its first op and its price; none where nobody does.
  std::vector<std::optional<std::pair<NodeId, int64_t>>> first_reader;
};

Around FindAround(const BackwardGraph& graph, const std::vector<Group>& groups) {
  Successors successors = FindSuccessors(graph, groups);
  Around around{std::vector<int>(groups.size(), 0), std::vector<int64_t>(groups.size(), 0), {}};
  around.first_reader.resize(groups.size());
  std::vector<uint32_t> ready;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (successors.before[g] == 0) ready.push_back(g);
    const auto first = std::min_element(
        successors.after[g].begin(), successors.after[g].end(),
        [&](uint32_t a, uint32_t b) { return groups[a].nodes.front() < groups[b].nodes.front(); });
    if (first != successors.after[g].end()) {
      around.first_reader[g] = {groups[*first].nodes.front(), groups[*first].price_ps};
    }
  }
  while (!ready.empty()) {
    const uint32_t g = ready.back();
    ready.pop_back();
    for (const uint32_t after : successors.after[g]) {
      around.sorts_before[after] = std::max(around.sorts_before[after],
                                            around.sorts_before[g] + (IsSort(groups[g]) ? 1 : 0));
      around.before_ps[after] =
          std::max(around.before_ps[after], Saturated(around.before_ps[g] + groups[g].price_ps));
      if (--successors.before[after] == 0) ready.push_back(after);
    }
  }
  return around;
}

class Sharing {
 public:
  Sharing(std::vector<Group> groups, const GroupPricer& pricer)
      : pricer_(pricer), groups_(std::move(groups)) {}

  SharedLaunches Run() {
    if (std::count_if(groups_.begin(), groups_.end(), IsSort) < 2) {
      return {.groups = std::move(groups_)};
    }
    around_ = FindAround(pricer_.graph(), groups_);
    // By depth and kind, those of the graph's inputs, whose lists may be kept, by themselves.
    std::map<std::tuple<int, SortKind, bool>, std::vector<size_t>> alike;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!IsSort(groups_[g])) continue;
      const Call& call = *CallOf(groups_[g]);
      const bool given = pricer_.graph().pattern(call.operands[0].value.node) == Pattern::kInput;
      alike[{around_.sorts_before[g], SharedKindOf(IndexSortOf(call)), given}].push_back(g);
    }
    for (auto& [kind, sorts] : alike) {
      ShareReady(sorts);
    }
    std::erase_if(groups_, [](const Group& group) { return group.nodes.empty(); });
    for (Group& merged : result_.groups) groups_.push_back(std::move(merged));
    result_.groups = std::move(groups_);
    return std::move(result_);
  }

 private:
  // Those whose indices are there at about the same time.
  void ShareReady(std::vector<size_t>& sorts) {
    std::stable_sort(sorts.begin(), sorts.end(), [&](size_t a, size_t b) {
      return around_.before_ps[a] < around_.before_ps[b];
    });
    for (size_t first = 0; first < sorts.size();) {
      const int64_t until =
          Saturated(around_.before_ps[sorts[first]] + groups_[sorts[first]].price_ps);
      size_t end = first + 1;
      while (end < sorts.size() && around_.before_ps[sorts[end]] <= until) ++end;
      const auto begin = sorts.begin() + static_cast<std::ptrdiff_t>(first);
      std::sort(begin, sorts.begin() + static_cast<std::ptrdiff_t>(end), [&](size_t a, size_t b) {
        return groups_[a].nodes.front() < groups_[b].nodes.front();
      });
      ShareEvenly(absl::MakeConstSpan(sorts).subspan(first, end - first));
      first = end;
    }
  }

  // What the sorts take where they are apart: no less than the longest.
  int64_t ShownPs(absl::Span<const size_t> together) const {
    int64_t all = 0, longest = 0;
    std::map<NodeId, int64_t> readers;  // prices, by the first op: in the order of the graph
    for (const size_t g : together) {
      const int64_t ps = groups_[g].price_ps;
      all += ps;
      longest = std::max(longest, ps);
      if (around_.first_reader[g]) readers.insert(*around_.first_reader[g]);
    }
    if (!readers.empty()) readers.erase(std::prev(readers.end()));
    for (const auto& [node, ps] : readers) all -= ps;
    return std::max(all, longest);
  }

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
    const int64_t shown = ShownPs(together);
    Decision decision{.a = groups_[together[0]].nodes};
    for (const size_t g : together) {
      sorts.push_back(IndexSortOf(*CallOf(groups_[g])));
      apart += groups_[g].price_ps;
      if (g == together[0]) continue;
      decision.b.insert(decision.b.end(), groups_[g].nodes.begin(), groups_[g].nodes.end());
    }
    std::sort(decision.b.begin(), decision.b.end());
    int64_t launches = 0, most = 0;
    for (const IndexSort& sort : sorts) launches += sort.launches();
    sorts = TogetherOf(std::move(sorts));
    for (const IndexSort& sort : sorts) most = std::max<int64_t>(most, sort.launches());
    const Price price = PriceSorts(sorts, pricer_.device(), /*explain=*/true);
    decision.together = price.ps + pricer_.Margin(price.ps) <= shown;
    decision.together_ps = price.ps;
    decision.apart_ps = apart;
    decision.reason =
        absl::StrCat(together.size(), " sorts that share launches: ", Us(price.ps), ", apart ",
                     Us(apart), ", of which ", Us(shown), " are not hidden behind their readers");
    const bool wins = decision.together;
    result_.decisions.push_back(std::move(decision));
    if (!wins) return;
    result_.saved += launches - most;
    result_.won_ps += apart - price.ps;
    result_.groups.push_back(MergeCalls(together, price, groups_));
  }

  const GroupPricer& pricer_;
  std::vector<Group> groups_;  // without ops: moved into one that is shared
  Around around_;              // by group, as they were
  SharedLaunches result_;
};

}  // namespace

SharedLaunches ShareSorts(std::vector<Group> groups, const GroupPricer& pricer) {
  return Sharing(std::move(groups), pricer).Run();
}

}  // namespace retrograd
