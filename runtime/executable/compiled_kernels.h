// What a compiler made of a plan's kernels: as data for the next planning run, and to be shown.
#ifndef RETROGRAD_RUNTIME_EXECUTABLE_COMPILED_KERNELS_H_
#define RETROGRAD_RUNTIME_EXECUTABLE_COMPILED_KERNELS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "fusion/cost/device_report.h"
#include "fusion/device/device_spec.h"
#include "runtime/compiler/rtc.h"
#include "runtime/program/compile.h"

namespace retrograd {

// The launch that does a group's work, of its launches.
size_t MainLaunchOf(const KernelBody& body);

// The resources of the launch that does the group's work, and the spills of all of its launches.
// Nothing where the compiler did not see the kernel, as where it is part of a shared launch.
std::optional<CompiledResources> ResourcesOf(const CompiledPlan& compiled, GroupId group,
                                             absl::Span<const KernelResources> kernels);

// Each group's kernel by what it computes and how.
DeviceReport ReportOf(const CompiledPlan& compiled, absl::Span<const KernelResources> kernels,
                      const std::string& compiler, const std::string& arch);

// What the group's kernel asks of an SM, with what the compiler reported in the place of
// predictions.
Footprint FootprintOf(const KernelBody& body, const CompiledResources& resources,
                      const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_EXECUTABLE_COMPILED_KERNELS_H_
