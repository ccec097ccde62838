#include "runtime/compiler/child_process.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

std::vector<ProcessResult> Results(const std::vector<std::vector<std::string>>& commands,
                                   const std::string& temporary_folder = "") {
  auto results = RunProcesses(commands, temporary_folder);
  INFO(results.status());
  REQUIRE(results.ok());
  return *std::move(results);
}

std::vector<std::string> Shell(const std::string& text) { return {"/bin/sh", "-c", text}; }

TEST_CASE("programs run side by side; their outputs and ends come in their order") {
  const auto results = Results(
      {Shell("sleep 0.1; echo one >&2; exit 3"), Shell("echo two"), Shell("kill -KILL $$")});
  REQUIRE(results.size() == 3);
  CHECK(results[0].output == "one\n");
  CHECK(results[0].exit_code == 3);
  CHECK(results[1].output == "two\n");
  CHECK(results[1].exit_code == 0);
  CHECK(results[2].exit_code == 128 + 9);
}

TEST_CASE("a program that is not there is an error, and the others are waited for") {
  const auto results = RunProcesses({Shell("exit 0"), {"/nowhere/program"}});
  CHECK_THAT(std::string(results.status().message()), ContainsSubstring("/nowhere/program"));
}

TEST_CASE("programs put their temporary files where they are told, else where we would") {
  CHECK(Results({Shell("printf %s \"$TMPDIR\"")}, "/some/folder")[0].output == "/some/folder");
  const char* ours = std::getenv("TMPDIR");
  CHECK(Results({Shell("printf %s \"$TMPDIR\"")})[0].output == (ours == nullptr ? "" : ours));
}

TEST_CASE("a compiler that is killed leaves nothing outside of the folder that it works in") {
  auto work = WorkDirectory::MakeIn(std::filesystem::temp_directory_path().string());
  REQUIRE(work.ok());
  const std::string compiler = work->path() + "/c++", note = work->path() + "/note";
  std::ofstream(compiler) << "#!/bin/sh\n[ \"$1\" = --version ] && { echo one; exit 0; }\n"
                          << "printf %s \"$TMPDIR\" >" << note << "\nexit 1\n";
  REQUIRE(chmod(compiler.c_str(), 0755) == 0);
  HostCompileOptions options;
  options.compiler = compiler;
  options.cache_dir = work->path() + "/cache";
  const Kernel kernel{.name = "rg_nothing", .threads = 64, .arguments = 0};
  CHECK_FALSE(HostModule::Compile({kernel}, options).ok());
  std::ifstream in(note);
  const std::string told((std::istreambuf_iterator<char>(in)), {});
  CHECK(absl::StartsWith(told, options.cache_dir + "/"));
}

}  // namespace
}  // namespace retrograd
