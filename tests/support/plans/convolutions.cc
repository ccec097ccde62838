#include "tests/support/plans/convolutions.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace retrograd {
namespace {

std::vector<int64_t> Joined(int64_t first, int64_t second, const std::vector<int64_t>& rest) {
  std::vector<int64_t> all = {first, second};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

// With three spatial dims: those that lack have extent 1.
std::vector<int64_t> Three(std::vector<int64_t> list, int64_t lacking) {
  list.insert(list.begin(), 3 - list.size(), lacking);
  return list;
}

// Where one output pixel reads, or -1 outside of the input.
class Window {
 public:
  Window(const ConvolutionShape& shape, const std::vector<int64_t>& out)
      : in_(Three(shape.in, 1)),
        kernel_(Three(shape.kernel, 1)),
        out_(out),
        stride_(Three(shape.stride, 1)),
        padding_(Three(shape.padding, 0)),
        dilation_(Three(shape.dilation, 1)) {}

  int64_t pixels_in() const { return in_[0] * in_[1] * in_[2]; }
  int64_t taps() const { return kernel_[0] * kernel_[1] * kernel_[2]; }
  int64_t pixels_out() const { return out_[0] * out_[1] * out_[2]; }

  int64_t Read(int64_t pixel, int64_t tap) const {
    int64_t at = 0, scale = 1;
    for (int d = 2; d >= 0; --d) {
      const int64_t p = pixel % out_[d], r = tap % kernel_[d];
      const int64_t h = p * stride_[d] - padding_[d] + r * dilation_[d];
      if (h < 0 || h >= in_[d]) return -1;
      at += h * scale;
      scale *= in_[d];
      pixel /= out_[d];
      tap /= kernel_[d];
    }
    return at;
  }

 private:
  const std::vector<int64_t> in_, kernel_, out_, stride_, padding_, dilation_;
};

}  // namespace

std::vector<int64_t> ConvolutionShape::X() const { return Joined(batch, in_channels, in); }
std::vector<int64_t> ConvolutionShape::W() const {
  return Joined(out_channels, in_channels / groups, kernel);
}
std::vector<int64_t> ConvolutionShape::Y() const {
  std::vector<int64_t> out;
  for (size_t d = 0; d < in.size(); ++d) {
    const int64_t window = dilation[d] * (kernel[d] - 1) + 1;
    out.push_back((in[d] + 2 * padding[d] - window) / stride[d] + 1);
  }
  return Joined(batch, out_channels, out);
}
std::string ConvolutionShape::Print() const {
  return absl::StrCat("x[", absl::StrJoin(X(), ","), "] w[", absl::StrJoin(W(), ","), "] groups ",
                      groups, ", stride ", absl::StrJoin(stride, ","), ", padding ",
                      absl::StrJoin(padding, ","), ", dilation ", absl::StrJoin(dilation, ","));
}

ConvolutionShape SquareConvolution(int64_t batch, int64_t in_channels, int64_t out_channels,
                                   int64_t groups, int64_t in, int64_t kernel, int64_t stride,
                                   int64_t padding, int64_t dilation) {
  return {batch,
          in_channels,
          out_channels,
          groups,
          {in, in},
          {kernel, kernel},
          {stride, stride},
          {padding, padding},
          {dilation, dilation}};
}

CallTensor DenseTensor(const std::vector<int64_t>& shape, DType dtype, bool channels_last) {
  CallTensor t{.shape = {shape.begin(), shape.end()}, .dtype = dtype};
  t.strides.resize(shape.size());
  int64_t packed = channels_last ? shape[1] : 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (channels_last && axis == 1) {
      t.strides[axis] = 1;
      continue;
    }
    t.strides[axis] = packed;
    packed *= shape[axis];
  }
  return t;
}

Call MakeConvolution(Op op, const ConvolutionShape& shape, const ConvolutionLayout& layout) {
  const auto tensor = [&](const std::vector<int64_t>& dims, DType dtype) {
    return DenseTensor(dims, dtype, layout.channels_last);
  };
  Call call{.op = op,
            .attributes = {{"dilation", shape.dilation},
                           {"groups", shape.groups},
                           {"padding", shape.padding},
                           {"stride", shape.stride}}};
  const CallTensor x = tensor(shape.X(), layout.dtype), w = tensor(shape.W(), layout.dtype),
                   y = tensor(shape.Y(), layout.dtype);
  if (op == Op::convolution) {
    call.operands = {x, w};
    call.results = {y};
  } else if (op == Op::convolution_input_gradient) {
    call.operands = {y, w};
    call.results = {x};
    call.attributes.Set("input_shape", shape.X());
  } else {
    call.operands = {y, x};
    call.results = {w};
    call.attributes.Set("weight_shape", shape.W());
  }
  call.results[0].dtype = layout.result;
  return call;
}

void ForEachProduct(const ConvolutionShape& shape,
                    const std::function<void(int64_t, int64_t, int64_t)>& product) {
  const std::vector<int64_t> y = shape.Y();
  const Window window(shape, Three({y.begin() + 2, y.end()}, 1));
  const int64_t channels = shape.in_channels / shape.groups,
                kernels = shape.out_channels / shape.groups;
  for (int64_t pixel = 0; pixel < window.pixels_out(); ++pixel) {
    for (int64_t tap = 0; tap < window.taps(); ++tap) {
      const int64_t read = window.Read(pixel, tap);
      if (read < 0) continue;
      for (int64_t n = 0; n < shape.batch; ++n) {
        for (int64_t k = 0; k < shape.out_channels; ++k) {
          for (int64_t c = 0; c < channels; ++c) {
            const int64_t of_x = k / kernels * channels + c;
            product((n * shape.in_channels + of_x) * window.pixels_in() + read,
                    (k * channels + c) * window.taps() + tap,
                    (n * shape.out_channels + k) * window.pixels_out() + pixel);
          }
        }
      }
    }
  }
}

}  // namespace retrograd
