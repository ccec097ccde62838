#include "fusion/kernel/ir/accesses/interleaved.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace retrograd {
namespace {

constexpr int64_t kNoPlace = std::numeric_limits<int64_t>::min();

// A load or store whose lanes are known places from one expression on.
struct Places {
  int number = 0;  // of the load's instruction, or of the store
  int buffer = 0;
  AxisMask axes = 0;           // of a store's value
  IndexExpr base;              // without a constant
  std::vector<Guard> guards;   // one truth for all lanes
  std::vector<int64_t> place;  // by lane, from the base on; kNoPlace: the load's fill
};

// The lanes that guards leave out in every vector, out of `place`; guards of all lanes into
// `guards`. False if there is another guard.
bool ApplyGuards(const KernelIr& ir, const Instr& load, const Vectors& v, Places* places) {
  std::vector<bool> unknown(v.width, false);
  for (const Guard& g : load.guards) {
    if (LanesAgree(g, v, ir.extents)) {
      places->guards.push_back(g);
      continue;
    }
    const std::vector<LaneTruth> truths = LaneTruths(g, v, ir.extents);
    for (int j = 0; j < v.width; ++j) {
      if (truths[j] == LaneTruth::kNever) places->place[j] = kNoPlace;
      if (truths[j] == LaneTruth::kVaries) unknown[j] = true;
    }
  }
  for (int j = 0; j < v.width; ++j) {
    if (unknown[j] && places->place[j] != kNoPlace) return false;
  }
  return true;
}

// False if the lanes are no such places, or go by accesses of their own anyway: they are one
// element, or lie side by side.
bool PlaceLanes(const KernelIr& ir, const IndexExpr& offset, const Vectors& v, Places* places) {
  const std::vector<int64_t> steps = LaneSteps(offset, v);
  if (steps.empty()) return false;
  const bool alone = std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 0; });
  if (alone || LaneStride(offset, v) == 1) return false;
  places->base = AtLane0(offset, v, ir.extents);
  const int64_t first = places->base.offset();
  places->base.AddScaled(IndexExpr::Constant(first), -1);
  for (int64_t s : steps) places->place.push_back(first + s);
  return true;
}

bool PlacesOfLoad(const KernelIr& ir, int i, const Vectors& v, Places* places) {
  const Instr& load = ir.instrs[i];
  if (load.kind != InstrKind::kLoad || !load.indirect.empty()) return false;
  if (ComputeType(ir.buffers[load.buffer].dtype) != ComputeType(load.dtype)) return false;
  places->number = i;
  places->buffer = load.buffer;
  if (!PlaceLanes(ir, load.offset, v, places) || !ApplyGuards(ir, load, v, places)) return false;
  return places->guards.empty() || (load.fill == 0 && !std::signbit(load.fill));
}

bool PlacesOfStore(const KernelIr& ir, int s, const Vectors& v, Places* places) {
  const Store& store = ir.stores[s];
  const Instr& value = ir.instrs[store.instr];
  if (store.mode != StoreMode::kStore) return false;
  if (ComputeType(ir.buffers[store.buffer].dtype) != ComputeType(value.dtype)) return false;
  places->number = s;
  places->buffer = store.buffer;
  places->axes = value.axes;
  return PlaceLanes(ir, store.offset, v, places);
}

int64_t AccessOf(int64_t place, int64_t width) {
  return place / width - (place % width < 0 ? 1 : 0);
}

// Loads, or stores, that may go by common accesses.
using Group = std::vector<Places>;

bool Takes(const Group& group, const Places& p) {
  const Places& first = group[0];
  return p.buffer == first.buffer && p.axes == first.axes && p.base == first.base &&
         p.guards == first.guards;
}

void AddToGroups(Places places, std::vector<Group>* groups) {
  const auto known = std::find_if(groups->begin(), groups->end(),
                                  [&](const Group& group) { return Takes(group, places); });
  Group& group = known == groups->end() ? groups->emplace_back() : *known;
  group.push_back(std::move(places));
}

std::set<int64_t> AccessesOf(const Places& load, int64_t width) {
  std::set<int64_t> accesses;
  for (int64_t p : load.place) {
    if (p != kNoPlace) accesses.insert(AccessOf(p, width));
  }
  return accesses;
}

// Loads, or stores, and the accesses that they have in common.
struct Cluster {
  std::vector<const Places*> members;
  std::set<int64_t> accesses;
};

std::vector<Cluster> ClustersOf(const std::vector<Places>& loads, int64_t width) {
  std::vector<size_t> leader(loads.size());
  const auto leader_of = [&](size_t load) {
    while (leader[load] != load) load = leader[load] = leader[leader[load]];
    return load;
  };
  std::vector<std::set<int64_t>> accesses;
  std::map<int64_t, size_t> reader;  // of an access: the first load that has it
  for (size_t i = 0; i < loads.size(); ++i) {
    leader[i] = i;
    for (int64_t a : accesses.emplace_back(AccessesOf(loads[i], width))) {
      const size_t other = leader_of(reader.try_emplace(a, i).first->second);
      leader[std::max(other, leader_of(i))] = std::min(other, leader_of(i));
    }
  }
  std::map<size_t, Cluster> clusters;
  for (size_t i = 0; i < loads.size(); ++i) {
    Cluster& cluster = clusters[leader_of(i)];
    cluster.members.push_back(&loads[i]);
    cluster.accesses.merge(accesses[i]);
  }
  std::vector<Cluster> in_order;
  for (auto& [_, cluster] : clusters) in_order.push_back(std::move(cluster));
  return in_order;
}

