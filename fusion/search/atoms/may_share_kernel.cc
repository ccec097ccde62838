#include "fusion/search/atoms/may_share_kernel.h"

#include <algorithm>
#include <tuple>

#include "fusion/analysis/barrier_depths.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/build/iteration_space.h"

namespace retrograd {
namespace {

int64_t PointsOf(const BackwardGraph& g, NodeId id) {
  if (g.pattern(id) == Pattern::kReduction) return g.type(g.operands(id)[0]).elements();
  if (g.pattern(id) == Pattern::kScatter) return g.type(g.operands(id)[2]).elements();
  return g.type(id).elements();
}

// Whether a user of the value is placed where the value is.
bool Follows(const BackwardGraph& g, NodeId user, size_t operand) {
  switch (g.pattern(user)) {
    case Pattern::kReduction:
    case Pattern::kScan: return true;
    case Pattern::kPointwise:
    case Pattern::kAccumulate: return g.type(g.operands(user)[operand]).shape == g.type(user).shape;
    case Pattern::kJoin: return g.op(user) == Op::slice_scatter && operand == 0;
    default: return false;
  }
}

bool FollowedForward(Op view) {
  return view == Op::reshape || view == Op::permute || view == Op::flip;
}

}  // namespace

// The views of access_map.h. A part of a repeated tensor may be all of what was repeated, a part of
// a padded one all of what was padded.
RegionLinks::Step RegionLinks::ThroughView(const BackwardGraph& g, NodeId view) {
  if (g.type(view).shape == g.type(g.operands(view)[0]).shape) return {};
  switch (g.op(view)) {
    case Op::slice: return {.whole = kPart, .part = kPart};
    case Op::expand: return {.whole = kWhole, .part = kEither};
    case Op::pad: return {.whole = kNone, .part = kEither};
    default: return {};
  }
}

RegionLinks::Step RegionLinks::ToOperand(const BackwardGraph& g, NodeId user, size_t operand) {
  const bool same = g.type(g.operands(user)[operand]).shape == g.type(user).shape;
  switch (g.pattern(user)) {
    case Pattern::kPointwise: return {.whole = kWhole, .part = same ? kPart : kEither};
    case Pattern::kReduction:
    case Pattern::kScan: return {};
    case Pattern::kScatter: return operand == 2 ? Step{} : Step{kNone, kNone};
    case Pattern::kJoin:
    case Pattern::kAccumulate: return same ? Step{} : Step{.whole = kNone, .part = kEither};
    default: return {.whole = kNone, .part = kNone};
  }
}

RegionLinks::RegionLinks(const std::vector<Atom>& atoms, const GroupPricer& pricer) {
  const BackwardGraph& g = pricer.graph();
  std::vector<NodeId> ops;
  for (const Atom& atom : atoms) {
    ops.insert(ops.end(), atom.ops.begin(), atom.ops.end());
    ops.insert(ops.end(), atom.shared.begin(), atom.shared.end());
  }
  std::sort(ops.begin(), ops.end());
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  ops_ = static_cast<int>(ops.size());
  places_.resize(ops.size());
  for (int i = 0; i < ops_; ++i) place_of_op_[ops[i]] = i;
  for (size_t a = 0; a < atoms.size(); ++a) {
    const AtomMask bit = Bit(static_cast<int>(a));
    for (NodeId id : atoms[a].ops) {
      Place& place = places_[place_of_op_.at(id)];
      place.holders |= bit;
      place.owner |= bit;
    }
    for (NodeId id : atoms[a].shared) places_[place_of_op_.at(id)].holders |= bit;
    for (const auto& [id, reader] : atoms[a].read_again) {
      AddReaders(places_[place_of_op_.at(id)], Bit(reader));
    }
  }
  for (int i = 0; i < ops_; ++i) {
    places_[i].points = PointsOf(g, ops[i]);
    places_[i].scatters = g.pattern(ops[i]) == Pattern::kScatter;
    places_[i].reduces = g.pattern(ops[i]) == Pattern::kReduction;
    places_[i].scans = g.pattern(ops[i]) == Pattern::kScan;
    const bool other =
        IsBarrier(g, ops[i]) || places_[i].points == 0 || g.type(ops[i]).elements() == 0;
    if (other) other_rules_ |= places_[i].holders;
    if (places_[i].scatters) scatters_ |= places_[i].holders;
    if (pricer.consumers().is_output(ops[i])) places_[i].read_outside = true;
    for (NodeId user : pricer.consumers().of(ops[i])) {
      auto at = place_of_op_.find(user);
      AddReaders(places_[i], at == place_of_op_.end() ? 0 : places_[at->second].holders);
    }
    Connect(g, ops[i]);
  }
  ConnectGathers(g, ops);
  ConnectParts(g, ops);
  walks_.resize(places_.size(), kNone);
  RankRoots();
}

void RegionLinks::AddReaders(Place& place, AtomMask holders) {
  if (holders == 0) {
    place.read_outside = true;
  } else if ((holders & (holders - 1)) == 0) {
    place.readers |= holders;
  } else {
    place.any_reader.push_back(holders);
  }
}

int RegionLinks::PlaceOf(ValueId v) {
  if (auto at = place_of_op_.find(v.node); at != place_of_op_.end()) return at->second;
  auto [at, added] = place_of_value_.try_emplace(v, static_cast<int>(places_.size()));
  if (added) places_.emplace_back();
  return at->second;
}

void RegionLinks::Connect(const BackwardGraph& g, NodeId id) {
  const int user = place_of_op_.at(id);
  for (size_t k = 0; k < g.operands(id).size(); ++k) {
    Step step = ToOperand(g, id, k);
    bool follows = Follows(g, id, k);
    ValueId v = g.operands(id)[k];
    for (; g.pattern(v.node) == Pattern::kView; v = g.operands(v.node)[0]) {
      step = step.Then(ThroughView(g, v.node));
      follows = follows && FollowedForward(g.op(v.node));
    }
    if (IsConstant(g, v.node)) continue;
    const int place = PlaceOf(v);
    // A scatter's result is placed by nothing that reads it.
    follows = follows && !places_[place].scatters;
    if ((step.whole | step.part) != kNone) places_[user].reads.push_back({place, step});
    if (follows) places_[place].followers.push_back(user);
  }
}

void RegionLinks::ConnectGathers(const BackwardGraph& g, const std::vector<NodeId>& ops) {
  std::vector<int> gathers;
  for (int i = 0; i < ops_; ++i) {
    if (g.pattern(ops[i]) == Pattern::kGather) gathers.push_back(i);
  }
  for (int i : gathers) {
    for (int j : gathers) {
      if (i != j && GatherAlike(g, ops[i], ops[j])) places_[i].followers.push_back(j);
    }
  }
}

void RegionLinks::ConnectParts(const BackwardGraph& g, const std::vector<NodeId>& ops) {
  absl::flat_hash_map<std::pair<ValueId, Shape>, std::vector<int>> beside;
  for (int i = 0; i < ops_; ++i) {
    if (g.pattern(ops[i]) != Pattern::kPointwise) continue;
    for (ValueId operand : g.operands(ops[i])) {
      const std::optional<ValueId> whole = InterleavedPartOf(g, operand);
      if (!whole) continue;
      std::vector<int>& readers = beside[{*whole, g.type(ops[i]).shape}];
      if (readers.empty() || readers.back() != i) readers.push_back(i);
    }
  }
  for (auto& [part, readers] : beside) {
    if (readers.size() < 2) continue;
    const int together = static_cast<int>(places_.size());
    for (int i : readers) places_[i].reads.push_back({together, {}});
    places_.emplace_back().followers = std::move(readers);
  }
}

bool RegionLinks::Stored(const Place& place, AtomMask set) {
  if ((place.owner & set) == 0) return false;
  if (place.read_outside || (place.readers & ~set) != 0) return true;
  return std::any_of(place.any_reader.begin(), place.any_reader.end(),
                     [&](AtomMask readers) { return (readers & set) == 0; });
}

void RegionLinks::RankRoots() {
  for (int i = 0; i < ops_; ++i) by_extent_.push_back(i);
  auto key = [&](int i) { return std::tuple(places_[i].scatters, places_[i].points, i); };
  std::sort(by_extent_.begin(), by_extent_.end(), [&](int a, int b) { return key(a) > key(b); });
}

bool RegionLinks::Walked(const Place& place, AtomMask set) {
  return place.scatters || place.reduces || place.scans || Stored(place, set);
}

int RegionLinks::Root(AtomMask set, bool walked) const {
  int best = -1;  // not stored; nor is anything of its extent that was seen so far
  for (int i : by_extent_) {
    const Place& place = places_[i];
    if ((place.holders & set) == 0 || (walked && !Walked(place, set))) continue;
    if (best >= 0 && std::tuple(place.scatters, place.points) !=
                         std::tuple(places_[best].scatters, places_[best].points)) {
      break;
    }
    if (Stored(place, set)) return i;
    if (best < 0) best = i;
  }
  return best;
}

void RegionLinks::Visit(int place, Walks walks) {
  const Walks fresh = walks & ~walks_[place];
  if (fresh == kNone) return;
  walks_[place] |= fresh;
  stack_.push_back({place, fresh});
}

bool RegionLinks::ScattersOnce(AtomMask set) const {
  return std::count_if(places_.begin(), places_.begin() + ops_, [&](const Place& place) {
           return place.scatters && (place.holders & set) != 0;
         }) <= 1;
}

bool RegionLinks::MayShareKernel(AtomMask set) {
  if ((set & other_rules_) != 0) return true;
  if ((set & scatters_) != 0 && !ScattersOnce(set)) return false;
  const int root = Root(set, /*walked=*/false);
  if (WalksAllFrom(root, set)) return true;
  return !Walked(places_[root], set) && WalksAllFrom(Root(set, /*walked=*/true), set);
}

bool RegionLinks::WalksAllFrom(int root, AtomMask set) {
  std::fill(walks_.begin(), walks_.end(), kNone);
  Visit(root, kWhole);
  while (!stack_.empty()) {
    const auto [at, walks] = stack_.back();
    stack_.pop_back();
    const Place& place = places_[at];
    if ((place.holders & set) != 0) {
      for (const Link& link : place.reads) Visit(link.to, link.step.From(walks));
    }
    for (int follower : place.followers) {
      if ((places_[follower].holders & set) != 0) Visit(follower, walks);
    }
  }
  for (int i = 0; i < ops_; ++i) {
    const Place& place = places_[i];
    if ((place.holders & set) == 0 || (walks_[i] & kWhole) != 0 || place.scatters) continue;
    if (place.reduces || Stored(place, set)) return false;
  }
  return true;
}

}  // namespace retrograd
