#include "fusion/search/region_masks.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "fusion/cost/kernel_cost.h"
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
  CountBytes(atoms, pricer);
  CountUncached(pricer.device());
  JoinEqual();
  TakeOwn();
  FindSplits();
}

void RegionMasks::CountBytes(const std::vector<Atom>& atoms, const GroupPricer& pricer) {
  absl::flat_hash_map<NodeId, AtomMask> owner, sharers;
  for (int i = 0; i < size(); ++i) {
    for (NodeId id : atoms[i].ops) owner[id] = Bit(i);
    for (NodeId id : atoms[i].shared) sharers[id] |= Bit(i);
  }
  auto mask = [](const absl::flat_hash_map<NodeId, AtomMask>& of, NodeId id) {
    auto at = of.find(id);
    return at == of.end() ? AtomMask{0} : at->second;
  };
  struct Reader {
    std::pair<ValueId, int> what;  // a value's piece
    int64_t bytes;
    int atom;
  };
  std::vector<Reader> readers;
  for (int i = 0; i < size(); ++i) {
    if (epilogue_roots_ & Bit(i)) continue;
    for (const std::vector<NodeId>* ops : {&atoms[i].ops, &atoms[i].shared}) {
      for (NodeId id : *ops) {
        for (const SureRead& read : pricer.traffic().reads(id)) {
          const NodeId producer = read.value.node;
          const bool own = ((mask(owner, producer) | mask(sharers, producer)) & Bit(i)) != 0;
          if (!own) readers.push_back({read.what(), read.bytes, i});
        }
      }
    }
    for (NodeId id : atoms[i].ops) {
      Write write{.producer = Bit(i), .readers = 0, .bytes = pricer.traffic().StoredBytes(id)};
      write.escapes = pricer.consumers().is_output(id);
      for (NodeId user : pricer.consumers().of(id)) {
        const AtomMask holders = mask(owner, user) | mask(sharers, user);
        if (holders == 0) write.escapes = true;
        if (mask(sharers, id) == 0) write.readers |= holders & ~Bit(i);
      }
      if (write.escapes) write.readers = 0;  // written whoever reads it here
      if (write.escapes || write.readers != 0) writes_.push_back(write);
    }
  }
  // Of several reads of one piece the largest counts: as steps from one size to the next.
  std::sort(readers.begin(), readers.end(), [](const Reader& a, const Reader& b) {
    return std::tuple(a.what, a.bytes) < std::tuple(b.what, b.bytes);
  });
  for (size_t i = 0; i < readers.size(); ++i) {
    const bool same = i > 0 && readers[i].what == readers[i - 1].what;
    const int64_t before = same ? readers[i - 1].bytes : 0;
    if (readers[i].bytes == before) continue;
    Read read{.producer = mask(owner, readers[i].what.first.node),
              .readers = 0,
              .bytes = readers[i].bytes - before,
              .fresh = pricer.graph().op(readers[i].what.first.node) != Op::input};
    for (size_t j = i; j < readers.size() && readers[j].what == readers[i].what; ++j) {
      read.readers |= Bit(readers[j].atom);
    }
    reads_.push_back(read);
  }
}

// A cache holds the less of a read the more its kernel moves. Whichever atom it reads for, that is
// at least what this atom moves in any kernel: what it reads from outside the region and stores for
// it.
void RegionMasks::CountUncached(const DeviceSpec& device) {
  std::vector<int64_t> moved(size(), 0);  // by atom
  for (const Read& r : reads_) {
    if (r.producer == 0) ForEachBit(r.readers, [&](int i) { moved[i] += r.bytes; });
  }
  for (const Write& w : writes_) {
    if (w.escapes) ForEachBit(w.producer, [&](int i) { moved[i] += w.bytes; });
  }
  for (Read& r : reads_) {
    r.uncached = r.bytes;
    if (!r.fresh) continue;
    int64_t least = std::numeric_limits<int64_t>::max();
    ForEachBit(r.readers,
               [&](int i) { least = std::min(least, moved[i] + (r.producer == 0 ? 0 : r.bytes)); });
    r.uncached -= CachedBytes(r.bytes, least, device);
  }
}

