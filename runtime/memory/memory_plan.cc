// Four stages: lifetimes, take-overs, phases, offsets.
#include "runtime/memory/memory_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "fusion/lower/layouts/layouts.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "runtime/memory/arena_offsets.h"
#include "runtime/memory/lifetimes.h"
#include "runtime/schedule/happens_before.h"

namespace retrograd {
namespace {

constexpr size_t kNobody = ~size_t{0};

// What the stages share. Values are numbered by their place in `values`.
struct Context {
  const BackwardGraph& graph;
  const FusionPlan& plan;
  const StreamSchedule& schedule;
  const MemoryOptions& options;
  HappensBefore order;
  std::vector<StoredValue> values;
  std::vector<Lifetime> lifetimes;  // by value
  std::vector<size_t> number;       // by value_index
  std::vector<size_t> takes_over;   // by value: the value whose bytes it takes, or kNobody
  std::vector<size_t> taken_by;     // the reverse
  std::vector<int> home;            // by value: the output that it is stored in, or -1
  std::vector<size_t> inside;       // by value: the placed join that it is part of, or kNobody
  std::vector<int64_t> inside_at;   // by value: where in the whole, bytes
  std::vector<bool> shares;         // by value: it is a part or the whole of a placed join

  size_t Number(ValueId v) const { return number[graph.value_index(v)]; }
};

// The output whose memory the value is stored in: the first one that lies as the value does.
int HomeOutput(const Context& c, const StoredValue& stored) {
  if (stored.is_input) return -1;
  const std::vector<int64_t>& shape = c.graph.type(stored.value).shape;
  const std::vector<int64_t>& actual = c.plan.layouts[c.graph.value_index(stored.value)].strides;
  for (uint32_t o : stored.outputs) {
    const std::optional<Layout> wanted = LayoutForOutput(c.graph, c.graph.outputs()[o]);
    if (!wanted || actual.size() != shape.size()) continue;
    bool same = true;
    for (size_t d = 0; d < shape.size(); ++d) {
      same = same && (shape[d] <= 1 || wanted->strides[d] == actual[d]);
    }
    if (same) return static_cast<int>(o);
  }
  return -1;
}

// Least alignment that the plan's kernels promise themselves of a value's address.
int64_t RequiredAlignment(const FusionPlan& plan, ValueId value) {
  int64_t alignment = 1;
  for (const Group& group : plan.groups) {
    for (const KernelBody* kernel : KernelsOf(group)) {
      for (const Buffer& buffer : kernel->ir.buffers) {
        if (buffer.value == value) alignment = std::max(alignment, buffer.alignment);
      }
    }
  }
  return alignment;
}

// Whether the input's memory may be overwritten by `output` (a donated graph input).
bool DonatedTo(const Context& c, const StoredValue& input, ValueId output) {
  const InputInfo& info = *c.graph.node(input.value.node).input;
  return c.options.overwrite_donated && info.donated &&
         info.alignment >= RequiredAlignment(c.plan, output);
}

// Every use of `input` but this step's own has finished when the step starts.
bool IsLastReader(const Context& c, const StoredValue& input, uint32_t step) {
  for (uint32_t reader : input.readers) {
    if (reader != step && !c.order.Precedes(reader, step)) return false;
  }
  return input.is_input || c.order.Precedes(input.writer, step);
}

// Parts of placed joins lie where their wholes do.
void FindShared(Context* c) {
  c->inside.assign(c->values.size(), kNobody);
  c->inside_at.assign(c->values.size(), 0);
  c->shares.assign(c->values.size(), false);
  for (const Group& group : c->plan.groups) {
    const Alias* join = AliasOf(group);
    if (join == nullptr) continue;
    const size_t whole = c->Number(join->whole);
    c->shares[whole] = true;
    for (const Alias::Part& part : join->parts) {
      const size_t v = c->Number(part.value);
      c->shares[v] = true;
      c->inside[v] = whole;
      c->inside_at[v] = part.offset * SizeBytes(c->graph.type(part.value).dtype);
    }
  }
}

bool MayTakeOver(const Context& c, const Group::InPlace& pair, uint32_t step) {
  const size_t from = c.Number(pair.input), to = c.Number(pair.output);
  const StoredValue& input = c.values[from];
  if (!c.options.reuse || !c.options.in_place || c.taken_by[from] != kNobody ||
      c.takes_over[to] != kNobody)
    return false;
  if (!input.outputs.empty()) return false;  // the host or a copy reads it after the last step
  if (c.home[to] >= 0) return false;         // the output has memory of its own
  if (c.shares[from] || c.shares[to]) return false;
  if (c.values[to].bytes > input.bytes) return false;
  if (input.is_input && !DonatedTo(c, input, pair.output)) return false;
  return IsLastReader(c, input, step);
}

void TakeOver(Context* c, const Group::InPlace& pair) {
  const size_t from = c->Number(pair.input), to = c->Number(pair.output);
  c->takes_over[to] = from;
  c->taken_by[from] = to;
}

// Accumulations first: they leave no choice.
absl::Status TakeOverRequired(Context* c) {
  for (uint32_t s = 0; s < c->schedule.steps.size(); ++s) {
    const uint32_t g = Index(c->schedule.steps[s].group);
    for (const Group::InPlace& pair : RequiredInPlace(c->plan.groups[g])) {
      const size_t from = c->Number(pair.input), to = c->Number(pair.output);
      const StoredValue& input = c->values[from];
      absl::string_view obstacle;
      if (c->taken_by[from] != kNobody || c->takes_over[to] != kNobody) {
        obstacle = "another group takes it over too";
      } else if (c->shares[from] || c->shares[to]) {
        obstacle = "its bytes are shared with others";
      } else if (!input.outputs.empty()) {
        obstacle = "it is an output of the graph";
      } else if (input.is_input && !DonatedTo(*c, input, pair.output)) {
        obstacle = "it is an input that may not be overwritten";
      } else if (!IsLastReader(*c, input, s)) {
        obstacle = "it is read later";
      } else if (c->values[to].bytes > input.bytes) {
        obstacle = "it is smaller than the sum";
      }
      if (!obstacle.empty()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("M4: group %d adds to %s in place to make %s, but %s", g,
                            PrintValue(pair.input), PrintValue(pair.output), obstacle));
      }
      TakeOver(c, pair);
    }
  }
  return absl::OkStatus();
}

void TakeOverPermitted(Context* c) {
  for (uint32_t s = 0; s < c->schedule.steps.size(); ++s) {
    for (const Group::InPlace& pair : c->plan.groups[Index(c->schedule.steps[s].group)].in_place) {
      if (MayTakeOver(*c, pair, s)) TakeOver(c, pair);
    }
  }
}

// Values that live one after another in the same bytes, the first writer first.
std::vector<std::vector<size_t>> Chains(const Context& c) {
  std::vector<std::vector<size_t>> chains;
  for (size_t v = 0; v < c.values.size(); ++v) {
    if (c.takes_over[v] != kNobody || c.inside[v] != kNobody) continue;
    std::vector<size_t> chain;
    for (size_t member = v; member != kNobody; member = c.taken_by[member]) {
      chain.push_back(member);
    }
    chains.push_back(std::move(chain));
  }
  return chains;
}

// Of the arena, before anything has taken over bytes that need not.
int64_t BytesWithoutReuse(const Context& c) {
  int64_t bytes = 0;
  for (const std::vector<size_t>& chain : Chains(c)) {
    bool callers = c.values[chain[0]].is_input;
    int64_t most = 0;
    for (size_t v : chain) {
      callers = callers || c.home[v] >= 0;
      most = std::max(most, c.values[v].bytes);
    }
    if (!callers) bytes += BytesInArena(most);
  }
  for (const Step& step : c.schedule.steps) {
    bytes += BytesInArena(c.plan.groups[Index(step.group)].workspace_bytes);
  }
  return bytes;
}

Placement BasePlacement(const Context& c, size_t v) {
  const StoredValue& stored = c.values[v];
  Placement placement{.value = stored.value, .bytes = stored.bytes};
  placement.first = c.lifetimes[v].first;
  placement.last = c.lifetimes[v].last;
  if (c.takes_over[v] != kNobody) placement.takes_over = c.values[c.takes_over[v]].value;
  if (c.inside[v] != kNobody) placement.inside = c.values[c.inside[v]].value;
  return placement;
}

// Places every chain whose memory is the caller's and collects the others as storages of the arena.
// storage_of: by value, the storage or kNobody.
void PlaceCallersMemory(const Context& c, MemoryPlan* memory, std::vector<Storage>* storages,
                        std::vector<size_t>* storage_of) {
  memory->placements.resize(c.values.size());
  storage_of->assign(c.values.size(), kNobody);
  for (const std::vector<size_t>& chain : Chains(c)) {
    int output = -1;
    for (size_t v : chain) output = std::max(output, c.home[v]);
    Storage storage{.lifetime = c.lifetimes[chain[0]]};
    for (size_t v : chain) {
      Placement& placement = memory->placements[v];
      placement = BasePlacement(c, v);
      storage.bytes = std::max(storage.bytes, placement.bytes);
      storage.lifetime.Merge(c.lifetimes[v]);
      if (c.values[chain[0]].is_input) {
        placement.place = Placement::kInput;
        placement.number = c.values[chain[0]].input;
      } else if (output >= 0) {
        placement.place = Placement::kOutput;
        placement.number = static_cast<uint32_t>(output);
      } else {
        (*storage_of)[v] = storages->size();
      }
    }
    if ((*storage_of)[chain[0]] == kNobody) continue;
    // What is copied to an output after the last step stays until then.
    if (!c.values[chain.back()].outputs.empty()) {
      for (uint32_t s = 0; s < c.schedule.steps.size(); ++s) storage.lifetime.Use(s, c.order);
    }
    storages->push_back(std::move(storage));
  }
}

// Parts of placed joins join their wholes' storages.
void PlaceParts(const Context& c, MemoryPlan* memory, std::vector<Storage>* storages,
                std::vector<size_t>* storage_of) {
  for (size_t v = 0; v < c.values.size(); ++v) {
    if (c.inside[v] == kNobody) continue;
    memory->placements[v] = BasePlacement(c, v);
    const size_t storage = (*storage_of)[c.inside[v]];
    RG_CHECK(storage != kNobody);
    (*storages)[storage].lifetime.MergeSlice(c.lifetimes[v]);
    (*storage_of)[v] = storage;
  }
}

std::vector<OutputCopy> Copies(const Context& c) {
  std::vector<OutputCopy> copies;
  for (size_t v = 0; v < c.values.size(); ++v) {
    for (uint32_t o : c.values[v].outputs) {
      if (static_cast<int>(o) != c.home[v]) copies.push_back({o, *c.graph.outputs()[o].value});
    }
  }
  std::sort(copies.begin(), copies.end(),
            [](const OutputCopy& a, const OutputCopy& b) { return a.output < b.output; });
  return copies;
}

void AddWorkspaces(const Context& c, MemoryPlan* memory, std::vector<Storage>* storages) {
  for (uint32_t s = 0; s < c.schedule.steps.size(); ++s) {
    const GroupId group = c.schedule.steps[s].group;
    const int64_t bytes = c.plan.groups[Index(group)].workspace_bytes;
    if (bytes == 0) continue;
    memory->workspaces.push_back({.group = group, .bytes = bytes, .step = s});
    Storage storage{.bytes = bytes, .lifetime = {.first = s}};
    storage.lifetime.used_through.assign(c.schedule.streams, 0);
    storage.lifetime.Use(s, c.order);
    storages->push_back(std::move(storage));
  }
}

uint32_t FirstStep(const Lifetime& lifetime) {
  uint32_t first = lifetime.first;
  for (uint32_t step : lifetime.also_first) first = std::min(first, step);
  return first;
}

// What the caller holds: inputs that it lets go of, and outputs once they are written.
std::vector<Holding> CallersHoldings(const Context& c, const MemoryPlan& memory) {
  const auto steps = static_cast<uint32_t>(c.schedule.steps.size());
  std::vector<Holding> holdings;
  std::vector<Holding> outputs(c.graph.outputs().size());
  for (size_t v = 0; v < c.values.size(); ++v) {
    const Placement& p = memory.placements[v];
    if (p.place == Placement::kOutput) {
      Holding& output = outputs[p.number];
      const uint32_t first = output.bytes == 0 ? p.first : std::min(output.first, p.first);
      output = {std::max(output.bytes, p.bytes), first, steps};
    } else if (c.values[v].is_input && c.graph.node(p.value.node).input->donated) {
      holdings.push_back({p.bytes, 0, c.values[v].outputs.empty() ? p.last : steps});
    }
  }
  holdings.insert(holdings.end(), outputs.begin(), outputs.end());
  return holdings;
}

void PlacePhases(const Context& c, absl::Span<const Storage> storages, MemoryPlan* memory) {
  std::vector<Holding> inside;
  for (const Storage& s : storages) {
    inside.push_back({BytesInArena(s.bytes), FirstStep(s.lifetime), s.lifetime.last});
  }
  memory->phases = ChoosePhases(c.schedule, CallersHoldings(c, *memory), inside, c.options.phases);
}

// A block for each pair of phases, and offsets within.
void PlaceBlocks(const Context& c, std::vector<Storage>* storages, MemoryPlan* memory) {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<size_t>> by_phases;
  for (size_t s = 0; s < storages->size(); ++s) {
    const Lifetime& lifetime = (*storages)[s].lifetime;
    by_phases[{memory->PhaseOf(FirstStep(lifetime)), memory->PhaseOf(lifetime.last)}].push_back(s);
  }
  for (const auto& [phases, numbers] : by_phases) {
    std::vector<Storage> block;
    for (size_t s : numbers) block.push_back((*storages)[s]);
    const int64_t begin = memory->arena_bytes;
    const int64_t bytes = AssignOffsets(c.order, static_cast<uint32_t>(c.schedule.steps.size()),
                                        c.options.reuse, &block);
    for (size_t i = 0; i < numbers.size(); ++i) {
      (*storages)[numbers[i]].offset = begin + block[i].offset;
    }
    if (bytes > 0) memory->blocks.push_back({begin, bytes, phases.first, phases.second});
    memory->arena_bytes += bytes;
  }
}

}  // namespace

