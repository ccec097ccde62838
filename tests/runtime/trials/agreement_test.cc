// Which results count as the same numbers, and which parts of them are looked at.
#include "runtime/trials/agreement.h"

#include <cmath>
#include <limits>
#include <random>
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

TEST_CASE("those that most agree with stay, and of equally many the first") {
  const Numbers a = Normal(100, 1), b = Normal(100, 2), c = Normal(100, 3);
  const auto out = [](std::vector<Numbers> samples) { return Disagreeing(samples); };
  CHECK(out({}).empty());
  CHECK(out({a}).empty());
  CHECK(out({a, a, a}).empty());
  CHECK(out({a, b}) == std::vector<size_t>{1});
  CHECK(out({a, b, b}) == std::vector<size_t>{0});
  CHECK(out({b, a, b, c, b}) == std::vector<size_t>{1, 3});
  CHECK(out({a, a, b, b}) == std::vector<size_t>{2, 3});
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
  Results results({{DType::kFp32, elements}, {DType::kInt32, 100}});
  ResultSample sample(results.device, results.memory);
  REQUIRE(sample.Clear(results.pointers()).ok());
  auto read = sample.Read(results.pointers());
  REQUIRE(read.ok());
  CHECK(read->size() == static_cast<size_t>(std::min<int64_t>(elements, 1 << 18)));
  CHECK(*read == Numbers(read->size(), 0.0f));
  if (elements == 0) return;
  auto* const numbers = reinterpret_cast<float*>(results.bytes[0].data());
  numbers[0] = 1;
  numbers[elements - 1] = elements == 1 ? 1.0f : 2.0f;
  read = sample.Read(results.pointers());
  REQUIRE(read.ok());
  CHECK(read->front() == 1);
  CHECK(read->back() == (elements == 1 ? 1.0f : 2.0f));
}

TEST_CASE("what is no number counts as nothing") {
  Results results({{DType::kFp32, 3}});
  auto* const numbers = reinterpret_cast<float*>(results.bytes[0].data());
  numbers[0] = std::numeric_limits<float>::quiet_NaN();
  numbers[1] = -std::numeric_limits<float>::infinity();
  numbers[2] = 5;
  const auto read = ResultSample(results.device, results.memory).Read(results.pointers());
  REQUIRE(read.ok());
  CHECK(*read == Numbers{0, 0, 5});
}

TEST_CASE("operands hold drawn numbers, the same each time, and indices zeros") {
  MemoryDevice device;
  const CallMemory memory = {
      .operands = {{DType::kFp32, 600000}, {DType::kBf16, 5}, {DType::kInt64, 7}}};
  std::vector<float> floats(600000);
  std::vector<uint16_t> halves(5);
  std::vector<int64_t> indices(7, 9);
  const std::vector<const void*> addresses = {floats.data(), halves.data(), indices.data()};
  REQUIRE(DrawOperands(device, memory, {addresses, {}}).ok());
  CHECK(indices == std::vector<int64_t>(7, 0));
  double sum = 0, squares = 0;
  for (const float x : floats) {
    REQUIRE(std::fabs(x) <= 1);
    sum += x;
    squares += x * x;
  }
  CHECK(std::fabs(sum / 600000) < 0.01);
  CHECK(squares / 600000 == Approx(1.0 / 3).epsilon(0.01));
  const std::vector<float> first = floats;
  REQUIRE(DrawOperands(device, memory, {addresses, {}}).ok());
  CHECK(floats == first);
}

}  // namespace
}  // namespace retrograd
