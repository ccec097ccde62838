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

  // A phase's addresses: those of the outputs that it is the first to write; the first phase's also
  // those of all inputs.
  //
  // Whether these are the ones that were last taken for the phase.
  bool Same(uint32_t phase, absl::Span<const void* const> inputs,
            absl::Span<void* const> outputs) const;

  // Writes the table's entries of the phase's addresses. InvalidArgument for an address that is
  // null or not aligned as the graph promises; then the phase's addresses do not count as taken.
  // Allocates nothing.
  absl::Status Take(uint32_t phase, absl::Span<const void* const> inputs,
                    absl::Span<void* const> outputs, absl::Span<void*> table);

  // By output: the phase that writes it first. By input: the last phase that reads it.
  absl::Span<const uint32_t> output_phases() const { return output_phases_; }
  absl::Span<const uint32_t> input_phases() const { return input_phases_; }

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
  std::vector<uint32_t> output_phases_, input_phases_;
  std::vector<bool> taken_;          // by phase
  std::vector<const void*> inputs_;  // as taken
  std::vector<void*> outputs_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_CALLER_ADDRESSES_H_
