#include "fusion/lower/indexed/slice_gathers.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "fusion/lower/indexed/axis_views.h"
#include "fusion/lower/indexed/index_lines.h"
#include "fusion/lower/indexed/known_index.h"
#include "fusion/ops/call_op.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// Slices of a factor of the index: a kernel tests for each element which of them it is in. And the
// elements of an index that is evaluated: the few runs of a longer one are long, and what it takes
// to read it is little beside what is gathered.
constexpr int64_t kMostSlices = 8, kMostElements = 1 << 16;

// Whether the table lies in memory, as it is: each of its elements is read where it is, and a
// choice of slices would only add tests.
bool LiesInMemory(const BackwardGraph& g, ValueId table) {
  while (g.op(table.node) == Op::reshape || g.op(table.node) == Op::permute) {
    table = g.operands(table.node)[0];
  }
  return g.op(table.node) == Op::input || IsLibrary(g, table.node);
}

// Elements first + i * step, 0 <= i < count, of an axis.
struct Run {
  int64_t first = 0, step = 1, count = 1;
};

std::vector<Run> RunsOf(const std::vector<int64_t>& values) {
  std::vector<Run> runs;
  for (const int64_t v : values) {
    if (!runs.empty()) {
      Run& run = runs.back();
      const int64_t step = v - (run.first + (run.count - 1) * run.step);
      if (step != 0 && (run.count == 1 || step == run.step)) {
        run.step = step;
        ++run.count;
        continue;
      }
    }
    runs.push_back({.first = v});
  }
  return runs;
}

