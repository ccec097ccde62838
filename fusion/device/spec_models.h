// The devices that a spec's numbers are of, by the names that their driver gives. Part of a
// device's spec, for those who look for the spec of a device; plans do not depend on it.
#ifndef RETROGRAD_FUSION_DEVICE_SPEC_MODELS_H_
#define RETROGRAD_FUSION_DEVICE_SPEC_MODELS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace retrograd {

// The names in a spec's text form, in its order; `where` leads error messages. A spec may have
// none: then it is found by its own name alone.
absl::StatusOr<std::vector<std::string>> ParseSpecModels(absl::string_view text,
                                                         absl::string_view where);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_DEVICE_SPEC_MODELS_H_
