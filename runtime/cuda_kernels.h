// What a cuda device keeps of a program: kernels with their table of addresses, and recordings. Only
// for the files that make up the cuda device: it shows the vendor's types.
#ifndef RETROGRAD_RUNTIME_CUDA_KERNELS_H_
#define RETROGRAD_RUNTIME_CUDA_KERNELS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/cuda_api.h"
#include "runtime/cuda_support_kernels.h"
#include "runtime/device.h"

namespace retrograd {

// A context made current for the time of a call; what was current before is again.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, CUcontext context)
      : driver_(driver),
        status_(CudaStatus(driver, driver.CtxPushCurrent(context), "cuCtxPushCurrent")) {}
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (status_.ok()) driver_.CtxPopCurrent(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  const CudaDriver& driver_;
  absl::Status status_;
};

// Modules with their launches, and the table in device memory that those read their arguments'
// addresses from. But for the destructor all is done in the current context.
class CudaKernels : public LoadedKernels {
 public:
  CudaKernels(const CudaDriver& driver, CUcontext context) : driver_(driver), context_(context) {}
  ~CudaKernels() override;

  absl::Status AddModule(const std::string& cubin);
  absl::StatusOr<CUfunction> Find(const std::string& kernel) const;
  absl::Status Prepare(absl::Span<const Launch> launches);

  // Writes the entries that changed, by the kernel of that purpose. In a capture all are written and
  // none counts as known afterwards, since nobody knows when the capture is replayed.
  absl::Status Bind(CUstream stream, CUfunction set_table, absl::Span<void* const> table);

  absl::Status Run(CUstream stream, size_t launch);

 private:
  struct Prepared {
    CUfunction function = nullptr;
    unsigned blocks = 1, threads = 1, staged_bytes = 0;
    std::vector<int32_t> slots;
  };

  absl::Status Write(CUstream stream, CUfunction set_table, TableEntries* entries);

  const CudaDriver& driver_;
  CUcontext context_;
  std::vector<CUmodule> modules_;
  absl::flat_hash_map<std::string, CUmodule> homes_;  // by a name in a module's table of strings
  std::vector<Prepared> launches_;
  CUdeviceptr table_ = 0;
  std::vector<void*> known_;  // what the table holds once the stream has come so far
  bool certain_ = false;      // whether it holds that
};

// An executable graph.
class CudaRecording : public Recording {
 public:
  CudaRecording(const CudaDriver& driver, CUcontext context)
      : driver_(driver), context_(context) {}
  ~CudaRecording() override;

  // Makes the executable what the graph says: an update where that is possible, else a new one.
  absl::Status Become(CUgraph graph);

  CUgraphExec exec() const { return exec_; }

 private:
  void Destroy();

  const CudaDriver& driver_;
  CUcontext context_;
  CUgraphExec exec_ = nullptr;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_CUDA_KERNELS_H_
