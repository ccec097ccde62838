#include "runtime/ops/matmul/fastest_matmul.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/ops/matmul/blas_operands.h"

namespace retrograd {
namespace {

// Device memory and events for the time of a measurement.
class Bench {
 public:
  Bench(const GpuDriver& driver, GpuStream stream) : driver_(driver), stream_(stream) {}
  ~Bench() {
    for (void* p : memory_) driver_.MemFree(p);
    for (GpuEvent e : events_) {
      if (e != nullptr) driver_.EventDestroy(e);
    }
  }

  // Filled with small numbers, whatever the type.
  absl::StatusOr<void*> Allocate(int64_t bytes) {
    void* p = nullptr;
    RG_GPU(driver_, MemAlloc, &p, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    memory_.push_back(p);
    RG_GPU(driver_, MemsetD8Async, p, 0x2c, static_cast<size_t>(bytes), stream_);
    return p;
  }

  absl::Status MakeEvents() {
    for (GpuEvent& e : events_) RG_GPU(driver_, EventCreate, &e, kGpuTimedEvent);
    return absl::OkStatus();
  }

  // Of one run, in milliseconds, after one that does not count.
  absl::StatusOr<float> Time(absl::FunctionRef<absl::Status()> run, int repetitions) {
    RG_RETURN_IF_ERROR(run());
    RG_GPU(driver_, EventRecord, events_[0], stream_);
    for (int i = 0; i < repetitions; ++i) RG_RETURN_IF_ERROR(run());
    RG_GPU(driver_, EventRecord, events_[1], stream_);
    RG_GPU(driver_, EventSynchronize, events_[1]);
    float ms = 0;
    RG_GPU(driver_, EventElapsedTime, &ms, events_[0], events_[1]);
    return ms / static_cast<float>(repetitions);
  }

 private:
  const GpuDriver& driver_;
  GpuStream stream_;
  std::vector<void*> memory_;
  GpuEvent events_[2] = {};
};

}  // namespace

absl::StatusOr<int> FastestMatMul(const GpuDriver& driver, GpuStream stream, const MatMulCall& call,
                                  const MatMulCandidates& candidates) {
  Bench bench(driver, stream);
  MatMulPointers pointers;
  RG_ASSIGN_OR_RETURN(pointers.a, bench.Allocate(OperandSpan(call, 0) * SizeBytes(call.in_dtype)));
  RG_ASSIGN_OR_RETURN(pointers.b, bench.Allocate(OperandSpan(call, 1) * SizeBytes(call.in_dtype)));
  RG_ASSIGN_OR_RETURN(pointers.d, bench.Allocate(OperandSpan(call, 2) * SizeBytes(call.out_dtype)));
  RG_ASSIGN_OR_RETURN(void* const workspace, bench.Allocate(candidates.workspace_bytes));
  RG_RETURN_IF_ERROR(bench.MakeEvents());
  std::optional<int> best;
  float least = 0;
  for (int i = 0; i < candidates.count; ++i) {
    if (!candidates.choose(i)) continue;
    const absl::StatusOr<float> ms =
        bench.Time([&] { return candidates.run(pointers, workspace); }, 3);
    if (!ms.ok()) continue;  // an algorithm that fails here is not the one
    if (!best || *ms < least) {
      best = i;
      least = *ms;
    }
  }
  if (best && candidates.choose(*best)) return *best;
  return absl::InternalError(
      absl::StrCat(Describe(call), ": none of the library's algorithms for it runs"));
}

}  // namespace retrograd
