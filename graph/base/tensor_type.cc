#include "graph/base/tensor_type.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

struct DTypeRow {
  DType dtype;
  absl::string_view name;
  int64_t size_bytes;
  bool is_float;
  DType compute;
};

constexpr DTypeRow kRows[] = {
    {DType::kBool, "bool", 1, false, DType::kBool},
    {DType::kInt8, "i8", 1, false, DType::kInt8},
    {DType::kUInt8, "u8", 1, false, DType::kUInt8},
    {DType::kInt32, "i32", 4, false, DType::kInt32},
    {DType::kInt64, "i64", 8, false, DType::kInt64},
    {DType::kFp16, "f16", 2, true, DType::kFp32},
    {DType::kBf16, "bf16", 2, true, DType::kFp32},
    {DType::kFp32, "f32", 4, true, DType::kFp32},
    {DType::kFp64, "f64", 8, true, DType::kFp64},
    {DType::kFp8E4M3, "f8e4m3", 1, true, DType::kFp32},
    {DType::kFp8E5M2, "f8e5m2", 1, true, DType::kFp32},
    {DType::kFp8E4M3Fnuz, "f8e4m3fnuz", 1, true, DType::kFp32},
    {DType::kFp8E5M2Fnuz, "f8e5m2fnuz", 1, true, DType::kFp32},
};

const DTypeRow& Row(DType dtype) {
  const int index = static_cast<int>(dtype) - 1;
  RG_CHECK(index >= 0 && index < static_cast<int>(std::size(kRows)));
  return kRows[index];
}

}  // namespace

int64_t SizeBytes(DType dtype) { return Row(dtype).size_bytes; }
bool IsFloat(DType dtype) { return Row(dtype).is_float; }
bool IsInteger(DType dtype) { return !IsFloat(dtype) && dtype != DType::kBool; }
bool IsNarrowFloat(DType dtype) { return IsFloat(dtype) && ComputeType(dtype) != dtype; }
bool IsFp8(DType dtype) { return IsFloat(dtype) && SizeBytes(dtype) == 1; }
bool IsFnuz(DType dtype) { return dtype == DType::kFp8E4M3Fnuz || dtype == DType::kFp8E5M2Fnuz; }
absl::string_view Name(DType dtype) { return Row(dtype).name; }
DType ComputeType(DType dtype) { return Row(dtype).compute; }

std::optional<DType> DTypeByName(absl::string_view name) {
  for (const DTypeRow& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<int64_t> CheckedElements(absl::Span<const int64_t> shape) {
  // The product of the extents that are not 0 is bounded too: DenseStrides must not overflow.
  int64_t product = 1;
  bool empty = false;
  for (int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;
      continue;
    }
    if (extent > kMaxElements / product) return std::nullopt;
    product *= extent;
  }
  return empty ? 0 : product;
}

int64_t Elements(absl::Span<const int64_t> shape) {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

int64_t SpanElements(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  int64_t span = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    span += (shape[i] - 1) * strides[i];
  }
  return span;
}

std::vector<int64_t> DenseStrides(absl::Span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

std::optional<Shape> BroadcastShapes(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  if (a.size() < b.size()) std::swap(a, b);
  Shape out(a.begin(), a.end());
  const size_t shift = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t& extent = out[i + shift];
    if (extent == b[i] || b[i] == 1) continue;
    if (extent != 1) return std::nullopt;
    extent = b[i];
  }
  return out;
}

std::string TensorType::Print() const {
  return absl::StrCat(Name(dtype), "[", absl::StrJoin(shape, ","), "]");
}

}  // namespace retrograd
