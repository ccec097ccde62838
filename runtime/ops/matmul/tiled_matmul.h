// A matmul by a kernel of ours: tiles of any sizes and alignments
// (fusion/ops/matmul/matmul_tiles.h).
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_TILED_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_TILED_MATMUL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/ops/matmul/matmul_tiles.h"
#include "runtime/device/device.h"
#include "runtime/ops/matmul/matmul_facts.h"

namespace retrograd {

// Of the first matrix of each operand.
MatMulAlignments AlignmentsOf(const MatMulCall& call, const MatMulFacts& facts);

// The tiles that are worth a race with a library's algorithms, the one that is taken to be the
// fastest first; none of a call that TiledMatMulRefusal refuses, or without elements or terms.
std::vector<MatMulTile> MatMulTilesOn(const MatMulCall& call, Device& device);

// The kernel; its arguments are a, b and d, which begin at the first elements of the matrices, not
// of the stored values. The call passes TiledMatMulRefusal and has elements and terms.
Kernel TiledMatMulKernel(const MatMulCall& call, const MatMulFacts& facts, const MatMulTile& tile,
                         const Device& device);

// The kernel, loaded. It serves all calls that differ in their offsets alone, if the facts hold for
// them (MatMulKey, blas_operands.h).
class TiledMatMul {
 public:
  static absl::StatusOr<std::unique_ptr<TiledMatMul>> Load(Device& device, const MatMulCall& call,
                                                           const MatMulFacts& facts,
                                                           const MatMulTile& tile);
  // Pointers to the stored values' first elements, and the offsets of a, b and d in elements.
  absl::Status Run(int stream, const MatMulPointers& pointers, const int64_t offsets[3]) const;

 private:
  TiledMatMul(Device& device, std::unique_ptr<LoadedKernels> kernels, const MatMulCall& call)
      : device_(device), kernels_(std::move(kernels)), in_(call.in_dtype), out_(call.out_dtype) {}

  Device& device_;
  const std::unique_ptr<LoadedKernels> kernels_;
  const DType in_, out_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_TILED_MATMUL_H_
