/* Retrograd: the backward pass of a model, planned, compiled and run. The C interface.
 *
 * A graph is loaded or built, an executable is made of it for a device, and each run takes the
 * addresses of the graph's inputs and outputs:
 *
 *   rg_graph* graph = NULL;
 *   rg_device* device = NULL;
 *   rg_executable* executable = NULL;
 *   if (rg_graph_load("model.bwd.pb", &graph) != RG_OK) ...;
 *   if (rg_device_create(NULL, &device) != RG_OK) ...;
 *   if (rg_executable_create(graph, device, NULL, &executable) != RG_OK) ...;
 *   if (rg_executable_run(executable, &run) != RG_OK) ...;
 *
 * Errors. A function that can fail returns a code, and RG_OK is 0. rg_last_error tells the message
 * of the calling thread's last failure. A function that fails leaves its result parameters as they
 * were. Null where an address is needed is RG_INVALID_ARGUMENT. No exception leaves the library.
 *
 * Structs that a caller fills in begin with struct_size, which is sizeof the struct as the caller
 * was compiled; RG_INIT(type) sets it and zeroes the rest, and zero is each field's default. A
 * newer library takes smaller structs of older callers. An older library refuses larger structs.
 *
 * Threads. Functions may be called from any thread, and from several at once on different objects.
 * A graph may be read by several threads at once. A builder and an executable serve one thread at a
 * time; different executables of one device are independent. A device may be shared by threads.
 * rg_cancellation_cancel may be called at any time. Objects may be destroyed in any order: what
 * others need of them lives on until those are destroyed. Destroying null does nothing.
 */
#ifndef RETROGRAD_RETROGRAD_H_
#define RETROGRAD_RETROGRAD_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RG_API __attribute__((visibility("default")))
#else
#define RG_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define RG_VERSION_MAJOR 0
#define RG_VERSION_MINOR 1
#define RG_VERSION_PATCH 0

/* ------------------------------------------------------------------------------------ errors -- */

typedef int32_t rg_code;
enum {
  RG_OK = 0,
  RG_INVALID_ARGUMENT = 1,    /* what was passed is wrong: null, a size, an address, a graph */
  RG_NOT_FOUND = 2,           /* no such file, op, device or key */
  RG_FAILED_PRECONDITION = 3, /* the call comes too early, or something is missing here */
  RG_UNIMPLEMENTED = 4,       /* legal, and not supported */
  RG_RESOURCE_EXHAUSTED = 5,  /* memory, disk, or a limit of the library */
  RG_UNAVAILABLE = 6,         /* no driver, no such device */
  RG_CANCELLED = 7,           /* by the caller */
  RG_INTERNAL = 8             /* a fault of the library: please report it */
};

/* "RG_OK"; "RG_UNKNOWN" for a number that is no code. Never null. */
RG_API const char* rg_code_name(rg_code code);

typedef struct rg_error {
  size_t struct_size;
  rg_code code;
  const char* message; /* UTF-8; until the thread's next call that fails; never null */
  int64_t node;        /* the graph's node that the message is about; -1: none */
} rg_error;

/* The calling thread's last failure; code RG_OK and an empty message if there was none. */
RG_API rg_code rg_last_error(rg_error* error);

/* "0.1.0", of the library that runs. */
RG_API const char* rg_version(void);

/* Frees a text or bytes that a function of this library returned. */
RG_API void rg_free(void* data);

/* { sizeof(type), 0, ... } */
#ifdef __cplusplus
#define RG_INIT(type) (::retrograd_detail_init<type>())
#else
#define RG_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

/* ------------------------------------------------------------------------------------ graphs -- */

typedef int32_t rg_dtype;
enum {
  RG_BOOL = 1, /* one byte, 0 or 1 */
  RG_INT8 = 2,
  RG_UINT8 = 3,
  RG_INT32 = 4,
  RG_INT64 = 5,
  RG_FP16 = 6,
  RG_BF16 = 7,
  RG_FP32 = 8,
  RG_FP64 = 9,
  RG_FP8_E4M3 = 10, /* float8_e4m3fn: no infinities, at most 448 */
  RG_FP8_E5M2 = 11,
  RG_FP8_E4M3_FNUZ = 12, /* float8_e4m3fnuz: no infinities, no -0, at most 240 */
  RG_FP8_E5M2_FNUZ = 13  /* float8_e5m2fnuz: the same, at most 57344 */
};

