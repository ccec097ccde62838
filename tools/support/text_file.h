// Text files as the tools read and write them.
#ifndef RETROGRAD_TOOLS_SUPPORT_TEXT_FILE_H_
#define RETROGRAD_TOOLS_SUPPORT_TEXT_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace retrograd {

// The whole file. Refuses what is no regular file, and more than kMaxTextFileBytes.
inline constexpr int64_t kMaxTextFileBytes = int64_t{1} << 29;
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

// Writes a temporary file beside `path` and renames it, so that nobody reads half a file; what is
// no regular file (a pipe, /dev/stdout) is written as it stands. An empty path or "-": stdout.
absl::Status WriteTextFile(const std::string& path, absl::string_view text);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_SUPPORT_TEXT_FILE_H_
