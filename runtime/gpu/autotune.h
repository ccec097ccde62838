// Which implementation of a library call is the fastest on a device: found by running each of them
// for every kind of call (race.h), and remembered on disk with the times. The one mechanism of all
// libraries and all ops.
#ifndef RETROGRAD_RUNTIME_GPU_AUTOTUNE_H_
#define RETROGRAD_RUNTIME_GPU_AUTOTUNE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/device/device.h"

namespace retrograd {

// What is known of a call's implementations.
struct ImplementationTimes {
  std::vector<double> us;  // microseconds of each, in their order; 0: does not run here
  std::string chosen;      // what Implementations::Serialize made of the fastest

  double least_us() const;  // 0 if none was timed
};

// The implementations of one call, one of which is chosen at any time.
class Implementations {
 public:
  virtual ~Implementations() = default;
  virtual int count() const = 0;
  virtual int64_t most_workspace_bytes() const = 0;  // that any of them wants
  // An error where this one cannot be had here.
  virtual absl::Status Choose(int implementation) = 0;
  // Issues the chosen one on stream 0. The workspace suffices for any.
  virtual absl::Status Run(const CallPointers& pointers, void* workspace) = 0;
  // The chosen one, for an equal call on an equal device and library.
  virtual absl::StatusOr<std::string> Serialize() const = 0;
  // Before they are timed: what operands hold if their time depends on it.
  virtual absl::Status Fill(const CallPointers&) { return absl::OkStatus(); }
  // After the chosen one has run: an error if it must not be used for what it has written.
  virtual absl::Status Check(const CallPointers&) { return absl::OkStatus(); }
};

// Bytes of a call's operands and results, in the op's order.
struct CallMemory {
  std::vector<int64_t> operands, results;
};

struct AutotuneOptions {
  const ModuleCache* cache = nullptr;  // where times are remembered; null: nowhere
  bool time = true;                    // else the first implementation stays chosen
};

// `key` names the op, the call, the device and the library with its version: all that a time
// depends on. What was found for it before, by any process.
std::optional<ImplementationTimes> RecallTimes(const AutotuneOptions& options,
                                               absl::string_view key);

// Runs every implementation on memory of its own, chooses the fastest and remembers it. Waits for
// the device. Chooses the first where timing is off or there is no memory for it; then no times are
// returned. An error if none runs.
absl::StatusOr<ImplementationTimes> ChooseFastest(Device& device, const AutotuneOptions& options,
                                                  absl::string_view key, const CallMemory& memory,
                                                  Implementations& implementations);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_AUTOTUNE_H_
