// How the elements of a tensor lie, as a plan expects them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace retrograd {

struct Layout {
  Layout(at::ScalarType of, std::vector<int64_t> shape, std::vector<int64_t> steps)
      : dtype(of), sizes(std::move(shape)), strides(std::move(steps)) {
    int64_t elements = 1, last = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      elements *= sizes[i];
      last += (sizes[i] - 1) * strides[i];
      expanded = expanded || (strides[i] == 0 && sizes[i] > 1);
    }
    if (elements > 0) bytes = (last + 1) * static_cast<int64_t>(c10::elementSize(dtype));
  }

  at::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements
  int64_t bytes = 0;             // of the memory from the first element to the end of the last
  // Whether some elements share memory: such a tensor cannot be written element by element.
  bool expanded = false;
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
