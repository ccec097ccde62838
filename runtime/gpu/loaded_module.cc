#include "runtime/gpu/loaded_module.h"

#include <algorithm>

#include "graph/base/status.h"

namespace retrograd {

absl::StatusOr<std::shared_ptr<LoadedModule>> LoadedModule::Load(const GpuDriver& driver,
                                                                 const GpuContext& context,
                                                                 const std::string& code) {
  std::shared_ptr<LoadedModule> made(new LoadedModule(driver, context));
  RG_GPU(driver, ModuleLoadData, &made->module_, code.data());
  const std::string start("\0rg_", 4);
  for (size_t at = code.find(start); at != std::string::npos; at = code.find(start, at + 1)) {
    made->names_.insert(code.data() + at + 1);  // strings end with a zero, as the file does
  }
  return made;
}

LoadedModule::~LoadedModule() {
  if (module_ == nullptr) return;
  const CurrentContext current(driver_, context_);
  if (current.status().ok()) driver_.ModuleUnload(module_);
}

int LoadedModule::Find(const std::string& kernel, GpuFunction* function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto known = functions_.find(kernel); known != functions_.end()) {
    *function = known->second;
    return kGpuSuccess;
  }
  const int result = driver_.ModuleGetFunction(function, module_, kernel.c_str());
  if (result == kGpuSuccess) functions_[kernel] = *function;
  return result;
}

absl::Status LoadedModule::AllowStaged(GpuFunction function, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t& allowed = staged_bytes_[function];
  if (bytes <= allowed) return absl::OkStatus();
  RG_RETURN_IF_ERROR(driver_.AllowStaged(function, bytes));
  allowed = bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<LoadedModule>> SharedCode::In(const GpuDriver& driver,
                                                             const GpuContext& context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(places_, [](const Place& place) { return place.module.expired(); });
  for (const Place& place : places_) {
    if (place.driver != &driver || place.context.handle != context.handle ||
        place.context.device != context.device) {
      continue;
    }
    if (std::shared_ptr<LoadedModule> module = place.module.lock()) return module;
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<LoadedModule> module,
                      LoadedModule::Load(driver, context, object_.code));
  places_.push_back({&driver, context, module});
  return module;
}

}  // namespace retrograd
