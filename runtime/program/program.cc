#include "runtime/program/program.h"
#include "runtime/device/calls_in_turn.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "codegen/translation_unit.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "runtime/memory/arena_offsets.h"
#include "runtime/program/caller_addresses.h"
#include "runtime/program/commands.h"
#include "runtime/program/graph_cache.h"
#include "runtime/program/movable_recording.h"

namespace retrograd {

namespace {

using Clock = std::chrono::steady_clock;

// A slot in a block of the workspace.
struct Slice {
  uint32_t slot = 0;
  int64_t offset = 0;
};

struct Phase {
  RecordingCache recordings;
  // One that is moved to addresses that have no recording of their own; null: there is none (yet).
  MovableRecording movable;
  bool ran = false;  // before
  // Of the addresses in the table; null: there is none, or it was not looked for.
  Recording* known_recording = nullptr;
  std::vector<uint32_t> library_slots;  // that its library calls read and write, outside the arena
  std::vector<uint32_t> copied;         // outputs that its copies write
  size_t scratch = 0;                   // the block that it lies in
  int64_t scratch_offset = 0;           // in the block
  int64_t scratch_stride = 0;           // for each stream; 0: there is none
};

absl::Status CheckWorkspace(const void* address, int64_t bytes) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (address != nullptr && number % kArenaAlignment == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the workspace is at %#x: %d bytes at a multiple of %d are needed", number,
                      bytes, kArenaAlignment));
}

// The calls that share launches.
std::vector<ExpectedCall> Members(const CallCommand& command) {
  std::vector<ExpectedCall> members;
  for (const CallCommand::Member& member : command.members) {
    members.push_back({member.call, &member.facts, /*together=*/!members.empty()});
  }
  return members;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadCall(Device& device, const CallCommand& command) {
  if (command.members.empty()) return device.Load(*command.call, command.facts);
  const std::vector<ExpectedCall> members = Members(command);
  absl::StatusOr<std::unique_ptr<LoadedCall>> together = device.LoadTogether(members);
  return absl::IsUnimplemented(together.status()) ? LoadInTurn(device, members)
                                                  : std::move(together);
}

std::vector<ExpectedCall> Expected(const CommandList& list) {
  std::vector<ExpectedCall> expected;
  for (const CallCommand& command : list.calls) {
    if (command.members.empty()) expected.push_back({command.call, &command.facts});
    const std::vector<ExpectedCall> members = Members(command);
    expected.insert(expected.end(), members.begin(), members.end());
  }
  return expected;
}

}  // namespace

struct Program::State {
  explicit State(std::shared_ptr<const CompiledPlan> plan)
      : shared(std::move(plan)), compiled(*shared) {}

  std::shared_ptr<const CompiledPlan> shared;
  const CompiledPlan& compiled;
  Device* device = nullptr;
  CommandList list;
  ProgramOptions options;
  ProgramStats stats;
  std::vector<Phase> phases;
  std::vector<const void*> library_addresses;  // scratch of Replay
  std::unique_ptr<LoadedKernels> kernels;
  std::vector<std::unique_ptr<LoadedCall>> calls;  // as in list
  void* own_workspace = nullptr;
  std::vector<WorkspaceBlock> blocks;
  std::vector<void*> block_addresses;
  std::vector<std::vector<Slice>> slices;  // by block: the slots in it
  std::vector<void*> table;                // by slot
  std::optional<CallerAddresses> callers;
  bool bound = false;  // whether the device's kernels know the table as it is

