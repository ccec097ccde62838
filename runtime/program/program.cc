#include "runtime/program/program.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/strings/str_format.h"
#include "codegen/translation_unit.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "runtime/program/caller_addresses.h"
#include "runtime/program/commands.h"
#include "runtime/program/graph_cache.h"

namespace retrograd {

struct Program::State {
  CompiledPlan compiled;
  Device* device = nullptr;
  CommandList list;
  ProgramOptions options;
  ProgramStats stats;
  RecordingCache recordings;
  std::vector<uint32_t> library_slots;  // that library calls read and write, outside the arena
  std::vector<const void*> library_addresses;  // a run's, those that copies write, the workspace
  std::unique_ptr<LoadedKernels> kernels;
  std::vector<std::unique_ptr<LoadedCall>> calls;  // as in list
  void* workspace = nullptr;  // the arena, then scratch_stride bytes for each stream
  int64_t scratch_stride = 0;
  std::vector<void*> table;  // by slot
  std::optional<CallerAddresses> callers;
  bool bound = false;  // whether the device's kernels know the table as it is
  // Of the addresses in the table; null: there is none, or it was not looked for.
  Recording* known_recording = nullptr;

  ~State() {
    if (device != nullptr && !options.caller_workspace) device->Free(workspace);
  }
  int64_t workspace_bytes() const {
    return compiled.memory.arena_bytes + scratch_stride * compiled.schedule.streams;
  }
  void* ScratchOf(int stream) const {
    return static_cast<char*>(workspace) + compiled.memory.arena_bytes + stream * scratch_stride;
  }
  void PlaceArena();
  absl::Status TakeWorkspace(void* callers);
  absl::Status LoadCalls();
  absl::Status Issue(const Command& command, absl::Span<void* const> outputs);
  absl::Status IssueAll(absl::Span<void* const> outputs);
  void FindLibrarySlots();
  absl::Status Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                   std::optional<void*> stream, void* callers_workspace);
  absl::Status Replay(absl::Span<void* const> outputs);
  absl::StatusOr<Recording*> RecordAll(absl::Span<void* const> outputs);
};

Program::Program(std::unique_ptr<State> state) : state_(std::move(state)) {}
Program::~Program() = default;

const ProgramStats& Program::stats() const { return state_->stats; }

std::vector<CallInUse> Program::CallsInUse() const {
  std::vector<CallInUse> used;
  for (size_t i = 0; i < state_->calls.size(); ++i) {
    const LoadedCall& loaded = *state_->calls[i];
    used.push_back({state_->list.calls[i].call, loaded.Describe(), loaded.measured_us()});
  }
  return used;
}

int64_t Program::arena_bytes() const { return state_->compiled.memory.arena_bytes; }
int64_t Program::scratch_bytes() const {
  return state_->scratch_stride * state_->compiled.schedule.streams;
}

absl::StatusOr<std::unique_ptr<Program>> Program::Load(const CompiledPlan& compiled, Device* device,
                                                       const ProgramOptions& options) {
  auto state = std::make_unique<State>();
  state->compiled = compiled;
  state->device = device;
  state->options = options;
  RG_ASSIGN_OR_RETURN(state->list, BuildCommands(state->compiled, options.order_seed));
  RG_RETURN_IF_ERROR(device->Reserve(compiled.schedule.streams, state->list.events));
  RG_RETURN_IF_ERROR(state->LoadCalls());
  RG_ASSIGN_OR_RETURN(state->kernels,
                      device->Load(DistinctKernels(compiled.kernels), state->list.launches));
  if (!options.caller_workspace) {
    RG_ASSIGN_OR_RETURN(state->workspace, device->Allocate(state->workspace_bytes()));
  }
  state->table.resize(state->list.slots);
  state->PlaceArena();
  state->callers.emplace(state->compiled, state->list);
  state->FindLibrarySlots();
  return std::unique_ptr<Program>(new Program(std::move(state)));
}

// The table's entries of what lies in the workspace.
void Program::State::PlaceArena() {
  const MemoryPlan& memory = compiled.memory;
  char* const arena = static_cast<char*>(workspace);
  size_t slot = 0;
  for (const Placement& p : memory.placements) {
    if (p.place == Placement::kArena) table[slot] = arena + p.offset;
    ++slot;
  }
  for (const Workspace& w : memory.workspaces) table[slot++] = arena + w.offset;
}

