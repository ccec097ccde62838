// HostModule: kernels in the host dialect, compiled by the system's C++ compiler and loaded.
// Compiled code is kept on disk by the digest of what it was made from.
#ifndef RETROGRAD_RUNTIME_HOST_HOST_MODULE_H_
#define RETROGRAD_RUNTIME_HOST_HOST_MODULE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/print/kernel.h"
#include "graph/base/cancelled.h"
#include "runtime/host/host_launch.h"

namespace retrograd {

struct HostCompileOptions {
  bool check = false;        // the checking build: slow, finds faults
  int warp = 32;             // threads of a warp, 32 or 64
  std::string compiler;      // name or path; empty: the one that built the library, or c++, g++,
                             // clang++ on the PATH, the first that is there
  std::string optimization;  // empty: -O1; -O0 for the checking build, where checks cost most
  int jobs = 0;              // compilers at once; 0: one a core, at most 8
  bool cache = true;         // look for and keep the result on disk
  std::string cache_dir;     // empty: ModuleCache::DefaultDirectory("host")
  int64_t cache_bytes = int64_t{512} << 20;
  Cancelled cancelled;  // of compiling
};

class HostModule {
 public:
  // The kernels, in the host dialect, have different names.
  static absl::StatusOr<std::shared_ptr<HostModule>> Compile(absl::Span<const Kernel> kernels,
                                                             const HostCompileOptions& options);
  ~HostModule();
  HostModule(const HostModule&) = delete;
  HostModule& operator=(const HostModule&) = delete;

  absl::StatusOr<HostKernel> Find(absl::string_view kernel) const;

  // True if the code came from the disk.
  bool from_cache() const { return from_cache_; }

  // Finds and runs a kernel with a launcher of its own; whoever launches often keeps a
  // HostLauncher, which allocates nothing.
  absl::Status Launch(absl::string_view kernel, int64_t blocks, int threads,
                      const std::vector<HostArg>& args,
                      const HostLaunchOptions& options = {}) const;

 private:
  HostModule() = default;
  static absl::StatusOr<std::shared_ptr<HostModule>> Load(const std::string& path,
                                                          const std::vector<std::string>& kernels);
  void* handle_ = nullptr;
  bool from_cache_ = false;
  std::deque<std::string> names_;  // what HostKernel::name points to
  absl::flat_hash_map<std::string, HostKernel> kernels_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_HOST_MODULE_H_
