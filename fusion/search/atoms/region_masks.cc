#include "fusion/search/atoms/region_masks.h"

#include <algorithm>

#include "fusion/ops/matmul/matmul_epilogue.h"
#include "fusion/pricing/epilogue_price.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Atoms that compute an op for which fn holds, as their own or again.
template <typename Fn>
AtomMask Holding(const std::vector<Atom>& atoms, Fn fn) {
  AtomMask mask = 0;
  for (size_t a = 0; a < atoms.size(); ++a) {
    const bool holds = std::any_of(atoms[a].ops.begin(), atoms[a].ops.end(), fn) ||
                       std::any_of(atoms[a].shared.begin(), atoms[a].shared.end(), fn);
    if (holds) mask |= Bit(static_cast<int>(a));
  }
  return mask;
}

// Whether no kernel holds the op and the scatter: there is one scatter in a kernel, which walks its
// positions, and what is folded beside it are elements of one position
// (fusion/kernel/templates/scatter_add.cc).
bool NeverBesideScatter(const BackwardGraph& g, NodeId id, NodeId scatter) {
  if (g.pattern(id) == Pattern::kScatter) return id != scatter;
  if (g.pattern(id) != Pattern::kReduction) return false;
  const TensorType& values = g.type(g.operands(scatter)[2]);
  const int64_t positions = values.shape[g.node(scatter).attrs.Int("axis")];
  const int64_t folded =
      g.type(g.operands(id)[0]).elements() / std::max<int64_t>(g.type(id).elements(), 1);
  return folded > values.elements() / std::max<int64_t>(positions, 1);
}

}  // namespace

RegionMasks::RegionMasks(const std::vector<Atom>& atoms, const GroupPricer& pricer)
    : predecessors_(atoms.size()),
      neighbours_(atoms.size()),
      ancestors_(atoms.size()),
      descendants_(atoms.size()),
      conflicts_(atoms.size()),
      pricer_(pricer),
      product_ps_(atoms.size(), 0) {
  RG_CHECK(atoms.size() <= kMaxMaskedAtoms);
  for (int i = 0; i < size(); ++i) {
    for (int p : atoms[i].predecessors) {
      predecessors_[i] |= Bit(p);
      ancestors_[i] |= Bit(p) | ancestors_[p];
    }
    for (int x : atoms[i].neighbours) neighbours_[i] |= Bit(x);
  }
  for (int i = size(); i-- > 0;) {
    ForEachBit(predecessors_[i], [&](int p) { descendants_[p] |= Bit(i) | descendants_[i]; });
  }
  for (int i = 0; i < size(); ++i) {
    for (const Group* product : pricer.epilogue_roots().In(atoms[i].ops)) {
      epilogue_roots_ |= Bit(i);
      product_ps_[i] += LeastProductPs(*product, pricer.device());
    }
  }
  FindProducts(atoms);
  FindConflicts(atoms);
  bytes_.emplace(atoms, pricer, epilogue_roots_, conflicts_);
}

void RegionMasks::FindProducts(const std::vector<Atom>& atoms) {
  const BackwardGraph& g = pricer_.graph();
  for (size_t a = 0; a < atoms.size(); ++a) {
    for (const Group* call : pricer_.epilogue_roots().In(atoms[a].ops)) {
      const NodeId matmul = call->nodes[0];
      Product product{.atom = Bit(static_cast<int>(a))};
      product.followers = all() & ~Holding(atoms, [&](NodeId id) {
                            return id != matmul && !MayFollow(g, id, g.type(matmul));
                          });
      for (NodeId user : pricer_.consumers().of(matmul)) {
        product.readers.push_back(Holding(atoms, [&](NodeId id) { return id == user; }));
      }
      products_.push_back(std::move(product));
    }
  }
}

void RegionMasks::FindConflicts(const std::vector<Atom>& atoms) {
  const auto conflict = [&](int atom, AtomMask others) {
    others &= ~Bit(atom);
    if (others == 0) return;
    conflicting_.push_back(atom);
    conflicts_[atom] |= others;
    ForEachBit(others, [&](int i) { conflicts_[i] |= Bit(atom); });
  };
  for (const Product& p : products_) conflict(std::countr_zero(p.atom), all() & ~p.followers);
  const BackwardGraph& g = pricer_.graph();
  for (int i = 0; i < size(); ++i) {
    for (NodeId scatter : atoms[i].ops) {
      if (g.pattern(scatter) != Pattern::kScatter) continue;
      const AtomMask apart =
          Holding(atoms, [&](NodeId id) { return NeverBesideScatter(g, id, scatter); });
      conflict(i, apart);
    }
  }
}

bool RegionMasks::Conflict(AtomMask set) const {
  return std::any_of(conflicting_.begin(), conflicting_.end(),
                     [&](int i) { return (set & Bit(i)) != 0 && (set & conflicts_[i]) != 0; });
}

bool RegionMasks::MayBeEpilogues(AtomMask set) const {
  if ((set & epilogue_roots_) == 0) return true;
  return std::all_of(products_.begin(), products_.end(), [&](const Product& p) {
    if ((set & p.atom) == 0 || set == p.atom) return true;
    return (set & ~p.followers) == 0 &&
           std::all_of(p.readers.begin(), p.readers.end(),
                       [&](AtomMask holders) { return (set & holders) != 0; });
  });
}

AtomMask RegionMasks::PredecessorsOf(AtomMask set) const {
  AtomMask read = 0;
  ForEachBit(set, [&](int i) { read |= predecessors_[i]; });
  return read;
}

AtomMask RegionMasks::Closure(AtomMask set) const {
  AtomMask above = 0, below = 0;
  ForEachBit(set, [&](int i) {
    above |= descendants_[i];
    below |= ancestors_[i];
  });
  return set | (above & below);
}

int64_t RegionMasks::ProductsPs(AtomMask set) const {
  int64_t ps = 0;
  ForEachBit(set & epilogue_roots_, [&](int i) { ps += product_ps_[i]; });
  return ps;
}

int64_t RegionMasks::LeastPs(AtomMask set) const {
  const int64_t rest = pricer_.LeastPs(LeastBytes(set));
  if ((set & epilogue_roots_) == 0) return rest;
  return LeastWithEpiloguePs(ProductsPs(set), rest, pricer_.device());
}

int64_t RegionMasks::LeastPsOfAll(AtomMask set) const {
  const int64_t rest = pricer_.LeastPsOfAll(LeastBytes(set));
  const AtomMask roots = set & epilogue_roots_;
  if (roots == 0) return rest;
  const int64_t products_ps = ProductsPs(set);
  const int64_t together = LeastWithEpiloguePs(products_ps, rest, pricer_.device());
  const AtomMask apart = set & ~FollowersOf(roots);
  if (apart == 0) return together;
  return std::max(together,
                  products_ps + pricer_.LeastPsOfAll(bytes_->Least(apart, set & ~epilogue_roots_)));
}

AtomMask RegionMasks::FollowersOf(AtomMask roots) const {
  AtomMask followers = 0;
  for (const Product& p : products_) {
    if ((roots & p.atom) != 0) followers |= p.followers;
  }
  return followers;
}

}  // namespace retrograd
