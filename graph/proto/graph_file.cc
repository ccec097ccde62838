// Graph files: whole reads, atomic writes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"
#include "graph/base/regular_file.h"
#include "graph/base/status.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"

namespace retrograd {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 31;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status FileError(absl::string_view what, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  RG_ASSIGN_OR_RETURN(RegularFile file, RegularFile::Open(path));
  if (file.bytes() > kMaxFileBytes) {
    return At(path, Malformed(Malformation::kFileTooLarge,
                              absl::StrCat("the file has ", file.bytes(), " bytes")));
  }
  return file.Read(file.bytes());
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FileError("cannot write", path);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  if (::fsync(fd) != 0) return FileError("cannot write", path);
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view bytes) {
  std::string temporary = path + ".XXXXXX";
  const FileDescriptor file(::mkstemp(temporary.data()));
  if (file.get() < 0) return FileError("cannot write beside", path);
  ::fchmod(file.get(), 0644);
  absl::Status status = WriteAll(file.get(), bytes, path);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = FileError("cannot replace", path);
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

bool IsText(const std::string& path) { return absl::EndsWith(path, ".rgt"); }

}  // namespace

absl::StatusOr<BackwardGraph> LoadGraph(const std::string& path) {
  RG_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  absl::StatusOr<BackwardGraph> graph = IsText(path) ? ParseGraph(bytes) : ParseGraphProto(bytes);
  if (!graph.ok()) return At(path, graph.status());
  return graph;
}

absl::Status SaveGraph(const BackwardGraph& graph, const std::string& path) {
  return WriteFileAtomically(path, IsText(path) ? Print(graph) : SerializeGraph(graph));
}

}  // namespace retrograd
