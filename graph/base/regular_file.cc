#include "graph/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace retrograd {
namespace {

absl::Status FileError(absl::string_view what, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
}

}  // namespace

RegularFile::RegularFile(std::string path, int fd, int64_t bytes)
    : path_(std::move(path)), fd_(fd), bytes_(bytes) {}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

RegularFile::~RegularFile() {
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<RegularFile> RegularFile::Open(const std::string& path) {
  // Not blocking: a pipe would otherwise wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError("cannot open", path);
  RegularFile file(path, fd, 0);
  struct stat info;
  if (::fstat(fd, &info) != 0) return FileError("cannot read", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no regular file"));
  }
  file.bytes_ = info.st_size;
  return file;
}

absl::StatusOr<std::string> RegularFile::Read(int64_t bytes) {
  std::string content(static_cast<size_t>(bytes), '\0');
  size_t at = 0;
  while (at < content.size()) {
    const ssize_t got = ::read(fd_, content.data() + at, content.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("cannot read", path_);
    if (got == 0) break;
    at += static_cast<size_t>(got);
  }
  content.resize(at);
  return content;
}

}  // namespace retrograd
