// The driver: contexts, memory, streams, events, captures and graphs.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tests/fake_gpu/control.h"
#include "tests/fake_gpu/state.h"

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

Stream& Of(GpuStream stream) {
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

bool RefusedByCapture() {
  for (const auto& capture : Global().captures) capture->invalid = true;
  return !Global().captures.empty();
}

int Issue(GpuStream stream, std::string kind, Words words, std::function<int(const Words&)> run) {
  Stream& s = Of(stream);
  ++s.clock[&s];
  if (s.capture == nullptr) return run(words);
  s.capture->work.push_back({std::move(kind), std::move(run), std::move(words), {}, 0, &s});
  return kSuccess;
}

int Issue(GpuStream stream, std::string kind, std::function<int()> run) {
  return Issue(stream, std::move(kind), {}, [run = std::move(run)](const Words&) { return run(); });
}

Work* LastCaptured(GpuStream stream) {
  Stream& s = Of(stream);
  if (s.capture == nullptr) return nullptr;
  std::vector<Work>& work = s.capture->work;
  const auto last =
      std::find_if(work.rbegin(), work.rend(), [&](const Work& w) { return w.stream == &s; });
  return last == work.rend() ? nullptr : &*last;
}

int RunFill(const MemoryFill& fill) {
  for (uint64_t i = 0; i < fill.elements; ++i) {
    std::memcpy(reinterpret_cast<char*>(fill.to) + i * fill.element_bytes, &fill.value,
                fill.element_bytes);
  }
  return kSuccess;
}

int IssueFill(GpuStream stream, const MemoryFill& fill) {
  const int result = Issue(stream, "memset", [fill] { return RunFill(fill); });
  if (const auto& capture = Of(stream).capture) capture->work.back().fill = fill;
  return result;
}

bool UpdateGraph(GpuGraphExec exec, GpuGraph graph) {
  Graph& old = *reinterpret_cast<Graph*>(exec);
  const Graph& now = *reinterpret_cast<Graph*>(graph);
  const bool alike = std::equal(old.work.begin(), old.work.end(), now.work.begin(), now.work.end(),
                                [](const Work& a, const Work& b) { return a.kind == b.kind; });
  if (alike) old = now;
  return alike;
}

int Property(const std::string& name) {
  const auto& set = Global().properties;
  const auto found = set.find(name);
  if (found != set.end()) return found->second;
  const std::map<std::string, int> defaults = {
      {"devices", 1}, {"major", 9},         {"minor", 0},          {"gfx", 0x90a},
      {"sms", 104},   {"memory_mib", 8192}, {"hides_addresses", 0}};
  return defaults.at(name);
}

}  // namespace retrograd::fake

using namespace retrograd;        // NOLINT: the vendor's functions are global
using namespace retrograd::fake;  // NOLINT

