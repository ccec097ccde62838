#include "fusion/cost/limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

Limits::Verdict AtMost(absl::string_view limit, int64_t value, int64_t bound,
                       absl::string_view what) {
  if (value <= bound) return {};
  return {std::string(limit), absl::StrCat(value, " ", what, ", at most ", bound)};
}

constexpr size_t RowOf(absl::string_view name) {
  size_t row = 0;
  while (kLimits[row].name != name) ++row;
  return row;
}
constexpr size_t kRegistersRow = RowOf("registers"), kSharedRow = RowOf("shared_memory");

bool MixesReductions(const KernelProfile& p) {
  const KernelTemplate& t = TemplateOf(p.shape.kind);
  return t.walk == Walk::kRows && t.sums_columns;
}

}  // namespace

absl::StatusOr<Limits> Limits::Make(const DeviceSpec& device,
                                    const absl::flat_hash_set<std::string>& tighten) {
  Limits limits;
  std::vector<absl::string_view> names;
  for (const Limit& l : kLimits) {
    const bool tight = tighten.contains(std::string(l.name));
    int64_t bound = tight ? l.tightened : l.normal;
    if (l.name == "registers" && !tight) bound = device.max_registers;
    if (l.name == "shared_memory" && !tight) bound = device.shared_bytes_per_block;
    limits.bounds_.push_back(bound);
    limits.any_tightened_ |= tight;
    names.push_back(l.name);
  }
  for (const std::string& name : tighten) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no limit '", name, "' to tighten: ", absl::StrJoin(names, ", ")));
    }
  }
  return limits;
}

int64_t Limits::Bound(absl::string_view name) const {
  for (size_t i = 0; i < std::size(kLimits); ++i) {
    if (kLimits[i].name == name) return bounds_[i];
  }
  RG_CHECK(false && "unknown limit");
  return 0;
}

Limits::Verdict Limits::CheckOps(int64_t ops) const {
  return AtMost("ops", ops, Bound("ops"), "ops in one kernel");
}

Limits::Verdict Limits::CheckKernel(const KernelIr& ir, const KernelProfile& p, int64_t ops) const {
  const int64_t share = ops > kShortOps && !any_tightened_ ? kLongKernelsShare : 1;
  const int64_t stores = static_cast<int64_t>(ir.stores.size());
  const int64_t operands = static_cast<int64_t>(ir.buffers.size());
  const int64_t axes = static_cast<int64_t>(ir.extents.size());
  if (Verdict v =
          AtMost("operands", operands, share * Bound("operands"), "tensors read or written");
      !v.ok())
    return v;
  if (Verdict v = AtMost("stores", stores, share * Bound("stores"), "tensors written"); !v.ok())
    return v;
  if (Verdict v = AtMost("axes", axes, Bound("axes"), "axes"); !v.ok()) return v;
  if (Verdict v =
          AtMost("reductions", p.row_sums + p.column_sums, Bound("reductions"), "reductions");
      !v.ok())
    return v;
  if (MixesReductions(p) && Bound("mixed_reductions") == 0) {
    return {"mixed_reductions", "row and column reductions in one kernel"};
  }
  return {};
}

bool Limits::Allows(const Footprint& f) const {
  return f.spill_bytes == 0 && f.registers_wanted <= bounds_[kRegistersRow] &&
         f.shared_bytes <= bounds_[kSharedRow] && f.blocks_per_sm >= 1;
}

Limits::Verdict Limits::CheckSchedule(const Schedule& s, const Footprint& f) const {
  if (Allows(f)) return {};
  const int64_t bound = bounds_[kRegistersRow];
  if (f.spill_bytes > 0 || f.registers_wanted > bound) {
    const int64_t cap = std::min<int64_t>(bound, f.spill_bytes > 0 ? f.registers : bound);
    return {"registers", absl::StrCat("a thread would need ", f.registers_wanted, " registers of ",
                                      cap, ": ", std::max<int64_t>(f.registers_wanted - cap, 0),
                                      " words spilled (", s.Print(), ")")};
  }
  return {"shared_memory", absl::StrCat(f.shared_bytes, " B of shared memory a block, at most ",
                                        bounds_[kSharedRow])};
}

}  // namespace retrograd
