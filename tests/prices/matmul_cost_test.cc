// Prices of matmuls: what they follow of the device, and of how their operands lie.
#include "fusion/ops/matmul/matmul_cost.h"

#include <cmath>

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

// decorrelation in bench/results/ops_at_other_sizes_h200.json and ops_nvidia_h200.json, whose
// graphs allow TF32: 343.3, 51.9 us. A graph that does not is not given its rate.
TEST_CASE("products of fp32 reach the rate that the graph's numerics allow") {
  const DeviceSpec device = With("h200", {});
  const auto us = [&](MatMulCall call, bool tf32) {
    call.tf32 = tf32;
    return static_cast<double>(PriceMatMul(call, device).ps) / 1e6;
  };
  const MatMulCall large = Product(1024, 8192, 8192, DType::kFp32);
  const MatMulCall square = Product(2048, 2048, 2048, DType::kFp32);
  CHECK(std::abs(us(large, true) / 343.3 - 1) < 0.2);
  CHECK(std::abs(us(square, true) / 51.9 - 1) < 0.2);
  CHECK(us(large, false) > 5 * us(large, true));
  const MatMulCall narrow = Product(2048, 2048, 2048);
  CHECK(us(narrow, true) == us(narrow, false));
}

// bf16 over a vocabulary of 30,522 words on one H200 (docs/benchmarks.md), as times of the same
// product of 30,528.
TEST_CASE("matmuls of lengths that vectors do not divide take as much longer as was measured") {
  const DeviceSpec device = With("h200", {});
  const auto ratio = [&](const MatMulCall& odd, const MatMulCall& even) {
    return static_cast<double>(PriceMatMul(odd, device).ps) /
           static_cast<double>(PriceMatMul(even, device).ps);
  };
  const auto near = [](double measured) { return Catch::Matchers::WithinRel(measured, 0.12); };
  // dW = dYᵀ X: dY lies row by row.
  const auto weights = [](int64_t words, int64_t pitch) {
    MatMulCall call = Product(words, 768, 4096);
    call.a = {.row_stride = 1, .col_stride = pitch};
    return call;
  };
  CHECK_THAT(ratio(weights(30522, 30522), weights(30528, 30528)), near(774.0 / 257));
  CHECK_THAT(ratio(weights(30522, 30528), weights(30528, 30528)), near(422.0 / 257));
  // dX = dY W.
  const auto inputs = [](int64_t words, int64_t pitch) {
    MatMulCall call = Product(4096, 768, words);
    call.a.row_stride = pitch;
    return call;
  };
  CHECK_THAT(ratio(inputs(30522, 30522), inputs(30528, 30528)), near(812.0 / 248));
  CHECK_THAT(ratio(inputs(30522, 30528), inputs(30528, 30528)), near(827.0 / 248));
}

TEST_CASE("rows of the result that begin anywhere cost a matmul as much as operands' rows do") {
  const DeviceSpec device = With("h100", {});
  // x wᵀ: both operands lie along the sum.
  const auto product = [](int64_t columns) {
    MatMulCall call = Product(8192, columns, 4096);
    call.b = {.row_stride = 1, .col_stride = 4096};
    return call;
  };
  const int64_t even = PriceLibraryMatMul(product(1024), device).ps;
  CHECK(PriceLibraryMatMul(product(1020), device).ps > 2 * even);
  CHECK(PriceLibraryMatMul(product(1023), device).ps > 4 * even);
  MatMulCall wide = product(1020);
  wide.out_dtype = DType::kFp32;  // whose rows begin at multiples of 16 bytes
  CHECK(PriceLibraryMatMul(wide, device).ps < 2 * even);
}

TEST_CASE("what is aligned, of another type or of unknown layout costs no more") {
  const DeviceSpec device = With("h200", {});
  const DeviceSpec dear =
      With("h200", {{"matmul_odd_pitch_factor", 50}, {"matmul_odd_extent_factor", 50}});
  MatMulCall unknown = Product(1001, 999, 4097);
  unknown.a = unknown.b = unknown.d = {};
  for (const MatMulCall& call :
       {Product(1024, 768, 4096), Product(1001, 999, 4097, DType::kFp32), unknown}) {
    CHECK(PriceMatMul(call, device).ps == PriceMatMul(call, dear).ps);
  }
  const MatMulCall odd = Product(1024, 768, 4097);
  CHECK(PriceMatMul(odd, device).ps < PriceMatMul(odd, dear).ps);
}

}  // namespace
}  // namespace retrograd
