#include "tools/fit/timed_kernels.h"

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;
using KeyOf = std::function<std::string(const KernelLabel&)>;

bool HasText(const Json& json, const char* name) {
  return json.contains(name) && json[name].is_string();
}

bool ReadKernel(const Json& json, TimedKernel& kernel) {
  if (!json.is_object() || !HasText(json, "graph") || !HasText(json, "ops") ||
      !HasText(json, "planned") || !json.contains("schedules")) {
    return false;
  }
  kernel.graph = GraphLabel(json["graph"].get<std::string>());
  kernel.label = {.ops = json["ops"], .planned = json["planned"]};
  for (const Json& s : json["schedules"]) {
    if (!s.is_object() || !HasText(s, "schedule") || !s.contains("measured_us") ||
        !s["measured_us"].is_number()) {
      return false;
    }
    kernel.us[s["schedule"].get<std::string>()] = s["measured_us"];
  }
  return true;
}

}  // namespace

std::string GraphLabel(absl::string_view graph) {
  const size_t folder = graph.rfind('/');
  if (folder != absl::string_view::npos) graph.remove_prefix(folder + 1);
  return std::string(graph.substr(0, graph.find('.')));
}

absl::StatusOr<std::vector<TimedKernel>> ParseTimedKernels(absl::string_view text,
                                                           absl::string_view where) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const absl::Status broken = absl::InvalidArgumentError(absl::StrCat(
      where, " holds no times of schedules: give a file that schedule-times --json wrote"));
  if (!json.is_object() || !json.contains("kernels")) return broken;
  std::vector<TimedKernel> timed;
  for (const Json& kernel : json["kernels"]) {
    if (!ReadKernel(kernel, timed.emplace_back())) return broken;
  }
  return timed;
}

std::vector<const TimedKernel*> MatchTimed(absl::string_view graph,
                                           absl::Span<const KernelLabel> kernels,
                                           absl::Span<const TimedKernel> timed) {
  struct Sides {
    std::vector<size_t> kernels;
    std::vector<const TimedKernel*> timed;
  };
  std::vector<const TimedKernel*> matches(kernels.size(), nullptr);
  const auto by = [&](const KeyOf& key) {
    std::map<std::string, Sides> sides;
    for (size_t i = 0; i < kernels.size(); ++i) sides[key(kernels[i])].kernels.push_back(i);
    for (const TimedKernel& t : timed) {
      if (t.graph == GraphLabel(graph)) sides[key(t.label)].timed.push_back(&t);
    }
    return sides;
  };
  for (const auto& [key, side] :
       by([](const KernelLabel& l) { return absl::StrCat(l.ops, "\n", l.planned); })) {
    if (side.kernels.size() != side.timed.size()) continue;
    for (size_t i = 0; i < side.kernels.size(); ++i) matches[side.kernels[i]] = side.timed[i];
  }
  // One kernel alone has these ops, whatever schedule it is planned with now.
  for (const auto& [key, side] : by([](const KernelLabel& l) { return l.ops; })) {
    if (side.kernels.size() == 1 && side.timed.size() == 1) {
      matches[side.kernels[0]] = side.timed[0];
    }
  }
  return matches;
}

}  // namespace retrograd
