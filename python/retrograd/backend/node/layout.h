// How the elements of a tensor lie, as a plan expects them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace retrograd {

struct Layout {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t size : sizes) n *= size;
    return n;
  }

  // Of the memory from the first element to the end of the last.
  int64_t bytes() const {
    if (elements() == 0) return 0;
    int64_t last = 0;
    for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
    return (last + 1) * static_cast<int64_t>(c10::elementSize(dtype));
  }

  // Whether some elements share memory: such a tensor cannot be written element by element.
  bool expanded() const {
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (strides[i] == 0 && sizes[i] > 1) return true;
    }
    return false;
  }
};

// Whether each index has its element at the same place; the strides of axes of one element, and of
// tensors without elements, mean nothing.
inline bool SameStrides(at::IntArrayRef sizes, at::IntArrayRef a, at::IntArrayRef b) {
  bool same = true;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return true;
    same = same && (sizes[i] == 1 || a[i] == b[i]);
  }
  return same;
}

// Whether the tensor is an ordinary one with elements of this type in this shape.
inline bool HasShape(const at::Tensor& tensor, const Layout& layout, at::Device device) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return tensor.scalar_type() == layout.dtype && !impl.is_python_dispatch() &&
         tensor.layout() == at::kStrided && tensor.device() == device && !tensor.is_neg() &&
         !impl.is_sparse() && tensor.sizes() == at::IntArrayRef(layout.sizes);
}

inline at::Tensor Room(const Layout& layout, at::Device device) {
  return at::empty_strided(layout.sizes, layout.strides,
                           at::TensorOptions().dtype(layout.dtype).device(device));
}

}  // namespace retrograd
