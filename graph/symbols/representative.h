// Sizes that stand for those around them.
#ifndef RETROGRAD_GRAPH_SYMBOLS_REPRESENTATIVE_H_
#define RETROGRAD_GRAPH_SYMBOLS_REPRESENTATIVE_H_

#include <vector>

#include "absl/types/span.h"
#include "graph/symbols/bindings.h"
#include "graph/symbols/size_table.h"

namespace retrograd {

// For each size the nearest of two in each octave, 1, 2, 3, 4, 6, 8, 12, .., 512, 768, 1024, that
// the symbol may be: which follows from the size and the symbol alone. `sizes`: numbers of the
// symbols.
std::vector<SizeBinding> RepresentativeOf(absl::Span<const SizeSymbol> symbols,
                                          absl::Span<const SizeBinding> sizes);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_SYMBOLS_REPRESENTATIVE_H_
