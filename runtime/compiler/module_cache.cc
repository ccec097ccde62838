// An entry is what was stored, such as a shared object, which loaders read from its front, then the
// key's text, then a trailer of fixed size that says how long both are.
#include "runtime/compiler/module_cache.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {

namespace fs = std::filesystem;

namespace {

constexpr char kMagic[8] = {'R', 'G', 'H', 'O', 'S', 'T', '0', '1'};
constexpr int64_t kMostEntryBytes = int64_t{256} << 20;
constexpr char kWorkPrefix[] = "retrograd-work-";

struct Trailer {
  uint64_t module_bytes, key_bytes;
  XXH128_hash_t digest;  // of module and key
  char magic[8];
};

absl::Status SystemError(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

bool IsWork(const fs::path& path) { return path.filename().string().rfind(kWorkPrefix, 0) == 0; }

constexpr int kTaken = -1, kNoLocks = -2;

// The directory, open and locked. kTaken: somebody else has it, or has removed it; kNoLocks: this
// file system has none. Locks go with their process, however it ends, and programs that it starts
// do not inherit them.
int Lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return kTaken;
  struct stat here, there;
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  const bool taken = locked || errno == EWOULDBLOCK || errno == EINTR;
  // It may have been removed before it was locked.
  const bool there_still = locked && fstat(fd, &here) == 0 && stat(path.c_str(), &there) == 0 &&
                           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
  if (there_still && here.st_uid == geteuid()) return fd;
  close(fd);
  return taken ? kTaken : kNoLocks;
}

// Removes the work of owners that are gone.
void Sweep(const std::string& parent) {
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    if (!IsWork(it->path())) continue;
    const int lock = Lock(it->path());
    if (lock < 0) continue;
    std::error_code gone;
    fs::remove_all(it->path(), gone);
    close(lock);
  }
}

// When the process first opens the directory: programs of many sizes open it again and again, and
// it may hold thousands of entries.
void SweepOnce(const std::string& directory) {
  static auto& mutex = *new std::mutex;
  static auto& swept = *new absl::flat_hash_set<std::string>;
  {
    const std::scoped_lock lock(mutex);
    if (!swept.insert(directory).second) return;
  }
  Sweep(directory);
}

std::optional<std::string> ReadWhole(const std::string& path) {
  // Not blocking: a pipe would otherwise wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  struct stat info;
  std::string content;
  bool whole = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
               info.st_size <= kMostEntryBytes;
  if (whole) content.resize(info.st_size);
  for (size_t at = 0; whole && at < content.size();) {
    const ssize_t got = read(fd, content.data() + at, content.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) whole = false;
    at += std::max<ssize_t>(got, 0);
  }
  if (whole) futimens(fd, nullptr);  // the order of last use, for Trim
  close(fd);
  if (!whole) return std::nullopt;
  return content;
}

bool IsEntryFor(absl::string_view content, absl::string_view key) {
  Trailer trailer;
  if (content.size() < sizeof trailer) return false;
  const size_t body = content.size() - sizeof trailer;
  std::memcpy(&trailer, content.data() + body, sizeof trailer);
  if (std::memcmp(trailer.magic, kMagic, sizeof kMagic) != 0) return false;
  if (trailer.key_bytes != key.size() || trailer.key_bytes > body) return false;
  if (trailer.module_bytes != body - trailer.key_bytes) return false;
  if (content.substr(trailer.module_bytes, key.size()) != key) return false;
  return XXH128_isEqual(trailer.digest, XXH3_128bits(content.data(), body)) != 0;
}

}  // namespace

std::string Digest(absl::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

absl::StatusOr<WorkDirectory> WorkDirectory::MakeIn(const std::string& parent) {
  Sweep(parent);
  constexpr int kMostTries = 100;  // a sweep may take a directory before it is locked
  for (int i = 0; i < kMostTries; ++i) {
    std::string path = absl::StrCat(parent, "/", kWorkPrefix, "XXXXXX");
    if (mkdtemp(path.data()) == nullptr) break;
    const int lock = Lock(path);
    if (lock != kTaken) return WorkDirectory(std::move(path), lock);
  }
  return SystemError("cannot make a directory in", parent);
}

WorkDirectory::WorkDirectory(WorkDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::exchange(other.lock_, -1)) {}

WorkDirectory& WorkDirectory::operator=(WorkDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

WorkDirectory::~WorkDirectory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

std::string ModuleCache::DefaultDirectory(absl::string_view kind) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return absl::StrCat(cache, "/retrograd/", kind);
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') {
    const passwd* user = getpwuid(geteuid());
    home = user != nullptr ? user->pw_dir : nullptr;
  }
  return home != nullptr && home[0] == '/' ? absl::StrCat(home, "/.cache/retrograd/", kind) : "";
}

