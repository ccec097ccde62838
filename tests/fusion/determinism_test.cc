// The same graph and device give the same plan to the byte in any process, whatever hash tables are
// seeded with, and whichever compiler built the planner.
//
// RETROGRAD_PLAN_PROCESSES=1000 starts so many processes instead of 100. The comparison of
// compilers needs build/fuzz/bin/plan_digest (make fuzz builds it with clang); one that is older
// than its sources is not compared.
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/proto/proto.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

namespace fs = std::filesystem;

constexpr char kOurs[] = RETROGRAD_TEST_DIR "/plan_digest";
constexpr char kClangs[] = RETROGRAD_SOURCE_DIR "/build/fuzz/bin/plan_digest";

struct Digests {
  std::string plans, seed;
};

// What a command prints; it is trusted text of this file.
struct Printed {
  int status = -1;
  std::string out;
};
Printed Run(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Printed printed;
  std::array<char, 4096> buffer;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) {
    printed.out.append(buffer.data(), n);
  }
  printed.status = WEXITSTATUS(pclose(pipe));
  return printed;
}

// A source below the folders, or one of the files, that is younger than the binary: a build would
// make another one. Empty: there is none.
std::string Outdated(const fs::path& binary, const std::vector<fs::path>& sources) {
  const fs::file_time_type built = fs::last_write_time(binary);
  const auto younger = [&](const fs::path& file) {
    const std::string kind = file.extension().string();
    const bool source = kind == ".cc" || kind == ".h" || kind == ".def" || kind == ".proto";
    return source && fs::last_write_time(file) > built;
  };
  for (const fs::path& source : sources) {
    if (younger(source)) return source.string();
    if (!fs::is_directory(source)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(source)) {
      if (younger(entry.path())) return entry.path().string();
    }
  }
  return "";
}

Digests RunDigest(const std::string& binary, const std::string& arguments) {
  const auto [status, out] = Run(absl::StrCat(binary, " ", arguments));
  REQUIRE(status == 0);
  const size_t seed = out.find("seed ");
  REQUIRE(seed != std::string::npos);
  return {out.substr(0, seed), out.substr(seed)};
}

// Whether addresses differ between processes at all here.
bool Randomizes() {
  std::ifstream file("/proc/sys/kernel/randomize_va_space");
  int level = 0;
  return file >> level && level > 0;
}

struct TemporaryFolder {
  fs::path path = fs::temp_directory_path() / absl::StrCat("determinism_test_", getpid());
  TemporaryFolder() { fs::create_directories(path); }
  ~TemporaryFolder() { fs::remove_all(path); }
};

TEST_CASE("a plan is the same in every process, under different hash seeds") {
  const TemporaryFolder folder;
  std::string files;
  for (uint32_t seed : {1u, 2u}) {
    const std::string path = (folder.path / absl::StrCat(seed, ".bwd.pb")).string();
    REQUIRE(SaveGraph(RandomGraph(seed, {.min_ops = 20, .max_ops = 30}), path).ok());
    absl::StrAppend(&files, " ", path);
  }
  const char* number = std::getenv("RETROGRAD_PLAN_PROCESSES");
  const int processes = number == nullptr ? 100 : std::atoi(number);
  std::set<std::string> plans, seeds;
  for (int i = 0; i < processes; ++i) {
    const Digests d = RunDigest(kOurs, "h200" + files);
    plans.insert(d.plans);
    seeds.insert(d.seed);
  }
  std::printf("%d processes, %zu hash seeds, %zu plans of 2 graphs\n", processes, seeds.size(),
              plans.size());
  CHECK(plans.size() == 1);
  if (Randomizes()) CHECK(static_cast<int>(seeds.size()) > processes / 2);
}

TEST_CASE("a binary that is older than a source of it is told apart from a current one") {
  const TemporaryFolder folder;
  const fs::path sources = folder.path / "sources", source = sources / "inner" / "a.cc";
  fs::create_directories(source.parent_path());
  for (const fs::path& file : {source, sources / "page.md", folder.path / "binary"}) {
    std::ofstream(file) << "x";
  }
  const auto now = fs::last_write_time(folder.path / "binary");
  fs::last_write_time(source, now - std::chrono::seconds(1));
  fs::last_write_time(sources / "page.md", now + std::chrono::seconds(1));
  CHECK(Outdated(folder.path / "binary", {sources, source}).empty());
  fs::last_write_time(source, now + std::chrono::seconds(1));
  CHECK(Outdated(folder.path / "binary", {sources}) == source.string());
  CHECK(Outdated(folder.path / "binary", {source}) == source.string());
}

TEST_CASE("the planner that clang builds makes the same plans of every captured graph") {
  if (!fs::exists(kClangs)) {
    std::printf("[SKIP] no %s: the planner as clang builds it\n", kClangs);
    return;
  }
  const fs::path root = RETROGRAD_SOURCE_DIR;
  const std::string changed =
      Outdated(kClangs, {root / "graph", root / "fusion", root / "tests/fusion/plan_digest.cc"});
  if (!changed.empty()) {
    std::printf("[SKIP] %s is older than %s: make fuzz builds it again\n", kClangs,
                changed.c_str());
    return;
  }
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(RETROGRAD_SOURCE_DIR "/models/graphs")) {
    if (entry.path().extension() == ".pb") files.insert(entry.path().string());
  }
  REQUIRE(files.size() >= 10);
  std::string list;
  for (const std::string& file : files) absl::StrAppend(&list, " ", file);
  for (const char* device : {"h200", "mi300x"}) {
    INFO(device);
    CHECK(RunDigest(kClangs, device + list).plans == RunDigest(kOurs, device + list).plans);
  }
}

}  // namespace
}  // namespace retrograd
