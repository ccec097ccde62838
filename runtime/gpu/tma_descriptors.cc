#include "runtime/gpu/tma_descriptors.h"

#if defined(RETROGRAD_HAVE_CUDA)
#include <cuda.h>
#endif
#include <dlfcn.h>

#include <cstring>

#include "absl/strings/str_format.h"

namespace retrograd {

#if defined(RETROGRAD_HAVE_CUDA) && CUDA_VERSION >= 12000

namespace {

constexpr uint32_t kBoxLines = 64, kBoxBytes = 128;  // a swizzled box's lines, and of each

CUtensorMapDataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFp32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::kFp16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kFp8E4M3:
    case DType::kFp8E5M2: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    default: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  }
}

// Looked for in the driver that is there already: whoever brings another brings no such
// descriptors.
decltype(&cuTensorMapEncodeTiled) Encoder() {
  static const auto encoder = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void* entry = driver == nullptr ? nullptr : dlsym(driver, "cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }();
  return encoder;
}

}  // namespace

bool DescribesOperands() { return Encoder() != nullptr; }

absl::StatusOr<OperandDescriptor> DescribeOperand(const OperandMap& map, const void* data) {
  static_assert(sizeof(CUtensorMap) == sizeof(OperandDescriptor));
  if (!DescribesOperands()) {
    return absl::UnavailableError(
        "the NVIDIA driver has no cuTensorMapEncodeTiled: it is too old for "
        "matmuls with epilogues");
  }
  const int64_t bytes = SizeBytes(map.dtype);
  const cuuint64_t extents[] = {
      static_cast<cuuint64_t>(map.inner), static_cast<cuuint64_t>(map.outer),
      static_cast<cuuint64_t>(map.heads), static_cast<cuuint64_t>(map.batch)};
  const cuuint64_t pitches[] = {static_cast<cuuint64_t>(map.pitch * bytes),
                                static_cast<cuuint64_t>(map.head_pitch * bytes),
                                static_cast<cuuint64_t>(map.batch_pitch * bytes)};
  const bool runs = map.dtype == DType::kFp32;
  const cuuint32_t box[] = {static_cast<cuuint32_t>(runs ? map.inner : kBoxBytes / bytes),
                            runs ? 1 : kBoxLines, 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  const cuuint32_t rank = map.batch > 0 ? 4 : map.heads > 0 ? 3 : 2;
  char* const begin = const_cast<char*>(static_cast<const char*>(data)) + map.offset * bytes;
  CUtensorMap encoded;
  const CUresult result = Encoder()(
      &encoded, TypeOf(map.dtype), rank, begin, extents, pitches, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, runs ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return absl::InternalError(absl::StrFormat(
        "cuTensorMapEncodeTiled: %d for %d rows of %d elements, %d elements apart, at %p",
        static_cast<int>(result), map.outer, map.inner, map.pitch, begin));
  }
  OperandDescriptor descriptor;
  std::memcpy(&descriptor, &encoded, sizeof descriptor);
  return descriptor;
}

#else

bool DescribesOperands() { return false; }

absl::StatusOr<OperandDescriptor> DescribeOperand(const OperandMap&, const void*) {
  return absl::UnimplementedError("built without the headers of CUDA 12.0 or later");
}

#endif

}  // namespace retrograd
