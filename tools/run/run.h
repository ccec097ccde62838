// `retrograd run`: plans a graph for one device, runs the generated kernels on another, and
// compares the gradients with recorded ones.
#ifndef RETROGRAD_TOOLS_RUN_RUN_H_
#define RETROGRAD_TOOLS_RUN_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/execute/make_device.h"
#include "tools/support/pipeline.h"

namespace retrograd {

struct RunArguments {
  PlanArguments plan;
  std::string inputs;           // a bundle; empty: the one recorded beside the graph
  uint64_t random = 0;          // not 0: inputs drawn by this seed, in place of a bundle
  std::string device = "host";  // or "cuda", "cuda:1", "hip"
  std::string save;             // where to write the computed gradients; empty: nowhere
  bool check = false;           // compare with the recorded gradients
  bool sanitize = false;        // the checking build of the host kernels
  bool memory_reuse = true;
  bool in_place = true;
  bool plan_again = true;
  bool measured_calls = false;  // plan again with what library calls were measured to take
  bool time_calls = true;       // the algorithms of libraries, once for each shape
  std::string tuned;            // a file of choices that are not measured again; empty: none
  double tuning_budget_s = 0;   // seconds for measuring others; 0: no limit
  bool early_launches = true;   // see ExecutableOptions
  bool keep_sorted_indices = true;
  bool record = true;           // replay a recorded run, where the device can
  int repeat_check = 0;         // so many more runs must give the bits of the first
  int repeat = 0;               // time so many runs after the first
  bool kernels = false;         // with repeat: time each kernel and call alone as well
  bool deterministic = true;    // two runs give the same bits
  // Who may make convolutions' gradients: names, separated by commas.
  std::string conv_bwd_input_backends = "cudnn,retrograd";
  std::string conv_bwd_weight_backends = "cudnn,retrograd";
  bool tiled_attention = true;  // by our kernels for tensor cores, where they are faster
  bool cold = false;            // with nothing of before in the device's caches
  bool json = false;            // print the figures as JSON
  std::string timeline;  // where to write the predicted and the measured timeline; empty: nowhere
  int streams = 0;
  int phases = 1;
  int warp = 32;
  uint64_t seed = 0;  // of every order that is free: blocks, threads, steps
};

// How the device that the arguments name is made, whatever its kind.
absl::StatusOr<DeviceChoices> DeviceChoicesOf(const RunArguments& arguments);

// The exit status: 0 if everything ran and, with check, every gradient is within the tolerance.
// `arguments.device` is what the device is called in what is printed.
absl::StatusOr<int> RunOn(const RunArguments& arguments, Device& device);
// On the device that the arguments name.
int RunCommand(const RunArguments& arguments);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_RUN_RUN_H_
