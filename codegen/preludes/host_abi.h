// What a compiled host kernel and the launcher say to each other. Also the beginning of the text
// that every generated host translation unit starts with, so it includes nothing.
#ifndef RETROGRAD_CODEGEN_PRELUDES_HOST_ABI_H_
#define RETROGRAD_CODEGEN_PRELUDES_HOST_ABI_H_

typedef __INT8_TYPE__ int8_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;

// Changes with every change of the types below.
#define RG_HOST_ABI 5

struct rg_host_thread;

// A ballot gives each thread a word with the bits of the 32 threads that it is one of: whose value
// is not 0. A meeting moves nothing: it orders what those threads do before it and after it.
enum rg_host_shuffle_mode {
  rg_host_shuffle_xor,
  rg_host_shuffle_down,
  rg_host_ballot,
  rg_host_meeting
};

// What a running kernel asks of its launcher.
struct rg_host_calls {
  // All threads of the block meet; line is the caller's, to tell barriers apart.
  void (*barrier)(rg_host_thread* self, int line);
  // Threads of a warp exchange *value, of 4 or 8 bytes.
  void (*shuffle)(rg_host_thread* self, int line, rg_host_shuffle_mode mode, int distance,
                  void* value, int bytes);
  // The block's shared array that key stands for.
  void* (*shared)(rg_host_thread* self, const void* key, const char* name, int64_t bytes,
                  int element_bytes);
  // Checking build: may this access happen? offset counts bytes from the argument's start.
  bool (*global_access)(rg_host_thread* self, int argument, int64_t offset, int64_t bytes,
                        int element_bytes, bool write, int line);
  // The same for shared memory; data is what `shared` returned.
  bool (*shared_access)(rg_host_thread* self, const void* data, int64_t offset, int64_t bytes,
                        bool write);
  // A copy into shared memory that has not come before the thread waits for its batch: until then
  // `to` holds poison. The batch is what the thread has asked for since copies_sent; copies_wait
  // returns when no more than the last `under_way` batches have not come.
  void (*copy)(rg_host_thread* self, void* to, const void* from, int bytes);
  void (*copies_sent)(rg_host_thread* self);
  void (*copies_wait)(rg_host_thread* self, int under_way);
  // All threads of the cluster's blocks meet.
  void (*cluster_barrier)(rg_host_thread* self, int line);
  // Where element `offset` (in bytes) of the shared array that begins at data lies in the cluster's
  // block `rank`; null where a checking build refuses to read `bytes` there.
  const void* (*peer)(rg_host_thread* self, const void* data, int rank, int64_t offset,
                      int64_t bytes);
};

// The block being run.
struct rg_host_block {
  const rg_host_calls* calls;
  void* const* data;  // one pointer an argument
  int block;
  int first_thread;   // the order in which a kernel without barriers runs its threads:
  int thread_stride;  // first, first + stride, ... modulo threads; the stride is coprime to threads
};

struct rg_host_thread {
  rg_host_block* block;
  int thread;
};

// What a module exports under the kernel's name.
struct rg_host_kernel {
  int abi;
  int threads;  // of a block
  int arguments;
  int warp;          // threads of a warp
  int cluster;       // blocks that run together; their threads meet
  bool checked;      // built with RG_CHECK_MODE
  bool cooperative;  // uses barriers, shuffles or shared memory: each thread needs a stack
  void (*run_thread)(rg_host_thread* self);  // cooperative kernels
  void (*run_block)(rg_host_block* block);   // all others: every thread of the block
};

#endif  // RETROGRAD_CODEGEN_PRELUDES_HOST_ABI_H_
