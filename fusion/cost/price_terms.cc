#include "fusion/cost/price_terms.h"

#include <algorithm>
#include <iterator>

namespace retrograd {

bool Overlaps(const Term& term) {
  constexpr absl::string_view kNames[] = {"hbm",   "cache",   "stores", "compute",
                                          "flops", "product", "turns",  "longest"};
  return std::find(std::begin(kNames), std::end(kNames), term.name) != std::end(kNames);
}

int64_t SumOf(absl::Span<const Term> terms) {
  int64_t sum = 0;
  for (const Term& term : terms) sum += Counts(term) ? term.ps : 0;
  return sum;
}

}  // namespace retrograd
