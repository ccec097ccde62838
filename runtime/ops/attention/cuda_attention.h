// Attention on the cuda device: by cuDNN or by kernels of ours for tensor cores, the faster one of
// those that take the call, else by simple kernels of ours.
#ifndef RETROGRAD_RUNTIME_OPS_ATTENTION_CUDA_ATTENTION_H_
#define RETROGRAD_RUNTIME_OPS_ATTENTION_CUDA_ATTENTION_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/gpu/cuda/cudnn_choice.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/ops/attention/attention_facts.h"
#include "runtime/ops/attention/cudnn_attention.h"
#include "runtime/ops/attention/fallback_attention.h"

namespace retrograd {

struct CudaAttentionOptions {
  std::string cudnn_library;  // a path; empty: where it is usually found
  CudnnAttentionOptions cudnn;
  bool allow_cudnn = true;
  bool allow_tiled = true;  // our kernels for tensor cores, on Hopper
};

// One call, loaded.
class CudaAttentionCall : public LoadedCall {
 public:
  CudaAttentionCall(GpuDevice& device, const AttentionFacts& facts, int64_t scratch_bytes,
                    double us)
      : LoadedCall(scratch_bytes, us),
        device_(device),
        dtypes_(facts.operand_dtypes.begin(), facts.operand_dtypes.end()) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override;

  // Null where cuDNN does not make this call, since our kernels are faster or for the reason that
  // refusal() gives.
  const CudnnPlans* library() const { return library_.get(); }
  const absl::Status& refusal() const { return refusal_; }
  // Whether our kernels for tensor cores make it.
  bool tiled() const { return tiled_; }
  // "cuDNN, plan .. of 3" with the times and workspaces of all, and why our kernels for tensor
  // cores do not make it, if they cannot; "our kernels for tensor cores"; or "our kernels, because
  // ..".
  std::string Describe() const override;

 private:
  friend class CudaAttention;
  GpuDevice& device_;
  const std::vector<DType> dtypes_;      // of the operands
  std::shared_ptr<CudnnPlans> library_;  // or, where it refuses, the kernels
  std::unique_ptr<LoadedKernels> kernels_;
  size_t launches_ = 0;
  absl::Status refusal_, tiled_refusal_;  // of cuDNN, and of our kernels for tensor cores
  bool tiled_ = false;
  double tiled_us_ = 0, library_us_ = 0;  // 0: not timed
};

// What calls share: cuDNN. Made, used and destroyed in the device's context.
class CudaAttention {
 public:
  explicit CudaAttention(const CudaAttentionOptions& options);

  // Where calls are loaded.
  struct Place {
    GpuDevice& device;
    CudnnPlace cudnn;  // the same place
  };
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Place& place, const AttentionCall& call,
                                                   const AttentionFacts& facts);

 private:
  // Who makes a call: our kernels for tensor cores, or cuDNN's fastest plan; 0: not timed.
  struct Maker {
    bool tiled = false;
    double tiled_us = 0, library_us = 0;
    absl::Status tiled_refusal = absl::OkStatus();
  };

  absl::StatusOr<std::shared_ptr<CudnnPlans>> Library(const Place& place, const AttentionCall& call,
                                                      const AttentionFacts& facts);
  // Of a call that our kernels for tensor cores take.
  absl::StatusOr<Maker> Choose(const Place& place, const AttentionCall& call,
                               const AttentionFacts& facts);
  // By running both; with cuDNN's version.
  absl::StatusOr<Maker> ChooseByTime(const Place& place, const AttentionCall& call,
                                     const AttentionFacts& facts, const std::string& version);
  absl::StatusOr<std::unique_ptr<CudaAttentionCall>> LoadTiled(const Place& place,
                                                               const AttentionCall& call,
                                                               const AttentionFacts& facts,
                                                               const Maker& maker);
  std::unique_ptr<CudaAttentionCall> LoadLibrary(const Place& place, const AttentionFacts& facts,
                                                 std::shared_ptr<CudnnPlans> plans,
                                                 const Maker& maker);

  // Of our kernels for tensor cores. Found by the call's key and what is known of its bias, since
  // layers repeat their calls.
  absl::StatusOr<const FallbackAttention*> TiledLaunches(const Place& place,
                                                         const AttentionCall& call,
                                                         const AttentionFacts& facts);
  const std::string& TiledDigest(const Place& place, const AttentionCall& call,
                                 const AttentionFacts& facts);
  std::string TiledKey(const AttentionCall& call, const AttentionFacts& facts) const;

  const CudaAttentionOptions options_;
  CudnnChoice cudnn_;
  std::map<std::string, FallbackAttention> tiled_;
  std::map<std::string, std::string> digests_;
};

// Who loads attention on the cuda device of this compute capability (90 for 9.0).
std::unique_ptr<CallLoader> MakeCudaAttentionLoader(GpuDevice& device, int sm,
                                                    const CudaAttentionOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_ATTENTION_CUDA_ATTENTION_H_
