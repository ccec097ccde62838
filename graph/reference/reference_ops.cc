#include "graph/reference/reference_ops.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/sorted_indices.h"

namespace retrograd {
namespace {

// Calls row(a, b) for every row (all indices but the last) of a shape, where a and b are offsets
// under the two lists of strides. Rank 0 is one row.
template <typename Row>
void WalkRows(absl::Span<const int64_t> shape, absl::Span<const int64_t> a_strides,
              absl::Span<const int64_t> b_strides, Row row) {
  if (Elements(shape) == 0) return;
  const int outer = static_cast<int>(shape.size()) - 1;
  std::vector<int64_t> index(std::max(outer, 0));
  int64_t a = 0, b = 0;
  while (true) {
    row(a, b);
    int d = outer - 1;
    for (; d >= 0; --d) {
      a += a_strides[d];
      b += b_strides[d];
      if (++index[d] < shape[d]) break;
      a -= a_strides[d] * shape[d];
      b -= b_strides[d] * shape[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

// target[t(i)] = source[s(i)], or += with `add`, over all indices i of a shape.
struct Strided {
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

void MoveStrided(absl::Span<const int64_t> shape, const double* source, const Strided& s,
                 double* target, const Strided& t, bool add) {
  const int64_t length = shape.empty() ? 1 : shape.back();
  const int64_t s_step = shape.empty() ? 0 : s.strides.back();
  const int64_t t_step = shape.empty() ? 0 : t.strides.back();
  WalkRows(shape, s.strides, t.strides, [&](int64_t a, int64_t b) {
    const double* from = source + s.offset + a;
    double* to = target + t.offset + b;
    for (int64_t i = 0; i < length; ++i) {
      const double value = from[i * s_step];
      double& place = to[i * t_step];
      place = add ? place + value : value;
    }
  });
}

// The elements start[d] + i[d] * step[d] of a dense tensor.
Strided Region(absl::Span<const int64_t> dense_shape, absl::Span<const int64_t> start) {
  Strided region{0, DenseStrides(dense_shape)};
  for (size_t d = 0; d < start.size(); ++d) region.offset += start[d] * region.strides[d];
  return region;
}

Strided SliceRegion(absl::Span<const int64_t> shape, const Attrs& attrs) {
  std::vector<int64_t> start(shape.size());
  const int64_t axis = attrs.Int("axis");
  start[axis] = attrs.Int("start");
  Strided region = Region(shape, start);
  region.strides[axis] *= attrs.Int("step");
  return region;
}

Strided Dense(absl::Span<const int64_t> shape) { return {0, DenseStrides(shape)}; }

// Strides over `shape` that read a tensor broadcast to it.
std::vector<int64_t> BroadcastStrides(absl::Span<const int64_t> from,
                                      absl::Span<const int64_t> shape) {
  const std::vector<int64_t> dense = DenseStrides(from);
  std::vector<int64_t> strides(shape.size());
  const size_t shift = shape.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) strides[i + shift] = from[i] == 1 ? 0 : dense[i];
  return strides;
}

void EvaluateView(Op op, const Attrs& attrs, const DenseTensor& x, const TensorType& result,
                  double* out) {
  const Shape& from = x.type->shape;
  if (op == Op::reshape) {
    std::copy(x.data, x.data + result.elements(), out);
    return;
  }
  if (op == Op::pad) {
    std::fill(out, out + result.elements(), attrs.Float("value"));
    MoveStrided(from, x.data, Dense(from), out, Region(result.shape, attrs.Ints("low")), false);
    return;
  }
  Strided read = Dense(from);
  if (op == Op::permute) {
    const std::vector<int64_t> dense = read.strides;
    for (size_t i = 0; i < dense.size(); ++i) read.strides[i] = dense[attrs.Ints("perm")[i]];
  } else if (op == Op::expand) {
    read.strides = BroadcastStrides(from, result.shape);
  } else if (op == Op::slice) {
    read = SliceRegion(from, attrs);
  } else {
    RG_CHECK(op == Op::flip);
    for (int64_t axis : attrs.Ints("axes")) {
      read.offset += std::max<int64_t>(from[axis] - 1, 0) * read.strides[axis];
      read.strides[axis] = -read.strides[axis];
    }
  }
  MoveStrided(result.shape, x.data, read, out, Dense(result.shape), false);
}

void EvaluateJoin(Op op, const Attrs& attrs, absl::Span<const DenseTensor> operands,
                  const TensorType& result, double* out) {
  if (op == Op::slice_scatter) {
    std::copy(operands[0].data, operands[0].data + result.elements(), out);
    const Shape& source = operands[1].type->shape;
    MoveStrided(source, operands[1].data, Dense(source), out, SliceRegion(result.shape, attrs),
                false);
    return;
  }
  RG_CHECK(op == Op::cat);
  std::vector<int64_t> start(result.shape.size());
  for (const DenseTensor& x : operands) {
    const Shape& shape = x.type->shape;
    MoveStrided(shape, x.data, Dense(shape), out, Region(result.shape, start), false);
    start[attrs.Int("axis")] += shape[attrs.Int("axis")];
  }
}

void EvaluateReduction(Op op, const Attrs& attrs, const DenseTensor& x, const TensorType& result,
                       double* out) {
  const OpInfo& info = Info(op);
  std::fill(out, out + result.elements(), info.identity);
  Shape kept = x.type->shape;
  for (int64_t axis : attrs.Ints("axes")) kept[axis] = 1;
  const std::vector<int64_t> target = BroadcastStrides(kept, x.type->shape);
  const int64_t length = x.type->shape.back();
  const int64_t step = target.back();
  WalkRows(x.type->shape, DenseStrides(x.type->shape), target, [&](int64_t a, int64_t b) {
    for (int64_t i = 0; i < length; ++i) {
      double& place = out[b + i * step];
      const double args[2] = {place, x.data[a + i]};
      place = info.reference(args);
    }
  });
}

absl::StatusOr<int64_t> CheckedIndex(double value, int64_t extent) {
  auto index = static_cast<int64_t>(value);
  if (index < 0) index += extent;
  if (index >= 0 && index < extent) return index;
  return absl::OutOfRangeError(absl::StrCat("index ", value, " on an axis of extent ", extent));
}

// A tensor cut at an axis: [outer, extent, inner].
struct AxisCut {
  int64_t outer = 1, extent = 1, inner = 1;
  AxisCut(absl::Span<const int64_t> shape, int64_t axis) : extent(shape[axis]) {
    outer = Elements(shape.subspan(0, axis));
    inner = Elements(shape.subspan(axis + 1));
  }
};

void EvaluateScan(Op op, const Attrs& attrs, const DenseTensor& x, double* out) {
  const OpInfo& info = Info(op);
  const AxisCut cut(x.type->shape, attrs.Int("axis"));
  const bool reverse = attrs.Int("reverse") == 1;
  const int64_t step = reverse ? -cut.inner : cut.inner;
  for (int64_t o = 0; o < cut.outer; ++o) {
    for (int64_t i = 0; i < cut.inner; ++i) {
      int64_t at = (o * cut.extent + (reverse ? cut.extent - 1 : 0)) * cut.inner + i;
      double folded = info.identity;
      for (int64_t count = 0; count < cut.extent; ++count, at += step) {
        const double args[2] = {folded, x.data[at]};
        out[at] = folded = info.reference(args);
      }
    }
  }
}

absl::Status IndexSelect(const Attrs& attrs, absl::Span<const DenseTensor> operands, double* out) {
  const AxisCut cut(operands[0].type->shape, attrs.Int("axis"));
  const int64_t count = operands[1].type->elements();
  for (int64_t j = 0; j < count; ++j) {
    RG_ASSIGN_OR_RETURN(const int64_t at, CheckedIndex(operands[1].data[j], cut.extent));
    for (int64_t o = 0; o < cut.outer; ++o) {
      const double* from = operands[0].data + (o * cut.extent + at) * cut.inner;
      std::copy(from, from + cut.inner, out + (o * count + j) * cut.inner);
    }
  }
  return absl::OkStatus();
}

absl::Status IndexAdd(const Attrs& attrs, absl::Span<const DenseTensor> operands, double* out) {
  const AxisCut cut(operands[0].type->shape, attrs.Int("axis"));
  const int64_t count = operands[1].type->elements();
  std::copy(operands[0].data, operands[0].data + operands[0].type->elements(), out);
  for (int64_t j = 0; j < count; ++j) {
    RG_ASSIGN_OR_RETURN(const int64_t at, CheckedIndex(operands[1].data[j], cut.extent));
    for (int64_t o = 0; o < cut.outer; ++o) {
      const double* from = operands[2].data + (o * count + j) * cut.inner;
      double* to = out + (o * cut.extent + at) * cut.inner;
      for (int64_t i = 0; i < cut.inner; ++i) to[i] += from[i];
    }
  }
  return absl::OkStatus();
}

absl::Status SegmentAdd(const Attrs& attrs, absl::Span<const DenseTensor> operands, double* out) {
  const AxisCut cut(operands[0].type->shape, attrs.Int("axis"));
  const SortedIndices sorted{.rows = cut.extent,
                             .indices = operands[2].type->shape[attrs.Int("axis")]};
  const bool in_order = attrs.Int("in_order") == 1;
  std::copy(operands[0].data, operands[0].data + operands[0].type->elements(), out);
  for (int64_t k = 0; k < sorted.indices; ++k) {
    const auto row = static_cast<int64_t>(operands[1].data[sorted.key(k)]);
    if (row == sorted.rows) break;
    const auto from = in_order ? k : static_cast<int64_t>(operands[1].data[sorted.order(k)]);
    for (int64_t o = 0; o < cut.outer; ++o) {
      const double* source = operands[2].data + (o * sorted.indices + from) * cut.inner;
      double* to = out + (o * cut.extent + row) * cut.inner;
      for (int64_t i = 0; i < cut.inner; ++i) to[i] += source[i];
    }
  }
  return absl::OkStatus();
}

absl::Status Gather(const Attrs& attrs, absl::Span<const DenseTensor> operands,
                    const TensorType& result, double* out) {
  const Shape& source = operands[0].type->shape;
  const int64_t axis = attrs.Int("axis");
  const std::vector<int64_t> dense = DenseStrides(source);
  std::vector<int64_t> strides = dense;
  strides[axis] = 0;
  const bool last = axis == result.rank() - 1;
  absl::Status status;
  WalkRows(result.shape, DenseStrides(result.shape), strides, [&](int64_t a, int64_t b) {
    for (int64_t i = 0; i < result.shape.back() && status.ok(); ++i) {
      absl::StatusOr<int64_t> at = CheckedIndex(operands[1].data[a + i], source[axis]);
      if (!at.ok()) {
        status = at.status();
        return;
      }
      out[a + i] = operands[0].data[b + (last ? 0 : i) + *at * dense[axis]];
    }
  });
  return status;
}

void EvaluateAccumulate(const Attrs& attrs, absl::Span<const DenseTensor> operands,
                        const TensorType& result, absl::Span<const uint32_t> order, double* out) {
  std::fill(out, out + result.elements(), 0.0);
  const size_t rank = result.shape.size();
  for (size_t i = 0; i < operands.size(); ++i) {
    const size_t term = order.empty() ? i : order[i];
    const Shape& shape = operands[term].type->shape;
    MoveStrided(shape, operands[term].data, Dense(shape), out,
                Region(result.shape, attrs.Ints("starts").subspan(term * rank, rank)), true);
  }
}

}  // namespace

void EvaluatePointwise(absl::Span<const DenseTensor> operands, const TensorType& result,
                       double (*f)(const double*), double* out) {
  constexpr size_t kMaxOperands = 4;
  RG_CHECK(operands.size() <= kMaxOperands);
  const int rank = result.rank();
  const int64_t length = rank == 0 ? 1 : result.shape.back();
  const int64_t rows = length == 0 ? 0 : result.elements() / length;
  std::vector<int64_t> strides[kMaxOperands];
  int64_t offset[kMaxOperands] = {};
  for (size_t k = 0; k < operands.size(); ++k) {
    strides[k] = BroadcastStrides(operands[k].type->shape, result.shape);
  }
  std::vector<int64_t> index(rank);
  double args[kMaxOperands] = {};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < length; ++i) {
      for (size_t k = 0; k < operands.size(); ++k) {
        args[k] = operands[k].data[offset[k] + (rank == 0 ? 0 : i * strides[k].back())];
      }
      out[row * length + i] = f(args);
    }
    for (int d = rank - 2; d >= 0; --d) {
      for (size_t k = 0; k < operands.size(); ++k) offset[k] += strides[k][d];
      if (++index[d] < result.shape[d]) break;
      for (size_t k = 0; k < operands.size(); ++k) offset[k] -= strides[k][d] * result.shape[d];
      index[d] = 0;
    }
  }
}

void EvaluateConstant(Op op, const Attrs& attrs, const TensorType& result, double* out) {
  const int64_t count = result.elements();
  if (op == Op::full) {
    std::fill(out, out + count, attrs.Float("value"));
    return;
  }
  RG_CHECK(op == Op::iota);
  const int64_t axis = attrs.Int("axis");
  const AxisCut cut(result.shape, axis);
  const auto start = static_cast<double>(attrs.Int("start"));
  const auto step = static_cast<double>(attrs.Int("step"));
  for (int64_t i = 0; i < count; ++i) {
    out[i] = start + step * static_cast<double>(i / cut.inner % cut.extent);
  }
}

absl::Status EvaluateLinear(Op op, const Attrs& attrs, absl::Span<const DenseTensor> operands,
                            const TensorType& result, absl::Span<const uint32_t> order,
                            double* out) {
  switch (PatternOf(op)) {
    case Pattern::kReduction: EvaluateReduction(op, attrs, operands[0], result, out); break;
    case Pattern::kView: EvaluateView(op, attrs, operands[0], result, out); break;
    case Pattern::kJoin: EvaluateJoin(op, attrs, operands, result, out); break;
    case Pattern::kGather:
      return op == Op::index_select ? IndexSelect(attrs, operands, out)
                                    : Gather(attrs, operands, result, out);
    case Pattern::kScatter:
      return op == Op::index_add ? IndexAdd(attrs, operands, out)
                                 : SegmentAdd(attrs, operands, out);
    case Pattern::kAccumulate: EvaluateAccumulate(attrs, operands, result, order, out); break;
    case Pattern::kScan: EvaluateScan(op, attrs, operands[0], out); break;
    default: RG_CHECK(false);
  }
  return absl::OkStatus();
}

}  // namespace retrograd
