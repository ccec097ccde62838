#include "runtime/ops/scatter_lines/generated_scatter_lines.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/scatter_lines/emit_scatter_lines.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

class GeneratedScatterLines : public LoadedCall {
 public:
  // kernels: none where the result has no elements.
  GeneratedScatterLines(Device& device, std::unique_ptr<LoadedKernels> kernels)
      : LoadedCall(0), device_(device), kernels_(std::move(kernels)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void*) override {
    if (kernels_ == nullptr) return absl::OkStatus();
    void* table[kScatterLinesSlots];
    table[kScatterIndex] = const_cast<void*>(pointers.operands[0]);
    table[kScatterSrc] = const_cast<void*>(pointers.operands[1]);
    table[kScatterResult] = pointers.results[0];
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernels_, table));
    return device_.Launch(stream, *kernels_, 0);
  }
  std::string Describe() const override {
    return kernels_ == nullptr ? "no elements" : "a kernel of ours";
  }

 private:
  Device& device_;
  const std::unique_ptr<LoadedKernels> kernels_;
};

bool HasElements(const Call& call) { return Elements(call.results[0].shape) > 0; }

// Bytes known to divide the address of the result.
int64_t AlignmentOf(const Call& call, const CallFacts& facts) {
  return facts.result_alignment.empty() ? SizeBytes(call.results[0].dtype)
                                        : facts.result_alignment[0];
}

LaunchArg ArgOf(int slot, const Call& call, const CallFacts& facts) {
  const bool written = slot == kScatterResult;
  const CallTensor& t = written ? call.results[0] : call.operands[slot];
  LaunchArg arg{.slot = static_cast<uint32_t>(slot), .written = written};
  arg.bytes = SpanOf(t) * SizeBytes(t.dtype);
  arg.alignment = written ? AlignmentOf(call, facts) : SizeBytes(t.dtype);
  if (written) arg.contents = Contents::kFresh;
  return arg;
}

class GeneratedScatterLinesLoader : public CallLoader {
 public:
  explicit GeneratedScatterLinesLoader(Device& device) : device_(device) {}

  std::vector<Kernel> KernelsOf(const Call& call, const CallFacts& facts) override {
    if (!HasElements(call)) return {};
    std::vector<Kernel> kernels;
    kernels.push_back(
        EmitScatterLines(ScatterLinesOf(call), AlignmentOf(call, facts), device_.dialect()).kernel);
    return kernels;
  }
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override {
    return LoadGeneratedScatterLines(device_, call, facts);
  }

 private:
  Device& device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedScatterLines(Device& device,
                                                                      const Call& call,
                                                                      const CallFacts& facts) {
  if (!HasElements(call)) return std::make_unique<GeneratedScatterLines>(device, nullptr);
  const ScatterLinesCall c = ScatterLinesOf(call);
  if (!IsCountable(c)) {
    return absl::UnimplementedError(absl::StrCat("scatter_lines of ", c.lines, " lines of ",
                                                 c.count, " into ", c.extent,
                                                 ": it is larger than one launch takes"));
  }
  LaunchWriter::Launch made = EmitScatterLines(c, AlignmentOf(call, facts), device.dialect());
  Launch launch{.kernel = made.kernel.name,
                .blocks = made.kernel.blocks,
                .threads = made.kernel.threads,
                .direct = made.kernel.direct};
  for (const int slot : made.slots) launch.args.push_back(ArgOf(slot, call, facts));
  std::vector<Kernel> kernels;
  kernels.push_back(std::move(made.kernel));
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded,
                      device.Load(std::move(kernels), {std::move(launch)}));
  return std::make_unique<GeneratedScatterLines>(device, std::move(loaded));
}

std::unique_ptr<CallLoader> MakeGeneratedScatterLinesLoader(Device& device) {
  return std::make_unique<GeneratedScatterLinesLoader>(device);
}

}  // namespace retrograd
