#include "fusion/planner/sized_patterns.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/planner/plan_pattern.h"
#include "fusion/planner/planning_context.h"
#include "graph/base/status.h"
#include "graph/proto/bind_graph.h"
#include "graph/symbols/representative.h"

namespace retrograd {
namespace {

// Search bound: of sizes, devices and options together. Beyond it all are made anew.
constexpr size_t kMostPatterns = 256;

bool PlansByPattern(const PlanOptions& options) {
  return Enabled(options, "kept_partitions") && options.max_memory_bytes == 0 &&
         options.pairs.empty() && options.search.random_seed == 0 && options.random_schedules == 0;
}

std::string Names(const absl::flat_hash_set<std::string>& set) {
  std::vector<std::string> names(set.begin(), set.end());
  std::sort(names.begin(), names.end());
  return absl::StrJoin(names, ",");
}

// The options that decide what a pattern is, and the device.
std::string How(const PlanOptions& options, const std::string& spec_text) {
  return absl::StrCat(Names(options.disable), "\n", Names(options.tighten), "\n",
                      static_cast<int>(options.merging), " ", options.search.max_atoms, "\n",
                      spec_text);
}

// Those that a pattern is planned under.
PlanOptions Plain(const PlanOptions& options) {
  PlanOptions plain = options;
  plain.feedback = {};
  plain.pattern = nullptr;
  plain.second_pattern = nullptr;
  plain.decisions = false;
  return plain;
}

std::string Print(absl::Span<const SizeBinding> sizes) {
  return absl::StrJoin(sizes, ",", [](std::string* out, const SizeBinding& size) {
    absl::StrAppend(out, size.name, "=", size.value);
  });
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PlanPattern>> SizedPatterns::At(
    absl::Span<const SizeBinding> sizes, const DeviceSpec& device, const std::string& how,
    const PlanOptions& options) {
  const std::string key = absl::StrCat(Print(sizes), "\n", how);
  const auto known = patterns_.find(key);
  if (known != patterns_.end()) return known->second;
  const absl::StatusOr<BackwardGraph> bound = BindGraph(graph_, sizes);
  std::shared_ptr<const PlanPattern> pattern;
  if (bound.ok()) {
    RG_ASSIGN_OR_RETURN(pattern, PatternOf(*bound, device, options));
  }
  if (patterns_.size() >= kMostPatterns) patterns_.clear();
  patterns_[key] = pattern;
  return pattern;
}

absl::StatusOr<std::shared_ptr<const PlanPattern>> SizedPatterns::For(
    absl::Span<const SizeBinding> sizes, const DeviceSpec& device, const std::string& spec_text,
    const PlanOptions& options) {
  if (!PlansByPattern(options)) return nullptr;
  const std::string how = How(options, spec_text);
  const PlanOptions plain = Plain(options);
  const std::scoped_lock lock(mutex_);
  RG_ASSIGN_OR_RETURN(std::shared_ptr<const PlanPattern> pattern,
                      At(RepresentativeOf(symbols_, sizes), device, how, plain));
  if (pattern != nullptr) return pattern;
  std::vector<SizeBinding> hints;
  for (const SizeSymbol& symbol : symbols_) hints.push_back({symbol.name, symbol.hint});
  return At(hints, device, how, plain);
}

absl::StatusOr<std::shared_ptr<const PlanPattern>> SizedPatterns::Second(
    absl::Span<const SizeBinding> sizes, const DeviceSpec& device, const std::string& spec_text,
    const PlanOptions& options) {
  if (!PlansByPattern(options)) return nullptr;
  const std::vector<SizeBinding> second = SecondRepresentativeOf(symbols_, sizes);
  if (Print(second) == Print(RepresentativeOf(symbols_, sizes))) return nullptr;
  const std::scoped_lock lock(mutex_);
  return At(second, device, How(options, spec_text), Plain(options));
}

}  // namespace retrograd
