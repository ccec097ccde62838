#include "fusion/lower/legalize.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fusion/analysis/strided_view.h"
#include "fusion/kernel/build/build.h"
#include "fusion/lower/layouts/layouts.h"
#include "fusion/ops/call_op.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// What one pass over the graph finds to mend.
struct Repairs {
  absl::flat_hash_set<std::pair<uint32_t, uint32_t>> operands;  // (node, operand number): copy it
  std::vector<bool> outputs;                                    // by output: copy it
  bool any() const {
    return !operands.empty() || std::find(outputs.begin(), outputs.end(), true) != outputs.end();
  }
};

// The rows that a gather picks must be rows of a stored value, as the builder of kernels sees it.
bool GatherReads(const BackwardGraph& g, absl::Span<const Layout> layouts, NodeId id) {
  const ValueId result{id, 0};
  const KernelOutcome alone = BuildKernel({.graph = g,
                                           .layouts = layouts,
                                           .nodes = absl::MakeConstSpan(&id, 1),
                                           .stores = absl::MakeConstSpan(&result, 1)});
  return !alone.refusal || alone.refusal->limit != BuildLimit::kGatherSource;
}

// Whether sums can be added onto the value where it stands: a table lies row-major.
bool LiesAsTable(const BackwardGraph& g, absl::Span<const Layout> layouts, ValueId base) {
  if (IsZero(g, base)) return true;
  const std::optional<StridedView> view = AsStrided(g, layouts, base);
  if (!view || view->offset != 0) return false;
  const Shape& shape = g.type(base).shape;
  const std::vector<int64_t> dense = DenseStrides(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1 && view->strides[d] != dense[d]) return false;
  }
  return true;
}

void CheckOperands(const BackwardGraph& g, absl::Span<const Layout> layouts, NodeId id,
                   bool preferred, Repairs& repairs) {
  const auto reads = preferred ? LibraryPrefers : LibraryReads;
  absl::Span<const ValueId> operands = g.operands(id);
  for (uint32_t i = 0; i < operands.size(); ++i) {
    bool ok = true;
    switch (g.pattern(id)) {
      case Pattern::kLibrary: ok = reads(g, layouts, id, operands[i]); break;
      case Pattern::kGather: ok = i != 0 || GatherReads(g, layouts, id); break;
      case Pattern::kScatter: ok = i != 0 || LiesAsTable(g, layouts, operands[0]); break;
      default: break;
    }
    if (!ok) repairs.operands.insert({Index(id), i});
  }
}

// Each pad that an access goes through is a guard of it. A stack of more is cut by copies, so that
// no kernel has guards without end.
constexpr int kMostStackedPads = 32;

void CheckStackedPads(const BackwardGraph& g, Repairs& repairs) {
  std::vector<int> pads(g.num_nodes(), 0);  // by view: pads from it to the stored value behind it
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    if (g.pattern(NodeId{i}) != Pattern::kView) continue;
    pads[i] = pads[Index(g.operands(NodeId{i})[0].node)];
    if (g.op(NodeId{i}) != Op::pad) continue;
    if (pads[i] == kMostStackedPads) {
      repairs.operands.insert({i, 0});
      pads[i] = 0;
    }
    ++pads[i];
  }
}

// preferred: what a call reads many times slower than a copy is copied, too.
Repairs FindRepairs(const BackwardGraph& g, absl::Span<const Layout> layouts, bool preferred) {
  Repairs repairs;
  for (uint32_t i = 0; i < g.num_nodes(); ++i)
    CheckOperands(g, layouts, NodeId{i}, preferred, repairs);
  CheckStackedPads(g, repairs);
  absl::flat_hash_set<ValueId> claimed;
  for (const GraphOutput& out : g.outputs()) {
    bool copy = false;
    if (out.value) {
      const ValueId stored = BehindViews(g, *out.value);
      copy =
          !Computes(g, stored.node) || !LayoutForOutput(g, out) || !claimed.insert(stored).second;
      // A table is scattered row-major, a library result has a unit stride: other strides are a
      // copy.
      if (!copy && g.pattern(stored.node) == Pattern::kScatter) {
        copy = layouts[g.value_index(stored)].strides != DenseStrides(g.type(stored).shape);
      }
      if (!copy && IsLibrary(g, stored.node)) {
        copy = !LibraryStores(g, stored, layouts[g.value_index(stored)].strides);
      }
    }
    repairs.outputs.push_back(copy);
  }
  return repairs;
}

