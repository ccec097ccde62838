#include "fusion/kernel/ir/accesses/lanes.h"

#include <algorithm>
#include <numeric>

namespace retrograd {
namespace {

int64_t FloorOf(int64_t value, int64_t divisor) {
  return value / divisor - (value % divisor < 0 ? 1 : 0);
}

int64_t RestOf(int64_t value, int64_t divisor) { return value - divisor * FloorOf(value, divisor); }

// What is known of an expression at lane 0: it is `rest` plus a multiple of `multiple`.
struct Residue {
  int64_t multiple = 0;  // 0: it is `rest`
  int64_t rest = 0;
};

Residue ResidueAtLane0(const IndexExpr& e, const Vectors& v);

Residue ResidueOfTerm(const IndexTerm& term, const Vectors& v) {
  if (term.kind == IndexTerm::kAxis) return {term.axis == v.axis ? v.width : 1, 0};
  const Residue inner = ResidueAtLane0(*term.inner, v);
  const bool divides = inner.multiple % term.divisor == 0;
  if (term.kind == IndexTerm::kFloorDiv) {
    if (!divides) return {1, 0};
    return {inner.multiple / term.divisor, FloorOf(inner.rest, term.divisor)};
  }
  if (divides) return {0, RestOf(inner.rest, term.divisor)};
  return {std::gcd(inner.multiple, term.divisor), inner.rest};
}

Residue ResidueAtLane0(const IndexExpr& e, const Vectors& v) {
  const int64_t along = v.phase == IndexExpr() ? 0 : e.axis_coef(v.axis);
  if (along != 0) {  // the position is a multiple of the width less the phase
    IndexExpr others = e;
    others.AddScaled(IndexExpr::Axis(v.axis), -along);
    others.AddScaled(v.phase, -along);
    Residue r = ResidueAtLane0(others, v);
    r.multiple = std::gcd(along * v.width, r.multiple);
    return r;
  }
  Residue sum{.multiple = 0, .rest = e.offset()};
  for (const IndexTerm& t : e.terms()) {
    const Residue r = ResidueOfTerm(t, v);
    sum.multiple = std::gcd(sum.multiple, t.coef * r.multiple);
    sum.rest += t.coef * r.rest;
  }
  return sum;
}

// Adds what a division or remainder steps by where its inner value steps by `inner`; false if that
// differs between vectors.
bool AddStepsOfDivision(const IndexTerm& term, const std::vector<int64_t>& inner, const Vectors& v,
                        std::vector<int64_t>* steps) {
  const Residue at0 = ResidueAtLane0(*term.inner, v);
  const int64_t known = std::gcd(at0.multiple, term.divisor);
  const int64_t begin = RestOf(at0.rest, known);
  const bool keeps_quotient = std::all_of(
      inner.begin(), inner.end(), [&](int64_t s) { return begin + s >= 0 && begin + s < known; });
  if (!keeps_quotient && known != term.divisor) return false;
  for (size_t j = 0; j < inner.size(); ++j) {
    const int64_t quotient = keeps_quotient ? 0 : FloorOf(begin + inner[j], term.divisor);
    (*steps)[j] +=
        term.coef *
        (term.kind == IndexTerm::kFloorDiv ? quotient : inner[j] - quotient * term.divisor);
  }
  return true;
}

// Between which numbers the expression lies at lane 0, where vectors fill their axis no later than
// a vector's width before its end.
IndexRange RangeAtLane0(const IndexExpr& e, const Vectors& v, absl::Span<const int64_t> extents) {
  const Residue at0 = ResidueAtLane0(e, v);
  if (at0.multiple == 0) return {at0.rest, at0.rest};
  if (v.axis < 0) return Range(e, extents);
  std::vector<int64_t> begins(extents.begin(), extents.end());
  begins[v.axis] = std::max<int64_t>(begins[v.axis] - v.width + 1, 1);
  return Range(e, begins);
}

}  // namespace

int64_t KnownMultiple(const IndexExpr& e, const Vectors& vectors) {
  const Residue at0 = ResidueAtLane0(e, vectors);
  return std::gcd(at0.multiple, at0.rest);
}

std::vector<int64_t> LaneSteps(const IndexExpr& e, const Vectors& v) {
  std::vector<int64_t> steps(v.width, 0);
  for (const IndexTerm& t : e.terms()) {
    if (t.kind == IndexTerm::kAxis) {
      for (int j = 0; t.axis == v.axis && j < v.width; ++j) steps[j] += t.coef * j;
      continue;
    }
    const std::vector<int64_t> inner = LaneSteps(*t.inner, v);
    if (inner.empty() || !AddStepsOfDivision(t, inner, v, &steps)) return {};
  }
  return steps;
}

IndexExpr AtLane0(const IndexExpr& e, const Vectors& v, absl::Span<const int64_t> extents) {
  IndexExpr at0 = e;
  for (const IndexTerm& t : e.terms()) {
    if (t.kind == IndexTerm::kAxis) continue;
    const Residue inner = ResidueAtLane0(*t.inner, v);
    if (inner.multiple % t.divisor != 0) continue;
    if (t.kind == IndexTerm::kMod) {
      at0.AddScaled(Mod(*t.inner, t.divisor, extents), -t.coef);
      at0.AddScaled(IndexExpr::Constant(RestOf(inner.rest, t.divisor)), t.coef);
    } else {
      const IndexExpr whole = *t.inner + IndexExpr::Constant(-inner.rest);
      at0.AddScaled(FloorDiv(*t.inner, t.divisor, extents), -t.coef);
      at0.AddScaled(FloorDiv(whole, t.divisor, extents), t.coef);
      at0.AddScaled(IndexExpr::Constant(FloorOf(inner.rest, t.divisor)), t.coef);
    }
  }
  return at0;
}

std::optional<int64_t> LaneStride(const IndexExpr& e, const Vectors& v) {
  if (e.is_affine()) return e.axis_coef(v.axis);
  const std::vector<int64_t> steps = LaneSteps(e, v);
  if (steps.empty()) return std::nullopt;
  const int64_t stride = v.width > 1 ? steps[1] : 0;
  for (int j = 0; j < v.width; ++j) {
    if (steps[j] != stride * j) return std::nullopt;
  }
  return stride;
}

bool LanesAgree(const Guard& guard, const Vectors& v, absl::Span<const int64_t> extents) {
  const std::optional<int64_t> stride = LaneStride(guard.expr, v);
  if (!stride.has_value()) return false;
  if (*stride == 0) return true;
  const int64_t span = v.width * *stride;
  if (span < 0 || KnownMultiple(guard.expr, v) % span != 0) return false;
  const IndexRange range = Range(guard.expr, extents);
  const bool begin_ok = guard.begin <= range.min || guard.begin % span == 0;
  const bool end_ok = guard.end > range.max || guard.end % span == 0;
  return begin_ok && end_ok;
}

std::vector<LaneTruth> LaneTruths(const Guard& guard, const Vectors& v,
                                  absl::Span<const int64_t> extents) {
  std::vector<LaneTruth> truths(v.width, LaneTruth::kVaries);
  const std::vector<int64_t> steps = LaneSteps(guard.expr, v);
  if (steps.empty()) return truths;
  const IndexRange all = Range(guard.expr, extents);
  const IndexRange at0 = RangeAtLane0(guard.expr, v, extents);
  for (int j = 0; j < v.width; ++j) {
    const int64_t least = std::max(all.min, at0.min + steps[j]);
    const int64_t most = std::min(all.max, at0.max + steps[j]);
    if (least >= guard.begin && most < guard.end) {
      truths[j] = LaneTruth::kAlways;
    } else if (most < guard.begin || least >= guard.end) {
      truths[j] = LaneTruth::kNever;
    }
  }
  return truths;
}

}  // namespace retrograd
