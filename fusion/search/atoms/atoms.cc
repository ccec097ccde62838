#include "fusion/search/atoms/atoms.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fusion/analysis/barrier_depths.h"
#include "fusion/kernel/build/build.h"
#include "fusion/ops/matmul/matmul_epilogue.h"

namespace retrograd {
namespace {

int64_t Points(const BackwardGraph& g, NodeId id) {
  if (g.pattern(id) == Pattern::kReduction) return g.type(g.operands(id)[0]).elements();
  if (g.pattern(id) == Pattern::kScatter) return g.type(g.operands(id)[2]).elements();
  return g.type(id).elements();
}

bool SameWalk(Pattern p) {
  return p == Pattern::kPointwise || p == Pattern::kJoin || p == Pattern::kAccumulate ||
         p == Pattern::kGather;
}

class AtomFinder {
 public:
  AtomFinder(const Region& region, const GroupPricer& pricer, bool contract,
             absl::Span<const NodeId> split)
      : g_(pricer.graph()),
        consumers_(pricer.consumers()),
        pricer_(pricer),
        ops_(region.ops),
        split_(split) {
    for (size_t i = 0; i < ops_.size(); ++i) position_[ops_[i]] = static_cast<int>(i);
    atom_.resize(ops_.size());
    members_.resize(ops_.size());
    for (size_t i = 0; i < ops_.size(); ++i) {
      atom_[i] = static_cast<int>(i);
      members_[i] = {ops_[i]};
    }
    FindFollowers();
    // From the last op back, so that a chain ends up in its last reader.
    if (contract) {
      for (size_t i = ops_.size(); i-- > 0;) Contract(static_cast<int>(i));
    }
  }

  std::vector<Atom> Run() {
    std::vector<Atom> atoms;
    for (int i : TopologicalAtoms()) atoms.push_back({.ops = std::move(members_[i])});
    ConnectAtoms(pricer_, atoms);
    return atoms;
  }

 private:
  // Ops that an epilogue of an epilogue root could hold: pointwise from the product on.
  void FindFollowers() {
    follows_.assign(ops_.size(), false);
    if (pricer_.epilogue_roots().empty()) return;
    for (size_t i = 0; i < ops_.size(); ++i) {
      for (ValueId v : StoredOperands(g_, ops_[i])) {
        auto at = position_.find(v.node);
        const bool product = pricer_.epilogue_roots().Find(v.node) != nullptr;
        if (!product && (at == position_.end() || !follows_[at->second])) continue;
        if (MayFollow(g_, ops_[i], g_.type(v))) follows_[i] = true;
      }
    }
  }

  // Near a product an op may be worth more in the multiplying kernel than in its reader's: it joins
  // the reader only where the two fit one epilogue as easily as one of them.
  bool KeepsEpilogues(NodeId id, NodeId reader) const {
    const bool follows = follows_[position_.at(id)];
    if (!follows && !follows_[position_.at(reader)]) return true;
    if (follows && !MayFollow(g_, reader, g_.type(id))) return false;
    const auto mine = StoredOperands(g_, id), theirs = StoredOperands(g_, reader);
    size_t both = mine.size();
    for (ValueId v : theirs) {
      both += v.node != id && !std::binary_search(mine.begin(), mine.end(), v);
    }
    return both <= std::max(mine.size(), theirs.size() - 1);
  }

  void Contract(int i) {
    const NodeId id = ops_[i];
    if (consumers_.is_output(id) || consumers_.of(id).size() != 1) return;
    if (std::binary_search(split_.begin(), split_.end(), id)) return;
    const NodeId reader = consumers_.of(id)[0];
    auto at = position_.find(reader);
    if (at == position_.end()) return;
    const int into = atom_[at->second];
    if (into == atom_[i] || !NeverLoses(id, reader) || !KeepsEpilogues(id, reader)) return;
    std::vector<NodeId> merged = members_[into];
    merged.insert(merged.end(), members_[atom_[i]].begin(), members_[atom_[i]].end());
    std::sort(merged.begin(), merged.end());
    if (merged.size() > kMaxAtomOps || !pricer_.Fits(merged)) return;
    const int from = atom_[i];
    for (NodeId member : members_[from]) atom_[position_.at(member)] = into;
    members_[from].clear();
    members_[into] = std::move(merged);
  }

