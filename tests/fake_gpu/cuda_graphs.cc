#if defined(RETROGRAD_FAKE_CUDA_LIBRARY)

// The nodes of a captured graph, which CUDA's driver lets edit. With the vendor's own types, unlike
// the other files.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "tests/fake_gpu/state.h"

namespace retrograd::fake {
namespace {

Graph* edited = nullptr;  // whose nodes were asked for last
uintptr_t last_node = 0;
// The node behind which a captured stream's next work would stand, as was told last.
CUgraphNode in_front = nullptr;
bool in_front_fills = false;

// The place of a node in the order of the edited graph's work.
size_t PlaceOf(CUgraphNode node) {
  const auto at = std::find_if(edited->work.begin(), edited->work.end(), [&](const Work& w) {
    return w.node == reinterpret_cast<uintptr_t>(node);
  });
  return static_cast<size_t>(at - edited->work.begin());
}

// Work is done in order: each node depends on the one before it.
CUresult Neighbour(CUgraphNode node, int step, CUgraphNode* neighbour, size_t* count) {
  const size_t place = PlaceOf(node) + static_cast<size_t>(step);
  *count = place < edited->work.size() ? 1 : 0;
  if (*count == 1 && neighbour != nullptr) {
    *neighbour = reinterpret_cast<CUgraphNode>(edited->work[place].node);
  }
  return CUDA_SUCCESS;
}

using KindAndWords = std::pair<std::string, size_t>;

// Whether the kernel was launched with its parameters in one buffer.
bool IsPacked(const Work& work) { return work.kind == "matmul"; }

// What stands for the function of a captured kernel: its kind, and how many words it takes.
CUfunction CapturedFunction(const Work& work) {
  static std::set<KindAndWords>& known = *new std::set<KindAndWords>;
  return reinterpret_cast<CUfunction>(
      const_cast<KindAndWords*>(&*known.emplace(work.kind, work.words.size()).first));
}

}  // namespace
}  // namespace retrograd::fake

using namespace retrograd;        // NOLINT: the vendor's functions are global
using namespace retrograd::fake;  // NOLINT

#define FAKE_ENTER_NODE()                                                               \
  if (const int rg_ordered = Enter(__func__)) return static_cast<CUresult>(rg_ordered); \
  if (!HasContext()) return CUDA_ERROR_INVALID_CONTEXT

