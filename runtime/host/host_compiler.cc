#include "runtime/host/host_compiler.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/base/status.h"
#include "runtime/compiler/child_process.h"

#ifndef RETROGRAD_HOST_COMPILER
#define RETROGRAD_HOST_COMPILER "c++"
#endif

namespace retrograd {
namespace {

// Empty if there is no such program.
std::string OnPath(const std::string& name) {
  if (absl::StrContains(name, "/")) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path != nullptr ? path : "/usr/bin:/bin", ':')) {
    if (folder.empty()) continue;
    std::string candidate = absl::StrCat(folder, "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

absl::StatusOr<std::string> VersionOf(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::string>& known = *new std::map<std::string, std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto it = known.find(path);
  if (it != known.end()) return it->second;
  RG_ASSIGN_OR_RETURN(const std::vector<ProcessResult> results,
                      RunProcesses({{path, "--version"}}));
  if (results[0].exit_code != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " --version fails; is it a C++ compiler?"));
  }
  const std::vector<absl::string_view> lines = absl::StrSplit(results[0].output, '\n');
  return known[path] = std::string(lines[0]);
}

// The first three lines that name an error, else the first three.
std::string FirstErrors(const std::string& output) {
  const std::vector<absl::string_view> lines = absl::StrSplit(output, '\n', absl::SkipWhitespace());
  std::vector<absl::string_view> errors;
  for (absl::string_view line : lines) {
    if (absl::StrContains(line, "error") && errors.size() < 3) errors.push_back(line);
  }
  for (size_t i = 0; errors.empty() && i < lines.size() && i < 3; ++i) errors.push_back(lines[i]);
  return errors.empty() ? "no message" : absl::StrJoin(errors, " | ");
}

absl::Status RunAll(const std::vector<std::vector<std::string>>& commands,
                    const std::string& temporary_folder, const Cancelled& cancelled) {
  RG_ASSIGN_OR_RETURN(const std::vector<ProcessResult> results,
                      RunProcesses(commands, temporary_folder, cancelled));
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].exit_code == 0) continue;
    if (absl::StrContains(results[i].output, "No space left on device")) {
      return absl::UnavailableError("host kernels do not compile: no space left on the disk");
    }
    return absl::InternalError(absl::StrCat("host kernels do not compile: ", commands[i][0],
                                            " ended with ", results[i].exit_code, ": ",
                                            FirstErrors(results[i].output)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostCompiler> FindHostCompiler(const std::string& name) {
  std::vector<std::string> names = {name};
  if (name.empty()) names = {RETROGRAD_HOST_COMPILER, "c++", "g++", "clang++"};
  for (const std::string& candidate : names) {
    std::string path = OnPath(candidate);
    if (path.empty()) continue;
    RG_ASSIGN_OR_RETURN(std::string version, VersionOf(path));
    return HostCompiler{std::move(path), std::move(version)};
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no C++ compiler for host kernels: ", absl::StrJoin(names, ", "),
                   " not found; install g++ or name one"));
}

absl::Status CompileSharedObject(const HostCompiler& compiler,
                                 const std::vector<std::string>& flags,
                                 const std::vector<std::string>& sources, const std::string& output,
                                 const Cancelled& cancelled) {
  std::vector<std::vector<std::string>> commands;
  std::vector<std::string> link = {compiler.path, "-shared", "-nostdlib", "-o", output};
  for (const std::string& source : sources) {
    const std::string object = absl::StrCat(source, ".o");
    std::vector<std::string> command = {compiler.path};
    command.insert(command.end(), flags.begin(), flags.end());
    for (const std::string& part : {std::string("-c"), source, std::string("-o"), object}) {
      command.push_back(part);
    }
    commands.push_back(std::move(command));
    link.push_back(object);
  }
  // Kernels call nothing but the C library; the compiler's own library has what it calls by itself.
  for (const char* library : {"-lm", "-lc", "-lgcc"}) link.push_back(library);
  const std::string folder = std::filesystem::path(output).parent_path().string();
  RG_RETURN_IF_ERROR(RunAll(commands, folder, cancelled));
  return RunAll({link}, folder, cancelled);
}

}  // namespace retrograd
