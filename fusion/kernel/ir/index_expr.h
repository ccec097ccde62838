// Integer expressions over a kernel's axes: a constant plus coefficients times terms, where a term
// is an axis, or a floor division or remainder of such an expression by a constant. Kept in one
// canonical form, so that equal expressions compare equal in the cases that views produce.
#ifndef RETROGRAD_FUSION_KERNEL_IR_INDEX_EXPR_H_
#define RETROGRAD_FUSION_KERNEL_IR_INDEX_EXPR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace retrograd {

class IndexExpr;

struct IndexTerm {
  enum Kind : uint8_t { kAxis, kFloorDiv, kMod };
  Kind kind = kAxis;
  int axis = 0;                      // kAxis
  int64_t divisor = 1;               // kFloorDiv, kMod
  const IndexExpr* inner = nullptr;  // kFloorDiv, kMod; kept by the expression that has the term
  int64_t coef = 1;                  // never 0
};

class IndexExpr {
 public:
  // Out of line: where a compiler sees that only some of the places for terms are filled, it warns
  // of the copy of all.
  IndexExpr() = default;
  IndexExpr(const IndexExpr& e);
  IndexExpr(IndexExpr&& e) noexcept;
  IndexExpr& operator=(const IndexExpr& e);
  IndexExpr& operator=(IndexExpr&& e) noexcept;
  ~IndexExpr() = default;
  static IndexExpr Constant(int64_t value);
  static IndexExpr Axis(int axis);

  int64_t offset() const { return offset_; }
  absl::Span<const IndexTerm> terms() const { return terms_; }
  bool is_constant() const { return terms_.empty(); }
  bool is_affine() const;             // no division or remainder
  int64_t axis_coef(int axis) const;  // coefficient of the axis as a plain term, or 0
  uint32_t axes() const;              // mask of every axis that occurs
  int64_t Evaluate(absl::Span<const int64_t> axis_values) const;
  std::string Print() const;  // "512*a0 + a1", "(a1 / 64)", "(a1 % 64)"

  void AddScaled(const IndexExpr& e, int64_t factor);  // *this = *this + e * factor
  // Axis a becomes number[a], no two of them the same, or vanishes (coordinate 0) where that is
  // negative. Of an affine expression.
  void RenumberAxes(absl::Span<const int> number);
  friend IndexExpr operator+(const IndexExpr& a, const IndexExpr& b);
  friend IndexExpr operator*(const IndexExpr& a, int64_t factor);
  friend bool operator==(const IndexExpr& a, const IndexExpr& b);

 private:
  friend IndexExpr FloorDiv(const IndexExpr&, int64_t, absl::Span<const int64_t>);
  friend IndexExpr Mod(const IndexExpr&, int64_t, absl::Span<const int64_t>);
  using Inner = std::shared_ptr<const IndexExpr>;
  void AddTerm(const IndexTerm& term);
  void AddDivision(IndexTerm term, Inner inner);
  // What terms of e point to, some of which are among these terms.
  void KeepWhatTermsOf(const IndexExpr& e);
  struct Division;
  static std::optional<Division> AsDivision(const IndexExpr& e);
  struct Divided;
  static std::optional<Divided> DivideTerms(const IndexExpr& e, int64_t divisor,
                                            absl::Span<const int64_t> extents);
  void Recombine();  // quotient and remainder of one expression become it again
  int64_t offset_ = 0;
  absl::InlinedVector<IndexTerm, 2> terms_;  // in canonical order
  // What they point to, and perhaps more; null: nothing. Terms are copied as they are: most
  // expressions divide nothing.
  std::shared_ptr<const std::vector<Inner>> kept_;
};

// Extents: axis a runs over [0, extents[a]). They let divisions and remainders simplify.
IndexExpr FloorDiv(const IndexExpr& e, int64_t divisor, absl::Span<const int64_t> extents);
IndexExpr Mod(const IndexExpr& e, int64_t divisor, absl::Span<const int64_t> extents);

struct IndexRange {
  int64_t min = 0, max = 0;  // inclusive
};
IndexRange Range(const IndexExpr& e, absl::Span<const int64_t> extents);

// Each axis a replaced by replacement[a], simplified over the new extents.
IndexExpr Substitute(const IndexExpr& e, absl::Span<const IndexExpr> replacement,
                     absl::Span<const int64_t> new_extents);

// Largest power of two, at most `limit`, that divides the value for every axis position.
int64_t KnownDivisor(const IndexExpr& e, int64_t limit);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_INDEX_EXPR_H_