absl::Status Program::State::TakeWorkspace(void* callers) {
  if (!options.caller_workspace || callers == workspace) return absl::OkStatus();
  const auto address = reinterpret_cast<uintptr_t>(callers);
  if (workspace_bytes() > 0 && (callers == nullptr || address % kArenaAlignment != 0)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the workspace is at %#x: %d bytes at a multiple of %d are needed", address,
                        workspace_bytes(), kArenaAlignment));
  }
  workspace = callers;
  PlaceArena();
  bound = false;
  known_recording = nullptr;
  return absl::OkStatus();
}

absl::Status Program::State::LoadCalls() {
  int64_t largest = 0;
  for (const CallCommand& command : list.calls) {
    RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCall> call,
                        device->Load(*command.call, command.facts));
    largest = std::max(largest, call->scratch_bytes());
    calls.push_back(std::move(call));
  }
  scratch_stride = (largest + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  return absl::OkStatus();
}

absl::Status Program::State::Issue(const Command& command, absl::Span<void* const> outputs) {
  switch (command.kind) {
    case Command::kWait: return device->Wait(command.stream, static_cast<int>(command.number));
    case Command::kRecord: return device->Record(command.stream, static_cast<int>(command.number));
    case Command::kLaunch: return device->Launch(command.stream, *kernels, command.number);
    case Command::kCall: {
      CallCommand& c = list.calls[command.number];
      for (size_t i = 0; i < c.operands.size(); ++i) c.operand_data[i] = table[c.operands[i]];
      for (size_t i = 0; i < c.results.size(); ++i) c.result_data[i] = table[c.results[i]];
      return calls[command.number]->Run(command.stream, {c.operand_data, c.result_data},
                                        ScratchOf(command.stream));
    }
    case Command::kCopy: {
      const CopyCommand& copy = list.copies[command.number];
      return device->CopyStrided(
          command.stream, copy.dtype, copy.shape, outputs[copy.output], copy.to_strides,
          static_cast<const char*>(table[copy.from]) + copy.offset_bytes, copy.from_strides);
    }
  }
  return absl::OkStatus();
}

absl::Status Program::State::IssueAll(absl::Span<void* const> outputs) {
  for (const Command& command : list.commands) RG_RETURN_IF_ERROR(Issue(command, outputs));
  return absl::OkStatus();
}

// Kernels find addresses in the table; library calls, copies and descriptions of what the copy
// engine reads are recorded with theirs.
void Program::State::FindLibrarySlots() {
  for (const CallCommand& call : list.calls) {
    library_slots.insert(library_slots.end(), call.operands.begin(), call.operands.end());
    library_slots.insert(library_slots.end(), call.results.begin(), call.results.end());
  }
  for (const CopyCommand& copy : list.copies) library_slots.push_back(copy.from);
  for (const Launch& launch : list.launches) {
    for (const OperandMap& map : launch.maps) library_slots.push_back(map.slot);
  }
  std::sort(library_slots.begin(), library_slots.end());
  library_slots.erase(std::unique(library_slots.begin(), library_slots.end()), library_slots.end());
  std::erase_if(library_slots, [this](uint32_t slot) {
    const std::vector<Placement>& placements = compiled.memory.placements;
    return slot >= placements.size() || placements[slot].place == Placement::kArena;
  });
  library_addresses.resize(library_slots.size() + list.copies.size() + 1);
}

absl::Status Program::State::Replay(absl::Span<void* const> outputs) {
  if (known_recording == nullptr) {
    auto to = library_addresses.begin();
    for (uint32_t slot : library_slots) *to++ = table[slot];
    for (const CopyCommand& copy : list.copies) *to++ = outputs[copy.output];
    *to++ = workspace;
    known_recording = recordings.Find(library_addresses);
  }
  if (known_recording == nullptr) {
    const absl::StatusOr<Recording*> recorded = RecordAll(outputs);
    if (!recorded.ok()) {
      // The work may go all the same; if not, the reason is the better message.
      ++stats.failed_recordings;
      return IssueAll(outputs);
    }
    known_recording = *recorded;
  }
  RG_RETURN_IF_ERROR(device->Replay(*known_recording));
  ++stats.replays;
  return absl::OkStatus();
}

