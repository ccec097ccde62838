// The driver: contexts, memory, streams, events, captures and graphs.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tests/fake_cuda/control.h"
#include "tests/fake_cuda/state.h"

namespace retrograd::fake {
namespace {

struct State {
  std::recursive_mutex mutex;
  std::map<std::string, int> calls;
  std::vector<std::string> order;  // entry points by first call
  std::string failing;
  int failing_in = 0, failing_with = 0;
  std::map<std::string, int> properties;
  std::map<char*, size_t> memory;
  size_t allocated = 0;
  std::vector<std::shared_ptr<Capture>> captures;  // that have begun
};

State& Global() {
  static State& state = *new State;
  return state;
}

thread_local std::vector<CUcontext> contexts;
int the_context;  // its address stands for the context

Stream& Of(CUstream stream) {
  static Stream& default_stream = *new Stream;
  return stream == nullptr ? default_stream : *reinterpret_cast<Stream*>(stream);
}

double NowUs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int Enter(const char* entry) {
  State& s = Global();
  std::lock_guard<std::recursive_mutex> lock(s.mutex);
  if (++s.calls[entry] == 1) s.order.push_back(entry);
  if (s.failing != entry || --s.failing_in != 0) return 0;
  s.failing.clear();
  return s.failing_with;
}

bool HasContext() {
  return !contexts.empty() && contexts.back() == reinterpret_cast<CUcontext>(&the_context);
}

bool RefusedByCapture() {
  for (const auto& capture : Global().captures) capture->invalid = true;
  return !Global().captures.empty();
}

CUresult Issue(CUstream stream, std::string kind, std::function<CUresult()> run) {
  Stream& s = Of(stream);
  ++s.clock[&s];
  if (s.capture == nullptr) return run();
  s.capture->work.push_back({std::move(kind), std::move(run)});
  return CUDA_SUCCESS;
}

int Property(const std::string& name) {
  const auto& set = Global().properties;
  const auto found = set.find(name);
  if (found != set.end()) return found->second;
  const std::map<std::string, int> defaults = {
      {"devices", 1}, {"major", 9}, {"minor", 0}, {"memory_mib", 8192}};
  return defaults.at(name);
}

}  // namespace retrograd::fake

using namespace retrograd::fake;  // NOLINT: the vendor's functions are global

extern "C" {

void fake_cuda_fail(const char* entry, int nth, int result) {
  Global().failing = entry;
  Global().failing_in = nth;
  Global().failing_with = result;
}
int fake_cuda_calls(const char* entry) {
  const auto found = Global().calls.find(entry);
  return found == Global().calls.end() ? 0 : found->second;
}
const char* fake_cuda_called(int i) {
  return i < static_cast<int>(Global().order.size()) ? Global().order[i].c_str() : nullptr;
}
void fake_cuda_set(const char* property, int value) { Global().properties[property] = value; }
long long fake_cuda_allocated() { return static_cast<long long>(Global().allocated); }
void fake_cuda_reset() {
  Global().calls.clear();
  Global().order.clear();
  Global().failing.clear();
  Global().properties.clear();
}

CUresult cuInit(unsigned) {
  FAKE_ENTER(cuInit);
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** name) {
  *name = "FAKE_ERROR";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "a failure that was ordered";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  FAKE_ENTER(cuDeviceGetCount);
  *count = Property("devices");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_ENTER(cuDeviceGet);
  if (ordinal >= Property("devices")) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  FAKE_ENTER(cuDeviceGetName);
  std::strncpy(name, "Fake GPU", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  FAKE_ENTER(cuDeviceGetAttribute);
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = Property("major"); break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = Property("minor"); break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1000000; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 1 << 16; break;
    default: *value = 1;
  }
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  FAKE_ENTER(cuDevicePrimaryCtxRetain);
  *context = reinterpret_cast<CUcontext>(&the_context);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  FAKE_ENTER(cuDevicePrimaryCtxRelease);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  FAKE_ENTER(cuCtxPushCurrent);
  contexts.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  FAKE_ENTER(cuCtxPopCurrent);
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  FAKE_ENTER_WITH_CONTEXT(cuCtxSynchronize);
  return RefusedByCapture() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

// --- memory ---

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  FAKE_ENTER_WITH_CONTEXT(cuMemGetInfo);
  *total = static_cast<size_t>(Property("memory_mib")) << 20;
  *free = *total - std::min(*total, Global().allocated);
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* data, size_t bytes) {
  FAKE_ENTER_WITH_CONTEXT(cuMemAlloc);
  if (RefusedByCapture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t all = static_cast<size_t>(Property("memory_mib")) << 20;
  if (bytes > all || Global().allocated + bytes > all) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* memory = static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(memory, 0xff, bytes);  // every floating type reads it as NaN
  Global().memory[memory] = bytes;
  Global().allocated += bytes;
  *data = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr data) {
  FAKE_ENTER_WITH_CONTEXT(cuMemFree);
  if (RefusedByCapture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const auto found = Global().memory.find(reinterpret_cast<char*>(data));
  if (found == Global().memory.end()) return CUDA_ERROR_INVALID_VALUE;
  Global().allocated -= found->second;
  std::free(found->first);
  Global().memory.erase(found);
  return CUDA_SUCCESS;
}

static CUresult Copy(CUstream stream, void* to, const void* from, size_t bytes) {
  return Issue(stream, "copy", [=] {
    std::memcpy(to, from, bytes);
    return CUDA_SUCCESS;
  });
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  FAKE_ENTER_WITH_CONTEXT(cuMemcpyHtoDAsync);
  return Copy(stream, reinterpret_cast<void*>(to), from, bytes);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_ENTER_WITH_CONTEXT(cuMemcpyDtoHAsync);
  return Copy(stream, to, reinterpret_cast<const void*>(from), bytes);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_ENTER_WITH_CONTEXT(cuMemcpyDtoDAsync);
  return Copy(stream, reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  FAKE_ENTER_WITH_CONTEXT(cuMemsetD8Async);
  return Issue(stream, "memset", [=] {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return CUDA_SUCCESS;
  });
}

// --- streams and events ---

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  FAKE_ENTER_WITH_CONTEXT(cuStreamCreate);
  *stream = reinterpret_cast<CUstream>(new Stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  FAKE_ENTER_WITH_CONTEXT(cuStreamDestroy);
  delete reinterpret_cast<Stream*>(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  FAKE_ENTER(cuStreamGetCtx);
  static int another;
  *context = reinterpret_cast<CUcontext>(Property("devices") > 1 ? &another : &the_context);
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  FAKE_ENTER_WITH_CONTEXT(cuStreamSynchronize);
  if (Of(stream).capture == nullptr) return CUDA_SUCCESS;
  Of(stream).capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_ENTER_WITH_CONTEXT(cuStreamIsCapturing);
  *status = Of(stream).capture != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                          : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  FAKE_ENTER_WITH_CONTEXT(cuStreamBeginCapture);
  Stream& s = Of(stream);
  if (stream == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (s.capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  s.capture = std::make_shared<Capture>();
  s.capture->origin = &s;
  s.capture->streams = {&s};
  s.clock.clear();
  Global().captures.push_back(s.capture);
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  *graph = nullptr;
  Stream& s = Of(stream);
  const std::shared_ptr<Capture> capture = s.capture;
  if (capture == nullptr || capture->origin != &s) return CUDA_ERROR_ILLEGAL_STATE;
  bool joined = true;
  for (const void* p : capture->streams) {
    auto* side = static_cast<Stream*>(const_cast<void*>(p));
    joined = joined && s.clock[side] == side->clock[side];
    side->capture = nullptr;
  }
  auto& all = Global().captures;
  all.erase(std::find(all.begin(), all.end(), capture));
  FAKE_ENTER_WITH_CONTEXT(cuStreamEndCapture);  // a capture has ended even if it failed
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = reinterpret_cast<CUgraph>(new Graph{capture->work});
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  FAKE_ENTER_WITH_CONTEXT(cuStreamWaitEvent);
  Stream& s = Of(stream);
  const Event& e = *reinterpret_cast<Event*>(event);
  if (e.capture != nullptr && s.capture == nullptr) {
    s.capture = e.capture;
    s.capture->streams.push_back(&s);
    s.clock.clear();
  }
  if (s.capture != e.capture) {
    if (s.capture != nullptr) s.capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  for (const auto& [other, count] : e.clock) s.clock[other] = std::max(s.clock[other], count);
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
  FAKE_ENTER_WITH_CONTEXT(cuEventCreate);
  auto* made = new Event;
  made->timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *event = reinterpret_cast<CUevent>(made);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  FAKE_ENTER_WITH_CONTEXT(cuEventDestroy);
  delete reinterpret_cast<Event*>(event);
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  FAKE_ENTER_WITH_CONTEXT(cuEventRecord);
  Event& e = *reinterpret_cast<Event*>(event);
  e.recorded = true;
  e.us = NowUs();
  e.capture = Of(stream).capture;
  e.clock = Of(stream).clock;
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event) {
  FAKE_ENTER_WITH_CONTEXT(cuEventSynchronize);
  if (reinterpret_cast<Event*>(event)->capture == nullptr) return CUDA_SUCCESS;
  return CUDA_ERROR_CAPTURED_EVENT;
}
#undef cuEventElapsedTime  // every driver has the plain one
CUresult cuEventElapsedTime(float* ms, CUevent begin, CUevent end) {
  FAKE_ENTER_WITH_CONTEXT(cuEventElapsedTime);
  const Event& b = *reinterpret_cast<Event*>(begin);
  const Event& e = *reinterpret_cast<Event*>(end);
  if (!b.recorded || !e.recorded || !b.timing || !e.timing) return CUDA_ERROR_INVALID_HANDLE;
  *ms = static_cast<float>((e.us - b.us) / 1e3);
  return CUDA_SUCCESS;
}

// --- graphs ---

CUresult cuGraphDestroy(CUgraph graph) {
  FAKE_ENTER_WITH_CONTEXT(cuGraphDestroy);
  delete reinterpret_cast<Graph*>(graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  FAKE_ENTER_WITH_CONTEXT(cuGraphInstantiate);
  *exec = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return CUDA_SUCCESS;
}
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  FAKE_ENTER_WITH_CONTEXT(cuGraphExecUpdate);
  Graph& old = *reinterpret_cast<Graph*>(exec);
  const Graph& now = *reinterpret_cast<Graph*>(graph);
  const bool alike = std::equal(old.work.begin(), old.work.end(), now.work.begin(), now.work.end(),
                                [](const Work& a, const Work& b) { return a.kind == b.kind; });
  info->result = alike ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                       : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  if (!alike) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  old = now;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  FAKE_ENTER_WITH_CONTEXT(cuGraphExecDestroy);
  delete reinterpret_cast<Graph*>(exec);
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  FAKE_ENTER_WITH_CONTEXT(cuGraphLaunch);
  const std::vector<Work> work = reinterpret_cast<Graph*>(exec)->work;
  return Issue(stream, "graph", [work] {
    for (const Work& w : work) {
      if (const CUresult result = w.run(); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
