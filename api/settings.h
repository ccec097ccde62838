// The settings that measurements want: a JSON object, each key with its type.
#ifndef RETROGRAD_API_SETTINGS_H_
#define RETROGRAD_API_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/executable/executable.h"
#include "tools/execute/make_device.h"
#include "tools/support/pipeline.h"

namespace retrograd {

struct Settings {
  // Of planning: names and numbers as fusion-explain takes them under these names.
  std::vector<std::string> disable, tighten, set;
  // Of the executable; see ExecutableOptions.
  bool memory_order = true, memory_reuse = true, in_place = true, plan_again = true;
  bool measured_calls = false, record = true, runnable = true;
  bool early_launches = true, keep_sorted_indices = true;
  // Of the device: whether library calls are timed to choose between implementations, whether they
  // must give the same bits each time, whether our tiled attention may stand beside cuDNN's, and
  // how many plans of cuDNN are tried for a convolution (0: all).
  bool time_calls = true, deterministic = true, tiled_attention = true;
  int64_t convolution_plans = 8;
  // Whether executables of one device that differ in sizes share kernels.
  bool sizes_vary = false;
  // Who may make convolutions' gradients, by name.
  std::vector<std::string> conv_bwd_input_backends = {"cudnn", "retrograd"};
  std::vector<std::string> conv_bwd_weight_backends = {"cudnn", "retrograd"};

  void Apply(PlanArguments& arguments) const;
  void Apply(ExecutableOptions& options) const;
  // InvalidArgument for a backend of another name.
  absl::Status Apply(DeviceChoices& choices) const;
};

// text: null: the defaults. InvalidArgument for what is no object, NotFound for an unknown key,
// naming the known ones.
absl::StatusOr<Settings> ParseSettings(const char* text);

}  // namespace retrograd

#endif  // RETROGRAD_API_SETTINGS_H_
