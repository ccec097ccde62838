#include "runtime/program/held_memory.h"

#include <vector>

namespace retrograd {
namespace {

// Means over the backwards of GPT-2, BERT and a decoder with rotary embeddings, of 160 to 290
// groups: bytes that the allocator gave away for a copy of each part. A sum over them is within a
// tenth of all that a plan takes (held_memory_test).
constexpr int64_t kNodeBytes = 500;  // with its layout, and its share of the graph before lowering
constexpr int64_t kGroupBytes = 1000;  // without its kernels
constexpr int64_t kInstrBytes = 430;
constexpr int64_t kKernelBytes = 500;  // of a launch, without its text
constexpr int64_t kCommandBytes = 400;

int64_t TextBytes(const KernelFunction& function) {
  int64_t bytes =
      static_cast<int64_t>(function.statements.capacity() + function.comment.capacity());
  for (const Declaration& d : function.declarations) {
    bytes += static_cast<int64_t>(sizeof(d) + d.type.capacity() + d.name.capacity());
  }
  return bytes;
}

int64_t BytesOf(const Kernel& kernel) {
  int64_t bytes = kKernelBytes + TextBytes(kernel.function);
  for (const KernelFunction& member : kernel.members) bytes += TextBytes(member);
  return bytes;
}

int64_t BytesOf(const Group& group) {
  int64_t instrs = 0;
  for (const KernelBody* body : KernelsOf(group)) {
    instrs += static_cast<int64_t>(body->ir.instrs.size());
  }
  return kGroupBytes + kInstrBytes * instrs;
}

}  // namespace

int64_t HeldByPlan(const CompiledPlan& compiled, const CommandList& list) {
  int64_t bytes = kNodeBytes * static_cast<int64_t>(compiled.graph.num_nodes());
  for (const Group& group : compiled.plan.groups) bytes += BytesOf(group);
  for (const GroupKernels& group : compiled.kernels) {
    for (const Kernel& kernel : group.launches) bytes += BytesOf(kernel);
  }
  return bytes + kCommandBytes * static_cast<int64_t>(list.commands.size());
}

HeldMemory HeldByRecordings(const CommandList& list) {
  // Measured on an H100 (bench/sizes.py --memory): of a program with its device, of each phase's
  // recording, and of each launch in it, a library call counted as one.
  constexpr HeldMemory kProgram = {.host_bytes = 100'000, .device_bytes = 100'000};
  constexpr HeldMemory kPhase = {.host_bytes = 10'000, .device_bytes = 10'000};
  constexpr HeldMemory kWork = {.host_bytes = 4'000, .device_bytes = 1'000};
  const auto phases = static_cast<int64_t>(list.phase_begins.size());
  const auto work = static_cast<int64_t>(list.launches.size() + list.calls.size());
  return {.host_bytes = kProgram.host_bytes + phases * kPhase.host_bytes + work * kWork.host_bytes,
          .device_bytes =
              kProgram.device_bytes + phases * kPhase.device_bytes + work * kWork.device_bytes};
}

}  // namespace retrograd