  ~State() {
    if (device != nullptr) device->Free(own_workspace);
  }
  int64_t workspace_bytes() const {
    return blocks.empty() ? 0 : blocks.back().offset + blocks.back().bytes;
  }
  void* ScratchOf(const Command& command) const {
    const Phase& phase = phases[command.phase];
    if (phase.scratch_stride == 0) return nullptr;
    return static_cast<char*>(block_addresses[phase.scratch]) + phase.scratch_offset +
           command.stream * phase.scratch_stride;
  }
  absl::Status LoadCalls();
  void TakeKeptResults();
  void MakeBlocks();
  void FindLibrarySlots();
  // The table's entries of what lies in the block.
  absl::Status TakeBlock(size_t block, void* address);
  absl::Status TakeWorkspace(void* workspace);
  absl::Status Issue(const Command& command, absl::Span<void* const> outputs);
  absl::Status IssueAll(uint32_t phase, absl::Span<void* const> outputs);
  void Changed(uint32_t phase);  // an address of the phase
  absl::Status RunPhase(uint32_t phase, absl::Span<const void* const> inputs,
                        absl::Span<void* const> outputs);
  absl::Status Replay(uint32_t phase, absl::Span<void* const> outputs);
  absl::StatusOr<Recording*> RecordAll(uint32_t phase, absl::Span<void* const> outputs);
  // A recording for library_addresses; null: the work is to be issued.
  absl::StatusOr<Recording*> RecordingFor(uint32_t phase, absl::Span<void* const> outputs);
  absl::StatusOr<Recording*> MovedRecording(uint32_t phase, absl::Span<void* const> outputs);
  absl::Status IssueMoved(uint32_t phase, absl::Span<void* const> outputs,
                          absl::Span<const int64_t> moved);
  absl::Status Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                   std::optional<void*> stream, void* workspace);
  absl::Status RunPhases(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                         std::optional<void*> stream, const PhasedRun& phased);
  // With the workspace of the last run.
  absl::Status RunAgain(absl::Span<const void* const> inputs, absl::Span<void* const> outputs);
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
int64_t Program::kept_bytes() const {
  int64_t bytes = 0;
  for (const auto& call : state_->calls) bytes += call->kept_bytes();
  return bytes;
}
HeldMemory Program::held_memory() const {
  HeldMemory held;
  if (state_->device->records()) held = HeldByRecordings(state_->compiled, state_->list);
  held.host_bytes += HeldByPlan(state_->compiled, state_->list);
  held.device_bytes += kept_bytes();
  if (!state_->options.caller_workspace) held.device_bytes += state_->workspace_bytes();
  return held;
}
int64_t Program::scratch_bytes() const { return state_->workspace_bytes() - arena_bytes(); }
uint32_t Program::phases() const { return static_cast<uint32_t>(state_->phases.size()); }
absl::Span<const WorkspaceBlock> Program::blocks() const { return state_->blocks; }
absl::Span<const uint32_t> Program::input_phases() const { return state_->callers->input_phases(); }
absl::Span<const uint32_t> Program::output_phases() const {
  return state_->callers->output_phases();
}

absl::StatusOr<std::unique_ptr<Program>> Program::Load(const CompiledPlan& compiled, Device* device,
                                                       const ProgramOptions& options) {
  return Load(std::make_shared<const CompiledPlan>(compiled), device, options);
}

absl::StatusOr<std::unique_ptr<Program>> Program::Load(std::shared_ptr<const CompiledPlan> plan,
                                                       Device* device,
                                                       const ProgramOptions& options) {
  auto state = std::make_unique<State>(std::move(plan));
  const CompiledPlan& compiled = state->compiled;
  state->device = device;
  state->options = options;
  RG_ASSIGN_OR_RETURN(state->list, BuildCommands(state->compiled, options.order_seed));
  RG_RETURN_IF_ERROR(device->Reserve(compiled.schedule.streams, state->list.events));
  state->phases.resize(state->list.phase_begins.size());
  const auto start = Clock::now();
  const std::vector<Kernel> kernels = DistinctKernels(compiled.kernels);
  device->Expect(Expected(state->list), kernels, state->list.launches);
  RG_RETURN_IF_ERROR(state->LoadCalls());
  const auto calls = Clock::now();
  RG_ASSIGN_OR_RETURN(state->kernels, device->Load(kernels, state->list.launches));
  device->Expect({}, {}, {});
  state->stats.load_calls_ns = (calls - start) / std::chrono::nanoseconds(1);
  state->stats.load_kernels_ns = (Clock::now() - calls) / std::chrono::nanoseconds(1);
  state->table.resize(state->list.slots);
  state->MakeBlocks();
  state->callers.emplace(state->compiled, state->list);
  state->FindLibrarySlots();
  if (!options.caller_workspace) {
    RG_ASSIGN_OR_RETURN(state->own_workspace, device->Allocate(state->workspace_bytes()));
    RG_RETURN_IF_ERROR(state->TakeWorkspace(state->own_workspace));
  }
  return std::unique_ptr<Program>(new Program(std::move(state)));
}

