// The cache of compiled objects in bad weather: whoever dies, fills the disk or tampers, readers
// get whole entries of their key or none.
#include "runtime/compiler/module_cache.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPlenty = int64_t{1} << 30;

// A cache directory that is not there yet, inside one that goes with the test.
struct Place {
  WorkDirectory work = *WorkDirectory::MakeIn(fs::temp_directory_path());
  std::string cache = work.path() + "/cache";
};

std::string Key(int i) { return absl::StrCat("key ", i); }

// What is stored for a key; long enough to take several writes.
std::string ValueOf(int i) {
  std::string value;
  for (std::mt19937 random(static_cast<unsigned>(i)); value.size() < 300'000;) {
    value.push_back(static_cast<char>(random()));
  }
  return value;
}

// Runs the work in a process of its own, which ends with the number that it returns.
template <typename Work>
pid_t Fork(Work work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  return child;
}

// The exit status, or minus the signal.
int WaitFor(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1000;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_CASE(
    "64 processes that write and read the same entries at once get whole ones of their keys") {
  const Place place;
  constexpr int kProcesses = 64, kKeys = 5, kRounds = 12;
  std::vector<std::string> values;
  for (int i = 0; i < kKeys; ++i) values.push_back(ValueOf(i));
  const auto work = [&](int process) {
    // Room for three entries of five: some are removed while others read them.
    auto cache = ModuleCache::Open(place.cache, 1'000'000);
    if (!cache.ok()) return 1;
    for (int round = 0; round < kRounds; ++round) {
      const int key = (process + round) % kKeys;
      if (const auto entry = cache->Read(Key(key))) {
        if (*entry != values[key]) return 2;
      } else if (!cache->Write(Key(key), values[key]).ok()) {
        return 3;
      }
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.push_back(Fork([&] { return work(process); }));
  }
  for (pid_t child : children) CHECK(WaitFor(child) == 0);
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(place.cache)) {
    CHECK(entry.path().extension() == ".so");  // no work is left lying
    bytes += static_cast<int64_t>(entry.file_size());
  }
  CHECK(bytes <= 1'000'000);
  int found = 0;
  for (int key = 0; key < kKeys; ++key) {
    const auto entry = ModuleCache::Open(place.cache, kPlenty)->Read(Key(key));
    found += entry.has_value() ? 1 : 0;
    if (entry.has_value()) CHECK((*entry == values[key]));
  }
  CHECK(found == 3);
}

TEST_CASE("a process killed at any moment of writing leaves a whole entry or none") {
  const Place place;
  const auto cache = ModuleCache::Open(place.cache, kPlenty);
  REQUIRE(cache.ok());
  const std::string first = ValueOf(1), second = ValueOf(2);
  REQUIRE(cache->Write(Key(1), first).ok());
  const auto left = [&] {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(place.cache)) count += entry.is_directory();
    return count;
  };
  int rounds = 0, killed = 0, most_left = 0;
  // On a busy machine the writer may not have begun so soon: on until one has died while it wrote.
  for (; rounds < 60 || (most_left == 0 && rounds < 2000); ++rounds) {
    const int delay_us = rounds % 600 * 50;
    const pid_t writer = Fork([&] {
      // The same key in turn with either value, and new keys, for ever.
      for (int i = 0;; ++i) {
        (void)cache->Write(Key(1), i % 2 == 0 ? second : first);
        (void)cache->Write(Key(2), second);
      }
      return 0;
    });
    usleep(delay_us);
    kill(writer, SIGKILL);
    killed += WaitFor(writer) == -SIGKILL ? 1 : 0;
    most_left = std::max(most_left, left());
    const auto one = cache->Read(Key(1));
    REQUIRE(one.has_value());  // there has been one throughout
    REQUIRE((*one == first || *one == second));
    const auto two = cache->Read(Key(2));
    REQUIRE((!two.has_value() || *two == second));
  }
  CHECK(killed == rounds);
  // What the dead left behind is no entry, and goes with the next write.
  CHECK(most_left > 0);
  REQUIRE(cache->Write(Key(3), first).ok());
  CHECK(left() == 0);
  CHECK(*cache->Read(Key(3)) == first);
}

