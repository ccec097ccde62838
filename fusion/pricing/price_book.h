// Prices of the kernels of one region, each found once, whichever search asks.
#ifndef RETROGRAD_FUSION_PRICING_PRICE_BOOK_H_
#define RETROGRAD_FUSION_PRICING_PRICE_BOOK_H_

#include "absl/container/node_hash_map.h"
#include "fusion/pricing/group_pricer.h"

namespace retrograd {

class PriceBook {
 public:
  explicit PriceBook(const GroupPricer& pricer) : pricer_(pricer) {}

  // Stays valid as long as the book.
  const GroupPrice& Of(GroupOps group) {
    auto at = prices_.find(group);
    if (at == prices_.end()) {
      GroupPrice price = pricer_.Evaluate(group);
      at = prices_.emplace(std::move(group), std::move(price)).first;
    }
    return at->second;
  }

  const GroupPricer& pricer() const { return pricer_; }

 private:
  const GroupPricer& pricer_;
  absl::node_hash_map<GroupOps, GroupPrice> prices_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PRICING_PRICE_BOOK_H_
