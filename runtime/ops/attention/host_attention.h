// The backward pass of scaled-dot-product attention on the host, dense, from the saved log-sum-exp.
#ifndef RETROGRAD_RUNTIME_OPS_ATTENTION_HOST_ATTENTION_H_
#define RETROGRAD_RUNTIME_OPS_ATTENTION_HOST_ATTENTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/ops/attention/attention_facts.h"

namespace retrograd {

// Bytes of scratch memory, or why the call is impossible.
absl::StatusOr<int64_t> HostAttentionScratchBytes(const AttentionCall& call);

// The scratch is aligned to 64 bytes. HostAttentionScratchBytes must have accepted the call.
void HostAttentionBackward(const AttentionCall& call, const AttentionPointers& pointers,
                           void* scratch);

// The host's implementation of attention's backward.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadHostAttention(const Call& call);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_ATTENTION_HOST_ATTENTION_H_
