#include "runtime/ops/convolution/host_convolution.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "fusion/ops/convolution/convolution_call.h"
#include "runtime/host/host_numbers.h"

namespace retrograd {
namespace {

int64_t ElementsOf(const ConvolutionTensor& t) {
  int64_t elements = 1;
  for (int64_t extent : t.shape) elements *= extent;
  return elements;
}

int64_t Padded(int64_t elements) { return (elements + 15) / 16 * 16; }

// Calls fn(element, address) for every element of the tensor, row-major.
template <typename Fn>
void ForElements(const ConvolutionTensor& t, Fn fn) {
  int64_t element = 0;
  for (int64_t a = 0; a < t.shape[0]; ++a) {
    for (int64_t b = 0; b < t.shape[1]; ++b) {
      for (int64_t c = 0; c < t.shape[2]; ++c) {
        for (int64_t d = 0; d < t.shape[3]; ++d) {
          const int64_t row =
              t.offset + a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d * t.strides[3];
          for (int64_t e = 0; e < t.shape[4]; ++e) fn(element++, row + e * t.strides[4]);
        }
      }
    }
  }
}

// Dense copies of x, w and y in the type that sums are made in.
template <typename C>
struct Dense {
  C *x, *w, *y;
};

template <typename C>
class Convolution {
 public:
  Convolution(const ConvolutionCall& call, const Dense<C>& data) : c_(call), data_(data) {}

  void Run() {
    const int64_t per_group = c_.in_channels_of_group();
    const int64_t out_per_group = c_.out_channels_of_group();
    for (int64_t k = 0; k < c_.geometry.out_channels; ++k) {
      for (int64_t c = 0; c < per_group; ++c) {
        const int64_t channel = k / out_per_group * per_group + c;
        C* const w = data_.w + (k * per_group + c) * Volume(c_.kernel);
        for (int64_t n = 0; n < c_.geometry.batch; ++n) {
          Plane(w, data_.x + (n * c_.geometry.in_channels + channel) * Volume(c_.in),
                data_.y + (n * c_.geometry.out_channels + k) * Volume(c_.out));
        }
      }
    }
  }

 private:
  static int64_t Volume(const SpatialExtents& e) { return e[0] * e[1] * e[2]; }

  // The output pixels [first, last) that the tap reads inside of the input.
  std::pair<int64_t, int64_t> Inside(int d, int64_t tap) const {
    const int64_t origin = tap * c_.dilation[d] - c_.padding[d];
    const int64_t first = origin >= 0 ? 0 : (-origin + c_.stride[d] - 1) / c_.stride[d];
    const int64_t last = origin >= c_.in[d] ? 0 : (c_.in[d] - 1 - origin) / c_.stride[d] + 1;
    return {first, std::min(last, c_.out[d])};
  }

  // One channel in, one out, of one image.
  void Plane(C* w, C* x, C* y) const {
    SpatialExtents tap;
    for (tap[0] = 0; tap[0] < c_.kernel[0]; ++tap[0]) {
      for (tap[1] = 0; tap[1] < c_.kernel[1]; ++tap[1]) {
        for (tap[2] = 0; tap[2] < c_.kernel[2]; ++tap[2]) Tap(tap, *w++, x, y);
      }
    }
  }

  void Tap(const SpatialExtents& tap, C& w, C* x, C* y) const {
    const auto [first0, last0] = Inside(0, tap[0]);
    const auto [first1, last1] = Inside(1, tap[1]);
    const auto [first2, last2] = Inside(2, tap[2]);
    if (first2 >= last2) return;
    const auto read = [&](int d, int64_t p) {
      return p * c_.stride[d] + tap[d] * c_.dilation[d] - c_.padding[d];
    };
    for (int64_t p = first0; p < last0; ++p) {
      for (int64_t q = first1; q < last1; ++q) {
        Row(w, x + (read(0, p) * c_.in[1] + read(1, q)) * c_.in[2] + read(2, first2),
            y + (p * c_.out[1] + q) * c_.out[2] + first2, last2 - first2);
      }
    }
  }

  void Row(C& w, C* x, C* y, int64_t count) const {
    const int64_t step = c_.stride[2];
    if (c_.op == Op::convolution_input_gradient) {
      for (int64_t i = 0; i < count; ++i) x[i * step] += y[i] * w;
    } else if (c_.op == Op::convolution_weight_gradient) {
      C sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += y[i] * x[i * step];
      w += sum;
    } else {
      for (int64_t i = 0; i < count; ++i) y[i] += x[i * step] * w;
    }
  }

  const ConvolutionCall& c_;
  const Dense<C> data_;
};

class HostConvolution : public LoadedCall {
 public:
  HostConvolution(ConvolutionCall call, int64_t scratch_bytes)
      : LoadedCall(scratch_bytes), call_(std::move(call)) {}

  absl::Status Run(int, const CallPointers& pointers, void* scratch) override {
    if (ComputeType(call_.y.dtype) == DType::kFp64) {
      RunIn<double>(pointers, static_cast<double*>(scratch));
    } else {
      RunIn<float>(pointers, static_cast<float*>(scratch));
    }
    return absl::OkStatus();
  }
  std::string Describe() const override { return "plain loops"; }

 private:
  template <typename C>
  static void Gather(const ConvolutionTensor& t, const void* from, C* to) {
    WithFloatType(t.dtype, [&](auto* type) {
      const auto* p = static_cast<decltype(type)>(const_cast<void*>(from));
      ForElements(t, [&](int64_t element, int64_t at) { to[element] = LoadAs<C>(p, at); });
    });
  }

  template <typename C>
  void RunIn(const CallPointers& pointers, C* scratch) const {
    Dense<C> data;
    data.x = scratch;
    data.w = data.x + Padded(ElementsOf(call_.x));
    data.y = data.w + Padded(ElementsOf(call_.w));
    const bool input = call_.op == Op::convolution_input_gradient;
    const bool weight = call_.op == Op::convolution_weight_gradient;
    Gather(input || weight ? call_.y : call_.x, pointers.operands[0],
           input || weight ? data.y : data.x);
    Gather(weight ? call_.x : call_.w, pointers.operands[1], weight ? data.x : data.w);
    const ConvolutionTensor& result = input ? call_.x : weight ? call_.w : call_.y;
    C* const made = input ? data.x : weight ? data.w : data.y;
    std::fill(made, made + ElementsOf(result), C{0});
    Convolution<C>(call_, data).Run();
    WithFloatType(result.dtype, [&](auto* type) {
      auto* p = static_cast<decltype(type)>(pointers.results[0]);
      ForElements(result, [&](int64_t element, int64_t at) { StoreAs(p, at, made[element]); });
    });
  }

  const ConvolutionCall call_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadHostConvolution(const Call& call) {
  ConvolutionCall convolution = ConvolutionOf(call);
  for (const ConvolutionTensor* t : {&convolution.x, &convolution.w, &convolution.y}) {
    if (IsFloat(t->dtype)) continue;
    return absl::UnimplementedError(absl::StrFormat(
        "%s %%%d in %s: only floating types", Name(call.op), Index(call.node), Name(t->dtype)));
  }
  const int64_t elements = Padded(ElementsOf(convolution.x)) + Padded(ElementsOf(convolution.w)) +
                           Padded(ElementsOf(convolution.y));
  const int64_t bytes = elements * SizeBytes(ComputeType(convolution.y.dtype));
  return std::make_unique<HostConvolution>(std::move(convolution), bytes);
}

}  // namespace retrograd