int64_t Product(absl::Span<const int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

// Windows along an axis: element [i, j] is first + i * step[0] + j * step[1].
struct Windows {
  int64_t first = 0;
  std::array<int64_t, 2> step, count;
};

std::optional<Windows> WindowsOf(const IndexFactor& factor) {
  std::vector<int64_t> extents;
  for (int64_t n : factor.extents) {
    if (n > 1) extents.push_back(n);
  }
  if (extents.size() != 2) return std::nullopt;
  const std::vector<int64_t>& v = factor.values;
  const Windows w{v[0], {v[extents[1]] - v[0], v[1] - v[0]}, {extents[0], extents[1]}};
  if (w.step[0] <= 0 || w.step[1] <= 0) return std::nullopt;
  for (int64_t i = 0; i < w.count[0]; ++i) {
    for (int64_t j = 0; j < w.count[1]; ++j) {
      const int64_t at = w.first + i * w.step[0] + j * w.step[1];
      if (v[i * w.count[1] + j] != at) return std::nullopt;
    }
  }
  return w;
}

// The factor at one place along `axis`, without that axis.
IndexFactor At(const IndexFactor& factor, size_t axis, int64_t place) {
  IndexFactor part{factor.extents, factor.rows, {}};
  part.extents.erase(part.extents.begin() + static_cast<ptrdiff_t>(axis));
  const int64_t inner = Product(absl::MakeSpan(factor.extents).subspan(axis + 1));
  const int64_t extent = factor.extents[axis];
  for (size_t i = 0; i < factor.values.size(); ++i) {
    if (static_cast<int64_t>(i) / inner % extent == place) part.values.push_back(factor.values[i]);
  }
  return part;
}

// Whether the factor is the same at every place along `axis`.
bool Repeats(const IndexFactor& factor, size_t axis) {
  const int64_t inner = Product(absl::MakeSpan(factor.extents).subspan(axis + 1));
  const int64_t whole = inner * factor.extents[axis];
  for (size_t i = 0; i < factor.values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (factor.values[i] != factor.values[at / whole * whole + at % inner]) return false;
  }
  return true;
}

// Of the axes that have several places: one along which the factor repeats, else the shortest.
size_t AxisToCut(const IndexFactor& factor) {
  size_t shortest = factor.extents.size();
  for (size_t a = 0; a < factor.extents.size(); ++a) {
    if (factor.extents[a] <= 1) continue;
    if (Repeats(factor, a)) return a;
    const bool first = shortest == factor.extents.size();
    if (first || factor.extents[a] < factor.extents[shortest]) shortest = a;
  }
  return shortest;
}

bool HasSeveralAxes(const IndexFactor& factor) {
  return std::count_if(factor.extents.begin(), factor.extents.end(),
                       [](int64_t n) { return n > 1; }) > 1;
}

// The factor at each place along `axis`; at the first one alone if it repeats.
std::vector<IndexFactor> PartsAlong(const IndexFactor& factor, size_t axis) {
  const int64_t places = Repeats(factor, axis) ? 1 : factor.extents[axis];
  std::vector<IndexFactor> parts;
  for (int64_t i = 0; i < places; ++i) parts.push_back(At(factor, axis, i));
  return parts;
}

// How many slices the factor is, or more than kMostSlices.
int64_t SlicesOf(const IndexFactor& factor) {
  if (!HasSeveralAxes(factor)) return static_cast<int64_t>(RunsOf(factor.values).size());
  if (WindowsOf(factor)) return 1;
  const size_t axis = AxisToCut(factor);
  // Each place is a slice at least.
  if (factor.extents[axis] > kMostSlices && !Repeats(factor, axis)) return kMostSlices + 1;
  int64_t slices = 0;
  for (const IndexFactor& part : PartsAlong(factor, axis)) {
    if (slices <= kMostSlices) slices += SlicesOf(part);
  }
  return slices;
}

class Taker {
 public:
  explicit Taker(GraphBuilder& builder) : b_(builder) {}

  // x with its axis replaced by those of the factor.
  ValueId Take(ValueId x, int64_t axis, const IndexFactor& factor) {
    if (const std::optional<Windows> w = WindowsOf(factor)) {
      AxisViews windows(b_, x);
      windows.TakeWindows(axis, w->first, w->step, w->count);
      windows.Merge(axis, 2, factor.extents);
      return windows.value();
    }
    if (HasSeveralAxes(factor)) return TakeEach(x, axis, factor);
    std::vector<ValueId> parts;
    for (const Run& run : RunsOf(factor.values)) {
      AxisViews part(b_, x);
      part.Take(axis, run.first, run.step, run.count);
      parts.push_back(part.value());
    }
    return WithAxes(Join(parts, axis), axis, 1, factor.extents);
  }

 private:
  ValueId TakeEach(ValueId x, int64_t axis, const IndexFactor& factor) {
    const size_t cut = AxisToCut(factor);
    const auto along = axis + static_cast<int64_t>(cut);
    const auto rank = static_cast<int64_t>(factor.extents.size());
    Shape extents = factor.extents;
    extents[cut] = 1;
    std::vector<ValueId> parts;
    for (const IndexFactor& part : PartsAlong(factor, cut)) {
      parts.push_back(WithAxes(Take(x, axis, part), axis, rank - 1, extents));
    }
    if (parts.size() > 1) return Join(parts, along);
    Shape shape = b_.type(parts[0]).shape;
    shape[static_cast<size_t>(along)] = factor.extents[cut];
    return b_.Expand(parts[0], std::move(shape));
  }

  ValueId Join(const std::vector<ValueId>& parts, int64_t axis) { return b_.Cat(parts, axis); }

  ValueId WithAxes(ValueId x, int64_t axis, int64_t count, const std::vector<int64_t>& extents) {
    AxisViews views(b_, x);
    views.Merge(axis, count, extents);
    return views.value();
  }

  GraphBuilder& b_;
};

class Slicer {
 public:
  explicit Slicer(const BackwardGraph& graph) : g_(graph) {}

  // By factor of the index which elements are gathered; empty where it is no few slices.
  const std::vector<IndexFactor>& FactorsOf(NodeId id) {
    static const std::vector<IndexFactor>& none = *new std::vector<IndexFactor>;
    if (g_.op(id) != Op::index_select) return none;
    const ValueId index = g_.operands(id)[1];
    const TensorType& table = g_.type(g_.operands(id)[0]);
    const int64_t rows = table.shape[g_.node(id).attrs.Int("axis")];
    const auto [known, is_new] = known_.try_emplace({g_.value_index(index), rows});
    if (is_new) known->second = Find(index, rows);
    const bool chooses = std::any_of(known->second.begin(), known->second.end(),
                                     [](const IndexFactor& f) { return SlicesOf(f) > 1; });
    return chooses && LiesInMemory(g_, g_.operands(id)[0]) ? none : known->second;
  }

 private:
  std::vector<IndexFactor> Find(ValueId index, int64_t rows) {
    const TensorType& type = g_.type(index);
    if (type.elements() == 0 || type.elements() > kMostElements || type.rank() == 0) return {};
    std::optional<std::vector<int64_t>> values = KnownIndex(g_, index, budget_);
    if (!values) return {};
    const auto outside = [&](int64_t v) { return v < 0 || v >= rows; };
    if (std::any_of(values->begin(), values->end(), outside)) return {};
    std::vector<IndexFactor> factors = Factors({type.shape, rows, *std::move(values)});
    for (const IndexFactor& factor : factors) {
      if (SlicesOf(factor) > kMostSlices) return {};
    }
    return factors;
  }

  const BackwardGraph& g_;
  int64_t budget_ = kMostEvaluated;                                       // of all indices
  std::map<std::pair<size_t, int64_t>, std::vector<IndexFactor>> known_;  // by index and rows
};

ValueId Sliced(ValueId table, int64_t axis, const std::vector<IndexFactor>& factors,
               GraphBuilder& b) {
  Shape shape = b.type(table).shape;
  shape.erase(shape.begin() + axis);
  for (size_t f = 0; f < factors.size(); ++f) {
    shape.insert(shape.begin() + axis + static_cast<int64_t>(f), factors[f].rows);
  }
  ValueId x = b.Reshape(table, std::move(shape));
  for (const IndexFactor& factor : factors) {
    x = Taker(b).Take(x, axis, factor);
    axis += static_cast<int64_t>(factor.extents.size());
  }
  return x;
}

}  // namespace

absl::StatusOr<BackwardGraph> SliceKnownGathers(const BackwardGraph& graph) {
  Slicer slicer(graph);
  bool any = false;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) any |= !slicer.FactorsOf(NodeId{i}).empty();
  if (!any) return graph;
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    const std::vector<IndexFactor>& factors = slicer.FactorsOf(id);
    if (factors.empty()) {
      rewriter.Copy(id);
    } else {
      rewriter.UseOrigin(id);
      const ValueId table = rewriter.New(graph.operands(id)[0]);
      const int64_t axis = graph.node(id).attrs.Int("axis");
      rewriter.Set({id, 0}, Sliced(table, axis, factors, rewriter.builder()));
    }
    RG_RETURN_IF_ERROR(rewriter.builder().status());
  }
  return rewriter.Finish();
}

}  // namespace retrograd
