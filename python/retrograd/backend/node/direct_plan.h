// What a run of a compiled backward takes: where its operands come from, how its gradients lie.
#pragma once

#include <Python.h>

#include <ATen/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradient_rooms.h"
#include "layout.h"

// The part of retrograd.h that runs need. The library checks struct_size.
extern "C" {
typedef struct rg_run {
  size_t struct_size;
  void* stream;
  const void* const* inputs;
  size_t num_inputs;
  void* const* outputs;
  size_t num_outputs;
  void* workspace;
  size_t workspace_bytes;
  void* const* blocks;
  size_t num_blocks;
  int32_t (*before_phase)(void* user, uint32_t phase);
  void* phase_user;
} rg_run;

typedef struct rg_error {
  size_t struct_size;
  int32_t code;
  const char* message;
  int64_t node;
} rg_error;
}

namespace retrograd {

inline constexpr uintptr_t kMostAlignment = 16;  // arrived.ALIGNMENT

enum class From : uint8_t { kSaved, kTangent };

struct Operand {
  From from = From::kSaved;
  size_t index = 0;  // among the tensors saved by the forward, or the tangents
  Layout layout;
  uintptr_t alignment = kMostAlignment;  // bytes that divide the address that the plan reads
  bool read = true;                      // else the tensor may be on any device
};

// A part of the workspace, needed from the begin of one phase to the end of another.
struct Block {
  size_t bytes = 0;
  uint32_t first = 0, last = 0;
};

struct DirectPlan {
  explicit DirectPlan(at::Device on) : device(on), memory(on) {}

  std::string what;            // for people
  size_t held_bytes = 0;       // by the program, as long as it lives
  std::vector<int64_t> sizes;  // of a dynamic graph, that it was made for
  int32_t (*run)(void* executable, const rg_run* run) = nullptr;
  int32_t (*last_error)(rg_error* error) = nullptr;
  void* executable = nullptr;
  uint32_t num_phases = 1;
  std::vector<Block> blocks;
  size_t block_alignment = 1;
  std::vector<uint32_t> result_first;  // by result: the phase that writes it first
  std::vector<std::vector<size_t>>
      last_of_phase;  // by phase: saved tensors that no later one reads
  at::Device device;
  Memory memory;  // of the device
  std::vector<Operand> operands;
  std::vector<size_t> absent;                  // tangents that nobody computes, ascending
  std::vector<at::Tensor> constants;           // behind the operands
  std::vector<std::optional<Layout>> results;  // nullopt: nobody computes it
  std::vector<int> result_of_edge;             // of the compiled function's edges; -1: none
  std::shared_ptr<PyObject> before;            // called before each run; may be null
  std::shared_ptr<PyObject> keep;              // what owns the executable
};

using Tensors = std::vector<at::Tensor>;

// The tensor that an operand reads.
inline const at::Tensor& Given(const Operand& operand, const Tensors& saved,
                               const Tensors& tangents) {
  return operand.from == From::kSaved ? saved[operand.index] : tangents[operand.index];
}

// Whether nobody computed just the tangents that the plan expects so.
inline bool AbsentAre(const DirectPlan& plan, const Tensors& tangents,
                      const std::vector<bool>& used) {
  size_t next = 0;
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (tangents[i].defined() || !used[i]) continue;
    if (next == plan.absent.size() || plan.absent[next] != i) return false;
    ++next;
  }
  return next == plan.absent.size();
}

// Whether the plan was made for these tensors, except for strides. An operand that is a tangent
// that nobody computed stands for zeros.
inline bool Fits(const DirectPlan& plan, const Tensors& saved, const Tensors& tangents) {
  for (const Operand& operand : plan.operands) {
    const Tensors& among = operand.from == From::kSaved ? saved : tangents;
    if (operand.index >= among.size()) return false;
    const at::Tensor& tensor = among[operand.index];
    if (!tensor.defined()) {
      if (operand.from == From::kSaved || operand.layout.expanded) return false;
      continue;
    }
    if (!operand.read) continue;
    // A scalar may lie in the host's memory, as the seeds of PyTorch's efficient attention do.
    const bool on_host = tensor.dim() == 0 && tensor.device().is_cpu();
    if (!HasShape(tensor, operand.layout, on_host ? tensor.device() : plan.device)) return false;
    if (operand.layout.expanded &&
        !SameStrides(operand.layout.sizes, tensor.strides(), operand.layout.strides)) {
      return false;
    }
  }
  return true;
}

