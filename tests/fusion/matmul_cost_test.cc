// Prices of matmuls: what they follow of the device.
#include "fusion/ops/matmul/matmul_cost.h"

#include "absl/strings/numbers.h"
#include "fusion/device/device_numbers.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

DeviceSpec With(const std::string& name, std::vector<DeviceNumber> numbers) {
  const auto text = ReadDeviceSpec(name);
  REQUIRE(text.ok());
  const auto changed = WithDeviceNumbers(*text, name, numbers);
  REQUIRE(changed.ok());
  const auto spec = ParseDeviceSpec(*changed, name);
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *spec;
}

// Row-major and dense unless said otherwise.
MatMulCall Product(int64_t m, int64_t n, int64_t k, DType dtype = DType::kBf16) {
  return {.m = m,
          .n = n,
          .k = k,
          .in_dtype = dtype,
          .out_dtype = dtype,
          .a = {.row_stride = k, .col_stride = 1},
          .b = {.row_stride = n, .col_stride = 1},
          .d = {.row_stride = n, .col_stride = 1}};
}

int64_t SlicesOf(const MatMulCall& call, const DeviceSpec& device) {
  for (const Term& term : PriceMatMul(call, device, /*explain=*/true).terms) {
    int64_t slices = 0;
    if (term.name == "split" &&
        absl::SimpleAtoi(term.formula.substr(0, term.formula.find(' ')), &slices)) {
      return slices;
    }
  }
  return 1;
}

TEST_CASE("a sum over k is divided into slices that fill the device's own SMs") {
  const MatMulCall call = Product(64, 64, 1 << 20);
  for (const double sms : {108, 132, 148, 304}) {
    INFO(sms);
    const int64_t slices = SlicesOf(call, With("h200", {{"sms", sms}}));
    CHECK(slices > 16);
    CHECK(static_cast<int64_t>(sms) % slices == 0);
  }
}

}  // namespace
}  // namespace retrograd
