// A graph of cuDNN's, with every plan that makes it. Everything is decided when it is prepared: Run
// enqueues and neither allocates device memory nor waits.
#ifndef RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_PLANS_H_
#define RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_PLANS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"
#include "runtime/gpu/cuda/cudnn_library.h"
#include "runtime/gpu/gpu_driver.h"
#include "runtime/trials/call_memory.h"

namespace cudnn_frontend::graph {
class Graph;
}

namespace retrograd {

// Ids of the graph's tensors: those of operand i and of result i are so much and i.
inline constexpr int64_t kCudnnFirstOperand = 1, kCudnnFirstResult = 16;

// The value in whose memory a tensor of the graph lies.
struct CudnnStored {
  StoredValues values;  // from its first element to past the last of the tensor
  int64_t offset = 0;   // bytes, of the tensor's first element
};

// Which of the plans are taken.
struct CudnnPlanFilter {
  bool fallback_engines = false;      // also those of cuDNN's fallback list
  bool deterministic = false;         // none that sums in any order
  bool full_precision = false;        // none that sums in, or rounds operands to, a narrower type
  bool tensor_cores = true;           // in fp32 they round operands to TF32
  int64_t most_workspace_bytes = -1;  // -1: as much as a plan wants
  int64_t most_plans = 0;             // so many, the last two of the list among them; 0: all
};

struct CudnnRequest {
  std::string shape;  // for messages: "attention_backward %13, bf16 Q[48,8,2048,64], causal"
  std::string key;    // equal for requests that differ in nothing but where their values lie
  std::vector<CudnnStored> operands, results;
  // Adds the tensors and the operations. Throws what cudnn-frontend throws. Empty in a build
  // without its headers.
  std::function<void(cudnn_frontend::graph::Graph&)> describe;
  CudnnPlanFilter filter;
};

// Where the handle was made: what every thread that builds plans makes current.
struct CudnnContext {
  const GpuDriver& driver;
  const GpuContext& context;
};

// Of so many plans, the numbers of those to be built: `most` that have not failed, the last ones of
// the list among them; 0: all that have not.
std::vector<size_t> PlansToBuild(size_t most, const std::vector<bool>& failed);

// One way in which cuDNN makes the graph.
struct CudnnPlan {
  std::string name;  // engine and knobs
  int64_t workspace_bytes = 0;
  double microseconds = 0;  // 0: not timed
};

class CudnnPlans {
 public:
  // Builds the plans that cuDNN's heuristics offer and the filter passes, several at once, and
  // takes the first. Unimplemented, with the shape and the reason, for what cuDNN refuses. The
  // handle, of the place's device, must outlive the result. With a name, that plan alone.
  static absl::StatusOr<std::unique_ptr<CudnnPlans>> Prepare(const CudnnRequest& request,
                                                             const CudnnContext& context,
                                                             CudnnHandle& handle,
                                                             absl::string_view only = "");
  // The same with the plan that Serialize once gave, for an equal request, device and version of
  // cuDNN. An error where cuDNN refuses it.
  static absl::StatusOr<std::unique_ptr<CudnnPlans>> Restore(const CudnnRequest& request,
                                                             absl::string_view serialized,
                                                             CudnnHandle& handle);
  ~CudnnPlans();

  int64_t workspace_bytes() const;       // of the plan that was taken
  int64_t most_workspace_bytes() const;  // of any plan
  absl::Span<const CudnnPlan> plans() const { return plans_; }
  size_t chosen() const { return chosen_; }
  double microseconds() const { return plans_[chosen_].microseconds; }  // of it; 0: not timed
  // "cuDNN, plan 2 of 3", and a line for each plan.
  std::string Describe() const;

  // On a CUstream. The workspace is aligned to 256 bytes.
  absl::Status Run(void* stream, const CallPointers& pointers, void* workspace);
  // Takes a plan: the one that Run and Serialize are about.
  absl::Status Take(size_t plan);
  void SetMicroseconds(size_t plan, double microseconds) {
    plans_[plan].microseconds = microseconds;
  }

  absl::StatusOr<std::string> Serialize() const;

 private:
  struct Graph;
  CudnnPlans(const CudnnRequest& request, CudnnHandle& handle);
  absl::Status TakeAlone(size_t plan);  // while the handle's lock is held
  absl::Status Build(int64_t most_plans, absl::string_view only, const CudnnContext& context);

  CudnnHandle& handle_;
  const std::string shape_;
  std::vector<int64_t> operand_offsets_, result_offsets_;  // in bytes
  std::unique_ptr<Graph> graph_;
  std::vector<CudnnPlan> plans_;
  size_t chosen_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_PLANS_H_
