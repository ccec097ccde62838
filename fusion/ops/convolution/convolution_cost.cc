#include "fusion/ops/convolution/convolution_cost.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/convolution/depthwise_tiles.h"
#include "fusion/ops/convolution/implicit_gemm_tiles.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "fusion/ops/matmul/matmul_cost.h"

namespace retrograd {
namespace {

int64_t Volume(const SpatialExtents& e) { return Product({e[0], e[1], e[2]}); }

// What an implementation takes beside its launch.
struct Way {
  int64_t ps = kHuge;
  std::string name;
};

bool HasStrides(const ConvolutionCall& c) { return Volume(c.stride) > 1; }

// A thread moves less than 4 bytes of an operand at once.
bool IsNarrow(const ConvolutionCall& c) {
  const ImplicitGemmVectors v = ImplicitGemmVectorsOf(c);
  return std::min(v.first, v.second) * SizeBytes(c.y.dtype) < 4;
}

bool HasImageOrder(const ConvolutionTensor& t) {
  return t.shape[1] > 1 && Product({t.shape[2], t.shape[3], t.shape[4]}) > 1;
}

bool HasRowMajorImages(const ConvolutionCall& c) {
  const auto row_major = [](const ConvolutionTensor& t) {
    return HasImageOrder(t) && t.strides[1] != 1;
  };
  return row_major(c.x) || row_major(c.y);
}

int64_t BytesOf(const ConvolutionTensor& t) {
  return Product({t.shape[0], t.shape[1], t.shape[2], t.shape[3], t.shape[4]}) * SizeBytes(t.dtype);
}

// The same with all channels last.
ConvolutionCall ChannelsLast(ConvolutionCall c) {
  for (ConvolutionTensor* t : {&c.x, &c.w, &c.y}) {
    const std::vector<int64_t> strides = ChannelsLastStrides(t->shape);
    std::copy(strides.begin(), strides.end(), t->strides.begin());
  }
  return c;
}

// Libraries multiply 16-bit tensors with their channels last: others they transpose, by a launch
// for each.
int64_t TransposesPs(const ConvolutionCall& c, const DeviceSpec& d) {
  if (d.convolution_transpose_ppm == 0 || SizeBytes(c.y.dtype) != 2) return 0;
  int64_t ps = 0;
  for (const ConvolutionTensor* t : {&c.x, &c.w, &c.y}) {
    if (!HasImageOrder(*t) || t->strides[1] == 1) continue;
    const int64_t moved_ps = TransferPs(2 * BytesOf(*t), d.hbm_bytes_per_s);
    ps += d.launch_graph_ps + MulDiv(moved_ps, d.convolution_transpose_ppm, kPpm);
  }
  return ps;
}

int64_t OursPs(int64_t cycles, int64_t ppm, const DeviceSpec& d) {
  return MulDiv(PsOfCycles(cycles, d), ppm, kPpm);
}

// What is multiplied between a library's transposes: it has kernels that load boxes, too.
int64_t TransposedPs(const ConvolutionCall& last, int64_t tiled, const DeviceSpec& d) {
  const bool boxes = d.convolution_boxes_ppm > 0 && ImplicitGemmRefusal(last).ok();
  if (!boxes) return tiled;
  const int64_t cycles = ImplicitGemmCycles(last, ImplicitGemmLimitsOf(d), /*boxes=*/true);
  return cycles == kHuge ? tiled : std::min(tiled, OursPs(cycles, d.convolution_boxes_ppm, d));
}

// Of a library that multiplies element by element, without tensor cores; kHuge where groups are
// one. Depthwise gradients of row-major images are far from the rate of fp32, and those of the
// input go through the pixels between strides, too.
struct Direct {
  int64_t flops = 0, rate = 0, ps = kHuge;
};

Direct DirectOf(const ConvolutionCall& c, const MatMulCall& m, const DeviceSpec& d) {
  Direct direct{.flops = Product({2, m.batch[0], m.m, m.n, m.k}),
                .rate = m.in_dtype == DType::kFp64 ? d.matmul_fp64_flops : d.matmul_fp32_flops};
  if (c.geometry.groups == 1) return direct;
  if (c.in_channels_of_group() == 1 && c.op != Op::convolution && HasRowMajorImages(c)) {
    direct.rate = MulDiv(direct.rate, d.depthwise_row_major_ppm, kPpm);
    const int64_t pixels = Volume(c.op == Op::convolution_input_gradient ? c.in : c.out);
    direct.flops =
        Product({2, c.geometry.batch, pixels, c.geometry.out_channels, Volume(c.kernel)});
  }
  direct.ps = MulDiv(std::max<int64_t>(direct.flops, 1), kPsPerSecond, direct.rate);
  return direct;
}

// A library gathers the operands of its matmul from images. Where groups are thin it may multiply
// element by element.
Way ByLibrary(const ConvolutionCall& c, const DeviceSpec& d, bool explain) {
  const MatMulCall m = AsMatMul(c);
  const int64_t launch = d.launch_graph_ps + d.library_call_ps;
  int64_t ppm = d.convolution_gather_ppm;
  if (c.op == Op::convolution_input_gradient && HasStrides(c)) {
    ppm = MulDiv(ppm, d.convolution_stride_ppm, kPpm);
  }
  // As of a matmul whose lines begin at multiples of 2 bytes.
  const ConvolutionCall last = ChannelsLast(c);
  if (c.op != Op::convolution && IsNarrow(last)) ppm = MulDiv(ppm, d.matmul_odd_pitch_ppm, kPpm);
  int64_t tiled = MulDiv(std::max<int64_t>(PriceMatMul(m, d).ps - launch, 0), ppm, kPpm);
  if (const int64_t moves = TransposesPs(c, d)) tiled = TransposedPs(last, tiled, d) + moves;
  const Direct direct = DirectOf(c, m, d);
  Way way{.ps = d.library_call_ps + std::min(tiled, direct.ps), .name = {}};
  if (!explain) return way;
  way.name =
      tiled <= direct.ps
          ? absl::StrFormat("the library, as %d matmuls of %d x %d x %d", m.batch[0], m.m, m.n, m.k)
          : absl::StrFormat("the library, %d flops / %.3g TFLOP/s", direct.flops,
                            static_cast<double>(direct.rate) / 1e12);
  return way;
}

// Of a depthwise gradient of the input a thread waits once for each row of taps that its pixels
// meet; what it multiplies and what is moved come on top.
int64_t DepthwiseInputPs(const ConvolutionCall& c, int64_t hbm_ps, const DeviceSpec& d) {
  const int64_t rows =
      Product({CeilDiv(c.kernel[0], c.stride[0]), CeilDiv(c.kernel[1], c.stride[1])});
  const int64_t flops =
      Product({2, c.geometry.batch, Volume(c.out), c.geometry.out_channels, Volume(c.kernel)});
  const int64_t rate = MulDiv(d.matmul_fp32_flops, d.depthwise_fp32_ppm, kPpm);
  return PsOfCycles(Product({rows, d.depthwise_row_cycles}), d) +
         MulDiv(flops, kPsPerSecond, rate) + hbm_ps;
}

Way ByKernelsOfOurs(const ConvolutionCall& c, int64_t hbm_ps, const DeviceSpec& d) {
  if (DepthwiseRefusal(c).ok()) {
    const bool input = c.op == Op::convolution_input_gradient;
    return {input ? DepthwiseInputPs(c, hbm_ps, d)
                  : OursPs(DepthwiseCycles(c, d.sms), d.convolution_cycles_ppm, d),
            "a depthwise kernel of ours"};
  }
  // Wider operands are multiplied without tensor cores; how fast was not measured.
  if (SizeBytes(c.y.dtype) != 2 || !ImplicitGemmRefusal(c).ok()) return {};
  const ImplicitGemmLimits limits = ImplicitGemmLimitsOf(d);
  const int64_t copied = ImplicitGemmCycles(c, limits, /*boxes=*/false);
  const int64_t boxed = limits.boxes ? ImplicitGemmCycles(c, limits, /*boxes=*/true) : kHuge;
  int64_t ps = kHuge;
  if (copied != kHuge) {
    ps = OursPs(copied, d.convolution_cycles_ppm, d);
    if (IsNarrow(c)) ps = MulDiv(ps, d.convolution_narrow_ppm, kPpm);
  }
  const bool boxes = boxed != kHuge && OursPs(boxed, d.convolution_boxes_ppm, d) < ps;
  if (boxes) ps = OursPs(boxed, d.convolution_boxes_ppm, d);
  if (ps == kHuge) return {};  // no tile fits
  // What is stored after the last products overlaps with little.
  const ConvolutionTensor& result = c.op == Op::convolution_input_gradient ? c.x : c.w;
  const int64_t elements = Product(
      {result.shape[0], result.shape[1], result.shape[2], result.shape[3], result.shape[4]});
  ps += TransferPs(elements * SizeBytes(result.dtype), d.hbm_bytes_per_s);
  return {ps, boxes ? "an implicit GEMM of ours, by boxes" : "an implicit GEMM of ours"};
}

}  // namespace

ImplicitGemmLimits ImplicitGemmLimitsOf(const DeviceSpec& d) {
  return {.sms = d.sms,
          .shared_bytes = std::max(d.staged_bytes_per_block, d.shared_bytes_per_block),
          .boxes = d.convolution_boxes_ppm > 0};
}

int64_t PsOfCycles(int64_t cycles, const DeviceSpec& d) {
  return MulDiv(cycles, kPsPerSecond, std::max<int64_t>(d.clock_hz, 1));
}

MatMulCall AsMatMul(const ConvolutionCall& c) {
  const int64_t pixels_out = Product({c.geometry.batch, Volume(c.out)});
  const int64_t pixels_in = Product({c.geometry.batch, Volume(c.in)});
  const int64_t taps = Volume(c.kernel);
  MatMulCall m{.batch = {c.geometry.groups}, .tf32 = c.tf32};
  if (c.op == Op::convolution_input_gradient) {
    // A pixel meets one tap of each stride; those that meet most make the longest sums.
    int64_t met = 1;
    for (int dim = 0; dim < kSpatialDims; ++dim) {
      met = Product({met, CeilDiv(c.kernel[dim], c.stride[dim])});
    }
    m.m = pixels_in, m.n = c.in_channels_of_group(), m.k = c.out_channels_of_group() * met;
    m.in_dtype = c.y.dtype, m.out_dtype = c.x.dtype;
  } else if (c.op == Op::convolution_weight_gradient) {
    m.m = c.out_channels_of_group(), m.n = c.in_channels_of_group() * taps, m.k = pixels_out;
    m.in_dtype = c.y.dtype, m.out_dtype = c.w.dtype;
  } else {
    m.m = pixels_out, m.n = c.out_channels_of_group(), m.k = c.in_channels_of_group() * taps;
    m.in_dtype = c.x.dtype, m.out_dtype = c.y.dtype;
  }
  return m;
}

Price PriceConvolution(const Call& call, const DeviceSpec& d, bool explain) {
  const ConvolutionCall c = ConvolutionOf(call);
  Price price;
  for (const CallTensor& t : call.operands) {
    price.read_bytes += Elements(t.shape) * SizeBytes(t.dtype);
  }
  for (const CallTensor& t : call.results) {
    price.written_bytes += Elements(t.shape) * SizeBytes(t.dtype);
  }
  const int64_t hbm = TransferPs(price.read_bytes + price.written_bytes, d.hbm_bytes_per_s);
  const Way ours = ByKernelsOfOurs(c, hbm, d);
  // Of depthwise gradients libraries were never the faster ones.
  const bool alone = DepthwiseRefusal(c).ok();
  const Way library = alone ? Way{} : ByLibrary(c, d, explain);
  const Way& way = ours.ps < library.ps ? ours : library;
  price.ps = std::min(kHuge, d.launch_graph_ps + std::max(way.ps, hbm));
  if (explain) {
    price.terms = {
        {"launch", d.launch_graph_ps, false, "one call"},
        {"compute", way.ps, way.ps >= hbm, way.name},
        {"hbm", hbm, hbm > way.ps,
         absl::StrCat(price.read_bytes, " B read + ", price.written_bytes, " B written")}};
  }
  return price;
}

}  // namespace retrograd