// The tensor's first element, in the layout and alignment that the plan reads. A copy of a tensor
// that lies otherwise is put behind `copies`.
inline const void* AddressOf(const at::Tensor& tensor, const Operand& operand, at::Device device,
                             Tensors& copies) {
  const Layout& layout = operand.layout;
  if (!tensor.defined()) {
    copies.push_back(Room(layout, device).zero_());
    return copies.back().const_data_ptr();
  }
  const void* address = tensor.const_data_ptr();
  if (tensor.device() == device && reinterpret_cast<uintptr_t>(address) % operand.alignment == 0 &&
      SameStrides(layout.sizes, tensor.strides(), layout.strides)) {
    return address;
  }
  at::Tensor room = Room(layout, device);
  // A copy from the host would wait for the stream, and cannot be captured.
  copies.push_back(tensor.device() == device ? room.copy_(tensor) : room.fill_(tensor.item()));
  return copies.back().const_data_ptr();
}

// Throws what the library says of its last failure.
[[noreturn]] inline void Fail(const DirectPlan& plan) {
  rg_error error = {};
  error.struct_size = sizeof(error);
  plan.last_error(&error);
  throw std::runtime_error(plan.what + ": " + (error.message == nullptr ? "" : error.message));
}

// The workspace of a run, block by block.
class Workspace {
 public:
  explicit Workspace(const DirectPlan& plan)
      : plan_(plan), rooms_(plan.blocks.size()), addresses_(plan.blocks.size() + 1) {}

  // Before the phase is issued, and behind the one before it: what it needs no longer goes.
  void Leave(uint32_t phase) {
    for (size_t b = 0; b < rooms_.size(); ++b) {
      if (plan_.blocks[b].last < phase) rooms_[b] = {};
    }
  }

  void Enter(uint32_t phase) {
    for (size_t b = 0; b < rooms_.size(); ++b) {
      if (plan_.blocks[b].first == phase) Make(b);
    }
  }

  void* const* addresses() const { return addresses_.data(); }  // not null where there are none
  size_t size() const { return rooms_.size(); }

 private:
  void Make(size_t b) {
    rooms_[b] =
        plan_.memory.Allocate(static_cast<int64_t>(plan_.blocks[b].bytes + plan_.block_alignment));
    const auto begin = reinterpret_cast<uintptr_t>(rooms_[b].mutable_data());
    const uintptr_t behind = begin % plan_.block_alignment;
    addresses_[b] =
        reinterpret_cast<void*>(behind == 0 ? begin : begin + plan_.block_alignment - behind);
  }

  const DirectPlan& plan_;
  std::vector<c10::Storage> rooms_;
  std::vector<void*> addresses_;
};

// The addresses of a run's operands. A copy of a tensor that lies otherwise is put behind `copies`.
inline std::vector<const void*> InputsOf(const DirectPlan& plan, const Tensors& saved,
                                         const Tensors& tangents, Tensors& copies) {
  std::vector<const void*> inputs;
  inputs.reserve(plan.operands.size() + plan.constants.size());
  alignas(kMostAlignment) static char nothing[kMostAlignment];  // of what nobody reads
  for (const Operand& operand : plan.operands) {
    if (!operand.read) {
      inputs.push_back(nothing);
      continue;
    }
    inputs.push_back(AddressOf(Given(operand, saved, tangents), operand, plan.device, copies));
  }
  for (const at::Tensor& constant : plan.constants) inputs.push_back(constant.const_data_ptr());
  return inputs;
}

// Issues a run on the current stream. enter(phase, make_blocks): called before each phase; makes
// the phase's outputs, an address for each result in `outputs`, null where there is none, and calls
// make_blocks for the workspace. What it throws ends the run.
template <typename Enter>
void Run(const DirectPlan& plan, const std::vector<const void*>& inputs,
         const std::vector<void*>& outputs, Enter enter) {
  Workspace workspace(plan);
  struct Phases {
    Enter& enter;
    Workspace& workspace;
    std::exception_ptr thrown;
  } phases{enter, workspace, nullptr};
  enter(0, [&] { workspace.Enter(0); });
  rg_run run = {};
  run.struct_size = sizeof(run);
  run.inputs = inputs.data();
  run.num_inputs = inputs.size();
  run.outputs = outputs.data();
  run.num_outputs = outputs.size();
  run.blocks = workspace.addresses();
  run.num_blocks = workspace.size();
  run.phase_user = &phases;
  run.before_phase = [](void* user, uint32_t phase) -> int32_t {
    auto& entered = *static_cast<Phases*>(user);
    try {
      entered.workspace.Leave(phase);
      entered.enter(phase, [&] { entered.workspace.Enter(phase); });
      return 0;
    } catch (...) {
      entered.thrown = std::current_exception();
      return 1;
    }
  };
  if (!plan.device.is_cpu()) {
    const c10::impl::VirtualGuardImpl devices(plan.device.type());
    run.stream = devices.getStream(plan.device).native_handle();
  }
  const int32_t code = plan.run(plan.executable, &run);
  if (phases.thrown != nullptr) std::rethrow_exception(phases.thrown);
  if (code != 0) Fail(plan);
}

}  // namespace retrograd
