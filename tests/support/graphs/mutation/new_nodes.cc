#include "tests/support/graphs/mutation/new_nodes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/ir/attribute_rules.h"

namespace retrograd {
void NewNodes::InsertNode() {
  const OpInfo& info = AllOps()[Int(1, kNumOps - 1)];
  const ValueId x = Recent();
  const DType dtype = DTypeOf(x);
  const Shape shape = ShapeOf(x);
  std::vector<ValueId> operands = Operands(info, x, dtype, shape);
  Attrs attrs = MakeAttrs(info.op, operands);
  const ValueId result = AppendOp(info.op, std::move(operands), std::move(attrs), {dtype, shape});
  if (Chance(40) || d_.outputs.empty()) d_.outputs.push_back({result, "", {}});
}

std::vector<ValueId> NewNodes::Operands(const OpInfo& info, ValueId x, DType dtype, Shape shape) {
  switch (info.pattern) {
    case Pattern::kLibrary:
      if (info.op == Op::matmul) return MatMulOperands(x, dtype, shape);
      if (info.op == Op::grouped_matmul) return GroupedMatMulOperands();
      if (info.op == Op::segment_amax) return {x, NewInput(DType::kInt32, {Int(1, 5)})};
      if (info.op == Op::scatter_lines) return ScatterLinesOperands(x, shape);
      if (info.op == Op::sort_indices) return {NewInput(DType::kInt64, {Int(0, 64)})};
      if (info.op == Op::attention_backward) return AttentionOperands();
      return ConvolutionOperands(info.op, dtype);
    case Pattern::kGather:
      if (info.op == Op::gather) return {x, NewInput(DType::kInt64, shape)};
      return {x, NewInput(DType::kInt32, {Int(1, 40)})};
    case Pattern::kScatter: {
      const Shape index = {Int(1, 64)};
      Shape source = shape;
      if (source.empty()) source = {1};
      source[0] = index[0];
      ValueId list = NewInput(DType::kInt64, index);
      if (info.op == Op::segment_add) {
        const int64_t rows = shape.empty() ? 1 : shape[0];
        list = AppendOp(Op::sort_indices, {list}, {{"rows", rows}}, {DType::kInt32, {}});
      }
      return {x, list, OfShape(source, dtype)};
    }
    case Pattern::kComposite: return CompositeOperands(info, x, dtype, shape);
    default: break;
  }
  const int most =
      info.max_operands < 0 ? info.min_operands + static_cast<int>(Int(0, 3)) : info.max_operands;
  std::vector<ValueId> out;
  if (info.op == Op::where) out.push_back(OfShape(shape, DType::kBool));
  while (static_cast<int>(out.size()) < most) {
    if (out.empty()) {
      out.push_back(x);
    } else if (Chance(30) && !shape.empty()) {  // a statistic or a bias
      Shape other = shape;
      Chance(50) ? void(other.back() = 1) : void(other.erase(other.begin()));
      out.push_back(OfShape(other, dtype));
    } else {
      out.push_back(OfShape(shape, dtype));
    }
  }
  return out;
}

std::vector<ValueId> NewNodes::MatMulOperands(ValueId x, DType dtype, Shape shape) {
  if (shape.size() < 2) return {x, x};
  Shape other = shape;
  other[other.size() - 2] = shape.back();
  if (Chance(50)) other.back() = Extent();
  if (Chance(50)) return {x, OfShape(other, dtype)};
  // x transposed first: a weight gradient.
  DraftNode t;
  t.op = Op::permute;
  t.operands = {x};
  std::vector<int64_t> perm(shape.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  t.attrs.Set("perm", perm);
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  t.type = {dtype, shape};
  const ValueId transposed = Append(std::move(t));
  other = shape;
  other[other.size() - 2] = shape.back();
  return {transposed, OfShape(other, dtype)};
}

std::vector<ValueId> NewNodes::GroupedMatMulOperands() {
  const int64_t groups = Int(1, 5), m = Extent(), k = Extent(), n = Extent();
  const DType dtype = FloatDType();
  return {NewInput(dtype, {m, k}), NewInput(dtype, Chance(50) ? Shape{groups, k, n} : Shape{k, n}),
          NewInput(DType::kInt32, {groups})};
}

std::vector<ValueId> NewNodes::ScatterLinesOperands(ValueId x, Shape shape) {
  if (!shape.empty() && Chance(50)) shape.erase(shape.begin());
  return {NewInput(Chance(50) ? DType::kInt32 : DType::kInt64, std::move(shape)), x};
}

std::vector<ValueId> NewNodes::AttentionOperands() {
  const int64_t b = Int(1, 3), h = Int(1, 4), kv = Chance(70) ? h : 1, t = Extent(),
                s = Chance(60) ? t : Extent(), w = Int(1, 64);
  const DType dtype = FloatDType();
  std::vector<ValueId> out = {NewInput(dtype, {b, h, t, w}),  NewInput(dtype, {b, h, t, w}),
                              NewInput(dtype, {b, kv, s, w}), NewInput(dtype, {b, kv, s, w}),
                              NewInput(dtype, {b, h, t, w}),  NewInput(DType::kFp32, {b, h, t})};
  if (Chance(30))
    out.push_back(NewInput(dtype, Chance(50) ? Shape{b, h, t, s} : Shape{1, 1, t, s}));
  return out;
}

std::vector<ValueId> NewNodes::ConvolutionOperands(Op op, DType dtype) {
  const auto dims = static_cast<size_t>(Int(1, 3));
  const int64_t batch = Int(1, 3), channels = Int(1, 8), filters = Int(1, 8);
  Shape x = {batch, channels}, w = {filters, channels}, y = {batch, filters};
  for (size_t d = 0; d < dims; ++d) {
    w.push_back(Int(1, 3));
    y.push_back(Int(1, 9));
    x.push_back(y.back() + w.back() - 1);
  }
  if (!IsFloat(dtype)) dtype = FloatDType();
  return {OfShape(op == Op::convolution ? x : y, dtype),
          NewInput(dtype, op == Op::convolution_weight_gradient ? x : w)};
}

Shape NewNodes::GradientShape(Op op, const std::vector<ValueId>& operands) {
  const Shape dy = ShapeOf(operands[0]), other = ShapeOf(operands[1]);
  const bool input = op == Op::convolution_input_gradient;
  if (dy.size() < 3 || other.size() != dy.size()) return dy;
  Shape shape = {input ? dy[0] : dy[1], other[1]};
  for (size_t d = 2; d < dy.size(); ++d) {
    shape.push_back(input ? dy[d] + other[d] - 1 : std::max<int64_t>(other[d] - dy[d] + 1, 1));
  }
  return shape;
}

std::vector<ValueId> NewNodes::CompositeOperands(const OpInfo& info, ValueId x, DType dtype,
                                                 const Shape& shape) {
  std::vector<ValueId> out = {x, OfShape(shape, dtype)};
  Shape statistic = shape;
  if (!statistic.empty()) statistic.back() = 1;
  const Shape weight = shape.empty() ? Shape{} : Shape{shape.back()};
  while (static_cast<int>(out.size()) < info.max_operands - 1)
    out.push_back(OfShape(statistic, dtype));
  if (info.max_operands > 2) out.push_back(OfShape(weight, dtype));
  return out;
}

Attrs NewNodes::MakeAttrs(Op op, const std::vector<ValueId>& operands) {
  const Shape shape = operands.empty() ? Shape{Extent(), Extent()} : ShapeOf(operands[0]);
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t axis = rank == 0 ? 0 : Int(0, rank - 1);
  const int64_t extent = rank == 0 ? 1 : shape[axis];
  Attrs a;
  for (const AttrRule& rule : AttrRules(op)) {
    if (rule.name == "dtype") {
      if (rule.required || Chance(30))
        a.Set("dtype", std::string(Name(Chance(80) ? FloatDType() : AnyDType())));
    } else if (rule.name == "shape") {
      a.Set("shape", NewShape(op, shape));
    } else if (rule.name == "value" || rule.name == "scale") {
      a.Set(rule.name, Chance(50) ? 0.0 : 0.5);
    } else if (rule.name == "axis") {
      a.Set("axis", axis);
    } else if (rule.name == "start") {
      a.Set("start", op == Op::iota ? Int(-3, 3) : Int(0, std::min<int64_t>(extent, 4)));
    } else if (rule.name == "stop") {
      a.Set("stop", std::max(extent - (Chance(50) ? 0 : 1), int64_t{0}));
    } else if (rule.name == "step") {
      a.Set("step", Chance(70) ? int64_t{1} : Int(1, 3));
    } else if (rule.name == "axes") {
      std::vector<int64_t> axes;
      for (int64_t i = 0; i < rank; ++i) {
        if (Chance(40)) axes.push_back(i);
      }
      if (axes.empty()) axes.push_back(axis);
      a.Set("axes", axes);
    } else if (rule.name == "keep" || rule.name == "causal" || rule.name == "reverse" ||
               rule.name == "magnitude") {
      if (Chance(50)) a.Set(rule.name, int64_t{1});
    } else if (rule.name == "rows" || rule.name == "extent") {
      a.Set(rule.name, Int(0, 64));
    } else if (rule.name == "groups") {
      a.Set("groups", int64_t{1});
    } else if (rule.name == "stride" || rule.name == "dilation" || rule.name == "padding") {
      std::vector<int64_t> list(std::max<int64_t>(rank - 2, 0), rule.name == "padding" ? 0 : 1);
      if (op == Op::convolution && !list.empty() && Chance(40)) ++list.back();
      a.Set(rule.name, list);
    } else if (rule.name == "input_shape" || rule.name == "weight_shape") {
      a.Set(rule.name, GradientShape(op, operands));
    } else if (rule.name == "perm") {
      a.Set("perm", Permutation(shape.size()));
    } else if (rule.name == "low" || rule.name == "high") {
      std::vector<int64_t> list(shape.size());
      for (int64_t& v : list) v = Chance(40) ? Int(1, 4) : 0;
      a.Set(rule.name, list);
    } else if (rule.name == "starts") {
      a.Set("starts", std::vector<int64_t>(shape.size() * operands.size(), 0));
    }
  }
  return a;
}

Shape NewNodes::NewShape(Op op, Shape shape) {
  if (op == Op::expand) {
    for (int64_t& e : shape) e = e == 1 && Chance(60) ? Extent() : e;
    if (Chance(40)) shape.insert(shape.begin(), Extent());
    return shape;
  }
  if (op == Op::accumulate) return shape;
  if (op != Op::reshape) {
    if (Chance(30)) return {};
    return shape;
  }
  if (shape.size() > 1 && Chance(50)) {  // two dims become one
    const int64_t at = Int(0, static_cast<int64_t>(shape.size()) - 2);
    int64_t product;
    if (__builtin_mul_overflow(shape[at], shape[at + 1], &product)) return shape;
    shape[at] = product;
    shape.erase(shape.begin() + at + 1);
  } else if (!shape.empty()) {  // one becomes two
    const int64_t at = Int(0, static_cast<int64_t>(shape.size()) - 1);
    for (int64_t divisor : {Int(2, 9), int64_t{64}, int64_t{8}, int64_t{2}, int64_t{1}}) {
      if (shape[at] % divisor != 0) continue;
      shape[at] /= divisor;
      shape.insert(shape.begin() + at + 1, divisor);
      break;
    }
  }
  return shape;
}

}  // namespace retrograd
