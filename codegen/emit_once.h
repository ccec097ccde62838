// The launches of a plan's groups, where equal kernels are emitted once: layers differ in the names
// of their values alone.
#ifndef RETROGRAD_CODEGEN_EMIT_ONCE_H_
#define RETROGRAD_CODEGEN_EMIT_ONCE_H_

#include <cstddef>
#include <cstdint>
#include <map>
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

  // Of so many launches of the group that is emitted, which is the first that starts early: all
  // behind it do, too. Their number: none does.
  using FirstEarly = absl::FunctionRef<size_t(size_t launches)>;
  // The same, behind StartEarly from that launch on.
  GroupKernels Emit(const Group& group, FirstEarly first_early);

 private:
  struct Emitted {
    const KernelBody* body = nullptr;
    GroupKernels kernels;
    std::map<size_t, GroupKernels> early;  // behind StartEarly, by the first that does
  };
  GroupKernels EmitKernel(const KernelBody& body, FirstEarly first_early);
  static const GroupKernels& Chosen(Emitted& emitted, FirstEarly first_early);

  const Dialect dialect_;
  absl::flat_hash_map<uint64_t, std::vector<Emitted>> emitted_;  // by fingerprint
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_EMIT_ONCE_H_
