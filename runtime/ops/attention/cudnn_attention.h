// The backward pass of attention through cuDNN, which is loaded at run time. Everything is decided
// when a call is prepared: Run enqueues and neither allocates device memory nor waits.
#ifndef RETROGRAD_RUNTIME_OPS_ATTENTION_CUDNN_ATTENTION_H_
#define RETROGRAD_RUNTIME_OPS_ATTENTION_CUDNN_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"
#include "runtime/ops/attention/attention_facts.h"

namespace retrograd {

// cuDNN, bound to the CUDA context that is current when it is made. Not for several threads at
// once.
class CudnnHandle {
 public:
  // library: a path, or empty for where cuDNN is usually found. sm: 90 for compute capability 9.0.
  // Unavailable, saying what to install, where there is no cuDNN or the build had no headers.
  static absl::StatusOr<std::unique_ptr<CudnnHandle>> Create(const std::string& library, int sm);
  ~CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  const std::string& version() const { return version_; }  // "cuDNN 9.19.0"
  int sm() const { return sm_; }
  void* native() const { return native_; }
  absl::Status UseStream(void* stream);  // a CUstream

 private:
  CudnnHandle() = default;
  void* native_ = nullptr;  // cudnnHandle_t
  void* stream_ = nullptr;
  std::string version_;
  int sm_ = 0;
};

// OK, or Unimplemented with the call's shape and the reason for what cuDNN is known to refuse. Asks
// no library.
absl::Status CudnnRefusal(const AttentionCall& call, const AttentionFacts& facts);

struct CudnnAttentionOptions {
  // Two runs give the same bits. Without it dQ is summed in the order in which blocks finish, which
  // is faster; with it cuDNN on Hopper keeps the scores' gradients, 2 bytes for each query, key and
  // head, in the workspace.
  bool deterministic = true;
};

// One way in which cuDNN makes the call.
struct CudnnPlan {
  std::string name;  // engine and knobs
  int64_t workspace_bytes = 0;
  double microseconds = 0;  // 0: not timed
};

class CudnnAttention {
 public:
  // Builds every plan that cuDNN's heuristics offer and takes the first. Unimplemented, with the
  // call's shape and the reason, for what cuDNN refuses. The handle must outlive the result.
  static absl::StatusOr<std::unique_ptr<CudnnAttention>> Prepare(
      const AttentionCall& call, const AttentionFacts& facts, const CudnnAttentionOptions& options,
      CudnnHandle& handle);
  // The same with the plan that Serialize once gave, for an equal call, options, device and version
  // of cuDNN. An error where cuDNN does not take it any more.
  static absl::StatusOr<std::unique_ptr<CudnnAttention>> Restore(const AttentionCall& call,
                                                                 const AttentionFacts& facts,
                                                                 absl::string_view serialized,
                                                                 CudnnHandle& handle);
  ~CudnnAttention();

  int64_t workspace_bytes() const;       // of the plan that was taken
  int64_t most_workspace_bytes() const;  // of any plan
  absl::Span<const CudnnPlan> plans() const { return plans_; }
  size_t chosen() const { return chosen_; }

  // On a CUstream. Operands and results are aligned to 16 bytes, the workspace to 256.
  absl::Status Run(void* stream, const AttentionPointers& pointers, void* workspace);
  absl::Status RunPlan(size_t plan, void* stream, const AttentionPointers& pointers,
                       void* workspace);

  // Takes the plan for which `time` says the fewest microseconds; it is handed work that enqueues
  // the call once on `stream`. Plans that fail when run are left out. The workspace must suffice
  // for most_workspace_bytes().
  using Timer = absl::FunctionRef<absl::StatusOr<double>(absl::FunctionRef<absl::Status()>)>;
  absl::Status TakeFastest(Timer time, void* stream, const AttentionPointers& pointers,
                           void* workspace);

  absl::StatusOr<std::string> Serialize() const;

 private:
  struct Graph;
  CudnnAttention(const AttentionCall& call, const AttentionFacts& facts, CudnnHandle& handle);
  void KeepOffsets(const AttentionCall& call, const AttentionFacts& facts);
  absl::Status Take(size_t plan);

  CudnnHandle& handle_;
  std::vector<int64_t> operand_offsets_, result_offsets_;  // in bytes
  std::string shape_;                                      // for messages
  std::unique_ptr<Graph> graph_;
  std::vector<CudnnPlan> plans_;
  size_t chosen_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_ATTENTION_CUDNN_ATTENTION_H_
