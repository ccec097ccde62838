#include "fusion/analysis/barrier_depths.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fusion/analysis/cheap_sources.h"
#include "fusion/kernel/build/build.h"

namespace retrograd {
namespace {

class UnionFind {
 public:
  explicit UnionFind(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  uint32_t Find(uint32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  // The smaller number stays, so that components are numbered by their first op.
  void Union(uint32_t a, uint32_t b) {
    a = Find(a), b = Find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<uint32_t> parent_;
};

// A sort of indices that the graph is given. It waits for no op, so that no path leads across it:
// what follows it is as deep as if the list were given, too.
bool SortsGiven(const BackwardGraph& g, NodeId id) {
  return g.op(id) == Op::sort_indices && g.op(BehindViews(g, g.operands(id)[0]).node) == Op::input;
}

class Sinking {
 public:
  Sinking(const BackwardGraph& g, const Consumers& consumers, const std::vector<bool>& taken,
          const FreeReads& free)
      : g_(g), consumers_(consumers), taken_(taken), free_(free), depth_(g.num_nodes(), 0) {
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      for (ValueId v : g.operands(NodeId{i}))
        depth_[i] = std::max(depth_[i], depth_[Index(v.node)]);
      if (taken[i] || (IsBarrier(g, NodeId{i}) && !SortsGiven(g, NodeId{i}))) ++depth_[i];
    }
  }

  // Ops that move nothing else along.
  void SinkOps() {
    const std::vector<std::optional<ValueId>> sources = Sources(g_, free_);
    for (uint32_t i = static_cast<uint32_t>(g_.num_nodes()); i-- > 0;) {
      const NodeId id{i};
      if (!Fuses(id) || (depth_[i] != 0 && !sources[i]) || ReordersGiven(g_, id)) continue;
      int earliest = kNever;
      for (NodeId reader : consumers_.of(id)) earliest = std::min(earliest, Place(reader));
      if (earliest != kNever) depth_[i] = std::max(depth_[i], earliest);
    }
  }

  // A sum that stands beside its reader reads what has stayed behind: it goes back, with what it
  // alone is made of, where that saves more than to store its own result and to read it.
  void RaiseSums() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (!Fuses(id) || g_.pattern(id) != Pattern::kReduction) continue;
      const std::vector<NodeId> ops = MadeFor(id);
      const int depth = Earliest(ops);
      if (depth >= depth_[i] || BytesSaved(ops, depth) <= 2 * g_.type(id).size_bytes()) continue;
      for (NodeId op : ops) depth_[Index(op)] = depth;
    }
  }

  // The deepest first: what they are read by has found its place.
  void SinkComponents() {
    std::vector<std::vector<NodeId>> components;
    const std::vector<uint32_t> first = ComponentsAtDepths(g_, depth_, taken_, free_);
    std::vector<size_t> number(g_.num_nodes());
    component_.assign(g_.num_nodes(), kNone);
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (!Fuses(NodeId{i})) continue;
      if (first[i] == i) {
        number[i] = components.size();
        components.emplace_back();
      }
      component_[i] = number[first[i]];
      components[component_[i]].push_back(NodeId{i});
    }
    std::stable_sort(components.begin(), components.end(), [this](const auto& a, const auto& b) {
      return depth_[Index(a[0])] > depth_[Index(b[0])];
    });
    for (const std::vector<NodeId>& ops : components) {
      if (ReordersGiven(g_, ops[0])) continue;
      const int earliest = FirstReader(ops);
      if (earliest == kNever || earliest <= depth_[Index(ops[0])] || !Pays(ops, earliest)) continue;
      for (NodeId id : ops) depth_[Index(id)] = earliest;
    }
  }

  std::vector<int> Take() { return std::move(depth_); }

