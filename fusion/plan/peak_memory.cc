#include "fusion/plan/peak_memory.h"

#include <algorithm>
#include <limits>

#include "fusion/kernel/build/build.h"

namespace retrograd {
namespace {

constexpr size_t kForever = std::numeric_limits<size_t>::max();

class Liveness {
 public:
  Liveness(const BackwardGraph& g, const FusionPlan& plan)
      : g_(g), plan_(plan), last_use_(g.num_values(), 0), inside_(g.num_values(), false) {
    for (const Group& group : plan.groups) {
      if (AliasOf(group) == nullptr) continue;
      for (ValueId v : group.inputs) inside_[g.value_index(v)] = true;
    }
    for (size_t i = 0; i < plan.groups.size(); ++i) {
      for (ValueId v : plan.groups[i].inputs) last_use_[g.value_index(v)] = i;
    }
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      const Node& node = g.node(NodeId{i});
      if (node.op == Op::input && !node.input->donated)
        last_use_[g.value_index({NodeId{i}, 0})] = kForever;
    }
    for (const GraphOutput& out : g.outputs()) {
      if (out.value) last_use_[g.value_index(BehindViews(g, *out.value))] = kForever;
    }
  }

  int64_t OfInputs() const {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (g_.op(NodeId{i}) == Op::input) bytes += BytesOf({NodeId{i}, 0});
    }
    return bytes;
  }

  std::vector<int64_t> ByGroup() const {
    std::vector<int64_t> by_group;
    by_group.reserve(plan_.groups.size());
    int64_t live = OfInputs();
    for (size_t i = 0; i < plan_.groups.size(); ++i) {
      const Group& group = plan_.groups[i];
      const int64_t taken_over = TakenOver(group, i);
      for (ValueId v : group.outputs) live += BytesOf(v);
      live -= taken_over;
      by_group.push_back(live + group.workspace_bytes);
      live += taken_over - Freed(group, i);
    }
    return by_group;
  }

 private:
  int64_t BytesOf(ValueId v) const {
    const TensorType& type = g_.type(v);
    if (inside_[g_.value_index(v)]) return type.size_bytes();  // others lie in its gaps
    return SpanElements(type.shape, plan_.layouts[g_.value_index(v)].strides) *
           SizeBytes(type.dtype);
  }

  // Of what the group reads for the last time, what its outputs may lie on.
  int64_t TakenOver(const Group& group, size_t step) const {
    int64_t bytes = 0;
    if (AliasOf(group) != nullptr) {  // the whole is its parts
      for (ValueId v : group.inputs) bytes += last_use_[g_.value_index(v)] == step ? BytesOf(v) : 0;
      return bytes;
    }
    std::vector<ValueId> inputs, outputs;
    for (const Group::InPlace& pair : group.in_place) {
      const bool used = std::find(inputs.begin(), inputs.end(), pair.input) != inputs.end() ||
                        std::find(outputs.begin(), outputs.end(), pair.output) != outputs.end();
      if (used || last_use_[g_.value_index(pair.input)] != step) continue;
      inputs.push_back(pair.input);
      outputs.push_back(pair.output);
      bytes += std::min(BytesOf(pair.input), BytesOf(pair.output));
    }
    return bytes;
  }

  int64_t Freed(const Group& group, size_t step) const {
    int64_t bytes = 0;
    for (ValueId v : group.inputs) {
      if (last_use_[g_.value_index(v)] == step) bytes += BytesOf(v);
    }
    for (ValueId v : group.outputs) {  // that nothing reads
      if (last_use_[g_.value_index(v)] <= step) bytes += BytesOf(v);
    }
    return bytes;
  }

  const BackwardGraph& g_;
  const FusionPlan& plan_;
  std::vector<size_t> last_use_;  // by value: the group that reads it last
  std::vector<bool> inside_;      // by value: a part of a placed join
};

}  // namespace

std::vector<int64_t> LiveBytes(const BackwardGraph& graph, const FusionPlan& plan) {
  return Liveness(graph, plan).ByGroup();
}

int64_t PeakBytes(const BackwardGraph& graph, const FusionPlan& plan) {
  const Liveness liveness(graph, plan);
  int64_t peak = liveness.OfInputs();
  for (int64_t bytes : liveness.ByGroup()) peak = std::max(peak, bytes);
  return peak;
}

}  // namespace retrograd
