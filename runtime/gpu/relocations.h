// Relocations: which words of a captured graph's parameters follow from which addresses, as a
// linker has them. Nobody tells what a library's kernels take; two captures of the same work with
// each address moved by a distance of its own show it.
#ifndef RETROGRAD_RUNTIME_GPU_RELOCATIONS_H_
#define RETROGRAD_RUNTIME_GPU_RELOCATIONS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/gpu/gpu_driver.h"

namespace retrograd {

class Relocations {
 public:
  // kernels: of a capture.
  explicit Relocations(std::vector<GraphKernel> kernels) : kernels_(std::move(kernels)) {}

  // `others` are of a capture at the same addresses: bytes that differ mean nothing, as those
  // between the members of a structure.
  absl::Status Repeat(absl::Span<const GraphKernel> others);
  // moved: how far each address lies behind that of the capture, in bytes, in the capture that
  // `others` are of; all differ. The first call finds what follows from each address: words of 8
  // bytes that have moved as far as it. Later ones find that nothing else moves.
  //
  // Both: FailedPrecondition, saying which kernel, where the captures differ otherwise; then the
  // relocations are of no use.
  absl::Status Compare(absl::Span<const GraphKernel> others, absl::Span<const int64_t> moved);

  // Calls `set` with each kernel whose parameters change where the addresses lie so far behind
  // those of the capture, and not where the last call had them. Allocates nothing.
  absl::Status Move(absl::Span<const int64_t> moved,
                    absl::FunctionRef<absl::Status(const GraphKernel&)> set);

 private:
  struct Word {
    size_t at = 0;       // in the kernel's parameters
    size_t address = 0;  // that it follows from
    uint64_t captured = 0;
  };
  struct Moving {
    size_t kernel = 0;
    std::vector<Word> words;
  };

  absl::Status CheckLaunches(absl::Span<const GraphKernel> others) const;
  // The bytes of a word that mean nothing.
  uint64_t IdleBytes(size_t kernel, size_t at) const;

  std::vector<GraphKernel> kernels_;                    // with parameters as they were set last
  std::map<std::pair<size_t, size_t>, uint64_t> idle_;  // by kernel and place in its parameters
  std::vector<Moving> moving_;  // kernels with words that follow from addresses
  std::vector<int64_t> moved_;  // of the last Move; empty: none
  bool compared_ = false;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_RELOCATIONS_H_
