// Memory that a sort of indices holds from run to run: scratch memory, then the list.
#ifndef RETROGRAD_RUNTIME_OPS_SORT_INDICES_KEPT_LIST_H_
#define RETROGRAD_RUNTIME_OPS_SORT_INDICES_KEPT_LIST_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "fusion/ops/sort_indices/index_sort.h"
#include "runtime/device/device.h"

namespace retrograd {

class KeptList {
 public:
  // No indices are known yet. ResourceExhausted where the device has no memory to spare.
  static absl::StatusOr<std::unique_ptr<KeptList>> Make(Device& device, const IndexSort& sort);
  ~KeptList() { device_.Free(data_); }
  KeptList(const KeptList&) = delete;
  KeptList& operator=(const KeptList&) = delete;

  void* scratch() const { return data_; }
  void* list() const { return static_cast<char*>(data_) + list_; }
  int64_t bytes() const { return bytes_; }

 private:
  KeptList(Device& device, void* data, int64_t list, int64_t bytes)
      : device_(device), data_(data), list_(list), bytes_(bytes) {}

  Device& device_;
  void* const data_;
  const int64_t list_, bytes_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_SORT_INDICES_KEPT_LIST_H_
