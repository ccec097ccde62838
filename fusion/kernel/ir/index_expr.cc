#include "fusion/kernel/ir/index_expr.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

// The algebra, for floor division and remainder by k > 0:
//   floor((k·q·t + r) / k) = q·t + floor(r / k)      terms with coefficients divisible by k leave
//   (k·q·t + r) mod k      = r mod k
//   0 <= r < k             => floor(r / k) = 0, r mod k = r
//   floor((floor(e / a) + c) / b) = floor((e + a·c) / (a·b))
//   k·floor(e / k) + (e mod k) = e                   a reshape and its inverse cancel
//   coefficients and k share a factor g, and the part of the rest below g stays in [0, g):
//     floor((g·e + s) / (g·k)) = floor(e / k),  (g·e + s) mod (g·k) = g·(e mod k) + s

namespace retrograd {
namespace {

int64_t FloorDivInt(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

int Compare(const IndexExpr& a, const IndexExpr& b);

// Order of terms regardless of their coefficients.
int CompareKey(const IndexTerm& a, const IndexTerm& b) {
  if (a.kind != b.kind) return a.kind < b.kind ? -1 : 1;
  if (a.kind == IndexTerm::kAxis) return a.axis == b.axis ? 0 : (a.axis < b.axis ? -1 : 1);
  if (a.divisor != b.divisor) return a.divisor < b.divisor ? -1 : 1;
  return Compare(*a.inner, *b.inner);
}

int Compare(const IndexExpr& a, const IndexExpr& b) {
  if (&a == &b) return 0;
  if (a.offset() != b.offset()) return a.offset() < b.offset() ? -1 : 1;
  const size_t n = std::min(a.terms().size(), b.terms().size());
  for (size_t i = 0; i < n; ++i) {
    if (int c = CompareKey(a.terms()[i], b.terms()[i]); c != 0) return c;
    if (a.terms()[i].coef != b.terms()[i].coef) {
      return a.terms()[i].coef < b.terms()[i].coef ? -1 : 1;
    }
  }
  if (a.terms().size() != b.terms().size()) return a.terms().size() < b.terms().size() ? -1 : 1;
  return 0;
}

IndexRange TermRange(const IndexTerm& t, absl::Span<const int64_t> extents) {
  IndexRange r;
  switch (t.kind) {
    case IndexTerm::kAxis: r = {0, std::max<int64_t>(extents[t.axis] - 1, 0)}; break;
    case IndexTerm::kFloorDiv: {
      IndexRange in = Range(*t.inner, extents);
      r = {FloorDivInt(in.min, t.divisor), FloorDivInt(in.max, t.divisor)};
      break;
    }
    case IndexTerm::kMod: {
      IndexRange in = Range(*t.inner, extents);
      r = in.min >= 0 && in.max < t.divisor ? in : IndexRange{0, t.divisor - 1};
      break;
    }
  }
  return t.coef > 0 ? IndexRange{r.min * t.coef, r.max * t.coef}
                    : IndexRange{r.max * t.coef, r.min * t.coef};
}

}  // namespace

IndexExpr::IndexExpr(const IndexExpr& e) = default;
IndexExpr::IndexExpr(IndexExpr&& e) noexcept = default;
IndexExpr& IndexExpr::operator=(const IndexExpr& e) = default;
IndexExpr& IndexExpr::operator=(IndexExpr&& e) noexcept = default;

IndexExpr IndexExpr::Constant(int64_t value) {
  IndexExpr e;
  e.offset_ = value;
  return e;
}

IndexExpr IndexExpr::Axis(int axis) {
  IndexExpr e;
  e.terms_.push_back({.axis = axis});
  return e;
}

bool IndexExpr::is_affine() const {
  return std::all_of(terms_.begin(), terms_.end(),
                     [](const IndexTerm& t) { return t.kind == IndexTerm::kAxis; });
}

int64_t IndexExpr::axis_coef(int axis) const {
  for (const IndexTerm& t : terms_) {
    if (t.kind == IndexTerm::kAxis && t.axis == axis) return t.coef;
  }
  return 0;
}

uint32_t IndexExpr::axes() const {
  uint32_t mask = 0;
  for (const IndexTerm& t : terms_) {
    mask |= t.kind == IndexTerm::kAxis ? uint32_t{1} << t.axis : t.inner->axes();
  }
  return mask;
}

int64_t IndexExpr::Evaluate(absl::Span<const int64_t> axis_values) const {
  int64_t sum = offset_;
  for (const IndexTerm& t : terms_) {
    int64_t v = t.kind == IndexTerm::kAxis ? axis_values[t.axis] : t.inner->Evaluate(axis_values);
    if (t.kind == IndexTerm::kFloorDiv) v = FloorDivInt(v, t.divisor);
    if (t.kind == IndexTerm::kMod) v -= FloorDivInt(v, t.divisor) * t.divisor;
    sum += t.coef * v;
  }
  return sum;
}

std::string IndexExpr::Print() const {
  std::string out;
  for (const IndexTerm& t : terms_) {
    if (!out.empty()) out += " + ";
    if (t.coef != 1) absl::StrAppend(&out, t.coef, "*");
    switch (t.kind) {
      case IndexTerm::kAxis: absl::StrAppend(&out, "a", t.axis); break;
      case IndexTerm::kFloorDiv:
        absl::StrAppend(&out, "(", t.inner->Print(), " / ", t.divisor, ")");
        break;
      case IndexTerm::kMod:
        absl::StrAppend(&out, "(", t.inner->Print(), " % ", t.divisor, ")");
        break;
    }
  }
  if (offset_ != 0 || out.empty()) absl::StrAppend(&out, out.empty() ? "" : " + ", offset_);
  return out;
}

void IndexExpr::AddTerm(const IndexTerm& term) {
  if (term.coef == 0) return;
  if (terms_.empty() || CompareKey(terms_.back(), term) < 0) {
    terms_.push_back(term);
    return;
  }
  auto at =
      std::lower_bound(terms_.begin(), terms_.end(), term,
                       [](const IndexTerm& a, const IndexTerm& b) { return CompareKey(a, b) < 0; });
  if (at != terms_.end() && CompareKey(*at, term) == 0) {
    at->coef += term.coef;
    if (at->coef == 0) terms_.erase(at);
    return;
  }
  terms_.insert(at, term);
}

void IndexExpr::AddDivision(IndexTerm term, Inner inner) {
  term.inner = inner.get();
  AddTerm(term);
  IndexExpr divided;
  divided.kept_ = std::make_shared<const std::vector<Inner>>(1, std::move(inner));
  KeepWhatTermsOf(divided);
}

void IndexExpr::KeepWhatTermsOf(const IndexExpr& e) {
  if (e.kept_ == nullptr || e.kept_ == kept_ || is_affine()) return;
  if (kept_ == nullptr) {
    kept_ = e.kept_;
    return;
  }
  std::vector<Inner> kept;
  for (const std::vector<Inner>* list : {kept_.get(), e.kept_.get()}) {
    for (const Inner& inner : *list) {
      const bool used = std::any_of(terms_.begin(), terms_.end(),
                                    [&](const IndexTerm& t) { return t.inner == inner.get(); });
      if (used && std::find(kept.begin(), kept.end(), inner) == kept.end()) kept.push_back(inner);
    }
  }
  kept_ = std::make_shared<const std::vector<Inner>>(std::move(kept));
}

IndexExpr operator+(const IndexExpr& a, const IndexExpr& b) {
  IndexExpr sum = a;
  sum.AddScaled(b, 1);
  return sum;
}

void IndexExpr::AddScaled(const IndexExpr& e, int64_t factor) {
  if (factor == 0) return;
  offset_ += e.offset_ * factor;
  if (terms_.empty()) {  // these are in canonical order
    terms_ = e.terms_;
    for (IndexTerm& t : terms_) t.coef *= factor;
  } else {
    for (const IndexTerm& t : e.terms_) {
      IndexTerm scaled = t;
      scaled.coef *= factor;
      AddTerm(scaled);
    }
  }
  KeepWhatTermsOf(e);
  Recombine();
}

void IndexExpr::RenumberAxes(absl::Span<const int> number) {
  size_t kept = 0;
  for (size_t i = 0; i < terms_.size(); ++i) {
    const int axis = number[terms_[i].axis];
    if (axis < 0) continue;
    const int64_t coef = terms_[i].coef;
    size_t at = kept++;
    for (; at > 0 && terms_[at - 1].axis > axis; --at) {
      terms_[at].axis = terms_[at - 1].axis;
      terms_[at].coef = terms_[at - 1].coef;
    }
    terms_[at].axis = axis;
    terms_[at].coef = coef;
  }
  terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(kept), terms_.end());
}

// e as floor(inner / divisor), if it is one division and a constant.
struct IndexExpr::Division {
  IndexExpr inner;
  int64_t divisor;
};

std::optional<IndexExpr::Division> IndexExpr::AsDivision(const IndexExpr& e) {
  if (e.terms_.size() != 1 || e.terms_[0].kind != IndexTerm::kFloorDiv || e.terms_[0].coef != 1) {
    return std::nullopt;
  }
  const IndexTerm& t = e.terms_[0];
  return Division{*t.inner + Constant(e.offset_ * t.divisor), t.divisor};
}

void IndexExpr::Recombine() {
  for (size_t i = 0; i < terms_.size(); ++i) {
    if (terms_[i].kind != IndexTerm::kMod) continue;
    const IndexTerm mod = terms_[i];
    // The quotient's canonical form: a division of a division is one division.
    IndexTerm quotient{.kind = IndexTerm::kFloorDiv, .divisor = mod.divisor, .inner = mod.inner};
    const IndexExpr& e = *mod.inner;
    const std::optional<Division> division = AsDivision(e);
    if (division) {
      quotient.divisor *= division->divisor;
      quotient.inner = &division->inner;
    }
    auto at = std::find_if(terms_.begin(), terms_.end(), [&](const IndexTerm& t) {
      return t.coef == mod.coef * mod.divisor && CompareKey(t, quotient) == 0;
    });
    if (at == terms_.end()) continue;
    terms_.erase(at);
    terms_.erase(std::find_if(terms_.begin(), terms_.end(),
                              [&](const IndexTerm& t) { return CompareKey(t, mod) == 0; }));
    *this = *this + e * mod.coef;
    return;  // the sum above went on combining
  }
}

IndexExpr operator*(const IndexExpr& a, int64_t factor) {
  if (factor == 0) return {};
  IndexExpr product = a;
  product.offset_ *= factor;
  for (IndexTerm& t : product.terms_) t.coef *= factor;
  return product;
}

bool operator==(const IndexExpr& a, const IndexExpr& b) { return Compare(a, b) == 0; }

IndexRange Range(const IndexExpr& e, absl::Span<const int64_t> extents) {
  IndexRange sum{e.offset(), e.offset()};
  for (const IndexTerm& t : e.terms()) {
    IndexRange r = TermRange(t, extents);
    sum.min += r.min;
    sum.max += r.max;
  }
  return sum;
}

namespace {

// e = factor·scaled + rest with 0 <= rest < factor, for the largest useful common factor of the
// coefficients and the divisor; factor 1 if there is none.
struct Scaling {
  int64_t factor = 1;
  IndexExpr scaled, rest;
};

Scaling CommonFactor(const IndexExpr& e, int64_t divisor, absl::Span<const int64_t> extents) {
  // Try the gcd of the divisor with each coefficient, largest first.
  std::vector<int64_t> factors;
  for (const IndexTerm& t : e.terms()) factors.push_back(std::gcd(divisor, t.coef));
  std::sort(factors.rbegin(), factors.rend());
  for (int64_t g : factors) {
    if (g <= 1) break;
    Scaling s{.factor = g};
    for (const IndexTerm& t : e.terms()) {
      IndexExpr term;
      IndexTerm copy = t;
      if (t.coef % g == 0) {
        copy.coef = 1;
        IndexExpr one = copy.kind == IndexTerm::kAxis ? IndexExpr::Axis(copy.axis) : IndexExpr();
        if (copy.kind != IndexTerm::kAxis) {
          one = copy.kind == IndexTerm::kFloorDiv ? FloorDiv(*copy.inner, copy.divisor, extents)
                                                  : Mod(*copy.inner, copy.divisor, extents);
        }
        s.scaled = s.scaled + one * (t.coef / g);
      } else {
        IndexExpr one = copy.kind == IndexTerm::kAxis ? IndexExpr::Axis(copy.axis)
                        : copy.kind == IndexTerm::kFloorDiv
                            ? FloorDiv(*copy.inner, copy.divisor, extents)
                            : Mod(*copy.inner, copy.divisor, extents);
        s.rest = s.rest + one * t.coef;
      }
    }
    const int64_t high = FloorDivInt(e.offset(), g);
    s.scaled = s.scaled + IndexExpr::Constant(high);
    s.rest = s.rest + IndexExpr::Constant(e.offset() - high * g);
    IndexRange r = Range(s.rest, extents);
    if (r.min >= 0 && r.max < g) return s;
  }
  return {};
}

}  // namespace

struct IndexExpr::Divided {
  IndexExpr quotient, remainder;
};

// e = divisor·quotient + remainder, each coefficient divided for itself, if the remainder is in 0
// .. divisor - 1 everywhere: of rows that are a little longer than the divisor, 57·a + b of rows
// of 56.
std::optional<IndexExpr::Divided> IndexExpr::DivideTerms(const IndexExpr& e, int64_t divisor,
                                                         absl::Span<const int64_t> extents) {
  Divided d;
  for (const IndexTerm& t : e.terms_) {
    IndexTerm part = t;
    part.coef = t.coef / divisor;
    if (part.coef != 0) d.quotient.AddTerm(part);
    part.coef = t.coef % divisor;
    if (part.coef != 0) d.remainder.AddTerm(part);
  }
  d.quotient.KeepWhatTermsOf(e);
  d.remainder.KeepWhatTermsOf(e);
  d.remainder.offset_ = e.offset_;
  const IndexRange r = Range(d.remainder, extents);
  const int64_t whole = FloorDivInt(r.min, divisor);
  if (whole != FloorDivInt(r.max, divisor)) return std::nullopt;
  d.quotient.offset_ = whole;
  d.remainder.offset_ -= whole * divisor;
  return d;
}

IndexExpr FloorDiv(const IndexExpr& e, int64_t divisor, absl::Span<const int64_t> extents) {
  RG_CHECK(divisor > 0);
  if (divisor == 1) return e;
  if (auto d = IndexExpr::DivideTerms(e, divisor, extents)) return std::move(d->quotient);
  IndexExpr whole, rest;
  for (const IndexTerm& t : e.terms_) {
    if (t.coef % divisor == 0) {
      IndexTerm q = t;
      q.coef /= divisor;
      whole.AddTerm(q);
    } else {
      rest.AddTerm(t);
    }
  }
  whole.KeepWhatTermsOf(e);
  rest.KeepWhatTermsOf(e);
  const int64_t high = FloorDivInt(e.offset_, divisor);
  whole.offset_ = high;
  rest.offset_ = e.offset_ - high * divisor;
  if (Scaling s = CommonFactor(rest, divisor, extents); s.factor > 1) {
    return whole + FloorDiv(s.scaled, divisor / s.factor, extents);
  }
  if (const auto division = IndexExpr::AsDivision(rest)) {
    return whole + FloorDiv(division->inner, division->divisor * divisor, extents);
  }
  whole.AddDivision({.kind = IndexTerm::kFloorDiv, .divisor = divisor},
                    std::make_shared<const IndexExpr>(std::move(rest)));
  return whole;
}

IndexExpr Mod(const IndexExpr& e, int64_t divisor, absl::Span<const int64_t> extents) {
  RG_CHECK(divisor > 0);
  if (divisor == 1) return {};
  if (auto d = IndexExpr::DivideTerms(e, divisor, extents)) return std::move(d->remainder);
  IndexExpr rest;
  for (const IndexTerm& t : e.terms_) {
    if (t.coef % divisor != 0) rest.AddTerm(t);
  }
  rest.KeepWhatTermsOf(e);
  rest.offset_ = e.offset_ - FloorDivInt(e.offset_, divisor) * divisor;
  if (Scaling s = CommonFactor(rest, divisor, extents); s.factor > 1) {
    return Mod(s.scaled, divisor / s.factor, extents) * s.factor + s.rest;
  }
  IndexExpr out;
  out.AddDivision({.kind = IndexTerm::kMod, .divisor = divisor},
                  std::make_shared<const IndexExpr>(std::move(rest)));
  return out;
}

IndexExpr Substitute(const IndexExpr& e, absl::Span<const IndexExpr> replacement,
                     absl::Span<const int64_t> new_extents) {
  IndexExpr out = IndexExpr::Constant(e.offset());
  for (const IndexTerm& t : e.terms()) {
    IndexExpr v;
    if (t.kind == IndexTerm::kAxis) {
      v = replacement[t.axis];
    } else {
      IndexExpr inner = Substitute(*t.inner, replacement, new_extents);
      v = t.kind == IndexTerm::kFloorDiv ? FloorDiv(inner, t.divisor, new_extents)
                                         : Mod(inner, t.divisor, new_extents);
    }
    out.AddScaled(v, t.coef);
  }
  return out;
}

int64_t KnownDivisor(const IndexExpr& e, int64_t limit) {
  int64_t g = e.offset();
  for (const IndexTerm& t : e.terms()) g = std::gcd(g, t.coef);
  if (g == 0) return limit;
  return std::min(limit, g & -g);
}

}  // namespace retrograd
