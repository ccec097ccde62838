// How the numbers of a graph follow from symbols: what the message Sizes of graph.proto says.
//
// A size is a polynomial with int64 coefficients over atoms. An atom is a symbol, or a quotient
// rounded down, a remainder or a maximum of two polynomials. The graph itself holds the numbers at
// the symbols' hints; nothing but a bind reads this table.
#ifndef RETROGRAD_GRAPH_SYMBOLS_SIZE_TABLE_H_
#define RETROGRAD_GRAPH_SYMBOLS_SIZE_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace retrograd {

struct SizeSymbol {
  std::string name;
  int64_t min = 0;  // inclusive, as max
  int64_t max = 0;
  int64_t multiple_of = 1;
  int64_t hint = 0;
};

// The coefficient times the product of the atoms.
struct SizeTerm {
  int64_t coefficient = 0;
  std::vector<uint32_t> atoms;
};

// The sum of the terms; of none: 0.
using SizePolynomial = std::vector<SizeTerm>;

enum class SizeAtomKind : uint8_t { kSymbol = 1, kFloorDiv = 2, kModulo = 3, kMaximum = 4 };

struct SizeAtom {
  SizeAtomKind kind = SizeAtomKind::kSymbol;
  uint32_t symbol = 0;
  SizePolynomial left, right;  // of atoms before this one
};

enum class SizeRelation : uint8_t { kZero = 1, kNotZero = 2, kNotNegative = 3 };

// What the graph's writer took for granted when it made these nodes and no others.
struct SizeFact {
  SizeRelation relation = SizeRelation::kZero;
  uint32_t polynomial = 0;
  std::string assumed_for;  // display only
};

enum class SizeField : uint8_t { kDim = 1, kAttr = 2, kStride = 3, kOutputStride = 4 };

// A number of the graph: dims[element] of result `part` of node `owner`; attribute `part` of it;
// a stride of the input `owner` or of the output `owner`.
struct SizePlace {
  SizeField field = SizeField::kDim;
  uint32_t owner = 0;
  uint32_t part = 0;
  uint32_t element = 0;
  uint32_t polynomial = 0;
  uint32_t divisor = 0;  // 1 + place of the polynomial that divides; 0: none
};

struct SizeTable {
  std::vector<SizeSymbol> symbols;
  std::vector<SizeAtom> atoms;
  std::vector<SizePolynomial> polynomials;
  std::vector<SizeFact> facts;
  std::vector<SizePlace> places;
};

// "64*s0*s1 - floor((s0 + 1) / 2)", in at most 500 bytes.
std::string Print(const SizeTable& table, const SizePolynomial& polynomial);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_SYMBOLS_SIZE_TABLE_H_