 private:
  // The op and those at its depth that are read by nothing else.
  std::vector<NodeId> MadeFor(NodeId id) const {
    std::vector<NodeId> ops = {id};
    absl::flat_hash_set<NodeId> inside = {id};
    for (size_t next = 0; next < ops.size(); ++next) {
      for (ValueId v : StoredOperands(g_, ops[next])) {
        const bool joins = Fuses(v.node) && !inside.contains(v.node) &&
                           depth_[Index(v.node)] == depth_[Index(id)] &&
                           !consumers_.is_output(v.node) &&
                           absl::c_all_of(consumers_.of(v.node),
                                          [&](NodeId reader) { return inside.contains(reader); });
        if (!joins) continue;
        inside.insert(v.node);
        ops.push_back(v.node);
      }
    }
    return ops;
  }
  // The depth of what the ops read.
  int Earliest(const std::vector<NodeId>& ops) const {
    const absl::flat_hash_set<NodeId> inside(ops.begin(), ops.end());
    int depth = 0;
    for (NodeId op : ops) {
      for (ValueId v : StoredOperands(g_, op)) {
        if (!inside.contains(v.node)) depth = std::max(depth, depth_[Index(v.node)]);
      }
    }
    return depth;
  }
  // Of large values, if the ops move from their depth to this one: those that kernels there leave
  // are not read again, those that other ops at their depth read are read twice.
  int64_t BytesSaved(const std::vector<NodeId>& ops, int depth) const {
    const absl::flat_hash_set<NodeId> inside(ops.begin(), ops.end());
    absl::flat_hash_set<ValueId> values;
    for (NodeId op : ops) {
      for (ValueId v : StoredOperands(g_, op)) {
        if (!inside.contains(v.node) && IsLarge(v)) values.insert(v);
      }
    }
    int64_t saved = 0;
    for (ValueId v : values) {
      const bool left_there = Fuses(v.node) && depth_[Index(v.node)] == depth;
      const bool read_here = absl::c_any_of(consumers_.of(v.node), [&](NodeId reader) {
        return !inside.contains(reader) && depth_[Index(reader)] == depth_[Index(ops[0])] &&
               Fuses(reader);
      });
      saved += (left_there - read_here) * g_.type(v).size_bytes();
    }
    return saved;
  }

  static constexpr int kNever = std::numeric_limits<int>::max();
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  bool Fuses(NodeId id) const {
    return Computes(g_, id) && !IsBarrier(g_, id) && !taken_[Index(id)];
  }
  // The depth at which an op reads: a barrier reads before it.
  int Place(NodeId reader) const {
    return depth_[Index(reader)] - (IsBarrier(g_, reader) || taken_[Index(reader)] ? 1 : 0);
  }
  bool Inside(NodeId id, size_t component) const { return component_[Index(id)] == component; }

  int FirstReader(const std::vector<NodeId>& ops) const {
    int earliest = kNever;
    for (NodeId id : ops) {
      for (NodeId reader : consumers_.of(id)) {
        if (!Inside(reader, component_[Index(ops[0])]))
          earliest = std::min(earliest, Place(reader));
      }
    }
    return earliest;
  }

  // Who reads a value outside a component: kernels at one depth, and anything from there on.
  struct Readers {
    bool beside = false;     // a kernel at the depth
    bool elsewhere = false;  // a library call, a kernel at another depth, the host
    bool later = false;      // anything from the depth on, or the host
  };
  Readers Outside(NodeId made, size_t component, int depth) const {
    Readers r;
    r.elsewhere = r.later = consumers_.is_output(made);
    for (NodeId reader : consumers_.of(made)) {
      if (Inside(reader, component)) continue;
      const bool beside = Fuses(reader) && depth_[Index(reader)] == depth;
      r.beside |= beside;
      r.elsewhere |= !beside;
      r.later |= Place(reader) >= depth;
    }
    return r;
  }

