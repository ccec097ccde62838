// The check of a memory plan. It recomputes who uses which bytes from the plan and the schedule and
// shares no decision with the planner of memory.
#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "fusion/kernel/build/build.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "runtime/memory/lifetimes.h"
#include "runtime/memory/memory_plan.h"

namespace retrograd {
namespace {

template <typename... Args>
absl::Status Broken(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::InternalError(absl::StrFormat(format, args...));
}

// Bytes of the arena in use from one step on.
struct Occupant {
  std::string name;
  int64_t begin = 0, end = 0;
  Lifetime lifetime;
  bool takes_over = false;
};

// Who used each byte last, while occupants arrive in the order of their first steps. It is enough
// to compare a newcomer with the last occupant of each byte: those before it were over before that
// one.
class LastOccupants {
 public:
  absl::Status Arrive(const Occupant& occupant, const HappensBefore& order) {
    if (occupant.begin == occupant.end) return absl::OkStatus();
    Split(occupant.begin);
    Split(occupant.end);
    auto it = ranges_.lower_bound(occupant.begin);
    while (it != ranges_.end() && it->first < occupant.end) {
      const Occupant& last = *it->second.second;
      if (!last.lifetime.OverBefore(occupant.lifetime, order)) {
        return Broken("M1: %s and %s share bytes from %d on and may be in use together", last.name,
                      occupant.name, it->first);
      }
      it = ranges_.erase(it);
    }
    ranges_[occupant.begin] = {occupant.end, &occupant};
    return absl::OkStatus();
  }