typedef int32_t rg_input_kind;
enum {
  RG_SAVED = 1,     /* a value that the forward saved, or data */
  RG_PARAMETER = 2, /* what is trained */
  RG_TANGENT = 3,   /* the gradient of a result of the forward */
  RG_CONSTANT = 4
};

#define RG_MAX_RANK 12

/* An input or output of a graph. */
typedef struct rg_tensor {
  size_t struct_size;
  const char* name; /* UTF-8; of the graph, and as long as it */
  rg_dtype dtype;
  rg_input_kind kind; /* of inputs */
  uint32_t rank;
  int64_t shape[RG_MAX_RANK];
  int64_t strides[RG_MAX_RANK]; /* in elements */
  int64_t alignment;            /* bytes that divide an input's address; 0: those of one element */
  int64_t bytes;                /* from the first element to the end of the last */
  int32_t present;              /* 0: an output that nobody computes; its address may be null */
} rg_tensor;

typedef struct rg_graph rg_graph;

/* Reads a graph.proto file, or the text form from a file that ends in .rgt. */
RG_API rg_code rg_graph_load(const char* path, rg_graph** graph);
/* Of the text form; `size` bytes, UTF-8, no terminating zero needed. */
RG_API rg_code rg_graph_parse(const char* text, size_t size, rg_graph** graph);
/* Of the bytes of a retrograd.v1.Graph. */
RG_API rg_code rg_graph_deserialize(const void* bytes, size_t size, rg_graph** graph);
/* Writes a graph.proto file, or the text form where `path` ends in .rgt: all of it or nothing. */
RG_API rg_code rg_graph_save(const rg_graph* graph, const char* path);
/* The text form, terminated by zero: rg_free. */
RG_API rg_code rg_graph_print(const rg_graph* graph, char** text);
/* The bytes of a retrograd.v1.Graph: rg_free. Equal graphs give equal bytes. */
RG_API rg_code rg_graph_serialize(const rg_graph* graph, void** bytes, size_t* size);
RG_API void rg_graph_destroy(rg_graph* graph);

/* 0 for null. */
RG_API size_t rg_graph_num_inputs(const rg_graph* graph);
RG_API size_t rg_graph_num_outputs(const rg_graph* graph);
/* Set struct_size first. */
RG_API rg_code rg_graph_input(const rg_graph* graph, size_t index, rg_tensor* tensor);
RG_API rg_code rg_graph_output(const rg_graph* graph, size_t index, rg_tensor* tensor);

/* --------------------------------------------------------------------------- sizes that vary -- */

/* A size that a graph leaves open (docs/format.md). */
typedef struct rg_symbol {
  size_t struct_size;
  const char* name; /* UTF-8; of the graph, and as long as it */
  int64_t min;      /* inclusive, as max */
  int64_t max;      /* INT64_MAX: no bound */
  int64_t multiple_of;
  int64_t hint; /* the value for which the graph's shapes and strides stand */
} rg_symbol;

/* A number for a symbol. */
typedef struct rg_binding {
  const char* name;
  int64_t value;
} rg_binding;

/* 0 for null, and for a graph of numbers alone. */
RG_API size_t rg_graph_num_symbols(const rg_graph* graph);
RG_API rg_code rg_graph_symbol(const rg_graph* graph, size_t index, rg_symbol* symbol);
/* The graph of numbers for these sizes, one binding for each symbol. RG_INVALID_ARGUMENT where one
 * is missing, unknown, or none of the symbol's numbers, or a size does not fit 64 bits;
 * RG_FAILED_PRECONDITION where the graph was not made for these sizes: export it again at them. An
 * executable of the bound graph takes over which ops share kernels from the plan of a size near by,
 * where that costs little (setting disable: kept_partitions). */
