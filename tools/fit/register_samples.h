// Predicted registers against what a run-time compiler reports, kernel by kernel. No GPU is needed:
// a compiled object tells its kernels' registers, spills and shared memory.
#ifndef RETROGRAD_TOOLS_FIT_REGISTER_SAMPLES_H_
#define RETROGRAD_TOOLS_FIT_REGISTER_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "fusion/kernel/templates/registers.h"

namespace retrograd {

// One distinct kernel.
struct RegisterSample {
  std::string name, graph, schedule;
  LaunchKind launch = LaunchKind::kPointwise;
  bool shared = false;     // several kernels in one launch; predicted: what the widest one takes
  bool best_plan = false;  // in a graph's best plan, not only in others or a candidate
  int threads = 0;         // of a block
  RegisterCounts counts = {};
  int64_t cap = 0;        // registers that a thread of such a block may have
  int64_t expected = 0;   // predicted, before the cap
  int64_t predicted = 0;  // at most the cap
  bool spill_predicted = false;
  int64_t registers = 0, spill_bytes = 0, shared_bytes = 0;  // reported

  double error() const;  // |predicted - reported| / reported
};

struct RegisterSampleOptions {
  std::string arch;                   // what to compile for; empty: the device's
  std::vector<std::string> graphs;    // files or models; empty: every captured graph
  std::vector<uint64_t> seeds = {0};  // plans: 0 the best one, others any legal plan by this seed
  int every_candidate = 0;  // n > 0: of the schedules that each kernel could have, every n-th too
};

struct RegisterSamples {
  std::string compiler;  // "NVRTC 13.0"
  std::string arch;
  std::vector<RegisterSample> samples;  // by name
};

// Plans the graphs for the device and compiles each distinct kernel with its vendor's compiler.
// Unavailable where that is missing.
absl::StatusOr<RegisterSamples> MeasureRegisters(const DeviceSpec& device,
                                                 const RegisterSampleOptions& options);

// How well one kind of launch is predicted.
struct RegisterErrors {
  std::string launch;  // "all" for the last
  int64_t kernels = 0;
  double median = 0, percentile_90 = 0, worst = 0;  // of the relative errors
  std::string worst_kernel;
  int64_t spills = 0;  // kernels that really spill
  int64_t spills_predicted = 0;
  int64_t surprises = 0;  // spill and were not predicted to
};
std::vector<RegisterErrors> Summarise(const std::vector<RegisterSample>& samples);

std::string PrintTable(const RegisterSamples& samples);

// With every sample: what scripts/fit_registers.py reads. `commit` may be empty.
std::string ToJson(const RegisterSamples& samples, const std::string& device,
                   const std::string& command, const std::string& commit);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_FIT_REGISTER_SAMPLES_H_
