#include "fusion/search/recompute.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace retrograd {
namespace {

std::vector<NodeId> Union(const std::vector<NodeId>& a, const std::vector<NodeId>& b) {
  std::vector<NodeId> out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

bool IsPointwise(const BackwardGraph& g, const Atom& atom) {
  return std::all_of(atom.ops.begin(), atom.ops.end(),
                     [&](NodeId id) { return g.pattern(id) == Pattern::kPointwise; });
}

// The op of the atom whose result others read: an atom's last op, the others have no other reader.
NodeId Result(const Atom& atom) { return atom.ops.back(); }

// Whether the host, a library call or another region reads the result.
bool Escapes(const std::vector<Atom>& atoms, const Atom& atom, const GroupPricer& pricer) {
  const Consumers& consumers = pricer.consumers();
  if (consumers.is_output(Result(atom))) return true;
  absl::Span<const NodeId> users = consumers.of(Result(atom));
  return std::any_of(users.begin(), users.end(), [&](NodeId user) {
    return std::none_of(atoms.begin(), atoms.end(), [&](const Atom& a) {
      return std::binary_search(a.ops.begin(), a.ops.end(), user) ||
             std::binary_search(a.shared.begin(), a.shared.end(), user);
    });
  });
}

bool Reads(const Atom& atom, int producer) {
  return std::binary_search(atom.predecessors.begin(), atom.predecessors.end(), producer);
}

// Bytes that recomputing the atom in each kernel that loads its result would save, by what each
// kernel of the plan surely reads now. Not positive: nothing to gain.
int64_t BytesSaved(const std::vector<Atom>& atoms, int producer, const Partition& plan,
                   const GroupPricer& pricer) {
  const Atom& atom = atoms[producer];
  const int64_t result = pricer.traffic().StoredBytes(Result(atom));
  int64_t saved = Escapes(atoms, atom, pricer) ? 0 : result;
  bool crosses = false;
  for (const Partition::Part& part : plan.parts) {
    if (std::binary_search(part.atoms.begin(), part.atoms.end(), producer)) continue;
    if (std::none_of(part.atoms.begin(), part.atoms.end(),
                     [&](int a) { return Reads(atoms[a], producer); })) {
      continue;
    }
    crosses = true;
    saved += result;
    const GroupOps here = OpsOfAtoms(atoms, part.atoms);
    absl::flat_hash_set<std::pair<ValueId, int>> read;
    for (NodeId id : here.ops) {
      for (const SureRead& r : pricer.traffic().reads(id)) read.insert(r.what());
    }
    for (NodeId id : atom.ops) {
      for (const SureRead& r : pricer.traffic().reads(id)) {
        const bool own = std::binary_search(atom.ops.begin(), atom.ops.end(), r.value.node) ||
                         std::binary_search(here.ops.begin(), here.ops.end(), r.value.node);
        if (!own && read.insert(r.what()).second) saved -= r.bytes;
      }
    }
  }
  return crosses ? saved : 0;
}

}  // namespace

std::vector<int> RecomputeCandidates(const std::vector<Atom>& atoms, const Partition& plan,
                                     const GroupPricer& pricer) {
  Partition apart;
  for (int a = 0; a < static_cast<int>(atoms.size()); ++a) apart.parts.push_back({.atoms = {a}});
  std::vector<int> candidates;
  for (const Partition* in : {&plan, static_cast<const Partition*>(&apart)}) {
    std::vector<std::pair<int64_t, int>> saves;
    for (int a = 0; a < static_cast<int>(atoms.size()); ++a) {
      const bool known = std::find(candidates.begin(), candidates.end(), a) != candidates.end();
      if (known || !IsPointwise(pricer.graph(), atoms[a])) continue;
      const int64_t saved = BytesSaved(atoms, a, *in, pricer);
      if (saved > 0) saves.push_back({-saved, a});
    }
    std::sort(saves.begin(), saves.end());
    for (const auto& [saved, atom] : saves) {
      if (candidates.size() < kMostRecomputed) candidates.push_back(atom);
    }
  }
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

std::optional<int> OnlyReader(const std::vector<Atom>& atoms, int producer,
                              const GroupPricer& pricer) {
  std::optional<int> only;
  for (int a = 0; a < static_cast<int>(atoms.size()); ++a) {
    if (!Reads(atoms[a], producer)) continue;
    if (only) return std::nullopt;
    only = a;
  }
  if (!only || Escapes(atoms, atoms[producer], pricer)) return std::nullopt;
  const BackwardGraph& g = pricer.graph();
  const int64_t elements = g.type(Result(atoms[producer])).elements();
  const bool repeats = std::any_of(atoms[*only].ops.begin(), atoms[*only].ops.end(),
                                   [&](NodeId id) { return g.type(id).elements() > elements; });
  return repeats ? std::nullopt : only;
}

std::vector<Atom> Recomputed(const std::vector<Atom>& atoms, absl::Span<const int> producers,
                             const GroupPricer& pricer) {
  std::vector<Atom> changed = atoms;
  std::vector<bool> gone(atoms.size(), false);
  for (int p : producers) {  // in topological order, so that a chain is taken along whole
    gone[p] = !Escapes(atoms, atoms[p], pricer);
    const std::vector<NodeId> again = Union(changed[p].ops, changed[p].shared);
    for (Atom& reader : changed) {
      if (Reads(reader, p)) reader.shared = Union(reader.shared, again);
    }
    // Whoever reads it now reads what it read.
    for (Atom& reader : changed) {
      if (Reads(reader, p)) {
        std::vector<int> before;
        std::set_union(reader.predecessors.begin(), reader.predecessors.end(),
                       changed[p].predecessors.begin(), changed[p].predecessors.end(),
                       std::back_inserter(before));
        reader.predecessors = std::move(before);
      }
    }
  }
  std::vector<Atom> out;
  for (size_t a = 0; a < atoms.size(); ++a) {
    if (!gone[a]) out.push_back(std::move(changed[a]));
  }
  ConnectAtoms(pricer, out);
  return out;
}

}  // namespace retrograd
