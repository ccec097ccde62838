#include "fusion/lower/indexed/gather_sums.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fusion/kernel/build/build.h"
#include "fusion/lower/indexed/axis_views.h"
#include "fusion/lower/indexed/index_lines.h"
#include "fusion/lower/indexed/known_index.h"
#include "fusion/lower/indexed/nested_sums.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// Terms of a row, and those along each axis where several axes decide it. More read their source
// more often than a sort of the index costs.
constexpr int64_t kMaxTerms = 32, kMaxTermsOfAxis = 64;

// Lines of an axis for each place that a row has along it, on the average.
constexpr int64_t kMostIdleLines = 8;

// Rows as index_add counts them: negative ones from the end, -1 for those outside.
std::vector<int64_t> RowsNamed(std::vector<int64_t> index, int64_t rows) {
  for (int64_t& i : index) {
    if (i < 0) i += rows;
    if (i < 0 || i >= rows) i = -1;
  }
  return index;
}

// Of a row that adds up all of its places at once.
int64_t Terms(const KnownSum& sum) {
  int64_t terms = 1;
  for (const std::vector<IndexLine>& lines : sum.lines) {
    terms *= static_cast<int64_t>(std::max<size_t>(lines.size(), 1));
  }
  return terms;
}

// Whether an axis of the table has many more rows than the index has places along it, which lie on
// no few lines, as where an image is resampled to a small one: most terms of a row are zeros.
bool IsSparse(const KnownSum& sum) {
  for (size_t f = 0; f < sum.factors.size(); ++f) {
    const auto lines = static_cast<int64_t>(sum.lines[f].size());
    const auto places = static_cast<int64_t>(sum.factors[f].values.size());
    if (lines > kMostIdleLines && lines * sum.factors[f].rows > kMostIdleLines * places)
      return true;
  }
  return false;
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
  for (const IndexFactor& factor : sum.factors) {
    std::optional<std::vector<IndexLine>> lines =
        LinesOf(factor, sum.factors.size() > 1 ? kMaxTermsOfAxis : kMaxTerms);
    if (!lines.has_value()) return std::nullopt;
    sum.lines.push_back(*std::move(lines));
  }
  if (Terms(sum) > kMaxTerms && IsSparse(sum)) return std::nullopt;
  return sum;
}

ValueId Gathered(NodeId id, const KnownSum& sum, Rewriter& rewriter, NestedSums& nested) {
  const BackwardGraph& g = rewriter.graph();
  GraphBuilder& b = rewriter.builder();
  const TensorType& type = g.type(id);
  const DType wide = ComputeType(type.dtype);
  const ValueId base = g.operands(id)[0];
  const std::vector<ValueId> terms =
      nested.Terms(sum, g.node(id).attrs.Int("axis"), g.operands(id)[2], wide);
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
  std::map<NodeId, KnownSum> known;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (auto sum = Known(graph, NodeId{i})) known.emplace(NodeId{i}, *std::move(sum));
  }
  if (known.empty()) return graph;
  Rewriter rewriter(graph);
  NestedSums nested(rewriter);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    rewriter.UseOrigin(id);
    if (const auto sum = known.find(id); sum != known.end()) {
      rewriter.Set({id, 0}, Gathered(id, sum->second, rewriter, nested));
    } else {
      rewriter.Copy(id);
    }
    RG_RETURN_IF_ERROR(rewriter.builder().status());
  }
  return rewriter.Finish();
}

}  // namespace retrograd
