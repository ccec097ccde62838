// The launches of a plan's groups, where equal kernels are emitted once: layers differ in the names
// of their values alone.
#ifndef RETROGRAD_CODEGEN_EMIT_ONCE_H_
#define RETROGRAD_CODEGEN_EMIT_ONCE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "codegen/print/kernel.h"
#include "fusion/plan/plan.h"

namespace retrograd {

class EmitOnce {
 public:
  explicit EmitOnce(Dialect dialect) : dialect_(dialect) {}

  // What EmitGroup gives. The group must outlive this.
  GroupKernels Emit(const Group& group);

  // Whether so many launches of the group that is emitted start early.
  using StartsEarly = absl::FunctionRef<bool(size_t launches)>;
  // The same, behind StartEarly where they do.
  GroupKernels Emit(const Group& group, StartsEarly starts_early);

 private:
  struct Emitted {
    const KernelBody* body = nullptr;
    GroupKernels kernels;
    std::optional<GroupKernels> early;  // behind StartEarly; without a value: not asked for
  };
  GroupKernels EmitKernel(const KernelBody& body, StartsEarly starts_early);
  static const GroupKernels& Chosen(Emitted& emitted, StartsEarly starts_early);

  const Dialect dialect_;
  absl::flat_hash_map<uint64_t, std::vector<Emitted>> emitted_;  // by fingerprint
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_EMIT_ONCE_H_
