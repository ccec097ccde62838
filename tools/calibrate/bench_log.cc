#include "tools/calibrate/bench_log.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostCount = int64_t{1} << 50;  // SMs, bytes of a cache

absl::Status Broken(absl::string_view where, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": no measurements of a calibration: ", what,
                   "; such files are written by retrograd calibrate --measurements FILE"));
}

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t CountOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer()) return -1;
  const auto count = found->get<int64_t>();
  return count <= kMostCount ? count : -1;
}

}  // namespace

absl::StatusOr<BenchLog> BenchLog::Parse(absl::string_view text, absl::string_view where) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Broken(where, "it is not a JSON object");
  BenchLog log({.model = TextOf(json, "device"),
                .arch = TextOf(json, "arch"),
                .date = TextOf(json, "date"),
                .sms = CountOf(json, "sms"),
                .cache_bytes = CountOf(json, "cache_bytes")});
  if (log.device_.model.empty()) return Broken(where, "it names no device");
  if (log.device_.sms <= 0 || log.device_.cache_bytes < 0) {
    return Broken(where, "its sms or cache_bytes are no count");
  }
  const auto times = json.find("us");
  if (times == json.end() || !times->is_object()) return Broken(where, "it has no times \"us\"");
  for (const auto& [name, us] : times->items()) {
    const double time = us.is_number() ? us.get<double>() : -1;
    if (!(time > 0) || !std::isfinite(time)) {
      return Broken(where, absl::StrCat("the time of \"", name, "\" is no positive number"));
    }
    log.Add(name, time);
  }
  log.replays_ = true;
  return log;
}

std::string BenchLog::Print() const {
  Json json = {{"device", device_.model},
               {"arch", device_.arch},
               {"date", device_.date},
               {"sms", device_.sms},
               {"cache_bytes", device_.cache_bytes},
               {"us", Json::object()}};
  for (const std::string& name : order_) json["us"][name] = us_.at(name);
  return json.dump(1) + "\n";
}

absl::StatusOr<double> BenchLog::Us(const std::string& name,
                                    absl::FunctionRef<absl::StatusOr<double>()> measure) {
  const auto found = us_.find(name);
  if (found != us_.end()) return found->second;
  if (replays_) {
    return absl::NotFoundError(absl::StrCat("the measurements hold no time of \"", name,
                                            "\": they are of another version; measure again"));
  }
  RG_ASSIGN_OR_RETURN(const double us, measure());
  Add(name, us);
  return us_.at(name);  // as the log's text form has it
}

void BenchLog::Add(const std::string& name, double us) {
  // A tenth of a nanosecond: what is less is noise.
  const double kept = std::max(std::round(us * 1e4) / 1e4, 1e-4);
  if (us_.insert_or_assign(name, kept).second) order_.push_back(name);
}

}  // namespace retrograd
