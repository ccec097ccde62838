#include "runtime/host/host_launch.h"

#include <csetjmp>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/preludes/host_abi.h"
#include "graph/base/status.h"
#include "runtime/host/fiber_block.h"
#include "runtime/host/pending_copies.h"
#include "runtime/host/sanitizer/access_check.h"
#include "runtime/host/sanitizer/shared_arrays.h"

namespace retrograd {

struct HostLauncher::State {
  FiberBlock fibers;
  std::vector<SharedArrays> shared;  // of each block of a cluster
  PendingCopies copies;
  std::vector<void*> data;
  AccessCheck check;
};

namespace {

// The block as the kernel knows it, and what its calls need.
struct RunningBlock : rg_host_block {
  int cluster;  // number of its cluster
  int rank;     // and its own in there
  int threads;  // of a block
  int blocks;   // of a cluster
  FiberBlock* fibers;
  SharedArrays* shared;  // of the cluster's first block
  PendingCopies* copies;
  AccessCheck* check;  // null in a fast build
  bool cooperative;
  std::jmp_buf stop;  // ends a block that is not cooperative
};

RunningBlock* BlockOf(rg_host_thread* self) { return static_cast<RunningBlock*>(self->block); }

// The number of a thread among those of its cluster.
int NumberOf(rg_host_thread* self) {
  const RunningBlock* block = BlockOf(self);
  return block->rank * block->threads + self->thread;
}

Accessor WhoIs(rg_host_thread* self, int epoch) {
  const RunningBlock* block = BlockOf(self);
  Accessor by{.block = block->cluster, .thread = NumberOf(self), .epoch = epoch};
  if (block->cooperative) by.meeting = block->fibers->meetings(self);
  return by;
}

Accessor WhoIs(rg_host_thread* self) {
  const RunningBlock* block = BlockOf(self);
  return WhoIs(self, block->fibers->epoch(block->rank));
}

SharedArrays& SharedOf(rg_host_thread* self) { return BlockOf(self)->shared[BlockOf(self)->rank]; }

void OnBarrier(rg_host_thread* self, int line) { BlockOf(self)->fibers->Barrier(self, line); }

void OnClusterBarrier(rg_host_thread* self, int line) {
  BlockOf(self)->fibers->ClusterBarrier(self, line);
}

void OnShuffle(rg_host_thread* self, int line, rg_host_shuffle_mode mode, int distance, void* value,
               int bytes) {
  RunningBlock* block = BlockOf(self);
  if (block->fibers->Shuffle(self, line, mode, distance, value, bytes)) return;
  if (block->check != nullptr) block->check->MissingLane(WhoIs(self), distance, line);
}

void* OnShared(rg_host_thread* self, const void* key, const char* name, int64_t bytes,
               int element_bytes) {
  RunningBlock* block = BlockOf(self);
  const SharedArrays::Array* array = SharedOf(self).Find(key, name, bytes, element_bytes);
  if (array == nullptr) {
    block->fibers->Abandon(self, absl::StrCat("shared memory: no room for ", bytes, " bytes of ",
                                              name, ", a block has ", SharedArrays::kBytes));
  }
  return SharedOf(self).Data(*array);
}

// Ends the block from within a thread. Kernels own nothing, so leaving them by a jump loses
// nothing.
[[noreturn]] void Stop(rg_host_thread* self) {
  RunningBlock* block = BlockOf(self);
  if (block->cooperative) block->fibers->Abandon(self, "stopped");
  std::longjmp(block->stop, 1);
}

bool OnGlobalAccess(rg_host_thread* self, int argument, int64_t offset, int64_t bytes,
                    int element_bytes, bool write, int line) {
  RunningBlock* block = BlockOf(self);
  if (block->check->full()) Stop(self);
  return block->check->Global(WhoIs(self), argument, offset, bytes, element_bytes, write, line);
}

bool OnSharedAccess(rg_host_thread* self, const void* data, int64_t offset, int64_t bytes,
                    bool write) {
  RunningBlock* block = BlockOf(self);
  if (block->check->full()) Stop(self);
  const SharedArrays::Array* array = SharedOf(self).At(data);
  return block->check->Shared(WhoIs(self), block->rank, *array, offset, bytes, write);
}

const void* OnPeer(rg_host_thread* self, const void* data, int rank, int64_t offset,
                   int64_t bytes) {
  RunningBlock* block = BlockOf(self);
  const SharedArrays::Array own = *SharedOf(self).At(data);
  if (rank < 0 || rank >= block->blocks) {
    block->fibers->Abandon(
        self, absl::StrCat("shared memory: no block ", rank, " in a cluster of ", block->blocks));
  }
  SharedArrays& shared = block->shared[rank];
  const SharedArrays::Array* array = shared.Find(own.key, own.name, own.bytes, own.element_bytes);
  if (array == nullptr) {
    block->fibers->Abandon(self, absl::StrCat("shared memory: block ", rank,
                                              " of the cluster has no room for ", own.name));
  }
  if (block->check != nullptr) {
    if (block->check->full()) Stop(self);
    if (block->fibers->ended(rank)) {
      block->check->Ended(WhoIs(self), rank, *array, offset);
      return nullptr;
    }
    if (!block->check->Shared(WhoIs(self), rank, *array, offset, bytes, /*write=*/false)) {
      return nullptr;
    }
  }
  return static_cast<const char*>(shared.Data(*array)) + offset;
}

void OnCopy(rg_host_thread* self, void* to, const void* from, int bytes) {
  BlockOf(self)->copies->Add(NumberOf(self), to, from, bytes);
}

void OnCopiesSent(rg_host_thread* self) { BlockOf(self)->copies->Send(NumberOf(self)); }

void OnCopiesWait(rg_host_thread* self, int under_way) {
  BlockOf(self)->copies->Wait(NumberOf(self), under_way);
}

constexpr rg_host_calls kCalls = {OnBarrier,        OnShuffle, OnShared,     OnGlobalAccess,
                                  OnSharedAccess,   OnCopy,    OnCopiesSent, OnCopiesWait,
                                  OnClusterBarrier, OnPeer};

absl::Status CheckCall(const HostKernel& kernel, int64_t blocks, int threads,
                       absl::Span<const HostArg> args) {
  const rg_host_kernel& code = *kernel.code;
  if (threads != code.threads) {
    return absl::InvalidArgumentError(absl::StrCat("kernel ", kernel.name, " is written for ",
                                                   code.threads, " threads a block, launched with ",
                                                   threads));
  }
  if (static_cast<int64_t>(args.size()) != code.arguments) {
    return absl::InvalidArgumentError(absl::StrCat("kernel ", kernel.name, " takes ",
                                                   code.arguments, " arguments, launched with ",
                                                   args.size()));
  }
  if (blocks < 0 || blocks > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel ", kernel.name, ": ", blocks, " blocks; at most 2^31 - 1 can run"));
  }
  if (blocks % code.cluster != 0) {
    return absl::InvalidArgumentError(absl::StrCat("kernel ", kernel.name, ": ", blocks,
                                                   " blocks are no clusters of ", code.cluster));
  }
  if (code.cluster > 1 && code.threads % code.warp != 0) {
    return absl::InvalidArgumentError(absl::StrCat("kernel ", kernel.name,
                                                   ": a block of a cluster has ", code.threads,
                                                   " threads, which are no warps of ", code.warp));
  }
  for (size_t i = 0; i < args.size(); ++i) {
    const HostArg& arg = args[i];
    const bool power = arg.alignment > 0 && (arg.alignment & (arg.alignment - 1)) == 0;
    if (power && arg.bytes >= 0 && reinterpret_cast<uintptr_t>(arg.data) % arg.alignment == 0) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("kernel ", kernel.name, ", argument ", i, ": ", arg.bytes,
                     " bytes at address 0x", absl::Hex(reinterpret_cast<uintptr_t>(arg.data)),
                     " are promised to be aligned to ", arg.alignment, " bytes"));
  }
  return absl::OkStatus();
}

void RunPlainBlock(const rg_host_kernel& code, RunningBlock* block) {
  if (block->check == nullptr || setjmp(block->stop) == 0) code.run_block(block);
}

// The order of blocks: first, first + stride, ... modulo their number.
struct Order {
  int64_t first, stride;
  Order(uint64_t seed, int64_t count) {
    const uint64_t mixed = (seed + 1) * 0x9e3779b97f4a7c15;
    first = static_cast<int64_t>((mixed >> 33) % count);
    stride = 1 + static_cast<int64_t>((mixed & 0xffffffff) % count);
    while (std::gcd(stride, count) != 1) ++stride;  // count + 1 at the latest
  }
};

}  // namespace