// What calls hold from run to run has its address for good; its bytes of the arena stay unused.
void Program::State::TakeKeptResults() {
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::vector<void*> kept = calls[i]->kept_results();
    for (size_t result = 0; result < kept.size(); ++result) {
      if (kept[result] != nullptr) table[list.calls[i].results[result]] = kept[result];
    }
  }
}

// The arena's blocks, each phase's scratch behind the one that is its alone.
void Program::State::MakeBlocks() {
  const MemoryPlan& memory = compiled.memory;
  for (const ArenaBlock& block : memory.blocks) {
    blocks.push_back({0, block.bytes, block.first, block.last});
  }
  slices.resize(blocks.size());
  TakeKeptResults();
  const auto put = [&](uint32_t slot, int64_t offset) {
    if (table[slot] != nullptr) return;  // a call holds it
    for (size_t b = 0; b < memory.blocks.size(); ++b) {
      const int64_t inside = offset - memory.blocks[b].offset;
      if (inside >= 0 && inside < memory.blocks[b].bytes) slices[b].push_back({slot, inside});
    }
  };
  uint32_t slot = 0;
  for (const Placement& p : memory.placements) {
    if (p.place == Placement::kArena) put(slot, p.offset);
    ++slot;
  }
  for (const Workspace& w : memory.workspaces) put(slot++, w.offset);
  for (const WorkspacePart& part : list.parts) {
    put(slot++, memory.workspaces[part.workspace].offset + part.offset);
  }
  for (uint32_t p = 0; p < phases.size(); ++p) {
    const int64_t bytes = phases[p].scratch_stride * compiled.schedule.streams;
    if (bytes == 0) continue;
    auto own = std::find_if(blocks.begin(), blocks.end(), [&](const WorkspaceBlock& block) {
      return block.first == p && block.last == p;
    });
    if (own == blocks.end()) own = blocks.insert(own, {0, 0, p, p});
    phases[p].scratch = own - blocks.begin();
    phases[p].scratch_offset = own->bytes;
    own->bytes += bytes;
  }
  int64_t offset = 0;
  for (WorkspaceBlock& block : blocks) {
    block.offset = offset;
    offset += block.bytes;
  }
  slices.resize(blocks.size());
  block_addresses.assign(blocks.size(), nullptr);
}

void Program::State::Changed(uint32_t phase) {
  bound = false;
  for (size_t p = phase; p < phases.size(); ++p) phases[p].known_recording = nullptr;
}

absl::Status Program::State::TakeBlock(size_t block, void* address) {
  if (address != nullptr && address == block_addresses[block]) return absl::OkStatus();
  if (options.caller_workspace) RG_RETURN_IF_ERROR(CheckWorkspace(address, blocks[block].bytes));
  block_addresses[block] = address;
  for (const Slice& slice : slices[block]) {
    table[slice.slot] = static_cast<char*>(address) + slice.offset;
  }
  Changed(blocks[block].first);
  return absl::OkStatus();
}

absl::Status Program::State::TakeWorkspace(void* workspace) {
  if (blocks.empty()) return absl::OkStatus();
  if (options.caller_workspace) RG_RETURN_IF_ERROR(CheckWorkspace(workspace, workspace_bytes()));
  for (size_t b = 0; b < blocks.size(); ++b) {
    RG_RETURN_IF_ERROR(TakeBlock(b, static_cast<char*>(workspace) + blocks[b].offset));
  }
  return absl::OkStatus();
}

absl::Status Program::State::LoadCalls() {
  for (const CallCommand& command : list.calls) {
    if (options.loading) RG_RETURN_IF_ERROR(options.loading(calls.size(), list.calls.size()));
    const auto start = Clock::now();
    RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCall> call, LoadCall(*device, command));
    stats.load_op_ns[command.call->op] += (Clock::now() - start) / std::chrono::nanoseconds(1);
    calls.push_back(std::move(call));
  }
  for (const Command& command : list.commands) {
    if (command.kind != Command::kCall) continue;
    if (compiled.early.gain_ps <= 0) calls[command.number]->ForbidEarlyLaunches();
    if (command.early) calls[command.number]->AllowEarlyStart();
    int64_t& stride = phases[command.phase].scratch_stride;
    stride = std::max(stride, BytesInArena(calls[command.number]->scratch_bytes()));
  }
  return absl::OkStatus();
}

