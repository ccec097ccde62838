// Files of choices (docs/tuning.md), as commands and callers of the library name them.
#ifndef RETROGRAD_TOOLS_EXECUTE_TUNED_FILE_H_
#define RETROGRAD_TOOLS_EXECUTE_TUNED_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tuning/choice.h"
#include "runtime/tuning/tuning.h"
#include "tools/execute/make_device.h"

namespace retrograd {

// NotFound where there is no file; InvalidArgument, with the line and the reason, for what is none.
absl::StatusOr<Choices> ReadChoices(const std::string& path);
// All of it or nothing.
absl::Status WriteChoices(const std::string& path, const Choices& choices);

// Devices made by `choices` share one Tuning: with the choices of the file (empty: none), and so
// many seconds for others (0: no limit).
absl::Status Tune(const std::string& tuned, double budget_s, DeviceChoices& choices);
void Share(std::shared_ptr<Tuning> tuning, DeviceChoices& choices);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_TUNED_FILE_H_
