#include "runtime/program/held_memory.h"

#include <algorithm>
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

HeldMemory HeldByRecordings(const CompiledPlan& compiled, const CommandList& list) {
  // A stream was measured (bench/handle_memory.py). A recording is taken to hold a node's
  // parameters and description for each launch, here and on the device, a library call being one or
  // two.
  constexpr HeldMemory kStream = {.host_bytes = 1'000, .device_bytes = 570'000};
  constexpr HeldMemory kPhase = {.host_bytes = 10'000, .device_bytes = 64'000};
  constexpr HeldMemory kWork = {.host_bytes = 4'000, .device_bytes = 1'000};
  const int64_t streams = std::max(compiled.schedule.streams, 1);
  const auto phases = static_cast<int64_t>(list.phase_begins.size());
  const auto work = static_cast<int64_t>(list.launches.size() + list.calls.size());
  const auto sum = [&](int64_t HeldMemory::*bytes) {
    return streams * kStream.*bytes + phases * kPhase.*bytes + work * kWork.*bytes;
  };
  return {sum(&HeldMemory::host_bytes), sum(&HeldMemory::device_bytes)};
}

}  // namespace retrograd
