#include "codegen/emit_once.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "codegen/emit.h"
#include "fusion/cost/device_report.h"

namespace retrograd {
namespace {

// All of them but the values.
auto WorkOf(const Buffer& buffer) {
  const auto& [value, dtype, elements, alignment, written, fresh, sorted_by_list] = buffer;
  return std::tie(dtype, elements, alignment, written, fresh, sorted_by_list);
}
auto WorkOf(const Instr& instr) {
  const auto& [kind, op, dtype, round, axes, operands, buffer, offset, indirect, guards, fill,
               constant, start, step, reduced, reverse, value] = instr;
  return std::tie(kind, op, dtype, round, axes, operands, buffer, offset, indirect, guards, fill,
                  constant, start, step, reduced, reverse);
}

using Names = absl::flat_hash_map<ValueId, ValueId>;

// What values of the one kernel are called in the other, if both do the same, to buffers of which
// the same ones are one.
std::optional<Names> Renamed(const KernelIr& one, const KernelIr& other) {
  const auto same = [](const auto& a, const auto& b) { return WorkOf(a) == WorkOf(b); };
  if (one.extents != other.extents || one.stores != other.stores || one.scatter != other.scatter ||
      !std::equal(one.buffers.begin(), one.buffers.end(), other.buffers.begin(),
                  other.buffers.end(), same) ||
      !std::equal(one.instrs.begin(), one.instrs.end(), other.instrs.begin(), other.instrs.end(),
                  same)) {
    return std::nullopt;
  }
  Names there, back;
  for (size_t i = 0; i < one.buffers.size(); ++i) {
    const ValueId from = one.buffers[i].value, to = other.buffers[i].value;
    if (there.try_emplace(from, to).first->second != to) return std::nullopt;
    if (back.try_emplace(to, from).first->second != from) return std::nullopt;
  }
  return there;
}

}  // namespace

GroupKernels EmitOnce::Emit(const Group& group) {
  return Emit(group, [](size_t launches) { return launches; });
}

GroupKernels EmitOnce::Emit(const Group& group, FirstEarly first_early) {
  if (const KernelBody* body = KernelOf(group)) return EmitKernel(*body, first_early);
  GroupKernels kernels = EmitGroup(group, dialect_);
  const size_t launches = kernels.launches.size();
  if (launches > 0) StartEarly(&kernels, first_early(launches));
  return kernels;
}

GroupKernels EmitOnce::EmitKernel(const KernelBody& body, FirstEarly first_early) {
  std::vector<Emitted>& alike = emitted_[FingerprintOf(FingerprintOf(body.ir), body.schedule)];
  for (Emitted& known : alike) {
    if (known.body->schedule != body.schedule) continue;
    const std::optional<Names> names = Renamed(known.body->ir, body.ir);
    if (!names) continue;
    GroupKernels kernels = Chosen(known, first_early);
    for (Kernel& kernel : kernels.launches) {
      for (KernelArg& arg : kernel.args) {
        if (arg.kind == KernelArg::kValue) arg.value = names->at(arg.value);
      }
    }
    return kernels;
  }
  return Chosen(alike.emplace_back(Emitted{&body, EmitGroup(body, dialect_)}), first_early);
}

const GroupKernels& EmitOnce::Chosen(Emitted& emitted, FirstEarly first_early) {
  const size_t launches = emitted.kernels.launches.size();
  const size_t first = launches > 0 ? first_early(launches) : 0;
  if (first >= launches) return emitted.kernels;
  const auto [at, added] = emitted.early.try_emplace(first, emitted.kernels);
  if (added) StartEarly(&at->second, first);
  return at->second;
}

}  // namespace retrograd
