// Ranges of a plan as JSON: complete, versioned, times in picoseconds.
#include <nlohmann/json.hpp>

#include "tools/explain/plan_ranges.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

Json IntervalJson(const SizeInterval& interval) {
  return {{"low", interval.low},
          {"high", interval.high},
          {"low_ps", interval.low_ps},
          {"high_ps", interval.high_ps}};
}

}  // namespace

std::string RangesAsJson(const PlanRanges& ranges) {
  Json document = {{"format", "retrograd.ranges"},
                   {"version", kRangesVersion},
                   {"graph", ranges.graph},
                   {"device", ranges.device},
                   {"symbol", ranges.range.name},
                   {"low", ranges.range.low},
                   {"high", ranges.range.high},
                   {"step", ranges.range.step},
                   {"others", ranges.others},
                   {"planned", ranges.planned},
                   {"unknown_borders", ranges.unknown_borders}};
  document["partitions"] = Json::array();
  for (const PlanRanges::Partition& partition : ranges.partitions) {
    Json made = IntervalJson(partition);
    made["low_kernels"] = partition.low_kernels;
    made["high_kernels"] = partition.high_kernels;
    document["partitions"].push_back(std::move(made));
  }
  document["refused"] = Json::array();
  for (const PlanRanges::Refused& refused : ranges.refused) {
    document["refused"].push_back(
        {{"low", refused.low}, {"high", refused.high}, {"why", refused.why}});
  }
  document["kernels"] = Json::array();
  for (const PlanRanges::Kernel& kernel : ranges.kernels) {
    Json intervals = Json::array();
    for (const auto& interval : kernel.intervals) {
      Json made = IntervalJson(interval);
      made["variant"] = interval.variant;
      intervals.push_back(std::move(made));
    }
    document["kernels"].push_back({{"what", kernel.what},
                                   {"times", kernel.times},
                                   {"kind", kernel.is_call ? "call" : "kernel"},
                                   {"intervals", std::move(intervals)}});
  }
  return document.dump(1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace retrograd
