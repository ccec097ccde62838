// Reading files whose paths come from outside: what is no regular file is refused, and nothing
// waits for a pipe's writer.
#ifndef RETROGRAD_GRAPH_BASE_REGULAR_FILE_H_
#define RETROGRAD_GRAPH_BASE_REGULAR_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace retrograd {

class RegularFile {
 public:
  static absl::StatusOr<RegularFile> Open(const std::string& path);
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;
  ~RegularFile();

  int64_t bytes() const { return bytes_; }  // of the whole file when it was opened

  // So many bytes from where the last call ended; fewer if the file shrank meanwhile.
  absl::StatusOr<std::string> Read(int64_t bytes);

 private:
  RegularFile(std::string path, int fd, int64_t bytes);
  std::string path_;
  int fd_;
  int64_t bytes_;
};

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_BASE_REGULAR_FILE_H_
