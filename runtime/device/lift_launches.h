// Kernels and launches of a program as a device loads them whose programs share kernels.
#ifndef RETROGRAD_RUNTIME_DEVICE_LIFT_LAUNCHES_H_
#define RETROGRAD_RUNTIME_DEVICE_LIFT_LAUNCHES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "runtime/compiler/kernel_families.h"
#include "runtime/device/device.h"

namespace retrograd {

struct LiftedLaunches {
  std::vector<Kernel> kernels;  // each once
  std::vector<Launch> launches;
  // Of each kernel that was given: its name, and the name of the one that does its work.
  std::vector<std::pair<std::string, std::string>> names;
};

// program: of KernelFamilies::NewProgram. Launches name kernels by the names that were given.
LiftedLaunches LiftLaunches(KernelFamilies& families, int64_t program,
                            absl::Span<const Kernel> kernels, absl::Span<const Launch> launches);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_DEVICE_LIFT_LAUNCHES_H_
