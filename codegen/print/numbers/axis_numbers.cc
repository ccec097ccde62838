#include "codegen/print/numbers/axis_numbers.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/print/numbers/index_text.h"
#include "codegen/print/numbers/sized_number.h"

namespace retrograd {
namespace {

bool IsName(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

int64_t NotZero(absl::Span<const int64_t> coefficients) {
  return std::count_if(coefficients.begin(), coefficients.end(), [](int64_t c) { return c != 0; });
}

AxisMask Divided(const IndexExpr& e) {
  AxisMask axes = 0;
  for (const IndexTerm& t : e.terms()) {
    if (t.kind != IndexTerm::kAxis) axes |= t.inner->axes();
  }
  return axes;
}

// Positive terms stand first: compilers warn of a negative number that becomes an unsigned one.
class Sum {
 public:
  void Add(int64_t coefficient, absl::string_view name) {
    if (coefficient == 0) return;
    std::string& terms = coefficient > 0 ? added_ : taken_;
    absl::StrAppend(&terms, coefficient > 0 ? " + " : " - ");
    if (std::abs(coefficient) != 1) absl::StrAppend(&terms, Sized(std::abs(coefficient)), " * ");
    absl::StrAppend(&terms, name);
  }
  bool empty() const { return added_.empty() && taken_.empty(); }
  std::string Text() const { return absl::StrCat(added_.empty() ? "0" : added_.substr(3), taken_); }

 private:
  std::string added_, taken_;
};

}  // namespace

void AxisUse::AddGuard(const IndexExpr& e) {
  AddCoordinates(e.axes());
  divided |= Divided(e);
}

void AxisUse::AddOffset(const IndexExpr& e) {
  if (e.is_constant()) return;
  axes |= e.axes();
  AddCoordinates(Divided(e));
  divided |= Divided(e);
  offsets.push_back(e);
}

void AxisUse::Add(const AxisUse& other) {
  axes |= other.axes;
  coordinates |= other.coordinates;
  divided |= other.divided;
  offsets.insert(offsets.end(), other.offsets.begin(), other.offsets.end());
}

AxisNumbers::AxisNumbers(absl::Span<const int64_t> extents)
    : extents_(extents.begin(), extents.end()), places_(extents.size()) {
  for (size_t a = 0; a < places_.size(); ++a) places_[a].coordinate = absl::StrCat("a", a);
}

void AxisNumbers::Set(int axis, std::string text) {
  places_[axis] = {.coordinate = std::move(text)};
}

std::vector<int> AxisNumbers::Several(AxisMask mask) const {
  std::vector<int> axes;
  for (size_t a = 0; a < extents_.size(); ++a) {
    if ((mask >> a & 1) != 0 && extents_[a] > 1) axes.push_back(static_cast<int>(a));
  }
  return axes;
}

// With n(k) for the number of the axes up to k, the coordinate of k is n(k) - extent(k) * n(k - 1).
AxisNumbers::Terms AxisNumbers::TermsOf(const IndexExpr& e, AxisMask mask) const {
  Terms terms{.axes = Several(mask), .coordinates = {}, .quotients = {}};
  for (int axis : terms.axes) terms.coordinates.push_back(e.axis_coef(axis));
  terms.quotients = terms.coordinates;
  for (size_t k = 1; k < terms.axes.size(); ++k) {
    terms.quotients[k - 1] -= extents_[terms.axes[k]] * terms.coordinates[k];
  }
  terms.by_quotients = terms.quotients != terms.coordinates &&
                       NotZero(terms.quotients) <= NotZero(terms.coordinates);
  return terms;
}

std::vector<std::string> AxisNumbers::Declare(AxisMask mask, const AxisUse& use,
                                              absl::string_view number,
                                              absl::string_view index_type) {
  index_type_ = std::string(index_type);
  // Sums may leave the type of indices before they are whole.
  const absl::string_view divided_type = index_type == "int" ? "unsigned" : "unsigned long long";
  for (size_t a = 0; a < extents_.size(); ++a) {
    if ((mask >> a & 1) != 0) places_[a] = {.coordinate = absl::StrCat("a", a), .mask = mask};
  }
  const std::vector<int> axes = Several(mask);
  if (axes.empty()) return {};
  const int outermost = axes.front(), innermost = axes.back();
  places_[innermost].number = IsName(number) ? std::string(number) : "";
  const Used used = UsedOf(axes, mask, use);
  const bool divides = axes.size() > 1 && used.coordinates != 0;
  std::vector<std::string> lines;
  // A quotient of it, or it itself: from one to the next that is declared.
  std::string from = absl::StrCat("static_cast<", divided_type, ">(", number, ")");
  if (divides || used.quotients != 0) {
    from = absl::StrCat("n", innermost);
    lines.push_back(absl::StrCat("const ", divided_type, " ", from, " = ", number, ";"));
  }
  std::vector<std::string> of_coordinates;
  int64_t stride = 1, inside = 1;
  for (size_t k = axes.size(); k-- > 0;) {
    const int axis = axes[k];
    const AxisMask bit = AxisMask{1} << axis;
    const bool by_itself = (used.coordinates & bit) != 0, divided = (use.divided & bit) != 0;
    Place& place = places_[axis];
    std::string text = stride == 1 ? from : absl::StrCat(from, " / ", Sized(stride));
    if (stride > 1 && ((used.quotients & bit) != 0 || (by_itself && axis != outermost))) {
      from = absl::StrCat("n", axis);
      lines.push_back(absl::StrCat("const ", divided_type, " ", from, " = ", text, ";"));
      text = from;
      stride = 1;
    }
    place.quotient = IsName(text) ? text : absl::StrCat("(", text, ")");
    if (axes.size() == 1) text = std::string(number);
    if (divided) {
      text = IsName(number) ? std::string(number) : absl::StrCat("(", number, ")");
      if (inside > 1) absl::StrAppend(&text, " / ", Sized(inside));
    }
    if (axis != outermost) absl::StrAppend(&text, " % ", Sized(extents_[axis]));
    if (by_itself || divided) {
      of_coordinates.push_back(
          absl::StrCat("const ", index_type, " ", place.coordinate, " = ", text, ";"));
    } else {
      place.coordinate = absl::StrCat("static_cast<", index_type, ">(", text, ")");
    }
    stride *= extents_[axis];
    inside *= extents_[axis];
  }
  lines.insert(lines.end(), of_coordinates.rbegin(), of_coordinates.rend());
  return lines;
}

AxisNumbers::Used AxisNumbers::UsedOf(absl::Span<const int> axes, AxisMask mask,
                                      const AxisUse& use) const {
  Used used{.coordinates = use.coordinates & ~use.divided & mask};
  for (const IndexExpr& e : use.offsets) {
    const Terms terms = TermsOf(e, mask);
    if (terms.by_quotients && IsNumber(terms)) continue;
    for (size_t k = 0; k < axes.size(); ++k) {
      const AxisMask bit = AxisMask{1} << axes[k];
      const bool alone = !terms.by_quotients && terms.coordinates[k] != 0;
      if (alone && (use.divided & bit) == 0) used.coordinates |= bit;
      if (terms.by_quotients && terms.quotients[k] != 0) used.quotients |= bit;
    }
  }
  for (size_t a = 0; a < extents_.size(); ++a) {
    if (extents_[a] <= 1) used.coordinates &= ~(AxisMask{1} << a);
  }
  return used;
}

// Whether the sum is the number of the axes, or a multiple of it.
bool AxisNumbers::IsNumber(const Terms& terms) const {
  return NotZero(terms.quotients) == 1 && terms.quotients.back() > 0 &&
         !places_[terms.axes.back()].number.empty();
}

std::vector<std::string> AxisNumbers::Coordinates(const AxisLane& lane) const {
  std::vector<std::string> names;
  for (const Place& place : places_) names.push_back(place.coordinate);
  if (lane.axis >= 0 && !lane.plus.empty()) {
    names[lane.axis] = absl::StrCat("(", names[lane.axis], " + ", lane.plus, ")");
  }
  return names;
}

std::string AxisNumbers::Offset(const IndexExpr& e, const AxisLane& lane) const {
  Sum quotients;
  bool is_unsigned = false;
  IndexExpr rest = e;
  AxisMask done = 0;
  for (const Place& place : places_) {
    if (place.mask == 0 || (place.mask & done) != 0) continue;
    done |= place.mask;
    const Terms terms = TermsOf(e, place.mask);
    const bool along = lane.axis >= 0 && (place.mask >> lane.axis & 1) != 0;
    if (!terms.by_quotients || (along && lane.axis != terms.axes.back())) continue;
    const bool is_number = IsNumber(terms);
    is_unsigned |= !is_number;
    for (size_t k = 0; k < terms.axes.size(); ++k) {
      const int axis = terms.axes[k];
      rest.AddScaled(IndexExpr::Axis(axis), -terms.coordinates[k]);
      std::string name = is_number ? places_[axis].number : places_[axis].quotient;
      if (axis == lane.axis && !lane.plus.empty())
        name = absl::StrCat("(", name, " + ", lane.plus, ")");
      quotients.Add(terms.quotients[k], name);
    }
  }
  if (quotients.empty()) return IndexText(e, Coordinates(lane), extents_);
  std::string sum = quotients.Text();
  if (is_unsigned) sum = absl::StrCat(index_type_, "(", sum, ")");
  if (rest.is_constant() && rest.offset() == 0) return sum;
  // Behind the cast, where a compiler may add constants to addresses: numbers of the type of
  // indices don't wrap around.
  const std::string text = IndexText(rest, Coordinates(lane), extents_);
  const bool less = absl::StartsWith(text, "-");
  return absl::StrCat(sum, less ? " - " : " + ", less ? text.substr(1) : text);
}

}  // namespace retrograd
