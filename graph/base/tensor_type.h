// What a tensor is: element type and shape. Strides belong to graph inputs and outputs alone.
#ifndef RETROGRAD_GRAPH_BASE_TENSOR_TYPE_H_
#define RETROGRAD_GRAPH_BASE_TENSOR_TYPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace retrograd {

// Numbered as in graph.proto.
enum class DType : uint8_t {
  kBool = 1,
  kInt8 = 2,
  kUInt8 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFp16 = 6,
  kBf16 = 7,
  kFp32 = 8,
  kFp64 = 9,
  kFp8E4M3 = 10,  // PyTorch's float8_e4m3fn: NaN and no infinity, at most 448
  kFp8E5M2 = 11,  // the upper byte of an fp16
  // Those of AMD's matrix cores: no infinity, no negative zero, one NaN, code 0x80.
  kFp8E4M3Fnuz = 12,  // PyTorch's float8_e4m3fnuz: at most 240
  kFp8E5M2Fnuz = 13,  // PyTorch's float8_e5m2fnuz: at most 57344
};
inline constexpr DType kAllDTypes[] = {
    DType::kBool,    DType::kInt8,        DType::kUInt8,      DType::kInt32, DType::kInt64,
    DType::kFp16,    DType::kBf16,        DType::kFp32,       DType::kFp64,  DType::kFp8E4M3,
    DType::kFp8E5M2, DType::kFp8E4M3Fnuz, DType::kFp8E5M2Fnuz};

int64_t SizeBytes(DType dtype);
bool IsFloat(DType dtype);
bool IsInteger(DType dtype);      // int8 ... int64, not bool
bool IsNarrowFloat(DType dtype);  // narrower than what kernels compute it in: fp8, fp16, bf16
bool IsFp8(DType dtype);
bool IsFnuz(DType dtype);  // fp8 without a negative zero and an infinity
// "bool", "i8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2", "f8e4m3fnuz",
// "f8e5m2fnuz".
absl::string_view Name(DType dtype);
std::optional<DType> DTypeByName(absl::string_view name);

// The type in which a kernel computes: fp32 for fp8, bf16, fp16 and fp32, fp64 for fp64; every
// other type computes in itself.
DType ComputeType(DType dtype);

using Shape = std::vector<int64_t>;

// Largest element count of one tensor that the library accepts; keeps every offset in int64.
inline constexpr int64_t kMaxElements = int64_t{1} << 48;
inline constexpr int kMaxRank = 12;

// Product of the extents (1 for rank 0); nullopt on a negative extent or beyond kMaxElements.
std::optional<int64_t> CheckedElements(absl::Span<const int64_t> shape);
int64_t Elements(absl::Span<const int64_t> shape);  // the shape must have been checked

// Row-major strides in elements.
std::vector<int64_t> DenseStrides(absl::Span<const int64_t> shape);

// From a strided tensor's first element to its last: 1 + sum of (extent - 1) * stride, or 0 if
// empty.
int64_t SpanElements(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);

// Shape of the numpy broadcast of both, or nullopt if two extents differ and neither is 1.
std::optional<Shape> BroadcastShapes(absl::Span<const int64_t> a, absl::Span<const int64_t> b);

struct TensorType {
  DType dtype = DType::kFp32;
  Shape shape;

  int64_t elements() const { return Elements(shape); }
  int64_t size_bytes() const { return elements() * SizeBytes(dtype); }
  int rank() const { return static_cast<int>(shape.size()); }
  std::string Print() const;  // "bf16[8192,4096]"

  friend bool operator==(const TensorType&, const TensorType&) = default;
};

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_BASE_TENSOR_TYPE_H_