TEST_CASE("work of a process that was killed is removed with what it holds, and no other's") {
  const Place place;
  const std::string parent = place.work.path();
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t owner = Fork([&] {
    const auto work = WorkDirectory::MakeIn(parent);
    if (!work.ok()) return 1;
    std::ofstream(work->path() + "/object.o") << "half";
    fs::create_directory(work->path() + "/sources");
    const char byte = 1;
    if (write(ready[1], &byte, 1) != 1) return 2;
    pause();
    return 0;
  });
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  fs::create_directory(parent + "/work-of-others");
  const auto folders = [&] {
    return std::distance(fs::directory_iterator(parent), fs::directory_iterator());
  };
  {
    const auto mine = WorkDirectory::MakeIn(parent);
    REQUIRE(mine.ok());
    CHECK(folders() == 3);  // the living owner's stays
    kill(owner, SIGKILL);
    REQUIRE(WaitFor(owner) == -SIGKILL);
    CHECK(folders() == 3);
    const auto next = WorkDirectory::MakeIn(parent);
    REQUIRE(next.ok());
    CHECK(folders() == 3);
    CHECK(fs::exists(mine->path()));
    CHECK(fs::exists(next->path()));
  }
  CHECK(folders() == 1);
  CHECK(fs::exists(parent + "/work-of-others"));
}

TEST_CASE("what the dead left goes when a process first opens the cache, and with its next write") {
  const Place place;
  const std::string dead = place.cache + "/retrograd-work-dead";
  REQUIRE(fs::create_directories(dead + "/sources"));
  fs::permissions(place.cache, fs::perms::owner_all);
  const auto cache = ModuleCache::Open(place.cache, kPlenty);
  REQUIRE(cache.ok());
  CHECK_FALSE(fs::exists(dead));
  REQUIRE(fs::create_directory(dead));
  REQUIRE(ModuleCache::Open(place.cache, kPlenty).ok());
  CHECK(fs::exists(dead));  // a program of another size looks through nothing
  REQUIRE(cache->Write(Key(1), ValueOf(1)).ok());
  CHECK_FALSE(fs::exists(dead));
}

TEST_CASE("on a full disk a write is a status, what was there stays, and later writes work") {
  const Place place;
  const auto cache = ModuleCache::Open(place.cache, kPlenty);
  REQUIRE(cache.ok());
  const std::string first = ValueOf(1), second = ValueOf(2);
  REQUIRE(cache->Write(Key(1), first).ok());
  // Files that may grow to 100 kB stand for a disk with so much room.
  for (const rlim_t room : {0, 1, 100'000, 300'000}) {
    const pid_t writer = Fork([&] {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{room, room};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
      if (cache->Write(Key(1), second).ok()) return 2;
      if (cache->Write(Key(2), second).ok()) return 3;
      if (cache->Read(Key(1)) != first) return 4;
      return 0;
    });
    CHECK(WaitFor(writer) == 0);
    CHECK(*cache->Read(Key(1)) == first);
    CHECK_FALSE(cache->Read(Key(2)).has_value());
  }
  for (const auto& entry : fs::directory_iterator(place.cache)) CHECK(entry.is_regular_file());
  CHECK(cache->Write(Key(2), second).ok());
  CHECK(*cache->Read(Key(2)) == second);
}

TEST_CASE(
    "directories that cannot be written, are another user's or are no directories are refused") {
  const Place place;
  // For root every directory can be written; that of another user shows what permissions do.
  const auto refuse = [&](const std::string& directory) {
    const absl::Status status = ModuleCache::Open(directory, kPlenty).status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(status.message()), ContainsSubstring(directory));
  };
  CHECK(ModuleCache::Open("", kPlenty).status().code() == absl::StatusCode::kUnavailable);
  refuse("/proc/nothing/here");
  std::ofstream(place.work.path() + "/file") << "x";
  refuse(place.work.path() + "/file");
  fs::create_directory(place.work.path() + "/own");
  fs::create_symlink(place.work.path() + "/own", place.work.path() + "/link");
  refuse(place.work.path() + "/link");
  fs::create_directory(place.work.path() + "/shared");
  fs::permissions(place.work.path() + "/shared", fs::perms::all);
  refuse(place.work.path() + "/shared");
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) RG_SKIP("only root can give files to others");
  const std::string foreign = place.work.path() + "/foreign";
  fs::create_directory(foreign);
  fs::permissions(foreign, fs::perms::owner_all);
  REQUIRE(chown(foreign.c_str(), kNobody, kNobody) == 0);
  refuse(foreign);
  // An entry that another user put there is none.
  const auto cache = ModuleCache::Open(place.cache, kPlenty);
  REQUIRE(cache.ok());
  REQUIRE(cache->Write(Key(1), ValueOf(1)).ok());
  REQUIRE(cache->Read(Key(1)).has_value());
  for (const auto& entry : fs::directory_iterator(place.cache)) {
    REQUIRE(chown(entry.path().c_str(), kNobody, kNobody) == 0);
  }
  CHECK_FALSE(cache->Read(Key(1)).has_value());
  // Whoever may not write there is told so, and goes without.
  fs::permissions(place.work.path(), fs::perms::owner_all | fs::perms::others_exec);
  const std::string own = place.work.path() + "/read_only";
  fs::create_directory(own);
  REQUIRE(chown(own.c_str(), kNobody, kNobody) == 0);
  fs::permissions(own, fs::perms::owner_read | fs::perms::owner_exec);
  const pid_t nobody = Fork([&] {
    if (setuid(kNobody) != 0) return 1;
    const auto read_only = ModuleCache::Open(own, kPlenty);
    if (!read_only.ok()) return 0;
    return read_only->Write(Key(1), ValueOf(1)).code() == absl::StatusCode::kUnavailable ? 0 : 2;
  });
  CHECK(WaitFor(nobody) == 0);
}