absl::Status Program::State::Issue(const Command& command, absl::Span<void* const> outputs) {
  switch (command.kind) {
    case Command::kWait: return device->Wait(command.stream, static_cast<int>(command.number));
    case Command::kRecord: return device->Record(command.stream, static_cast<int>(command.number));
    case Command::kLaunch:
      return command.early ? device->LaunchEarly(command.stream, *kernels, command.number)
                           : device->Launch(command.stream, *kernels, command.number);
    case Command::kCall: {
      CallCommand& c = list.calls[command.number];
      for (size_t i = 0; i < c.operands.size(); ++i) c.operand_data[i] = table[c.operands[i]];
      for (size_t i = 0; i < c.results.size(); ++i) c.result_data[i] = table[c.results[i]];
      return calls[command.number]->Run(command.stream, {c.operand_data, c.result_data},
                                        ScratchOf(command));
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

absl::Status Program::State::IssueAll(uint32_t phase, absl::Span<void* const> outputs) {
  const size_t end =
      phase + 1 < list.phase_begins.size() ? list.phase_begins[phase + 1] : list.commands.size();
  for (size_t i = list.phase_begins[phase]; i < end; ++i) {
    RG_RETURN_IF_ERROR(Issue(list.commands[i], outputs));
  }
  return absl::OkStatus();
}

// Kernels find addresses in the table; library calls, copies and descriptions of what the copy
// engine reads are recorded with theirs.
void Program::State::FindLibrarySlots() {
  size_t most = 0;
  for (const Command& command : list.commands) {
    Phase& phase = phases[command.phase];
    std::vector<uint32_t>& slots = phase.library_slots;
    if (command.kind == Command::kCall) {
      const CallCommand& call = list.calls[command.number];
      slots.insert(slots.end(), call.operands.begin(), call.operands.end());
      slots.insert(slots.end(), call.results.begin(), call.results.end());
    } else if (command.kind == Command::kCopy) {
      slots.push_back(list.copies[command.number].from);
      phase.copied.push_back(list.copies[command.number].output);
    } else if (command.kind == Command::kLaunch) {
      for (const OperandMap& map : list.launches[command.number].maps) slots.push_back(map.slot);
    }
  }
  for (Phase& phase : phases) {
    std::vector<uint32_t>& slots = phase.library_slots;
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    std::erase_if(slots, [this](uint32_t slot) {
      const std::vector<Placement>& placements = compiled.memory.placements;
      return slot >= placements.size() || placements[slot].place == Placement::kArena;
    });
    most = std::max(most, slots.size() + phase.copied.size() + blocks.size());
  }
  library_addresses.reserve(most);
}

absl::Status Program::State::Replay(uint32_t number, absl::Span<void* const> outputs) {
  Phase& phase = phases[number];
  if (phase.known_recording == nullptr) {
    library_addresses.clear();
    for (uint32_t slot : phase.library_slots) library_addresses.push_back(table[slot]);
    for (uint32_t output : phase.copied) library_addresses.push_back(outputs[output]);
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].first <= number && number <= blocks[b].last) {
        library_addresses.push_back(block_addresses[b]);
      }
    }
    phase.known_recording = phase.recordings.Find(library_addresses);
  }
  if (phase.known_recording == nullptr) {
    const absl::StatusOr<Recording*> recording = RecordingFor(number, outputs);
    // The work may go all the same; if not, the reason is the better message.
    if (!recording.ok()) ++stats.failed_recordings;
    if (!recording.ok() || *recording == nullptr) return IssueAll(number, outputs);
    phase.known_recording = *recording;
  }
  RG_RETURN_IF_ERROR(device->Replay(*phase.known_recording));
  ++stats.replays;
  return absl::OkStatus();
}

