#include "tests/support/graphs/random_graph/window_tries.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace retrograd {
namespace {

struct Turn {
  int64_t kernel, stride;
  int64_t start;  // where pixel 0 lies among the repeated windows
  int64_t turn, pixels;
};

// For each pixel along the axis what its turn-th window holds, 0 where it has none.
ValueId WindowsOfTurn(GrowingGraph& g, ValueId windows, size_t axis, const Turn& t) {
  GraphBuilder& builder = g.builder();
  Shape shape = builder.type(windows).shape;
  const int64_t inside = std::min(t.stride, t.kernel - t.turn * t.stride);
  Shape wide = shape;
  wide.insert(wide.begin() + static_cast<std::ptrdiff_t>(axis) + 1, 1);
  ValueId v = builder.Reshape(windows, wide);
  wide[axis + 1] = inside;
  v = builder.Expand(v, wide);
  std::vector<int64_t> low(wide.size()), high(wide.size());
  high[axis + 1] = t.stride - inside;
  v = builder.Add(Op::pad, {v}, {{"low", low}, {"high", high}});
  shape[axis] *= t.stride;
  v = builder.Reshape(v, shape);
  const int64_t extent = shape[axis];
  const int64_t before = std::clamp<int64_t>(-t.start, 0, t.pixels);
  const int64_t begin = std::clamp<int64_t>(t.start, 0, extent);
  const int64_t end = std::clamp<int64_t>(t.start + t.pixels, begin, extent);
  v = builder.Add(Op::slice, {v},
                  {{"axis", static_cast<int64_t>(axis)},
                   {"start", begin},
                   {"stop", end},
                   {"step", int64_t{1}}});
  low.assign(shape.size(), 0), high.assign(shape.size(), 0);
  low[axis] = before;
  high[axis] = t.pixels - before - (end - begin);
  return builder.Add(Op::pad, {v}, {{"low", low}, {"high", high}});
}

}  // namespace

bool TryWindows(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const Shape windows = builder.type(k.id).shape;
  if (windows.empty() || windows.size() > 5) return false;
  const size_t axis = draws.Int(0, static_cast<int64_t>(windows.size()) - 1);
  const int64_t kernel = draws.Int(1, 4), stride = draws.Int(1, 3);
  const int64_t padding = draws.Int(0, (kernel - 1) / 2);
  Shape pixels = windows;
  pixels[axis] = (windows[axis] - 1) * stride + kernel - 2 * padding;
  const int64_t turns = (kernel + stride - 1) / stride;
  if (pixels[axis] < 1 || g.TooLarge(pixels) ||
      Elements(windows) * stride > g.options().max_elements ||
      k.bound * static_cast<double>(turns) > kTame) {
    return false;
  }
  ValueId total{};
  for (int64_t turn = 0; turn < turns; ++turn) {
    const ValueId part = WindowsOfTurn(g, k.id, axis,
                                       {.kernel = kernel,
                                        .stride = stride,
                                        .start = padding - turn * stride,
                                        .turn = turn,
                                        .pixels = pixels[axis]});
    total = turn == 0 ? part : builder.Add(Op::add, {total, part});
  }
  return g.Emit(total, k.bound * static_cast<double>(turns));
}

}  // namespace retrograd
