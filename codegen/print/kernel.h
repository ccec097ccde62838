// Kernel: one launch as source text, with what is needed to call it.
#ifndef RETROGRAD_CODEGEN_PRINT_KERNEL_H_
#define RETROGRAD_CODEGEN_PRINT_KERNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/plan/plan.h"

namespace retrograd {

enum class Dialect : uint8_t { kCuda, kHip, kHost };
absl::string_view Name(Dialect dialect);  // "cuda", "hip", "host"

// Parameter i of a kernel: a stored value's buffer, or the group's workspace.
struct KernelArg {
  enum Kind : uint8_t { kValue, kWorkspace };
  Kind kind = kValue;
  ValueId value;
  uint32_t member = 0;  // of a merged launch: the kernel that it is an argument of
  friend bool operator==(const KernelArg&, const KernelArg&) = default;
};

// Every kernel has the signature  void name(void* const* table, Slots<n> slots): argument i is the
// pointer table[slots.at[i]]. The table lies in device memory, so that addresses may change between
// runs while the launch stays as captured.
struct Kernel {
  std::string name;    // "rg_" + digest of the source: equal kernels share one name
  std::string source;  // the function alone, without the dialect's prelude
  int64_t blocks = 1;
  int threads = 1;
  int64_t shared_bytes = 0;  // static shared memory
  int64_t staged_bytes = 0;  // dynamic shared memory, which a launch asks for
  std::vector<KernelArg> args;
  friend bool operator==(const Kernel&, const Kernel&) = default;
};

// The launches of one group, in order: main, then any finalize. Empty for library calls.
struct GroupKernels {
  std::vector<Kernel> launches;
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_KERNEL_H_