TEST_CASE("a pipe or a folder in an entry's place is none, and nothing waits for it") {
  const Place place;
  const auto cache = ModuleCache::Open(place.cache, kPlenty);
  REQUIRE(cache.ok());
  REQUIRE(cache->Write(Key(1), ValueOf(1)).ok());
  const std::string entry = fs::directory_iterator(place.cache)->path();
  REQUIRE(fs::remove(entry));
  REQUIRE(mkfifo(entry.c_str(), 0600) == 0);
  CHECK_FALSE(cache->Read(Key(1)).has_value());
  CHECK(cache->Write(Key(1), ValueOf(2)).ok());
  CHECK(cache->Read(Key(1)) == ValueOf(2));
  REQUIRE(fs::remove(entry));
  REQUIRE(fs::create_directory(entry));
  CHECK_FALSE(cache->Read(Key(1)).has_value());
}

TEST_CASE("an entry of another key, cut short, lengthened or changed anywhere is none") {
  const Place place;
  const auto cache = ModuleCache::Open(place.cache, kPlenty);
  REQUIRE(cache.ok());
  const std::string value(2000, 'v');
  const auto file = [&] { return fs::directory_iterator(place.cache)->path(); };
  REQUIRE(cache->Write(Key(1), value).ok());
  const auto bytes = fs::file_size(file());
  const uint64_t seed = 11;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int fault = 0; fault < 300; ++fault) {
    const int kind = fault % 4;
    if (kind == 0) {
      fs::resize_file(file(), random() % bytes);
    } else if (kind == 1) {
      std::ofstream(file(), std::ios::app | std::ios::binary) << static_cast<char>(random());
    } else if (kind == 2) {
      std::fstream changed(file(), std::ios::in | std::ios::out | std::ios::binary);
      const auto at = static_cast<std::streamoff>(random() % bytes);
      changed.seekg(at);
      const char flipped = static_cast<char>(changed.get() ^ (1 << random() % 8));
      changed.seekp(at);
      changed.put(flipped);
    } else {
      const fs::path there = file();
      REQUIRE(cache->Write(Key(2), value).ok());
      for (const auto& entry : fs::directory_iterator(place.cache)) {
        if (entry.path() != there) fs::rename(entry.path(), there);
      }
    }
    INFO("fault " << fault);
    REQUIRE_FALSE(cache->Read(Key(1)).has_value());
    REQUIRE_FALSE(cache->Find(Key(1)).has_value());
    REQUIRE(cache->Write(Key(1), value).ok());
    REQUIRE(cache->Read(Key(1)) == value);
  }
}

TEST_CASE("a full cache drops what was used longest ago") {
  const Place place;
  const auto cache = ModuleCache::Open(place.cache, 700'000);  // two values and no more
  REQUIRE(cache.ok());
  for (int i = 0; i < 3; ++i) {
    REQUIRE(cache->Write(Key(i), ValueOf(i)).ok());
    usleep(20'000);  // file times may be coarse
  }
  CHECK_FALSE(cache->Read(Key(0)).has_value());
  CHECK(cache->Read(Key(1)) == ValueOf(1));
  CHECK(cache->Read(Key(2)) == ValueOf(2));
}

TEST_CASE("no code is loaded from a folder that others may write") {
  for (const mode_t mode : {mode_t{0770}, mode_t{0707}}) {
    const Place place;
    REQUIRE(ModuleCache::Open(place.cache, kPlenty).ok());
    REQUIRE(chmod(place.cache.c_str(), mode) == 0);
    const auto opened = ModuleCache::Open(place.cache, kPlenty);
    CHECK(absl::IsUnavailable(opened.status()));
  }
}

}  // namespace
}  // namespace retrograd
