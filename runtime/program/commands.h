// What a program does in a run, as a list: everything that does not change from run to run is
// decided when it is loaded.
#ifndef RETROGRAD_RUNTIME_PROGRAM_COMMANDS_H_
#define RETROGRAD_RUNTIME_PROGRAM_COMMANDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/program/compile.h"

namespace retrograd {

// Slots of the pointer table: one per placement of the memory plan, in its order, then one per
// workspace, then one per part of a workspace that kernels of one launch share.
struct CallCommand {
  struct Member {
    const Call* call = nullptr;
    CallFacts facts;
  };
  const Call* call = nullptr;  // of calls that share launches, the first
  CallFacts facts;
  std::vector<Member> members;  // calls that share launches; empty: one alone
  // Of all members, one behind another.
  std::vector<uint32_t> operands, results;  // slots
  std::vector<const void*> operand_data;    // room for a run's addresses
  std::vector<void*> result_data;
};
struct CopyCommand {
  uint32_t output = 0;  // of the graph
  uint32_t from = 0;    // slot
  DType dtype = DType::kFp32;
  int64_t offset_bytes = 0;
  std::vector<int64_t> shape, from_strides, to_strides;
};

struct Command {
  enum Kind : uint8_t { kWait, kRecord, kLaunch, kCall, kCopy };
  Kind kind = kLaunch;
  int stream = 0;
  uint32_t number = 0;       // kWait, kRecord: the event; else place in the list of its kind
  GroupId group = kNoGroup;  // whose work it is, if it is a group's
  uint32_t phase = 0;
  bool early = false;  // of kLaunch: by LaunchEarly; of kCall: it may (early_launches.h)
};

struct WorkspacePart {
  size_t workspace = 0;  // of the memory plan
  int64_t offset = 0, bytes = 0;
};

struct CommandList {
  std::vector<Command> commands;
  std::vector<Launch> launches;
  std::vector<CallCommand> calls;
  std::vector<CopyCommand> copies;
  std::vector<WorkspacePart> parts;
  uint32_t slots = 0;
  int events = 0;
  std::vector<size_t> phase_begins;  // by phase: its first command
  std::vector<int64_t> alignment;    // by slot: what its address must be a multiple of, in bytes
};

// Points into `compiled`, which must stay where it is. order_seed: see ProgramOptions.
absl::StatusOr<CommandList> BuildCommands(const CompiledPlan& compiled, uint64_t order_seed);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_COMMANDS_H_
