#include "models/parameters.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/base/near_names.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

absl::Status UnknownParameter(absl::string_view model, absl::Span<const ParameterSpec> specs,
                              absl::string_view name) {
  std::vector<absl::string_view> known;
  for (const ParameterSpec& spec : specs) known.push_back(spec.name);
  const std::vector<absl::string_view> near = NearNames(name, known);
  return absl::InvalidArgumentError(
      absl::StrCat("model ", model, " has no parameter '", name.substr(0, 40), "'",
                   near.empty() ? "" : absl::StrCat("; did you mean ", near[0], "?"),
                   " It takes: ", absl::StrJoin(known, ", "), "."));
}

absl::StatusOr<int64_t> ParseValue(absl::string_view model, const ParameterSpec& spec,
                                   absl::string_view text) {
  if (!spec.choices.empty()) {
    const auto at = std::find(spec.choices.begin(), spec.choices.end(), text);
    if (at != spec.choices.end()) return at - spec.choices.begin();
    return absl::InvalidArgumentError(absl::StrCat("model ", model, ": ", spec.name, " is '",
                                                   text.substr(0, 40), "'; it has to be one of ",
                                                   absl::StrJoin(spec.choices, ", ")));
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < spec.min || value > spec.max) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model, ": ", spec.name, " is '", text.substr(0, 40),
                     "'; it has to be an integer from ", spec.min, " to ", spec.max));
  }
  return value;
}

}  // namespace

std::string ParameterSpec::PrintValue(int64_t value) const {
  return choices.empty() ? absl::StrCat(value) : std::string(choices[value]);
}

absl::StatusOr<Parameters> Parameters::Parse(absl::string_view model,
                                             absl::Span<const ParameterSpec> specs,
                                             absl::string_view text) {
  Parameters parameters;
  for (const ParameterSpec& spec : specs) {
    parameters.entries_.push_back({spec, spec.default_value});
  }
  std::vector<bool> given(specs.size());
  for (absl::string_view piece : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(piece, absl::MaxSplits('=', 1));
    const auto at = std::find_if(specs.begin(), specs.end(), [&](const ParameterSpec& spec) {
      return spec.name == pair.first;
    });
    if (at == specs.end()) return UnknownParameter(model, specs, pair.first);
    const size_t index = at - specs.begin();
    if (given[index]) {
      return absl::InvalidArgumentError(
          absl::StrCat("model ", model, ": ", at->name, " is given twice; give it once"));
    }
    given[index] = true;
    RG_ASSIGN_OR_RETURN(parameters.entries_[index].value, ParseValue(model, *at, pair.second));
  }
  return parameters;
}

const Parameters::Entry& Parameters::Find(absl::string_view name) const {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.spec.name == name; });
  RG_CHECK(at != entries_.end());
  return *at;
}

int64_t Parameters::operator[](absl::string_view name) const { return Find(name).value; }

absl::string_view Parameters::Choice(absl::string_view name) const {
  const Entry& entry = Find(name);
  RG_CHECK(!entry.spec.choices.empty());
  return entry.spec.choices[entry.value];
}

std::string Parameters::Print() const {
  return absl::StrJoin(entries_, ",", [](std::string* out, const Entry& entry) {
    absl::StrAppend(out, entry.spec.name, "=", entry.spec.PrintValue(entry.value));
  });
}

}  // namespace retrograd
