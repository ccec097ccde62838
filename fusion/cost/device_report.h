// What a device and its compiler made of an earlier plan, as data for the next planning run: real
// registers replace the predicted ones, a schedule whose kernel spills is not chosen again, and
// library calls cost what they were measured to take.
//
// As text, one line a kernel or call, which tools write and read:
//   retrograd device report 1
//   compiler NVRTC 13.0
//   arch sm_90
//   kernel 8f14e45fceea167a registers 64 spill_bytes 0 shared_bytes 2048
//   call 12500000 matmul bf16[512,512]512,1 bf16[512,512]512,1 bf16[512,512]512,1
// where a call's number is its time in picoseconds and the rest of the line its key.
#ifndef RETROGRAD_FUSION_COST_DEVICE_REPORT_H_
#define RETROGRAD_FUSION_COST_DEVICE_REPORT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fusion/kernel/ir/kernel_ir.h"
#include "fusion/kernel/templates/registers.h"
#include "fusion/kernel/templates/schedule.h"

namespace retrograd {

// Equal for equal work: what is computed over which extents, dtypes and strides. The graph's own
// names and numbers do not enter, so that equal layers and equal graphs share an entry.
uint64_t FingerprintOf(const KernelIr& ir);
// The same with how it is walked: the key of a report.
uint64_t FingerprintOf(uint64_t ir, const Schedule& schedule);

struct DeviceReport {
  std::string compiler;                           // "NVRTC 13.0"
  std::string arch;                               // "sm_90"
  std::map<uint64_t, CompiledResources> kernels;  // by fingerprint of IR and schedule
  // Measured picoseconds of one of several runs in a row, with warm caches, by CallKey.
  std::map<std::string, int64_t> calls;

  bool empty() const { return kernels.empty() && calls.empty(); }
  // nullptr where that kernel was never compiled.
  const CompiledResources* Find(uint64_t ir, const Schedule& schedule) const;
  // What is known in `more` and not here, or is known otherwise there.
  void Update(const DeviceReport& more);

  std::string Print() const;
  friend bool operator==(const DeviceReport&, const DeviceReport&) = default;
};

// Reads what Print wrote. InvalidArgument with the line's number; `where` begins the message.
absl::StatusOr<DeviceReport> ParseDeviceReport(absl::string_view text, absl::string_view where);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_COST_DEVICE_REPORT_H_
