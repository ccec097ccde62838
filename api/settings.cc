#include "api/settings.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

using Json = nlohmann::json;

struct Key {
  const char* name;
  std::vector<std::string> Settings::*list = nullptr;
  bool Settings::*flag = nullptr;
  int64_t Settings::*number = nullptr;
};

constexpr Key kKeys[] = {
    {.name = "disable", .list = &Settings::disable},
    {.name = "tighten", .list = &Settings::tighten},
    {.name = "set", .list = &Settings::set},
    {.name = "memory_order", .flag = &Settings::memory_order},
    {.name = "memory_reuse", .flag = &Settings::memory_reuse},
    {.name = "in_place", .flag = &Settings::in_place},
    {.name = "plan_again", .flag = &Settings::plan_again},
    {.name = "measured_calls", .flag = &Settings::measured_calls},
    {.name = "record", .flag = &Settings::record},
    {.name = "early_launches", .flag = &Settings::early_launches},
    {.name = "keep_sorted_indices", .flag = &Settings::keep_sorted_indices},
    {.name = "runnable", .flag = &Settings::runnable},
    {.name = "time_calls", .flag = &Settings::time_calls},
    {.name = "sizes_vary", .flag = &Settings::sizes_vary},
    {.name = "deterministic", .flag = &Settings::deterministic},
    {.name = "tiled_attention", .flag = &Settings::tiled_attention},
    {.name = "convolution_plans", .number = &Settings::convolution_plans},
    {.name = "conv_bwd_input_backends", .list = &Settings::conv_bwd_input_backends},
    {.name = "conv_bwd_weight_backends", .list = &Settings::conv_bwd_weight_backends},
};

absl::Status Read(const Key& key, const Json& value, Settings& settings) {
  const bool list =
      key.list != nullptr && value.is_array() &&
      std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_string(); });
  if (list) {
    settings.*key.list = value.get<std::vector<std::string>>();
  } else if (key.flag != nullptr && value.is_boolean()) {
    settings.*key.flag = value.get<bool>();
  } else if (key.number != nullptr && value.is_number_unsigned()) {
    settings.*key.number = value.get<int64_t>();
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("settings: ", key.name, " takes ",
                     key.list != nullptr   ? "a list of strings"
                     : key.flag != nullptr ? "true or false"
                                           : "a whole number from 0 on",
                     ", not ", value.dump(-1, ' ', true, Json::error_handler_t::replace)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Settings> ParseSettings(const char* text) {
  Settings settings;
  if (text == nullptr) return settings;
  const Json given = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!given.is_object()) return absl::InvalidArgumentError("settings: no JSON object");
  for (const auto& [name, value] : given.items()) {
    const auto key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                  [&](const Key& k) { return k.name == name; });
    if (key == std::end(kKeys)) {
      return absl::NotFoundError(absl::StrCat(
          "settings: there is no \"", name, "\"; there are ",
          absl::StrJoin(kKeys, ", ",
                        [](std::string* out, const Key& k) { absl::StrAppend(out, k.name); })));
    }
    RG_RETURN_IF_ERROR(Read(*key, value, settings));
  }
  return settings;
}

void Settings::Apply(PlanArguments& arguments) const {
  arguments.disable = disable;
  // Tiles have kernels for their extents: each new size would compile one.
  if (sizes_vary) {
    arguments.disable.insert(arguments.disable.end(),
                             {"held_tiles", "matmul_tiles", "shared_products"});
  }
  arguments.tighten = tighten;
  arguments.set = set;
}

void Settings::Apply(ExecutableOptions& options) const {
  if (!memory_order) options.objective = ScheduleObjective::kLatency;
  options.memory_reuse = memory_reuse;
  options.in_place = in_place;
  options.plan_again = plan_again;
  options.measured_calls = measured_calls;
  options.program.record = record;
  options.early_launches = early_launches;
  options.keep_sorted_indices = keep_sorted_indices && !sizes_vary;
  options.runnable = runnable;
}

absl::Status Settings::Apply(DeviceChoices& choices) const {
  ConvolutionBackends& backends = choices.cuda.convolution.backends;
  RG_ASSIGN_OR_RETURN(backends.input,
                      ParseConvolutionBackends(absl::StrJoin(conv_bwd_input_backends, ",")));
  RG_ASSIGN_OR_RETURN(backends.weight,
                      ParseConvolutionBackends(absl::StrJoin(conv_bwd_weight_backends, ",")));
  choices.host.convolution = backends;
  choices.cuda.attention.cudnn.deterministic = deterministic;
  choices.cuda.attention.allow_tiled = tiled_attention;
  choices.cuda.convolution.cudnn.nondeterministic = !deterministic;
  choices.cuda.convolution.cudnn.most_plans = convolution_plans;
  choices.cuda.time_calls = choices.hip.time_calls = time_calls;
  if (!sizes_vary) {
    choices.host.shared_kernels = nullptr;
    choices.cuda.shared_kernels = choices.hip.shared_kernels = nullptr;
  }
  return absl::OkStatus();
}

}  // namespace retrograd
