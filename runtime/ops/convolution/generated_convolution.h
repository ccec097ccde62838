// Convolutions' gradients by kernels of ours: the schedules that a call can have, compiled
// together.
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_GENERATED_CONVOLUTION_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_GENERATED_CONVOLUTION_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/convolution/convolution_kernels.h"
#include "codegen/print/dialect.h"
#include "fusion/ops/convolution/convolution_call.h"
#include "fusion/ops/convolution/implicit_gemm_tiles.h"
#include "runtime/device/device.h"

namespace retrograd {

// Schedules of a call that are timed.
inline constexpr size_t kMostSchedules = 3;

// Bytes that must divide all addresses.
inline constexpr int64_t kConvolutionAlignment = 16;

// Unimplemented where addresses are not known to be multiples of kConvolutionAlignment.
absl::Status AlignmentRefusal(const CallFacts& facts);

// A launch of the kernel, without its arguments and descriptions.
Launch BareLaunchOf(const Kernel& kernel);

// What a kernel that loads boxes takes, in its order: of the addresses of the images, then of the
// matrix.
std::vector<OperandMap> BoxMapsOf(const BoxOperands& boxes, DType dtype, uint32_t images_slot,
                                  uint32_t matrix_slot);

// What bounds the schedules of a call on the device.
ImplicitGemmLimits ConvolutionLimits(const Device& device, const CallFacts& facts);

// The kernels of up to `most` schedules, the one that is taken to be the fastest first.
// Unimplemented where there are none for such a call.
absl::StatusOr<std::vector<ConvolutionKernels>> GenerateConvolution(
    const ConvolutionCall& call, Dialect dialect, const ImplicitGemmLimits& limits, size_t most);

// The kernels of all schedules, each once, in the order in which they are loaded.
std::vector<Kernel> DistinctKernels(const std::vector<ConvolutionKernels>& schedules);

// Those that LoadGeneratedConvolution has compiled; empty where it refuses.
std::vector<Kernel> GeneratedConvolutionKernels(Device& device, const Call& call,
                                                const CallFacts& facts, size_t most);

// The same, loaded: a call for each schedule. Unimplemented also where addresses are not known to
// be multiples of 16 bytes.
absl::StatusOr<std::vector<std::unique_ptr<LoadedCall>>> LoadGeneratedConvolution(
    Device& device, const Call& call, const CallFacts& facts, size_t most);

// The schedule of this name (LoadedCall::Describe), or the first where the call has none of it.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedConvolutionLike(Device& device,
                                                                         const Call& call,
                                                                         const CallFacts& facts,
                                                                         absl::string_view name);

// Schedules of a call, compiled together: a call for each.
absl::StatusOr<std::vector<std::unique_ptr<LoadedCall>>> LoadConvolutionKernels(
    Device& device, const Call& call, const std::vector<ConvolutionKernels>& made);

// Who loads convolutions so on a device, by the first schedule, and the others by `otherwise`.
std::unique_ptr<CallLoader> MakeGeneratedConvolutionLoader(Device& device,
                                                           std::unique_ptr<CallLoader> otherwise);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_GENERATED_CONVOLUTION_H_
