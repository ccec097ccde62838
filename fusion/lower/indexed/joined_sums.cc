#include "fusion/lower/indexed/joined_sums.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/call_op.h"
#include "graph/base/status.h"
#include "graph/ir/sorted_indices.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// Tables that become one: index_adds in the order of their sums, all of one type and along one
// axis.
struct Joint {
  std::vector<NodeId> sums;
  ValueId base{};
};

class Joiner {
 public:
  Joiner(const BackwardGraph& g, const DeviceSpec& device)
      : g_(g),
        device_(device),
        rewriter_(g),
        b_(rewriter_.builder()),
        is_output_(g.num_nodes()),
        in_chain_(g.num_nodes()) {
    for (const GraphOutput& output : g.outputs()) {
      if (output.value) is_output_[Index(output.value->node)] = true;
    }
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      if (g.op(NodeId{i}) != Op::index_add) continue;
      ++sums_at_[{g.operands(NodeId{i})[1], RowsOf(NodeId{i})}];
    }
  }

  absl::StatusOr<BackwardGraph> Run() {
    FindChains();
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      rewriter_.UseOrigin(id);
      if (g_.op(id) == Op::accumulate) {
        Accumulate(id);
      } else if (g_.op(id) == Op::index_add) {
        IndexAdd(id);
      } else {
        rewriter_.Copy(id);
      }
      RG_RETURN_IF_ERROR(b_.status());
    }
    return rewriter_.Finish();
  }

 private:
  bool ReadOnce(NodeId id) const { return g_.uses(id).size() == 1 && !is_output_[Index(id)]; }

  bool Alike(NodeId a, NodeId b) const {
    const TensorType &of_a = g_.type(g_.operands(a)[1]), &of_b = g_.type(g_.operands(b)[1]);
    return g_.type(a) == g_.type(b) && of_a.dtype == of_b.dtype &&
           g_.node(a).attrs.Int("axis") == g_.node(b).attrs.Int("axis");
  }

  // The sum at indices onto which this one adds, if nothing else reads that.
  bool AddsOntoSum(NodeId id) const {
    const NodeId base = g_.operands(id)[0].node;
    return g_.op(base) == Op::index_add && ReadOnce(base) && Alike(base, id);
  }

  // Whether only another sum adds onto this one.
  bool IsBaseOfSum(NodeId id) const {
    if (!ReadOnce(id)) return false;
    const Use& use = g_.uses(id)[0];
    return g_.op(use.user) == Op::index_add && use.operand == 0 && Alike(use.user, id);
  }

  Joint ChainOf(NodeId last) const {
    Joint joint;
    NodeId id = last;
    joint.sums.push_back(id);
    while (AddsOntoSum(id)) {
      id = g_.operands(id)[0].node;
      joint.sums.push_back(id);
    }
    std::reverse(joint.sums.begin(), joint.sums.end());
    joint.base = g_.operands(id)[0];
    return joint;
  }

  // A chain is joined at its end; nothing needs the sums before it.
  void FindChains() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (g_.op(id) != Op::index_add || !AddsOntoSum(id) || IsBaseOfSum(id)) continue;
      const Joint chain = ChainOf(id);
      if (!Pays(chain.sums)) continue;
      for (NodeId sum : chain.sums) in_chain_[Index(sum)] = true;
    }
  }

  void IndexAdd(NodeId id) {
    if (!in_chain_[Index(id)]) {
      rewriter_.Copy(id);
    } else if (!IsBaseOfSum(id)) {
      rewriter_.Set({id, 0}, Joined(ChainOf(id)));
    }
  }

  // A term of an accumulate that is a sum at indices onto zeros, maybe cast, and that nothing else
  // reads.
  struct Term {
    NodeId sum{};
    bool cast = false;
  };

  bool IsWholeTerm(NodeId accumulate, size_t term) const {
    const Shape& shape = g_.type(accumulate).shape;
    const absl::Span<const int64_t> starts = g_.node(accumulate).attrs.Ints("starts");
    const auto first = starts.begin() + static_cast<int64_t>(term * shape.size());
    return g_.type(g_.operands(accumulate)[term]).shape == shape &&
           std::all_of(first, first + static_cast<int64_t>(shape.size()),
                       [](int64_t start) { return start == 0; });
  }

  std::optional<Term> TermOf(NodeId accumulate, size_t term) const {
    NodeId id = g_.operands(accumulate)[term].node;
    if (!IsWholeTerm(accumulate, term) || !ReadOnce(id)) return std::nullopt;
    const bool cast = g_.op(id) == Op::cast;
    if (cast) {
      id = g_.operands(id)[0].node;
      if (!ReadOnce(id)) return std::nullopt;
    }
    if (g_.op(id) != Op::index_add || !IsZero(g_, g_.operands(id)[0])) return std::nullopt;
    // In a wider type the sum of what fits each table may not fit a table.
    const bool widens = SizeBytes(g_.type(accumulate).dtype) > SizeBytes(g_.type(id).dtype);
    return widens ? std::nullopt : std::optional(Term{id, cast});
  }

  // The terms that become one, by their places among the accumulate's operands; empty: none do.
  std::vector<size_t> JoinedTerms(NodeId accumulate) const {
    std::vector<size_t> places;
    std::vector<NodeId> sums;
    std::optional<Term> first;
    for (size_t t = 0; t < g_.operands(accumulate).size(); ++t) {
      const std::optional<Term> term = TermOf(accumulate, t);
      if (!term) continue;
      if (first && (term->cast != first->cast || !Alike(term->sum, first->sum))) continue;
      if (!first) first = term;
      places.push_back(t);
      sums.push_back(term->sum);
    }
    if (places.size() < 2 || !Pays(sums)) places.clear();
    return places;
  }

  void Accumulate(NodeId id) {
    const std::vector<size_t> joined = JoinedTerms(id);
    if (joined.empty()) {
      rewriter_.Copy(id);
      return;
    }
    Joint joint;
    for (size_t t : joined) joint.sums.push_back(TermOf(id, t)->sum);
    joint.base = g_.operands(joint.sums[0])[0];
    const ValueId one = b_.Cast(Joined(joint), g_.type(g_.operands(id)[joined[0]]).dtype);
    rewriter_.Set({id, 0}, WithTerm(id, joined, one));
  }

  // The accumulate with one term in place of several.
  ValueId WithTerm(NodeId id, const std::vector<size_t>& joined, ValueId one) {
    const absl::Span<const ValueId> operands = g_.operands(id);
    if (joined.size() == operands.size()) return b_.Cast(one, g_.type(id).dtype);
    const absl::Span<const int64_t> all = g_.node(id).attrs.Ints("starts");
    const size_t rank = g_.type(id).shape.size();
    std::vector<ValueId> terms;
    std::vector<int64_t> starts;
    for (size_t t = 0; t < operands.size(); ++t) {
      const bool is_joined = std::binary_search(joined.begin(), joined.end(), t);
      if (is_joined && t != joined[0]) continue;
      terms.push_back(is_joined ? one : rewriter_.New(operands[t]));
      const absl::Span<const int64_t> start = all.subspan(t * rank, rank);
      starts.insert(starts.end(), start.begin(), start.end());
    }
    return b_.Add(Op::accumulate, terms,
                  {{"shape", g_.type(id).shape}, {"starts", std::move(starts)}});
  }

  // Sources at one index.
  struct Sources {
    ValueId index{};
    std::vector<NodeId> sums;
  };

  std::vector<Sources> ByIndex(const std::vector<NodeId>& sums) const {
    std::vector<Sources> sources;
    absl::flat_hash_map<ValueId, size_t> known;
    for (NodeId sum : sums) {
      const ValueId index = g_.operands(sum)[1];
      const auto [at, added] = known.try_emplace(index, sources.size());
      if (added) sources.push_back({index, {}});
      sources[at->second].sums.push_back(sum);
    }
    return sources;
  }

  ValueId Joined(const Joint& joint) {
    const NodeId first = joint.sums[0];
    const int64_t axis = g_.node(first).attrs.Int("axis");
    std::vector<ValueId> indices, parts;
    for (const Sources& at : ByIndex(joint.sums)) {
      const int64_t count = g_.type(at.index).elements();
      const ValueId source = AddedSources(at);
      Shape shape = g_.type(first).shape;
      shape[axis] = count;
      parts.push_back(b_.Reshape(source, std::move(shape)));
      indices.push_back(b_.Reshape(rewriter_.New(at.index), {count}));
    }
    return b_.Add(Op::index_add,
                  {rewriter_.New(joint.base), b_.Cat(indices, 0), b_.Cat(parts, axis)},
                  g_.node(first).attrs);
  }

  // Rounded once, as the table would be.
  ValueId AddedSources(const Sources& at) {
    std::vector<ValueId> sources;
    for (NodeId sum : at.sums) sources.push_back(rewriter_.New(g_.operands(sum)[2]));
    if (sources.size() == 1) return sources[0];
    const Shape& shape = b_.type(sources[0]).shape;
    return b_.Add(
        Op::accumulate, sources,
        {{"shape", shape}, {"starts", std::vector<int64_t>(sources.size() * shape.size(), 0)}});
  }

  // Rows of the table of a sum at indices.
  int64_t RowsOf(NodeId sum) const { return g_.type(sum).shape[g_.node(sum).attrs.Int("axis")]; }

  // Whether sums outside of these sort the index as well.
  bool IsSortedElsewhere(const Sources& at) const {
    return sums_at_.at({at.index, RowsOf(at.sums[0])}) > at.sums.size();
  }

  // Of so many indices, by one sort or by several that share launches; kHuge: too many for one.
  int64_t SortPs(int64_t indices, int64_t rows, DType dtype) const {
    if (indices == 0) return 0;
    const SortedIndices sorted{.rows = rows, .indices = indices};
    if (sorted.elements() > std::numeric_limits<int32_t>::max()) return kHuge;
    Call call{.op = Op::sort_indices, .attributes = {{"rows", rows}}};
    call.operands.push_back({.shape = {indices}, .strides = {1}, .dtype = dtype});
    return CallOpOf(Op::sort_indices).price(call, device_, false).ps;
  }

  bool Pays(const std::vector<NodeId>& sums) const {
    const std::vector<Sources> sources = ByIndex(sums);
    const TensorType& table = g_.type(sums[0]);
    const int64_t rows = RowsOf(sums[0]);
    const int64_t further = static_cast<int64_t>(sums.size()) - 1;
    // Each table beyond the first is written, and read where it is added.
    const int64_t tables = Product({2, further, table.elements(), SizeBytes(table.dtype)});
    const int64_t apart =
        TransferPs(tables, device_.hbm_bytes_per_s) + Product({further, LeastKernelPs(device_)});
    if (sources.size() == 1) return true;  // what is joined is but added before
    const DType type = g_.type(sources[0].index).dtype;
    int64_t all = 0, alone = 0, copied = 0;
    for (const Sources& at : sources) {
      const int64_t count = g_.type(at.index).elements();
      all += count;
      if (!IsSortedElsewhere(at)) alone += count;
      const TensorType& source = g_.type(g_.operands(at.sums[0])[2]);
      copied += 2 * (count * SizeBytes(type) + source.elements() * SizeBytes(source.dtype));
    }
    const int64_t together = SortPs(all, rows, type);
    const int64_t copies = TransferPs(copied, device_.hbm_bytes_per_s) + 2 * LeastKernelPs(device_);
    return Saturated(together + copies) < Saturated(SortPs(alone, rows, type) + apart);
  }

  const BackwardGraph& g_;
  const DeviceSpec& device_;
  Rewriter rewriter_;
  GraphBuilder& b_;
  std::vector<bool> is_output_;                                       // by node
  absl::flat_hash_map<std::pair<ValueId, int64_t>, size_t> sums_at_;  // by index and rows
  std::vector<bool> in_chain_;  // by node: sums that become one with those onto which they add
};

bool HasSeveralSums(const BackwardGraph& graph) {
  int sums = 0;
  for (uint32_t i = 0; i < graph.num_nodes() && sums < 2; ++i) {
    sums += graph.op(NodeId{i}) == Op::index_add ? 1 : 0;
  }
  return sums > 1;
}

}  // namespace

absl::StatusOr<BackwardGraph> JoinIndexedSums(const BackwardGraph& graph,
                                              const DeviceSpec& device) {
  if (!HasSeveralSums(graph)) return graph;
  return Joiner(graph, device).Run();
}

}  // namespace retrograd