  // Whether the traffic that computing the ops at the depth saves is worth the bytes that stay
  // alive until then.
  bool Pays(const std::vector<NodeId>& ops, int depth) {
    const size_t component = component_[Index(ops[0])];
    int64_t saved = 0, kept = 0;
    operands_.clear();
    for (NodeId id : ops) {
      for (ValueId v : StoredOperands(g_, id)) {
        if (!Inside(v.node, component) && IsLarge(v)) operands_.push_back(v);
      }
      if (!IsLarge({id, 0})) continue;
      const int64_t bytes = g_.type(id).size_bytes();
      const Readers readers = Outside(id, component, depth);
      if (readers.beside) saved += readers.elsewhere ? bytes : 2 * bytes;
      if ((readers.beside || readers.elsewhere) && !consumers_.is_output(id)) kept -= bytes;
    }
    std::sort(operands_.begin(), operands_.end());
    operands_.erase(std::unique(operands_.begin(), operands_.end()), operands_.end());
    for (ValueId v : operands_) {
      const int64_t bytes = g_.type(v).size_bytes();
      const Readers readers = Outside(v.node, component, depth);
      if (readers.beside) saved += bytes;
      if (!readers.later && Dies(v)) kept += bytes;
    }
    return saved > 0 && kept <= saved;
  }

  bool IsLarge(ValueId v) const { return g_.type(v).elements() >= free_.large_elements; }
  // Whether the value's memory is free after its last reader.
  bool Dies(ValueId v) const {
    const InputInfo* input = g_.node(v.node).input.get();
    return input == nullptr || input->donated;
  }

  const BackwardGraph& g_;
  const Consumers& consumers_;
  const std::vector<bool>& taken_;
  const FreeReads free_;
  std::vector<int> depth_;
  std::vector<size_t> component_;  // by node; kNone for what is no part of a kernel
  std::vector<ValueId> operands_;  // scratch of Pays
};

}  // namespace

bool ReordersGiven(const BackwardGraph& graph, NodeId id) {
  if (graph.op(id) != Op::copy) return false;
  const ValueId of = graph.operands(id)[0];
  return graph.op(of.node) == Op::permute && graph.op(BehindViews(graph, of).node) == Op::input;
}

bool IsBarrier(const BackwardGraph& graph, NodeId id) {
  return graph.pattern(id) == Pattern::kLibrary;
}

absl::InlinedVector<ValueId, 8> StoredOperands(const BackwardGraph& graph, NodeId id) {
  absl::InlinedVector<ValueId, 8> out;
  for (ValueId v : graph.operands(id)) {
    v = BehindViews(graph, v);
    if (!IsConstant(graph, v.node)) out.push_back(v);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<int> BarrierDepths(const BackwardGraph& graph, const Consumers& consumers,
                               const std::vector<bool>& taken, const SinkOptions& options) {
  Sinking sinking(graph, consumers, taken, options.free);
  if (options.sources) {
    sinking.SinkOps();
    sinking.RaiseSums();
  }
  if (options.components) sinking.SinkComponents();
  return sinking.Take();
}

std::vector<uint32_t> ComponentsAtDepths(const BackwardGraph& g, const std::vector<int>& depths,
                                         const std::vector<bool>& taken, const FreeReads& free) {
  UnionFind sets(g.num_nodes());
  absl::flat_hash_map<std::pair<ValueId, int>, uint32_t> first_reader;
  const auto fuses = [&](uint32_t i) {
    return Computes(g, NodeId{i}) && !IsBarrier(g, NodeId{i}) && !taken[i];
  };
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    if (!fuses(i)) continue;
    for (ValueId v : StoredOperands(g, NodeId{i})) {
      const uint32_t producer = Index(v.node);
      if (fuses(producer) && depths[producer] == depths[i]) {
        sets.Union(producer, i);
      } else if (g.type(v).elements() >= free.large_elements) {
        auto [at, added] = first_reader.try_emplace({v, depths[i]}, i);
        if (!added) sets.Union(at->second, i);
      }
    }
  }
  std::vector<uint32_t> first(g.num_nodes());
  for (uint32_t i = 0; i < g.num_nodes(); ++i) first[i] = sets.Find(i);
  return first;
}

}  // namespace retrograd
