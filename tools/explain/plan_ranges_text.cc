// Ranges of a plan as one table: whole plans, then kernels and calls, each with its intervals.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/explain/explanation.h"
#include "tools/explain/plan_ranges.h"
#include "tools/support/terminal_line.h"

namespace retrograd {
namespace {

constexpr size_t kLines = 60;
constexpr size_t kMostPartitions = 8;
constexpr size_t kMostRefused = 3;
constexpr size_t kMostIntervals = 6;  // of a kernel
constexpr size_t kMostClasses = 3;    // of a call, a line each; of more the borders in one

std::string Sizes(int64_t low, int64_t high) {
  return low == high ? absl::StrCat(low) : absl::StrCat(low, " to ", high);
}

std::string Times(const SizeInterval& interval) {
  const std::string low = PrintTime(interval.low_ps), high = PrintTime(interval.high_ps);
  return low == high ? low : absl::StrCat(low, " to ", high);
}

std::string More(size_t count, absl::string_view what) {
  return absl::StrFormat("%8s... and %d more %s; --format json has them", "", count, what);
}

void Summarise(const PlanRanges& ranges, std::vector<std::string>* lines) {
  lines->push_back(absl::StrCat(ranges.graph, " on ", ranges.device, ", ", ranges.range.Print(),
                                ranges.others.empty() ? "" : ", ", ranges.others, ": planned at ",
                                ranges.planned.size(), " sizes"));
  if (ranges.unknown_borders > 0) {
    lines->push_back(absl::StrCat(
        ranges.unknown_borders,
        " borders were not looked for: intervals end at sizes that were planned; give a narrower "
        "range, or a larger step as in ",
        ranges.range.name, "=LOW..HIGH:64"));
  }
  for (size_t i = 0; i < ranges.refused.size() && i < kMostRefused; ++i) {
    const PlanRanges::Refused& refused = ranges.refused[i];
    lines->push_back(
        absl::StrCat("no plan at ", Sizes(refused.low, refused.high), ": ", refused.why));
  }
  lines->push_back(
      absl::StrFormat("Plans by which ops share a kernel: %d intervals", ranges.partitions.size()));
  for (size_t i = 0; i < ranges.partitions.size() && i < kMostPartitions; ++i) {
    const PlanRanges::Partition& p = ranges.partitions[i];
    lines->push_back(absl::StrFormat(
        "%8s%-14s %s kernels and calls, predicted %s", "", Sizes(p.low, p.high),
        Sizes(std::min(p.low_kernels, p.high_kernels), std::max(p.low_kernels, p.high_kernels)),
        Times(p)));
  }
  if (ranges.partitions.size() > kMostPartitions) {
    lines->push_back(More(ranges.partitions.size() - kMostPartitions, "intervals"));
  }
}

// The classes of a call are many and alike: where each begins says it.
std::string ClassesOf(const PlanRanges::Kernel& kernel) {
  std::string text = absl::StrCat(kernel.intervals.size(), " size classes, first ",
                                  kernel.intervals[0].variant, "; others from ");
  for (size_t i = 1; i < kernel.intervals.size(); ++i) {
    absl::StrAppend(&text, i == 1 ? "" : ", ", kernel.intervals[i].low);
  }
  return text;
}

void ListKernel(const PlanRanges::Kernel& kernel, std::vector<std::string>* lines) {
  lines->push_back(absl::StrFormat("%4dx  %s", kernel.times, kernel.what));
  const auto line = [&](const SizeInterval& at, absl::string_view how) {
    const std::string times = Times(at);
    lines->push_back(absl::StrFormat("%8s%-14s %-22s %s", "", Sizes(at.low, at.high), times, how));
  };
  if (kernel.is_call && kernel.intervals.size() > kMostClasses) {
    SizeInterval all = kernel.intervals.front();
    all.high = kernel.intervals.back().high;
    all.high_ps = kernel.intervals.back().high_ps;
    line(all, ClassesOf(kernel));
    return;
  }
  for (size_t i = 0; i < kernel.intervals.size() && i < kMostIntervals; ++i) {
    line(kernel.intervals[i], kernel.intervals[i].variant);
  }
  if (kernel.intervals.size() > kMostIntervals) {
    lines->push_back(More(kernel.intervals.size() - kMostIntervals, "intervals"));
  }
}

}  // namespace

std::string RangesAsText(const PlanRanges& ranges) {
  std::vector<std::string> lines;
  Summarise(ranges, &lines);
  lines.push_back(absl::StrFormat("Most expensive of %d distinct kernels and calls, by size:",
                                  ranges.kernels.size()));
  size_t shown = 0;
  for (const PlanRanges::Kernel& kernel : ranges.kernels) {
    std::vector<std::string> listed;
    ListKernel(kernel, &listed);
    if (lines.size() + listed.size() + 1 > kLines) break;
    lines.insert(lines.end(), listed.begin(), listed.end());
    ++shown;
  }
  if (shown < ranges.kernels.size())
    lines.push_back(More(ranges.kernels.size() - shown, "kernels"));
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, FitLine(line), "\n");
  return text;
}

}  // namespace retrograd
