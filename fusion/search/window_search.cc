#include "fusion/search/window_search.h"

#include <algorithm>
#include <set>

namespace retrograd {
namespace {

// The atoms of a window with their numbers in it.
std::vector<Atom> Within(const std::vector<Atom>& atoms, const std::vector<int>& window) {
  std::vector<Atom> out;
  for (int a : window) {
    Atom atom = atoms[a];
    for (std::vector<int>* list : {&atom.predecessors, &atom.neighbours}) {
      std::vector<int> kept;
      for (int other : *list) {
        const auto at = std::lower_bound(window.begin(), window.end(), other);
        if (at != window.end() && *at == other)
          kept.push_back(static_cast<int>(at - window.begin()));
      }
      *list = std::move(kept);
    }
    out.push_back(std::move(atom));
  }
  return out;
}

class Improver {
 public:
  Improver(const std::vector<Atom>& atoms, PriceBook& book, Partition start,
           const WindowOptions& options)
      : atoms_(atoms), book_(book), options_(options), plan_(std::move(start)) {}

  Partition Run() {
    for (int round = 0; round < options_.rounds; ++round) {
      bool gained = false;
      for (size_t first = 0; first < plan_.parts.size();) {
        size_t end = first, size = 0;
        while (end < plan_.parts.size() &&
               size + plan_.parts[end].atoms.size() <= static_cast<size_t>(options_.atoms)) {
          size += plan_.parts[end++].atoms.size();
        }
        if (end - first >= 2 || (end > first && size > 1)) gained |= Resolve(first, end);
        // The next window begins in the middle of this one.
        first += std::max<size_t>((std::min(end, plan_.parts.size()) - first + 1) / 2, 1);
      }
      if (!gained) break;
    }
    return std::move(plan_);
  }

 private:
  // Replaces parts [first, end) by a cheaper plan of the same atoms, if there is one.
  bool Resolve(size_t first, size_t end) {
    std::vector<int> window;
    int64_t cost = 0;
    for (size_t i = first; i < end; ++i) {
      window.insert(window.end(), plan_.parts[i].atoms.begin(), plan_.parts[i].atoms.end());
      cost += plan_.parts[i].cost_ps;
    }
    std::sort(window.begin(), window.end());
    if (!settled_.insert(window).second) return false;
    const std::vector<Atom> inside = Within(atoms_, window);
    Partition better = ExactSearch(inside, book_, options_.limits).Solve({}, cost);
    if (better.parts.empty()) return false;
    for (Partition::Part& part : better.parts) {
      for (int& a : part.atoms) a = window[a];
    }
    plan_.cost_ps += better.cost_ps - cost;
    plan_.parts.erase(plan_.parts.begin() + first, plan_.parts.begin() + end);
    plan_.parts.insert(plan_.parts.begin() + first, better.parts.begin(), better.parts.end());
    return true;
  }

  const std::vector<Atom>& atoms_;
  PriceBook& book_;
  const WindowOptions& options_;
  Partition plan_;
  std::set<std::vector<int>> settled_;  // windows that are as good as they get
};

}  // namespace

Partition ImproveByWindows(const std::vector<Atom>& atoms, PriceBook& book, Partition start,
                           const WindowOptions& options) {
  return Improver(atoms, book, std::move(start), options).Run();
}

}  // namespace retrograd
