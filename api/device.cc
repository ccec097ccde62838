// The C interface's devices and cancellations.
#include <string>
#include <utility>

#include "api/guard.h"
#include "api/handles.h"
#include "graph/base/status.h"
#include "tools/execute/tuned_file.h"

namespace retrograd {
namespace {

absl::Status CheckAllocator(const rg_allocator& allocator) {
  if ((allocator.allocate == nullptr) == (allocator.release == nullptr)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "rg_device_options.allocator: give both allocate and release, or neither");
}

absl::StatusOr<std::unique_ptr<rg_device>> MakeHandle(const rg_device_options& options) {
  RG_RETURN_IF_ERROR(CheckAllocator(options.allocator));
  if (options.compile_jobs < 0) {
    return absl::InvalidArgumentError(absl::StrCat("rg_device_options.compile_jobs is ",
                                                   options.compile_jobs, ": 0 or more is needed"));
  }
  auto made = std::make_unique<rg_device>();
  made->name = options.name == nullptr ? "host" : options.name;
  made->allocator = options.allocator;
  DeviceChoices& choices = made->choices;
  const bool cache = options.no_cache == 0;
  const std::string folder = options.cache_dir == nullptr ? "" : options.cache_dir;
  choices.host.compile.cache = choices.cuda.cache = choices.hip.cache = cache;
  choices.host.compile.cache_dir = choices.cuda.cache_dir = choices.hip.cache_dir = folder;
  choices.host.compile.jobs = choices.cuda.compile.jobs = choices.hip.compile.jobs =
      options.compile_jobs;
  RG_RETURN_IF_ERROR(
      Tune(options.tuned == nullptr ? "" : options.tuned, options.tuning_budget_s, choices));
  choices.host.shared_kernels = std::make_shared<SharedKernels<HostModule>>();
  choices.cuda.shared_kernels = choices.hip.shared_kernels =
      std::make_shared<SharedKernels<SharedCode>>();
  RG_ASSIGN_OR_RETURN(made->memory, MakeDevice(made->name, choices));
  RG_RETURN_IF_ERROR(made->memory->UseStream(nullptr));
  made->model = made->memory->Describe().model;
  return made;
}

// Of the device's memory, one thread at a time.
rg_code WithMemory(rg_device* device, absl::FunctionRef<absl::Status(Device&)> work) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(device, "device"));
    const std::lock_guard<std::mutex> lock(device->mutex);
    return work(*device->memory);
  });
}

absl::Status CheckCopy(const void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RG_RETURN_IF_ERROR(NotNull(to, "where it is copied to"));
  return NotNull(from, "where it is copied from");
}

}  // namespace
}  // namespace retrograd

using retrograd::Device;
using retrograd::Guarded;
using retrograd::NotNull;

rg_code rg_device_create(const rg_device_options* options, rg_device** device) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(device, "device"));
    RG_ASSIGN_OR_RETURN(const rg_device_options taken,
                        retrograd::Taken(options, "rg_device_options"));
    RG_ASSIGN_OR_RETURN(std::unique_ptr<rg_device> made, retrograd::MakeHandle(taken));
    *device = made.release();
    return absl::OkStatus();
  });
}

const char* rg_device_model(const rg_device* device) {
  return device == nullptr ? nullptr : device->model.c_str();
}

void rg_device_destroy(rg_device* device) { delete device; }

rg_code rg_device_allocate(rg_device* device, size_t bytes, void** data) {
  return retrograd::WithMemory(device, [&](Device& memory) -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(data, "data"));
    if (bytes > INT64_MAX / 2) {
      return absl::ResourceExhaustedError(
          absl::StrCat(bytes, " bytes of memory asked for; no device has them"));
    }
    RG_ASSIGN_OR_RETURN(*data, memory.Allocate(static_cast<int64_t>(bytes)));
    return absl::OkStatus();
  });
}

rg_code rg_device_release(rg_device* device, void* data) {
  return retrograd::WithMemory(device, [&](Device& memory) {
    memory.Free(data);
    return absl::OkStatus();
  });
}

rg_code rg_device_copy_in(rg_device* device, void* to_device, const void* from_host, size_t bytes) {
  return retrograd::WithMemory(device, [&](Device& memory) -> absl::Status {
    RG_RETURN_IF_ERROR(retrograd::CheckCopy(to_device, from_host, bytes));
    return memory.CopyIn(to_device, from_host, static_cast<int64_t>(bytes));
  });
}

rg_code rg_device_copy_out(rg_device* device, void* to_host, const void* from_device,
                           size_t bytes) {
  return retrograd::WithMemory(device, [&](Device& memory) -> absl::Status {
    RG_RETURN_IF_ERROR(retrograd::CheckCopy(to_host, from_device, bytes));
    return memory.CopyOut(to_host, from_device, static_cast<int64_t>(bytes));
  });
}

rg_code rg_cancellation_create(rg_cancellation** cancellation) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(cancellation, "cancellation"));
    *cancellation = new rg_cancellation;
    return absl::OkStatus();
  });
}

void rg_cancellation_cancel(rg_cancellation* cancellation) {
  if (cancellation != nullptr) *cancellation->cancelled = true;
}

void rg_cancellation_destroy(rg_cancellation* cancellation) { delete cancellation; }
