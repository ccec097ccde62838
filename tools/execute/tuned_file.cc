#include "tools/execute/tuned_file.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/tuning/choices_text.h"
#include "tools/support/text_file.h"

namespace retrograd {

absl::StatusOr<Choices> ReadChoices(const std::string& path) {
  RG_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return ParseChoices(text, path);
}

absl::Status WriteChoices(const std::string& path, const Choices& choices) {
  return WriteTextFile(path, PrintChoices(choices));
}

absl::Status Tune(const std::string& tuned, double budget_s, DeviceChoices& choices) {
  if (!std::isfinite(budget_s) || budget_s < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tuning budget of ", budget_s, " s: 0 (no limit) or more is needed"));
  }
  TuningOptions options{.given_name = tuned, .budget_s = budget_s};
  if (!tuned.empty()) {
    RG_ASSIGN_OR_RETURN(options.given, ReadChoices(tuned));
  }
  Share(std::make_shared<Tuning>(std::move(options)), choices);
  return absl::OkStatus();
}

void Share(std::shared_ptr<Tuning> tuning, DeviceChoices& choices) {
  choices.cuda.tuning = choices.hip.tuning = std::move(tuning);
}

}  // namespace retrograd