 private:
  void Split(int64_t at) {
    auto it = ranges_.upper_bound(at);
    if (it == ranges_.begin()) return;
    --it;
    if (it->first == at || it->second.first <= at) return;
    ranges_[at] = it->second;
    it->second.first = at;
  }
  std::map<int64_t, std::pair<int64_t, const Occupant*>> ranges_;  // begin -> end, occupant
};

absl::Status CheckPlaces(const BackwardGraph& graph, const MemoryPlan& memory,
                         absl::Span<const StoredValue> values) {
  if (memory.placements.size() != values.size()) {
    return Broken("M2: %d placements for %d stored values", memory.placements.size(),
                  values.size());
  }
  for (size_t v = 0; v < values.size(); ++v) {
    const Placement& p = memory.placements[v];
    const std::string name = PrintValue(values[v].value);
    if (p.value != values[v].value) return Broken("M2: %s has no placement", name);
    if (!values[v].is_input && values[v].writer == StoredValue::kNoWriter) {
      return Broken("M2: no group stores %s", name);
    }
    if (p.bytes < values[v].bytes) {
      return Broken("M2: %s needs %d bytes and has %d", name, values[v].bytes, p.bytes);
    }
    if (p.place == Placement::kArena) {
      if (p.offset < 0 || p.offset + p.bytes > memory.arena_bytes) {
        return Broken("M2: %s at %d +%d lies outside the arena of %d bytes", name, p.offset,
                      p.bytes, memory.arena_bytes);
      }
      if (p.offset % kArenaAlignment != 0 && !p.inside) {
        return Broken("M3: %s at %d is not aligned to %d", name, p.offset, kArenaAlignment);
      }
      if (values[v].is_input) return Broken("M2: the input %s is placed in the arena", name);
    }
    if (p.place == Placement::kOutput && p.number >= graph.outputs().size()) {
      return Broken("M2: %s is placed in output %d, which does not exist", name, p.number);
    }
    if (p.place == Placement::kInput && !values[v].is_input && !p.takes_over) {
      return Broken("M2: %s is placed in input %d without taking it over", name, p.number);
    }
  }
  return absl::OkStatus();
}

// M4, and that an output's memory holds that output in the end.
absl::Status CheckTakeOvers(const BackwardGraph& graph, const FusionPlan& plan,
                            const StreamSchedule& schedule, const MemoryPlan& memory,
                            absl::Span<const StoredValue> values, const HappensBefore& order) {
  const auto stored = [&](ValueId v) -> const StoredValue& {
    return values[memory.Find(v) - memory.placements.data()];
  };
  for (const StoredValue& value : values) {
    const Placement& p = *memory.Find(value.value);
    if (!p.takes_over) continue;
    const Placement* from = memory.Find(*p.takes_over);
    const Group& group = plan.groups[Index(schedule.steps[value.writer].group)];
    const Group::InPlace pair{*p.takes_over, p.value};
    const std::vector<Group::InPlace> required = RequiredInPlace(group);
    const bool permitted =
        std::find(group.in_place.begin(), group.in_place.end(), pair) != group.in_place.end() ||
        std::find(required.begin(), required.end(), pair) != required.end();
    if (from == nullptr || !permitted) {
      return Broken("M4: %s takes over %s, which its group does not permit", PrintValue(p.value),
                    PrintValue(pair.input));
    }
    if (from->place != p.place || from->offset != p.offset || from->number != p.number) {
      return Broken("M4: %s takes over %s but lies elsewhere", PrintValue(p.value),
                    PrintValue(pair.input));
    }
    for (uint32_t reader : stored(pair.input).readers) {
      if (reader != value.writer && !order.Precedes(reader, value.writer)) {
        return Broken("M4: %s takes over %s, which step %d may still read", PrintValue(p.value),
                      PrintValue(pair.input), reader);
      }
    }
    const StoredValue& input = stored(pair.input);
    if (!input.outputs.empty()) {
      return Broken("M4: %s takes over the graph's output %s", PrintValue(p.value),
                    PrintValue(pair.input));
    }
    if (input.is_input && !graph.node(input.value.node).input->donated) {
      return Broken("M4: %s takes over the input %s, which is not donated", PrintValue(p.value),
                    PrintValue(pair.input));
    }
  }
  for (const Group& group : plan.groups) {
    for (const Group::InPlace& pair : RequiredInPlace(group)) {
      const Placement* to = memory.Find(pair.output);
      if (to->takes_over != pair.input) {
        return Broken("M4: %s is added to in place but %s does not take it over",
                      PrintValue(pair.input), PrintValue(pair.output));
      }
    }
  }
  return absl::OkStatus();
}

// M5. What the plan joins in place lies in one piece of the arena, and nothing else does.
absl::Status CheckPlacedConcats(const BackwardGraph& graph, const FusionPlan& plan,
                                const MemoryPlan& memory) {
  size_t parts = 0;
  for (const Group& group : plan.groups) {
    const Alias* join = AliasOf(group);
    if (join == nullptr) continue;
    const Placement* whole = memory.Find(join->whole);
    const bool alone = whole != nullptr && whole->place == Placement::kArena &&
                       !whole->takes_over && !whole->inside;
    if (!alone) {
      return Broken("M5: %s is joined in place but has no bytes of its own",
                    PrintValue(join->whole));
    }
    for (const Alias::Part& part : join->parts) {
      ++parts;
      const Placement* p = memory.Find(part.value);
      const int64_t at = part.offset * SizeBytes(graph.type(part.value).dtype);
      const bool there = p != nullptr && p->place == Placement::kArena && !p->takes_over &&
                         p->inside == join->whole && p->offset == whole->offset + at &&
                         p->offset + p->bytes <= whole->offset + whole->bytes;
      if (!there) {
        return Broken("M5: %s does not lie at byte %d of %s", PrintValue(part.value), at,
                      PrintValue(join->whole));
      }
    }
  }
  for (const Placement& p : memory.placements) {
    if (p.inside) {
      if (parts-- == 0) {
        return Broken("M5: %s lies inside a value that is no join", PrintValue(p.value));
      }
    }
    if (!p.takes_over) continue;
    const Placement* from = memory.Find(*p.takes_over);
    bool shared = from != nullptr && from->inside.has_value();
    for (const Group& group : plan.groups) {
      const Alias* join = AliasOf(group);
      shared = shared || (join != nullptr && join->whole == *p.takes_over);
    }
    if (shared) return Broken("M5: %s takes over a part of a placed join", PrintValue(p.value));
  }
  return absl::OkStatus();
}

// Every output is reached: stored in place by exactly one chain of values, or copied once.
absl::Status CheckOutputs(const BackwardGraph& graph, const MemoryPlan& memory) {
  std::vector<int> reached(graph.outputs().size(), 0);
  for (const Placement& p : memory.placements) {
    if (p.place != Placement::kOutput) continue;
    const std::optional<ValueId>& value = graph.outputs()[p.number].value;
    if (value && BehindViews(graph, *value) == p.value) ++reached[p.number];
  }
  for (const OutputCopy& copy : memory.copies) {
    if (copy.output >= reached.size() || graph.outputs()[copy.output].value != copy.value) {
      return Broken("M2: output %d is not %s", copy.output, PrintValue(copy.value));
    }
    ++reached[copy.output];
  }
  for (size_t o = 0; o < reached.size(); ++o) {
    const int expected = graph.outputs()[o].value ? 1 : 0;
    if (reached[o] != expected) {
      return Broken("M2: output %d is written %d times, not %d", o, reached[o], expected);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPhases(const MemoryPlan& memory, size_t steps) {
  if (memory.phases.empty() || memory.phases[0] != 0)
    return Broken("M6: no phase begins at step 0");
  for (size_t i = 1; i < memory.phases.size(); ++i) {
    if (memory.phases[i] <= memory.phases[i - 1] || memory.phases[i] >= steps) {
      return Broken("M6: phase %d begins at step %d", i, memory.phases[i]);
    }
  }
  int64_t end = 0;
  for (const ArenaBlock& block : memory.blocks) {
    if (block.offset != end || block.bytes <= 0 || block.first > block.last ||
        block.last >= memory.phases.size()) {
      return Broken("M6: the block at %d +%d of phases %d..%d is not the next of the arena",
                    block.offset, block.bytes, block.first, block.last);
    }
    end += block.bytes;
  }
  if (end == memory.arena_bytes) return absl::OkStatus();
  return Broken("M6: the blocks are of %d bytes, the arena of %d", end, memory.arena_bytes);
}

absl::Status CheckBlock(const MemoryPlan& memory, const Occupant& occupant) {
  if (occupant.begin == occupant.end) return absl::OkStatus();
  uint32_t first = occupant.lifetime.first;
  for (uint32_t step : occupant.lifetime.also_first) first = std::min(first, step);
  for (const ArenaBlock& block : memory.blocks) {
    if (occupant.begin < block.offset || occupant.end > block.offset + block.bytes) continue;
    if (memory.PhaseOf(first) >= block.first &&
        memory.PhaseOf(occupant.lifetime.last) <= block.last) {
      return absl::OkStatus();
    }
  }
  return Broken("M6: %s lies in no block of the phases that use it", occupant.name);
}

absl::Status CheckWorkspaces(const FusionPlan& plan, const MemoryPlan& memory) {
  size_t next = 0;
  for (uint32_t g = 0; g < plan.groups.size(); ++g) {
    if (plan.groups[g].workspace_bytes == 0) continue;
    if (next == memory.workspaces.size() || memory.workspaces[next].group != GroupId{g}) {
      return Broken("M2: the workspace of group %d has no placement", g);
    }
    const Workspace& w = memory.workspaces[next++];
    if (w.bytes < plan.groups[g].workspace_bytes || w.offset < 0 ||
        w.offset + w.bytes > memory.arena_bytes) {
      return Broken("M2: the workspace of group %d lies outside the arena or is too small", g);
    }
    if (w.offset % kArenaAlignment != 0) {
      return Broken("M3: the workspace of group %d at %d is not aligned", g, w.offset);
    }
  }
  if (next != memory.workspaces.size()) return Broken("M2: a workspace that no group asked for");
  return absl::OkStatus();
}

}  // namespace

absl::Status MemoryPlan::Verify(const BackwardGraph& graph, const FusionPlan& plan,
                                const StreamSchedule& schedule) const {
  const HappensBefore order(schedule);
  const std::vector<StoredValue> values = StoredValues(graph, plan, schedule);
  RG_RETURN_IF_ERROR(CheckPlaces(graph, *this, values));
  RG_RETURN_IF_ERROR(CheckTakeOvers(graph, plan, schedule, *this, values, order));
  RG_RETURN_IF_ERROR(CheckPlacedConcats(graph, plan, *this));
  RG_RETURN_IF_ERROR(CheckOutputs(graph, *this));
  RG_RETURN_IF_ERROR(CheckWorkspaces(plan, *this));
  RG_RETURN_IF_ERROR(CheckPhases(*this, schedule.steps.size()));

  // A value that takes over another extends the life of that one's storage: only the first of a
  // chain arrives. Values come in id order, which is not the order of a chain.
  std::vector<size_t> root(values.size());
  std::vector<Occupant> occupants(values.size());
  for (size_t v = 0; v < values.size(); ++v) {
    size_t r = v;
    while (placements[r].takes_over) r = Find(*placements[r].takes_over) - placements.data();
    if (placements[r].inside) r = Find(*placements[r].inside) - placements.data();
    root[v] = r;
    occupants[v] = {PrintValue(values[v].value), placements[v].offset,
                    placements[v].offset + placements[v].bytes,
                    LifetimeOf(values[v], order, schedule.streams)};
  }
  for (const OutputCopy& copy : copies) {  // reads the value after the last step
    Lifetime& lifetime =
        occupants[Find(BehindViews(graph, copy.value)) - placements.data()].lifetime;
    for (uint32_t s = 0; s < schedule.steps.size(); ++s) lifetime.Use(s, order);
  }
  for (size_t v = 0; v < values.size(); ++v) {
    if (root[v] == v) continue;
    if (placements[v].inside) {
      occupants[root[v]].lifetime.MergeSlice(occupants[v].lifetime);
    } else {
      occupants[root[v]].lifetime.Merge(occupants[v].lifetime);
    }
    occupants[root[v]].end = std::max(occupants[root[v]].end, occupants[v].end);
  }
  std::vector<Occupant> arriving;
  for (size_t v = 0; v < values.size(); ++v) {
    if (root[v] == v && placements[v].place == Placement::kArena) {
      arriving.push_back(std::move(occupants[v]));
    }
  }
  for (const Workspace& w : workspaces) {
    Occupant occupant{absl::StrFormat("the workspace of group %d", Index(w.group)),
                      w.offset,
                      w.offset + w.bytes,
                      {.first = w.step}};
    if (w.step >= schedule.steps.size() || schedule.steps[w.step].group != w.group) {
      return Broken("M2: step %d does not run group %d", w.step, Index(w.group));
    }
    occupant.lifetime.used_through.assign(schedule.streams, 0);
    occupant.lifetime.Use(w.step, order);
    arriving.push_back(std::move(occupant));
  }
  std::stable_sort(arriving.begin(), arriving.end(), [](const Occupant& a, const Occupant& b) {
    return a.lifetime.first < b.lifetime.first;
  });
  LastOccupants bytes;
  for (const Occupant& occupant : arriving) {
    RG_RETURN_IF_ERROR(CheckBlock(*this, occupant));
    RG_RETURN_IF_ERROR(bytes.Arrive(occupant, order));
  }
  return absl::OkStatus();
}

}  // namespace retrograd
