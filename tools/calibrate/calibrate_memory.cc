// Launches and bandwidth, each from a generated kernel in which nothing else takes time.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/device/device_spec.h"
#include "graph/base/status.h"
#include "tools/calibrate/calibrate.h"
#include "tools/calibrate/chain_graph.h"
#include "tools/calibrate/kernel_bench.h"

namespace retrograd {
namespace {

constexpr double kSecond = 1e6;  // in microseconds
constexpr int64_t kFewSms = 8;

// Two reads and one write by blocks that each have an SM for themselves, as many bytes under way as
// its threads can have: 64 KiB.
constexpr char kStream[] = R"(  const int64_t begin = RG_BLOCK * of_block;
  for (int64_t i = begin + RG_THREAD * 8; i < begin + of_block; i += 2 * 8192) {
    float x[2][8], y[2][8];
    for (int u = 0; u < 2; ++u) {
      rg_load_vec<8>(a, i + u * 8192, x[u]);
      rg_load_vec<8>(b, i + u * 8192, y[u]);
    }
    for (int u = 0; u < 2; ++u) {
      for (int k = 0; k < 8; ++k) x[u][k] += y[u][k];
      rg_store_vec<8>(c, i + u * 8192, x[u]);
    }
  }
)";

Kernel StreamKernel(int64_t of_block) {
  return {.name = "rg_stream",
          .blocks = kFewSms,
          .threads = 1024,
          .arguments = 3,
          .function = {.declarations = {{.type = "const rg_bf16", .name = "a", .at = 0},
                                        {.type = "const rg_bf16", .name = "b", .at = 1},
                                        {.type = "rg_bf16", .name = "c", .at = 2}},
                       .statements = absl::StrCat("  constexpr int64_t of_block = ", of_block,
                                                  ";\n", kStream)}};
}

// The schedule with another access width.
Schedule WithWidth(Schedule s, int width, int64_t elements) {
  s.vector_width = width;
  const int64_t of_block = int64_t{s.threads} * width;
  s.blocks = (elements + of_block - 1) / of_block;
  return s;
}

}  // namespace

absl::StatusOr<std::vector<SpecNumber>> CalibrateLaunches(const std::string&,
                                                          const CalibrationBench& bench) {
  KernelBench device(bench.device, bench.sizes.repeat);
  RG_ASSIGN_OR_RETURN(const KernelBody tiny,
                      PlannedKernel(ChainGraph("neg", false, 1024, 1, "f32"), bench.base));
  const int few = 50, many = static_cast<int>(bench.sizes.Of(450, 150));
  const auto chain_us = [&](bool matmul, bool record, int links) {
    const std::string name =
        absl::StrCat(matmul ? "matmul of 64 x 64 x 64" : "kernel of 1024 elements", ", one of ",
                     links, record ? ", recorded" : ", issued");
    return bench.log->Us(name, [&]() -> absl::StatusOr<double> {
      RG_ASSIGN_OR_RETURN(
          const std::unique_ptr<BenchWork> work,
          matmul ? device.MatMul(64, 64, 64, DType::kBf16) : device.Kernel(tiny.ir, tiny.schedule));
      return device.Chain(work.get(), links, record);
    });
  };
  // What one more link of a chain takes.
  const auto link_us = [&](bool matmul, bool record) -> absl::StatusOr<double> {
    RG_ASSIGN_OR_RETURN(const double shorter, chain_us(matmul, record, few));
    RG_ASSIGN_OR_RETURN(const double longer, chain_us(matmul, record, many));
    return std::max((longer * many - shorter * few) / (many - few), 1e-3);
  };
  RG_ASSIGN_OR_RETURN(const double graph_us, link_us(false, true));
  RG_ASSIGN_OR_RETURN(const double stream_us, link_us(false, false));
  RG_ASSIGN_OR_RETURN(const double call_us, link_us(true, true));
  const std::string chain = absl::StrFormat("one more of %d dependent ", many);
  return std::vector<SpecNumber>{
      {"launch_graph_us", graph_us, chain + "kernels of 1024 elements, recorded"},
      {"launch_stream_us", stream_us, chain + "kernels of 1024 elements, issued, the host hidden"},
      {"library_call_us", std::max(call_us - graph_us, 1e-3),
       chain + "bf16 matmuls of 64 x 64 x 64, recorded, less a launch"}};
}

