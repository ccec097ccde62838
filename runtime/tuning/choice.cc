#include "runtime/tuning/choice.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace retrograd {

double Choice::margin() const {
  if (!timed() || chosen == usual) return 0;
  return 1 - candidates[chosen].us / candidates[usual].us;
}

bool Choice::HasNames(const std::vector<std::string>& names) const {
  return std::equal(
      candidates.begin(), candidates.end(), names.begin(), names.end(),
      [](const TimedCandidate& c, const std::string& name) { return c.name == name; });
}

std::string Describe(const Choice& choice) {
  if (!choice.timed()) return "not timed";
  if (choice.chosen == choice.usual) {
    return absl::StrFormat("%s, %.1f us, the default", choice.name(), choice.us());
  }
  const TimedCandidate& usual = choice.candidates[choice.usual];
  return absl::StrFormat("%s, %.1f us, %.1f%% less than the default, %s, %.1f us", choice.name(),
                         choice.us(), 100 * choice.margin(), usual.name, usual.us);
}

void Update(const Choices& more, Choices& choices) {
  for (const auto& [key, choice] : more) choices[key] = choice;
}

std::vector<const Choices::value_type*> ChoicesFor(const Choices& choices,
                                                   absl::string_view call_key) {
  std::vector<const Choices::value_type*> made;
  for (const Choices::value_type& entry : choices) {
    if (entry.second.uses.count(std::string(call_key)) > 0) made.push_back(&entry);
  }
  return made;
}

}  // namespace retrograd
