#include "runtime/ops/attention/attention_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/host/host_numbers.h"

namespace retrograd {
namespace {

constexpr int kK = 2, kLse = 5;                    // operands
constexpr int64_t kBlock = 1 << 18;                // elements, which repeat
constexpr int64_t kMostBytes = int64_t{16} << 20;  // that are compared
constexpr double kMostDifference = 0.02;

// The same block again and again.
absl::Status FillWith(Device& device, const std::vector<char>& block, void* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(block.size())) {
    RG_RETURN_IF_ERROR(
        device.CopyIn(static_cast<char*>(data) + at, block.data(),
                      std::min<int64_t>(bytes - at, static_cast<int64_t>(block.size()))));
  }
  return absl::OkStatus();
}

template <typename Next>
std::vector<char> Block(DType dtype, int64_t elements, const Next& next) {
  elements = std::min(elements, kBlock);
  std::vector<char> block(static_cast<size_t>(elements * SizeBytes(dtype)));
  WithFloatType(dtype, [&](auto* type) {
    auto* p = reinterpret_cast<decltype(type)>(block.data());
    for (int64_t i = 0; i < elements; ++i) StoreAs(p, i, next());
  });
  return block;
}

// Of the elements of [B,H,T,D] that lie in the bytes, which begin with the first one.
std::vector<float> Elements(const CallTensor& t, DType dtype, const std::vector<char>& bytes) {
  std::vector<float> elements;
  WithFloatType(dtype, [&](auto* type) {
    const auto* const p =
        reinterpret_cast<std::add_const_t<std::remove_pointer_t<decltype(type)>>*>(bytes.data());
    const auto end = static_cast<int64_t>(bytes.size()) / SizeBytes(dtype);
    const auto append = [&](int64_t place) {
      if (place < end) elements.push_back(LoadAs<float>(p, place));
    };
    for (int64_t b = 0; b < t.shape[0]; ++b) {
      for (int64_t h = 0; h < t.shape[1]; ++h) {
        for (int64_t i = 0; i < t.shape[2]; ++i) {
          const int64_t row = b * t.strides[0] + h * t.strides[1] + i * t.strides[2];
          for (int64_t d = 0; d < t.shape[3]; ++d) append(row + d * t.strides[3]);
        }
      }
    }
  });
  return elements;
}

}  // namespace

absl::Status FillAttention(Device& device, const AttentionCall& call, const AttentionFacts& facts,
                           const CallPointers& pointers) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const double lse = std::log(static_cast<double>(call.operands[kK].shape[2]));
  for (size_t i = 0; i <= kLse; ++i) {
    const DType dtype = facts.operand_dtypes[i];
    const int64_t elements = SpanOf(call.operands[i]);
    const std::vector<char> block =
        Block(dtype, elements, [&] { return i == kLse ? lse : uniform(random); });
    RG_RETURN_IF_ERROR(FillWith(device, block, const_cast<void*>(pointers.operands[i]),
                                elements * SizeBytes(dtype)));
  }
  for (size_t i = AttentionSeed(call); i < call.operands.size(); ++i) {
    const int64_t number = i == AttentionSeed(call) ? 20061 : 64;  // offsets are multiples of 4
    const int64_t size = SizeBytes(facts.operand_dtypes[i]);
    char bytes[sizeof number];  // the low bytes come first
    std::memcpy(bytes, &number, sizeof number);
    auto* const data = static_cast<char*>(const_cast<void*>(pointers.operands[i]));
    RG_RETURN_IF_ERROR(device.CopyIn(data + call.operands[i].offset * size, bytes, size));
  }
  return absl::OkStatus();
}

absl::StatusOr<Gradients> GradientsOf(Device& device, const AttentionCall& call,
                                      const CallPointers& pointers) {
  Gradients gradients;
  for (size_t i = 0; i < call.results.size(); ++i) {
    const CallTensor& result = call.results[i];
    const int64_t size = SizeBytes(call.dtype);
    const int64_t bytes =
        std::clamp<int64_t>((SpanOf(result) - result.offset) * size, 0, kMostBytes);
    std::vector<char> first(static_cast<size_t>(bytes));
    RG_RETURN_IF_ERROR(device.CopyOut(
        first.data(), static_cast<const char*>(pointers.results[i]) + result.offset * size, bytes));
    gradients.push_back(Elements(result, call.dtype, first));
  }
  return gradients;
}

absl::Status SameGradients(const AttentionCall& call, const Gradients& ours,
                           const Gradients& theirs) {
  constexpr absl::string_view kNames[] = {"dQ", "dK", "dV", "dS"};
  for (size_t result = 0; result < ours.size(); ++result) {
    const bool both = result < theirs.size() && ours[result].size() == theirs[result].size();
    double difference = 0, size = 0;
    for (size_t i = 0; both && i < ours[result].size(); ++i) {
      const double their = theirs[result][i];
      difference += std::pow(ours[result][i] - their, 2);
      size += their * their;
    }
    // Also where one of them is no number.
    if (!both || !(difference <= kMostDifference * kMostDifference * size)) {
      return absl::UnimplementedError(absl::StrFormat(
          "attention_backward %%%d: %s of our kernels and of cuDNN differ by %g of its norm",
          Index(call.node), kNames[result], std::sqrt(difference / size)));
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
