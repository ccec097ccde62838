#include "runtime/ops/segment_amax/generated_segment_amax.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/segment_amax/emit_segment_amax.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

class GeneratedSegmentAmax : public LoadedCall {
 public:
  GeneratedSegmentAmax(Device& device, std::unique_ptr<LoadedKernels> kernels, size_t launches,
                       int64_t scratch_bytes, std::string how)
      : LoadedCall(scratch_bytes),
        device_(device),
        kernels_(std::move(kernels)),
        launches_(launches),
        how_(std::move(how)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    if (launches_ == 0) return absl::OkStatus();
    void* table[kSegmentSlots];
    table[kSegmentX] = const_cast<void*>(pointers.operands[0]);
    table[kSegmentEnds] = const_cast<void*>(pointers.operands[1]);
    table[kSegmentParts] = scratch;
    table[kSegmentResult] = pointers.results[0];
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernels_, table));
    for (size_t i = 0; i < launches_; ++i) {
      RG_RETURN_IF_ERROR(device_.Launch(stream, *kernels_, i));
    }
    return absl::OkStatus();
  }
  std::string Describe() const override { return how_; }

 private:
  Device& device_;
  const std::unique_ptr<LoadedKernels> kernels_;
  const size_t launches_;  // 0: the result has no elements
  const std::string how_;
};

bool HasElements(const Call& call) { return Elements(call.results[0].shape) > 0; }

// Bytes known to divide the address of x.
int64_t AlignmentOf(const Call& call, const CallFacts& facts) {
  return facts.operand_alignment.empty() ? SizeBytes(call.operands[0].dtype)
                                         : facts.operand_alignment[0];
}

SegmentSchedule ScheduleOf(const Call& call, const CallFacts& facts) {
  return SegmentScheduleFor(SegmentAmaxOf(call), AlignmentOf(call, facts));
}

LaunchArg ArgOf(int slot, const Call& call, const CallFacts& facts, int64_t scratch_bytes,
                bool written) {
  LaunchArg arg{.slot = static_cast<uint32_t>(slot), .written = written};
  if (slot == kSegmentParts) {
    arg.bytes = scratch_bytes;
    arg.alignment = kStoredAlignment;
    arg.contents = written ? Contents::kFresh : Contents::kWritten;
    return arg;
  }
  const CallTensor& t = slot == kSegmentResult ? call.results[0] : call.operands[slot];
  arg.bytes = SpanOf(t) * SizeBytes(t.dtype);
  arg.alignment = slot == kSegmentX ? AlignmentOf(call, facts) : SizeBytes(t.dtype);
  if (written) arg.contents = Contents::kFresh;
  return arg;
}

Launch LaunchOf(const LaunchWriter::Launch& made, const Call& call, const CallFacts& facts,
                int64_t scratch_bytes) {
  Launch launch{.kernel = made.kernel.name,
                .blocks = made.kernel.blocks,
                .threads = made.kernel.threads,
                .direct = made.kernel.direct};
  for (size_t i = 0; i < made.slots.size(); ++i) {
    const bool written = i + 1 == made.slots.size();
    launch.args.push_back(ArgOf(made.slots[i], call, facts, scratch_bytes, written));
  }
  return launch;
}

std::vector<Kernel> KernelsIn(std::vector<LaunchWriter::Launch> made) {
  std::vector<Kernel> kernels;
  for (LaunchWriter::Launch& launch : made) kernels.push_back(std::move(launch.kernel));
  return kernels;
}

// Places and blocks are counted in 32 bits.
absl::Status Refusal(const SegmentAmaxCall& c, const std::vector<LaunchWriter::Launch>& made) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  bool many = c.places + 1024 > kMost || c.lanes + 1024 > kMost;
  for (const LaunchWriter::Launch& launch : made) many = many || launch.kernel.blocks > kMost;
  if (!many) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("segment_amax of ", c.batch, " x ", c.places, " x ",
                                               c.lanes, ": it is larger than one launch takes"));
}

class GeneratedSegmentAmaxLoader : public CallLoader {
 public:
  explicit GeneratedSegmentAmaxLoader(Device& device) : device_(device) {}

  std::vector<Kernel> KernelsOf(const Call& call, const CallFacts& facts) override {
    if (!HasElements(call)) return {};
    return KernelsIn(
        EmitSegmentAmax(SegmentAmaxOf(call), ScheduleOf(call, facts), device_.dialect()));
  }
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override {
    return LoadGeneratedSegmentAmax(device_, call, facts);
  }

 private:
  Device& device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadSegmentAmaxBy(Device& device, const Call& call,
                                                              const CallFacts& facts,
                                                              const SegmentSchedule& schedule) {
  if (!HasElements(call)) {
    return std::make_unique<GeneratedSegmentAmax>(device, nullptr, 0, 0, "no elements");
  }
  const SegmentAmaxCall c = SegmentAmaxOf(call);
  std::vector<LaunchWriter::Launch> made = EmitSegmentAmax(c, schedule, device.dialect());
  RG_RETURN_IF_ERROR(Refusal(c, made));
  const int64_t scratch_bytes = schedule.scratch_elements(c) * SizeBytes(c.dtype);
  std::vector<Launch> launches;
  for (const LaunchWriter::Launch& launch : made) {
    launches.push_back(LaunchOf(launch, call, facts, scratch_bytes));
  }
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded,
                      device.Load(KernelsIn(std::move(made)), launches));
  const std::string how =
      absl::StrCat("kernels of ours, ", schedule.walk.lines ? "lines" : "columns", ", ",
                   schedule.chunks, " chunks");
  return std::make_unique<GeneratedSegmentAmax>(device, std::move(loaded), launches.size(),
                                                scratch_bytes, how);
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedSegmentAmax(Device& device,
                                                                     const Call& call,
                                                                     const CallFacts& facts) {
  return LoadSegmentAmaxBy(device, call, facts, ScheduleOf(call, facts));
}

std::unique_ptr<CallLoader> MakeGeneratedSegmentAmaxLoader(Device& device) {
  return std::make_unique<GeneratedSegmentAmaxLoader>(device);
}

}  // namespace retrograd