RG_API rg_code rg_graph_bind(const rg_graph* graph, const rg_binding* bindings, size_t num_bindings,
                             rg_graph** bound);

/* ----------------------------------------------------------------------- graphs made by hand -- */

typedef struct rg_builder rg_builder;

/* One result of one node, of the builder that gave it. */
typedef struct rg_value {
  uint32_t node;
  uint32_t result;
} rg_value;

typedef int32_t rg_attribute_kind;
enum {
  RG_ATTRIBUTE_INT = 1,
  RG_ATTRIBUTE_FLOAT = 2,
  RG_ATTRIBUTE_STRING = 3,
  RG_ATTRIBUTE_INTS = 4
};

typedef struct rg_attribute {
  const char* name;
  rg_attribute_kind kind;
  int64_t int_value;
  double float_value;
  const char* string_value;
  const int64_t* ints; /* num_ints of them */
  size_t num_ints;
} rg_attribute;

/* `name`: of the graph. */
RG_API rg_code rg_builder_create(const char* name, rg_builder** builder);
/* Of `tensor` these are read: name, dtype, kind, rank, shape, alignment, and strides unless all are
 * 0, which means row-major. */
RG_API rg_code rg_builder_input(rg_builder* builder, const rg_tensor* tensor, rg_value* value);
/* Adds a node: an op by its name (docs/ops.md), the operands, its attributes. Its results' types
 * are inferred. `value` is its first result; the others have the same node. A failure is the
 * builder's: later calls fail with it as well. */
RG_API rg_code rg_builder_add(rg_builder* builder, const char* op, const rg_value* operands,
                              size_t num_operands, const rg_attribute* attributes,
                              size_t num_attributes, rg_value* value);
/* The type of a value: dtype, rank, shape; strides are row-major. */
RG_API rg_code rg_builder_type(const rg_builder* builder, rg_value value, rg_tensor* tensor);
/* strides: as many as the value has dims, in elements; null: row-major. */
RG_API rg_code rg_builder_output(rg_builder* builder, rg_value value, const char* name,
                                 const int64_t* strides);
/* The graph. The builder is empty afterwards and takes no more nodes. */
RG_API rg_code rg_builder_finish(rg_builder* builder, rg_graph** graph);
RG_API void rg_builder_destroy(rg_builder* builder);

/* ----------------------------------------------------------------------------------- devices -- */

typedef struct rg_device rg_device;

/* Memory for workspaces. `allocate` returns null where there is none; an address that is a multiple
 * of `alignment`, in the device's memory. Called by the thread that makes or destroys an
 * executable. */
typedef struct rg_allocator {
  void* user;
  void* (*allocate)(void* user, size_t bytes, size_t alignment);
  void (*release)(void* user, void* data, size_t bytes);
} rg_allocator;

typedef struct rg_device_options {
  size_t struct_size;
  const char* name;       /* "host", "cuda", "cuda:1", "hip", "hip:1"; null: "host" */
  const char* cache_dir;  /* of compiled kernels and timed choices; null: the user's */
  int32_t no_cache;       /* 1: nothing is kept on disk */
  int32_t compile_jobs;   /* threads or compilers at once; 0: one a core, at most 8 */
  rg_allocator allocator; /* all null: the library allocates */
  /* A file of `retrograd tune`: what it has of library calls is taken, and not measured; null:
   * none. RG_INVALID_ARGUMENT tells the line of one that is malformed. */
  const char* tuned;
  /* Seconds for timing library calls, of all executables together; beyond them the default makes a
   * call, and rg_log tells how many kinds of them; 0: no limit. */
  double tuning_budget_s;
} rg_device_options;

/* options: null: the defaults. RG_UNAVAILABLE, saying why, where there is no such device. */
RG_API rg_code rg_device_create(const rg_device_options* options, rg_device** device);
/* "NVIDIA H200"; as long as the device. Null for null. */
RG_API const char* rg_device_model(const rg_device* device);
RG_API void rg_device_destroy(rg_device* device);

/* Memory of the device, for callers without a runtime of their own. Addresses are multiples of 256.
 * Copies follow what was given to the default stream, and have happened when they return. */
