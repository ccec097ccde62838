// Sizes as people write them on a command line.
#ifndef RETROGRAD_TOOLS_SUPPORT_BYTE_SIZE_H_
#define RETROGRAD_TOOLS_SUPPORT_BYTE_SIZE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace retrograd {

// "1048576", "2GiB", "1.5 GB": bytes, powers of 1024 (KiB, MiB, GiB, TiB) or of 1000 (KB, MB, GB,
// TB).
absl::StatusOr<int64_t> ParseByteSize(absl::string_view text);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_SUPPORT_BYTE_SIZE_H_
