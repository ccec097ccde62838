// The launches of a plan's groups, where equal kernels are emitted once: layers differ in the names
// of their values alone.
#ifndef RETROGRAD_CODEGEN_EMIT_ONCE_H_
#define RETROGRAD_CODEGEN_EMIT_ONCE_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/print/kernel.h"
#include "fusion/plan/plan.h"

namespace retrograd {

class EmitOnce {
 public:
  explicit EmitOnce(Dialect dialect) : dialect_(dialect) {}

  // What EmitGroup gives. The group must outlive this.
  GroupKernels Emit(const Group& group);

 private:
  struct Emitted {
    const KernelBody* body = nullptr;
    GroupKernels kernels;
  };
  const Dialect dialect_;
  absl::flat_hash_map<uint64_t, std::vector<Emitted>> emitted_;  // by fingerprint
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_EMIT_ONCE_H_
