#include "runtime/ops/convolution/shared_products_call.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/convolution/emit_implicit_gemm.h"
#include "codegen/convolution/share_launches.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/convolution/shared_products.h"
#include "graph/base/status.h"
#include "runtime/ops/convolution/generated_convolution.h"

namespace retrograd {
namespace {

constexpr int64_t kScratchMultiple = 256;  // bytes, where the sums of each product's splits begin

// The products in the order of their blocks, the longest first, so that what begins last ends
// soon.
struct Products {
  std::vector<size_t> call;  // by product: its number among the calls
  std::vector<WeightProduct> products;
  std::vector<ConvolutionKernels> alone;
  SharedConvolutionKernels kernels;
};

absl::StatusOr<Products> Generate(absl::Span<const ExpectedCall> calls, Dialect dialect,
                                  const ImplicitGemmLimits& limits) {
  std::vector<WeightProduct> products;
  for (const ExpectedCall& expected : calls) {
    RG_RETURN_IF_ERROR(AlignmentRefusal(*expected.facts));
    std::optional<WeightProduct> product = WeightProductOf(*expected.call);
    if (!product) return absl::UnimplementedError("one of the calls is no product by boxes");
    products.push_back(*std::move(product));
  }
  const std::optional<SharedTiles> tiles = ChooseSharedTiles(products, limits);
  if (!tiles) return absl::UnimplementedError("the products have no tiles by boxes");
  Products made;
  made.call.resize(calls.size());
  std::iota(made.call.begin(), made.call.end(), size_t{0});
  std::stable_sort(made.call.begin(), made.call.end(), [&](size_t a, size_t b) {
    return tiles->block_cycles[a] > tiles->block_cycles[b];
  });
  for (const size_t c : made.call) {
    made.products.push_back(products[c]);
    made.alone.push_back(EmitImplicitGemm(products[c].convolution, tiles->tiles[c], dialect));
  }
  made.kernels = ShareLaunches(made.alone);
  return made;
}

std::vector<Kernel> KernelsOf(const Products& made) {
  std::vector<Kernel> kernels;
  for (const SharedConvolutionKernels::Launch& launch : made.kernels.launches) {
    kernels.push_back(launch.kernel);
  }
  return kernels;
}

// Each call has its slots, in the order of the calls.
uint32_t SlotOf(size_t call, ConvolutionSlot slot) {
  return static_cast<uint32_t>(call * kConvolutionSlots + static_cast<size_t>(slot));
}

class SharedProductsCall : public LoadedCall {
 public:
  struct Member {
    int gradient = 0;            // WeightProduct
    int64_t partial_offset = 0;  // bytes of the scratch memory
  };
  // early: by launch, whether its kernel waits for what is in front of it. members: by call.
  SharedProductsCall(Device& device, std::shared_ptr<LoadedKernels> kernels,
                     std::vector<bool> early, std::vector<Member> members, int64_t scratch_bytes)
      : LoadedCall(scratch_bytes),
        device_(device),
        kernels_(std::move(kernels)),
        early_(std::move(early)),
        members_(std::move(members)),
        table_(members_.size() * kConvolutionSlots) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    for (size_t c = 0; c < members_.size(); ++c) {
      const Member& member = members_[c];
      const auto operand = [&](int of) {
        return const_cast<void*>(pointers.operands[2 * c + static_cast<size_t>(of)]);
      };
      table_[SlotOf(c, kConvolutionFirst)] = operand(member.gradient);
      table_[SlotOf(c, kConvolutionSecond)] = operand(1 - member.gradient);
      table_[SlotOf(c, kConvolutionResult)] = pointers.results[c];
      table_[SlotOf(c, kPartials)] =
          scratch == nullptr ? nullptr : static_cast<char*>(scratch) + member.partial_offset;
    }
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernels_, absl::MakeSpan(table_)));
    for (size_t i = 0; i < early_.size(); ++i) {
      const bool early = early_[i] && may_start_early(i);
      RG_RETURN_IF_ERROR(early ? device_.LaunchEarly(stream, *kernels_, i)
                               : device_.Launch(stream, *kernels_, i));
    }
    return absl::OkStatus();
  }
  std::string Describe() const override {
    return absl::StrCat("kernels of ours, ", members_.size(), " products in one launch");
  }

 private:
  Device& device_;
  const std::shared_ptr<LoadedKernels> kernels_;
  const std::vector<bool> early_;
  const std::vector<Member> members_;
  std::vector<void*> table_;
};

