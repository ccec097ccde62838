#include "tools/support/text_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "graph/base/regular_file.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

absl::Status FileError(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
}

// Writes and closes.
absl::Status WriteAndClose(FILE* file, absl::string_view text, const std::string& path) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!written) {
    const absl::Status status = FileError("cannot write", path);
    std::fclose(file);
    return status;
  }
  return std::fclose(file) == 0 ? absl::OkStatus() : FileError("cannot write", path);
}

absl::Status Replace(const std::string& path, absl::string_view text) {
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) return FileError("cannot write beside", path);
  ::fchmod(fd, 0644);
  absl::Status status = WriteAndClose(::fdopen(fd, "wb"), text, path);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = FileError("cannot replace", path);
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  RG_ASSIGN_OR_RETURN(RegularFile file, RegularFile::Open(path));
  if (file.bytes() > kMaxTextFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", file.bytes(), " bytes; at most ",
                                                   kMaxTextFileBytes, " are read"));
  }
  return file.Read(file.bytes());
}

absl::Status WriteTextFile(const std::string& path, absl::string_view text) {
  if (path.empty() || path == "-") {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    return written && std::fflush(stdout) == 0 ? absl::OkStatus()
                                               : FileError("cannot write", "to stdout");
  }
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return Replace(path, text);
  FILE* file = std::fopen(path.c_str(), "wb");
  return file == nullptr ? FileError("cannot write", path) : WriteAndClose(file, text, path);
}

}  // namespace retrograd
