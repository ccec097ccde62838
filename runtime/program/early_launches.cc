#include "runtime/program/early_launches.h"

#include <map>

#include "absl/strings/str_format.h"

namespace retrograd {
namespace {

// The command right in front of the launch on its stream, if a launch may start early behind it.
using LastCommands = std::map<int, const Command*>;  // by stream
const Command* InFront(const LastCommands& last, const Command& command) {
  const auto found = last.find(command.stream);
  if (found == last.end() || found->second->phase != command.phase) return nullptr;
  return found->second->kind == Command::kLaunch ? found->second : nullptr;
}

// Calls fn(command, the launch in front or null) for every launch. An event that is recorded
// between two launches is no work.
template <typename Commands, typename Fn>
void ForEachLaunch(Commands& commands, Fn fn) {
  LastCommands last;
  for (auto& command : commands) {
    if (command.kind == Command::kLaunch) fn(command, InFront(last, command));
    if (command.kind != Command::kRecord) last[command.stream] = &command;
  }
}

bool IsSmall(const CompiledPlan& compiled, const CommandList& list, const Command& command) {
  int64_t bytes = 0;
  for (const LaunchArg& arg : list.launches[command.number].args) bytes += arg.bytes;
  // The launches of a group share its price.
  const size_t group = Index(command.group);
  const auto launches = static_cast<int64_t>(compiled.kernels[group].launches.size());
  return bytes <= compiled.early.most_bytes &&
         compiled.plan.groups[group].price_ps / launches <= compiled.early.longest_ps;
}

}  // namespace

EarlyLaunchLimits EarlyLaunchLimitsOf(const DeviceSpec& spec) {
  return {spec.early_launch_gain_ps, spec.early_launch_longest_ps, spec.early_launch_bytes};
}

void MarkEarlyLaunches(const CompiledPlan& compiled, CommandList* list) {
  if (compiled.early.gain_ps <= 0) return;
  ForEachLaunch(list->commands, [&](Command& command, const Command* in_front) {
    command.early = in_front != nullptr && list->launches[command.number].starts_early &&
                    IsSmall(compiled, *list, command) && IsSmall(compiled, *list, *in_front);
  });
}

absl::Status CheckEarlyLaunches(const CommandList& list) {
  absl::Status status;
  ForEachLaunch(list.commands, [&](const Command& command, const Command* in_front) {
    const Launch& launch = list.launches[command.number];
    if (!command.early || (in_front != nullptr && launch.starts_early)) return;
    status.Update(absl::InternalError(absl::StrFormat(
        "the launch of %s on stream %d is early, but %s", launch.kernel, command.stream,
        in_front == nullptr ? "stands behind no launch" : "does not wait for what is before it")));
  });
  return status;
}

}  // namespace retrograd
