#include "runtime/compiler/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

extern char** environ;

namespace retrograd {
namespace {

constexpr size_t kMostOutput = size_t{64} << 10;

struct Child {
  pid_t pid = -1;
  int output = -1;  // the reading end of its pipe
};

// Ours, with another TMPDIR.
std::vector<std::string> EnvironmentWith(const std::string& temporary_folder) {
  constexpr absl::string_view kName = "TMPDIR=";
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (temporary_folder.empty() || !absl::StartsWith(*variable, kName))
      variables.emplace_back(*variable);
  }
  if (!temporary_folder.empty()) variables.push_back(absl::StrCat(kName, temporary_folder));
  return variables;
}

// As execve takes them; they point into the strings.
std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<Child> Start(const std::vector<std::string>& command,
                            const std::vector<std::string>& environment) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no pipe: ", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
  const std::vector<char*> arguments = Pointers(command), variables = Pointers(environment);
  Child child;
  const int error =
      posix_spawn(&child.pid, arguments[0], &actions, nullptr, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (error != 0) {
    close(pipe_ends[0]);
    return absl::FailedPreconditionError(
        absl::StrCat("cannot run ", command[0], ": ", std::strerror(error)));
  }
  child.output = pipe_ends[0];
  return child;
}

constexpr int kPollMilliseconds = 20;

// Reads to the end even past what is kept, so that the child never blocks; or until it is
// cancelled, since what a child has started may hold its output open.
ProcessResult Finish(const Child& child, const Cancelled& cancelled) {
  ProcessResult result;
  char buffer[4096];
  pollfd ready = {.fd = child.output, .events = POLLIN};
  while (true) {
    if (cancelled && poll(&ready, 1, kPollMilliseconds) <= 0) {
      if (!cancelled()) continue;
      kill(child.pid, SIGTERM);
      break;
    }
    const ssize_t got = read(child.output, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    result.output.append(buffer, std::min<size_t>(got, kMostOutput - result.output.size()));
  }
  close(child.output);
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace

absl::StatusOr<std::vector<ProcessResult>> RunProcesses(
    const std::vector<std::vector<std::string>>& commands, const std::string& temporary_folder,
    const Cancelled& cancelled) {
  const std::vector<std::string> environment = EnvironmentWith(temporary_folder);
  std::vector<Child> children;
  absl::Status failure;
  for (const std::vector<std::string>& command : commands) {
    absl::StatusOr<Child> child = Start(command, environment);
    if (!child.ok()) {
      failure = child.status();
      break;
    }
    children.push_back(*child);
  }
  std::vector<ProcessResult> results;
  for (const Child& child : children) results.push_back(Finish(child, cancelled));
  RG_RETURN_IF_ERROR(CheckCancelled(cancelled));
  if (!failure.ok()) return failure;
  return results;
}

}  // namespace retrograd
