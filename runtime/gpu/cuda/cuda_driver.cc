#if defined(RETROGRAD_HAVE_CUDA)

#include "runtime/gpu/cuda/cuda_driver.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"
#include "runtime/gpu/gpu_support_kernels.h"

namespace retrograd {
namespace {

constexpr size_t kMostFillBlocks = 1024;

// Entry points that HIP has not, or not alike. The symbols' versions are those of CUDA 12.0.
#define RG_CUDA_ENTRY_POINTS(X)                                                  \
  X(GetErrorName, cuGetErrorName, int, const char**)                             \
  X(GetErrorString, cuGetErrorString, int, const char**)                         \
  X(DeviceGetAttribute, cuDeviceGetAttribute, int*, int, int)                    \
  X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, void**, int)               \
  X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, int)                  \
  X(CtxPushCurrent, cuCtxPushCurrent_v2, void*)                                  \
  X(CtxPopCurrent, cuCtxPopCurrent_v2, void**)                                   \
  X(FuncSetAttribute, cuFuncSetAttribute, GpuFunction, int, int)                 \
  X(StreamGetCtx, cuStreamGetCtx, GpuStream, void**)                             \
  X(EventRecordWithFlags, cuEventRecordWithFlags, GpuEvent, GpuStream, unsigned) \
  X(GraphExecUpdate, cuGraphExecUpdate_v2, GpuGraphExec, GpuGraph, CUgraphExecUpdateResultInfo*)

// What edits a captured graph; drivers before CUDA 12.3 lack some of them and do without.
#define RG_CUDA_GRAPH_ENTRY_POINTS(X)                                                            \
  X(GraphGetNodes, cuGraphGetNodes, CUgraph, CUgraphNode*, size_t*)                              \
  X(GraphNodeGetType, cuGraphNodeGetType, CUgraphNode, CUgraphNodeType*)                         \
  X(GraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, CUgraphNode, CUDA_MEMSET_NODE_PARAMS*) \
  X(GraphNodeGetDependencies, cuGraphNodeGetDependencies_v2, CUgraphNode, CUgraphNode*,          \
    CUgraphEdgeData*, size_t*)                                                                   \
  X(GraphNodeGetDependentNodes, cuGraphNodeGetDependentNodes_v2, CUgraphNode, CUgraphNode*,      \
    CUgraphEdgeData*, size_t*)                                                                   \
  X(GraphAddKernelNode, cuGraphAddKernelNode_v2, CUgraphNode*, CUgraph, const CUgraphNode*,      \
    size_t, const CUDA_KERNEL_NODE_PARAMS*)                                                      \
  X(GraphAddDependencies, cuGraphAddDependencies_v2, CUgraph, const CUgraphNode*,                \
    const CUgraphNode*, const CUgraphEdgeData*, size_t)                                          \
  X(GraphDestroyNode, cuGraphDestroyNode, CUgraphNode)

// What launches a kernel early. Drivers that edit graphs (CUDA 12.3) take it in a capture.
#define RG_CUDA_EARLY_ENTRY_POINTS(X)                                                    \
  X(LaunchKernelEx, cuLaunchKernelEx, const CUlaunchConfig*, CUfunction, void**, void**) \
  X(StreamGetCaptureInfo, cuStreamGetCaptureInfo_v3, CUstream, CUstreamCaptureStatus*,   \
    cuuint64_t*, CUgraph*, const CUgraphNode**, const CUgraphEdgeData**, size_t*)

// What tells and sets the parameters of a captured graph's kernels; drivers before CUDA 12.4 lack
// some of them.
#define RG_CUDA_PARAMETER_ENTRY_POINTS(X)                                                      \
  X(GraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2, CUgraphNode,                      \
    CUDA_KERNEL_NODE_PARAMS*)                                                                  \
  X(GraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, CUgraphExec, CUgraphNode, \
    const CUDA_KERNEL_NODE_PARAMS*)                                                            \
  X(FuncGetParamInfo, cuFuncGetParamInfo, CUfunction, size_t, size_t*, size_t*)                \
  X(KernelGetParamInfo, cuKernelGetParamInfo, CUkernel, size_t, size_t*, size_t*)

constexpr int kFirstEarlyMajor = 9;  // of the compute capability

