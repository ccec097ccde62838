#include "tools/explain/plan_diff.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/explain/explanation.h"
#include "tools/support/terminal_line.h"

namespace retrograd {
namespace {

using Kernel = PlanOutline::Kernel;

constexpr size_t kMostEach = 12;  // removed, added (one line each) and changed (two lines)

bool Equal(const Kernel& a, const Kernel& b) {
  return a.how == b.how && a.price_ps == b.price_ps && a.bytes == b.bytes;
}

// In percent of a; infinite where something grew from nothing.
double Growth(int64_t a, int64_t b) {
  if (a == b) return 0;
  if (a == 0) return INFINITY;
  return 100 * (static_cast<double>(b) - static_cast<double>(a)) / static_cast<double>(a);
}

std::string Signed(int64_t delta, std::string (*print)(int64_t)) {
  return absl::StrCat(delta < 0 ? "-" : "+", print(std::abs(delta)));
}

std::string Delta(absl::string_view name, int64_t a, int64_t b, std::string (*print)(int64_t)) {
  const std::string percent = a == b || a == 0 ? "" : absl::StrFormat(", %+.2f%%", Growth(a, b));
  return absl::StrFormat("  %-15s %10s -> %10s   %s", name, print(a), print(b),
                         a == b ? "same" : absl::StrCat(Signed(b - a, print), percent));
}

std::string PrintCount(int64_t count) { return absl::StrCat(count); }

void List(absl::string_view sign, const std::vector<Kernel>& kernels,
          const std::vector<size_t>& places, std::vector<std::string>* lines) {
  for (size_t i = 0; i < places.size() && i < kMostEach; ++i) {
    const Kernel& kernel = kernels[places[i]];
    lines->push_back(absl::StrFormat("%s %9s  group %d: %s", sign, PrintTime(kernel.price_ps),
                                     places[i], kernel.what));
  }
  if (places.size() > kMostEach) {
    lines->push_back(absl::StrFormat("%s ... and %d more", sign, places.size() - kMostEach));
  }
}

// The words of `how` that the other one has not at the same place.
std::string Differing(absl::string_view how, absl::string_view other) {
  size_t first = 0;
  while (first < how.size() && first < other.size() && how[first] == other[first]) ++first;
  while (first > 0 && how[first - 1] != ' ') --first;
  // One word more: "threads 256" says more than "256".
  if (first > 1) first = how.rfind(' ', first - 2) + 1;
  return std::string(how.substr(first));
}

void ListChanged(const PlanOutline& a, const PlanOutline& b, const PlanDiff& diff,
                 std::vector<std::string>* lines) {
  for (size_t i = 0; i < diff.changed.size() && i < kMostEach; ++i) {
    const Kernel& old = a.kernels[diff.changed[i].a];
    const Kernel& now = b.kernels[diff.changed[i].b];
    lines->push_back(absl::StrFormat(
        "~ %9s  %s -> %s, traffic %s  group %d: %s", Signed(now.price_ps - old.price_ps, PrintTime),
        PrintTime(old.price_ps), PrintTime(now.price_ps),
        now.bytes == old.bytes ? "same" : Signed(now.bytes - old.bytes, PrintBytes),
        diff.changed[i].b, now.what));
    if (old.how == now.how) continue;
    lines->push_back(absl::StrFormat("  %9s  %s  ->  %s", "", Differing(old.how, now.how),
                                     Differing(now.how, old.how)));
  }
  if (diff.changed.size() > kMostEach) {
    lines->push_back(absl::StrFormat("~ ... and %d more", diff.changed.size() - kMostEach));
  }
}

struct Measure {
  const char* name;
  const char* what;
  int64_t PlanOutline::*value;
};
constexpr Measure kMeasures[] = {
    {"slower", "predicted time", &PlanOutline::price_ps},
    {"traffic", "traffic", &PlanOutline::bytes},
    {"memory", "peak memory", &PlanOutline::peak_bytes},
    {"kernels", "the number of kernels", &PlanOutline::launches},
};

}  // namespace

PlanDiff DiffPlans(const PlanOutline& a, const PlanOutline& b) {
  PlanDiff diff;
  std::map<std::vector<std::string>, size_t> of_a;
  for (size_t i = 0; i < a.kernels.size(); ++i) of_a.emplace(a.kernels[i].ops, i);
  std::vector<bool> matched(a.kernels.size());
  for (size_t i = 0; i < b.kernels.size(); ++i) {
    const auto it = of_a.find(b.kernels[i].ops);
    if (it == of_a.end() || matched[it->second]) {
      diff.added.push_back(i);
      continue;
    }
    matched[it->second] = true;
    if (Equal(a.kernels[it->second], b.kernels[i])) {
      ++diff.unchanged;
    } else {
      diff.changed.push_back({it->second, i});
    }
  }
  for (size_t i = 0; i < a.kernels.size(); ++i) {
    if (!matched[i]) diff.removed.push_back(i);
  }
  const auto dearest_first = [](const std::vector<Kernel>& kernels) {
    return [&kernels](size_t x, size_t y) { return kernels[x].price_ps > kernels[y].price_ps; };
  };
  std::stable_sort(diff.removed.begin(), diff.removed.end(), dearest_first(a.kernels));
  std::stable_sort(diff.added.begin(), diff.added.end(), dearest_first(b.kernels));
  const auto change = [&](const PlanDiff::Change& c) {
    return std::abs(b.kernels[c.b].price_ps - a.kernels[c.a].price_ps);
  };
  std::stable_sort(diff.changed.begin(), diff.changed.end(),
                   [&](const auto& x, const auto& y) { return change(x) > change(y); });
  diff.same = diff.removed.empty() && diff.added.empty() && diff.changed.empty();
  for (const Measure& m : kMeasures) diff.same = diff.same && a.*m.value == b.*m.value;
  return diff;
}

std::string PrintDiff(const PlanOutline& a, const PlanOutline& b, const PlanDiff& diff) {
  std::vector<std::string> lines;
  lines.push_back(absl::StrFormat("%s on %s  ->  %s on %s", a.graph, a.device, b.graph, b.device));
  lines.push_back(Delta("predicted time", a.price_ps, b.price_ps, PrintTime));
  lines.push_back(Delta("kernels", a.launches, b.launches, PrintCount));
  lines.push_back(Delta("traffic", a.bytes, b.bytes, PrintBytes));
  lines.push_back(Delta("peak memory", a.peak_bytes, b.peak_bytes, PrintBytes));
  lines.push_back(absl::StrFormat("groups: %d removed (-), %d added (+), %d changed (~), %d same",
                                  diff.removed.size(), diff.added.size(), diff.changed.size(),
                                  diff.unchanged));
  List("-", a.kernels, diff.removed, &lines);
  List("+", b.kernels, diff.added, &lines);
  ListChanged(a, b, diff, &lines);
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, FitLine(line), "\n");
  return text;
}

