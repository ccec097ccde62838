// Products that share launches: on the host with every access checked, against the reference, and
// whether the GPU compiler takes them.
#include "fusion/ops/convolution/shared_products.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "runtime/devices/host_device.h"
#include "runtime/host/host_numbers.h"
#include "runtime/ops/convolution/shared_products_call.h"
#include "tests/catch.h"
#include "tests/support/drawn_convolutions.h"
#include "tests/support/kernels/gpu_compilers.h"
#include "tests/support/plans/convolution_gradient.h"

namespace retrograd {
namespace {

constexpr ImplicitGemmLimits kLimits = {.sms = 132, .shared_bytes = 99 << 10, .boxes = true};
constexpr int64_t kChannels[] = {32, 40, 64, 72, 136};

Call DrawnWeightGradient(Draw& draw) {
  Call call =
      ConvolutionGradient(Op::convolution_weight_gradient, {.batch = draw.Int(1, 3),
                                                            .channels = kChannels[draw.Int(0, 4)],
                                                            .extent = draw.Int(3, 9),
                                                            .filters = kChannels[draw.Int(0, 4)],
                                                            .taps = draw.Int(0, 1) == 0 ? 1 : 3,
                                                            .stride = draw.Int(1, 2)});
  if (draw.Int(0, 1) == 0) call.results[0].dtype = DType::kFp32;
  return call;
}

// Both operands have their rows or columns in lines, one for each term; so has the result those of
// either of them.
Call DrawnMatMul(Draw& draw) {
  const int64_t m = kChannels[draw.Int(0, 4)], n = kChannels[draw.Int(0, 4)], k = draw.Int(1, 200);
  const int64_t gap = 8 * draw.Int(0, 2);
  Call call{.op = Op::matmul};
  call.operands = {{.shape = {m, k}, .strides = {1, m + gap}, .dtype = DType::kBf16},
                   {.shape = {k, n}, .strides = {n + gap, 1}, .dtype = DType::kBf16}};
  const bool by_columns = draw.Int(0, 2) == 0;
  call.results = {{.shape = {m, n},
                   .strides = by_columns ? std::vector<int64_t>{1, m} : std::vector<int64_t>{n, 1},
                   .dtype = draw.Int(0, 1) == 0 ? DType::kFp32 : DType::kBf16}};
  return call;
}

// Some calls, of which one stands there twice and one next to itself.
std::vector<Call> DrawnCalls(Draw& draw) {
  std::vector<Call> calls;
  for (int64_t i = draw.Int(2, 4); i > 0; --i) {
    calls.push_back(draw.Int(0, 1) == 0 ? DrawnMatMul(draw) : DrawnWeightGradient(draw));
  }
  calls.push_back(calls.back());
  calls.push_back(calls.front());
  return calls;
}

std::vector<double> ReferenceOf(const Call& call, const std::vector<std::vector<double>>& values) {
  if (call.op != Op::matmul) return Reference(call, values);
  const int64_t m = call.operands[0].shape[0], k = call.operands[0].shape[1];
  const int64_t n = call.operands[1].shape[1];
  std::vector<double> sums(static_cast<size_t>(m * n), 0);
  for (int64_t i = 0; i < m * n * k; ++i) {
    const int64_t row = i / (n * k), column = i / k % n, term = i % k;
    sums[static_cast<size_t>(row * n + column)] +=
        values[0][static_cast<size_t>(row * k + term)] *
        values[1][static_cast<size_t>(term * n + column)];
  }
  return sums;
}

// What a run holds: operands and results of all calls, at multiples of 16 bytes.
struct Memory {
  struct Tensor {
    std::vector<float> room;
    void* data = nullptr;
  };
  std::vector<Tensor> operands, results;
  std::vector<const void*> read;
  std::vector<void*> written;
};

Memory::Tensor RoomFor(const CallTensor& t) {
  Memory::Tensor tensor{.room = std::vector<float>(static_cast<size_t>(SpanOf(t)) + 8, 77.0F)};
  const auto at = reinterpret_cast<uintptr_t>(tensor.room.data());
  tensor.data = reinterpret_cast<void*>((at + 15) / 16 * 16);  // NOLINT
  return tensor;
}

std::vector<double> ResultOf(const CallTensor& t, const void* data) {
  std::vector<double> dense(static_cast<size_t>(Elements(t.shape)));
  ForElements(t, [&](int64_t e, int64_t at) {
    dense[static_cast<size_t>(e)] = t.dtype == DType::kFp32
                                        ? LoadAs<double>(static_cast<const float*>(data), at)
                                        : LoadAs<double>(static_cast<const HostBf16*>(data), at);
  });
  return dense;
}

// Small integers, whose products add up without rounding.
std::vector<std::vector<double>> Integers(Draw& draw, const Call& call) {
  std::vector<std::vector<double>> values;
  for (const CallTensor& t : call.operands) {
    values.emplace_back(static_cast<size_t>(Elements(t.shape)));
    for (double& v : values.back()) v = static_cast<double>(draw.Int(-1, 1));
  }
  return values;
}

std::vector<ExpectedCall> Expected(const std::vector<Call>& calls, const CallFacts& facts) {
  std::vector<ExpectedCall> expected;
  for (const Call& call : calls) expected.push_back({&call, &facts, !expected.empty()});
  return expected;
}

const CallFacts kAligned = {.operand_alignment = {16, 16}, .result_alignment = {16}};

TEST_CASE("products that share launches are the reference's, with every access checked") {
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    HostDeviceOptions options;
    options.compile.check = seed % 4 == 0;
    const std::unique_ptr<Device> device = MakeHostDevice(options);
    Draw draw(seed);
    const std::vector<Call> calls = DrawnCalls(draw);
    INFO("seed " << seed);
    auto loaded = LoadSharedProducts(*device, Expected(calls, kAligned), kLimits);
    REQUIRE(loaded.status().ToString() == "OK");
    Memory memory;
    std::vector<std::vector<double>> wanted;
    for (const Call& call : calls) {
      const std::vector<std::vector<double>> values = Integers(draw, call);
      for (size_t i = 0; i < 2; ++i) {
        memory.operands.push_back(RoomFor(call.operands[i]));
        auto* const data = static_cast<HostBf16*>(memory.operands.back().data);
        ForElements(call.operands[i], [&](int64_t e, int64_t at) {
          StoreAs(data, at, values[i][static_cast<size_t>(e)]);
        });
        memory.read.push_back(data);
      }
      memory.results.push_back(RoomFor(call.results[0]));
      memory.written.push_back(memory.results.back().data);
      wanted.push_back(ReferenceOf(call, values));
      RoundTo(call.results[0].dtype, absl::MakeSpan(wanted.back()));
    }
    std::vector<double> scratch(static_cast<size_t>((*loaded)->scratch_bytes() / 8 + 8));
    REQUIRE((*loaded)->Run(0, {memory.read, memory.written}, scratch.data()).ToString() == "OK");
    for (size_t c = 0; c < calls.size(); ++c) {
      INFO("call " << c << ", " << Name(calls[c].op));
      REQUIRE(ResultOf(calls[c].results[0], memory.written[c]) == wanted[c]);
    }
  }
}

TEST_CASE("launches that products share compile for sm_90a") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  Draw draw(3);
  const std::vector<Call> calls = DrawnCalls(draw);
  const std::vector<Kernel> kernels =
      SharedProductKernels(Expected(calls, kAligned), Dialect::kCuda, kLimits);
  REQUIRE(!kernels.empty());
  CHECK(kernels[0].maps == 2 * static_cast<int>(calls.size()));
  CheckCompiles({Dialect::kCuda, "sm_90a", 32}, kernels, "products in one launch");
}

