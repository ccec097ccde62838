#include "tests/support/kernels/planted_faults.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr auto kNowhere = absl::string_view::npos;

// A stretch of the text and what stands there instead.
struct Edit {
  size_t begin, end;
  std::string text;
};

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::vector<Edit> Removed(absl::string_view source, absl::string_view statement) {
  std::vector<Edit> edits;
  for (size_t at = source.find(statement); at != kNowhere; at = source.find(statement, at + 1)) {
    edits.push_back({at, at + statement.size(), ";"});
  }
  return edits;
}

// The number of each wait for copies, one more.
std::vector<Edit> Waits(absl::string_view source) {
  constexpr absl::string_view kWait = "RG_COPIES_WAIT(";
  std::vector<Edit> edits;
  for (size_t at = source.find(kWait); at != kNowhere; at = source.find(kWait, at + 1)) {
    const size_t number = at + kWait.size(), end = source.find(')', number);
    edits.push_back({number, end, absl::StrCat(source.substr(number, end - number), " + 1")});
  }
  return edits;
}

absl::string_view LineAt(absl::string_view source, size_t at) {
  const size_t before = source.rfind('\n', at);
  const size_t begin = before == kNowhere ? 0 : before + 1;
  return source.substr(begin, source.find('\n', at) - begin);
}

// A loop that counts from 0 one by one, as over a thread's registers.
bool IsCountingLoop(absl::string_view line) {
  return absl::StartsWith(line, "for ") && absl::StrContains(line, " = 0;") &&
         absl::StrContains(line, "; ++");
}

// Comparisons `< 123` of guards and of strided loops.
std::vector<Edit> Bounds(absl::string_view source) {
  constexpr absl::string_view kLess = " < ";
  std::vector<Edit> edits;
  for (size_t at = source.find(kLess); at != kNowhere; at = source.find(kLess, at + 1)) {
    const size_t number = at + kLess.size();
    if (number >= source.size() || !std::isdigit(static_cast<unsigned char>(source[number]))) {
      continue;
    }
    const absl::string_view line = absl::StripLeadingAsciiWhitespace(LineAt(source, at));
    if (IsCountingLoop(line) || absl::StartsWith(line, "//")) continue;
    edits.push_back({at, number, " <= "});
  }
  return edits;
}

std::vector<absl::string_view> SharedArrayNames(absl::string_view source) {
  constexpr absl::string_view kDeclaration = "RG_SHARED(";
  std::vector<absl::string_view> names;
  for (size_t at = source.find(kDeclaration); at != kNowhere;
       at = source.find(kDeclaration, at + 1)) {
    const size_t comma = source.find(',', at);
    const size_t end = comma == kNowhere ? comma : source.find(',', comma + 1);
    if (end == kNowhere) break;
    names.push_back(absl::StripAsciiWhitespace(source.substr(comma + 1, end - comma - 1)));
  }
  return names;
}

// Past the bracket that closes the one at `open`; nowhere if none does.
size_t PastBracket(absl::string_view source, size_t open) {
  int depth = 0;
  for (size_t i = open; i < source.size(); ++i) {
    if (source[i] == '[') ++depth;
    if (source[i] == ']' && --depth == 0) return i + 1;
  }
  return kNowhere;
}

// Statements `name[..] = ..;` and `rg_store(name, ..);`
std::vector<Edit> SharedStores(absl::string_view source) {
  std::vector<Edit> edits;
  for (absl::string_view name : SharedArrayNames(source)) {
    const std::string call = absl::StrCat("rg_store(", name, ",");
    for (size_t at = source.find(call); at != kNowhere; at = source.find(call, at + 1)) {
      edits.push_back({at, source.find(';', at), ""});
    }
    for (size_t at = source.find(name); at != kNowhere; at = source.find(name, at + 1)) {
      const size_t open = at + name.size();
      if (open >= source.size() || source[open] != '[' || (at > 0 && IsWord(source[at - 1]))) {
        continue;
      }
      const size_t past = PastBracket(source, open);
      if (past == kNowhere) break;
      const absl::string_view rest = source.substr(past);
      if (!absl::StartsWith(rest, " = ")) continue;
      edits.push_back({at, source.find(';', past), ""});
    }
  }
  std::sort(edits.begin(), edits.end(),
            [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
  return edits;
}

std::vector<Edit> Sites(absl::string_view source, PlantedFault fault) {
  switch (fault) {
    case PlantedFault::kRemovedBarrier: return Removed(source, "RG_BARRIER();");
    case PlantedFault::kOffByOneBound: return Bounds(source);
    case PlantedFault::kUninitialisedShared: return SharedStores(source);
    case PlantedFault::kLaxWait: return Waits(source);
    case PlantedFault::kUnsentCopies: return Removed(source, "RG_COPIES_SENT();");
    case PlantedFault::kRemovedMeeting: return Removed(source, "RG_CLUSTER_WAIT();");
  }
  return {};
}

}  // namespace

int CountSites(absl::string_view source, PlantedFault fault) {
  return static_cast<int>(Sites(source, fault).size());
}

std::string Plant(absl::string_view source, PlantedFault fault, int n) {
  const std::vector<Edit> edits = Sites(source, fault);
  RG_CHECK(n >= 0 && n < static_cast<int>(edits.size()));
  const Edit& edit = edits[n];
  return absl::StrCat(source.substr(0, edit.begin), edit.text, source.substr(edit.end));
}

std::string DescribeSite(absl::string_view source, PlantedFault fault, int n) {
  const std::vector<Edit> edits = Sites(source, fault);
  RG_CHECK(n >= 0 && n < static_cast<int>(edits.size()));
  const Edit& edit = edits[n];
  const absl::string_view before = source.substr(0, edit.begin);
  return absl::StrCat("line ", 1 + std::count(before.begin(), before.end(), '\n'), ": \"",
                      source.substr(edit.begin, edit.end - edit.begin), "\" became \"", edit.text,
                      "\"");
}

}  // namespace retrograd