absl::StatusOr<DiffThreshold> ParseDiffThreshold(absl::string_view text) {
  std::string known;
  const size_t colon = std::min(text.find(':'), text.size());
  for (const Measure& m : kMeasures) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", m.name);
    if (text.substr(0, colon) != m.name) continue;
    DiffThreshold threshold{.measure = m.name};
    absl::string_view number = text.substr(std::min(colon + 1, text.size()));
    if (!number.empty() && number.back() == '%') {
      number.remove_suffix(1);
      if (absl::SimpleAtod(number, &threshold.percent) && threshold.percent >= 0 &&
          std::isfinite(threshold.percent)) {
        return threshold;
      }
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "--fail-if ", text, ": expected a percentage of at least 0, as in ", m.name, ":2%"));
  }
  return absl::InvalidArgumentError(absl::StrCat("--fail-if ", text, ": there are ", known,
                                                 ", each with a percentage, as in slower:2%"));
}

std::string Exceeds(const DiffThreshold& threshold, const PlanOutline& a, const PlanOutline& b) {
  for (const Measure& m : kMeasures) {
    if (threshold.measure != m.name) continue;
    const double growth = Growth(a.*m.value, b.*m.value);
    if (growth <= threshold.percent) return "";
    return absl::StrFormat("%s grew by %.3g%%, over the allowed %g%%", m.what, growth,
                           threshold.percent);
  }
  return "";
}

}  // namespace retrograd
