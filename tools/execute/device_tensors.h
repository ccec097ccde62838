// Device memory for a graph's inputs and outputs, filled as a run wants it.
#ifndef RETROGRAD_TOOLS_EXECUTE_DEVICE_TENSORS_H_
#define RETROGRAD_TOOLS_EXECUTE_DEVICE_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"
#include "runtime/device/device.h"
#include "tools/support/safetensors.h"

namespace retrograd {

// Allocations that live as long as it does. The device must outlive it.
class Buffers {
 public:
  explicit Buffers(Device* device) : device_(device) {}
  ~Buffers() {
    for (void* p : all_) device_->Free(p);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  absl::StatusOr<void*> Allocate(int64_t bytes);

 private:
  Device* device_;
  std::vector<void*> all_;
};

// The strides, or those of a dense tensor where there are none.
std::vector<int64_t> StridesOr(const std::vector<int64_t>& strides, const Shape& shape);

// Each input's bytes from the bundle, in device memory.
absl::StatusOr<std::vector<const void*>> UploadInputs(const BackwardGraph& graph,
                                                      const Bundle& bundle, Device* device,
                                                      Buffers* buffers);

// Device memory for each input, filled with something.
absl::StatusOr<std::vector<const void*>> DrawInputs(const BackwardGraph& graph, uint64_t seed,
                                                    Device* device, Buffers* buffers);

// Null where the host expects none.
absl::StatusOr<std::vector<void*>> AllocateOutputs(const BackwardGraph& graph, Buffers* buffers);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_DEVICE_TENSORS_H_