  // The reader computes each element of the op at most once, in the same walk.
  bool NeverLoses(NodeId id, NodeId reader) const {
    const Pattern p = g_.pattern(id), q = g_.pattern(reader);
    const int64_t elements = g_.type(id).elements();
    if (SameWalk(p)) return Points(g_, reader) <= elements && q != Pattern::kGather;
    // A reduction and what follows on its result alone.
    if (p != Pattern::kReduction || q != Pattern::kPointwise) return false;
    if (g_.type(reader).elements() != elements) return false;
    for (ValueId v : StoredOperands(g_, reader)) {
      if (v.node != id && position_.contains(v.node)) return false;
    }
    return true;
  }

  // Contraction keeps the quotient acyclic (an op's only reader); order it by Kahn's algorithm,
  // smallest last member first.
  std::vector<int> TopologicalAtoms() const {
    std::vector<int> order;
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (!members_[i].empty()) order.push_back(static_cast<int>(i));
    }
    // The last member of an atom is its only one read outside, and every reader comes after it.
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return members_[a].back() < members_[b].back(); });
    return order;
  }

  static constexpr size_t kMaxAtomOps = 32;

  const BackwardGraph& g_;
  const Consumers& consumers_;
  const GroupPricer& pricer_;
  const std::vector<NodeId>& ops_;
  absl::Span<const NodeId> split_;
  absl::flat_hash_map<NodeId, int> position_;
  std::vector<bool> follows_;                 // by position
  std::vector<int> atom_;                     // by position: the atom's representative position
  std::vector<std::vector<NodeId>> members_;  // by representative
};

}  // namespace

void ConnectAtoms(const GroupPricer& pricer, std::vector<Atom>& atoms) {
  const BackwardGraph& g = pricer.graph();
  const int64_t large = FreeReadsOf(pricer.device()).large_elements;
  absl::flat_hash_map<NodeId, int> owner;
  absl::flat_hash_set<NodeId> recomputed;
  for (size_t a = 0; a < atoms.size(); ++a) {
    atoms[a].predecessors.clear();
    atoms[a].neighbours.clear();
    atoms[a].read_again.clear();
    for (NodeId id : atoms[a].ops) owner[id] = static_cast<int>(a);
    recomputed.insert(atoms[a].shared.begin(), atoms[a].shared.end());
  }
  std::vector<std::pair<ValueId, int>> readers;  // of large tensors
  for (int a = 0; a < static_cast<int>(atoms.size()); ++a) {
    const std::vector<NodeId>& shared = atoms[a].shared;
    auto connect = [&](NodeId id) {
      for (ValueId v : StoredOperands(g, id)) {
        if (std::binary_search(shared.begin(), shared.end(), v.node)) continue;
        auto at = owner.find(v.node);
        if (at != owner.end() && at->second == a) continue;
        if (at != owner.end()) {
          if (recomputed.contains(id)) atoms[at->second].read_again.push_back({v.node, a});
          atoms[a].predecessors.push_back(at->second);
          atoms[a].neighbours.push_back(at->second);
          atoms[at->second].neighbours.push_back(a);
        }
        if (g.type(v).elements() >= large) readers.push_back({v, a});
      }
    };
    for (NodeId id : atoms[a].ops) connect(id);
    for (NodeId id : shared) connect(id);
  }
  std::sort(readers.begin(), readers.end());
  for (size_t i = 0, end = 0; i < readers.size(); i = end) {
    for (end = i; end < readers.size() && readers[end].first == readers[i].first;) ++end;
    for (size_t j = i; j < end; ++j) {
      for (size_t k = i; k < end; ++k) {
        if (readers[j].second != readers[k].second) {
          atoms[readers[j].second].neighbours.push_back(readers[k].second);
        }
      }
    }
  }
  for (Atom& atom : atoms) {
    for (auto* list : {&atom.predecessors, &atom.neighbours}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
  }
}

std::vector<Atom> FindAtoms(const Region& region, const GroupPricer& pricer, bool contract,
                            absl::Span<const NodeId> split) {
  return AtomFinder(region, pricer, contract, split).Run();
}

}  // namespace retrograd