absl::StatusOr<std::vector<SpecNumber>> CalibrateBandwidth(const std::string& text,
                                                           const CalibrationBench& bench) {
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, ParseDeviceSpec(text, "calibrate"));
  const BenchSizes& sizes = bench.sizes;
  KernelBench device(bench.device, sizes.repeat);
  const double launch_us = 1e-6 * static_cast<double>(spec.launch_graph_ps);
  // `links` of a kernel that reads twice and writes once, 16 bytes a thread; 0: as many as take a
  // while.
  const auto sum_us = [&](int64_t elements, int links) {
    const std::string name = absl::StrCat("two reads and one write of ", elements, " bf16",
                                          links > 0 ? absl::StrCat(", one of ", links) : "");
    return bench.log->Us(name, [&]() -> absl::StatusOr<double> {
      RG_ASSIGN_OR_RETURN(const KernelBody sum,
                          PlannedKernel(ChainGraph("add", true, elements, 1, "bf16"), bench.base));
      RG_ASSIGN_OR_RETURN(const auto work,
                          device.Kernel(sum.ir, WithWidth(sum.schedule, 8, elements)));
      return links > 0 ? device.Chain(work.get(), links) : device.InARow(work.get());
    });
  };
  const int64_t large = sizes.Of(int64_t{1} << 28, 1 << 18);
  RG_ASSIGN_OR_RETURN(const double large_us, sum_us(large, 0));
  // In the cache: how much longer a kernel takes for more bytes.
  const int64_t little = sizes.Of(1 << 21, 1 << 12), more = 2 * little;
  RG_ASSIGN_OR_RETURN(const double little_us, sum_us(little, 40));
  RG_ASSIGN_OR_RETURN(const double more_us, sum_us(more, 40));
  std::vector<SpecNumber> numbers = {
      {"hbm_bytes_per_s",
       std::max(6 * static_cast<double>(large) * kSecond / std::max(large_us - launch_us, 1e-3),
                1e9),
       absl::StrFormat("two reads and one write of %d KiB each", large * 2 >> 10)},
      {"cache_bytes_per_s",
       std::max(
           6 * static_cast<double>(more - little) * kSecond / std::max(more_us - little_us, 1e-3),
           1e9),
       absl::StrFormat("two reads and one write of %d KiB each, again and again, beside %d KiB",
                       more * 2 >> 10, little * 2 >> 10)}};
  const int64_t of_block = sizes.Of(1 << 22, 1 << 14), bytes = kFewSms * of_block * 2;
  RG_ASSIGN_OR_RETURN(
      const double stream_us,
      bench.log->Us(absl::StrCat(kFewSms, " blocks of 1024 threads, three times ", bytes, " bytes"),
                    [&]() -> absl::StatusOr<double> {
                      RG_ASSIGN_OR_RETURN(const auto stream, device.Written(StreamKernel(of_block),
                                                                            {bytes, bytes, bytes}));
                      return device.InARow(stream.get());
                    }));
  const double most = 3 * static_cast<double>(bytes) / kFewSms * kSecond / stream_us;
  // Of kernels with usual numbers of bytes under way.
  const double usual = 1e6 / static_cast<double>(spec.sm_streaming_ppm);
  numbers.push_back(
      {"sm_bytes_per_s", std::max(usual * most, 1e9),
       absl::StrFormat("%.3g of %.3g, which %d blocks of 1024 threads with 64 KiB under way "
                       "draw each",
                       usual, most, kFewSms)});
  numbers.push_back({"sms", static_cast<double>(bench.log->device().sms), "the driver"});
  if (bench.log->device().cache_bytes > 0) {
    numbers.push_back(
        {"cache_bytes", static_cast<double>(bench.log->device().cache_bytes), "the driver"});
  }
  return numbers;
}

}  // namespace retrograd