// Whether arguments of these types are passed alike: both pointers or both integers, of one size.
// An address of device memory is the integer that stands for a pointer.
template <typename Vendor, typename Ours>
constexpr bool kPassedAlike = sizeof(Vendor) == sizeof(Ours) &&
                              (std::is_pointer_v<Vendor> == std::is_pointer_v<Ours> ||
                               std::is_same_v<Vendor, CUdeviceptr>);
template <typename Vendor, typename Ours>
struct SameCall : std::false_type {};
// Version 14 of the formatter does not know the clause.
// clang-format off
template <typename... Vendor, typename... Ours>
  requires(sizeof...(Vendor) == sizeof...(Ours))
struct SameCall<CUresult (*)(Vendor...), int(Ours...)>
    : std::bool_constant<(kPassedAlike<Vendor, Ours> && ...)> {};
// clang-format on

#define RG_CUDA_CHECK(field, cuda, hip, ...)                        \
  static_assert(SameCall<decltype(&cuda), int(__VA_ARGS__)>::value, \
                #cuda " is declared otherwise in this version of CUDA");
RG_GPU_ENTRY_POINTS(RG_CUDA_CHECK)
#undef RG_CUDA_CHECK
#define RG_CUDA_CHECK(field, cuda, ...)                             \
  static_assert(SameCall<decltype(&cuda), int(__VA_ARGS__)>::value, \
                #cuda " is declared otherwise in this version of CUDA");
RG_CUDA_ENTRY_POINTS(RG_CUDA_CHECK)
RG_CUDA_GRAPH_ENTRY_POINTS(RG_CUDA_CHECK)
RG_CUDA_EARLY_ENTRY_POINTS(RG_CUDA_CHECK)
RG_CUDA_PARAMETER_ENTRY_POINTS(RG_CUDA_CHECK)
#undef RG_CUDA_CHECK
static_assert(kGpuOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kGpuNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kGpuNonBlockingStream == CU_STREAM_NON_BLOCKING &&
              kGpuTimedEvent == CU_EVENT_DEFAULT && kGpuUntimedEvent == CU_EVENT_DISABLE_TIMING);
static_assert(kGpuCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
              kGpuNoCapture == CU_STREAM_CAPTURE_STATUS_NONE);

size_t WholeWords(size_t bytes) { return (bytes + 7) / 8 * 8; }

// Takes the parameters of a kernel that was launched with all of them in one buffer, as libraries'
// are; their bytes, 0 where there is none.
size_t TakePacked(void* const* extra, GraphKernel& kernel) {
  const char* buffer = nullptr;
  size_t bytes = 0;
  for (; extra != nullptr && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<const char*>(extra[1]);
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const size_t*>(extra[1]);
  }
  if (buffer == nullptr) return 0;
  kernel.parameters.assign(buffer, bytes);
  kernel.parameters.resize(WholeWords(bytes));
  return bytes;
}

class CudaDriver : public GpuDriver {
 public:
  const char* Fill(void* library);

  absl::StatusOr<GpuFacts> Describe(int device) const override;
  absl::StatusOr<GpuContext> Open(int device) const override;
  void Close(const GpuContext& context) const override { DevicePrimaryCtxRelease(context.device); }
  absl::Status Enter(const GpuContext& context, int*) const override {
    RG_GPU(*this, CtxPushCurrent, context.handle);
    return absl::OkStatus();
  }
  void Leave(int) const override {
    void* popped = nullptr;
    CtxPopCurrent(&popped);
  }
  absl::Status AllowStaged(GpuFunction function, int64_t bytes) const override;
  absl::StatusOr<bool> IsOf(const GpuContext& context, GpuStream stream) const override;
  absl::Status FillByKernel(GpuGraph graph, GpuFunction fill) const override;
  absl::Status Mark(GpuEvent event, GpuStream stream, bool capturing) const override;
  absl::Status LaunchEarly(GpuFunction function, unsigned blocks, unsigned threads,
                           unsigned shared_bytes, GpuStream stream,
                           void** parameters) const override;
  absl::StatusOr<std::vector<GraphKernel>> KernelsOf(GpuGraph graph) const override;
  absl::Status SetParameters(GpuGraphExec exec, const GraphKernel& kernel) const override;
  bool Update(GpuGraphExec exec, GpuGraph graph) const override;

 protected:
  std::string Words(int result) const override;

 private:
  absl::StatusOr<int> Attribute(CUdevice_attribute attribute, int device) const;
  bool StandsBehindKernel(CUstream stream) const;
  absl::Status FillByKernel(CUgraph graph, CUgraphNode node, GpuFunction fill) const;

  absl::StatusOr<std::vector<CUgraphNode>> NodesOf(CUgraph graph) const;
  absl::StatusOr<GraphKernel> KernelOf(CUgraphNode node) const;

  bool edits_graphs_ = true;
  bool launches_early_ = true;
  bool tells_parameters_ = true;
#define RG_CUDA_FIELD(field, cuda, ...) GpuEntry<int(__VA_ARGS__)> field;
  RG_CUDA_ENTRY_POINTS(RG_CUDA_FIELD)
  RG_CUDA_GRAPH_ENTRY_POINTS(RG_CUDA_FIELD)
  RG_CUDA_EARLY_ENTRY_POINTS(RG_CUDA_FIELD)
  RG_CUDA_PARAMETER_ENTRY_POINTS(RG_CUDA_FIELD)
#undef RG_CUDA_FIELD
};

// The name of an entry point that the library lacks; null if it has all.
const char* CudaDriver::Fill(void* library) {
  const char* missing = nullptr;
#define RG_CUDA_FIND(entry, cuda, ...) \
  entry.name = #cuda;                  \
  if (!FindSymbol(library, #cuda, reinterpret_cast<void**>(&entry.function))) missing = #cuda;
  RG_GPU_ENTRY_POINTS(RG_CUDA_FIND)
  RG_CUDA_ENTRY_POINTS(RG_CUDA_FIND)
  const char* const needed = missing;
  missing = nullptr;
  RG_CUDA_GRAPH_ENTRY_POINTS(RG_CUDA_FIND)
  edits_graphs_ = missing == nullptr;
  missing = nullptr;
  RG_CUDA_EARLY_ENTRY_POINTS(RG_CUDA_FIND)
  launches_early_ = edits_graphs_ && missing == nullptr;
  missing = nullptr;
  RG_CUDA_PARAMETER_ENTRY_POINTS(RG_CUDA_FIND)
  tells_parameters_ = edits_graphs_ && missing == nullptr;
#undef RG_CUDA_FIND
  return needed;
}

absl::StatusOr<int> CudaDriver::Attribute(CUdevice_attribute attribute, int device) const {
  int value = 0;
  RG_GPU(*this, DeviceGetAttribute, &value, attribute, device);
  return value;
}

absl::StatusOr<GpuFacts> CudaDriver::Describe(int device) const {
  GpuFacts facts;
  char name[256] = {};
  RG_GPU(*this, DeviceGetName, name, sizeof name, device);
  facts.model = name;
  RG_ASSIGN_OR_RETURN(const int major,
                      Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  RG_ASSIGN_OR_RETURN(const int minor,
                      Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  facts.arch = absl::StrCat("sm_", 10 * major + minor);
  if (major < 8) {
    return absl::UnimplementedError(
        absl::StrCat(facts.model, " is ", facts.arch, ": kernels want sm_80 or later"));
  }
  facts.early_launches = launches_early_ && major >= kFirstEarlyMajor;
  RG_ASSIGN_OR_RETURN(facts.clock_khz, Attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device));
  RG_ASSIGN_OR_RETURN(facts.cache_bytes, Attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device));
  RG_ASSIGN_OR_RETURN(facts.sms, Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  RG_ASSIGN_OR_RETURN(facts.shared_bytes,
                      Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device));
  return facts;
}

absl::StatusOr<GpuContext> CudaDriver::Open(int device) const {
  GpuContext context{.device = device};
  RG_GPU(*this, DevicePrimaryCtxRetain, &context.handle, device);
  return context;
}

absl::Status CudaDriver::AllowStaged(GpuFunction function, int64_t bytes) const {
  RG_GPU(*this, FuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
         static_cast<int>(bytes));
  return absl::OkStatus();
}

// Whether the stream's next work would stand right behind a kernel, and behind nothing else.
bool CudaDriver::StandsBehindKernel(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  return StreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count) ==
             CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1 &&
         GraphNodeGetType(nodes[0], &type) == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_KERNEL;
}

absl::Status CudaDriver::LaunchEarly(GpuFunction function, unsigned blocks, unsigned threads,
                                     unsigned shared_bytes, GpuStream stream,
                                     void** parameters) const {
  CUlaunchAttribute early = {};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = threads;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = shared_bytes;
  config.hStream = reinterpret_cast<CUstream>(stream);
  config.attrs = &early;
  config.numAttrs = StandsBehindKernel(config.hStream) ? 1 : 0;
  RG_GPU(*this, LaunchKernelEx, &config, reinterpret_cast<CUfunction>(function), parameters,
         nullptr);
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaDriver::IsOf(const GpuContext& context, GpuStream stream) const {
  void* owner = nullptr;
  RG_GPU(*this, StreamGetCtx, stream, &owner);
  return owner == context.handle;
}

// The driver launches a graph of kernels alone in constant time, and one with fills in 1.2 us more
// for each of them (H200, driver 580: 66 fills, which cuBLASLt issues for sums that blocks share,
// make 87 us of 7).
absl::Status CudaDriver::FillByKernel(GpuGraph captured, GpuFunction fill) const {
  if (!edits_graphs_) return absl::OkStatus();
  const CUgraph graph = reinterpret_cast<CUgraph>(captured);
  RG_ASSIGN_OR_RETURN(const std::vector<CUgraphNode> nodes, NodesOf(graph));
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    RG_GPU(*this, GraphNodeGetType, node, &type);
    if (type == CU_GRAPH_NODE_TYPE_MEMSET) RG_RETURN_IF_ERROR(FillByKernel(graph, node, fill));
  }
  return absl::OkStatus();
}

absl::Status CudaDriver::FillByKernel(CUgraph graph, CUgraphNode node, GpuFunction fill) const {
  CUDA_MEMSET_NODE_PARAMS memset = {};
  RG_GPU(*this, GraphMemsetNodeGetParams, node, &memset);
  if (memset.height > 1) return absl::OkStatus();  // rows with gaps between them stay as they are
  MemoryFill values{.to = memset.dst,
                    .elements = memset.width,
                    .value = memset.value,
                    .element_bytes = memset.elementSize};
  void* parameters[] = {&values};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = reinterpret_cast<CUfunction>(fill);
  const size_t blocks = (memset.width + kFillThreads - 1) / kFillThreads;
  kernel.gridDimX = static_cast<unsigned>(std::clamp<size_t>(blocks, 1, kMostFillBlocks));
  kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.blockDimX = kFillThreads;
  kernel.kernelParams = parameters;

  size_t before = 0, after = 0;
  RG_GPU(*this, GraphNodeGetDependencies, node, nullptr, nullptr, &before);
  RG_GPU(*this, GraphNodeGetDependentNodes, node, nullptr, nullptr, &after);
  std::vector<CUgraphNode> dependencies(before), dependents(after);
  if (before > 0) {
    RG_GPU(*this, GraphNodeGetDependencies, node, dependencies.data(), nullptr, &before);
  }
  if (after > 0) {
    RG_GPU(*this, GraphNodeGetDependentNodes, node, dependents.data(), nullptr, &after);
  }
  CUgraphNode filling = nullptr;
  RG_GPU(*this, GraphAddKernelNode, &filling, graph, dependencies.data(), before, &kernel);
  const std::vector<CUgraphNode> from(after, filling);
  if (after > 0) {
    RG_GPU(*this, GraphAddDependencies, graph, from.data(), dependents.data(), nullptr, after);
  }
  RG_GPU(*this, GraphDestroyNode, node);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CUgraphNode>> CudaDriver::NodesOf(CUgraph graph) const {
  size_t count = 0;
  RG_GPU(*this, GraphGetNodes, graph, nullptr, &count);
  std::vector<CUgraphNode> nodes(count);
  if (count > 0) RG_GPU(*this, GraphGetNodes, graph, nodes.data(), &count);
  return nodes;
}

absl::StatusOr<std::vector<GraphKernel>> CudaDriver::KernelsOf(GpuGraph captured) const {
  if (!tells_parameters_) return GpuDriver::KernelsOf(captured);
  RG_ASSIGN_OR_RETURN(const std::vector<CUgraphNode> nodes,
                      NodesOf(reinterpret_cast<CUgraph>(captured)));
  std::vector<GraphKernel> kernels;
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    RG_GPU(*this, GraphNodeGetType, node, &type);
    if (type == CU_GRAPH_NODE_TYPE_EMPTY) continue;
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) {
      return absl::UnimplementedError("a recording holds a copy, a fill or an event");
    }
    RG_ASSIGN_OR_RETURN(GraphKernel kernel, KernelOf(node));
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

absl::StatusOr<GraphKernel> CudaDriver::KernelOf(CUgraphNode node) const {
  CUDA_KERNEL_NODE_PARAMS params = {};
  RG_GPU(*this, GraphKernelNodeGetParams, node, &params);
  GraphKernel kernel{.node = node, .launch = {}, .parameters = {}, .begins = {}};
  const size_t packed = params.kernelParams == nullptr ? TakePacked(params.extra, kernel) : 0;
  for (size_t i = 0; packed == 0; ++i) {
    size_t offset = 0, bytes = 0;
    const int result = params.func != nullptr ? FuncGetParamInfo(params.func, i, &offset, &bytes)
                                              : KernelGetParamInfo(params.kern, i, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) break;  // behind the last
    RG_RETURN_IF_ERROR(StatusOf(result, FuncGetParamInfo.name));
    if (params.kernelParams == nullptr) {
      return absl::UnimplementedError("the driver does not tell a recorded kernel's parameters");
    }
    kernel.begins.push_back(kernel.parameters.size());
    kernel.parameters.append(static_cast<const char*>(params.kernelParams[i]), bytes);
    kernel.parameters.resize(WholeWords(kernel.parameters.size()));
  }
  params.kernelParams = params.extra = nullptr;
  kernel.launch.assign(reinterpret_cast<const char*>(&params), sizeof params);
  kernel.launch.append(reinterpret_cast<const char*>(&packed), sizeof packed);
  return kernel;
}

absl::Status CudaDriver::SetParameters(GpuGraphExec exec, const GraphKernel& kernel) const {
  constexpr size_t kMost = 128;
  void* parameters[kMost];
  if (kernel.begins.size() > kMost) {
    return absl::UnimplementedError("a recorded kernel has more than 128 parameters");
  }
  for (size_t i = 0; i < kernel.begins.size(); ++i) {
    parameters[i] = const_cast<char*>(kernel.parameters.data() + kernel.begins[i]);
  }
  CUDA_KERNEL_NODE_PARAMS params;
  size_t packed = 0;
  std::memcpy(&params, kernel.launch.data(), sizeof params);
  std::memcpy(&packed, kernel.launch.data() + sizeof params, sizeof packed);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<char*>(kernel.parameters.data()),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &packed, CU_LAUNCH_PARAM_END};
  if (packed == 0) params.kernelParams = parameters;
  if (packed > 0) params.extra = extra;
  RG_GPU(*this, GraphExecKernelNodeSetParams, reinterpret_cast<CUgraphExec>(exec),
         static_cast<CUgraphNode>(kernel.node), &params);
  return absl::OkStatus();
}

absl::Status CudaDriver::Mark(GpuEvent event, GpuStream stream, bool capturing) const {
  RG_GPU(*this, EventRecordWithFlags, event, stream,
         capturing ? CU_EVENT_RECORD_EXTERNAL : CU_EVENT_RECORD_DEFAULT);
  return absl::OkStatus();
}

bool CudaDriver::Update(GpuGraphExec exec, GpuGraph graph) const {
  CUgraphExecUpdateResultInfo info = {};
  return GraphExecUpdate(exec, graph, &info) == kGpuSuccess;
}

std::string CudaDriver::Words(int result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  GetErrorName(result, &name);
  GetErrorString(result, &text);
  return absl::StrCat(text != nullptr ? text : "an unknown error", " (",
                      name != nullptr ? name : "CUresult", " ", result, ")");
}

absl::StatusOr<const GpuDriver*> Load(const std::string& path) {
  std::vector<const char*> candidates = {"libcuda.so.1", "libcuda.so",
                                         "/usr/lib/wsl/lib/libcuda.so.1"};
  if (!path.empty()) candidates = {path.c_str()};
  void* const library = FirstLibrary(candidates);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat("no NVIDIA driver found (",
                                               absl::StrJoin(candidates, ", "),
                                               "): install one, or run with --device host"));
  }
  auto driver = std::make_unique<CudaDriver>();
  if (const char* missing = driver->Fill(library)) {
    return absl::UnavailableError(
        absl::StrCat("the NVIDIA driver has no ", missing,
                     ": it is too old; install one of CUDA 12.0 or later"));
  }
  RG_GPU(*driver, Init, 0);
  return driver.release();  // like the library, for the rest of the process
}

}  // namespace

absl::StatusOr<const GpuDriver*> LoadCudaDriver(const std::string& library) {
  static LoadedDrivers& drivers = *new LoadedDrivers;
  return drivers.Get(library, Load);
}

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDA
