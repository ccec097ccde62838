#include "fusion/search/interval_search.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

namespace retrograd {
namespace {

// A* over the prefixes of the order, each run first with the least that it may cost.
class IntervalSearch {
 public:
  IntervalSearch(ExactSearch& search, absl::Span<const int> order, int64_t max_work)
      : search_(search),
        masks_(search.masks()),
        atoms_(masks_.size()),
        most_work_(search.work() + max_work),
        before_(1, 0),
        cost_(atoms_ + 1, ExactSearch::kNoBound),
        from_(atoms_ + 1, -1) {
    for (int atom : order) before_.push_back(before_.back() | Bit(atom));
    for (int i = 0; i < atoms_; ++i) least_from_.push_back(masks_.LeastPsOfAll(Run(i, atoms_)));
    least_from_.push_back(0);
  }

  std::vector<AtomMask> Runs() {
    std::vector<bool> expanded(atoms_ + 1, false);
    Enter(0, 0, -1);
    while (!open_.empty()) {
      const auto [bound, begin, end] = open_.top();
      open_.pop();
      if (end != kPrefix) {
        Price(begin, end);
      } else if (begin == atoms_) {
        return Result();
      } else if (!expanded[begin]) {
        expanded[begin] = true;
        Expand(begin);
      }
    }
    return {};
  }

 private:
  static constexpr int kPrefix = -1;
  // What a plan through it costs at least; where a run begins and ends, or a prefix ends.
  using Entry = std::tuple<int64_t, int, int>;

  AtomMask Run(int begin, int end) const { return before_[end] & ~before_[begin]; }

  void Enter(int end, int64_t cost, int from) {
    if (cost >= cost_[end]) return;
    cost_[end] = cost;
    from_[end] = from;
    Push(cost + least_from_[end], end, kPrefix);
  }

  void Push(int64_t bound, int begin, int end) { open_.push({bound, begin, end}); }

  void Expand(int begin) {
    for (int end = begin + 1; end <= atoms_; ++end) {
      Push(cost_[begin] + search_.LeastCost(Run(begin, end)) + least_from_[end], begin, end);
    }
  }

  void Price(int begin, int end) {
    if (search_.work() >= most_work_) return;
    const int64_t cost = search_.CostOf(Run(begin, end));
    if (cost < ExactSearch::kNoBound) Enter(end, cost_[begin] + cost, begin);
  }

  std::vector<AtomMask> Result() const {
    std::vector<AtomMask> runs;
    for (int end = atoms_; end > 0; end = from_[end]) runs.push_back(Run(from_[end], end));
    return {runs.rbegin(), runs.rend()};
  }

  ExactSearch& search_;
  const RegionMasks& masks_;
  const int atoms_;
  const int64_t most_work_;
  std::vector<AtomMask> before_;     // by number of atoms: the first ones of the order
  std::vector<int64_t> least_from_;  // of all atoms from one on
  std::vector<int64_t> cost_;        // by the atoms before: of the cheapest runs of them
  std::vector<int> from_;            // where the last of these runs begins
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
};

}  // namespace

std::vector<AtomMask> SearchIntervals(ExactSearch& search, absl::Span<const int> order,
                                      int64_t max_work) {
  return IntervalSearch(search, order, max_work).Runs();
}

std::vector<int> LatestOrder(const RegionMasks& masks) {
  std::vector<int> path(masks.size(), 0);
  for (int i = masks.size(); i-- > 0;) {
    ForEachBit(masks.predecessors(i), [&](int p) { path[p] = std::max(path[p], path[i] + 1); });
  }
  std::vector<int> order(masks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return path[a] > path[b]; });
  return order;
}

}  // namespace retrograd