uint32_t MemoryPlan::PhaseOf(uint32_t step) const {
  return static_cast<uint32_t>(std::upper_bound(phases.begin(), phases.end(), step) -
                               phases.begin() - 1);
}

const Placement* MemoryPlan::Find(ValueId value) const {
  const auto it = std::lower_bound(placements.begin(), placements.end(), value,
                                   [](const Placement& p, ValueId v) { return p.value < v; });
  return it != placements.end() && it->value == value ? &*it : nullptr;
}

absl::StatusOr<MemoryPlan> PlanMemory(const BackwardGraph& graph, const FusionPlan& plan,
                                      const StreamSchedule& schedule,
                                      const MemoryOptions& options) {
  Context c{
      graph, plan, schedule, options, HappensBefore(schedule), StoredValues(graph, plan, schedule)};
  c.number.assign(graph.num_values(), kNobody);
  c.takes_over.assign(c.values.size(), kNobody);
  c.taken_by.assign(c.values.size(), kNobody);
  for (size_t v = 0; v < c.values.size(); ++v) {
    if (!c.values[v].is_input && c.values[v].writer == StoredValue::kNoWriter) {
      return absl::InvalidArgumentError(
          absl::StrFormat("M2: %s is an output or read by a group, but no group stores it",
                          PrintValue(c.values[v].value)));
    }
    c.number[graph.value_index(c.values[v].value)] = v;
    c.lifetimes.push_back(LifetimeOf(c.values[v], c.order, schedule.streams));
    c.home.push_back(HomeOutput(c, c.values[v]));
  }
  FindShared(&c);
  RG_RETURN_IF_ERROR(TakeOverRequired(&c));
  const int64_t without_reuse = BytesWithoutReuse(c);
  TakeOverPermitted(&c);

  MemoryPlan memory;
  std::vector<Storage> storages;
  std::vector<size_t> storage_of;
  PlaceCallersMemory(c, &memory, &storages, &storage_of);
  PlaceParts(c, &memory, &storages, &storage_of);
  const size_t first_workspace = storages.size();
  AddWorkspaces(c, &memory, &storages);
  memory.copies = Copies(c);
  PlacePhases(c, storages, &memory);
  PlaceBlocks(c, &storages, &memory);
  for (size_t v = 0; v < c.values.size(); ++v) {
    if (storage_of[v] != kNobody) {
      memory.placements[v].offset = storages[storage_of[v]].offset + c.inside_at[v];
    }
  }
  for (size_t w = 0; w < memory.workspaces.size(); ++w) {
    memory.workspaces[w].offset = storages[first_workspace + w].offset;
  }
  std::sort(memory.workspaces.begin(), memory.workspaces.end(),
            [](const Workspace& a, const Workspace& b) { return a.group < b.group; });
  memory.bytes_without_reuse = without_reuse;
  return memory;
}

}  // namespace retrograd
