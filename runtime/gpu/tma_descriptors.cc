#include "runtime/gpu/tma_descriptors.h"

#if defined(RETROGRAD_HAVE_CUDA)
#include <cuda.h>
#endif
#include <dlfcn.h>

#include <array>
#include <cstring>

#include "absl/strings/str_format.h"
#include "graph/base/status.h"

namespace retrograd {

#if defined(RETROGRAD_HAVE_CUDA) && CUDA_VERSION >= 12000

namespace {

constexpr uint32_t kBoxBytes = 128;  // of each of a swizzled box's lines

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
void* EntryOf(const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : dlsym(driver, name);
}
decltype(&cuTensorMapEncodeTiled) Encoder() {
  static const auto encoder =
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(EntryOf("cuTensorMapEncodeTiled"));
  return encoder;
}
decltype(&cuTensorMapEncodeIm2col) ImageEncoder() {
  static const auto encoder =
      reinterpret_cast<decltype(&cuTensorMapEncodeIm2col)>(EntryOf("cuTensorMapEncodeIm2col"));
  return encoder;
}

// Dims stand the innermost first here, corners and steps too.
absl::StatusOr<CUtensorMap> EncodeImages(const ImageWalk& images, DType dtype, const void* data) {
  constexpr int kMostDims = 3;
  const int64_t bytes = SizeBytes(dtype);
  const int dims = images.dims;
  const std::array<int64_t, kMostDims> beyond = images.Beyond();
  cuuint64_t extents[2 + kMostDims] = {static_cast<cuuint64_t>(images.channels)};
  cuuint64_t pitches[1 + kMostDims] = {};
  cuuint32_t steps[2 + kMostDims] = {1, 1, 1, 1, 1};
  int lower[kMostDims] = {}, upper[kMostDims] = {};
  for (int i = 0; i < dims; ++i) {
    const auto d = static_cast<size_t>(kMostDims - 1 - i);
    extents[1 + i] = static_cast<cuuint64_t>(images.extent[d]);
    pitches[i] = static_cast<cuuint64_t>(images.pitch[d] * bytes);
    steps[1 + i] = static_cast<cuuint32_t>(images.step[d]);
    lower[i] = static_cast<int>(images.first[d]);
    upper[i] = static_cast<int>(beyond[d]);
  }
  extents[1 + dims] = static_cast<cuuint64_t>(images.images);
  pitches[dims] = static_cast<cuuint64_t>(images.image_pitch * bytes);
  char* const begin = const_cast<char*>(static_cast<const char*>(data)) + images.offset * bytes;
  CUtensorMap encoded;
  const CUresult result = ImageEncoder()(
      &encoded, TypeOf(dtype), static_cast<cuuint32_t>(2 + dims), begin, extents, pitches, lower,
      upper, kBoxWidth, kBoxLines, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return absl::InternalError(absl::StrFormat(
        "cuTensorMapEncodeIm2col: %d for %d images of %d channels in %d dims, at %p",
        static_cast<int>(result), images.images, images.channels, dims, begin));
  }
  return encoded;
}

OperandDescriptor DescriptorOf(const CUtensorMap& encoded) {
  static_assert(sizeof(CUtensorMap) == sizeof(OperandDescriptor));
  OperandDescriptor descriptor;
  std::memcpy(&descriptor, &encoded, sizeof descriptor);
  return descriptor;
}

}  // namespace

bool DescribesOperands() { return Encoder() != nullptr; }
bool DescribesImages() { return DescribesOperands() && ImageEncoder() != nullptr; }

absl::StatusOr<OperandDescriptor> DescribeOperand(const OperandMap& map, const void* data) {
  if (map.images && DescribesImages()) {
    RG_ASSIGN_OR_RETURN(const CUtensorMap images, EncodeImages(*map.images, map.dtype, data));
    return DescriptorOf(images);
  }
  if (map.images || !DescribesOperands()) {
    return absl::UnavailableError(
        "the NVIDIA driver has no cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col: it is too old "
        "for matmuls with epilogues");
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
                            static_cast<cuuint32_t>(runs ? 1 : kBoxLines), 1, 1};
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
  return DescriptorOf(encoded);
}

#else

bool DescribesOperands() { return false; }
bool DescribesImages() { return false; }

absl::StatusOr<OperandDescriptor> DescribeOperand(const OperandMap&, const void*) {
  return absl::UnimplementedError("built without the headers of CUDA 12.0 or later");
}

#endif

}  // namespace retrograd