class Rebuilder {
 public:
  Rebuilder(const BackwardGraph& g, const Repairs& repairs)
      : g_(g), repairs_(repairs), rewriter_(g), builder_(rewriter_.builder()) {}

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) Rebuild(NodeId{i});
    for (size_t i = 0; i < g_.outputs().size(); ++i) {
      const GraphOutput& out = g_.outputs()[i];
      if (!out.value) {
        builder_.AbsentOutput(out.name);
        continue;
      }
      ValueId v = rewriter_.New(*out.value);
      if (repairs_.outputs[i]) {
        rewriter_.UseOrigin(out.value->node);
        v = builder_.Add(Op::copy, {v});
      }
      builder_.Output(v, out.name, out.strides);
    }
    return builder_.Build();
  }

 private:
  void Rebuild(NodeId id) {
    const absl::Span<const ValueId> old = g_.operands(id);
    rewriter_.UseOrigin(id);
    operands_.clear();
    for (uint32_t i = 0; i < old.size(); ++i) {
      const bool repair = repairs_.operands.contains({Index(id), i});
      operands_.push_back(!repair                               ? rewriter_.New(old[i])
                          : g_.pattern(id) == Pattern::kScatter ? CopyInOrder(old[i])
                                                                : CopyOf(old[i]));
    }
    rewriter_.CopyOver(id, operands_);
  }

  // A copy that is read as it lies.
  ValueId CopyInOrder(ValueId old) {
    auto [at, added] = ordered_.try_emplace(old);
    if (added) at->second = builder_.Add(Op::copy, {rewriter_.New(old)});
    return at->second;
  }

  // Behind a transpose: one copy serves those who read rows and those who read columns.
  ValueId CopyOf(ValueId old) {
    if (g_.op(old.node) == Op::permute && g_.type(old).rank() == 2) {
      return builder_.Add(Op::permute, {CopyOf(g_.operands(old.node)[0])}, g_.node(old.node).attrs);
    }
    auto [at, added] = copies_.try_emplace(old);
    if (added) at->second = builder_.Add(Op::copy, {rewriter_.New(old)});
    return at->second;
  }

  const BackwardGraph& g_;
  const Repairs& repairs_;
  Rewriter rewriter_;
  GraphBuilder& builder_;
  absl::flat_hash_map<ValueId, ValueId> copies_, ordered_;
  std::vector<ValueId> operands_;  // of the node that is rebuilt
};

}  // namespace

absl::StatusOr<LegalGraph> Legalize(const BackwardGraph& graph, const LayoutOptions& options) {
  BackwardGraph current = graph;
  // A copy changes which layouts its neighbours prefer, so look again. A copy lies so that a call
  // reads it, or as its output wants; others get a copy of their own in the next round.
  constexpr int kPreferring = 2, kRounds = kPreferring + 4;
  for (int round = 0; round < kRounds; ++round) {
    const bool preferred = options.follow && round < kPreferring;
    ValueLayouts layouts = AssignLayouts(current, options);
    const Repairs repairs = FindRepairs(current, layouts.of, preferred);
    if (!repairs.any()) return LegalGraph{std::move(current), std::move(layouts)};
    RG_ASSIGN_OR_RETURN(current, Rebuilder(current, repairs).Run());
  }
  return absl::InternalError("legalizing did not settle after six rounds");
}

}  // namespace retrograd
