// Run-time compilation: generated CUDA and HIP sources to code objects by NVRTC and HIPRTC. Both
// are loaded when first asked for, so that one binary starts on a machine with either, both or
// neither; no GPU is needed.
#ifndef RETROGRAD_RUNTIME_COMPILER_RTC_H_
#define RETROGRAD_RUNTIME_COMPILER_RTC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/print/kernel.h"

namespace retrograd {

// What the compiler made of one kernel.
struct KernelResources {
  std::string name;
  int registers = 0;         // of a thread (HIP: vector registers)
  int64_t spill_bytes = 0;   // of a thread, stored because registers ran out
  int64_t stack_bytes = 0;   // of a thread, spills included
  int64_t shared_bytes = 0;  // of a block, static
  friend bool operator==(const KernelResources&, const KernelResources&) = default;
};

struct CompiledObject {
  std::string code;                      // a cubin, or an AMD code object
  std::string log;                       // warnings and remarks
  std::string compiler;                  // "NVRTC 13.0"
  std::vector<KernelResources> kernels;  // in the order of their names
};

struct RtcOptions {
  std::string library;  // path of the compiler's shared library; empty: where it is usually found
  int64_t sms = 0;      // multiprocessors of the GPU that runs them; 0: registers stay as they come
};

// A source as it is. arch: "sm_90". Unavailable, saying what to install, where there is no NVRTC;
// InvalidArgument with the compiler's first errors where the source does not compile.
absl::StatusOr<CompiledObject> CompileCuda(absl::string_view source, absl::string_view arch,
                                           const RtcOptions& options = {});

// arch: "gfx90a". The same with HIPRTC.
absl::StatusOr<CompiledObject> CompileHip(absl::string_view source, absl::string_view arch,
                                          const RtcOptions& options = {});

// By dialect, which is not the host's.
absl::StatusOr<CompiledObject> CompileFor(Dialect dialect, absl::string_view source,
                                          absl::string_view arch, const RtcOptions& options = {});

// Kernels with different names, in one translation unit. A CUDA kernel that takes so many registers
// that fewer of its blocks are resident than its plan counts on is held to fewer registers: if it
// has more blocks than are resident, needs at least 0.8 of its registers, and then does not spill.
// One that the assembler lets spill to fit more blocks on an SM is compiled for fewer of them, so
// that what spills needs more registers than a thread can have.
absl::StatusOr<CompiledObject> CompileKernels(Dialect dialect, absl::Span<const Kernel> kernels,
                                              absl::string_view arch,
                                              const RtcOptions& options = {});

// What CompileKernels goes by beside the kernels' texts, for keys of what it makes. Kernels whose
// sizes are arguments have nothing here: one text serves all of their grids.
std::string CompiledBy(absl::Span<const Kernel> kernels, const RtcOptions& options);

// "NVRTC 13.0", "HIPRTC 5.2", or why there is none.
absl::StatusOr<std::string> CompilerName(Dialect dialect, const RtcOptions& options = {});

// By dialect's compiler: OK, or why it cannot be used here.
absl::Status CudaCompilerAvailable(const RtcOptions& options = {});
absl::Status HipCompilerAvailable(const RtcOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_COMPILER_RTC_H_
