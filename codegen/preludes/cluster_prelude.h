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
//
// Blocks that send each other a number each, and wait for no store to device memory meanwhile:
// RG_BEGIN_MEETINGS(meetings, count): all threads, once; the shared array holds a meeting an
// element. RG_MEETINGS_BEGUN(): the same, before the first number is sent. RG_EXPECT(meetings, m,
// bytes): one thread of a block each time, of what all blocks send it. RG_PUSH(array, first, own,
// rank, value, meetings, m): to block `rank`, whose place for it is first + own, by the block whose
// rank is `own`. RG_MEET(meetings, m, parity): waits for all of them; parity: how often meeting m
// has been held, odd or even. RG_PUSHED(array, first, from): what block `from` has sent.
// RG_END_MEETINGS(): all threads, when they have read all that they will.
std::string ClusterPrelude();

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_CLUSTER_PRELUDE_H_
