// How the terms of a price make the price: those that overlap are done side by side, so that of
// them only the one that binds counts; all others add up.
#ifndef RETROGRAD_FUSION_COST_PRICE_TERMS_H_
#define RETROGRAD_FUSION_COST_PRICE_TERMS_H_

#include "absl/types/span.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// Whether the term runs beside others of its price: memory, caches, stores and arithmetic; the two
// ways in which a fused product may be too slow; the longest kernel of a shared launch beside the
// sum.
bool Overlaps(const Term& term);

// Whether the term adds to its price.
inline bool Counts(const Term& term) { return term.binds || !Overlaps(term); }

// The price that the terms say.
int64_t SumOf(absl::Span<const Term> terms);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_COST_PRICE_TERMS_H_
