#include "fusion/lower/indexed/gather_sums.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "fusion/lower/indexed/index_lines.h"
#include "fusion/lower/indexed/known_index.h"
#include "fusion/lower/indexed/zeros.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// More terms a sum read their source more often than a sort of the index costs.
constexpr int64_t kMaxTerms = 32;

struct KnownSum {
  std::vector<IndexFactor> factors;
  std::vector<std::vector<IndexLine>> lines;  // of each factor
};

// Rows as index_add counts them: negative ones from the end, -1 for those outside.
std::vector<int64_t> RowsNamed(std::vector<int64_t> index, int64_t rows) {
  for (int64_t& i : index) {
    if (i < 0) i += rows;
    if (i < 0 || i >= rows) i = -1;
  }
  return index;
}

std::optional<KnownSum> Known(const BackwardGraph& g, NodeId id) {
  if (g.op(id) != Op::index_add) return std::nullopt;
  const TensorType& base = g.type(g.operands(id)[0]);
  const TensorType& index = g.type(g.operands(id)[1]);
  const int64_t rows = base.shape[g.node(id).attrs.Int("axis")];
  if (base.elements() == 0 || index.elements() == 0 || index.rank() == 0) return std::nullopt;
  std::optional<std::vector<int64_t>> values = KnownIndex(g, g.operands(id)[1]);
  if (!values.has_value()) return std::nullopt;
  KnownSum sum{Factors({index.shape, rows, RowsNamed(*std::move(values), rows)}), {}};
  int64_t terms = 1;
  for (const IndexFactor& factor : sum.factors) {
    std::optional<std::vector<IndexLine>> lines = LinesOf(factor, kMaxTerms / terms);
    if (!lines.has_value()) return std::nullopt;
    terms *= static_cast<int64_t>(std::max<size_t>(lines->size(), 1));
    sum.lines.push_back(*std::move(lines));
  }
  return sum;
}

// Views of one axis, or some, of a tensor.
class AxisViews {
 public:
  AxisViews(GraphBuilder& builder, ValueId x) : b_(builder), x_(x) {}

  ValueId value() const { return x_; }

  // The line's places, `axis` being the first of the factor's; one axis of the factor's rows.
  void Gather(int64_t axis, const IndexFactor& factor, const IndexLine& line) {
    for (size_t a = 0; a < line.at.size(); ++a) {
      const int64_t at = axis + static_cast<int64_t>(a);
      if (static_cast<int>(a) == line.axis) {
        SliceLine(at, line);
      } else {
        Slice(at, line.at[a], line.at[a] + 1, 1);
      }
    }
    Merge(axis, static_cast<int64_t>(line.at.size()), {line.count});
    Spread(axis, line.stride);
    const int64_t length = std::min(line.count * line.stride, factor.rows - line.row);
    Slice(axis, 0, length, 1);
    Pad(axis, line.row, factor.rows - line.row - length);
  }

 private:
  const Shape& shape() const { return b_.type(x_).shape; }

  void SliceLine(int64_t axis, const IndexLine& line) {
    const int64_t last = line.first + (line.count - 1) * line.step;
    Slice(axis, std::min(line.first, last), std::max(line.first, last) + 1, std::abs(line.step));
    if (line.step < 0) x_ = b_.Add(Op::flip, {{x_}}, {{"axes", std::vector<int64_t>{axis}}});
  }

  void Slice(int64_t axis, int64_t start, int64_t stop, int64_t step) {
    if (start == 0 && stop == shape()[axis] && step == 1) return;
    x_ = b_.Add(Op::slice, {{x_}},
                {{"axis", axis}, {"start", start}, {"step", step}, {"stop", stop}});
  }

  // `count` axes as axes of other extents.
  void Merge(int64_t axis, int64_t count, const std::vector<int64_t>& extents) {
    Shape merged(shape().begin(), shape().begin() + axis);
    merged.insert(merged.end(), extents.begin(), extents.end());
    merged.insert(merged.end(), shape().begin() + axis + count, shape().end());
    x_ = b_.Reshape(x_, std::move(merged));
  }

  // stride - 1 zeros behind each element.
  void Spread(int64_t axis, int64_t stride) {
    if (stride == 1) return;
    const int64_t extent = shape()[axis];
    Merge(axis, 1, {extent, 1});
    Pad(axis + 1, 0, stride - 1);
    Merge(axis, 2, {extent * stride});
  }

  void Pad(int64_t axis, int64_t before, int64_t behind) {
    if (before == 0 && behind == 0) return;
    std::vector<int64_t> low(shape().size()), high(shape().size());
    low[axis] = before;
    high[axis] = behind;
    x_ = b_.Add(Op::pad, {{x_}}, {{"high", high}, {"low", low}, {"value", 0.0}});
  }

  GraphBuilder& b_;
  ValueId x_;
};

// Appends the terms in the order of their places: those of the first factor's first line before
// those of its second.
void AppendTerms(const KnownSum& sum, int64_t axis, size_t factor, AxisViews views,
                 std::vector<ValueId>& terms) {
  if (factor == sum.factors.size()) {
    terms.push_back(views.value());
    return;
  }
  for (const IndexLine& line : sum.lines[factor]) {
    AxisViews along = views;
    along.Gather(axis + static_cast<int64_t>(factor), sum.factors[factor], line);
    AppendTerms(sum, axis, factor + 1, along, terms);
  }
}

ValueId Gathered(NodeId id, const KnownSum& sum, Rewriter& rewriter) {
  const BackwardGraph& g = rewriter.graph();
  GraphBuilder& b = rewriter.builder();
  const TensorType& type = g.type(id);
  const DType wide = ComputeType(type.dtype);
  const ValueId base = g.operands(id)[0];
  std::vector<ValueId> terms;
  const ValueId source = b.Cast(rewriter.New(g.operands(id)[2]), wide);
  AppendTerms(sum, g.node(id).attrs.Int("axis"), 0, AxisViews(b, source), terms);
  if (terms.empty()) return rewriter.New(base);
  // An axis for each factor, which keeps the order of the source: of an image, its channels last.
  const Shape parted = b.type(terms.front()).shape;
  std::optional<ValueId> total;
  if (!IsZero(g, base)) total = b.Reshape(b.Cast(rewriter.New(base), wide), parted);
  for (const ValueId term : terms) {
    total = total.has_value() ? b.Add(Op::add, {{*total, term}}) : term;
  }
  return b.Reshape(b.Cast(*total, type.dtype), type.shape);
}

}  // namespace

absl::StatusOr<BackwardGraph> GatherKnownSums(const BackwardGraph& graph) {
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    rewriter.UseOrigin(id);
    if (const std::optional<KnownSum> sum = Known(graph, id)) {
      rewriter.Set({id, 0}, Gathered(id, *sum, rewriter));
    } else {
      rewriter.Copy(id);
    }
    RG_RETURN_IF_ERROR(rewriter.builder().status());
  }
  return rewriter.Finish();
}

}  // namespace retrograd
