#include "graph/symbols/representative.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace retrograd {
namespace {

int64_t Octave(int64_t size) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size)));
}

int64_t Rounded(int64_t size) {
  if (size < 4) return size;
  const int64_t step = Octave(size) / 2;
  const int64_t below = size / step * step;
  return size - below < step - (size - below) ? below : below + step;
}

// A quarter of the way from the size that it is rounded to to the next of these.
int64_t BesideRounded(int64_t size) {
  const int64_t rounded = Rounded(size);
  if (size == rounded) return size;
  return size > rounded ? rounded + Octave(rounded) / 8 : rounded - Octave(rounded - 1) / 8;
}

// The nearest multiple that the symbol may be. A symbol has some number, so there is one.
int64_t Allowed(const SizeSymbol& symbol, int64_t size) {
  const int64_t unit = std::max<int64_t>(symbol.multiple_of, 1);
  const int64_t clamped = std::clamp(size, symbol.min, symbol.max);
  const int64_t below = clamped / unit * unit;
  return below >= symbol.min ? below : below + unit;
}

// The bindings with what `made` gives for each symbol and its size.
std::vector<SizeBinding> WithEach(absl::Span<const SizeSymbol> symbols,
                                  absl::Span<const SizeBinding> sizes,
                                  int64_t (*made)(const SizeSymbol&, int64_t)) {
  std::vector<SizeBinding> bindings(sizes.begin(), sizes.end());
  for (SizeBinding& binding : bindings) {
    for (const SizeSymbol& symbol : symbols) {
      if (symbol.name == binding.name)
        binding.value = made(symbol, std::min(binding.value, int64_t{1} << 61));
    }
  }
  return bindings;
}

int64_t First(const SizeSymbol& symbol, int64_t size) { return Allowed(symbol, Rounded(size)); }

int64_t Second(const SizeSymbol& symbol, int64_t size) {
  return First(symbol, size) == size ? size : Allowed(symbol, BesideRounded(size));
}

}  // namespace

std::vector<SizeBinding> RepresentativeOf(absl::Span<const SizeSymbol> symbols,
                                          absl::Span<const SizeBinding> sizes) {
  return WithEach(symbols, sizes, First);
}

std::vector<SizeBinding> SecondRepresentativeOf(absl::Span<const SizeSymbol> symbols,
                                                absl::Span<const SizeBinding> sizes) {
  return WithEach(symbols, sizes, Second);
}

}  // namespace retrograd
