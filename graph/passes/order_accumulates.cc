#include <algorithm>
#include <numeric>

#include "graph/base/status.h"
#include "graph/passes/accumulate.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// One op of a chain: which contributions it adds to the sum so far.
struct Step {
  std::vector<uint32_t> terms;  // operand numbers of the accumulate
  uint32_t ready = 0;           // id of the last node that it and the steps before it wait for
};

struct Chain {
  NodeId accumulate{};
  std::optional<uint32_t> first_writer;  // operand that starts the sum; nullopt: zeros
  std::vector<Step> steps;
  ValueId sum;  // of the new graph: the sum so far
};

class Orderer {
 public:
  Orderer(const BackwardGraph& graph, bool first_writer)
      : graph_(graph),
        first_writer_(first_writer),
        rewriter_(graph),
        available_(graph.num_nodes()),
        first_due_(graph.num_nodes(), kNone),
        is_chain_(graph.num_nodes()) {
    for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
      // A view is there when its source is.
      const NodeId id{i};
      available_[i] =
          graph.pattern(id) == Pattern::kView ? available_[Index(graph.operands(id)[0].node)] : i;
    }
  }

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < graph_.num_nodes(); ++i) {
      if (graph_.pattern(NodeId{i}) == Pattern::kAccumulate) PlanChain(NodeId{i});
    }
    if (chains_.empty()) return graph_;
    LinkDue();
    for (uint32_t i = 0; i < graph_.num_nodes(); ++i) {
      const NodeId id{i};
      if (!is_chain_[i]) rewriter_.Copy(id);
      // A step of a chain stands right behind the last contribution that it adds.
      EmitSteps(i);
      RG_RETURN_IF_ERROR(rewriter_.builder().status());
    }
    return rewriter_.Finish();
  }

 private:
  const Shape& ShapeOf(NodeId accumulate) const { return graph_.type(accumulate).shape; }

  void PlanChain(NodeId id) {
    const absl::Span<const ValueId> operands = graph_.operands(id);
    const auto is_whole = [&](uint32_t term) {
      return graph_.type(operands[term]).shape == ShapeOf(id);
    };
    std::vector<uint32_t> order(operands.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return available_[Index(operands[a].node)] < available_[Index(operands[b].node)];
    });
    Chain chain;
    const auto whole = std::find_if(order.begin(), order.end(), is_whole);
    if (first_writer_) {
      if (whole == order.end() || order.size() == 1) return;  // stays one op
      chain.first_writer = *whole;
      order.erase(whole);
    }
    Step step;
    // Steps come in order: each waits for what the ones before it wait for.
    if (chain.first_writer.has_value()) step.ready = Index(operands[*chain.first_writer].node);
    for (uint32_t term : order) {
      step.terms.push_back(term);
      step.ready = std::max(step.ready, Index(operands[term].node));
      // Without any whole contribution all go into one step, which writes each element once.
      if (is_whole(term)) {
        chain.steps.push_back(step);
        step.terms.clear();
      }
    }
    if (!step.terms.empty()) chain.steps.push_back(step);
    chain.accumulate = id;
    is_chain_[Index(id)] = true;
    chains_.push_back(std::move(chain));
  }

  // Strings the steps that become ready at one node together, in the order of their chains.
  void LinkDue() {
    for (uint32_t c = static_cast<uint32_t>(chains_.size()); c-- > 0;) {
      for (uint32_t s = static_cast<uint32_t>(chains_[c].steps.size()); s-- > 0;) {
        uint32_t& first = first_due_[chains_[c].steps[s].ready];
        due_.push_back({c, s, first});
        first = static_cast<uint32_t>(due_.size()) - 1;
      }
    }
  }

  void EmitSteps(uint32_t ready) {
    for (uint32_t at = first_due_[ready]; at != kNone; at = due_[at].next) {
      EmitStep(chains_[due_[at].chain], due_[at].step);
    }
  }

  void EmitStep(Chain& chain, size_t s) {
    const NodeId id = chain.accumulate;
    rewriter_.UseOrigin(id);
    const Shape& shape = ShapeOf(id);
    if (s == 0) {
      chain.sum = chain.first_writer.has_value()
                      ? rewriter_.New(graph_.operands(id)[*chain.first_writer])
                      : rewriter_.builder().Full(0, graph_.type(id).dtype, shape);
    }
    std::vector<ValueId> values = {chain.sum};
    std::vector<int64_t> starts = chain.first_writer.has_value() && s == 0
                                      ? StartOf(id, *chain.first_writer)
                                      : std::vector<int64_t>(shape.size());
    for (uint32_t term : chain.steps[s].terms) {
      values.push_back(rewriter_.New(graph_.operands(id)[term]));
      const std::vector<int64_t> start = StartOf(id, term);
      starts.insert(starts.end(), start.begin(), start.end());
    }
    const ValueId sum = rewriter_.builder().Add(Op::accumulate, values,
                                                {{"shape", shape}, {"starts", std::move(starts)}});
    chain.sum = sum;
    if (s + 1 == chain.steps.size()) rewriter_.Set({id, 0}, sum);
  }

  std::vector<int64_t> StartOf(NodeId id, uint32_t term) const {
    const size_t rank = ShapeOf(id).size();
    const absl::Span<const int64_t> start =
        graph_.node(id).attrs.Ints("starts").subspan(term * rank, rank);
    return {start.begin(), start.end()};
  }

  const BackwardGraph& graph_;
  const bool first_writer_;
  Rewriter rewriter_;
  std::vector<uint32_t> available_;  // by node: id of the node that makes its elements
  std::vector<Chain> chains_;
  // Lists of the steps that wait for one node.
  struct Due {
    uint32_t chain, step;
    uint32_t next;  // place in due_, kNone: the last
  };
  static constexpr uint32_t kNone = 0xffffffff;
  std::vector<Due> due_;
  std::vector<uint32_t> first_due_;  // by node
  std::vector<bool> is_chain_;       // by node: an accumulate that a chain replaces
};

}  // namespace

absl::StatusOr<BackwardGraph> OrderAccumulates(const BackwardGraph& graph, bool first_writer) {
  return Orderer(graph, first_writer).Run();
}

}  // namespace retrograd
