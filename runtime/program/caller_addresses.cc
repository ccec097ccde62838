#include "runtime/program/caller_addresses.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "graph/reference/reference.h"

namespace retrograd {

CallerAddresses::CallerAddresses(const CompiledPlan& compiled, const CommandList& list)
    : compiled_(&compiled),
      num_inputs_(InputNodes(compiled.graph).size()),
      num_outputs_(compiled.graph.outputs().size()),
      output_phases_(num_outputs_, 0),
      input_phases_(num_inputs_, 0),
      taken_(compiled.memory.phases.size(), false),
      inputs_(num_inputs_),
      outputs_(num_outputs_) {
  const MemoryPlan& memory = compiled.memory;
  const std::vector<Placement>& placements = memory.placements;
  const auto last_phase = static_cast<uint32_t>(memory.phases.size() - 1);
  std::vector<bool> written(num_outputs_, false);
  for (uint32_t slot = 0; slot < placements.size(); ++slot) {
    const Placement& p = placements[slot];
    if (p.place == Placement::kArena) continue;
    entries_.push_back({.slot = slot,
                        .number = p.number,
                        .output = p.place == Placement::kOutput,
                        .empty = p.bytes == 0,
                        .alignment = list.alignment[slot]});
    if (p.place == Placement::kInput) {
      input_phases_[p.number] = std::max(input_phases_[p.number], memory.PhaseOf(p.last));
    } else {
      const uint32_t phase = memory.PhaseOf(p.first);
      uint32_t& first = output_phases_[p.number];
      first = written[p.number] ? std::min(first, phase) : phase;
      written[p.number] = true;
    }
  }
  for (const CopyCommand& copy : list.copies) {
    copied_.push_back({.number = copy.output,
                       .output = true,
                       .empty = Elements(copy.shape) == 0,
                       .alignment = SizeBytes(copy.dtype)});
    output_phases_[copy.output] = last_phase;
    const Placement& from = placements[copy.from];
    if (from.place == Placement::kInput) input_phases_[from.number] = last_phase;
  }
}

bool CallerAddresses::Same(uint32_t phase, absl::Span<const void* const> inputs,
                           absl::Span<void* const> outputs) const {
  if (!taken_[phase]) return false;
  if (phase == 0 && !std::equal(inputs.begin(), inputs.end(), inputs_.begin(), inputs_.end())) {
    return false;
  }
  if (outputs.size() != num_outputs_) return false;
  for (size_t o = 0; o < num_outputs_; ++o) {
    if (output_phases_[o] == phase && outputs[o] != outputs_[o]) return false;
  }
  return true;
}

absl::Status CallerAddresses::Take(uint32_t phase, absl::Span<const void* const> inputs,
                                   absl::Span<void* const> outputs, absl::Span<void*> table) {
  taken_[phase] = false;
  if (inputs.size() != num_inputs_ || outputs.size() != num_outputs_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the graph has %d inputs and %d outputs, given were %d and %d", num_inputs_,
                        num_outputs_, inputs.size(), outputs.size()));
  }
  for (const Entry& entry : entries_) {
    if (phase != (entry.output ? output_phases_[entry.number] : 0)) continue;
    // The caller lets go of a donated input's contents; all others are only read.
    void* const address =
        entry.output ? outputs[entry.number] : const_cast<void*>(inputs[entry.number]);
    table[entry.slot] = address;
    RG_RETURN_IF_ERROR(Check(address, entry));
  }
  for (const Entry& entry : copied_) {
    if (phase == output_phases_[entry.number]) {
      RG_RETURN_IF_ERROR(Check(outputs[entry.number], entry));
    }
  }
  if (phase == 0) std::copy(inputs.begin(), inputs.end(), inputs_.begin());
  for (size_t o = 0; o < num_outputs_; ++o) {
    if (output_phases_[o] == phase) outputs_[o] = outputs[o];
  }
  taken_[phase] = true;
  return absl::OkStatus();
}

absl::Status CallerAddresses::Check(const void* address, const Entry& entry) const {
  const bool aligned =
      reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(entry.alignment) == 0;
  if (entry.empty || (address != nullptr && aligned)) return absl::OkStatus();
  const BackwardGraph& graph = compiled_->graph;
  absl::string_view name = "donated";
  if (entry.output) {
    name = graph.outputs()[entry.number].name;
  } else if (const auto& input = graph.node(InputNodes(graph)[entry.number]).input) {
    name = input->name;
  }
  const char* const what = entry.output ? "output" : "input";
  if (address == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s %d (%s) has no address", what, entry.number, name));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("the address of %s %d (%s) must be a multiple of %d bytes", what,
                      entry.number, name, entry.alignment));
}

}  // namespace retrograd