absl::StatusOr<Recording*> Program::State::RecordAll(absl::Span<void* const> outputs) {
  const auto start = std::chrono::steady_clock::now();
  RG_RETURN_IF_ERROR(device->BeginRecording());
  const absl::Status issued = IssueAll(outputs);
  absl::StatusOr<std::unique_ptr<Recording>> recording =
      device->EndRecording(issued.ok() ? recordings.MakeRoom() : nullptr);
  RG_RETURN_IF_ERROR(issued);
  RG_RETURN_IF_ERROR(recording.status());
  stats.last_recording_ns =
      (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
  stats.recording_ns += stats.last_recording_ns;
  ++stats.recordings;
  return recordings.Add(library_addresses, *std::move(recording));
}

absl::Status Program::State::Run(absl::Span<const void* const> inputs,
                                 absl::Span<void* const> outputs, std::optional<void*> stream,
                                 void* callers_workspace) {
  RG_RETURN_IF_ERROR(TakeWorkspace(callers_workspace));
  if (!callers->Same(inputs, outputs)) {
    bound = false;
    known_recording = nullptr;
    RG_RETURN_IF_ERROR(callers->Take(inputs, outputs, absl::MakeSpan(table)));
  }
  RG_RETURN_IF_ERROR(device->UseStream(stream));
  RG_ASSIGN_OR_RETURN(const bool caller_records, device->CallerRecords());
  if (!bound || caller_records) {
    bound = false;
    RG_RETURN_IF_ERROR(device->Bind(0, *kernels, absl::MakeSpan(table)));
    bound = !caller_records;  // nobody knows when what the caller records is run
  }
  ++stats.runs;
  const bool replays = device->records() && options.record && !caller_records;
  return replays ? Replay(outputs) : IssueAll(outputs);
}

absl::Status Program::Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                          std::optional<void*> stream, void* workspace) {
  const auto start = std::chrono::steady_clock::now();
  absl::Status status = state_->Run(inputs, outputs, stream, workspace);
  state_->stats.last_run_ns =
      (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
  return status;
}

absl::StatusOr<std::vector<StepTime>> Program::TimeSteps(
    absl::Span<const void* const> inputs, absl::Span<void* const> outputs, int repetitions,
    bool cold, std::optional<absl::Span<const GroupId>> only) {
  RG_RETURN_IF_ERROR(Run(inputs, outputs, std::nullopt, state_->workspace));
  RG_RETURN_IF_ERROR(state_->device->Synchronize());
  std::vector<StepTime> times;
  const std::vector<Command>& commands = state_->list.commands;
  for (size_t first = 0, end = 0; first < commands.size(); first = end) {
    end = first + 1;
    const Command::Kind kind = commands[first].kind;
    if (kind != Command::kLaunch && kind != Command::kCall) continue;
    const GroupId group = commands[first].group;
    while (end < commands.size() && commands[end].group == group && commands[end].kind == kind) {
      ++end;
    }
    if (only && std::find(only->begin(), only->end(), group) == only->end()) continue;
    const auto work = [&]() -> absl::Status {
      for (size_t i = first; i < end; ++i) {
        Command alone = commands[i];
        alone.stream = 0;
        RG_RETURN_IF_ERROR(state_->Issue(alone, outputs));
      }
      return absl::OkStatus();
    };
    RG_ASSIGN_OR_RETURN(TimeSamples samples, state_->device->Time(work, repetitions, cold));
    times.push_back({group, std::move(samples)});
  }
  return times;
}

absl::StatusOr<StepTrace> Program::Trace(absl::Span<const void* const> inputs,
                                         absl::Span<void* const> outputs, int repetitions) {
  RG_RETURN_IF_ERROR(Run(inputs, outputs, std::nullopt, state_->workspace));
  RG_RETURN_IF_ERROR(state_->device->Synchronize());
  const auto issue = [&](const Command& command) { return state_->Issue(command, outputs); };
  return TraceSteps(state_->list, state_->options.record, repetitions, issue, state_->device);
}

absl::Span<const KernelResources> Program::resources() const {
  return state_->kernels->resources();
}

}  // namespace retrograd
