// KernelFamilies: kernels of programs that differ in sizes, as few kernels that take sizes as
// arguments. The first program of a family has its kernels as they are. A kernel of a later one
// that differs from a known kernel in numbers alone makes those numbers arguments; from then on it
// serves all sizes that differ in them. What it cannot serve is a kernel of its own, so a wrong
// guess costs a compilation and nothing else.
#ifndef RETROGRAD_RUNTIME_COMPILER_KERNEL_FAMILIES_H_
#define RETROGRAD_RUNTIME_COMPILER_KERNEL_FAMILIES_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "codegen/print/kernel.h"

namespace retrograd {

// A kernel and what a launch must hand over for it to do another kernel's work.
struct LiftedKernel {
  std::shared_ptr<const Kernel> kernel;
  std::vector<int32_t> numbers;
};

// For several threads at once.
class KernelFamilies {
 public:
  KernelFamilies() = default;
  KernelFamilies(const KernelFamilies&) = delete;
  KernelFamilies& operator=(const KernelFamilies&) = delete;

  // A program whose kernels are looked for: two different kernels of one program are not made one,
  // since what differs between them is not what differs between sizes.
  int64_t NewProgram();

  // Equal kernels get equal answers, but for one that was given hundreds of programs ago.
  LiftedKernel Lift(int64_t program, const Kernel& kernel);

 private:
  // Numbers of a kernel that serves several sizes.
  struct Member {
    std::vector<std::string> literals;  // of the last kernel that it served
    std::vector<int> argument;          // LiftedNumbers::argument
    std::shared_ptr<const Kernel> kernel;
    int64_t program = 0;  // the last that it served
  };

  Member& MemberFor(int64_t program, const Kernel& kernel, std::vector<std::string> literals);

  std::mutex mutex_;  // of all that follows
  int64_t programs_ = 0;
  absl::flat_hash_map<std::string, std::vector<Member>> members_;  // by digest of the skeleton
  absl::flat_hash_map<std::string, LiftedKernel> known_;           // by what TextKey gives
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_COMPILER_KERNEL_FAMILIES_H_
