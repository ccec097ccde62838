// What the devices of GPUs keep on disk: a second load makes nothing again, and what is damaged or
// not to be trusted is made anew. On drivers that the test suite brings along.
#include <filesystem>
#include <fstream>
#include <random>

#include "runtime/compiler/module_cache.h"
#include "tests/catch.h"
#include "tests/support/fake_gpu.h"

namespace retrograd {
namespace {

void Damage(const std::filesystem::path& entry, std::mt19937& random) {
  const auto bytes = std::filesystem::file_size(entry);
  if (random() % 2 == 0) {
    std::filesystem::resize_file(entry, random() % bytes);
    return;
  }
  std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(random() % bytes);
  file.seekg(at);
  const char flipped = static_cast<char>(file.get() ^ 4);
  file.seekp(at);
  file.put(flipped);
}

TEST_CASE("a second load compiles nothing and times no matmul; damaged entries are made anew") {
  RG_ON_EACH_GPU(gpu);
  const auto work = WorkDirectory::MakeIn("/tmp");
  REQUIRE(work.ok());
  FakeOptions options(gpu.vendor);
  options.cache_dir = work->path() + "/cache";
  // How many compilations a load takes, and whether anything is timed: how often depends on the
  // times.
  const auto works = [&] {
    gpu.driver.reset();
    const LoadedProgram loaded = gpu.LoadOn(options);
    INFO(loaded.status);
    REQUIRE(loaded.status.ok());
    const int compilations = gpu.driver.calls("CompileProgram");
    const bool timed = gpu.driver.calls("EventElapsedTime") > 0;
    CHECK(gpu.Run(*gpu.NewTensors(loaded), loaded) < kFp32Error);
    return std::pair(compilations, timed);
  };
  const auto cold = works();
  CHECK(cold.first > 1);
  CHECK(cold.second);
  CHECK(works() == std::pair(0, false));

  std::mt19937 random(7);
  std::vector<std::filesystem::path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(options.cache_dir)) {
    entries.push_back(entry.path());
  }
  CHECK(entries.size() > 2);
  for (const std::filesystem::path& entry : entries) Damage(entry, random);
  CHECK(works() == cold);
  CHECK(works() == std::pair(0, false));

  // Where nothing can be kept, or nothing of others be trusted, everything is made each time.
  std::filesystem::permissions(options.cache_dir, std::filesystem::perms::all);
  CHECK(works() == cold);
  options.cache_dir = "/proc/nothing/here";
  CHECK(works() == cold);
}

TEST_CASE("choices of a GPU with another number of multiprocessors are not taken") {
  RG_ON_EACH_GPU(gpu);
  const auto work = WorkDirectory::MakeIn("/tmp");
  REQUIRE(work.ok());
  FakeOptions options(gpu.vendor);
  options.cache_dir = work->path() + "/cache";
  const auto times = [&](int sms) {
    gpu.driver.reset();
    gpu.driver.set("sms", sms);
    const LoadedProgram loaded = gpu.LoadOn(options);
    REQUIRE(loaded.status.ok());
    const Choices& choices = *loaded.device->choices();
    CHECK(choices.size() > 0);
    for (const auto& [key, choice] : choices) {
      CHECK_THAT(key.device, ContainsSubstring(std::to_string(sms) + " multiprocessors"));
      CHECK(choice.uses.size() > 0);
    }
    return gpu.driver.calls("EventElapsedTime") > 0;
  };
  CHECK(times(8));
  CHECK_FALSE(times(8));
  CHECK(times(4));
  CHECK_FALSE(times(4));
}

}  // namespace
}  // namespace retrograd
