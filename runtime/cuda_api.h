// NVIDIA's driver, loaded when first asked for, so that one binary starts on machines without one.
// Only for the files that make up the cuda device: it shows the vendor's types.
#ifndef RETROGRAD_RUNTIME_CUDA_API_H_
#define RETROGRAD_RUNTIME_CUDA_API_H_

#include <cuda.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace retrograd {

// Every entry point that is used: the field's name and the function as the vendor's header names
// it, which is often a macro for the newest version of the function.
#define RG_CUDA_ENTRY_POINTS(X)                              \
  X(EventElapsedTime, cuEventElapsedTime)                    \
  X(Init, cuInit)                                            \
  X(GetErrorName, cuGetErrorName)                            \
  X(GetErrorString, cuGetErrorString)                        \
  X(DeviceGetCount, cuDeviceGetCount)                        \
  X(DeviceGet, cuDeviceGet)                                  \
  X(DeviceGetName, cuDeviceGetName)                          \
  X(DeviceGetAttribute, cuDeviceGetAttribute)                \
  X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)        \
  X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease)      \
  X(CtxPushCurrent, cuCtxPushCurrent)                        \
  X(CtxPopCurrent, cuCtxPopCurrent)                          \
  X(CtxSynchronize, cuCtxSynchronize)                        \
  X(MemGetInfo, cuMemGetInfo)                                \
  X(MemAlloc, cuMemAlloc)                                    \
  X(MemFree, cuMemFree)                                      \
  X(MemcpyHtoDAsync, cuMemcpyHtoDAsync)                      \
  X(MemcpyDtoHAsync, cuMemcpyDtoHAsync)                      \
  X(MemcpyDtoDAsync, cuMemcpyDtoDAsync)                      \
  X(MemsetD8Async, cuMemsetD8Async)                          \
  X(ModuleLoadData, cuModuleLoadData)                        \
  X(ModuleUnload, cuModuleUnload)                            \
  X(ModuleGetFunction, cuModuleGetFunction)                  \
  X(FuncSetAttribute, cuFuncSetAttribute)                    \
  X(LaunchKernel, cuLaunchKernel)                            \
  X(StreamCreate, cuStreamCreate)                            \
  X(StreamDestroy, cuStreamDestroy)                          \
  X(StreamSynchronize, cuStreamSynchronize)                  \
  X(StreamWaitEvent, cuStreamWaitEvent)                      \
  X(StreamGetCtx, cuStreamGetCtx)                            \
  X(StreamIsCapturing, cuStreamIsCapturing)                  \
  X(StreamBeginCapture, cuStreamBeginCapture)                \
  X(StreamEndCapture, cuStreamEndCapture)                    \
  X(EventCreate, cuEventCreate)                              \
  X(EventDestroy, cuEventDestroy)                            \
  X(EventRecord, cuEventRecord)                              \
  X(EventSynchronize, cuEventSynchronize)                    \
  X(GraphDestroy, cuGraphDestroy)                            \
  X(GraphInstantiate, cuGraphInstantiate)                    \
  X(GraphExecUpdate, cuGraphExecUpdate)                      \
  X(GraphExecDestroy, cuGraphExecDestroy)                    \
  X(GraphLaunch, cuGraphLaunch)

struct CudaDriver {
#define RG_CUDA_FIELD(field, function) decltype(&function) field = nullptr;
  RG_CUDA_ENTRY_POINTS(RG_CUDA_FIELD)
#undef RG_CUDA_FIELD
};

// The driver, initialised. Loaded once for each path; empty: where drivers are usually found.
// Unavailable, saying why, where there is none.
absl::StatusOr<const CudaDriver*> LoadCudaDriver(const std::string& library);

// What the driver says about a failed call: its name, the driver's own words, and a code that says
// whose matter it is. OK for CUDA_SUCCESS.
absl::Status CudaStatus(const CudaDriver& driver, CUresult result, absl::string_view call);

}  // namespace retrograd

// Calls an entry point and returns a failure from the enclosing function.
#define RG_CUDA(driver, entry, ...)                                                    \
  do {                                                                                 \
    const CUresult rg_result = (driver).entry(__VA_ARGS__);                            \
    if (rg_result != CUDA_SUCCESS) {                                                   \
      return ::retrograd::CudaStatus((driver), rg_result, "cu" #entry);                \
    }                                                                                  \
  } while (false)

#endif  // RETROGRAD_RUNTIME_CUDA_API_H_