RG_API rg_code rg_device_allocate(rg_device* device, size_t bytes, void** data);
RG_API rg_code rg_device_release(rg_device* device, void* data);
RG_API rg_code rg_device_copy_in(rg_device* device, void* to_device, const void* from_host,
                                 size_t bytes);
RG_API rg_code rg_device_copy_out(rg_device* device, void* to_host, const void* from_device,
                                  size_t bytes);

/* ------------------------------------------------------------------------- cancel, log, plans --
 */

typedef struct rg_cancellation rg_cancellation;
RG_API rg_code rg_cancellation_create(rg_cancellation** cancellation);
/* What was given the cancellation ends soon with RG_CANCELLED. From any thread. */
RG_API void rg_cancellation_cancel(rg_cancellation* cancellation);
RG_API void rg_cancellation_destroy(rg_cancellation* cancellation);

typedef int32_t rg_stage;
enum {
  RG_STAGE_PLAN = 1,   /* decides which ops share a kernel */
  RG_STAGE_COMPILE = 2 /* compiles and loads the kernels */
};

/* Told when a stage begins, by the thread that makes the executable; `what` is a line for people.
 * Stages repeat where the compiler's report changes the plan. Not 0: cancel. */
typedef int32_t (*rg_progress)(void* user, rg_stage stage, const char* what);

/* A line for people, without a newline, by the thread that makes the executable. */
typedef void (*rg_log)(void* user, const char* line);

typedef int32_t rg_format;
enum {
  RG_TEXT = 1,
  RG_JSON = 2,
  RG_HTML = 3 /* a page for a browser, which needs no network */
};

typedef struct rg_plan rg_plan;

typedef struct rg_plan_options {
  size_t struct_size;
  /* A device spec by name ("h200") or file; null: of the reference GPU. */
  const char* spec;
  /* A ceiling for inputs, outputs and workspace together; 0: none. RG_RESOURCE_EXHAUSTED names the
   * least that works. */
  int64_t max_memory_bytes;
  rg_cancellation* cancellation; /* may be null */
  const char* settings;          /* see rg_executable_options */
} rg_plan_options;

/* Plans without a device: what would be run, and what it would take. */
RG_API rg_code rg_plan_create(const rg_graph* graph, const rg_plan_options* options,
                              rg_plan** plan);
/* What fusion-explain plan prints: rg_free. */
RG_API rg_code rg_plan_explain(const rg_plan* plan, rg_format format, char** text);
/* Nanoseconds that one run is predicted to take, and its kernels and library calls. */
RG_API rg_code rg_plan_cost(const rg_plan* plan, double* predicted_ns, int64_t* num_kernels);
RG_API void rg_plan_destroy(rg_plan* plan);

/* ------------------------------------------------------------------------------- executables -- */

typedef struct rg_executable rg_executable;

typedef struct rg_executable_options {
  size_t struct_size;
  const char* spec;         /* by name or file; null: that of the device */
  int64_t max_memory_bytes; /* see rg_plan_options */
  int32_t streams;          /* that independent work is spread over; 0: as many as gain */
  /* 1: each run is given its workspace; else the executable has one of its own. */
  int32_t caller_workspace;
  /* Not null: for each output, 1: the gradient is added to what its memory holds. num_accumulate is
   * then the number of outputs. */
  const uint8_t* accumulate;
  size_t num_accumulate;
  rg_progress progress; /* may be null */
  void* progress_user;
  rg_log log; /* may be null */
  void* log_user;
  rg_cancellation* cancellation; /* may be null */
  /* Settings that measurements want, as a JSON object; null: none. An unknown key is refused. Keys:
   * docs/embedding.md. */
  const char* settings;
  /* How many phases a run may be cut into (rg_executable_phases), so that it holds less memory at
   * its worst moment; 0: 1. More than 1 wants caller_workspace, and no accumulate. */
  int32_t max_phases;
} rg_executable_options;

/* Plans, compiles and loads. Takes seconds where the device's cache does not know the kernels.
 * Neither graph nor device need outlive the executable. */