absl::StatusOr<ModuleCache> ModuleCache::Open(std::string directory, int64_t most_bytes) {
  if (directory.empty()) return absl::UnavailableError("there is no directory to cache modules in");
  std::error_code error;
  fs::create_directories(fs::path(directory).parent_path(), error);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return SystemError("cannot make", directory);
  }
  struct stat info;
  if (lstat(directory.c_str(), &info) != 0) return SystemError("cannot look at", directory);
  if (!S_ISDIR(info.st_mode)) {
    return absl::UnavailableError(absl::StrCat(directory, " is not a directory"));
  }
  if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::UnavailableError(absl::StrCat(
        directory, " can be written by other users, so code from it is not loaded; chmod 700 it"));
  }
  SweepOnce(directory);
  return ModuleCache(std::move(directory), most_bytes);
}

std::string ModuleCache::EntryPath(absl::string_view key) const {
  return absl::StrCat(directory_, "/", Digest(key), ".so");
}

// The whole file, if it is the key's.
std::optional<std::string> ModuleCache::ReadEntry(absl::string_view key) const {
  std::optional<std::string> content = ReadWhole(EntryPath(key));
  if (content.has_value() && !IsEntryFor(*content, key)) content.reset();
  return content;
}

std::optional<std::string> ModuleCache::Find(absl::string_view key) const {
  if (!ReadEntry(key).has_value()) return std::nullopt;
  return EntryPath(key);
}

std::optional<std::string> ModuleCache::Read(absl::string_view key) const {
  std::optional<std::string> content = ReadEntry(key);
  if (content.has_value()) content->resize(content->size() - key.size() - sizeof(Trailer));
  return content;
}

absl::Status ModuleCache::Write(absl::string_view key, absl::string_view value) const {
  RG_ASSIGN_OR_RETURN(const WorkDirectory work, WorkDirectory::MakeIn(directory_));
  const std::string file = absl::StrCat(work.path(), "/value");
  std::ofstream out(file, std::ios::binary);
  out << value;
  out.close();
  if (!out) return SystemError("cannot write", file);
  return Insert(key, file).status();
}

absl::StatusOr<std::string> ModuleCache::Insert(absl::string_view key,
                                                const std::string& file) const {
  const std::optional<std::string> module = ReadWhole(file);
  if (!module.has_value()) return SystemError("cannot read", file);
  const std::string body = absl::StrCat(*module, key);
  Trailer trailer = {module->size(), key.size(), XXH3_128bits(body.data(), body.size()), {}};
  std::memcpy(trailer.magic, kMagic, sizeof kMagic);
  std::ofstream out(file, std::ios::binary | std::ios::app);
  out << key;
  out.write(reinterpret_cast<const char*>(&trailer), sizeof trailer);
  out.close();
  if (!out) return SystemError("cannot write", file);
  std::string path = EntryPath(key);
  if (rename(file.c_str(), path.c_str()) != 0) return SystemError("cannot write", path);
  Trim(path);
  return path;
}

// Other processes may trim or insert meanwhile: what is gone is gone, and nothing here may fail.
void ModuleCache::Trim(const std::string& keep) const {
  struct Entry {
    fs::file_time_type used;
    std::string path;
    int64_t bytes;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const fs::file_time_type used = it->last_write_time(gone);
    if (gone) continue;
    const int64_t bytes = static_cast<int64_t>(it->file_size(gone));
    if (gone || it->path().extension() != ".so") continue;
    total += bytes;
    if (it->path() != keep) entries.push_back({used, it->path().string(), bytes});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.used, a.path) < std::tie(b.used, b.path);
  });
  for (size_t i = 0; i < entries.size() && total > most_bytes_; ++i) {
    unlink(entries[i].path.c_str());
    total -= entries[i].bytes;
  }
}

}  // namespace retrograd
