#include "runtime/host/host_module.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/print/kernel.h"
#include "runtime/compiler/module_cache.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

namespace fs = std::filesystem;

// Adds `summand` to 64 floats.
Kernel AddKernel(const std::string& name, int summand) {
  return {.name = name,
          .threads = 64,
          .arguments = 1,
          .function = {.comment = absl::StrCat("// adds ", summand, "\n"),
                       .declarations = {{.type = "float", .name = "y"}},
                       .statements = absl::StrCat(
                           "  rg_store(y, RG_THREAD, rg_load(y, RG_THREAD) + ", summand, ");\n")}};
}

HostCompileOptions OptionsFor(const std::string& cache_dir) {
  HostCompileOptions options;
  options.cache_dir = cache_dir;
  return options;
}

// What the kernel adds, -1 if it cannot run.
float Added(const HostModule& module, const std::string& kernel = "rg_add") {
  std::vector<float> y(64, 0.0f);
  const absl::Status status = module.Launch(kernel, 1, 64, {{y.data(), 256, 4, true}});
  return status.ok() && std::equal(y.begin() + 1, y.end(), y.begin()) ? y[0] : -1;
}

// Compiles, runs, and says whether the code came from the cache.
bool WasCached(int summand, const HostCompileOptions& options) {
  auto module = HostModule::Compile({AddKernel("rg_add", summand)}, options);
  INFO(module.status().ToString());
  REQUIRE(module.ok());
  REQUIRE(Added(**module) == summand);
  return (*module)->from_cache();
}