RG_API rg_code rg_executable_create(const rg_graph* graph, rg_device* device,
                                    const rg_executable_options* options,
                                    rg_executable** executable);
/* Bytes of memory that runs share, and what divides its address. Inputs and outputs are not part of
 * it. Either parameter may be null. */
RG_API rg_code rg_executable_workspace(const rg_executable* executable, size_t* bytes,
                                       size_t* alignment);

/* Bytes that the executable holds as long as it lives, estimated: of host memory, and of the
 * device's, with the recordings that its runs will make and without a workspace that the caller
 * gives. Either parameter may be null. */
RG_API rg_code rg_executable_memory(const rg_executable* executable, size_t* host_bytes,
                                    size_t* device_bytes);

/* A part of the workspace, needed from the begin of phase `first` to the end of phase `last`. */
typedef struct rg_block {
  size_t bytes;
  uint32_t first, last;
} rg_block;

/* The phases that a run is cut into, one behind the other. Between two of them the caller may let
 * go of memory that no later one uses, and makes what the next one uses first. */
typedef struct rg_phases {
  size_t struct_size;
  uint32_t num_phases;
  /* For each input: the last phase that reads it. For each output: the phase that writes it first.
   */
  const uint32_t *input_last, *output_first;
  const rg_block* blocks; /* together the workspace */
  size_t num_blocks;
} rg_phases;

/* Fills in `phases`, whose arrays live as long as the executable. */
RG_API rg_code rg_executable_phases(const rg_executable* executable, rg_phases* phases);

/* Told before each phase but the first. Another result than 0 ends the run: RG_CANCELLED, and what
 * was issued runs on. */
typedef int32_t (*rg_before_phase)(void* user, uint32_t phase);

typedef struct rg_run {
  size_t struct_size;
  /* A CUstream or hipStream_t of the device's primary context; null: the default stream. The host
   * device works before rg_executable_run returns. */
  void* stream;
  const void* const* inputs; /* first elements, in the graph's order */
  size_t num_inputs;
  void* const* outputs;
  size_t num_outputs;
  void* workspace; /* with caller_workspace: device memory, else null */
  size_t workspace_bytes;
  /* In place of `workspace`: an address for each block of rg_executable_phases. The arrays
   * `outputs` and `blocks` are read again in each phase: an address must be there in the first
   * phase that needs it. Once a phase has been issued, what no later one needs may go, where memory
   * goes in the order of the stream. */
  void* const* blocks;
  size_t num_blocks;
  rg_before_phase before_phase; /* null: everything is there from the start */
  void* phase_user;
} rg_run;

/* Issues one run and does not wait for it. Addresses may change from run to run; the same ones as
 * before are the fastest. Calls from several threads take turns. Runs of one executable share its
 * workspace: order a run on another stream after the last one. Allocates nothing on the host
 * device; on a GPU a set of addresses that is new to library calls is recorded once, of a bound
 * graph when it comes again. */
RG_API rg_code rg_executable_run(rg_executable* executable, const rg_run* run);

/* What it is, and what it did so far, as a JSON object: rg_free. Fields are only ever added. */
RG_API rg_code rg_executable_describe(const rg_executable* executable, char** json);
/* The plan that it runs, as rg_plan_explain tells one: rg_free. */
RG_API rg_code rg_executable_explain(const rg_executable* executable, rg_format format,
                                     char** text);
/* The time of each kernel and library call, run alone `repetitions` times, as a JSON array:
 * rg_free. Waits for the device; the outputs are worth nothing afterwards. */
RG_API rg_code rg_executable_time_steps(rg_executable* executable, const rg_run* run,
                                        int32_t repetitions, char** json);
/* The host's time of the last rg_executable_run, in microseconds; 0 before the first. */
RG_API double rg_executable_last_run_us(const rg_executable* executable);
RG_API void rg_executable_destroy(rg_executable* executable);

#ifdef __cplusplus
}

template <typename T>
inline T retrograd_detail_init() {
  T made{};
  made.struct_size = sizeof(T);
  return made;
}
#endif

#endif /* RETROGRAD_RETROGRAD_H_ */
