// The C++ compiler that host kernels are compiled with: where it is, and one call of it.
#ifndef RETROGRAD_RUNTIME_HOST_HOST_COMPILER_H_
#define RETROGRAD_RUNTIME_HOST_HOST_COMPILER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/base/cancelled.h"

namespace retrograd {

struct HostCompiler {
  std::string path;
  std::string version;  // the first line of --version
};

// name: a path, or a name on the PATH; empty: the library's own, else c++, g++, clang++. Asks each
// compiler for its version once a process.
absl::StatusOr<HostCompiler> FindHostCompiler(const std::string& name);

// Compiles the files side by side and links them into the shared object `output`. Object files are
// put beside their sources, and the compiler's temporary files beside `output`. Ends early where it
// is cancelled.
absl::Status CompileSharedObject(const HostCompiler& compiler,
                                 const std::vector<std::string>& flags,
                                 const std::vector<std::string>& sources, const std::string& output,
                                 const Cancelled& cancelled = {});

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_HOST_COMPILER_H_
