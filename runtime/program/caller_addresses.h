// CallerAddresses: where a program's inputs and outputs lie. Checked and put into the table of
// addresses when they change, and remembered, so that a run with the last one's costs a comparison
// and touches nothing of the plan or the graph: between two steps of training a host's caches have
// long been filled with other things.
#ifndef RETROGRAD_RUNTIME_PROGRAM_CALLER_ADDRESSES_H_
#define RETROGRAD_RUNTIME_PROGRAM_CALLER_ADDRESSES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/program/commands.h"
#include "runtime/program/compile.h"

namespace retrograd {

class CallerAddresses {
 public:
  // `compiled` must outlive it.
  CallerAddresses(const CompiledPlan& compiled, const CommandList& list);

  // Whether these are the ones that were last taken.
  bool Same(absl::Span<const void* const> inputs, absl::Span<void* const> outputs) const;

  // Writes the table's entries of inputs and outputs. InvalidArgument for an address that is null
  // or not aligned as the graph promises; then no addresses count as taken. Allocates nothing.
  absl::Status Take(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                    absl::Span<void*> table);

 private:
  struct Entry {
    uint32_t slot = 0;    // of the table
    uint32_t number = 0;  // of the input or output
    bool output = false;
    bool empty = false;  // no bytes: any address does
    int64_t alignment = 1;
  };
  absl::Status Check(const void* address, const Entry& entry) const;

  const CompiledPlan* compiled_;
  size_t num_inputs_, num_outputs_;
  std::vector<Entry> entries_;
  std::vector<Entry> copied_;  // outputs that copies write, which have no slot
  bool taken_ = false;
  std::vector<const void*> inputs_;  // as taken
  std::vector<void*> outputs_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_CALLER_ADDRESSES_H_
