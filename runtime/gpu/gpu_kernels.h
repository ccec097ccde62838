// What a GPU's device keeps of a program: kernels with their table of addresses, and recordings.
#ifndef RETROGRAD_RUNTIME_GPU_GPU_KERNELS_H_
#define RETROGRAD_RUNTIME_GPU_GPU_KERNELS_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"
#include "runtime/gpu/gpu_driver.h"
#include "runtime/gpu/gpu_support_kernels.h"
#include "runtime/gpu/loaded_module.h"
#include "runtime/gpu/relocations.h"

namespace retrograd {

// Modules with their launches, and the table in device memory that those read their arguments'
// addresses from. But for the destructor all is done in the current context.
class GpuKernels : public LoadedKernels {
 public:
  GpuKernels(const GpuDriver& driver, const GpuContext& context)
      : driver_(driver), context_(context) {}
  ~GpuKernels() override;

  absl::Status AddModule(const std::string& code);
  void AddModule(std::shared_ptr<LoadedModule> module) { modules_.push_back(std::move(module)); }
  void AddResources(absl::Span<const KernelResources> resources) {
    resources_.insert(resources_.end(), resources.begin(), resources.end());
  }
  absl::Span<const KernelResources> resources() const override { return resources_; }
  absl::StatusOr<GpuFunction> Find(const std::string& kernel) const;
  // `sms`: of the device, for launches that take as many blocks as it holds at once.
  absl::Status Prepare(absl::Span<const Launch> launches, int sms);

  // Writes the entries that changed, by the kernel of that purpose. In a capture all are written
  // and none counts as known afterwards, since nobody knows when the capture is replayed.
  absl::Status Bind(GpuStream stream, GpuFunction set_table, absl::Span<void* const> table);

  // Launches of a recording that are given addresses as parameters take them from here; what stands
  // in the table is as it was. Until it is told the table of the last Bind again.
  void Assume(absl::Span<void* const> table);

  // early: as GpuDriver::LaunchEarly.
  absl::Status Run(GpuStream stream, size_t launch, bool early = false);

 private:
  struct Prepared {
    GpuFunction function = nullptr;
    unsigned blocks = 1, threads = 1, staged_bytes = 0;
    std::vector<int32_t> slots;
    std::vector<OperandMap> maps;
    bool direct = false;
    bool maps_together = false;  // as one parameter
  };

  struct Found {
    GpuFunction function = nullptr;
    LoadedModule* module = nullptr;
  };
  absl::StatusOr<Found> FindWithModule(const std::string& kernel) const;
  absl::Status Write(GpuStream stream, GpuFunction set_table, TableEntries* entries);

  const GpuDriver& driver_;
  GpuContext context_;
  std::vector<std::shared_ptr<LoadedModule>> modules_;
  std::vector<KernelResources> resources_;
  std::vector<Prepared> launches_;
  void* table_ = nullptr;     // null where no launch reads one
  std::vector<void*> known_;  // what the table holds once the stream has come so far
  bool certain_ = false;      // whether it holds that
};

// An executable graph.
class GpuRecording : public Recording {
 public:
  GpuRecording(const GpuDriver& driver, const GpuContext& context)
      : driver_(driver), context_(context) {}
  ~GpuRecording() override;

  // Makes the executable what the graph says: an update where that is possible, else a new one.
  absl::Status Become(GpuGraph graph);

  // What Compare and Move are for: it keeps the graph, of which Move makes the executable.
  absl::Status BecomeMovable(GpuGraph graph);
  // Relocations::Compare with another graph of the same work; Repeat, without distances.
  absl::Status Compare(GpuGraph other, absl::Span<const int64_t> moved);
  // Relocations::Move of the executable.
  absl::Status Move(absl::Span<const int64_t> moved);

  GpuGraphExec exec() const { return exec_; }

 private:
  void Destroy();

  const GpuDriver& driver_;
  GpuContext context_;
  GpuGraphExec exec_ = nullptr;
  GpuGraph graph_ = nullptr;  // that exec_ was made of, where it is movable
  std::optional<Relocations> relocations_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_GPU_KERNELS_H_