absl::StatusOr<Recording*> Program::State::RecordingFor(uint32_t number,
                                                        absl::Span<void* const> outputs) {
  Phase& phase = phases[number];
  const bool first = !std::exchange(phase.ran, true);
  const bool came = !options.record_new_addresses && phase.recordings.CameBefore(library_addresses);
  const bool records = options.record_new_addresses ? !phase.recordings.full() : came;
  const bool moves = phase.movable.ready() || !(first || records);
  if (moves && phase.movable.possible()) {
    absl::StatusOr<Recording*> moved = MovedRecording(number, outputs);
    if (moved.ok() && *moved != nullptr) return moved;
    if (!moved.ok()) {
      phase.movable.GiveUp();
      stats.unmovable = std::string(moved.status().message());
    }
  }
  if (!options.record_new_addresses && !came) return nullptr;
  return RecordAll(number, outputs);
}

// The work of a phase at addresses that nobody owns, for a recording that is only looked at.
absl::Status Program::State::IssueMoved(uint32_t number, absl::Span<void* const> outputs,
                                        absl::Span<const int64_t> moved) {
  const auto behind = [](const void* address, int64_t distance) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) +
                                   static_cast<uintptr_t>(distance));
  };
  const auto distance_of = [&](size_t i) { return moved.empty() ? 0 : moved[i]; };
  const std::vector<void*> real_table = table, real_blocks = block_addresses;
  std::vector<void*> moved_outputs(outputs.begin(), outputs.end());
  size_t next = 0;
  for (uint32_t slot : phases[number].library_slots) {
    table[slot] = behind(table[slot], distance_of(next++));
  }
  for (uint32_t output : phases[number].copied) {
    moved_outputs[output] = behind(moved_outputs[output], distance_of(next++));
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (number < blocks[b].first || blocks[b].last < number) continue;
    block_addresses[b] = behind(block_addresses[b], distance_of(next++));
    for (const Slice& slice : slices[b]) {
      table[slice.slot] = behind(block_addresses[b], slice.offset);
    }
  }
  device->Assume(*kernels, table);
  absl::Status status = device->BeginRecording();
  const bool began = status.ok();
  if (began) status = IssueAll(number, moved_outputs);
  if (began) {
    const absl::Status compared = device->EndComparison(*phases[number].movable.recording(), moved);
    if (status.ok()) status = compared;
  }
  table = real_table;
  block_addresses = real_blocks;
  device->Assume(*kernels, table);
  return status;
}

absl::StatusOr<Recording*> Program::State::MovedRecording(uint32_t number,
                                                          absl::Span<void* const> outputs) {
  MovableRecording& movable = phases[number].movable;
  if (!movable.ready()) {
    const auto start = Clock::now();
    RG_RETURN_IF_ERROR(device->BeginRecording());
    const absl::Status issued = IssueAll(number, outputs);
    absl::StatusOr<std::unique_ptr<Recording>> recording = device->EndMovableRecording();
    RG_RETURN_IF_ERROR(issued);
    RG_RETURN_IF_ERROR(recording.status());
    movable.Take(*std::move(recording), library_addresses);
    for (int look = 0; look < MovableRecording::kLooks; ++look) {
      RG_RETURN_IF_ERROR(IssueMoved(number, outputs, movable.Distances(look)));
    }
    RG_RETURN_IF_ERROR(movable.MoveTo(library_addresses, device).status());
    stats.last_recording_ns = (Clock::now() - start) / std::chrono::nanoseconds(1);
    stats.recording_ns += stats.last_recording_ns;
    ++stats.recordings;
    return movable.recording();
  }
  RG_ASSIGN_OR_RETURN(const bool moved, movable.MoveTo(library_addresses, device));
  if (!moved) return nullptr;
  ++stats.moves;
  return movable.recording();
}

absl::StatusOr<Recording*> Program::State::RecordAll(uint32_t number,
                                                     absl::Span<void* const> outputs) {
  const auto start = Clock::now();
  Phase& phase = phases[number];
  RG_RETURN_IF_ERROR(device->BeginRecording());
  const absl::Status issued = IssueAll(number, outputs);
  absl::StatusOr<std::unique_ptr<Recording>> recording =
      device->EndRecording(issued.ok() ? phase.recordings.MakeRoom() : nullptr);
  RG_RETURN_IF_ERROR(issued);
  RG_RETURN_IF_ERROR(recording.status());
  stats.last_recording_ns = (Clock::now() - start) / std::chrono::nanoseconds(1);
  stats.recording_ns += stats.last_recording_ns;
  ++stats.recordings;
  return phase.recordings.Add(library_addresses, *std::move(recording));
}

