// Launches, bandwidth and the arithmetic rates, each from a generated kernel in which nothing else
// takes time.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/device_spec.h"
#include "graph/status.h"
#include "tools/calibrate.h"
#include "tools/kernel_bench.h"

namespace retrograd {
namespace {

constexpr double kSecond = 1e6;  // in microseconds
constexpr int64_t kFewSms = 8;

// Two reads and one write by blocks that each have an SM for themselves, as many bytes under way as
// its threads can have: 64 KiB.
constexpr char kStream[] = R"(
RG_KERNEL(rg_stream, 1024, 3) {
  RG_ARG(const rg_bf16, a, 0);
  RG_ARG(const rg_bf16, b, 1);
  RG_ARG(rg_bf16, c, 2);
  const int64_t begin = RG_BLOCK * RG_OF_BLOCK;
  for (int64_t i = begin + RG_THREAD * 8; i < begin + RG_OF_BLOCK; i += 2 * 8192) {
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
}
)";

// y = op(op(...x)), or y = op(x, b) with a second operand.
std::string ChainGraph(const std::string& op, bool binary, int64_t elements, int links,
                       const std::string& dtype) {
  std::string text = absl::StrFormat("%%0 = input name=\"x\" kind=tangent alignment=16  %s[%d]\n",
                                     dtype, elements);
  int last = 0;
  if (binary) {
    absl::StrAppendFormat(&text, "%%1 = input name=\"b\" kind=saved alignment=16  %s[%d]\n", dtype,
                          elements);
    last = 1;
  }
  for (int i = 0; i < links; ++i, ++last) {
    const int operand = i == 0 ? 0 : last;
    absl::StrAppendFormat(&text, "%%%d = %s %%%d%s\n", last + 1, op, operand, binary ? " %1" : "");
  }
  return absl::StrCat(text, "output %", last, " name=\"y\"\n");
}

// The schedule with another access width.
Schedule WithWidth(Schedule s, int width, int64_t elements) {
  s.vector_width = width;
  const int64_t of_block = int64_t{s.threads} * width;
  s.blocks = (elements + of_block - 1) / of_block;
  return s;
}

}  // namespace

absl::StatusOr<std::vector<SpecNumber>> CalibrateLaunches(const std::string& text,
                                                          const BenchSizes& sizes, Device* device) {
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, ParseDeviceSpec(text, "calibrate"));
  KernelBench bench(device, sizes.repeat);
  RG_ASSIGN_OR_RETURN(const KernelBody tiny,
                      PlannedKernel(ChainGraph("neg", false, 1024, 1, "f32"), spec));
  RG_ASSIGN_OR_RETURN(const auto kernel, bench.Kernel(tiny.ir, tiny.schedule));
  RG_ASSIGN_OR_RETURN(const auto matmul, bench.MatMul(64, 64, 64, DType::kBf16));
  const int few = 50, many = static_cast<int>(sizes.Of(450, 150));
  // What one more link of a chain takes.
  const auto link_us = [&](BenchWork* work, bool record) -> absl::StatusOr<double> {
    RG_ASSIGN_OR_RETURN(const double shorter, bench.Chain(work, few, record));
    RG_ASSIGN_OR_RETURN(const double longer, bench.Chain(work, many, record));
    return std::max((longer * many - shorter * few) / (many - few), 1e-3);
  };
  RG_ASSIGN_OR_RETURN(const double graph_us, link_us(kernel.get(), true));
  RG_ASSIGN_OR_RETURN(const double stream_us, link_us(kernel.get(), false));
  RG_ASSIGN_OR_RETURN(const double call_us, link_us(matmul.get(), true));
  const std::string chain = absl::StrFormat("one more of %d dependent ", many);
  return std::vector<SpecNumber>{
      {"launch_graph_us", graph_us, chain + "kernels of 1024 elements, recorded"},
      {"launch_stream_us", stream_us, chain + "kernels of 1024 elements, issued, the host hidden"},
      {"library_call_us", std::max(call_us - graph_us, 1e-3),
       chain + "bf16 matmuls of 64 x 64 x 64, recorded, less a launch"}};
}

