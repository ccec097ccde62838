#include "fusion/lower/indexed/index_lines.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

namespace retrograd {
namespace {

// Of a line's step and stride, if one of them is 1, and else.
constexpr int64_t kMaxWhole = 32, kMaxSlope = 8;

int64_t Product(absl::Span<const int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

// --- factors -------------------------------------------------------------------------------------

// The index as one of its first `cut` axes beside one of the others.
std::optional<std::pair<IndexFactor, IndexFactor>> SplitBehind(const IndexFactor& index,
                                                               size_t cut) {
  IndexFactor outer{{index.extents.begin(), index.extents.begin() + cut}, 0, {}};
  IndexFactor inner{{index.extents.begin() + cut, index.extents.end()}, 0, {}};
  const int64_t n = Product(outer.extents), m = Product(inner.extents);
  const std::vector<int64_t>& v = index.values;
  inner.rows = index.rows;
  for (int64_t i = 0; i < n; ++i) inner.rows = std::gcd(inner.rows, v[i * m] - v[0]);
  if (inner.rows == index.rows || inner.rows <= 1) return std::nullopt;
  outer.rows = index.rows / inner.rows;
  for (int64_t i = 0; i < n; ++i) outer.values.push_back(v[i * m] / inner.rows);
  for (int64_t j = 0; j < m; ++j) inner.values.push_back(v[j] % inner.rows);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < m; ++j) {
      const int64_t both = outer.values[i] * inner.rows + inner.values[j];
      if (v[i * m + j] != both) return std::nullopt;
    }
  }
  return std::pair(std::move(outer), std::move(inner));
}

// --- lines ---------------------------------------------------------------------------------------

// Places along one axis of the index, the others fixed at `at`.
struct Row {
  std::vector<int64_t> at;
  std::vector<int64_t> values;
};

// In the order of `at`.
std::vector<Row> RowsAlong(const IndexFactor& index, size_t axis) {
  const absl::Span<const int64_t> extents = index.extents;
  const int64_t extent = extents[axis];
  const int64_t outer = Product(extents.first(axis)), inner = Product(extents.subspan(axis + 1));
  std::vector<Row> rows;
  std::vector<int64_t> at(extents.size());
  for (int64_t number = 0; extent > 0 && number < outer * inner; ++number) {
    const int64_t begin = number / inner * extent * inner + number % inner;
    Row& row = rows.emplace_back(Row{at, {}});
    row.values.reserve(extent);
    for (int64_t i = 0; i < extent; ++i) row.values.push_back(index.values[begin + i * inner]);
    for (size_t a = at.size(); a-- > 0;) {
      if (a == axis) continue;
      if (++at[a] < extents[a]) break;
      at[a] = 0;
    }
  }
  return rows;
}

// Each of them needs a line of its own.
size_t RowsWithPlaces(const std::vector<Row>& rows) {
  return std::count_if(rows.begin(), rows.end(), [](const Row& row) {
    return std::any_of(row.values.begin(), row.values.end(), [](int64_t r) { return r >= 0; });
  });
}

// A line and what it is sorted by: of two places that name one row, the first one's line has the
// smaller key.
struct Keyed {
  std::vector<int64_t> key;
  IndexLine line;
};

// The row's places h that name a row r, as lines h = step floor(r / stride) + b. Stops beyond
// max_lines.
void AppendLines(const Row& row, size_t axis, int64_t step, int64_t stride, size_t max_lines,
                 std::vector<Keyed>& lines) {
  // By line, in the order of places: (turn, place). One place alone is a line's at a turn.
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>> by_line;
  for (int64_t h = 0; h < static_cast<int64_t>(row.values.size()); ++h) {
    const int64_t r = row.values[h];
    if (r < 0) continue;
    const int64_t turn = r / stride;
    by_line[{h - step * turn, r % stride}].emplace_back(turn, h);
    if (by_line.size() + lines.size() > max_lines) {
      lines.resize(max_lines + 1);
      return;
    }
  }
  for (auto& [id, places] : by_line) {
    if (step < 0) std::reverse(places.begin(), places.end());  // turns ascend
    std::vector<int64_t> key = row.at;
    key[axis] = id.first;
    int64_t next = -1;
    for (const auto& [turn, h] : places) {
      if (turn != next) {
        lines.push_back(
            {key, {row.at, static_cast<int>(axis), h, step, turn * stride + id.second, stride, 0}});
      }
      ++lines.back().line.count;
      next = turn + 1;
    }
  }
}

// No more than max_lines, or one more.
std::vector<Keyed> KeyedLines(const std::vector<Row>& rows, size_t axis, int64_t step,
                              int64_t stride, size_t max_lines) {
  std::vector<Keyed> lines;
  for (const Row& row : rows) {
    AppendLines(row, axis, step, stride, max_lines, lines);
    if (lines.size() > max_lines) break;
  }
  return lines;
}

}  // namespace

std::vector<IndexFactor> Factors(IndexFactor index) {
  const bool inside =
      !index.values.empty() && *std::min_element(index.values.begin(), index.values.end()) >= 0;
  for (size_t cut = 1; inside && cut < index.extents.size(); ++cut) {
    std::optional<std::pair<IndexFactor, IndexFactor>> parts = SplitBehind(index, cut);
    if (!parts.has_value()) continue;
    std::vector<IndexFactor> factors = {std::move(parts->first)};
    for (IndexFactor& factor : Factors(std::move(parts->second))) {
      factors.push_back(std::move(factor));
    }
    return factors;
  }
  return {std::move(index)};
}

std::optional<std::vector<IndexLine>> LinesOf(const IndexFactor& index, int64_t max_lines) {
  std::optional<std::vector<Keyed>> best;
  size_t limit = static_cast<size_t>(max_lines);
  for (size_t axis = 0; axis < index.extents.size(); ++axis) {
    const std::vector<Row> rows = RowsAlong(index, axis);
    const size_t least = RowsWithPlaces(rows);
    if (least > limit) continue;
    for (int64_t stride = 1; stride <= kMaxWhole; ++stride) {
      const int64_t most = stride == 1 ? kMaxWhole : stride <= kMaxSlope ? kMaxSlope : 1;
      for (int64_t step = -most; step <= most; ++step) {
        if (best.has_value() && best->size() <= least) break;
        if (step == 0 || std::gcd(step, stride) != 1) continue;
        std::vector<Keyed> lines = KeyedLines(rows, axis, step, stride, limit);
        if (lines.size() > limit || (best.has_value() && lines.size() >= best->size())) continue;
        limit = lines.size();
        best = std::move(lines);
      }
    }
  }
  if (!best.has_value()) return std::nullopt;
  std::stable_sort(best->begin(), best->end(),
                   [](const Keyed& a, const Keyed& b) { return a.key < b.key; });
  std::vector<IndexLine> lines;
  for (Keyed& keyed : *best) lines.push_back(std::move(keyed.line));
  return lines;
}

}  // namespace retrograd
