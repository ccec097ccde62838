#include "codegen/print/numbers/index_text.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/print/numbers/sized_number.h"

namespace retrograd {
namespace {

int64_t FloorDivInt(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && a < 0 ? q - 1 : q;
}

std::string QuotientText(const IndexTerm& t, absl::Span<const std::string> axis_names,
                         absl::Span<const int64_t> extents) {
  const IndexRange range = Range(*t.inner, extents);
  const int64_t lift = range.min < 0 ? -FloorDivInt(range.min, t.divisor) : 0;  // divisors
  const IndexExpr inner = *t.inner + IndexExpr::Constant(lift * t.divisor);
  const std::string factor = IndexFactor(inner, axis_names, extents);
  if (t.kind == IndexTerm::kMod) return absl::StrCat("(", factor, " % ", Sized(t.divisor), ")");
  if (lift == 0) return absl::StrCat("(", factor, " / ", Sized(t.divisor), ")");
  return absl::StrCat("(", factor, " / ", Sized(t.divisor), " - ", Sized(lift), ")");
}

std::string Bound(int64_t number) { return number > 0 ? Sized(number) : absl::StrCat(number); }

std::string TermText(const IndexTerm& t, absl::Span<const std::string> axis_names,
                     absl::Span<const int64_t> extents) {
  return t.kind == IndexTerm::kAxis ? axis_names[t.axis] : QuotientText(t, axis_names, extents);
}

// Largest absolute value that the expression or a partial sum of it can take.
int64_t Reach(const IndexExpr& e, absl::Span<const int64_t> extents) {
  int64_t reach = std::abs(e.offset());
  for (const IndexTerm& t : e.terms()) {
    int64_t value = 0;
    if (t.kind == IndexTerm::kAxis) {
      value = extents[t.axis];
    } else {
      const int64_t inner = 2 * Reach(*t.inner, extents) + t.divisor;  // lifted to be non-negative
      reach = std::max(reach, inner);
      value = t.kind == IndexTerm::kMod ? t.divisor : inner / t.divisor + 1;
    }
    reach += std::abs(t.coef) * value;
  }
  return reach;
}

}  // namespace

std::string IndexText(const IndexExpr& e, absl::Span<const std::string> axis_names,
                      absl::Span<const int64_t> extents) {
  std::string out;
  for (const IndexTerm& t : e.terms()) {
    if (t.kind == IndexTerm::kAxis && extents[t.axis] <= 1) continue;
    const int64_t size = std::abs(t.coef);
    absl::StrAppend(&out, out.empty() ? (t.coef < 0 ? "-" : "") : (t.coef < 0 ? " - " : " + "));
    if (size != 1) absl::StrAppend(&out, Sized(size), " * ");
    absl::StrAppend(&out, TermText(t, axis_names, extents));
  }
  if (out.empty()) return Bound(e.offset());
  if (e.offset() != 0) {
    absl::StrAppend(&out, e.offset() < 0 ? " - " : " + ", Sized(std::abs(e.offset())));
  }
  return out;
}

std::string IndexFactor(const IndexExpr& e, absl::Span<const std::string> axis_names,
                        absl::Span<const int64_t> extents) {
  const bool atom = e.offset() == 0 && e.terms().size() == 1 && e.terms()[0].coef == 1;
  const std::string text = IndexText(e, axis_names, extents);
  return atom ? text : absl::StrCat("(", text, ")");
}

std::string GuardText(absl::Span<const Guard> guards, absl::Span<const std::string> axis_names,
                      absl::Span<const int64_t> extents) {
  std::vector<std::string> sides;
  for (const Guard& g : guards) {
    const IndexRange range = Range(g.expr, extents);
    const std::string text = IndexText(g.expr, axis_names, extents);
    if (range.min < g.begin) sides.push_back(absl::StrCat(text, " >= ", Bound(g.begin)));
    if (range.max >= g.end) sides.push_back(absl::StrCat(text, " < ", Bound(g.end)));
  }
  return absl::StrJoin(sides, " && ");
}

bool NeedsWideIndex(const KernelIr& ir, int64_t largest_number) {
  constexpr int64_t kLimit = (int64_t{1} << 31) - 1;
  int64_t reach = largest_number;
  for (const Instr& instr : ir.instrs) {
    int64_t offset = Reach(instr.offset, ir.extents);
    for (const Indirect& i : instr.indirect) offset += std::abs(i.stride) * i.extent;
    reach = std::max(reach, offset);
    for (const Guard& g : instr.guards) reach = std::max(reach, Reach(g.expr, ir.extents));
  }
  for (const Store& s : ir.stores) reach = std::max(reach, Reach(s.offset, ir.extents));
  return reach > kLimit;
}

}  // namespace retrograd
