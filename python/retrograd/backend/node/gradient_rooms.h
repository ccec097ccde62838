// Where the gradients of a phase lie.
//
// An allocation is a search in the allocator's tables, under its lock: gradients share allocations.
// Who keeps one gradient keeps its allocation: those are no larger than the pieces that PyTorch's
// allocator takes from a GPU for tensors of less than 10 MiB, and a gradient of 10 MiB or more, for
// which it takes a piece alone, has an allocation of its own.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "layout.h"

namespace retrograd {

// PyTorch's memory of a device, without a call of its dispatcher for each tensor.
class Memory {
 public:
  explicit Memory(at::Device device)
      : like_(at::empty({0}, at::TensorOptions().dtype(at::kByte).device(device))) {}

  // On the current device and stream, as at::empty does.
  c10::Storage Allocate(int64_t bytes) const {
    c10::Allocator* const allocator = like_.storage().allocator();
    return {c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes),
            allocator->allocate(static_cast<size_t>(bytes)), allocator, /*resizable=*/true};
  }

  // A tensor of its own for autograd: no view, with its own version.
  at::Tensor Make(c10::Storage storage, const Layout& layout, int64_t at) const {
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), like_.key_set(), caffe2::TypeMeta::fromScalarType(layout.dtype));
    const auto size = static_cast<int64_t>(c10::elementSize(layout.dtype));
    made.unsafeGetTensorImpl()->set_sizes_and_strides(layout.sizes, layout.strides, at / size);
    return made;
  }

 private:
  at::Tensor like_;  // without elements
};

class GradientRooms {
 public:
  explicit GradientRooms(const Memory& memory) : memory_(memory) {}

  struct Place {
    size_t allocation = 0;
    int64_t at = 0;  // in it
  };

  // For a gradient of so many bytes. shares: whether it may lie beside others.
  Place Reserve(int64_t bytes, bool shares) {
    const int64_t room = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (!shares || bytes >= kAlone) {
      allocations_.push_back({bytes, {}});
      return {allocations_.size() - 1, 0};
    }
    if (!open_ || allocations_[shared_].bytes + room > kMostShared) {
      shared_ = allocations_.size();
      open_ = true;
      allocations_.push_back({});
    }
    const Place place{shared_, allocations_[shared_].bytes};
    allocations_[shared_].bytes += room;
    return place;
  }

  // Behind all places.
  void Allocate() {
    for (Allocation& allocation : allocations_) {
      allocation.storage = memory_.Allocate(allocation.bytes);
    }
  }

  at::Tensor Make(const Layout& layout, const Place& place) const {
    return memory_.Make(allocations_[place.allocation].storage, layout, place.at);
  }

 private:
  static constexpr int64_t kAlignment = 512;        // of PyTorch's allocators
  static constexpr int64_t kAlone = 10 << 20;       // CUDACachingAllocator's kMinLargeAlloc
  static constexpr int64_t kMostShared = 20 << 20;  // and its kLargeBuffer

  struct Allocation {
    int64_t bytes = 0;
    c10::Storage storage;
  };

  const Memory& memory_;
  std::vector<Allocation> allocations_;
  size_t shared_ = 0;  // the allocation that takes the next small gradient
  bool open_ = false;
};

}  // namespace retrograd
