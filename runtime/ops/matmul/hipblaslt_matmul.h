// Matmuls through hipBLASLt, which is loaded when first asked for. Never run on AMD hardware.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_HIPBLASLT_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_HIPBLASLT_MATMUL_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/ops/matmul/gpu_matmul.h"

namespace retrograd {

struct HipblasltEntries;

// The library's handle on a device. Made, used and destroyed in the device's context.
class HipblasltHandle {
 public:
  // library: a path; empty: where it is usually found. Unavailable where there is none.
  static absl::StatusOr<std::unique_ptr<HipblasltHandle>> Create(const std::string& library);
  ~HipblasltHandle();
  HipblasltHandle(const HipblasltHandle&) = delete;
  HipblasltHandle& operator=(const HipblasltHandle&) = delete;

  int version() const { return version_; }
  // Unimplemented, naming the shape, where the library does not take the call. The handle must
  // outlive the result.
  absl::StatusOr<std::unique_ptr<LibraryMatMul>> MakeMatMul(const MatMulCall& call,
                                                            const MatMulFacts& facts);

 private:
  HipblasltHandle(const HipblasltEntries& entries, void* handle, int version)
      : entries_(entries), handle_(handle), version_(version) {}

  const HipblasltEntries& entries_;
  void* handle_;
  int version_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_HIPBLASLT_MATMUL_H_