extern "C" {

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  FAKE_ENTER_NODE();
  edited = reinterpret_cast<Graph*>(graph);
  *count = edited->work.size();
  for (size_t i = 0; nodes != nullptr && i < *count; ++i) {
    uintptr_t& node = edited->work[i].node;
    if (node == 0) node = ++last_node;
    nodes[i] = reinterpret_cast<CUgraphNode>(node);
  }
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  FAKE_ENTER_NODE();
  *type = CU_GRAPH_NODE_TYPE_KERNEL;
  if (node == in_front) {
    if (in_front_fills) *type = CU_GRAPH_NODE_TYPE_MEMSET;
    return CUDA_SUCCESS;
  }
  const Work& work = edited->work[PlaceOf(node)];
  if (work.fill) *type = CU_GRAPH_NODE_TYPE_MEMSET;
  if (work.kind == "copy") *type = CU_GRAPH_NODE_TYPE_MEMCPY;
  if (work.kind == "event") *type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  return CUDA_SUCCESS;
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* parameters) {
  FAKE_ENTER_NODE();
  const MemoryFill& fill = *edited->work[PlaceOf(node)].fill;
  *parameters = {.dst = fill.to,
                 .pitch = 0,
                 .value = fill.value,
                 .elementSize = fill.element_bytes,
                 .width = fill.elements,
                 .height = 1};
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* before, CUgraphEdgeData*,
                                       size_t* count) {
  FAKE_ENTER_NODE();
  return Neighbour(node, -1, before, count);
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* after, CUgraphEdgeData*,
                                         size_t* count) {
  FAKE_ENTER_NODE();
  return Neighbour(node, 1, after, count);
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph, const CUgraphNode* before,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  FAKE_ENTER_NODE();
  if (NameOf(reinterpret_cast<GpuFunction>(parameters->func)) != "rg_fill") {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Work work{.kind = "rg_fill",
            .run = [](const Words& w) { return RunFill(FromWords<MemoryFill>(w)); },
            .words = WordsOf(*static_cast<const MemoryFill*>(parameters->kernelParams[0])),
            .fill = {},
            .node = ++last_node};
  const size_t place = count == 0 ? 0 : PlaceOf(before[0]) + 1;
  edited->work.insert(edited->work.begin() + static_cast<ptrdiff_t>(place), std::move(work));
  *node = reinterpret_cast<CUgraphNode>(last_node);
  return CUDA_SUCCESS;
}
CUresult cuGraphAddDependencies_v2(CUgraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData*, size_t count) {
  FAKE_ENTER_NODE();
  for (size_t i = 0; i < count; ++i) {
    if (PlaceOf(from[i]) >= PlaceOf(to[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*,
                                   CUgraph*, const CUgraphNode** nodes, const CUgraphEdgeData**,
                                   size_t* count) {
  FAKE_ENTER_NODE();
  const Work* const last = LastCaptured(reinterpret_cast<GpuStream>(stream));
  *status = last == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  *count = last == nullptr ? 0 : 1;
  if (last != nullptr) in_front_fills = last->fill.has_value();
  in_front = reinterpret_cast<CUgraphNode>(++last_node);
  *nodes = &in_front;
  return CUDA_SUCCESS;
}
// Takes the one way of launching that we have: in a capture, and early behind a generated kernel or
// a library's.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  FAKE_ENTER_NODE();
  const bool early = config->numAttrs == 1 &&
                     config->attrs[0].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                     config->attrs[0].value.programmaticStreamSerializationAllowed == 1;
  const Work* const before = LastCaptured(reinterpret_cast<GpuStream>(config->hStream));
  const bool behind_work = before != nullptr && before->kind != "rg_set_table" &&
                           before->kind != "rg_copy_strided" && before->kind != "rg_fill";
  // Behind a fill the attribute would make no programmatic edge.
  const bool behind_kernel = behind_work && !before->fill.has_value();
  if (!behind_work || early != behind_kernel) return CUDA_ERROR_INVALID_VALUE;
  return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                        config->blockDimX, config->blockDimY, config->blockDimZ,
                        config->sharedMemBytes, config->hStream, parameters, extra);
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters) {
  FAKE_ENTER_NODE();
  Work& work = edited->work[PlaceOf(node)];
  static void* at[1];
  static size_t bytes;
  static void* extra[5];
  at[0] = work.words.data();
  bytes = work.words.size() * sizeof(uint64_t);
  *parameters = {};
  parameters->func = CapturedFunction(work);
  parameters->gridDimX = parameters->gridDimY = parameters->gridDimZ = 1;
  if (!IsPacked(work)) {
    parameters->kernelParams = at;
    return CUDA_SUCCESS;
  }
  void* const packed[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, at[0], CU_LAUNCH_PARAM_BUFFER_SIZE,
                          &bytes, CU_LAUNCH_PARAM_END};
  std::copy(std::begin(packed), std::end(packed), extra);
  parameters->extra = extra;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction function, size_t number, size_t* offset, size_t* bytes) {
  FAKE_ENTER_NODE();
  const auto& [kind, words] = *reinterpret_cast<const KindAndWords*>(function);
  if (number > 0 || words == 0) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *bytes = words * sizeof(uint64_t);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetParamInfo(CUkernel, size_t, size_t*, size_t*) {
  FAKE_ENTER_NODE();
  return CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* parameters) {
  FAKE_ENTER_NODE();
  for (Work& work : reinterpret_cast<Graph*>(exec)->work) {
    if (work.node != reinterpret_cast<uintptr_t>(node)) continue;
    if (parameters->func != CapturedFunction(work)) return CUDA_ERROR_INVALID_VALUE;
    const size_t bytes = work.words.size() * sizeof(uint64_t);
    void* const* const extra = parameters->extra;
    if (IsPacked(work) != (extra != nullptr) ||
        IsPacked(work) == (parameters->kernelParams != nullptr) ||
        (extra != nullptr && *static_cast<const size_t*>(extra[3]) != bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(work.words.data(), extra != nullptr ? extra[1] : parameters->kernelParams[0],
                bytes);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphDestroyNode(CUgraphNode node) {
  FAKE_ENTER_NODE();
  edited->work.erase(edited->work.begin() + static_cast<ptrdiff_t>(PlaceOf(node)));
  return CUDA_SUCCESS;
}

}  // extern "C"

#endif  // RETROGRAD_FAKE_CUDA_LIBRARY
