// Two implementations' gradients of one attention call: what counts as the same.
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/devices/host_device.h"
#include "runtime/ops/attention/attention_gradients.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

constexpr int64_t kBatch = 2, kHeads = 3, kTokens = 5, kDim = 4;
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

// dQ, dK and dV [2,3,5,4] in fp32, each one third of the rows of its own [2,5,3*3*4].
AttentionCall Packed() {
  AttentionCall call;
  call.dtype = DType::kFp32;
  constexpr int64_t kRow = 3 * kHeads * kDim;
  for (int64_t third = 0; third < 3; ++third) {
    call.results.push_back({.offset = third * kHeads * kDim,
                            .shape = {kBatch, kHeads, kTokens, kDim},
                            .strides = {kTokens * kRow, kDim, kRow, 1}});
  }
  return call;
}

// What an implementation writes: `scale` times the place, into a gradient's elements alone.
std::vector<std::vector<float>> Written(const AttentionCall& call, float scale) {
  std::vector<std::vector<float>> results;
  for (const AttentionOperand& t : call.results) {
    std::vector<float> memory(static_cast<size_t>(SpanOf(t)), kNoNumber);
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t i = 0; i < kTokens; ++i) {
          for (int64_t d = 0; d < kDim; ++d) {
            const int64_t place =
                t.offset + b * t.strides[0] + h * t.strides[1] + i * t.strides[2] + d;
            memory[static_cast<size_t>(place)] = scale * static_cast<float>(place + 1);
          }
        }
      }
    }
    results.push_back(std::move(memory));
  }
  return results;
}

Gradients Read(Device& device, const AttentionCall& call, std::vector<std::vector<float>> results) {
  std::vector<void*> pointers;
  for (std::vector<float>& memory : results) pointers.push_back(memory.data());
  absl::StatusOr<Gradients> gradients = GradientsOf(device, call, {{}, absl::MakeSpan(pointers)});
  REQUIRE(gradients.ok());
  return *std::move(gradients);
}

TEST_CASE("what lies between the rows of a gradient does not count") {
  const std::unique_ptr<Device> device = MakeHostDevice({});
  const AttentionCall call = Packed();
  const Gradients ours = Read(*device, call, Written(call, 1));
  REQUIRE(ours.size() == 3);
  for (const std::vector<float>& gradient : ours) {
    CHECK(gradient.size() == kBatch * kHeads * kTokens * kDim);
  }
  CHECK(SameGradients(call, ours, Read(*device, call, Written(call, 1.001f))).ok());
}

TEST_CASE("other numbers, and an element that is none, are refused by the gradient's name") {
  const std::unique_ptr<Device> device = MakeHostDevice({});
  const AttentionCall call = Packed();
  const std::vector<std::vector<float>> right = Written(call, 1);
  constexpr const char* kNames[] = {"dQ", "dK", "dV"};
  for (size_t result = 0; result < 3; ++result) {
    std::vector<std::vector<float>> other = right;
    other[result] = Written(call, 1.1f)[result];
    std::vector<std::vector<float>> none = right;
    none[result].back() = kNoNumber;
    for (const auto& wrong : {other, none}) {
      const absl::Status status =
          SameGradients(call, Read(*device, call, wrong), Read(*device, call, right));
      CHECK(absl::IsUnimplemented(status));
      CHECK(status.message().find(kNames[result]) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace retrograd
