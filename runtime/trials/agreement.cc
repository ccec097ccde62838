#include "runtime/trials/agreement.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"
#include "runtime/host/host_numbers.h"

namespace retrograd {
namespace {

// A prime number of drawn elements, repeated: rows of a matrix are shifts of each other at most.
constexpr int64_t kDrawn = 65521, kDrawnInACopy = 16;

constexpr int64_t kWhole = int64_t{1} << 18, kParts = 64, kPart = kWhole / kParts;

constexpr double kNormPart = 1.0 / 32, kElementPart = 1.0 / 4;

// For whole copies of what is drawn: as many elements as memory has, or as a copy brings in.
std::vector<char> Drawn(const StoredValues& stored, std::mt19937& random) {
  const int64_t size = SizeBytes(stored.dtype), drawn = std::min(stored.elements, kDrawn);
  std::vector<char> bytes(static_cast<size_t>(drawn * size));
  WithFloatType(stored.dtype, [&](auto* type) {
    auto* const p = reinterpret_cast<decltype(type)>(bytes.data());
    for (int64_t i = 0; i < drawn; ++i) {
      StoreAs(p, i, stored.number.value_or(std::ldexp(static_cast<double>(random()), -31) - 1));
    }
  });
  const int64_t copies =
      CeilDiv(std::min(stored.elements, kDrawnInACopy * kDrawn), std::max(drawn, int64_t{1}));
  const size_t once = bytes.size();
  bytes.resize(once * static_cast<size_t>(std::max(copies, int64_t{1})));
  for (size_t at = once; at < bytes.size(); at += once) {
    std::copy_n(bytes.begin(), once, bytes.begin() + static_cast<ptrdiff_t>(at));
  }
  return bytes;
}

// f(first element, elements) of each part that is looked at.
absl::Status ForEachPart(int64_t elements, absl::FunctionRef<absl::Status(int64_t, int64_t)> f) {
  if (elements <= kWhole) return elements > 0 ? f(0, elements) : absl::OkStatus();
  const double step = static_cast<double>(elements - kPart) / (kParts - 1);
  for (int64_t i = 0; i < kParts; ++i) {
    RG_RETURN_IF_ERROR(f(std::llround(static_cast<double>(i) * step), kPart));
  }
  return absl::OkStatus();
}

void AppendNumbers(const std::vector<char>& bytes, DType dtype, std::vector<float>& numbers) {
  WithFloatType(dtype, [&](auto* type) {
    const auto* const p =
        reinterpret_cast<std::add_const_t<std::remove_pointer_t<decltype(type)>>*>(bytes.data());
    const auto elements = static_cast<int64_t>(bytes.size()) / SizeBytes(dtype);
    for (int64_t i = 0; i < elements; ++i) {
      numbers.push_back(LoadAs<float>(p, i));
    }
  });
}

}  // namespace

absl::Status DrawOperands(Device& device, const CallMemory& memory, const CallPointers& pointers) {
  std::mt19937 random(1);
  for (size_t i = 0; i < memory.operands.size(); ++i) {
    const StoredValues& stored = memory.operands[i];
    const std::vector<char> drawn = Drawn(stored, random);
    char* const to = static_cast<char*>(const_cast<void*>(pointers.operands[i]));
    const auto step = static_cast<int64_t>(drawn.size());
    for (int64_t at = 0; at < stored.bytes(); at += step) {
      const int64_t bytes = std::min(step, stored.bytes() - at);
      RG_RETURN_IF_ERROR(device.CopyIn(to + at, drawn.data(), bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status ResultSample::Clear(const CallPointers& pointers) {
  for (size_t i = 0; i < memory_.results.size(); ++i) {
    const StoredValues& stored = memory_.results[i];
    const int64_t size = SizeBytes(stored.dtype);
    const char byte = IsFloat(stored.dtype) && !stored.added_to ? '\xff' : '\0';
    RG_RETURN_IF_ERROR(ForEachPart(stored.elements, [&](int64_t first, int64_t elements) {
      const std::vector<char> bytes(static_cast<size_t>(elements * size), byte);
      return device_.CopyIn(static_cast<char*>(pointers.results[i]) + first * size, bytes.data(),
                            elements * size);
    }));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> ResultSample::Read(const CallPointers& pointers) {
  std::vector<float> numbers;
  for (size_t i = 0; i < memory_.results.size(); ++i) {
    const StoredValues& stored = memory_.results[i];
    const int64_t size = SizeBytes(stored.dtype);
    if (!IsFloat(stored.dtype)) continue;
    RG_RETURN_IF_ERROR(ForEachPart(stored.elements, [&](int64_t first, int64_t elements) {
      std::vector<char> bytes(static_cast<size_t>(elements * size));
      RG_RETURN_IF_ERROR(device_.CopyOut(
          bytes.data(), static_cast<const char*>(pointers.results[i]) + first * size,
          elements * size));
      AppendNumbers(bytes, stored.dtype, numbers);
      return absl::OkStatus();
    }));
  }
  return numbers;
}

bool Agree(absl::Span<const float> a, absl::Span<const float> b) {
  double of_a = 0, of_b = 0, of_difference = 0, largest = 0, most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i], y = b[i], difference = x - y;
    if (std::isfinite(x) != std::isfinite(y)) return false;
    if (!std::isfinite(x)) continue;
    of_a += x * x;
    of_b += y * y;
    of_difference += difference * difference;
    largest = std::max({largest, std::fabs(x), std::fabs(y)});
    most = std::max(most, std::fabs(difference));
  }
  return of_difference <= kNormPart * kNormPart * std::max(of_a, of_b) &&
         most <= kElementPart * largest;
}

Agreement AgreementOf(absl::Span<const MadeNumbers> made) {
  Agreement best;
  size_t most = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    Agreement one{.kept = i, .disagreeing = {}};
    std::set<absl::string_view> engines;
    for (size_t k = 0; k < made.size(); ++k) {
      if (k == i || Agree(made[i].numbers, made[k].numbers)) {
        engines.insert(made[k].engine);
      } else {
        one.disagreeing.push_back(k);
      }
    }
    const bool all = one.disagreeing.empty();
    if (engines.size() > most) best = std::move(one);
    most = std::max(most, engines.size());
    if (all) break;
  }
  return best;
}

}  // namespace retrograd