LaunchArg ArgOf(const Products& made, absl::Span<const ExpectedCall> calls, size_t product,
                ConvolutionSlot slot, bool written) {
  const size_t c = made.call[product];
  LaunchArg arg{.slot = SlotOf(c, slot), .alignment = kConvolutionAlignment, .written = written};
  const ConvolutionKernels& alone = made.alone[product];
  if (slot == kPartials) {
    arg.bytes = alone.partial_elements * SizeBytes(alone.partial_dtype);
    arg.contents = written ? Contents::kFresh : Contents::kWritten;
    return arg;
  }
  const int gradient = made.products[product].gradient;
  const Call& call = *calls[c].call;
  const CallTensor& t =
      slot == kConvolutionResult
          ? call.results[0]
          : call.operands[static_cast<size_t>(slot == kConvolutionFirst ? gradient : 1 - gradient)];
  arg.bytes = SpanOf(t) * SizeBytes(t.dtype);
  return arg;
}

Launch LaunchOf(const Products& made, const SharedConvolutionKernels::Launch& shared,
                absl::Span<const ExpectedCall> calls) {
  Launch launch = BareLaunchOf(shared.kernel);
  // What a kernel writes stands last of its arguments.
  for (size_t i = 0; i < shared.args.size(); ++i) {
    const auto& [product, slot] = shared.args[i];
    const bool last = i + 1 == shared.args.size() || shared.args[i + 1].first != product;
    launch.args.push_back(ArgOf(made, calls, product, slot, last));
  }
  for (const auto& [product, boxes] : shared.boxes) {
    const size_t c = made.call[product];
    const std::vector<OperandMap> maps =
        BoxMapsOf(boxes, calls[c].call->operands[0].dtype, SlotOf(c, kConvolutionSecond),
                  SlotOf(c, kConvolutionFirst));
    launch.maps.insert(launch.maps.end(), maps.begin(), maps.end());
    launch.cluster = 0;
  }
  return launch;
}

}  // namespace

std::vector<Kernel> SharedProductKernels(absl::Span<const ExpectedCall> calls, Dialect dialect,
                                         const ImplicitGemmLimits& limits) {
  const auto made = Generate(calls, dialect, limits);
  return made.ok() ? KernelsOf(*made) : std::vector<Kernel>{};
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadSharedProducts(Device& device,
                                                               absl::Span<const ExpectedCall> calls,
                                                               const ImplicitGemmLimits& limits) {
  RG_ASSIGN_OR_RETURN(const Products made, Generate(calls, device.dialect(), limits));
  std::vector<Launch> launches;
  std::vector<bool> early;
  for (const SharedConvolutionKernels::Launch& shared : made.kernels.launches) {
    launches.push_back(LaunchOf(made, shared, calls));
    early.push_back(shared.kernel.starts_early);
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<LoadedKernels> loaded,
                      device.Load(KernelsOf(made), launches));
  std::vector<SharedProductsCall::Member> members(calls.size());
  int64_t scratch_bytes = 0;
  for (size_t p = 0; p < made.call.size(); ++p) {
    const ConvolutionKernels& alone = made.alone[p];
    members[made.call[p]] = {made.products[p].gradient, scratch_bytes};
    const int64_t bytes = alone.partial_elements * SizeBytes(alone.partial_dtype);
    scratch_bytes += CeilDiv(bytes, kScratchMultiple) * kScratchMultiple;
  }
  return std::make_unique<SharedProductsCall>(device, std::move(loaded), std::move(early),
                                              std::move(members), scratch_bytes);
}

}  // namespace retrograd
