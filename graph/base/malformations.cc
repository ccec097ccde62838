#include "graph/base/malformations.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr absl::string_view kPrefix = "RG-G";

std::vector<MalformationInfo> MakeTable() {
  struct Row {
    int number;
    Malformation kind;
    absl::string_view invariant, rule;
  };
  constexpr Row kRows[] = {
#define RG_MALFORMATION(NUMBER, NAME, INVARIANT, RULE) \
  {NUMBER, Malformation::NAME, INVARIANT, RULE},
#include "graph/base/malformations.def"
#undef RG_MALFORMATION
  };
  std::vector<MalformationInfo> table;
  for (const Row& row : kRows) {
    // Never freed: codes are handed out as views.
    const auto* code = new std::string(absl::StrFormat("%s%03d", kPrefix, row.number));
    table.push_back({row.kind, *code, row.invariant, row.rule});
  }
  return table;
}

const std::vector<MalformationInfo>& Table() {
  static const auto& table = *new std::vector<MalformationInfo>(MakeTable());
  return table;
}

}  // namespace

absl::Span<const MalformationInfo> AllMalformations() { return Table(); }

const MalformationInfo& Info(Malformation kind) {
  auto it = std::find_if(Table().begin(), Table().end(),
                         [&](const MalformationInfo& info) { return info.kind == kind; });
  RG_CHECK(it != Table().end());
  return *it;
}

absl::Status Malformed(Malformation kind, absl::string_view text) {
  const MalformationInfo& info = Info(kind);
  return absl::InvalidArgumentError(absl::StrCat(info.code, " (", info.invariant, "): ", text));
}

absl::Status At(absl::string_view where, const absl::Status& status) {
  absl::string_view message = status.message();
  size_t insert = 0;
  if (absl::StartsWith(message, kPrefix)) {
    const size_t end = message.find("): ");
    if (end != absl::string_view::npos) insert = end + 3;
  }
  return absl::Status(status.code(),
                      absl::StrCat(message.substr(0, insert), where, ": ", message.substr(insert)));
}

}  // namespace retrograd
