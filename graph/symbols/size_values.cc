#include "graph/symbols/size_values.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

enum class Fault : uint8_t { kNone, kOverflow, kDivisionByZero };

class Evaluator {
 public:
  Evaluator(const SizeTable& table, absl::Span<const int64_t> symbols)
      : table_(table), symbols_(symbols) {}

  absl::StatusOr<std::vector<int64_t>> Run() {
    atoms_.reserve(table_.atoms.size());
    for (const SizeAtom& atom : table_.atoms) {
      int64_t value = 0;
      if (const Fault fault = Value(atom, value); fault != Fault::kNone) {
        SizePolynomial alone = {{1, {static_cast<uint32_t>(atoms_.size())}}};
        return Refuse(fault, alone);
      }
      atoms_.push_back(value);
    }
    std::vector<int64_t> values;
    values.reserve(table_.polynomials.size());
    for (const SizePolynomial& polynomial : table_.polynomials) {
      int64_t value = 0;
      const Fault fault = Value(polynomial, value);
      if (fault != Fault::kNone) return Refuse(fault, polynomial);
      values.push_back(value);
    }
    return values;
  }

 private:
  Fault Value(const SizePolynomial& polynomial, int64_t& value) const {
    value = 0;
    for (const SizeTerm& term : polynomial) {
      int64_t product = term.coefficient;
      for (uint32_t atom : term.atoms) {
        if (__builtin_mul_overflow(product, atoms_[atom], &product)) return Fault::kOverflow;
      }
      if (__builtin_add_overflow(value, product, &value)) return Fault::kOverflow;
    }
    return Fault::kNone;
  }

  Fault Value(const SizeAtom& atom, int64_t& value) const {
    if (atom.kind == SizeAtomKind::kSymbol) {
      value = symbols_[atom.symbol];
      return Fault::kNone;
    }
    int64_t left = 0, right = 0;
    if (const Fault fault = Value(atom.left, left); fault != Fault::kNone) return fault;
    if (const Fault fault = Value(atom.right, right); fault != Fault::kNone) return fault;
    if (atom.kind == SizeAtomKind::kMaximum) {
      value = std::max(left, right);
      return Fault::kNone;
    }
    if (right == 0) return Fault::kDivisionByZero;
    if (right == -1) {  // -2^63 / -1 is no int64, and its remainder no defined operation
      value = 0;
      if (atom.kind == SizeAtomKind::kModulo) return Fault::kNone;
      return __builtin_sub_overflow(int64_t{0}, left, &value) ? Fault::kOverflow : Fault::kNone;
    }
    const bool rounds = left % right != 0 && (left < 0) != (right < 0);
    value = atom.kind == SizeAtomKind::kFloorDiv ? left / right - rounds
                                                 : left % right + (rounds ? right : 0);
    return Fault::kNone;
  }

  absl::Status Refuse(Fault fault, const SizePolynomial& polynomial) const {
    std::string at;
    for (size_t i = 0; i < symbols_.size() && i < 8; ++i) {
      absl::StrAppend(&at, i == 0 ? "" : ", ", table_.symbols[i].name, "=", symbols_[i]);
    }
    const std::string what = absl::StrCat("the size ", Print(table_, polynomial), " at ", at);
    if (fault == Fault::kOverflow) {
      return absl::OutOfRangeError(
          absl::StrCat(what, " is beyond 64-bit integers: bind smaller sizes"));
    }
    return absl::InvalidArgumentError(absl::StrCat(what, " is divided by 0: bind other sizes"));
  }

  const SizeTable& table_;
  absl::Span<const int64_t> symbols_;
  std::vector<int64_t> atoms_;
};

bool Holds(SizeRelation relation, int64_t value) {
  switch (relation) {
    case SizeRelation::kZero: return value == 0;
    case SizeRelation::kNotZero: return value != 0;
    case SizeRelation::kNotNegative: return value >= 0;
  }
  return false;
}

absl::string_view Text(SizeRelation relation) {
  switch (relation) {
    case SizeRelation::kZero: return " = 0";
    case SizeRelation::kNotZero: return " != 0";
    case SizeRelation::kNotNegative: return " >= 0";
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> EvaluateSizes(const SizeTable& table,
                                                   absl::Span<const int64_t> symbols) {
  RG_CHECK(symbols.size() == table.symbols.size());
  return Evaluator(table, symbols).Run();
}

absl::Status CheckFacts(const SizeTable& table, absl::Span<const int64_t> values) {
  for (const SizeFact& fact : table.facts) {
    const int64_t value = values[fact.polynomial];
    if (Holds(fact.relation, value)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the graph was made for sizes with ", Print(table, table.polynomials[fact.polynomial]),
        Text(fact.relation), fact.assumed_for.empty() ? "" : " (for ", fact.assumed_for,
        fact.assumed_for.empty() ? "" : ")", ", which is ", value,
        " here: export it again at these sizes"));
  }
  return absl::OkStatus();
}

}  // namespace retrograd
