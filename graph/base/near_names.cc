#include "graph/base/near_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"

namespace retrograd {
namespace {

// Names in files may be long: what is compared is bounded, so that an error stays cheap.
constexpr size_t kCompared = 64;

int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<absl::string_view> NearNames(absl::string_view name,
                                         absl::Span<const absl::string_view> known) {
  name = name.substr(0, kCompared);
  std::vector<std::pair<int, absl::string_view>> near;
  for (absl::string_view other : known) {
    const int limit = std::max<int>(2, static_cast<int>(std::min(name.size(), other.size())) / 3);
    const int distance = EditDistance(name, other.substr(0, kCompared));
    const bool contains =
        name.size() >= 3 && (absl::StrContains(other, name) || absl::StrContains(name, other));
    if (distance <= limit) {
      near.emplace_back(distance, other);
    } else if (contains) {
      near.emplace_back(limit + 1, other);
    }
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<absl::string_view> names;
  for (const auto& [distance, other] : near) {
    if (names.size() < 3) names.push_back(other);
  }
  return names;
}

}  // namespace retrograd
