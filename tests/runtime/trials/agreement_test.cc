// Which results count as the same numbers, and which parts of them are looked at.
#include "runtime/trials/agreement.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/rounding.h"
#include "tests/catch.h"
#include "tests/support/memory_device.h"

namespace retrograd {
namespace {

using Numbers = std::vector<float>;

Numbers Normal(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Numbers numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

Numbers Rounded(Numbers numbers, DType dtype) {
  for (float& number : numbers) number = static_cast<float>(RoundTo(dtype, number));
  return numbers;
}

TEST_CASE("roundings of the same numbers agree, and of others do not") {
  const Numbers exact = Normal(10000, 1);
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    CHECK(Agree(exact, Rounded(exact, dtype)));
    CHECK(Agree(Rounded(exact, dtype), exact));
  }
  CHECK_FALSE(Agree(exact, Normal(10000, 2)));
  CHECK_FALSE(Agree(exact, Numbers(10000, 0.0f)));
  CHECK_FALSE(Agree(Numbers(10000, 0.0f), exact));
  CHECK(Agree(Numbers(10, 0.0f), Numbers(10, 0.0f)));
  CHECK(Agree({}, {}));
}

TEST_CASE("one wrong element in many is enough") {
  const Numbers exact = Normal(100000, 1);
  Numbers wrong = exact;
  wrong[777] += 3;
  CHECK_FALSE(Agree(exact, wrong));
  wrong = exact;
  for (size_t i = 0; i < wrong.size(); i += 100) wrong[i] = 0;
  CHECK_FALSE(Agree(exact, wrong));
}

TEST_CASE("what is finite in one alone does not agree") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Numbers exact = Normal(100000, 1);
  for (const float number : {kNan, kInfinity}) {
    Numbers other = exact;
    other[5] = number;
    CHECK_FALSE(Agree(exact, other));
    CHECK_FALSE(Agree(other, exact));
    CHECK(Agree(other, other));
  }
}

TEST_CASE("those stay whom most engines agree with, and of equally many the first") {
  const Numbers a = Normal(100, 1), b = Normal(100, 2), c = Normal(100, 3);
  struct Case {
    std::vector<std::pair<std::string, Numbers>> made;
    size_t kept;
    std::vector<size_t> out;
  };
  for (const Case& one : std::vector<Case>{
           {{}, 0, {}},
           {{{"1", a}}, 0, {}},
           {{{"1", a}, {"2", a}, {"3", a}}, 0, {}},
           {{{"1", a}, {"2", b}}, 0, {1}},
           {{{"1", a}, {"2", b}, {"3", b}}, 1, {0}},
           {{{"1", a}, {"2", b}, {"2", b}}, 0, {1, 2}},  // one engine with other knobs
           {{{"1", a}, {"2", b}, {"2", b}, {"3", b}}, 1, {0}},
           {{{"1", b}, {"2", a}, {"3", b}, {"4", c}, {"5", b}}, 0, {1, 3}},
           {{{"1", a}, {"2", a}, {"3", b}, {"4", b}}, 0, {2, 3}},
       }) {
    std::vector<MadeNumbers> made;
    for (const auto& [engine, numbers] : one.made) made.push_back({engine, numbers});
    const Agreement agreement = AgreementOf(made);
    CHECK(agreement.kept == one.kept);
    CHECK(agreement.disagreeing == one.out);
  }
}

// Results of so many elements, written from the host.
struct Results {
  explicit Results(std::vector<StoredValues> stored) : memory{.results = std::move(stored)} {
    for (const StoredValues& values : memory.results) {
      bytes.emplace_back(static_cast<size_t>(values.bytes()), char{1});
    }
    for (std::vector<char>& one : bytes) addresses.push_back(one.data());
  }
  CallPointers pointers() { return {{}, absl::MakeSpan(addresses)}; }
  MemoryDevice device;
  CallMemory memory;
  std::vector<std::vector<char>> bytes;
  std::vector<void*> addresses;
};

TEST_CASE("small results are looked at as a whole, of large ones parts from both ends on") {
  const int64_t elements = GENERATE(0, 1, 1000, 1 << 18, (1 << 18) + 1, 3'000'001);
  const bool added_to = GENERATE(false, true);
  Results results({{.dtype = DType::kFp32, .elements = elements, .added_to = added_to},
                   {.dtype = DType::kInt32, .elements = 100}});
  ResultSample sample(results.device, results.memory);
  REQUIRE(sample.Clear(results.pointers()).ok());
  auto read = sample.Read(results.pointers());
  REQUIRE(read.ok());
  CHECK(read->size() == static_cast<size_t>(std::min<int64_t>(elements, 1 << 18)));
  for (const float number : *read) {
    REQUIRE((added_to ? number == 0 : std::isnan(number)));  // what nobody writes
  }
  if (elements == 0) return;
  auto* const numbers = reinterpret_cast<float*>(results.bytes[0].data());
  numbers[0] = 1;
  numbers[elements - 1] = elements == 1 ? 1.0f : 2.0f;
  read = sample.Read(results.pointers());
  REQUIRE(read.ok());
  CHECK(read->front() == 1);
  CHECK(read->back() == (elements == 1 ? 1.0f : 2.0f));
}

TEST_CASE("operands hold drawn numbers, the same each time, and indices zeros") {
  MemoryDevice device;
  const int64_t many = 5'000'000;  // more than one copy brings in
  const CallMemory memory = {.operands = {{.dtype = DType::kFp32, .elements = many},
                                          {.dtype = DType::kBf16, .elements = 5},
                                          {.dtype = DType::kInt64, .elements = 7},
                                          {.dtype = DType::kFp32, .elements = 9, .number = 2.5}}};
  std::vector<float> floats(many), constants(9);
  std::vector<uint16_t> halves(5);
  std::vector<int64_t> indices(7, 9);
  const std::vector<const void*> addresses = {floats.data(), halves.data(), indices.data(),
                                              constants.data()};
  REQUIRE(DrawOperands(device, memory, {addresses, {}}).ok());
  CHECK(indices == std::vector<int64_t>(7, 0));
  CHECK(constants == std::vector<float>(9, 2.5f));
  double sum = 0, squares = 0;
  for (const float x : floats) {
    REQUIRE(x >= -1);
    REQUIRE(x <= 1);
    sum += x;
    squares += x * x;
  }
  CHECK(std::fabs(sum / many) < 0.01);
  CHECK(squares / many == Approx(1.0 / 3).epsilon(0.01));
  const std::vector<float> first = floats;
  REQUIRE(DrawOperands(device, memory, {addresses, {}}).ok());
  CHECK(floats == first);
}

TEST_CASE("operands of equal kind hold other numbers: a product that lies the other way is seen") {
  constexpr int64_t kRows = 2000, kColumns = 16;
  MemoryDevice device;
  const StoredValues matrix{.dtype = DType::kFp32, .elements = kRows * kColumns};
  const CallMemory memory = {.operands = {matrix, matrix}};
  std::vector<float> a(kRows * kColumns), b = a;
  const std::vector<const void*> addresses = {a.data(), b.data()};
  REQUIRE(DrawOperands(device, memory, {addresses, {}}).ok());
  Numbers product(kColumns * kColumns), other = product;
  for (int64_t k = 0; k < kRows; ++k) {
    for (int64_t m = 0; m < kColumns; ++m) {
      for (int64_t n = 0; n < kColumns; ++n) {
        const float term = a[k * kColumns + m] * b[k * kColumns + n];
        product[m * kColumns + n] += term;
        other[n * kColumns + m] += term;
      }
    }
  }
  CHECK_FALSE(Agree(product, other));
}

}  // namespace
}  // namespace retrograd
