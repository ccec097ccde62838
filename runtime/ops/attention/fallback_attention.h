// Attention through kernels of ours, on any device those of
// codegen/attention/emit_warp_attention.h, or, for heads beyond these, of emit_attention.h: what to
// load, and the table of addresses that the launches read.
#ifndef RETROGRAD_RUNTIME_OPS_ATTENTION_FALLBACK_ATTENTION_H_
#define RETROGRAD_RUNTIME_OPS_ATTENTION_FALLBACK_ATTENTION_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codegen/attention/emit_attention.h"
#include "runtime/device/device.h"
#include "runtime/ops/attention/attention_facts.h"

namespace retrograd {

struct FallbackAttention {
  std::vector<Kernel> kernels;
  std::vector<Launch>
      launches;  // in order; what each reads of the others comes from the same stream
  int64_t scratch_bytes = 0;
};

// Kernels of a call as launches. Unimplemented, with the call's shape, beyond
// what a launch can have.
absl::StatusOr<FallbackAttention> AttentionLaunches(const AttentionCall& call,
                                                    const AttentionFacts& facts,
                                                    const AttentionKernels& kernels);

// What kernels of ours are written for.
struct AttentionTarget {
  explicit AttentionTarget(const Device& device);
  AttentionTarget(Dialect of, int threads, int64_t bytes)
      : dialect(of), warp(threads), shared_bytes(bytes) {}

  Dialect dialect;
  int warp;              // threads of a warp
  int64_t shared_bytes;  // that a block's launch may ask for
};

// Of a call that CheckDropout lets pass. Unimplemented, with the call's shape, for types that are
// no floats and for shapes beyond a launch.
absl::StatusOr<FallbackAttention> MakeFallbackAttention(const AttentionCall& call,
                                                        const AttentionFacts& facts,
                                                        const AttentionTarget& target);

// The addresses by slot.
using FallbackAttentionTable = std::array<void*, 14>;
FallbackAttentionTable FallbackAttentionAddresses(const AttentionPointers& pointers, void* scratch);

// The launches, in order, with their addresses.
absl::Status RunFallbackAttention(Device& device, int stream, LoadedKernels& kernels,
                                  size_t launches, const AttentionPointers& pointers,
                                  void* scratch);

// Who loads attention on a device that has no other implementation.
std::unique_ptr<CallLoader> MakeFallbackAttentionLoader(Device& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_ATTENTION_FALLBACK_ATTENTION_H_