absl::Status Program::State::RunPhase(uint32_t phase, absl::Span<const void* const> inputs,
                                      absl::Span<void* const> outputs) {
  if (!callers->Same(phase, inputs, outputs)) {
    Changed(phase);
    RG_RETURN_IF_ERROR(callers->Take(phase, inputs, outputs, absl::MakeSpan(table)));
  }
  RG_ASSIGN_OR_RETURN(const bool caller_records, device->CallerRecords());
  if (!bound || caller_records) {
    bound = false;
    RG_RETURN_IF_ERROR(device->Bind(0, *kernels, absl::MakeSpan(table)));
    bound = !caller_records;  // nobody knows when what the caller records is run
  }
  const bool replays = device->records() && options.record && !caller_records;
  return replays ? Replay(phase, outputs) : IssueAll(phase, outputs);
}

absl::Status Program::State::RunPhases(absl::Span<const void* const> inputs,
                                       absl::Span<void* const> outputs, std::optional<void*> stream,
                                       const PhasedRun& phased) {
  if (phased.blocks.size() != blocks.size()) {
    return absl::InvalidArgumentError(absl::StrFormat("the workspace has %d blocks, given were %d",
                                                      blocks.size(), phased.blocks.size()));
  }
  RG_RETURN_IF_ERROR(device->UseStream(stream));
  ++stats.runs;
  for (uint32_t p = 0; p < phases.size(); ++p) {
    if (p > 0) RG_RETURN_IF_ERROR(phased.before(p));
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].first == p) RG_RETURN_IF_ERROR(TakeBlock(b, phased.blocks[b]));
    }
    RG_RETURN_IF_ERROR(RunPhase(p, inputs, outputs));
  }
  return absl::OkStatus();
}

absl::Status Program::State::Run(absl::Span<const void* const> inputs,
                                 absl::Span<void* const> outputs, std::optional<void*> stream,
                                 void* workspace) {
  if (options.caller_workspace) RG_RETURN_IF_ERROR(TakeWorkspace(workspace));
  RG_RETURN_IF_ERROR(device->UseStream(stream));
  ++stats.runs;
  for (uint32_t p = 0; p < phases.size(); ++p) RG_RETURN_IF_ERROR(RunPhase(p, inputs, outputs));
  return absl::OkStatus();
}

absl::Status Program::State::RunAgain(absl::Span<const void* const> inputs,
                                      absl::Span<void* const> outputs) {
  const std::vector<void*> there = block_addresses;
  return RunPhases(inputs, outputs, std::nullopt,
                   {there, [](uint32_t) { return absl::OkStatus(); }});
}

absl::Status Program::Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                          std::optional<void*> stream, void* workspace) {
  const auto start = Clock::now();
  absl::Status status = state_->Run(inputs, outputs, stream, workspace);
  state_->stats.last_run_ns = (Clock::now() - start) / std::chrono::nanoseconds(1);
  return status;
}

absl::Status Program::Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                          std::optional<void*> stream, const PhasedRun& phased) {
  const auto start = Clock::now();
  absl::Status status = state_->RunPhases(inputs, outputs, stream, phased);
  state_->stats.last_run_ns = (Clock::now() - start) / std::chrono::nanoseconds(1);
  return status;
}

absl::StatusOr<std::vector<StepTime>> Program::TimeSteps(
    absl::Span<const void* const> inputs, absl::Span<void* const> outputs, int repetitions,
    bool cold, std::optional<absl::Span<const GroupId>> only) {
  RG_RETURN_IF_ERROR(state_->RunAgain(inputs, outputs));
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
        alone.early = alone.early && i > first;  // what stands in front of the first is not ours
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
  RG_RETURN_IF_ERROR(state_->RunAgain(inputs, outputs));
  RG_RETURN_IF_ERROR(state_->device->Synchronize());
  const auto issue = [&](const Command& command) { return state_->Issue(command, outputs); };
  return TraceSteps(state_->list, state_->options.record, repetitions, issue, state_->device);
}

absl::Span<const KernelResources> Program::resources() const {
  return state_->kernels->resources();
}

}  // namespace retrograd
