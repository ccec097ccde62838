// What loading an executable tells of its plan, for the next plan of the same graph: in this
// process and, through the device's cache, in later ones.
#ifndef RETROGRAD_RUNTIME_EXECUTABLE_EXECUTABLE_REPORT_H_
#define RETROGRAD_RUNTIME_EXECUTABLE_EXECUTABLE_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "fusion/cost/device_report.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/device/device.h"
#include "runtime/program/program.h"

namespace retrograd {

// How many of the kernels spill.
int64_t Spilling(absl::Span<const KernelResources> kernels);

// What can change a plan: the kernels, if any of them spills, and the times of library calls.
// `program`: null where calls are not asked about.
DeviceReport NewsOf(const CompiledPlan& compiled, absl::Span<const KernelResources> kernels,
                    const Program* program, const std::string& arch);

// Whether `more` says anything that is not known.
bool IsNews(const DeviceReport& more, const DeviceReport& known);

// The report of earlier executables of a graph, kept beside compiled code: the first plan of the
// next process is then the last one of this.
class RememberedReport {
 public:
  // cache: null: nothing is remembered. spec_text: of the spec that is planned by.
  RememberedReport(const ModuleCache* cache, const DeviceFacts& device,
                   const std::string& spec_text, const BackwardGraph& graph);

  DeviceReport Read() const;  // empty where there is none
  void Write(const DeviceReport& report) const;

 private:
  const ModuleCache* const cache_;
  std::string key_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_EXECUTABLE_EXECUTABLE_REPORT_H_
