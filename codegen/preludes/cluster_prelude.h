// What kernels are written with whose blocks form clusters: sm_90 and later. The host dialect has
// the same by its own means (host_simt.h).
#ifndef RETROGRAD_CODEGEN_PRELUDES_CLUSTER_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_CLUSTER_PRELUDE_H_

#include <string>

namespace retrograd {

// RG_KERNEL_CLUSTER(name, threads, arguments, blocks): a kernel in clusters of so many blocks.
// RG_CLUSTER_ARRIVE, RG_CLUSTER_WAIT: the two halves of a barrier of a cluster's threads, to each
// of which all of them come. What a thread did before it arrived has happened when others have
// waited. RG_CLUSTER_DONE: the first half for threads that have read all that they will of other
// blocks, and stored nothing for them since they last waited. It waits for no store. RG_PEER(array,
// rank, i): element i of that shared array of the cluster's block `rank`, which must not have
// ended.
std::string ClusterPrelude();

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_CLUSTER_PRELUDE_H_
