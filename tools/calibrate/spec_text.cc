#include "tools/calibrate/spec_text.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "fusion/device/device_numbers.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr absl::string_view kOpens = " { value:";

std::string Line(const SpecNumber& number) {
  return absl::StrCat(number.field, kOpens, " ", PrintNumber(number.value), " source: \"",
                      absl::CEscape(number.source), "\" }");
}

// The field of a line that holds a number; empty otherwise.
absl::string_view FieldOf(absl::string_view line) {
  const size_t at = line.find(kOpens);
  return at == absl::string_view::npos || at == 0 || line[0] == ' ' || line[0] == '#'
             ? absl::string_view()
             : line.substr(0, at);
}

std::string WithoutComment(absl::string_view line) {
  const size_t end = line.rfind('}');
  return std::string(end == absl::string_view::npos ? line : line.substr(0, end + 1));
}

}  // namespace

absl::StatusOr<std::string> WithSpecNumbers(absl::string_view text,
                                            absl::Span<const SpecNumber> numbers,
                                            absl::string_view kept_note) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  std::vector<bool> placed(numbers.size(), false);
  for (std::string& line : lines) {
    const absl::string_view field = FieldOf(line);
    if (field.empty()) continue;
    const auto found = std::find_if(numbers.begin(), numbers.end(),
                                    [&](const SpecNumber& n) { return n.field == field; });
    if (found == numbers.end()) {
      if (!kept_note.empty()) line = absl::StrCat(WithoutComment(line), "  # ", kept_note);
      continue;
    }
    line = Line(*found);
    placed[found - numbers.begin()] = true;
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!placed[i]) lines.push_back(Line(numbers[i]));
  }
  std::string changed = absl::StrJoin(lines, "\n");
  if (!absl::EndsWith(changed, "\n")) changed += "\n";
  // A field that no spec has, or a text of another form, would be read back as something else.
  RG_ASSIGN_OR_RETURN(const std::vector<DeviceNumber> read, DeviceNumbers(changed, "the new spec"));
  for (const SpecNumber& n : numbers) {
    const bool there = std::any_of(read.begin(), read.end(), [&](const DeviceNumber& d) {
      return d.name == n.field && d.value == n.value;
    });
    if (!there) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the spec's ", n.field, " could not be set: its numbers must stand on a line each"));
    }
  }
  return changed;
}

std::string WithInterference(absl::string_view text, absl::Span<const std::string> rows) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  std::erase_if(lines,
                [](const std::string& line) { return absl::StartsWith(line, "interference {"); });
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  lines.insert(lines.end(), rows.begin(), rows.end());
  return absl::StrJoin(lines, "\n") + "\n";
}

std::string WithSpecName(absl::string_view text, absl::string_view name, absl::string_view arch,
                         absl::string_view model) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  std::erase_if(lines, [](const std::string& line) { return absl::StartsWith(line, "models:"); });
  for (std::string& line : lines) {
    if (absl::StartsWith(line, "name:")) line = absl::StrCat("name: \"", absl::CEscape(name), "\"");
    if (absl::StartsWith(line, "arch:") && !arch.empty()) {
      line = absl::StrCat("arch: \"", absl::CEscape(arch), "\"");
    }
    if (absl::StartsWith(line, "calibrated:")) {
      line = absl::StrCat("calibrated: true\nmodels: \"", absl::CEscape(model), "\"");
    }
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace retrograd
