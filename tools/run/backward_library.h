// One compiled backward behind C functions, for bench/: loaded into the framework's process,
// so that both sides work on the same tensors, on the same stream, under the same profiler. Made
// for those scripts and changed with them; nothing to build on.
#ifndef RETROGRAD_TOOLS_RUN_BACKWARD_LIBRARY_H_
#define RETROGRAD_TOOLS_RUN_BACKWARD_LIBRARY_H_

#include <stddef.h>

#define RG_EXPORT __attribute__((visibility("default")))

extern "C" {

struct rg_backward;

// Plans, compiles and loads a graph: a file or a name. `options` is a JSON object; known keys:
// "device" ("cuda", "cuda:1", "host"), "spec" (absent: the device's), "cache_dir" (absent: the
// user's), "deterministic" (true), "disable" and "set" (lists of what fusion-explain takes under
// these names), "streams" (1), "memory_order", "memory_reuse", "in_place", "plan_again", "record",
// "runnable" (ExecutableOptions), "tiled_attention", "time_calls" (of libraries; all true),
// "measured_calls" (ExecutableOptions, false) and
// "convolution_plans" (of cuDNN, tried for a convolution at most; absent: all). Null, with
// rg_backward_error(), if that fails.
RG_EXPORT rg_backward* rg_backward_open(const char* graph, const char* options);
// The same on the device of another backward, with the libraries that it has loaded and the choices
// that were timed for it. What `options` says of the device is not looked at. Either may be closed
// first.
RG_EXPORT rg_backward* rg_backward_open_beside(rg_backward* other, const char* graph,
                                               const char* options);
RG_EXPORT void rg_backward_close(rg_backward* backward);

// Issues the backward on `stream` (a CUstream; null: the default one). Addresses of first elements,
// in the order of the graph's inputs and outputs; an absent output's is null. 0, or 1 with
// rg_backward_error().
RG_EXPORT int rg_backward_run(rg_backward* backward, const void* const* inputs, size_t num_inputs,
                              void* const* outputs, size_t num_outputs, void* stream);

// The host's time of the last run, in microseconds.
RG_EXPORT double rg_backward_last_run_us(rg_backward* backward);

// A JSON object with what is known by now: dtype and elements of each input and output (and below
// what an input's integers are), the spec, kernels, predicted time, a digest of what the program
// does, bytes, which implementation each library call has, seconds of each step of
// rg_backward_open, recordings. Valid until the next call for this backward.
RG_EXPORT const char* rg_backward_describe(rg_backward* backward);

// A JSON array with the time of each kernel and library call, run alone so often. The outputs are
// worth nothing afterwards. Null with rg_backward_error() if it fails.
RG_EXPORT const char* rg_backward_time_steps(rg_backward* backward, const void* const* inputs,
                                             size_t num_inputs, void* const* outputs,
                                             size_t num_outputs, int repeat);

// Of this thread's last call that failed.
RG_EXPORT const char* rg_backward_error(void);
}

#endif  // RETROGRAD_TOOLS_RUN_BACKWARD_LIBRARY_H_
