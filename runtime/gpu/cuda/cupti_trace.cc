#include "runtime/gpu/cuda/cupti_trace.h"

#if defined(RETROGRAD_HAVE_CUDA) && __has_include(<cupti.h>)

#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

#define RG_CUPTI_ENTRY_POINTS(X)                               \
  X(ActivityRegisterCallbacks, cuptiActivityRegisterCallbacks) \
  X(ActivityEnable, cuptiActivityEnable)                       \
  X(ActivityDisable, cuptiActivityDisable)                     \
  X(ActivityFlushAll, cuptiActivityFlushAll)                   \
  X(ActivityGetNextRecord, cuptiActivityGetNextRecord)         \
  X(GetResultString, cuptiGetResultString)

struct Cupti {
#define RG_CUPTI_FIELD(field, function) decltype(&function) field = nullptr;
  RG_CUPTI_ENTRY_POINTS(RG_CUPTI_FIELD)
#undef RG_CUPTI_FIELD
};

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kBufferAlignment = 8;  // CUPTI's demand

// CUPTI's callbacks know neither owner nor context: the process has one of each.
struct Collected {
  std::mutex mutex;
  const Cupti* cupti = nullptr;
  bool watching = false;
  std::vector<TracedWork> work;
};
Collected& All() {
  static auto* all = new Collected;  // outlives CUPTI's own threads
  return *all;
}

// Fields that have kept their places since these records had graph nodes; later ones are appended.
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
using FillRecord = CUpti_ActivityMemset4;

template <typename Record>
TracedWork WorkOf(const CUpti_Activity* record, absl::string_view name) {
  const auto& r = *reinterpret_cast<const Record*>(record);
  return {.name = std::string(name),
          .node = r.graphNodeId,
          .begin_us = 1e-3 * static_cast<double>(r.start),
          .end_us = 1e-3 * static_cast<double>(r.end)};
}

void AddRecord(const CUpti_Activity* record, std::vector<TracedWork>* work) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      // A recording makes fills kernels of ours.
      const char* const own = reinterpret_cast<const KernelRecord*>(record)->name;
      const absl::string_view name = own == nullptr ? "" : own;
      work->push_back(WorkOf<KernelRecord>(record, name == "rg_fill" ? "fill" : name));
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: work->push_back(WorkOf<CopyRecord>(record, "copy")); return;
    case CUPTI_ACTIVITY_KIND_MEMSET: work->push_back(WorkOf<FillRecord>(record, "fill")); return;
    default: return;
  }
}

void CUPTIAPI BufferRequested(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as there is room for
}

void CUPTIAPI BufferCompleted(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  Collected& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  CUpti_Activity* record = nullptr;
  while (all.watching &&
         all.cupti->ActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    AddRecord(record, &all.work);
  }
  std::free(buffer);
}

absl::Status CuptiStatus(const Cupti& cupti, CUptiResult result, absl::string_view call) {
  if (result == CUPTI_SUCCESS) return absl::OkStatus();
  const char* text = nullptr;
  cupti.GetResultString(result, &text);
  return absl::UnavailableError(absl::StrCat(call, " failed: ", text == nullptr ? "?" : text, " (",
                                             static_cast<int>(result), ")"));
}

absl::StatusOr<const Cupti*> LoadCupti(const std::string& path) {
  std::vector<const char*> candidates = {"libcupti.so.13", "libcupti.so.12", "libcupti.so",
                                         "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"};
  if (!path.empty()) candidates = {path.c_str()};
  void* library = nullptr;
  for (const char* candidate : candidates) {
    if (library == nullptr) library = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("CUPTI was not found (", absl::StrJoin(candidates, ", "), ")"));
  }
  auto* cupti = new Cupti;  // like the library, for the rest of the process
#define RG_CUPTI_FIND(field, function)                                             \
  cupti->field = reinterpret_cast<decltype(&function)>(dlsym(library, #function)); \
  if (cupti->field == nullptr) return absl::UnavailableError("CUPTI has no " #function);
  RG_CUPTI_ENTRY_POINTS(RG_CUPTI_FIND)
#undef RG_CUPTI_FIND
  RG_RETURN_IF_ERROR(CuptiStatus(*cupti,
                                 cupti->ActivityRegisterCallbacks(BufferRequested, BufferCompleted),
                                 "cuptiActivityRegisterCallbacks"));
  return cupti;
}

class Trace : public CudaTrace {
 public:
  explicit Trace(const Cupti& cupti) : cupti_(cupti) {
    const std::lock_guard<std::mutex> lock(All().mutex);
    All().cupti = &cupti;
    All().watching = true;
    All().work.clear();
  }
  ~Trace() override {
    for (CUpti_ActivityKind kind : kKinds) cupti_.ActivityDisable(kind);
    cupti_.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const std::lock_guard<std::mutex> lock(All().mutex);
    All().watching = false;
  }

  absl::Status Enable() {
    for (CUpti_ActivityKind kind : kKinds) {
      RG_RETURN_IF_ERROR(CuptiStatus(cupti_, cupti_.ActivityEnable(kind), "cuptiActivityEnable"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<TracedWork>> Take() override {
    RG_RETURN_IF_ERROR(CuptiStatus(cupti_,
                                   cupti_.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                                   "cuptiActivityFlushAll"));
    std::vector<TracedWork> work;
    {
      const std::lock_guard<std::mutex> lock(All().mutex);
      work.swap(All().work);
    }
    std::stable_sort(work.begin(), work.end(), [](const TracedWork& a, const TracedWork& b) {
      return a.begin_us < b.begin_us;
    });
    return work;
  }

 private:
  const Cupti& cupti_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaTrace>> CudaTrace::Start(const std::string& library) {
  RG_ASSIGN_OR_RETURN(const Cupti* cupti, LoadCupti(library));
  auto trace = std::make_unique<Trace>(*cupti);
  RG_RETURN_IF_ERROR(trace->Enable());
  return trace;
}

}  // namespace retrograd

#else

namespace retrograd {

absl::StatusOr<std::unique_ptr<CudaTrace>> CudaTrace::Start(const std::string&) {
  return absl::UnavailableError("this build has no CUPTI: CMake found no cupti.h");
}

}  // namespace retrograd

#endif
