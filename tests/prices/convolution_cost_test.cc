// Prices of convolutions' gradients: which implementation a call is priced as, and by which
// numbers.
#include "fusion/ops/convolution/convolution_cost.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "fusion/kernel/ir/scale.h"
#include "tests/catch.h"
#include "tests/support/plans/changed_spec.h"
#include "tests/support/plans/convolution_gradient.h"

namespace retrograd {
namespace {

DeviceSpec With(const std::vector<DeviceNumber>& numbers) { return ChangedSpec("h100", numbers); }

using Sizes = ConvolutionSizes;

constexpr Op kInput = Op::convolution_input_gradient, kWeight = Op::convolution_weight_gradient;

Call Gradient(Op op, const Sizes& sizes, DType dtype = DType::kBf16) {
  return ConvolutionGradient(op, sizes, dtype);
}

Sizes Depthwise(int64_t batch = 2) {
  return {.batch = batch, .channels = 96, .filters = 96, .groups = 96};
}

int64_t Ps(const Call& call, const DeviceSpec& device) {
  return PriceConvolution(call, device, /*explain=*/false).ps;
}

// Of the term that names the implementation.
std::string Way(const Call& call, const DeviceSpec& device) {
  return PriceConvolution(call, device, /*explain=*/true).terms[1].formula;
}

TEST_CASE("a gradient's price is that of whoever takes less") {
  const DeviceSpec slow_library = With({{"library_call_us", 1000}});
  const DeviceSpec slow_clock = With({{"clock_hz", 1e7}});
  for (const Op op : {kInput, kWeight}) {
    const Call call = Gradient(op, {});
    CHECK(Way(call, slow_library) == "an implicit GEMM of ours, by boxes");
    CHECK(Way(call, slow_clock).find("the library") == 0);
    CHECK(Ps(call, With({})) == std::min(Ps(call, slow_library), Ps(call, slow_clock)));
  }
}

TEST_CASE("fp32 and fp64 gradients that are not depthwise are priced as the library's") {
  const DeviceSpec slow_library = With({{"library_call_us", 1000}});
  for (const Op op : {kInput, kWeight}) {
    for (const DType dtype : {DType::kFp32, DType::kFp64}) {
      const Call call = Gradient(op, {}, dtype);
      CHECK(Way(call, slow_library).find("the library") == 0);
      CHECK(Ps(call, slow_library) > Ps(call, With({})));
    }
  }
}

TEST_CASE("depthwise gradients are priced as kernels of ours, by waits and what is multiplied") {
  const DeviceSpec device = With({}), slow_library = With({{"library_call_us", 1000}});
  for (const Op op : {kInput, kWeight}) {
    const Call call = Gradient(op, Depthwise());
    CHECK(Way(call, device) == "a depthwise kernel of ours");
    CHECK(Ps(call, slow_library) == Ps(call, device));
  }
  for (const Op op : {kInput, kWeight}) {
    const Call call = Gradient(op, Depthwise());
    CHECK(Ps(call, With({{"clock_hz", 1e7}})) > Ps(call, device));
  }
  CHECK(Ps(Gradient(kInput, Depthwise()), With({{"matmul_fp32_flops", 1e12}})) >
        Ps(Gradient(kInput, Depthwise()), device));
}

TEST_CASE("filters with more rows of taps take longer by a wait for each") {
  const DeviceSpec device = With({{"matmul_fp32_flops", 1e18}, {"hbm_bytes_per_s", 1e15}});
  const auto taps = [&](int64_t n) {
    Sizes sizes = Depthwise();
    sizes.taps = n;
    return Ps(Gradient(kInput, sizes), device);
  };
  const int64_t row = (taps(5) - taps(3)) / 2;
  CHECK(row > 0);
  CHECK(std::abs(taps(7) - taps(5) - 2 * row) < row / 10);
}

TEST_CASE("channels that come one by one make gradients slower than pairs of them do") {
  const DeviceSpec device = With({}), slow_library = With({{"library_call_us", 1000}}),
                   slow_clock = With({{"clock_hz", 1e7}});
  for (const DeviceSpec* spec : {&device, &slow_library, &slow_clock}) {
    CHECK(Ps(Gradient(kWeight, {.channels = 3}), *spec) >
          Ps(Gradient(kWeight, {.channels = 4}), *spec));
  }
  const DeviceSpec odd = With({{"clock_hz", 1e7}, {"matmul_odd_pitch_factor", 50}});
  CHECK(Ps(Gradient(kWeight, {.channels = 3}), odd) >
        Ps(Gradient(kWeight, {.channels = 3}), slow_clock));
  CHECK(Ps(Gradient(kWeight, {.channels = 4}), odd) ==
        Ps(Gradient(kWeight, {.channels = 4}), slow_clock));
}

TEST_CASE("a library's input gradient with strides takes longer than the same sums without") {
  const DeviceSpec library = With({{"clock_hz", 1e7}});
  const Sizes one = {.taps = 1}, two = {.taps = 1, .stride = 2};
  CHECK(Ps(Gradient(kInput, two), library) > Ps(Gradient(kInput, one), library));
  CHECK(Ps(Gradient(kWeight, two), library) <= Ps(Gradient(kWeight, one), library));
}

TEST_CASE("each number of the spec makes dearer what it is of, and nothing else") {
  // Who makes a call is held: the library where kernels of ours have a slow clock.
  const DeviceNumber slow_clock = {"clock_hz", 1e7}, slow_library = {"library_call_us", 1000};
  struct Row {
    const char* number;
    double larger;
    DeviceNumber held;
    Call of, not_of;
  };
  const Sizes strided = {.stride = 2}, narrow = {.channels = 3};
  const Row rows[] = {
      {"convolution_gather_factor", 50, slow_clock, Gradient(kInput, {}),
       Gradient(kInput, Depthwise())},
      {"convolution_stride_factor", 50, slow_clock, Gradient(kInput, strided),
       Gradient(kWeight, strided)},
      {"convolution_cycles_factor", 50, slow_library, Gradient(kWeight, narrow),
       Gradient(kInput, Depthwise())},
      {"convolution_narrow_factor", 50, slow_library, Gradient(kWeight, narrow),
       Gradient(kWeight, {})},
      {"convolution_boxes_factor", 2, slow_library, Gradient(kWeight, {}),
       Gradient(kWeight, narrow)},
      {"depthwise_row_cycles", 4000, slow_library, Gradient(kInput, Depthwise()),
       Gradient(kWeight, Depthwise())},
  };
  for (const Row& row : rows) {
    INFO(row.number);
    const DeviceSpec before = With({row.held}), after = With({row.held, {row.number, row.larger}});
    CHECK(Ps(row.of, after) > Ps(row.of, before));
    CHECK(Ps(row.not_of, after) == Ps(row.not_of, before));
  }
  CHECK(Ps(Gradient(kInput, Depthwise(64)), With({{"depthwise_fp32_share", 0.01}})) >
        Ps(Gradient(kInput, Depthwise(64)), With({})));
}

TEST_CASE("a library's depthwise gradients of row-major images take their share of fp32's rate") {
  const auto row_major = [](Op op, const Sizes& sizes) { return RowMajor(Gradient(op, sizes)); };
  const DeviceSpec all = With({{"depthwise_row_major_share", 1}}),
                   tenth = With({{"depthwise_row_major_share", 0.1}});
  for (const Op op : {kInput, kWeight}) {
    const Call call = row_major(op, Depthwise(64));
    CHECK(Way(call, tenth).find("the library") == 0);
    CHECK(Ps(call, tenth) > Ps(call, all));
    CHECK(Ps(Gradient(op, Depthwise(64)), tenth) == Ps(Gradient(op, Depthwise(64)), all));
    CHECK(Ps(row_major(op, {}), tenth) == Ps(row_major(op, {}), all));
  }
  // An input's gradient goes through the pixels between strides, that of a weight does not.
  Sizes strided = Depthwise(64);
  strided.stride = 2;
  const auto of_strided = [&](Op op) { return Ps(row_major(op, strided), tenth); };
  CHECK(of_strided(kInput) > of_strided(kWeight) * 2);
}

TEST_CASE("a device without boxes of images has gradients priced without them") {
  const DeviceSpec with = With({{"library_call_us", 1000}});
  DeviceSpec without = with;
  without.convolution_boxes_ppm = 0;
  for (const Op op : {kInput, kWeight}) {
    CHECK(Way(Gradient(op, {}), with) == "an implicit GEMM of ours, by boxes");
    CHECK(Way(Gradient(op, {}), without) == "an implicit GEMM of ours");
    CHECK(Ps(Gradient(op, {}), without) > Ps(Gradient(op, {}), with));
    CHECK(Ps(Gradient(op, {.channels = 12, .filters = 12}), without) ==
          Ps(Gradient(op, {.channels = 12, .filters = 12}), with));
  }
  const DeviceSpec dear = With({{"library_call_us", 1000}, {"convolution_boxes_factor", 500}});
  CHECK(Ps(Gradient(kInput, {}), dear) == Ps(Gradient(kInput, {}), without));
  for (const char* device : {"mi250x", "mi300x"}) {
    CHECK(LoadDeviceSpec(device)->convolution_boxes_ppm == 0);
  }
}

TEST_CASE("a gradient's terms add up to its price, one binds, and its bytes bound it") {
  const DeviceSpec device = With({});
  const std::vector<Sizes> list = {{},
                                   {.batch = 64, .channels = 8, .extent = 112, .filters = 8},
                                   {.channels = 3, .extent = 64, .taps = 7, .stride = 2},
                                   {.channels = 48, .filters = 48, .groups = 2},
                                   Depthwise(),
                                   Depthwise(64)};
  for (const Op op : {kInput, kWeight}) {
    for (const Sizes& sizes : list) {
      const Call call = Gradient(op, sizes);
      const Price price = PriceConvolution(call, device, /*explain=*/true);
      CHECK(price.ps == Ps(call, device));
      int64_t sum = 0;
      int binding = 0;
      for (const Term& term : price.terms) {
        if (term.name == "launch" || term.binds) sum += term.ps;
        binding += term.binds ? 1 : 0;
      }
      CHECK(binding == 1);
      CHECK(sum == price.ps);
      const int64_t bytes = price.read_bytes + price.written_bytes;
      CHECK(price.ps >= TransferPs(bytes, device.hbm_bytes_per_s) + device.launch_graph_ps);
    }
  }
}

}  // namespace
}  // namespace retrograd
