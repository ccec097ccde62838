#include "runtime/executable/choose_spec.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "fusion/device/parse_once.h"
#include "fusion/device/spec_models.h"
#include "graph/base/status.h"
#include "runtime/device/device.h"

namespace retrograd {
namespace {

using Words = std::vector<absl::string_view>;

absl::string_view VendorOf(Dialect dialect) { return dialect == Dialect::kHip ? "amd" : "nvidia"; }

// How far apart two architectures of a vendor are: "sm_90" is a decimal number, "gfx90a" a
// hexadecimal one. What cannot be read is further away than anything.
int64_t ArchDistance(absl::string_view a, absl::string_view b) {
  if (a == b) return 0;
  const auto number = [](absl::string_view arch, uint64_t* value) {
    if (absl::ConsumePrefix(&arch, "sm_")) return absl::SimpleAtoi(arch, value);
    return absl::ConsumePrefix(&arch, "gfx") && absl::SimpleHexAtoi(arch, value);
  };
  uint64_t of_a = 0, of_b = 0;
  if (!number(a, &of_a) || !number(b, &of_b)) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min<uint64_t>(of_a > of_b ? of_a - of_b : of_b - of_a,
                                                 std::numeric_limits<int64_t>::max() - 1));
}

// The most words that the model shares with one of the names.
int64_t CommonWords(absl::string_view model, const std::vector<std::string>& names) {
  const Words words = absl::StrSplit(model, ' ', absl::SkipEmpty());
  int64_t most = 0;
  for (const std::string& name : names) {
    const Words others = absl::StrSplit(name, ' ', absl::SkipEmpty());
    most = std::max<int64_t>(most, std::count_if(words.begin(), words.end(), [&](auto word) {
                               return std::find(others.begin(), others.end(), word) != others.end();
                             }));
  }
  return most;
}

struct Candidate {
  std::string name;  // by which it is read
  DeviceSpec spec;
  std::vector<std::string> models;

  bool Is(const DeviceFacts& facts) const {
    return spec.arch == facts.arch &&
           std::find(models.begin(), models.end(), facts.model) != models.end();
  }
  // The least is the nearest.
  auto Distance(const DeviceFacts& facts) const {
    return std::make_tuple(ArchDistance(spec.arch, facts.arch), -CommonWords(facts.model, models),
                           std::abs(spec.sms - facts.sms), !spec.calibrated,
                           absl::string_view(name));
  }
};

absl::StatusOr<DeviceSpec> SpecIn(absl::string_view text, absl::string_view where) {
  static auto& parsed = *new ParseOnce<DeviceSpec>;
  return parsed.Get(text, [&] { return ParseDeviceSpec(text, where); });
}

absl::StatusOr<std::vector<std::string>> ModelsIn(absl::string_view text, absl::string_view where) {
  static auto& parsed = *new ParseOnce<std::vector<std::string>>;
  return parsed.Get(text, [&] { return ParseSpecModels(text, where); });
}

// The specs of the vendor's devices that came with the library.
absl::StatusOr<std::vector<Candidate>> CandidatesOf(absl::string_view vendor) {
  std::vector<Candidate> candidates;
  for (const std::string& name : DeviceSpecNames()) {
    RG_ASSIGN_OR_RETURN(const std::string text, ReadDeviceSpec(name));
    Candidate candidate{.name = name};
    RG_ASSIGN_OR_RETURN(candidate.spec, SpecIn(text, name));
    RG_ASSIGN_OR_RETURN(candidate.models, ModelsIn(text, name));
    if (candidate.spec.vendor == vendor) candidates.push_back(std::move(candidate));
  }
  if (!candidates.empty()) return candidates;
  return absl::NotFoundError(absl::StrCat("there is no device spec of a device by ", vendor,
                                          "; give the path of a .textproto file"));
}

std::string NoteOf(const Device& device, const DeviceFacts& facts, const Candidate& nearest) {
  const std::string arch = absl::CEscape(facts.arch);
  return absl::StrCat("no device spec is of ", absl::CEscape(facts.model),
                      arch.empty() ? "" : absl::StrCat(" (", arch, ")"),
                      ": planned by the numbers of ", nearest.name, " (", nearest.spec.arch,
                      "); `retrograd calibrate --device ", device.name(), " --base ", nearest.name,
                      " --name mine -o mine.textproto` measures its own, which `--spec "
                      "mine.textproto` then takes");
}

}  // namespace

absl::StatusOr<ChosenSpec> NamedSpec(absl::string_view name_or_path,
                                     absl::Span<const DeviceNumber> numbers) {
  ChosenSpec chosen;
  std::string where(name_or_path);
  RG_ASSIGN_OR_RETURN(chosen.text, ReadDeviceSpec(name_or_path));
  if (!numbers.empty()) {
    RG_RETURN_IF_ERROR(ParseDeviceSpec(chosen.text, where).status());
    RG_ASSIGN_OR_RETURN(chosen.text, WithDeviceNumbers(chosen.text, where, numbers));
    for (const DeviceNumber& n : numbers) {
      absl::StrAppend(&where, " with --set ", n.name, "=", PrintNumber(n.value));
    }
  }
  RG_ASSIGN_OR_RETURN(chosen.spec, SpecIn(chosen.text, where));
  return chosen;
}

absl::StatusOr<ChosenSpec> SpecOf(const Device& device, absl::Span<const DeviceNumber> numbers) {
  if (device.dialect() == Dialect::kHost) return NamedSpec(kReferenceSpec, numbers);
  const DeviceFacts facts = device.Describe();
  RG_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                      CandidatesOf(VendorOf(device.dialect())));
  const auto own = std::find_if(candidates.begin(), candidates.end(),
                                [&](const Candidate& c) { return c.Is(facts); });
  if (own != candidates.end()) return NamedSpec(own->name, numbers);
  const auto nearest = std::min_element(candidates.begin(), candidates.end(),
                                        [&](const Candidate& a, const Candidate& b) {
                                          return a.Distance(facts) < b.Distance(facts);
                                        });
  RG_ASSIGN_OR_RETURN(ChosenSpec chosen, NamedSpec(nearest->name, numbers));
  chosen.note = NoteOf(device, facts, *nearest);
  return chosen;
}

}  // namespace retrograd
