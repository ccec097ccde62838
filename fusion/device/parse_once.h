// Text that was parsed once is not parsed again: a process reads the same few specs for every
// executable that it makes.
#ifndef RETROGRAD_FUSION_DEVICE_PARSE_ONCE_H_
#define RETROGRAD_FUSION_DEVICE_PARSE_ONCE_H_

#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace retrograd {

// For several threads at once.
template <typename T>
class ParseOnce {
 public:
  // What `parse` makes of the text: of this one or of an equal one before. Errors are not kept.
  absl::StatusOr<T> Get(absl::string_view text, absl::FunctionRef<absl::StatusOr<T>()> parse) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto known = parsed_.find(text);
      if (known != parsed_.end()) return known->second;
    }
    absl::StatusOr<T> made = parse();
    if (!made.ok()) return made;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (parsed_.size() >= kMost) parsed_.clear();
    parsed_.insert_or_assign(std::string(text), *made);
    return made;
  }

 private:
  static constexpr size_t kMost = 64;  // texts: those that come with the library, and some more
  std::mutex mutex_;
  absl::flat_hash_map<std::string, T> parsed_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_DEVICE_PARSE_ONCE_H_
