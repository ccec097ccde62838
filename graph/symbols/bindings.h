// Numbers for the symbols of a graph.
#ifndef RETROGRAD_GRAPH_SYMBOLS_BINDINGS_H_
#define RETROGRAD_GRAPH_SYMBOLS_BINDINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/symbols/size_table.h"

namespace retrograd {

struct SizeBinding {
  std::string name;
  int64_t value = 0;
};

// Of "s0=1000,s1=64". InvalidArgument for anything else.
absl::StatusOr<std::vector<SizeBinding>> ParseBindings(absl::string_view text);

// One number for each of table.symbols, in their order. InvalidArgument for a symbol that is
// unknown, bound twice or not bound, OutOfRange for a number that it may not be.
absl::StatusOr<std::vector<int64_t>> SymbolValues(const SizeTable& table,
                                                  absl::Span<const SizeBinding> bindings);

// "s0 (64; 2 to 1024)": a symbol, its hint and what it may be.
std::string Print(const SizeSymbol& symbol);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_SYMBOLS_BINDINGS_H_