// Whether the accesses stay between the first and the last place of the group, and bring in little
// beside what is read, in fewer accesses than elements.
bool ReadsTogether(const Cluster& cluster, const Group& group, int64_t width) {
  int64_t first = std::numeric_limits<int64_t>::max(), last = kNoPlace;
  for (const Places& load : group) {
    for (int64_t p : load.place) {
      if (p != kNoPlace) first = std::min(first, p), last = std::max(last, p);
    }
  }
  std::set<int64_t> read;
  for (const Places* load : cluster.members) read.insert(load->place.begin(), load->place.end());
  read.erase(kNoPlace);
  if (read.empty()) return false;
  const auto accesses = static_cast<int64_t>(cluster.accesses.size());
  const auto elements = static_cast<int64_t>(read.size());
  if (*cluster.accesses.begin() * width < first) return false;
  if ((*cluster.accesses.rbegin() + 1) * width - 1 > last) return false;
  return accesses < elements && accesses * width <= 2 * elements;
}

// Whether each element of the accesses is written by one lane.
bool WritesTogether(const Cluster& cluster, int64_t width) {
  std::set<int64_t> written;
  for (const Places* store : cluster.members) {
    for (int64_t p : store->place) {
      if (!written.insert(p).second) return false;
    }
  }
  return written.size() == cluster.accesses.size() * static_cast<size_t>(width);
}

InterleavedRun RunOf(const Cluster& cluster, int64_t width) {
  InterleavedRun run{.width = static_cast<int>(width), .guards = cluster.members[0]->guards};
  const std::vector<int64_t> accesses(cluster.accesses.begin(), cluster.accesses.end());
  for (int64_t a : accesses) {
    run.begin.push_back(cluster.members[0]->base + IndexExpr::Constant(a * width));
  }
  for (const Places* places : cluster.members) {
    InterleavedRun::Member& member = run.members.emplace_back();
    member.number = places->number;
    for (int64_t p : places->place) {
      const int64_t of = p == kNoPlace ? 0 : AccessOf(p, width);
      const auto at = std::lower_bound(accesses.begin(), accesses.end(), of) - accesses.begin();
      member.element.push_back(p == kNoPlace ? -1 : static_cast<int>(at * width + p - of * width));
    }
  }
  return run;
}

// The runs of the group whose clusters are `together`, by the widest accesses first.
template <typename Fn>
void FindRuns(const KernelIr& ir, Group group, const Vectors& v, Fn together,
              std::vector<InterleavedRun>* runs) {
  const Buffer& buffer = ir.buffers[group[0].buffer];
  const int64_t size = SizeBytes(buffer.dtype);
  const int64_t multiple = KnownMultiple(group[0].base, v);
  for (int64_t width = kMaxAccessBytes / size; width > 1 && !group.empty(); width /= 2) {
    if (multiple % width != 0 || buffer.alignment % (width * size) != 0) continue;
    std::set<int> found;
    for (const Cluster& cluster : ClustersOf(group, width)) {
      if (!together(cluster, group, width)) continue;
      runs->push_back(RunOf(cluster, width));
      for (const Places* member : cluster.members) found.insert(member->number);
    }
    std::erase_if(group, [&](const Places& p) { return found.contains(p.number); });
  }
}

}  // namespace

int InterleavedRun::distinct() const {
  std::set<int> read;
  for (const Member& m : members) read.insert(m.element.begin(), m.element.end());
  read.erase(-1);
  return static_cast<int>(read.size());
}

std::vector<InterleavedRun> FindInterleavedLoads(const KernelIr& ir, absl::Span<const int> loads,
                                                 const Vectors& vectors) {
  std::vector<InterleavedRun> runs;
  if (vectors.width <= 1) return runs;
  std::vector<Group> groups;
  for (int i : loads) {
    Places places;
    if (PlacesOfLoad(ir, i, vectors, &places)) AddToGroups(std::move(places), &groups);
  }
  for (Group& group : groups) {
    FindRuns(ir, std::move(group), vectors, ReadsTogether, &runs);
  }
  return runs;
}

std::vector<InterleavedRun> FindInterleavedStores(const KernelIr& ir, absl::Span<const int> stores,
                                                  const Vectors& vectors) {
  std::vector<InterleavedRun> runs;
  if (vectors.width <= 1) return runs;
  std::vector<Group> groups;
  for (int s : stores) {
    Places places;
    if (PlacesOfStore(ir, s, vectors, &places)) AddToGroups(std::move(places), &groups);
  }
  const auto together = [](const Cluster& cluster, const Group&, int64_t width) {
    return WritesTogether(cluster, width);
  };
  for (Group& group : groups) FindRuns(ir, std::move(group), vectors, together, &runs);
  return runs;
}

bool GoesByVectors(const KernelIr& ir, const Vectors& vectors) {
  if (vectors.axis < 0 || ir.extents[vectors.axis] < vectors.width) return false;
  const int64_t all = ir.Points(ir.all_axes());
  std::vector<int> loads, stores;  // that go by single elements
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& load = ir.instrs[i];
    if (load.kind != InstrKind::kLoad || ir.Points(load.offset.axes()) < all) continue;
    if (FormOfLoad(ir, static_cast<int>(i), vectors).width == 1)
      loads.push_back(static_cast<int>(i));
  }
  for (size_t s = 0; s < ir.stores.size(); ++s) {
    if (ir.Points(ir.stores[s].offset.axes()) < all) continue;
    if (StoreWidth(ir, ir.stores[s], vectors) == 1) stores.push_back(static_cast<int>(s));
  }
  size_t together = 0;
  for (const auto& run : FindInterleavedLoads(ir, loads, vectors)) together += run.members.size();
  for (const auto& run : FindInterleavedStores(ir, stores, vectors)) together += run.members.size();
  return together == loads.size() + stores.size();
}

}  // namespace retrograd
