// `retrograd tune`: times the implementations of every library call of a graph on a device, and
// writes the choices to a file for later runs.
#ifndef RETROGRAD_TOOLS_RUN_TUNE_H_
#define RETROGRAD_TOOLS_RUN_TUNE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "tools/execute/make_device.h"
#include "tools/run/run.h"

namespace retrograd {

struct TuneArguments {
  RunArguments run;    // what is planned, and for which device; run.tuning_budget_s
  std::string output;  // the file; beside it a .part grows while it is made
  std::string from;    // a file of choices that are not measured again; empty: none
};

// What was measured before, by a call that was killed, is in the part file, and in the device's
// cache: none of it is measured again. Cancelled where `interrupted` says so; the part file stays.
absl::Status TuneOn(const TuneArguments& arguments, const DeviceChoices& choices,
                    const std::function<bool()>& interrupted = {});
// On the device that the arguments name, until the first SIGINT. The exit status.
int TuneCommand(const TuneArguments& arguments);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_RUN_TUNE_H_