absl::StatusOr<std::vector<SpecNumber>> CalibrateBandwidth(const std::string& text,
                                                           const BenchSizes& sizes,
                                                           Device* device) {
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, ParseDeviceSpec(text, "calibrate"));
  KernelBench bench(device, sizes.repeat);
  const double launch_us = 1e-6 * static_cast<double>(spec.launch_graph_ps);
  const int64_t large = sizes.Of(int64_t{1} << 28, 1 << 18);
  std::vector<double> bytes_per_s;  // by width: 8, 4, 2, 1 elements of 2 bytes
  {
    RG_ASSIGN_OR_RETURN(const KernelBody sum,
                        PlannedKernel(ChainGraph("add", true, large, 1, "bf16"), spec));
    std::vector<Schedule> schedules;
    for (int width : {8, 4, 2, 1}) schedules.push_back(WithWidth(sum.schedule, width, large));
    RG_ASSIGN_OR_RETURN(const std::vector<double> us, bench.Schedules(sum.ir, schedules));
    for (double t : us) {
      bytes_per_s.push_back(6 * static_cast<double>(large) * kSecond /
                            std::max(t - launch_us, 1e-3));
    }
  }
  // In the cache: how much longer a kernel takes for more bytes.
  const int64_t little = sizes.Of(1 << 20, 1 << 12), more = 3 * little;
  double chain_us[2] = {};
  for (int i = 0; i < 2; ++i) {
    const int64_t elements = i == 0 ? little : more;
    RG_ASSIGN_OR_RETURN(const KernelBody sum,
                        PlannedKernel(ChainGraph("add", true, elements, 1, "bf16"), spec));
    RG_ASSIGN_OR_RETURN(const auto work,
                        bench.Kernel(sum.ir, WithWidth(sum.schedule, 8, elements)));
    RG_ASSIGN_OR_RETURN(chain_us[i], bench.Chain(work.get(), 40));
  }
  const double cache =
      6 * static_cast<double>(more - little) * kSecond / std::max(chain_us[1] - chain_us[0], 1e-3);
  const std::string how =
      absl::StrFormat("two reads and one write of %d KiB each", large * 2 >> 10);
  std::vector<SpecNumber> numbers = {
      {"hbm_bytes_per_s", std::max(bytes_per_s[0], 1e9), how},
      {"cache_bytes_per_s", std::max(cache, 1e9),
       absl::StrFormat("two reads and one write of %d KiB each, again and again, beside %d KiB",
                       more * 2 >> 10, little * 2 >> 10)}};
  const char* fields[] = {"efficiency_8_bytes", "efficiency_4_bytes", "efficiency_2_bytes"};
  for (int i = 0; i < 3; ++i) {
    numbers.push_back({fields[i], std::clamp(bytes_per_s[i + 1] / bytes_per_s[0], 0.05, 1.0),
                       absl::StrCat(how, ", beside the same with 16 bytes a thread")});
  }
  const int64_t of_block = sizes.Of(1 << 22, 1 << 14), bytes = kFewSms * of_block * 2;
  RG_ASSIGN_OR_RETURN(const auto stream, bench.Text("rg_stream",
                                                    absl::StrCat("#define RG_OF_BLOCK int64_t{",
                                                                 of_block, "}\n", kStream),
                                                    kFewSms, 1024, {bytes, bytes, bytes}));
  RG_ASSIGN_OR_RETURN(const double stream_us, bench.InARow(stream.get()));
  numbers.push_back(
      {"sm_bytes_per_s",
       std::max(3 * static_cast<double>(bytes) / kFewSms * kSecond / stream_us, 1e9),
       absl::StrFormat("two reads and one write by %d blocks of 1024 threads", kFewSms)});
  const DeviceFacts facts = device->Describe();
  numbers.push_back({"sms", static_cast<double>(facts.sms), "the driver"});
  if (facts.cache_bytes > 0) {
    numbers.push_back({"cache_bytes", static_cast<double>(facts.cache_bytes), "the driver"});
  }
  return numbers;
}

absl::StatusOr<std::vector<SpecNumber>> CalibrateRates(const std::string& text,
                                                       const BenchSizes& sizes, Device* device) {
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, ParseDeviceSpec(text, "calibrate"));
  KernelBench bench(device, sizes.repeat);
  struct Class {
    const char *field, *op;
    bool binary;
  };
  // tanh and erf keep their results small; a quotient by numbers from 1 to 2 stays above 2^-60.
  constexpr Class kClasses[] = {
      {"rate_divide", "div", true}, {"rate_special", "tanh", false}, {"rate_erf", "erf", false}};
  const int64_t elements = sizes.Of(1 << 22, 1 << 10);
  constexpr int kFew = 20, kMany = 60;
  std::vector<SpecNumber> numbers;
  for (const Class& c : kClasses) {
    double us[2] = {};
    for (int i = 0; i < 2; ++i) {
      RG_ASSIGN_OR_RETURN(
          const KernelBody body,
          PlannedKernel(ChainGraph(c.op, c.binary, elements, i == 0 ? kFew : kMany, "f32"), spec));
      RG_ASSIGN_OR_RETURN(const auto work, bench.Kernel(body.ir, body.schedule));
      RG_ASSIGN_OR_RETURN(us[i], bench.Alone(work.get()));
    }
    const double per_second =
        static_cast<double>(elements) * (kMany - kFew) * kSecond / std::max(us[1] - us[0], 1e-3);
    numbers.push_back({c.field,
                       std::max(per_second / static_cast<double>(spec.clock_hz * spec.sms), 1e-3),
                       absl::StrFormat("%s: a kernel of %d on %d fp32 elements less one of %d",
                                       c.op, kMany, elements, kFew)});
  }
  return numbers;
}

}  // namespace retrograd
