// What lies in a call's memory: enough to run it on memory of a trial's own.
#ifndef RETROGRAD_RUNTIME_TRIALS_CALL_MEMORY_H_
#define RETROGRAD_RUNTIME_TRIALS_CALL_MEMORY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "fusion/plan/call.h"
#include "graph/base/tensor_type.h"

namespace retrograd {

// From a tensor's first stored value to past its last.
struct StoredValues {
  DType dtype = DType::kFp32;
  int64_t elements = 0;
  bool added_to = false;                        // of a result: it is read, too
  std::optional<double> number = std::nullopt;  // of an operand: what its elements hold in a trial
  int64_t bytes() const { return elements * SizeBytes(dtype); }
};

// Of a call's operands and results, in the op's order.
struct CallMemory {
  std::vector<StoredValues> operands, results;
};

// Adds a call's to it.
inline void AddMemoryOf(const Call& call, CallMemory& memory) {
  for (const CallTensor& t : call.operands) memory.operands.push_back({t.dtype, SpanOf(t)});
  for (const CallTensor& t : call.results) {
    memory.results.push_back(
        {.dtype = t.dtype, .elements = SpanOf(t), .added_to = call.previous.has_value()});
  }
}

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TRIALS_CALL_MEMORY_H_
