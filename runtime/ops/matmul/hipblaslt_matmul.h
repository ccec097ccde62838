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

// The library's handle on a device, and the calls that were prepared so far, since layers repeat
// them. Made, used and destroyed in the device's context.
class HipblasltMatMuls {
 public:
  // library: a path; empty: where it is usually found. Unavailable where there is none.
  static absl::StatusOr<std::unique_ptr<HipblasltMatMuls>> Create(const std::string& library);
  ~HipblasltMatMuls();
  HipblasltMatMuls(const HipblasltMatMuls&) = delete;
  HipblasltMatMuls& operator=(const HipblasltMatMuls&) = delete;

  // Where calls are prepared.
  struct Place {
    const GpuDriver& driver;
    GpuStream stream;
    std::string device;                  // "AMD Instinct MI250X gfx90a"
    const ModuleCache* cache = nullptr;  // of what was fastest before; null: none
    bool time = true;                    // try the library's candidates and keep the fastest
  };
  // Unimplemented, naming the shape, where the library does not take the call.
  absl::StatusOr<std::shared_ptr<const LibraryMatMul>> Prepare(const Place& place,
                                                               const MatMulCall& call,
                                                               const MatMulFacts& facts);

 private:
  HipblasltMatMuls(const HipblasltEntries& entries, void* handle, int version)
      : entries_(entries), handle_(handle), version_(version) {}

  const HipblasltEntries& entries_;
  void* handle_;
  int version_;
  std::map<std::string, std::shared_ptr<const LibraryMatMul>> known_;  // by MatMulKey
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_HIPBLASLT_MATMUL_H_
