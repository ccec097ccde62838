// Matmuls and attention: numbers of the library's kernels, fitted to many shapes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/matmul/matmul_cost.h"
#include "graph/base/status.h"
#include "tools/calibrate/calibrate.h"
#include "tools/calibrate/kernel_bench.h"
#include "tools/fit/price_fit.h"

namespace retrograd {
namespace {

struct Shape3 {
  int64_t m, n, k;
};
// Backwards of transformers: gradients of inputs, of weights (short, over many tokens), and of
// heads.
constexpr Shape3 kShapes[] = {
    {32768, 512, 2048}, {32768, 2048, 512}, {32768, 512, 512},  {32768, 1536, 512},
    {512, 2048, 32768}, {2048, 512, 32768}, {512, 512, 32768},  {98304, 512, 512},
    {98304, 2048, 512}, {512, 2048, 98304}, {8192, 1024, 1024}, {8192, 2816, 1024},
    {8192, 1024, 2816}, {1024, 1024, 8192}, {1024, 2816, 8192}, {4096, 768, 768},
    {4096, 3072, 768},  {4096, 768, 3072},  {768, 768, 4096},   {768, 3072, 4096},
    {2304, 768, 4096},  {4096, 30528, 768}, {4096, 768, 30528}, {8192, 8192, 8192},
    {1024, 768, 768},   {256, 384, 1536},   {384, 384, 1576},   {512, 512, 512}};
constexpr Shape3 kSmallShapes[] = {{64, 64, 64}, {128, 96, 64}, {96, 64, 256}};

absl::StatusOr<PricedSample> TimeMatMul(const Shape3& s, DType dtype,
                                        const CalibrationBench& bench) {
  const std::string name = absl::StrCat("matmul ", s.m, "x", s.n, "x", s.k, " ", Name(dtype));
  RG_ASSIGN_OR_RETURN(const double us, bench.log->Us(name, [&]() -> absl::StatusOr<double> {
    KernelBench device(bench.device, bench.sizes.repeat);
    RG_ASSIGN_OR_RETURN(const auto work, device.MatMul(s.m, s.n, s.k, dtype));
    return device.InARow(work.get());
  }));
  const MatMulCall call{.m = s.m, .n = s.n, .k = s.k, .in_dtype = dtype, .out_dtype = dtype};
  return PricedSample{us, [call](const DeviceSpec& d) { return PriceMatMul(call, d).ps; }};
}

}  // namespace

absl::StatusOr<std::vector<SpecNumber>> CalibrateMatMuls(const std::string& text,
                                                         const CalibrationBench& bench) {
  const BenchSizes& sizes = bench.sizes;
  const absl::Span<const Shape3> shapes =
      sizes.small ? absl::MakeConstSpan(kSmallShapes) : absl::MakeConstSpan(kShapes);
  std::vector<PricedSample> samples;
  for (const Shape3& shape : shapes) {
    RG_ASSIGN_OR_RETURN(samples.emplace_back(), TimeMatMul(shape, DType::kBf16, bench));
  }
  const std::vector<std::string> fields = {"matmul_bf16_flops", "matmul_step_ns",
                                           "matmul_tile_overhead", "matmul_split_us",
                                           "matmul_split_bytes_per_s"};
  RG_ASSIGN_OR_RETURN(const FittedNumbers fit, FitNumbers(text, fields, samples));
  const std::string how =
      absl::StrFormat("fitted to bf16 matmuls of %d shapes: error %.1f%%, before %.1f%%",
                      samples.size(), 100 * fit.error_after, 100 * fit.error_before);
  std::vector<SpecNumber> numbers = FoundNumbers(fit, how, bench);
  const int64_t edge = sizes.Of(4096, 64);
  for (auto [field, dtype] : {std::pair("matmul_fp32_flops", DType::kFp32),
                              std::pair("matmul_fp64_flops", DType::kFp64)}) {
    RG_ASSIGN_OR_RETURN(const PricedSample sample, TimeMatMul({edge, edge, edge}, dtype, bench));
    RG_ASSIGN_OR_RETURN(const FittedNumbers one,
                        FitNumbers(text, std::vector<std::string>{field}, {&sample, 1}));
    for (SpecNumber& number :
         FoundNumbers(one, absl::StrFormat("a matmul of %d x %d x %d", edge, edge, edge), bench)) {
      numbers.push_back(std::move(number));
    }
  }
  return numbers;
}

absl::StatusOr<std::vector<SpecNumber>> CalibrateAttention(const std::string& text,
                                                           const CalibrationBench& bench) {
  const BenchSizes& sizes = bench.sizes;
  const int64_t batch = sizes.Of(32, 1), heads = sizes.Of(8, 2), tokens = sizes.Of(2048, 32);
  const std::string tensor = absl::StrFormat("bf16[%d,%d,%d,64]", batch, heads, tokens);
  std::string graph;
  const char* names[] = {"do", "q", "k", "v", "o"};
  for (int i = 0; i < 5; ++i) {
    absl::StrAppendFormat(&graph, "%%%d = input name=\"%s\" kind=saved alignment=16  %s\n", i,
                          names[i], tensor);
  }
  absl::StrAppendFormat(
      &graph,
      "%%5 = input name=\"lse\" kind=saved alignment=16  f32[%d,%d,%d]\n"
      "%%6:3 = attention_backward %%0 %%1 %%2 %%3 %%4 %%5 causal=1 scale=0.125\n"
      "output %%6.0 name=\"dq\"\noutput %%6.1 name=\"dk\"\noutput %%6.2 name=\"dv\"\n",
      batch, heads, tokens);
  RG_ASSIGN_OR_RETURN(const std::vector<Group> groups, PlannedGroups(graph, bench.base));
  for (const Group& group : groups) {
    const Call* call = CallOf(group);
    if (call == nullptr) continue;
    const auto is_call = [](const Group& g) { return CallOf(g) != nullptr; };
    RG_ASSIGN_OR_RETURN(const double us,
                        bench.log->Us(absl::StrCat("causal attention ", tensor), [&] {
                          return TimeSteps(graph, bench.base, sizes.repeat, is_call, bench.device);
                        }));
    const PricedSample sample{us, [call = *call](const DeviceSpec& d) {
                                return CallOpOf(call.op).price(call, d, /*explain=*/false).ps;
                              }};
    RG_ASSIGN_OR_RETURN(
        const FittedNumbers fit,
        FitNumbers(text, std::vector<std::string>{"attention_flops"}, {&sample, 1}));
    return FoundNumbers(
        fit,
        absl::StrFormat("causal attention backward by the fastest kernels, %d x %d heads of %d "
                        "tokens, head size 64, equal bits, counted as five products without the "
                        "masked half",
                        batch, heads, tokens),
        bench);
  }
  return absl::InternalError("the attention benchmark was planned without an attention call");
}

}  // namespace retrograd
