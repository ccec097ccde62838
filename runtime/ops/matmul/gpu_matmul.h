// Matmuls on a GPU: by the vendor's library or, where it refuses, by a simple kernel of ours.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_GPU_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_GPU_MATMUL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/ops/matmul/matmul_facts.h"

namespace retrograd {

// A matmul by a library, as prepared for a call; calls that differ in their offsets alone share it.
class LibraryMatMul {
 public:
  virtual ~LibraryMatMul() = default;
  virtual int64_t workspace_bytes() const = 0;
  // Pointers to the stored values' first elements, and the offsets of a, b and d in elements.
  virtual absl::Status Run(GpuStream stream, const MatMulPointers& pointers,
                           const int64_t offsets[3], void* workspace) const = 0;
};

class GpuMatMulLoader : public CallLoader {
 public:
  explicit GpuMatMulLoader(GpuDevice& device) : device_(device) {}
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override;

 protected:
  // Unimplemented where the library has no algorithm for the call: then a kernel of ours makes it.
  // In the device's context.
  virtual absl::StatusOr<std::shared_ptr<const LibraryMatMul>> Prepare(
      const MatMulCall& call, const MatMulFacts& facts) = 0;
  GpuDevice& device() const { return device_; }

 private:
  GpuDevice& device_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_GPU_MATMUL_H_
