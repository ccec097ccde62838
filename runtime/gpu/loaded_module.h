// Code objects in a GPU's contexts. A kernel takes the address of its table as an argument, so a
// module has nothing of one program's own, and programs that run the same code share one.
#ifndef RETROGRAD_RUNTIME_GPU_LOADED_MODULE_H_
#define RETROGRAD_RUNTIME_GPU_LOADED_MODULE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "runtime/compiler/rtc.h"
#include "runtime/gpu/gpu_driver.h"

namespace retrograd {

// A code object in one context. For several threads at once. Nothing of it may run when it goes.
class LoadedModule {
 public:
  // In the current context, which is `context`.
  static absl::StatusOr<std::shared_ptr<LoadedModule>> Load(const GpuDriver& driver,
                                                            const GpuContext& context,
                                                            const std::string& code);
  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  // Whether the name stands in the code: a kernel of it that begins with "rg_" does.
  bool Names(const std::string& kernel) const { return names_.contains(kernel); }
  // The driver's own answer where it has no such kernel.
  int Find(const std::string& kernel, GpuFunction* function);
  // Lets launches ask for so much memory of a block, and for what was asked for before.
  absl::Status AllowStaged(GpuFunction function, int64_t bytes);

 private:
  LoadedModule(const GpuDriver& driver, const GpuContext& context)
      : driver_(driver), context_(context) {}

  const GpuDriver& driver_;
  const GpuContext context_;
  GpuModule module_ = nullptr;
  absl::flat_hash_set<std::string> names_;
  std::mutex mutex_;  // of what follows
  absl::flat_hash_map<std::string, GpuFunction> functions_;
  absl::flat_hash_map<GpuFunction, int64_t> staged_bytes_;
};

// A code object that several programs run, and its modules as long as any of them does.
class SharedCode {
 public:
  explicit SharedCode(CompiledObject object) : object_(std::move(object)) {}

  const CompiledObject& object() const { return object_; }
  // In the current context, which is `context`.
  absl::StatusOr<std::shared_ptr<LoadedModule>> In(const GpuDriver& driver,
                                                   const GpuContext& context);

 private:
  struct Place {
    const GpuDriver* driver = nullptr;
    GpuContext context;
    std::weak_ptr<LoadedModule> module;
  };
  const CompiledObject object_;
  std::mutex mutex_;  // of what follows
  std::vector<Place> places_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_LOADED_MODULE_H_
