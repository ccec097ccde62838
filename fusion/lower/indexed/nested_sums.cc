#include "fusion/lower/indexed/nested_sums.h"

#include <algorithm>
#include <utility>

namespace retrograd {
namespace {

// Search bound: ops behind a source that are looked through.
constexpr int kMostScalings = 8;

// A value, what it is a multiple of, and the first factor's sum.
std::vector<int64_t> KeyOf(const BackwardGraph& g, ValueId value, ValueId scaled, int64_t axis,
                           const KnownSum& sum) {
  std::vector<int64_t> key = {static_cast<int64_t>(g.value_index(value)),
                              static_cast<int64_t>(g.value_index(scaled)), axis,
                              sum.factors[0].rows};
  for (const IndexLine& line : sum.lines[0]) {
    key.insert(key.end(), {line.axis, line.first, line.step, line.row, line.stride, line.count});
    key.insert(key.end(), line.at.begin(), line.at.end());
  }
  return key;
}

std::vector<ValueId> TermsOf(GraphBuilder& b, const KnownSum& sum, size_t factor, int64_t axis,
                             ValueId x) {
  std::vector<ValueId> terms;
  for (const IndexLine& line : sum.lines[factor]) {
    AxisViews views(b, x);
    views.Gather(axis, sum.factors[factor], line);
    terms.push_back(views.value());
  }
  return terms;
}

}  // namespace

std::vector<ValueId> NestedSums::Terms(const KnownSum& sum, int64_t axis, ValueId source,
                                       DType wide) {
  const bool none = std::any_of(sum.lines.begin(), sum.lines.end(),
                                [](const auto& of_factor) { return of_factor.empty(); });
  if (none) return {};
  if (sum.factors.size() == 1) {
    return TermsOf(b_, sum, 0, axis, b_.Cast(rewriter_.New(source), wide));
  }
  const First first{sum, axis, wide};
  std::vector<ValueId> terms = {Summed(first, source, ScaledBy(first, source, 0))};
  for (size_t f = 1; f < sum.factors.size(); ++f) {
    terms = TermsOf(b_, sum, f, axis + static_cast<int64_t>(f), Added(terms));
  }
  return terms;
}

// What `value` is a multiple of, with factors that do not vary along the first axis; itself if
// nothing else is found.
ValueId NestedSums::ScaledBy(const First& first, ValueId value, int depth) const {
  const absl::Span<const ValueId> operands = g_.operands(value.node);
  const TensorType& type = g_.type(value);
  const bool one_axis = first.sum.factors[0].extents.size() == 1 && type.shape[first.axis] > 1;
  if (!one_axis || type.dtype != first.wide || depth == kMostScalings) return value;
  const auto whole = [&](ValueId operand) { return g_.type(operand) == type; };
  switch (g_.op(value.node)) {
    case Op::neg: return ScaledBy(first, operands[0], depth + 1);
    case Op::mul:
      for (const int x : {0, 1}) {
        if (whole(operands[x]) && !VariesAlong(first, operands[1 - x], value)) {
          return ScaledBy(first, operands[x], depth + 1);
        }
      }
      return value;
    case Op::add:
    case Op::sub: {
      if (!whole(operands[0]) || !whole(operands[1])) return value;
      const ValueId scaled = ScaledBy(first, operands[0], depth + 1);
      return ScaledBy(first, operands[1], depth + 1) == scaled ? scaled : value;
    }
    default: return value;
  }
}

// Broadcasting aligns shapes at their last dims.
bool NestedSums::VariesAlong(const First& first, ValueId operand, ValueId result) const {
  const TensorType& type = g_.type(operand);
  const int64_t dim = first.axis - g_.type(result).rank() + type.rank();
  return type.dtype != first.wide || (dim >= 0 && type.shape[dim] != 1);
}

// The sum of `value`: what it is made of the sum of `scaled`.
ValueId NestedSums::Summed(const First& first, ValueId value, ValueId scaled) {
  const std::vector<int64_t> key = KeyOf(g_, value, scaled, first.axis, first.sum);
  const auto known = summed_.find(key);
  if (known != summed_.end()) return known->second;
  ValueId summed;
  if (value == scaled) {
    const ValueId source = b_.Cast(rewriter_.New(value), first.wide);
    summed = Added(TermsOf(b_, first.sum, 0, first.axis, source));
  } else {
    std::vector<ValueId> made;
    for (const ValueId operand : g_.operands(value.node)) {
      const bool whole = g_.type(operand) == g_.type(value);
      made.push_back(whole ? Summed(first, operand, scaled) : rewriter_.New(operand));
    }
    summed = b_.Add(g_.op(value.node), made);
  }
  return summed_.emplace(key, summed).first->second;
}

ValueId NestedSums::Added(const std::vector<ValueId>& terms) {
  ValueId total = terms.front();
  for (size_t t = 1; t < terms.size(); ++t) total = b_.Add(Op::add, {{total, terms[t]}});
  return total;
}

}  // namespace retrograd
