#include "fusion/horizontal/shared_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/horizontal/merge_calls.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/convolution/shared_products.h"

namespace retrograd {
namespace {

std::string Us(int64_t ps) { return absl::StrFormat("%.2f us", static_cast<double>(ps) / 1e6); }

class Sharing {
 public:
  Sharing(std::vector<Group> groups, const GroupPricer& pricer)
      : pricer_(pricer), groups_(std::move(groups)), touched_(pricer.graph().num_values()) {
    for (const Group& group : groups_) {
      for (ValueId v : group.inputs) touched_[pricer_.graph().value_index(v)].read = true;
      for (const Group::InPlace& pair : RequiredInPlace(group)) {
        touched_[pricer_.graph().value_index(pair.input)].overwritten = true;
      }
    }
  }

  SharedLaunches Run() {
    std::vector<size_t> candidates;
    if (pricer_.device().side_products_ppm == 0) return {.groups = std::move(groups_)};
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (MayWait(groups_[g])) candidates.push_back(g);
    }
    std::sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
      return groups_[a].nodes.front() < groups_[b].nodes.front();
    });
    std::vector<size_t> together;
    int64_t held_bytes = 0;
    for (const size_t g : candidates) {
      const int64_t bytes = groups_[g].read_bytes;
      const bool full = held_bytes + bytes > pricer_.device().cache_bytes ||
                        together.size() == kMostSharedProducts;
      if (full) {
        Share(std::exchange(together, {}));
        held_bytes = 0;
      }
      together.push_back(g);
      held_bytes += bytes;
    }
    Share(together);
    std::vector<Group> kept;
    for (Group& group : groups_) {
      if (!group.nodes.empty()) kept.push_back(std::move(group));
    }
    result_.groups.insert(result_.groups.begin(), std::make_move_iterator(kept.begin()),
                          std::make_move_iterator(kept.end()));
    return std::move(result_);
  }

 private:
  struct Touched {
    bool read = false, overwritten = false;
  };

  bool MayWait(const Group& group) const {
    const Call* call = CallOf(group);
    if (call == nullptr || !WeightProductOf(*call)) return false;
    const auto of = [&](ValueId v) { return touched_[pricer_.graph().value_index(v)]; };
    return group.read_bytes <= pricer_.device().cache_bytes &&
           std::none_of(group.outputs.begin(), group.outputs.end(),
                        [&](ValueId v) { return of(v).read || of(v).overwritten; }) &&
           std::none_of(group.inputs.begin(), group.inputs.end(),
                        [&](ValueId v) { return of(v).overwritten; });
  }

  // One launch of those by which it wins.
  void Share(const std::vector<size_t>& together) {
    if (together.size() < 2) return;
    std::vector<const Call*> calls;
    int64_t apart = 0;
    for (const size_t g : together) {
      calls.push_back(CallOf(groups_[g]));
      apart += groups_[g].price_ps;
    }
    const int64_t added = MulDiv(apart, pricer_.device().side_products_ppm, kPpm);
    const Price price = PriceSharedProducts(calls, pricer_.device(), /*explain=*/true);
    Decision decision{.a = groups_[together[0]].nodes,
                      .b = groups_[together[1]].nodes,
                      .together = price.ps + pricer_.Margin(price.ps) <= added,
                      .together_ps = price.ps,
                      .apart_ps = apart};
    decision.reason =
        absl::StrCat(together.size(), " products in one launch: ", Us(price.ps), ", apart ",
                     Us(apart), ", of which ", Us(added), " are not hidden behind others");
    const bool wins = decision.together;
    result_.decisions.push_back(std::move(decision));
    if (!wins) return;
    result_.saved += static_cast<int64_t>(together.size()) - 1;
    result_.won_ps += apart - price.ps;
    result_.groups.push_back(MergeCalls(together, price, groups_));
  }

  const GroupPricer& pricer_;
  std::vector<Group> groups_;     // without ops: moved into one that is shared
  std::vector<Touched> touched_;  // by value_index
  SharedLaunches result_;
};

}  // namespace

SharedLaunches ShareCalls(std::vector<Group> groups, const GroupPricer& pricer) {
  return Sharing(std::move(groups), pricer).Run();
}

}  // namespace retrograd