extern "C" {

void fake_gpu_fail(const char* entry, int nth, int result) {
  Global().failing = entry;
  Global().failing_in = nth;
  Global().failing_with = result;
}
int fake_gpu_calls(const char* entry) {
  const auto found = Global().calls.find(entry);
  return found == Global().calls.end() ? 0 : found->second;
}
const char* fake_gpu_called(int i) {
  return i < static_cast<int>(Global().order.size()) ? Global().order[i].c_str() : nullptr;
}
void fake_gpu_set(const char* property, int value) { Global().properties[property] = value; }
long long fake_gpu_allocated() { return static_cast<long long>(Global().allocated); }
void fake_gpu_reset() {
  Global().calls.clear();
  Global().order.clear();
  Global().failing.clear();
  Global().properties.clear();
}

int FAKE_NAME(cuInit, hipInit)(unsigned) {
  FAKE_ENTER();
  return kSuccess;
}
int FAKE_NAME(cuDeviceGetCount, hipGetDeviceCount)(int* count) {
  FAKE_ENTER();
  *count = Property("devices");
  return kSuccess;
}
int FAKE_NAME(cuDeviceGet, hipDeviceGet)(int* device, int ordinal) {
  FAKE_ENTER();
  if (ordinal >= Property("devices")) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}
int FAKE_NAME(cuDeviceGetName, hipDeviceGetName)(char* name, int length, int) {
  FAKE_ENTER();
  std::strncpy(name, "Fake GPU", static_cast<size_t>(length));
  return kSuccess;
}
int FAKE_NAME(cuCtxSynchronize, hipDeviceSynchronize)() {
  FAKE_ENTER_WITH_CONTEXT();
  return RefusedByCapture() ? kCaptureUnsupported : kSuccess;
}

// --- memory ---

int FAKE_NAME(cuMemGetInfo_v2, hipMemGetInfo)(size_t* free, size_t* total) {
  FAKE_ENTER_WITH_CONTEXT();
  *total = static_cast<size_t>(Property("memory_mib")) << 20;
  *free = *total - std::min(*total, Global().allocated);
  return kSuccess;
}
int FAKE_NAME(cuMemAlloc_v2, hipMalloc)(void** data, size_t bytes) {
  FAKE_ENTER_WITH_CONTEXT();
  if (RefusedByCapture()) return kCaptureUnsupported;
  if (bytes == 0) return kInvalidValue;
  const size_t all = static_cast<size_t>(Property("memory_mib")) << 20;
  if (bytes > all || Global().allocated + bytes > all) return kOutOfMemory;
  auto* memory = static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(memory, 0xff, bytes);  // every floating type reads it as NaN
  Global().memory[memory] = bytes;
  Global().allocated += bytes;
  *data = memory;
  return kSuccess;
}
int FAKE_NAME(cuMemFree_v2, hipFree)(void* data) {
  FAKE_ENTER_WITH_CONTEXT();
  if (RefusedByCapture()) return kCaptureUnsupported;
  const auto found = Global().memory.find(static_cast<char*>(data));
  if (found == Global().memory.end()) return kInvalidValue;
  Global().allocated -= found->second;
  std::free(found->first);
  Global().memory.erase(found);
  return kSuccess;
}

static int Copy(GpuStream stream, void* to, const void* from, size_t bytes) {
  return Issue(stream, "copy", [=] {
    std::memcpy(to, from, bytes);
    return kSuccess;
  });
}
int FAKE_NAME(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(void* to, const void* from, size_t bytes,
                                                        GpuStream stream) {
  FAKE_ENTER_WITH_CONTEXT();
  return Copy(stream, to, from, bytes);
}
int FAKE_NAME(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void* to, const void* from, size_t bytes,
                                                        GpuStream stream) {
  FAKE_ENTER_WITH_CONTEXT();
  return Copy(stream, to, from, bytes);
}
int FAKE_NAME(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(void* to, const void* from, size_t bytes,
                                                        GpuStream stream) {
  FAKE_ENTER_WITH_CONTEXT();
  return Copy(stream, to, from, bytes);
}
int FAKE_NAME(cuMemsetD8Async, hipMemsetD8Async)(void* to, unsigned char value, size_t bytes,
                                                 GpuStream stream) {
  FAKE_ENTER_WITH_CONTEXT();
  return IssueFill(stream, {.to = reinterpret_cast<uint64_t>(to),
                            .elements = bytes,
                            .value = value,
                            .element_bytes = 1});
}

// --- streams and events ---

int FAKE_NAME(cuStreamCreate, hipStreamCreateWithFlags)(GpuStream* stream, unsigned) {
  FAKE_ENTER_WITH_CONTEXT();
  *stream = reinterpret_cast<GpuStream>(new Stream);
  return kSuccess;
}
int FAKE_NAME(cuStreamDestroy_v2, hipStreamDestroy)(GpuStream stream) {
  FAKE_ENTER_WITH_CONTEXT();
  delete reinterpret_cast<Stream*>(stream);
  return kSuccess;
}
int FAKE_NAME(cuStreamSynchronize, hipStreamSynchronize)(GpuStream stream) {
  FAKE_ENTER_WITH_CONTEXT();
  if (Of(stream).capture == nullptr) return kSuccess;
  Of(stream).capture->invalid = true;
  return kCaptureUnsupported;
}
int FAKE_NAME(cuStreamIsCapturing, hipStreamIsCapturing)(GpuStream stream, int* status) {
  FAKE_ENTER_WITH_CONTEXT();
  *status = Of(stream).capture != nullptr ? 1 : kGpuNoCapture;
  return kSuccess;
}
int FAKE_NAME(cuStreamBeginCapture_v2, hipStreamBeginCapture)(GpuStream stream, int) {
  FAKE_ENTER_WITH_CONTEXT();
  Stream& s = Of(stream);
  if (stream == nullptr) return kCaptureUnsupported;
  if (s.capture != nullptr) return kIllegalState;
  s.capture = std::make_shared<Capture>();
  s.capture->origin = &s;
  s.capture->streams = {&s};
  s.clock.clear();
  Global().captures.push_back(s.capture);
  return kSuccess;
}
int FAKE_NAME(cuStreamEndCapture, hipStreamEndCapture)(GpuStream stream, GpuGraph* graph) {
  *graph = nullptr;
  Stream& s = Of(stream);
  const std::shared_ptr<Capture> capture = s.capture;
  if (capture == nullptr || capture->origin != &s) return kIllegalState;
  bool joined = true;
  for (const void* p : capture->streams) {
    auto* side = static_cast<Stream*>(const_cast<void*>(p));
    joined = joined && s.clock[side] == side->clock[side];
    side->capture = nullptr;
  }
  auto& all = Global().captures;
  all.erase(std::find(all.begin(), all.end(), capture));
  FAKE_ENTER_WITH_CONTEXT();  // a capture has ended even if it failed
  if (capture->invalid) return kCaptureInvalidated;
  if (!joined) return kCaptureUnjoined;
  *graph = reinterpret_cast<GpuGraph>(new Graph{capture->work});
  return kSuccess;
}
int FAKE_NAME(cuStreamWaitEvent, hipStreamWaitEvent)(GpuStream stream, GpuEvent event, unsigned) {
  FAKE_ENTER_WITH_CONTEXT();
  Stream& s = Of(stream);
  const Event& e = *reinterpret_cast<Event*>(event);
  if (e.capture != nullptr && s.capture == nullptr) {
    s.capture = e.capture;
    s.capture->streams.push_back(&s);
    s.clock.clear();
  }
  if (s.capture != e.capture) {
    if (s.capture != nullptr) s.capture->invalid = true;
    return kCaptureIsolation;
  }
  for (const auto& [other, count] : e.clock) s.clock[other] = std::max(s.clock[other], count);
  return kSuccess;
}
int FAKE_NAME(cuEventCreate, hipEventCreateWithFlags)(GpuEvent* event, unsigned flags) {
  FAKE_ENTER_WITH_CONTEXT();
  auto* made = new Event;
  made->timing = (flags & kGpuUntimedEvent) == 0;
  *event = reinterpret_cast<GpuEvent>(made);
  return kSuccess;
}
int FAKE_NAME(cuEventDestroy_v2, hipEventDestroy)(GpuEvent event) {
  FAKE_ENTER_WITH_CONTEXT();
  delete reinterpret_cast<Event*>(event);
  return kSuccess;
}
int FAKE_NAME(cuEventRecord, hipEventRecord)(GpuEvent event, GpuStream stream) {
  FAKE_ENTER_WITH_CONTEXT();
  Event& e = *reinterpret_cast<Event*>(event);
  e.recorded = true;
  e.us = NowUs();
  e.capture = Of(stream).capture;
  e.clock = Of(stream).clock;
  return kSuccess;
}
#if !defined(RETROGRAD_FAKE_HIP_LIBRARY)
int cuEventRecordWithFlags(GpuEvent event, GpuStream stream, unsigned flags) {
  FAKE_ENTER_WITH_CONTEXT();
  constexpr unsigned kExternal = 1;  // a node that records, at each launch of the graph
  if (flags != kExternal) return cuEventRecord(event, stream);
  if (Of(stream).capture == nullptr) return kInvalidValue;
  return Issue(stream, "event", [event] {
    Event& e = *reinterpret_cast<Event*>(event);
    e.recorded = true;
    e.us = NowUs();
    return kSuccess;
  });
}
#endif
int FAKE_NAME(cuEventSynchronize, hipEventSynchronize)(GpuEvent event) {
  FAKE_ENTER_WITH_CONTEXT();
  if (reinterpret_cast<Event*>(event)->capture == nullptr) return kSuccess;
  return kCapturedEvent;
}
int FAKE_NAME(cuEventElapsedTime, hipEventElapsedTime)(float* ms, GpuEvent begin, GpuEvent end) {
  FAKE_ENTER_WITH_CONTEXT();
  const Event& b = *reinterpret_cast<Event*>(begin);
  const Event& e = *reinterpret_cast<Event*>(end);
  if (!b.recorded || !e.recorded || !b.timing || !e.timing) return kInvalidHandle;
  *ms = static_cast<float>((e.us - b.us) / 1e3);
  return kSuccess;
}

// --- graphs ---

int FAKE_NAME(cuGraphDestroy, hipGraphDestroy)(GpuGraph graph) {
  FAKE_ENTER_WITH_CONTEXT();
  delete reinterpret_cast<Graph*>(graph);
  return kSuccess;
}
int FAKE_NAME(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(GpuGraphExec* exec,
                                                                         GpuGraph graph,
                                                                         unsigned long long) {
  FAKE_ENTER_WITH_CONTEXT();
  *exec = reinterpret_cast<GpuGraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return kSuccess;
}
int FAKE_NAME(cuGraphExecDestroy, hipGraphExecDestroy)(GpuGraphExec exec) {
  FAKE_ENTER_WITH_CONTEXT();
  delete reinterpret_cast<Graph*>(exec);
  return kSuccess;
}
int FAKE_NAME(cuGraphLaunch, hipGraphLaunch)(GpuGraphExec exec, GpuStream stream) {
  FAKE_ENTER_WITH_CONTEXT();
  const std::vector<Work> work = reinterpret_cast<Graph*>(exec)->work;
  for (const Work& w : work) {
    if (w.fill) Enter("a fill in a launched graph");
    if (w.kind == "rg_fill") Enter("rg_fill in a launched graph");
  }
  return Issue(stream, "graph", [work] {
    for (const Work& w : work) {
      if (const int result = w.run(w.words); result != kSuccess) return result;
    }
    return kSuccess;
  });
}

}  // extern "C"
