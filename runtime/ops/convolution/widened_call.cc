#include "runtime/ops/convolution/widened_call.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/print/launch_writer.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPackBytes = 16;  // that a thread moves at once
enum Slot : uint32_t { kNarrow, kWide };

constexpr absl::string_view kText = R"(
  const int64_t i = (static_cast<int64_t>(RG_BLOCK) * kThreads + RG_THREAD) * kVector;
  if (i >= kElements) return;
  float values[kVector];
  rg_load_vec<kVector>(a, i, values);
  RG_UNROLL
  for (int v = 0; v < kVector; v += kStore) rg_store_vec<kStore>(d, kFirst + i + v, values + v);
)";

int64_t Aligned(int64_t bytes) { return CeilDiv(bytes, kScratchAlignment) * kScratchAlignment; }

// Elements that a thread widens: 16 bytes of the narrow ones where they divide all.
int VectorOf(const CallTensor& wide, const CallFacts& facts) {
  const std::vector<int64_t>& known = facts.result_alignment;
  int vector = !known.empty() && known[0] % kPackBytes == 0 ? 8 : 1;
  while (Elements(wide.shape) % vector != 0 || wide.offset % vector != 0) vector /= 2;
  return vector;
}

class WidenedCall : public LoadedCall {
 public:
  WidenedCall(Device& device, std::unique_ptr<LoadedCall> narrow, int64_t narrow_bytes,
              std::unique_ptr<LoadedKernels> kernel)
      : LoadedCall(narrow_bytes + narrow->scratch_bytes()),
        device_(device),
        narrow_(std::move(narrow)),
        narrow_bytes_(narrow_bytes),
        kernel_(std::move(kernel)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    void* const narrow[] = {scratch};
    RG_RETURN_IF_ERROR(narrow_->Run(stream, {pointers.operands, narrow},
                                    static_cast<char*>(scratch) + narrow_bytes_));
    void* const table[] = {scratch, pointers.results[0]};
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernel_, table));
    return device_.Launch(stream, *kernel_, 0);
  }
  std::string Describe() const override {
    return absl::StrCat(narrow_->Describe(), "\n  and a cast by a kernel of ours");
  }

 private:
  Device& device_;
  const std::unique_ptr<LoadedCall> narrow_;
  const int64_t narrow_bytes_;
  const std::unique_ptr<LoadedKernels> kernel_;
};

}  // namespace

std::optional<Call> NarrowOf(const Call& call) {
  Call narrow = call;
  CallTensor& result = narrow.results[0];
  const DType dtype = call.operands[0].dtype;
  if (result.dtype != DType::kFp32 || SizeBytes(dtype) != 2) return std::nullopt;
  if (!IsPacked(result.shape, result.strides)) return std::nullopt;
  result.dtype = dtype;
  result.offset = 0;
  return narrow;
}

Kernel WideningKernel(const Call& call, const CallFacts& facts, Dialect dialect) {
  const CallTensor& wide = call.results[0];
  const int64_t elements = Elements(wide.shape);
  const int vector = VectorOf(wide, facts);
  LaunchWriter w(dialect, absl::StrCat(Name(call.op), ", widened"));
  w.Read(call.operands[0].dtype, "a", kNarrow);
  w.Write(wide.dtype, "d", kWide);
  w.Constants({{"kThreads", kThreads}, {"kVector", vector}, {"kStore", std::min(vector, 4)}});
  w.LongConstants({{"kElements", elements}, {"kFirst", wide.offset}});
  w.Text(kText);
  return w.End(CeilDiv(CeilDiv(elements, vector), kThreads), kThreads).kernel;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadWidened(Device& device, const Call& call,
                                                        const CallFacts& facts,
                                                        std::unique_ptr<LoadedCall> narrow) {
  const std::optional<Call> made = NarrowOf(call);
  RG_CHECK(made.has_value());
  const int64_t vector = VectorOf(call.results[0], facts);
  const auto arg = [&](Slot slot, const CallTensor& t, Contents contents) {
    return LaunchArg{.slot = slot,
                     .bytes = SpanOf(t) * SizeBytes(t.dtype),
                     .alignment = std::min<int64_t>(kPackBytes, vector * SizeBytes(t.dtype)),
                     .written = slot == kWide,
                     .contents = contents};
  };
  const Kernel kernel = WideningKernel(call, facts, device.dialect());
  Launch launch{.kernel = kernel.name,
                .blocks = kernel.blocks,
                .threads = kernel.threads,
                .direct = kernel.direct};
  launch.args = {arg(kNarrow, made->results[0], Contents::kWritten),
                 arg(kWide, call.results[0], Contents::kDefined)};
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded, device.Load({kernel}, {launch}));
  const CallTensor& result = made->results[0];
  return std::make_unique<WidenedCall>(device, std::move(narrow),
                                       Aligned(SpanOf(result) * SizeBytes(result.dtype)),
                                       std::move(loaded));
}

}  // namespace retrograd