HostLauncher::HostLauncher() : state_(std::make_unique<State>()) {}
HostLauncher::~HostLauncher() = default;
HostLauncher::HostLauncher(HostLauncher&&) noexcept = default;
HostLauncher& HostLauncher::operator=(HostLauncher&&) noexcept = default;

absl::Status HostLauncher::Reserve(const HostKernel& kernel) {
  const int threads = kernel.code->threads, blocks = kernel.code->cluster;
  RG_RETURN_IF_ERROR(state_->fibers.Reserve(threads, blocks));
  state_->data.reserve(kernel.code->arguments);
  if (static_cast<int>(state_->shared.size()) < blocks) state_->shared.resize(blocks);
  for (int rank = 0; kernel.code->cooperative && rank < blocks; ++rank) {
    state_->shared[rank].Reserve();
  }
  state_->copies.Reserve(threads * blocks);
  return absl::OkStatus();
}

absl::Status HostLauncher::Run(const HostKernel& kernel, int64_t blocks, int threads,
                               absl::Span<const HostArg> args, const HostLaunchOptions& options) {
  RG_RETURN_IF_ERROR(CheckCall(kernel, blocks, threads, args));
  RG_RETURN_IF_ERROR(Reserve(kernel));
  if (blocks == 0) return absl::OkStatus();
  const rg_host_kernel& code = *kernel.code;
  State& state = *state_;
  state.data.clear();
  for (const HostArg& arg : args) state.data.push_back(arg.data);
  if (code.checked)
    RG_RETURN_IF_ERROR(
        state.check.BeginLaunch(kernel.name, args, blocks, threads, code.cluster, options));

  RunningBlock running[FiberBlock::kMostBlocks];
  rg_host_block* pointers[FiberBlock::kMostBlocks];
  for (int rank = 0; rank < code.cluster; ++rank) {
    RunningBlock& block = running[rank];
    pointers[rank] = &block;
    block.calls = &kCalls;
    block.data = state.data.data();
    block.rank = rank;
    block.threads = threads;
    block.blocks = code.cluster;
    block.fibers = &state.fibers;
    block.shared = state.shared.data();
    block.copies = &state.copies;
    block.check = code.checked ? &state.check : nullptr;
    block.cooperative = code.cooperative;
    block.first_thread = 0;
    block.thread_stride = 1;
  }
  const int64_t clusters = blocks / code.cluster;
  const Order cluster_order(options.seed, clusters);
  if (code.checked && threads > 1) {
    const Order thread_order(options.seed, threads);
    running[0].first_thread = static_cast<int>(thread_order.first);
    running[0].thread_stride = static_cast<int>(thread_order.stride % threads);
  }

  absl::Status status;
  for (int64_t i = 0, at = cluster_order.first; i < clusters && status.ok(); ++i) {
    if (code.checked && state.check.full()) break;
    for (int rank = 0; rank < code.cluster; ++rank) {
      running[rank].cluster = static_cast<int>(at);
      running[rank].block = static_cast<int>(at * code.cluster + rank);
      state.shared[rank].Clear();
    }
    at = (at + cluster_order.stride) % clusters;
    state.copies.Clear();
    if (!code.cooperative) {
      RunPlainBlock(code, &running[0]);
      continue;
    }
    const uint64_t seed = options.seed + static_cast<uint64_t>(i) * 0x9e37;
    if (state.fibers.Run(code, absl::MakeConstSpan(pointers, code.cluster), seed)) continue;
    status = absl::InternalError(absl::StrCat("kernel ", kernel.name, ", block ", running[0].block,
                                              ": ", state.fibers.stuck()));
  }
  if (!code.checked) return status;
  const absl::Status checked = state.check.EndLaunch();
  if (status.ok() || checked.ok()) return status.ok() ? checked : status;
  return absl::InternalError(absl::StrCat(status.message(), "; ", checked.message()));
}

void HostLauncher::MarkDefined(const void* data, int64_t bytes) {
  state_->check.MarkDefined(data, bytes);
}
void HostLauncher::MarkUndefined(const void* data, int64_t bytes) {
  state_->check.MarkUndefined(data, bytes);
}

}  // namespace retrograd
