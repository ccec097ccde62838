// The three convolutions of graph/ir/library/convolution.h: one walk over taps and rows of output
// pixels, which differs in the tensor that is written. Each is linear in both operands, so that
// magnitudes take the same walk.
#include <algorithm>
#include <array>

#include "graph/base/status.h"
#include "graph/ir/library/convolution.h"
#include "graph/reference/library_reference.h"

namespace retrograd {
namespace {

constexpr int kDims = 3;
using Extents = std::array<int64_t, kDims>;

// Missing leading dims get an extent of 1.
Extents Lifted(absl::Span<const int64_t> list, int64_t fill) {
  Extents lifted;
  lifted.fill(fill);
  std::copy(list.begin(), list.end(), lifted.end() - static_cast<std::ptrdiff_t>(list.size()));
  return lifted;
}

int64_t Volume(const Extents& e) { return e[0] * e[1] * e[2]; }
int64_t Offset(const Extents& e, const Extents& at) {
  return (at[0] * e[1] + at[1]) * e[2] + at[2];
}

// A convolution of three spatial dims.
struct Walk {
  const ConvolutionGeometry& g;
  Extents in, kernel, out, stride, padding, dilation;

  explicit Walk(const ConvolutionGeometry& geometry)
      : g(geometry),
        in(Lifted(g.in, 1)),
        kernel(Lifted(g.kernel, 1)),
        out(Lifted(g.out, 1)),
        stride(Lifted(g.stride, 1)),
        padding(Lifted(g.padding, 0)),
        dilation(Lifted(g.dilation, 1)) {}

  // Where output pixel 0 reads under the tap, which may be outside.
  int64_t Origin(int d, int64_t tap) const { return tap * dilation[d] - padding[d]; }

  // The output pixels [first, last) that the tap reads inside of the input.
  std::pair<int64_t, int64_t> Inside(int d, int64_t tap) const {
    const int64_t origin = Origin(d, tap);
    const int64_t first = origin >= 0 ? 0 : (-origin + stride[d] - 1) / stride[d];
    const int64_t last = origin >= in[d] ? 0 : (in[d] - 1 - origin) / stride[d] + 1;
    return {first, std::min(last, out[d])};
  }

  // Calls row(w, y, x, count) with offsets for every run of output pixels along the last dim that
  // one weight meets: y goes on by 1, x by stride[2].
  template <typename Row>
  void Rows(Row row) const {
    Extents tap;
    for (tap[0] = 0; tap[0] < kernel[0]; ++tap[0]) {
      for (tap[1] = 0; tap[1] < kernel[1]; ++tap[1]) {
        for (tap[2] = 0; tap[2] < kernel[2]; ++tap[2]) RowsOfTap(tap, row);
      }
    }
  }

  template <typename Row>
  void RowsOfTap(const Extents& tap, Row row) const {
    const int64_t per_group = g.in_channels / g.groups, k_per_group = g.out_channels / g.groups;
    const int64_t w_tap = Offset(kernel, tap);
    for (int64_t n = 0; n < g.batch; ++n) {
      for (int64_t k = 0; k < g.out_channels; ++k) {
        for (int64_t c = 0; c < per_group; ++c) {
          const int64_t channel = k / k_per_group * per_group + c;
          RowsOfPlane(tap, (k * per_group + c) * Volume(kernel) + w_tap,
                      (n * g.out_channels + k) * Volume(out),
                      (n * g.in_channels + channel) * Volume(in), row);
        }
      }
    }
  }

  template <typename Row>
  void RowsOfPlane(const Extents& tap, int64_t w, int64_t y, int64_t x, Row row) const {
    const auto [first0, last0] = Inside(0, tap[0]);
    const auto [first1, last1] = Inside(1, tap[1]);
    const auto [first2, last2] = Inside(2, tap[2]);
    if (first2 >= last2) return;
    for (int64_t p0 = first0; p0 < last0; ++p0) {
      for (int64_t p1 = first1; p1 < last1; ++p1) {
        const Extents read = {p0 * stride[0] + Origin(0, tap[0]),
                              p1 * stride[1] + Origin(1, tap[1]),
                              first2 * stride[2] + Origin(2, tap[2])};
        row(w, y + Offset(out, {p0, p1, first2}), x + Offset(in, read), last2 - first2);
      }
    }
  }
};

}  // namespace

absl::Status EvaluateConvolution(const LibraryNode& node, absl::Span<double* const> out) {
  const TensorType* operand_types[] = {node.operands[0].type, node.operands[1].type};
  RG_ASSIGN_OR_RETURN(const ConvolutionGeometry geometry,
                      ConvolutionGeometryOf(node.op, operand_types, node.attrs));
  const Walk walk(geometry);
  const int64_t step = walk.stride[2];
  const double *first = node.operands[0].data, *second = node.operands[1].data;
  double* result = out[0];
  std::fill(result, result + node.results[0].elements(), 0.0);
  if (node.op == Op::convolution) {
    walk.Rows([&](int64_t w, int64_t y, int64_t x, int64_t count) {
      for (int64_t i = 0; i < count; ++i) result[y + i] += first[x + i * step] * second[w];
    });
  } else if (node.op == Op::convolution_input_gradient) {
    walk.Rows([&](int64_t w, int64_t y, int64_t x, int64_t count) {
      for (int64_t i = 0; i < count; ++i) result[x + i * step] += first[y + i] * second[w];
    });
  } else {
    walk.Rows([&](int64_t w, int64_t y, int64_t x, int64_t count) {
      double sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += first[y + i] * second[x + i * step];
      result[w] += sum;
    });
  }
  return absl::OkStatus();
}

}  // namespace retrograd
