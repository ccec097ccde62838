// ModuleCache: compiled modules, and what else is dear to find out, on disk, one file an entry,
// shared by any number of processes. An entry is written beside its place and renamed into it, and
// carries its key and a digest: what is damaged, torn or of another key counts as absent. Only a
// directory that nobody else can write to is used, since entries are code that gets loaded.
#ifndef RETROGRAD_RUNTIME_COMPILER_MODULE_CACHE_H_
#define RETROGRAD_RUNTIME_COMPILER_MODULE_CACHE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace retrograd {

// A new directory of one's own, removed with what it holds. A lock on it tells that its owner
// lives: what a process that was killed left behind is removed when the next one is made beside it,
// or the cache around it opened.
class WorkDirectory {
 public:
  static absl::StatusOr<WorkDirectory> MakeIn(const std::string& parent);
  WorkDirectory(WorkDirectory&& other) noexcept;
  WorkDirectory& operator=(WorkDirectory&& other) noexcept;
  ~WorkDirectory();
  const std::string& path() const { return path_; }

 private:
  WorkDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;  // the directory, open and locked; negative: none
};

class ModuleCache {
 public:
  // $XDG_CACHE_HOME/retrograd/KIND, or ~/.cache/retrograd/KIND; empty if there is no home.
  static std::string DefaultDirectory(absl::string_view kind);  // "host", "cuda"

  // Makes the directory, private to the user, if it is missing.
  static absl::StatusOr<ModuleCache> Open(std::string directory, int64_t most_bytes);

  const std::string& directory() const { return directory_; }

  // What was stored for this key.
  std::optional<std::string> Read(absl::string_view key) const;
  absl::Status Write(absl::string_view key, absl::string_view value) const;

  // The path of a whole entry for this key, which begins with what was stored.
  std::optional<std::string> Find(absl::string_view key) const;

  // Moves the file, which must lie in a work directory of this cache, in as the entry for key, and
  // removes the least recently used entries beyond the size allowed. Returns the entry's path.
  absl::StatusOr<std::string> Insert(absl::string_view key, const std::string& file) const;

 private:
  ModuleCache(std::string directory, int64_t most_bytes)
      : directory_(std::move(directory)), most_bytes_(most_bytes) {}
  std::optional<std::string> ReadEntry(absl::string_view key) const;
  std::string EntryPath(absl::string_view key) const;
  void Trim(const std::string& keep) const;

  std::string directory_;
  int64_t most_bytes_;
};

// 32 hexadecimal digits of XXH3, 128 bits.
std::string Digest(absl::string_view bytes);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_COMPILER_MODULE_CACHE_H_
