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

// Sizes in the middle of those that the representative stands for on the same side as the size:
// 960 for 903 to 1023, 704 for 641 to 767. A representative may be a size of its own kind, such as
// the most that the symbol may be; this one is more like the others. Where a size is its
// representative, so is this.
std::vector<SizeBinding> SecondRepresentativeOf(absl::Span<const SizeSymbol> symbols,
                                                absl::Span<const SizeBinding> sizes);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_SYMBOLS_REPRESENTATIVE_H_