TEST_CASE("what is no product by boxes shares no launch") {
  const std::unique_ptr<Device> device = MakeHostDevice({});
  Draw draw(1);
  const auto refusal = [&](const Call& other, const CallFacts& facts) {
    const std::vector<Call> calls = {DrawnMatMul(draw), other};
    return device->LoadTogether(Expected(calls, facts)).status();
  };
  Call matmul = DrawnMatMul(draw);
  CHECK(refusal(matmul, kAligned).ok());
  const CallFacts anywhere = {.operand_alignment = {16, 2}, .result_alignment = {16}};
  CHECK(absl::IsUnimplemented(refusal(matmul, anywhere)));
  Call adds = matmul;
  adds.previous = ValueId{};
  CHECK(absl::IsUnimplemented(refusal(adds, kAligned)));
  Call across = matmul;
  across.operands[0].strides = {matmul.operands[0].shape[1], 1};
  CHECK(absl::IsUnimplemented(refusal(across, kAligned)));
  const Call input = ConvolutionGradient(Op::convolution_input_gradient, {});
  CHECK(absl::IsUnimplemented(refusal(input, kAligned)));
  const Call narrow = ConvolutionGradient(Op::convolution_weight_gradient, {.channels = 3});
  CHECK(absl::IsUnimplemented(refusal(narrow, kAligned)));
}

TEST_CASE("together products have fewer splits, and take less than one after the other") {
  const Call call = ConvolutionGradient(Op::convolution_weight_gradient,
                                        {.channels = 256, .extent = 14, .filters = 256});
  const WeightProduct product = *WeightProductOf(call);
  const SharedTiles alone = *ChooseSharedTiles({product}, kLimits);
  const std::vector<WeightProduct> eight(8, product);
  const SharedTiles together = *ChooseSharedTiles(eight, kLimits);
  CHECK(together.tiles[0].splits <= alone.tiles[0].splits);
  CHECK(together.cycles < 8 * alone.cycles);
  const DeviceSpec device = *LoadDeviceSpec("h100");
  const std::vector<const Call*> calls(8, &call);
  const Price price = PriceSharedProducts(calls, device, /*explain=*/true);
  CHECK(price.terms.size() == 3);
  CHECK(price.ps < 8 * PriceSharedProducts({&call}, device, false).ps);
}

}  // namespace
}  // namespace retrograd
