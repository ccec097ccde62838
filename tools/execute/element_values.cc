#include "tools/execute/element_values.h"

#include "graph/base/status.h"
#include "runtime/host/host_numbers.h"

namespace retrograd {
namespace {

template <typename T>
double IntegerAt(absl::string_view storage, int64_t at) {
  T value;
  std::memcpy(&value, storage.data() + at * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return static_cast<double>(value);
}

template <typename T>
double FloatAt(absl::string_view storage, int64_t at) {
  T value;
  std::memcpy(&value, storage.data() + at * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return ToFloat(value);
}

double ValueAt(absl::string_view storage, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return IntegerAt<uint8_t>(storage, at);
    case DType::kInt8: return IntegerAt<int8_t>(storage, at);
    case DType::kInt32: return IntegerAt<int32_t>(storage, at);
    case DType::kInt64: return IntegerAt<int64_t>(storage, at);
    case DType::kFp32: return IntegerAt<float>(storage, at);
    case DType::kFp64: return IntegerAt<double>(storage, at);
    case DType::kFp16: return FloatAt<HostFp16>(storage, at);
    case DType::kBf16: return FloatAt<HostBf16>(storage, at);
    case DType::kFp8E4M3: return FloatAt<HostF8E4M3>(storage, at);
    case DType::kFp8E5M2: return FloatAt<HostF8E5M2>(storage, at);
    case DType::kFp8E4M3Fnuz: return FloatAt<HostF8E4M3Fnuz>(storage, at);
    case DType::kFp8E5M2Fnuz: return FloatAt<HostF8E5M2Fnuz>(storage, at);
  }
  RG_CHECK(false);
}

}  // namespace

std::vector<double> ElementValues(absl::string_view storage, const TensorType& type,
                                  absl::Span<const int64_t> strides) {
  std::vector<double> values(static_cast<size_t>(type.elements()));
  std::vector<int64_t> index(type.shape.size(), 0);
  for (double& value : values) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
    RG_CHECK((at + 1) * SizeBytes(type.dtype) <= static_cast<int64_t>(storage.size()));
    value = ValueAt(storage, type.dtype, at);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < type.shape[d]) break;
      index[d] = 0;
    }
  }
  return values;
}

}  // namespace retrograd
