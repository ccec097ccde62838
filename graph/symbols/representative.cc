#include "graph/symbols/representative.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace retrograd {
namespace {

int64_t Rounded(int64_t size) {
  if (size < 4) return size;
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size))) / 2;
  const int64_t below = size / step * step;
  return size - below < step - (size - below) ? below : below + step;
}

// The nearest multiple that the symbol may be. A symbol has some number, so there is one.
int64_t Allowed(const SizeSymbol& symbol, int64_t size) {
  const int64_t unit = std::max<int64_t>(symbol.multiple_of, 1);
  const int64_t clamped = std::clamp(size, symbol.min, symbol.max);
  const int64_t below = clamped / unit * unit;
  return below >= symbol.min ? below : below + unit;
}

}  // namespace

std::vector<SizeBinding> RepresentativeOf(absl::Span<const SizeSymbol> symbols,
                                          absl::Span<const SizeBinding> sizes) {
  std::vector<SizeBinding> made(sizes.begin(), sizes.end());
  for (SizeBinding& binding : made) {
    for (const SizeSymbol& symbol : symbols) {
      if (symbol.name == binding.name)
        binding.value = Allowed(symbol, Rounded(std::min(binding.value, int64_t{1} << 61)));
    }
  }
  return made;
}

}  // namespace retrograd
