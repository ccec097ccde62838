// Convolutions drawn at random, and what they are checked against.
#ifndef RETROGRAD_TESTS_SUPPORT_DRAWN_CONVOLUTIONS_H_
#define RETROGRAD_TESTS_SUPPORT_DRAWN_CONVOLUTIONS_H_

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "graph/ir/library/convolution.h"
#include "graph/reference/reference.h"
#include "runtime/device/device.h"
#include "tests/catch.h"
#include "tests/support/call_memory.h"

namespace retrograd {

inline constexpr Op kConvolutionOps[] = {Op::convolution, Op::convolution_input_gradient,
                                         Op::convolution_weight_gradient};

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t Int(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  double Value() { return static_cast<double>(Int(-1000, 1000)) / 512; }

 private:
  std::mt19937_64 random_;
};

// A tensor of the shape with its dims nested in a random order, some rows apart.
inline CallTensor Drawn(Draw& draw, Shape shape) {
  CallTensor t{.offset = draw.Int(0, 3), .shape = std::move(shape), .dtype = DType::kFp64};
  std::vector<size_t> order(t.shape.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[static_cast<size_t>(draw.Int(0, static_cast<int64_t>(i)))]);
  }
  t.strides.assign(t.shape.size(), 0);
  int64_t span = 1;
  for (size_t dim : order) {
    t.strides[dim] = span;
    span = span * t.shape[dim] + (draw.Int(0, 3) == 0 ? draw.Int(1, 5) : 0);
  }
  return t;
}

// Any convolution, of which the drawn numbers are such that a window fits.
inline Call DrawnCall(Draw& draw, Op op) {
  const int dims = static_cast<int>(draw.Int(1, 3));
  const int64_t groups = draw.Int(0, 2) == 0 ? draw.Int(2, 3) : 1;
  const int64_t in_channels = groups * draw.Int(1, 3), filters = groups * draw.Int(1, 3);
  Shape x = {draw.Int(1, 3), in_channels}, w = {filters, in_channels / groups};
  Shape y = {x[0], filters};
  Shape stride, padding, dilation;
  for (int d = 0; d < dims; ++d) {
    const int64_t kernel = draw.Int(1, 4), dilated = draw.Int(1, 3), pad = draw.Int(0, 4);
    const int64_t window = dilated * (kernel - 1) + 1;
    const int64_t extent = std::max<int64_t>(window - 2 * pad, 1) + draw.Int(0, 6);
    const int64_t step = draw.Int(1, 4);
    x.push_back(extent), w.push_back(kernel);
    y.push_back((extent + 2 * pad - window) / step + 1);
    stride.push_back(step), padding.push_back(pad), dilation.push_back(dilated);
  }
  Call call{.op = op};
  call.attributes = {
      {"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  if (op == Op::convolution_input_gradient) {
    call.attributes.Set("input_shape", x);
    call.operands = {Drawn(draw, y), Drawn(draw, w)};
    call.results = {Drawn(draw, x)};
  } else if (op == Op::convolution_weight_gradient) {
    call.attributes.Set("weight_shape", w);
    call.operands = {Drawn(draw, y), Drawn(draw, x)};
    call.results = {Drawn(draw, w)};
  } else {
    call.operands = {Drawn(draw, x), Drawn(draw, w)};
    call.results = {Drawn(draw, y)};
  }
  return call;
}

inline std::vector<double> Run(LoadedCall& loaded, const Call& call,
                               const std::vector<std::vector<double>>& values) {
  std::vector<std::vector<double>> stored;
  std::vector<const void*> operands;
  for (size_t i = 0; i < 2; ++i) {
    stored.emplace_back(static_cast<size_t>(SpanOf(call.operands[i])), std::nan(""));
    ForElements(call.operands[i], [&](int64_t e, int64_t at) { stored[i][at] = values[i][e]; });
  }
  for (const std::vector<double>& s : stored) operands.push_back(s.data());
  std::vector<double> result(static_cast<size_t>(SpanOf(call.results[0])), 7.0);
  void* const results[] = {result.data()};
  std::vector<double> scratch(static_cast<size_t>(loaded.scratch_bytes() / 8 + 8));
  REQUIRE(loaded.Run(0, {operands, results}, scratch.data()).ok());
  std::vector<double> dense(static_cast<size_t>(Elements(call.results[0].shape)));
  ForElements(call.results[0], [&](int64_t e, int64_t at) { dense[e] = result[at]; });
  return dense;
}

inline std::vector<double> Reference(const Call& call,
                                     const std::vector<std::vector<double>>& values) {
  GraphBuilder builder("convolution");
  std::vector<ValueId> inputs;
  for (const CallTensor& t : call.operands) {
    inputs.push_back(builder.Input({t.dtype, t.shape}, {.name = "x"}));
  }
  const ValueId result = builder.Add(call.op, inputs, call.attributes);
  builder.Output(result, "result");
  const auto graph = builder.Build();
  REQUIRE(graph.status().ToString() == "OK");
  auto evaluated = Evaluate(*graph, {values[0], values[1]}, {.mode = ReferenceOptions::kFloat64});
  REQUIRE(evaluated.ok());
  return (*evaluated)[graph->value_index(result)];
}

// Of both operands.
inline std::vector<std::vector<double>> DrawnValues(Draw& draw, const Call& call) {
  std::vector<std::vector<double>> values(2);
  for (size_t i = 0; i < 2; ++i) {
    values[i].resize(static_cast<size_t>(Elements(call.operands[i].shape)));
    for (double& v : values[i]) v = draw.Value();
  }
  return values;
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_DRAWN_CONVOLUTIONS_H_