std::vector<fs::path> FilesIn(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void WriteFile(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

WorkDirectory NewFolder() { return *WorkDirectory::MakeIn(fs::temp_directory_path().string()); }

TEST_CASE("what was compiled once is loaded from the cache, unless source or flags differ") {
  const WorkDirectory folder = NewFolder();
  const std::string cache = folder.path() + "/a/b/host";
  HostCompileOptions options = OptionsFor(cache);
  CHECK_FALSE(WasCached(1, options));
  CHECK(WasCached(1, options));
  CHECK_FALSE(WasCached(2, options));
  options.optimization = "-O2";
  CHECK_FALSE(WasCached(1, options));
  options.check = true;
  CHECK_FALSE(WasCached(1, options));
  options.warp = 64;
  CHECK_FALSE(WasCached(1, options));
  CHECK(WasCached(1, options));
  options.cache = false;
  CHECK_FALSE(WasCached(1, options));

  struct stat info;
  REQUIRE(stat(cache.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  // Entries alone: nothing of the work is left behind.
  CHECK(FilesIn(cache).size() == 5);
}

TEST_CASE("a damaged entry is a miss, and is compiled anew") {
  const WorkDirectory folder = NewFolder();
  const std::string cache = folder.path() + "/host";
  const HostCompileOptions options = OptionsFor(cache);
  REQUIRE_FALSE(WasCached(1, options));
  REQUIRE(FilesIn(cache).size() == 1);
  const fs::path entry = FilesIn(cache)[0];
  const std::string good = ReadFile(entry);
  std::vector<std::string> damaged = {"",
                                      "x",
                                      good.substr(0, good.size() - 1),
                                      good.substr(0, good.size() / 2),
                                      good + "x",
                                      std::string(good.size(), '\0')};
  for (size_t at : {size_t{0}, good.size() / 3, good.size() - 100, good.size() - 1}) {
    damaged.push_back(good);
    damaged.back()[at] ^= 1;
  }
  for (const std::string& content : damaged) {
    // As another process would leave it: a new file.
    fs::remove(entry);
    WriteFile(entry, content);
    INFO(content.size() << " of " << good.size() << " bytes");
    CHECK_FALSE(WasCached(1, options));
    CHECK(WasCached(1, options));
  }
  // A whole entry under another one's name.
  REQUIRE_FALSE(WasCached(2, options));
  fs::path other = FilesIn(cache)[0] == entry ? FilesIn(cache)[1] : FilesIn(cache)[0];
  fs::copy_file(other, entry, fs::copy_options::overwrite_existing);
  CHECK_FALSE(WasCached(1, options));
  // A directory in its place.
  fs::remove(entry);
  fs::create_directory(entry);
  CHECK_FALSE(WasCached(1, options));
}

TEST_CASE("where no cache can be written, kernels are compiled all the same") {
  const WorkDirectory folder = NewFolder();
  WriteFile(folder.path() + "/file", "");
  CHECK_FALSE(WasCached(1, OptionsFor(folder.path() + "/file/host")));
  CHECK_FALSE(WasCached(1, OptionsFor(folder.path() + "/file")));
  CHECK_FALSE(WasCached(1, OptionsFor("/proc/host")));
  // A directory of ours, which opens, but in which nobody may make anything: not even root.
  const std::string closed = "/proc/self/fd";
  REQUIRE(ModuleCache::Open(closed, 1000).ok());
  CHECK_FALSE(WasCached(1, OptionsFor(closed)));
}

TEST_CASE("a cache that others can write to is neither read nor written") {
  const WorkDirectory folder = NewFolder();
  const std::string cache = folder.path() + "/host";
  REQUIRE_FALSE(WasCached(1, OptionsFor(cache)));
  chmod(cache.c_str(), 0770);
  CHECK_FALSE(WasCached(1, OptionsFor(cache)));
  CHECK_FALSE(WasCached(2, OptionsFor(cache)));
  CHECK(FilesIn(cache).size() == 1);
  const auto opened = ModuleCache::Open(cache, 1000);
  REQUIRE_FALSE(opened.ok());
  CHECK_THAT(std::string(opened.status().message()), ContainsSubstring("chmod 700"));
}

TEST_CASE("the cache keeps to its size by removing what was used least recently") {
  const WorkDirectory folder = NewFolder();
  const std::string cache = folder.path() + "/host";
  HostCompileOptions options = OptionsFor(cache);
  REQUIRE_FALSE(WasCached(1, options));
  const fs::path first = FilesIn(cache)[0];
  options.cache_bytes = static_cast<int64_t>(fs::file_size(first)) * 5 / 2;
  REQUIRE_FALSE(WasCached(2, options));
  const std::vector<fs::path> both = FilesIn(cache);
  const fs::path second = both[0] == first ? both[1] : both[0];
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(first, now - std::chrono::hours(2));
  fs::last_write_time(second, now - std::chrono::hours(1));
  REQUIRE(WasCached(1, options));  // now the more recently used one
  REQUIRE_FALSE(WasCached(3, options));
  CHECK(fs::exists(first));
  CHECK_FALSE(fs::exists(second));
  // Work that no living process has a lock on is removed.
  fs::create_directory(cache + "/retrograd-work-dead");
  const auto work = WorkDirectory::MakeIn(cache + "/..");
  REQUIRE(work.ok());
  REQUIRE_FALSE(WasCached(4, options));
  CHECK_FALSE(fs::exists(cache + "/retrograd-work-dead"));
  CHECK(fs::exists(work->path()));
}

TEST_CASE("eight processes that compile the same and different kernels at once all get theirs") {
  const WorkDirectory folder = NewFolder();
  const HostCompileOptions options = OptionsFor(folder.path() + "/host");
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      bool good = true;
      for (int summand = 1; summand <= 3; ++summand) {
        const auto module = HostModule::Compile({AddKernel("rg_add", summand)}, options);
        good = good && module.ok() && Added(**module) == summand;
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(FilesIn(folder.path() + "/host").size() == 3);
  CHECK(WasCached(2, options));
}

TEST_CASE("many kernels are compiled by several compilers into one module") {
  std::vector<Kernel> kernels;
  for (int i = 0; i < 20; ++i) kernels.push_back(AddKernel(absl::StrCat("rg_add_", i), i + 1));
  HostCompileOptions options;
  options.cache = false;
  for (int jobs : {1, 2, 5}) {
    options.jobs = jobs;
    const auto module = HostModule::Compile(kernels, options);
    INFO(module.status().ToString());
    REQUIRE(module.ok());
    for (int i = 0; i < 20; ++i) {
      CHECK(Added(**module, absl::StrCat("rg_add_", i)) == static_cast<float>(i + 1));
    }
  }
}

TEST_CASE("no kernels are an empty module") {
  const auto module = HostModule::Compile({}, {});
  REQUIRE(module.ok());
  CHECK((*module)->Find("rg_add").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("what cannot be compiled is a status that says why") {
  HostCompileOptions options;
  options.cache = false;
  const auto message = [&](const std::vector<Kernel>& kernels) {
    const auto module = HostModule::Compile(kernels, options);
    REQUIRE_FALSE(module.ok());
    return std::string(module.status().message());
  };
  const auto with = [](const std::string& name, const std::string& statements) {
    Kernel kernel = AddKernel(name, 1);
    kernel.function.statements = statements;
    return kernel;
  };
  // Below the comment, the head and the argument.
  CHECK_THAT(message({with("rg_wrong", "  nonsense(y);\n")}),
             ContainsSubstring("rg_wrong:4:") && ContainsSubstring("nonsense"));
  CHECK_THAT(message({with("rg_undefined",
                           "  extern float rg_nowhere(float);\n"
                           "  rg_store(y, 0, rg_nowhere(1));\n")}),
             ContainsSubstring("rg_nowhere"));
  CHECK_THAT(message({AddKernel("rg_add", 1), AddKernel("rg_add", 2)}),
             ContainsSubstring("two kernels are named rg_add"));
  CHECK_THAT(message({AddKernel("2x", 1)}), ContainsSubstring("\"2x\""));
  options.compiler = "no-such-compiler";
  CHECK_THAT(message({AddKernel("rg_add", 1)}),
             ContainsSubstring("no-such-compiler not found") && ContainsSubstring("install"));
  options.compiler = "false";
  CHECK_THAT(message({AddKernel("rg_add", 1)}), ContainsSubstring("is it a C++ compiler?"));
  options.compiler = "";
  options.warp = 16;
  CHECK_THAT(message({AddKernel("rg_add", 1)}), ContainsSubstring("a warp of 16"));
}

TEST_CASE("the other common compiler compiles the host dialect too") {
  HostCompileOptions options;
  options.cache = false;
  options.compiler = "clang++";
  const auto module = HostModule::Compile({AddKernel("rg_add", 3)}, options);
  if (absl::StrContains(module.status().ToString(), "not found")) RG_SKIP("clang++ is missing");
  INFO(module.status().ToString());
  REQUIRE(module.ok());
  CHECK(Added(**module) == 3);
}

}  // namespace
}  // namespace retrograd
