// Choices as text, the protobuf text form of choices.proto: what files and the cache on disk hold.
#ifndef RETROGRAD_RUNTIME_TUNING_CHOICES_TEXT_H_
#define RETROGRAD_RUNTIME_TUNING_CHOICES_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tuning/choice.h"

namespace retrograd {

// In the order of their keys, so that equal choices make equal files. Times keep six digits.
// `state`: with each choice's state, which is no text for people.
std::string PrintChoices(const Choices& choices, bool state = false);

// InvalidArgument with the line and the reason for what PrintChoices does not write: "mine:12: the
// chosen candidate \"cudnn\" is none of the candidates". `where` begins the message.
absl::StatusOr<Choices> ParseChoices(absl::string_view text, absl::string_view where);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TUNING_CHOICES_TEXT_H_
