// Times of single kernels and library calls on a device, in microseconds.
#ifndef RETROGRAD_TOOLS_CALIBRATE_KERNEL_BENCH_H_
#define RETROGRAD_TOOLS_CALIBRATE_KERNEL_BENCH_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fusion/device/device_spec.h"
#include "fusion/plan/plan.h"
#include "runtime/device/device.h"
#include "tools/execute/device_tensors.h"

namespace retrograd {

// Something that can be issued on a stream, with the memory that it works on.
class BenchWork {
 public:
  virtual ~BenchWork() = default;
  virtual absl::Status Issue(int stream) = 0;
};

class KernelBench {
 public:
  // Figures are medians of so many runs.
  KernelBench(Device* device, int repeat) : device_(device), repeat_(repeat) {}

  // A kernel under one schedule. Operands are numbers between 1 and 2.
  absl::StatusOr<std::unique_ptr<BenchWork>> Kernel(const KernelIr& ir, const Schedule& schedule);
  // d = a·b, row-major and dense.
  absl::StatusOr<std::unique_ptr<BenchWork>> MatMul(int64_t m, int64_t n, int64_t k, DType dtype);
  // The input gradient of a convolution with filters of 3 x 3, channels last: as many channels on
  // both sides, `batch` images of height x width.
  absl::StatusOr<std::unique_ptr<BenchWork>> Convolution(int64_t batch, int64_t channels,
                                                         int64_t height, int64_t width,
                                                         DType dtype);

  // A kernel in the words of the dialects' prelude, that takes so many bytes of bf16 for each
  // argument and writes the last.
  absl::StatusOr<std::unique_ptr<BenchWork>> Written(const retrograd::Kernel& kernel,
                                                     absl::Span<const int64_t> bytes);

  // Each schedule of a kernel, on the same operands; times as InARow has them.
  absl::StatusOr<std::vector<double>> Schedules(const KernelIr& ir,
                                                absl::Span<const Schedule> schedules);
  absl::StatusOr<double> Alone(BenchWork* work);
  // Of one of several, as many as take a while, so that starting and stopping does not count.
  absl::StatusOr<double> InARow(BenchWork* work);
  // Of one of `links` in a row, recorded where the device records (if `record`).
  absl::StatusOr<double> Chain(BenchWork* work, int links, bool record = true);
  // So many of each: on two streams side by side, and on one stream.
  struct Pair {
    double together_us = 0, one_after_other_us = 0;
  };
  absl::StatusOr<Pair> SideBySide(BenchWork* a, int links_a, BenchWork* b, int links_b);

  Device* device() const { return device_; }

 private:
  absl::StatusOr<double> Recorded(absl::FunctionRef<absl::Status()> work, bool record);

  Device* device_;
  int repeat_;
};

// The kernel that a graph is planned as, of its text form; a graph that takes several is refused.
absl::StatusOr<KernelBody> PlannedKernel(absl::string_view graph_text, const DeviceSpec& spec);

// The groups that a graph is planned as.
absl::StatusOr<std::vector<Group>> PlannedGroups(absl::string_view graph_text,
                                                 const DeviceSpec& spec);

// Microseconds of those steps of the graph's plan that `counts`, each alone, with inputs drawn at
// random.
absl::StatusOr<double> TimeSteps(absl::string_view graph_text, const DeviceSpec& spec, int repeat,
                                 absl::FunctionRef<bool(const Group&)> counts, Device* device);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_CALIBRATE_KERNEL_BENCH_H_
