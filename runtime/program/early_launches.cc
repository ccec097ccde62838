#include "runtime/program/early_launches.h"

#include <map>

#include "absl/strings/str_format.h"

namespace retrograd {
namespace {

bool IsWork(const Command& command) {
  return command.kind == Command::kLaunch || command.kind == Command::kCall;
}

// The command right in front of the work on its stream, if work may start early behind it.
using LastCommands = std::map<int, const Command*>;  // by stream
const Command* InFront(const LastCommands& last, const Command& command) {
  const auto found = last.find(command.stream);
  if (found == last.end() || found->second->phase != command.phase) return nullptr;
  return IsWork(*found->second) ? found->second : nullptr;
}

// Calls fn(command, the launch or call in front or null) for every launch and call. An event that
// is recorded between two of them is no work.
template <typename Commands, typename Fn>
void ForEachWork(Commands& commands, Fn fn) {
  LastCommands last;
  for (auto& command : commands) {
    if (IsWork(command)) fn(command, InFront(last, command));
    if (command.kind != Command::kRecord) last[command.stream] = &command;
  }
}

// A call is told that it may start early, and waits if it does.
bool MayWait(const CommandList& list, const Command& command) {
  return command.kind == Command::kCall || list.launches[command.number].starts_early;
}

bool IsScatter(const Group& group) {
  const std::vector<const KernelBody*> kernels = KernelsOf(group);
  return !kernels.empty() && kernels[0]->ir.scatter.has_value();  // then all of them are
}

// The later launch of a group adds up what the one in front has left for it. One that starts early
// itself says at once that others may start, whose blocks would then take room from its own.
bool AddsUp(const CommandList& list, const Command& command, const Command& in_front) {
  return command.kind == Command::kLaunch && in_front.kind == Command::kLaunch &&
         command.group == in_front.group && !list.launches[in_front.number].starts_early;
}

int64_t BytesOf(const Launch& launch) {
  int64_t bytes = 0;
  for (const LaunchArg& arg : launch.args) bytes += arg.bytes;
  return bytes;
}

int64_t BytesOf(const Call& call) {
  int64_t bytes = 0;
  for (const CallTensor& t : call.operands) bytes += SpanOf(t) * SizeBytes(t.dtype);
  for (const CallTensor& t : call.results) bytes += SpanOf(t) * SizeBytes(t.dtype);
  return bytes;
}

int64_t BytesOf(const CallCommand& command) {
  int64_t bytes = command.members.empty() ? BytesOf(*command.call) : 0;
  for (const CallCommand::Member& member : command.members) bytes += BytesOf(*member.call);
  return bytes;
}

bool IsSmall(const CompiledPlan& compiled, const CommandList& list, const Command& command) {
  const bool call = command.kind == Command::kCall;
  const int64_t bytes =
      call ? BytesOf(list.calls[command.number]) : BytesOf(list.launches[command.number]);
  // The launches of a group share its price.
  const size_t group = Index(command.group);
  const auto launches = call ? 1 : static_cast<int64_t>(compiled.kernels[group].launches.size());
  if (IsScatter(compiled.plan.groups[group])) return true;
  return bytes <= compiled.early.most_bytes &&
         compiled.plan.groups[group].price_ps / launches <= compiled.early.longest_ps;
}

}  // namespace

EarlyLaunchLimits EarlyLaunchLimitsOf(const DeviceSpec& spec) {
  return {spec.early_launch_gain_ps, spec.early_launch_longest_ps, spec.early_launch_bytes};
}

bool MayStartEarly(const Group& group, int64_t launches, const EarlyLaunchLimits& limits) {
  return limits.gain_ps > 0 && (IsScatter(group) || group.price_ps / launches <= limits.longest_ps);
}

void MarkEarlyLaunches(const CompiledPlan& compiled, CommandList* list) {
  if (compiled.early.gain_ps <= 0) return;
  ForEachWork(list->commands, [&](Command& command, const Command* in_front) {
    if (in_front == nullptr || !MayWait(*list, command)) return;
    command.early = AddsUp(*list, command, *in_front) ||
                    (IsSmall(compiled, *list, command) && IsSmall(compiled, *list, *in_front));
  });
}

absl::Status CheckEarlyLaunches(const CommandList& list) {
  absl::Status status;
  ForEachWork(list.commands, [&](const Command& command, const Command* in_front) {
    if (!command.early || (in_front != nullptr && MayWait(list, command))) return;
    const bool call = command.kind == Command::kCall;
    status.Update(absl::InternalError(absl::StrFormat(
        "the %s of %s on stream %d is early, but %s", call ? "call" : "launch",
        call ? Name(list.calls[command.number].call->op) : list.launches[command.number].kernel,
        command.stream,
        in_front == nullptr ? "stands behind no launch or call"
                            : "does not wait for what is before it")));
  });
  return status;
}

}  // namespace retrograd