void RegionMasks::JoinEqual() {
  const auto read = [](const Read& r) { return std::tuple(r.producer, r.readers, r.fresh); };
  std::sort(reads_.begin(), reads_.end(),
            [&](const Read& a, const Read& b) { return read(a) < read(b); });
  const auto write = [](const Write& w) { return std::tuple(w.producer, w.readers, w.escapes); };
  std::sort(writes_.begin(), writes_.end(),
            [&](const Write& a, const Write& b) { return write(a) < write(b); });
  std::vector<Read> reads;
  for (const Read& r : reads_) {
    if (reads.empty() || read(reads.back()) != read(r)) {
      reads.push_back(r);
    } else {
      reads.back().bytes += r.bytes;
      reads.back().uncached += r.uncached;
    }
  }
  std::vector<Write> writes;
  for (const Write& w : writes_) {
    if (writes.empty() || write(writes.back()) != write(w)) {
      writes.push_back(w);
    } else {
      writes.back().bytes += w.bytes;
    }
  }
  reads_ = std::move(reads);
  writes_ = std::move(writes);
}

void RegionMasks::TakeOwn() {
  own_.resize(predecessors_.size());
  std::erase_if(reads_, [&](const Read& r) {
    const bool own = r.producer == 0 && std::has_single_bit(r.readers);
    if (own) own_[std::countr_zero(r.readers)].Add(r.bytes, r.uncached, r.fresh);
    return own;
  });
  std::erase_if(writes_, [&](const Write& w) {
    if (w.escapes) own_[std::countr_zero(w.producer)].Add(w.bytes, w.bytes, false);
    return w.escapes;
  });
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
  const auto conflict = [&](AtomMask some, AtomMask others) {
    ForEachBit(some, [&](int i) { conflicts_[i] |= others; });
    ForEachBit(others, [&](int i) { conflicts_[i] |= some; });
  };
  for (const Product& p : products_) conflict(p.atom, all() & ~p.followers & ~p.atom);
  const BackwardGraph& g = pricer_.graph();
  for (int i = 0; i < size(); ++i) {
    for (NodeId scatter : atoms[i].ops) {
      if (g.pattern(scatter) != Pattern::kScatter) continue;
      const AtomMask apart =
          Holding(atoms, [&](NodeId id) { return NeverBesideScatter(g, id, scatter); });
      conflict(Bit(i), apart & ~Bit(i));
    }
  }
}

std::vector<RegionMasks::Split> RegionMasks::SplitsOf(AtomMask atoms) const {
  std::vector<Split> splits;
  ForEachBit(atoms, [&](int i) {
    const AtomMask conflicts = conflicts_[i] & atoms & ~LowBits(i);
    if (conflicts != 0) splits.push_back({Bit(i), conflicts});
  });
  return splits;
}

void RegionMasks::FindSplits() {
  for (Read& r : reads_) r.splits = SplitsOf(r.producer | r.readers);
  for (Write& w : writes_) w.splits = SplitsOf(w.producer | w.readers);
}

bool RegionMasks::IsSplit(const std::vector<Split>& splits, AtomMask set) {
  return std::any_of(splits.begin(), splits.end(), [&](const Split& split) {
    return (split.atom & set) != 0 && (split.conflicts & set) != 0;
  });
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

MovedBytes RegionMasks::LeastBytes(AtomMask set, AtomMask beside) const {
  MovedBytes bytes;
  ForEachBit(set, [&](int i) { bytes += own_[i]; });
  for (const Read& r : reads_) {
    if ((r.readers & set) == 0) continue;
    if ((r.producer & beside) == 0) bytes.Add(r.bytes, r.uncached, r.fresh);
    if (IsSplit(r.splits, set)) bytes.Add(r.bytes, r.uncached, r.fresh);
  }
  for (const Write& w : writes_) {
    if ((w.producer & set) == 0) continue;
    if ((w.readers & ~beside) != 0 || IsSplit(w.splits, set)) {
      bytes.Add(w.bytes, w.bytes, false);
    }
  }
  return bytes;
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
                  products_ps + pricer_.LeastPsOfAll(LeastBytes(apart, set & ~epilogue_roots_)));
}

AtomMask RegionMasks::FollowersOf(AtomMask roots) const {
  AtomMask followers = 0;
  for (const Product& p : products_) {
    if ((roots & p.atom) != 0) followers |= p.followers;
  }
  return followers;
}

AtomMask RegionMasks::FirstComponent(AtomMask set) const {
  AtomMask component = set & -set;
  for (AtomMask rim = component; rim != 0;) {
    AtomMask beside = 0;
    ForEachBit(rim, [&](int i) { beside |= neighbours_[i]; });
    rim = beside & set & ~component;
    component |= rim;
  }
  return component;
}

}  // namespace retrograd
