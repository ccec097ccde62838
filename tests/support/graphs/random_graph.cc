#include "tests/support/graphs/random_graph.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "graph/base/rounding.h"
#include "graph/base/status.h"
#include "tests/support/graphs/random_convolution.h"

namespace retrograd {
namespace {

// How large |value| may be: chosen per value so that products and exponentials stay tame.
constexpr double kTame = 1e4;

class Generator {
 public:
  Generator(uint32_t seed, const RandomGraphOptions& options)
      : options_(options), rng_(seed), builder_(absl::StrCat("random_", seed)) {}

  BackwardGraph Generate() {
    AddInputs();
    const int ops = Int(options_.min_ops, options_.max_ops);
    for (int i = 0; i < ops; ++i) {
      if (Chance(0.15)) NextOrigin();
      // An attempt may find no operands that fit; another kind is tried then.
      for (int attempt = 0; attempt < 20 && !TryOp(); ++attempt) {
      }
    }
    AddOutputs();
    absl::StatusOr<BackwardGraph> graph = builder_.Build();
    if (!graph.ok()) std::fprintf(stderr, "%s\n", graph.status().ToString().c_str());
    RG_CHECK(graph.ok());
    return *std::move(graph);
  }

 private:
  // A float value and a bound on its magnitude.
  struct Known {
    ValueId id;
    double bound = 2;
    int uses = 0;
  };

  int64_t Int(int64_t low, int64_t high) {
    // Not std::uniform_int_distribution: its numbers differ between standard libraries.
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double p) { return static_cast<double>(rng_()) < p * 4294967296.0; }
  template <typename T>
  const T& Choose(const std::vector<T>& list) {
    return list[Int(0, static_cast<int64_t>(list.size()) - 1)];
  }

  DType FloatDType() {
    switch (options_.dtypes) {
      case RandomGraphOptions::kFp32: return DType::kFp32;
      case RandomGraphOptions::kBf16: return DType::kBf16;
      case RandomGraphOptions::kFp64: return DType::kFp64;
      case RandomGraphOptions::kMixed: break;
    }
    return Chance(0.5) ? DType::kFp32 : DType::kBf16;
  }

  Shape RandomShape() {
    while (true) {
      Shape shape(Int(1, 4));
      for (int64_t& extent : shape) extent = Chance(0.1) ? 1 : Int(2, options_.max_extent);
      if (Elements(shape) <= options_.max_elements) return shape;
    }
  }

  // Most graphs work on a few shapes, so that values meet.
  void AddInputs() {
    base_ = RandomShape();
    const int count = static_cast<int>(Int(2, 5));
    for (int i = 0; i < count; ++i) {
      Shape shape = base_;
      if (i > 0 && Chance(0.4)) {  // broadcasts against the base: a bias, a statistic
        shape.erase(shape.begin(), shape.begin() + Int(0, static_cast<int64_t>(shape.size()) - 1));
        for (int64_t& extent : shape) extent = Chance(0.3) ? 1 : extent;
      } else if (i > 0 && Chance(0.2)) {
        shape = RandomShape();
      }
      AddInput(FloatDType(), std::move(shape));
    }
  }

  ValueId AddInput(DType dtype, Shape shape) {
    InputInfo info;
    info.name = absl::StrCat("input_", builder_.num_nodes());
    info.kind = static_cast<InputKind>(Int(1, 3));
    info.alignment = Chance(0.5) ? 16 : 0;
    if (options_.strides && Chance(0.3)) info.strides = RandomStrides(shape, IsFloat(dtype));
    const ValueId v = builder_.Input({dtype, std::move(shape)}, std::move(info));
    if (IsFloat(dtype)) known_.push_back({v});
    return v;
  }

  // Of a permuted tensor, with a gap now and then, or (inputs) with one expanded dim.
  std::vector<int64_t> RandomStrides(const Shape& shape, bool may_repeat) {
    std::vector<int64_t> order(shape.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    Shuffle(order);
    std::vector<int64_t> strides(shape.size());
    int64_t stride = Chance(0.2) ? 2 : 1;
    for (int64_t axis : order) {
      strides[axis] = stride;
      stride *= shape[axis] + (Chance(0.2) ? 1 : 0);
    }
    if (may_repeat && Chance(0.2)) strides[order[0]] = 0;
    return strides;
  }

  template <typename T>
  void Shuffle(std::vector<T>& list) {
    for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[Int(0, i - 1)]);
  }

  void NextOrigin() {
    if (Chance(0.3)) return builder_.SetOrigin(std::nullopt);
    Origin origin;
    origin.op = Chance(0.5) ? "aten.mul" : "aten.native_layer_norm_backward";
    origin.instance = Int(0, 9);
    origin.module_path = absl::StrCat("blocks.", Int(0, 3));
    origin.recomputed = Chance(0.1);
    builder_.SetOrigin(std::move(origin));
  }

  const TensorType& Type(const Known& k) const { return builder_.type(k.id); }

  // A value, unread ones first: graphs should be connected.
  Known Pick() {
    size_t at = Int(0, static_cast<int64_t>(known_.size()) - 1);
    for (int attempt = 0; attempt < 3 && known_[at].uses > 0; ++attempt) {
      at = Int(0, static_cast<int64_t>(known_.size()) - 1);
    }
    ++known_[at].uses;
    return known_[at];
  }

  // Another value of the dtype (cast if need be) that broadcasts with `shape` and keeps the size.
  std::optional<Known> PickMate(const TensorType& with) {
    for (int attempt = 0; attempt < 12; ++attempt) {
      const size_t at = Int(0, static_cast<int64_t>(known_.size()) - 1);
      const std::optional<Shape> both = BroadcastShapes(with.shape, Type(known_[at]).shape);
      if (!both.has_value() || Elements(*both) > options_.max_elements) continue;
      ++known_[at].uses;
      Known mate = known_[at];
      mate.id = builder_.Cast(mate.id, with.dtype);
      return mate;
    }
    return std::nullopt;
  }

  bool Emit(ValueId v, double bound) {
    known_.push_back({v, bound});
    return true;
  }

  bool TryOp() {
    using Try = bool (Generator::*)();
    struct Kind {
      Try make;
      int weight;
    };
    const Kind kinds[] = {
        {&Generator::TryUnary, 4},
        {&Generator::TryBinary, 8},
        {&Generator::TrySelect, 2},
        {&Generator::TryFma, 1},
        {&Generator::TryConstant, 2},
        {&Generator::TryCast, options_.dtypes == RandomGraphOptions::kMixed ? 2 : 0},
        {&Generator::TryReduce, 4},
        {&Generator::TryReshape, 2},
        {&Generator::TryPermute, 2},
        {&Generator::TryExpand, 2},
        {&Generator::TrySlice, 2},
        {&Generator::TryFlip, 1},
        {&Generator::TryPad, 2},
        {&Generator::TryCat, 2},
        {&Generator::TrySliceScatter, options_.accumulates ? 2 : 0},
        {&Generator::TryMatMul, options_.contractions ? 2 : 0},
        {&Generator::TryIndexSelect, options_.indexed ? 1 : 0},
        {&Generator::TryGather, options_.indexed ? 1 : 0},
        {&Generator::TryIndexAdd, options_.indexed ? 1 : 0},
        {&Generator::TryAccumulate, options_.accumulates ? 2 : 0},
        {&Generator::TryScan, 1},
        {&Generator::TryConvolution, options_.contractions ? 2 : 0},
        {&Generator::TryWindows, 1},
        {&Generator::TryStrided, options_.indexed ? 1 : 0},
    };
    int total = 0;
    for (const Kind& kind : kinds) total += kind.weight;
    int64_t at = Int(0, total - 1);
    for (const Kind& kind : kinds) {
      at -= kind.weight;
      if (at < 0) return (this->*kind.make)();
    }
    return false;
  }

  bool TryUnary() {
    const Known k = Pick();
    struct Unary {
      Op op;
      double largest_input;  // beyond it the op is not used
      std::function<double(double)> bound;
    };
    static const auto& choices = *new std::vector<Unary>{
        {Op::neg, kTame, [](double b) { return b; }},
        {Op::abs, kTame, [](double b) { return b; }},
        {Op::relu, kTame, [](double b) { return b; }},
        {Op::tanh, kTame, [](double) { return 1.0; }},
        {Op::sigmoid, kTame, [](double) { return 1.0; }},
        {Op::erf, kTame, [](double) { return 1.0; }},
        {Op::sin, 64, [](double) { return 1.0; }},
        {Op::cos, 64, [](double) { return 1.0; }},
        {Op::exp, 4, [](double b) { return std::exp(b); }},
    };
    const Unary& unary = Choose(choices);
    if (k.bound > unary.largest_input) return false;
    const double bound = unary.bound(k.bound);
    return Emit(builder_.Add(unary.op, {k.id}), bound);
  }

  bool TryBinary() {
    Known a = Pick();
    std::optional<Known> b = PickMate(builder_.type(a.id));
    if (!b.has_value()) return false;
    if (Chance(0.5)) std::swap(a, *b);
    switch (Int(0, 5)) {
      case 0:
      case 1:
        if (a.bound * b->bound > kTame) return false;
        return Emit(builder_.Add(Op::mul, {a.id, b->id}), a.bound * b->bound);
      case 2: return EmitSum(Op::sub, a, *b);
      case 3: {
        const Op op = Chance(0.5) ? Op::maximum : Op::minimum;
        return Emit(builder_.Add(op, {a.id, b->id}), std::max(a.bound, b->bound));
      }
      case 4: {
        // Divisors stay away from zero: b / (1 + a a).
        if (a.bound > 64) return false;
        const ValueId one = builder_.Full(1, builder_.type(a.id).dtype);
        const ValueId square = builder_.Add(Op::mul, {a.id, a.id});
        const ValueId divisor = builder_.Add(Op::add, {square, one});
        return Emit(builder_.Add(Op::div, {b->id, divisor}), b->bound);
      }
      default: return EmitSum(Op::add, a, *b);
    }
  }

  bool EmitSum(Op op, const Known& a, const Known& b) {
    if (a.bound + b.bound > kTame) return false;
    return Emit(builder_.Add(op, {a.id, b.id}), a.bound + b.bound);
  }

  bool TrySelect() {
    const Known a = Pick();
    std::optional<Known> b = PickMate(builder_.type(a.id));
    if (!b.has_value()) return false;
    static const auto& compares =
        *new std::vector<Op>{Op::lt, Op::le, Op::gt, Op::ge, Op::eq, Op::ne};
    ValueId condition = builder_.Add(Choose(compares), {a.id, b->id});
    if (Chance(0.2)) condition = builder_.Add(Op::logical_not, {condition});
    if (Chance(0.2)) {
      const ValueId zero = builder_.Full(0, builder_.type(a.id).dtype);
      const ValueId positive = builder_.Add(Op::gt, {a.id, zero});
      condition =
          builder_.Add(Chance(0.5) ? Op::logical_and : Op::logical_or, {condition, positive});
    }
    return Emit(builder_.Add(Op::where, {condition, a.id, b->id}), std::max(a.bound, b->bound));
  }

  bool TryFma() {
    const Known a = Pick();
    std::optional<Known> b = PickMate(builder_.type(a.id));
    if (!b.has_value()) return false;
    const std::optional<Shape> both =
        BroadcastShapes(builder_.type(a.id).shape, builder_.type(b->id).shape);
    std::optional<Known> c = PickMate({builder_.type(a.id).dtype, *both});
    if (!c.has_value() || a.bound * b->bound + c->bound > kTame) return false;
    return Emit(builder_.Add(Op::fma, {a.id, b->id, c->id}), a.bound * b->bound + c->bound);
  }

  bool TryConstant() {
    const Known k = Pick();
    const TensorType type = builder_.type(k.id);
    if (Chance(0.5)) {
      const double value = static_cast<double>(Int(-8, 8)) / 4;
      if (k.bound * 2 > kTame) return false;
      return Emit(builder_.Add(Op::mul, {k.id, builder_.Full(value, type.dtype)}), k.bound * 2);
    }
    const int64_t axis = Int(0, static_cast<int64_t>(base_.size()) - 1);
    const ValueId counted = builder_.Add(Op::iota, {},
                                         {{"axis", axis},
                                          {"dtype", std::string(Name(DType::kInt64))},
                                          {"shape", base_},
                                          {"start", Int(-3, 3)},
                                          {"step", Int(1, 2)}});
    return Emit(builder_.Cast(counted, type.dtype), 3.0 + 2.0 * static_cast<double>(base_[axis]));
  }

  bool TryCast() {
    const Known k = Pick();
    const DType other = Type(k).dtype == DType::kFp32 ? DType::kBf16 : DType::kFp32;
    const double bound = k.bound;
    return Emit(builder_.Cast(k.id, other), bound);
  }

  bool TryReduce() {
    const Known k = Pick();
    const TensorType type = builder_.type(k.id);
    if (type.rank() == 0) return false;
    std::vector<int64_t> axes;
    int64_t folded = 1;
    for (int64_t i = 0; i < type.rank(); ++i) {
      if (!Chance(0.45)) continue;
      axes.push_back(i);
      folded *= type.shape[i];
    }
    if (axes.empty()) return false;
    const Op op = Chance(0.75) ? Op::sum : Chance(0.5) ? Op::amax : Op::amin;
    const double bound = op == Op::sum ? k.bound * static_cast<double>(folded) : k.bound;
    if (bound > kTame) return false;
    Attrs attrs = {{"axes", axes}};
    if (Chance(0.5)) attrs.Set("keep", int64_t{1});
    return Emit(builder_.Add(op, {k.id}, std::move(attrs)), bound);
  }

  bool TryReshape() {
    const Known k = Pick();
    const Shape from = builder_.type(k.id).shape;
    Shape shape;
    if (Chance(0.5)) {  // merge neighbours
      for (int64_t extent : from) {
        if (!shape.empty() && Chance(0.5)) {
          shape.back() *= extent;
        } else {
          shape.push_back(extent);
        }
      }
    } else {  // split
      for (int64_t extent : from) {
        const int64_t factor = extent % 2 == 0 ? 2 : extent % 3 == 0 ? 3 : 1;
        if (factor > 1 && Chance(0.6) && shape.size() < 5) {
          shape.push_back(extent / factor);
          shape.push_back(factor);
        } else {
          shape.push_back(extent);
        }
      }
      if (Chance(0.3)) shape.insert(shape.begin() + Int(0, shape.size()), 1);
    }
    if (shape.size() > 6) return false;
    return Emit(builder_.Reshape(k.id, shape), k.bound);
  }

  bool TryPermute() {
    const Known k = Pick();
    std::vector<int64_t> perm(builder_.type(k.id).rank());
    for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
    Shuffle(perm);
    return Emit(builder_.Permute(k.id, perm), k.bound);
  }

  bool TryExpand() {
    const Known k = Pick();
    Shape shape = builder_.type(k.id).shape;
    for (int64_t& extent : shape) {
      if (extent == 1) extent = Int(1, options_.max_extent);
    }
    if (shape.size() < 4 && Chance(0.5)) shape.insert(shape.begin(), Int(1, 5));
    if (Elements(shape) > options_.max_elements) return false;
    return Emit(builder_.Expand(k.id, shape), k.bound);
  }

  // Attributes of a slice of the shape; nullopt if it has no axis.
  std::optional<Attrs> RandomSlice(const Shape& shape) {
    if (shape.empty()) return std::nullopt;
    const int64_t axis = Int(0, static_cast<int64_t>(shape.size()) - 1);
    const int64_t start = Int(0, shape[axis] - 1);
    const int64_t stop = Int(start + 1, shape[axis]);
    return Attrs{{"axis", axis}, {"start", start}, {"stop", stop}, {"step", Int(1, 3)}};
  }

  bool TrySlice() {
    const Known k = Pick();
    const std::optional<Attrs> attrs = RandomSlice(builder_.type(k.id).shape);
    if (!attrs.has_value()) return false;
    return Emit(builder_.Add(Op::slice, {k.id}, *attrs), k.bound);
  }

  bool TryFlip() {
    const Known k = Pick();
    std::vector<int64_t> axes;
    for (int64_t i = 0; i < builder_.type(k.id).rank(); ++i) {
      if (Chance(0.4)) axes.push_back(i);
    }
    return Emit(builder_.Add(Op::flip, {k.id}, {{"axes", axes}}), k.bound);
  }

  bool TryPad() {
    const Known k = Pick();
    Shape shape = builder_.type(k.id).shape;
    std::vector<int64_t> low(shape.size()), high(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) {
      low[i] = Chance(0.3) ? Int(0, 3) : 0;
      high[i] = Chance(0.3) ? Int(0, 3) : 0;
      shape[i] += low[i] + high[i];
    }
    if (Elements(shape) > options_.max_elements) return false;
    Attrs attrs = {{"low", low}, {"high", high}};
    if (Chance(0.3)) attrs.Set("value", 0.5);
    return Emit(builder_.Add(Op::pad, {k.id}, std::move(attrs)), k.bound);
  }

  bool TryCat() {
    const Known a = Pick();
    const TensorType type = builder_.type(a.id);
    if (type.rank() == 0 || type.elements() * 3 > options_.max_elements) return false;
    const int64_t axis = Int(0, type.rank() - 1);
    std::vector<ValueId> parts = {a.id};
    double bound = a.bound;
    for (const Known& k : known_) {
      const TensorType& other = builder_.type(k.id);
      if (parts.size() < 3 && other == type && Chance(0.5)) {
        parts.push_back(k.id);
        bound = std::max(bound, k.bound);
      }
    }
    if (parts.size() < 2 && Chance(0.7)) parts.push_back(a.id);
    return Emit(builder_.Add(Op::cat, parts, {{"axis", axis}}), bound);
  }

  bool TrySliceScatter() {
    const Known source = Pick();
    const TensorType type = builder_.type(source.id);
    if (type.rank() == 0) return false;
    const int64_t axis = Int(0, type.rank() - 1);
    const int64_t start = Int(0, 3), step = Int(1, 2);
    const int64_t count = type.shape[axis];
    const int64_t stop = count == 0 ? start : start + (count - 1) * step + 1;
    Shape shape = type.shape;
    shape[axis] = stop + Int(0, 3);
    if (Elements(shape) > options_.max_elements) return false;
    const ValueId base = builder_.Full(Chance(0.8) ? 0.0 : 1.0, type.dtype, shape);
    return Emit(builder_.Add(Op::slice_scatter, {base, source.id},
                             {{"axis", axis}, {"start", start}, {"stop", stop}, {"step", step}}),
                std::max(source.bound, 1.0));
  }

  bool TryMatMul() {
    const Known a = Pick();
    const TensorType type = builder_.type(a.id);
    if (type.rank() < 2) return false;
    Shape other = type.shape;
    other[type.rank() - 2] = type.shape[type.rank() - 1];
    other[type.rank() - 1] = Int(1, options_.max_extent);
    const double bound = a.bound * 2 * static_cast<double>(type.shape.back());
    Shape result = type.shape;
    result.back() = other.back();
    if (bound > kTame || Elements(other) > options_.max_elements ||
        Elements(result) > options_.max_elements) {
      return false;
    }
    const ValueId weight = AddInput(type.dtype, other);
    Attrs attrs;
    if (type.dtype == DType::kBf16 && Chance(0.3)) attrs.Set("dtype", std::string("f32"));
    return Emit(builder_.Add(Op::matmul, {a.id, weight}, std::move(attrs)), bound);
  }

  bool TryScan() {
    const Known k = Pick();
    const TensorType type = builder_.type(k.id);
    if (type.rank() == 0) return false;
    const int64_t axis = Int(0, type.rank() - 1);
    const double bound = k.bound * static_cast<double>(type.shape[axis]);
    if (bound > kTame) return false;
    Attrs attrs = {{"axis", axis}};
    if (Chance(0.4)) attrs.Set("reverse", int64_t{1});
    return Emit(builder_.Add(Op::cumsum, {k.id}, std::move(attrs)), bound);
  }

  bool TryConvolution() {
    const Known k = Pick();
    const TensorType type = builder_.type(k.id);
    if (type.rank() < 3 || type.rank() > 5) return false;
    std::optional<RandomConvolution> drawn =
        DrawConvolution(type.shape, [&](int64_t low, int64_t high) { return Int(low, high); });
    if (!drawn.has_value()) return false;
    const double bound = k.bound * 2 * static_cast<double>(drawn->folded);
    if (bound > kTame) return false;
    for (const Shape& shape : {drawn->operands[0], drawn->operands[1], drawn->result}) {
      if (Elements(shape) > options_.max_elements) return false;
    }
    const ValueId other = AddInput(type.dtype, drawn->operands[1 - drawn->given]);
    if (type.dtype == DType::kBf16 && Chance(0.3)) drawn->attrs.Set("dtype", std::string("f32"));
    const bool first = drawn->given == 0;
    return Emit(builder_.Add(drawn->op, {first ? k.id : other, first ? other : k.id},
                             std::move(drawn->attrs)),
                bound);
  }

  // What the gradient of an average pool reads: along one axis each pixel adds up the windows that
  // hold it, all of it views of the windows.
  bool TryWindows() {
    const Known k = Pick();
    const Shape windows = builder_.type(k.id).shape;
    if (windows.empty() || windows.size() > 5) return false;
    const size_t axis = Int(0, static_cast<int64_t>(windows.size()) - 1);
    const int64_t kernel = Int(1, 4), stride = Int(1, 3), padding = Int(0, (kernel - 1) / 2);
    Shape pixels = windows;
    pixels[axis] = (windows[axis] - 1) * stride + kernel - 2 * padding;
    const int64_t turns = (kernel + stride - 1) / stride;
    if (pixels[axis] < 1 || Elements(pixels) > options_.max_elements ||
        Elements(windows) * stride > options_.max_elements ||
        k.bound * static_cast<double>(turns) > kTame) {
      return false;
    }
    ValueId total{};
    for (int64_t turn = 0; turn < turns; ++turn) {
      const ValueId part = WindowsOfTurn(k.id, axis,
                                         {.kernel = kernel,
                                          .stride = stride,
                                          .start = padding - turn * stride,
                                          .turn = turn,
                                          .pixels = pixels[axis]});
      total = turn == 0 ? part : builder_.Add(Op::add, {total, part});
    }
    return Emit(total, k.bound * static_cast<double>(turns));
  }

  struct Turn {
    int64_t kernel, stride;
    int64_t start;  // where pixel 0 lies among the repeated windows
    int64_t turn, pixels;
  };
  // For each pixel along the axis what its turn-th window holds, 0 where it has none.
  ValueId WindowsOfTurn(ValueId windows, size_t axis, const Turn& t) {
    Shape shape = builder_.type(windows).shape;
    const int64_t inside = std::min(t.stride, t.kernel - t.turn * t.stride);
    Shape wide = shape;
    wide.insert(wide.begin() + static_cast<std::ptrdiff_t>(axis) + 1, 1);
    ValueId v = builder_.Reshape(windows, wide);
    wide[axis + 1] = inside;
    v = builder_.Expand(v, wide);
    std::vector<int64_t> low(wide.size()), high(wide.size());
    high[axis + 1] = t.stride - inside;
    v = builder_.Add(Op::pad, {v}, {{"low", low}, {"high", high}});
    shape[axis] *= t.stride;
    v = builder_.Reshape(v, shape);
    const int64_t extent = shape[axis];
    const int64_t before = std::clamp<int64_t>(-t.start, 0, t.pixels);
    const int64_t begin = std::clamp<int64_t>(t.start, 0, extent);
    const int64_t end = std::clamp<int64_t>(t.start + t.pixels, begin, extent);
    v = builder_.Add(Op::slice, {v},
                     {{"axis", static_cast<int64_t>(axis)},
                      {"start", begin},
                      {"stop", end},
                      {"step", int64_t{1}}});
    low.assign(shape.size(), 0), high.assign(shape.size(), 0);
    low[axis] = before;
    high[axis] = t.pixels - before - (end - begin);
    return builder_.Add(Op::pad, {v}, {{"low", low}, {"high", high}});
  }

  // Elements of a flat value at computed places: any strides, which may overlap.
  bool TryStrided() {
    const Known k = Pick();
    const TensorType type = builder_.type(k.id);
    const int64_t length = type.elements();
    if (type.rank() == 0 || length == 0) return false;
    const Shape shape = {Int(1, 5), Int(1, 5)};
    std::vector<int64_t> strides(shape.size());
    int64_t last = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t steps = shape[d] - 1;
      strides[d] = steps == 0 ? 1 : Int(0, (length - 1 - last) / steps);
      last += steps * strides[d];
    }
    ValueId places{};
    for (size_t d = 0; d < shape.size(); ++d) {
      const ValueId line = builder_.Add(Op::iota, {},
                                        {{"axis", static_cast<int64_t>(d)},
                                         {"dtype", std::string(Name(DType::kInt64))},
                                         {"shape", shape},
                                         {"start", d == 0 ? Int(0, length - 1 - last) : 0},
                                         {"step", strides[d]}});
      places = d == 0 ? line : builder_.Add(Op::add, {places, line});
    }
    const ValueId flat = builder_.Reshape(k.id, {length});
    return Emit(builder_.Add(Op::index_select, {flat, places}, {{"axis", int64_t{0}}}), k.bound);
  }

  ValueId IndexInput(Shape shape) {
    return AddInput(Chance(0.5) ? DType::kInt32 : DType::kInt64, std::move(shape));
  }

  bool TryIndexSelect() {
    const Known x = Pick();
    const TensorType type = builder_.type(x.id);
    if (type.rank() == 0 || type.elements() > options_.max_elements / 8) return false;
    const Shape index = Chance(0.5) ? Shape{Int(1, 8)} : Shape{2, Int(1, 4)};
    return Emit(builder_.Add(Op::index_select, {x.id, IndexInput(index)},
                             {{"axis", Int(0, type.rank() - 1)}}),
                x.bound);
  }

  bool TryGather() {
    const Known x = Pick();
    const TensorType type = builder_.type(x.id);
    if (type.rank() == 0) return false;
    const int64_t axis = Int(0, type.rank() - 1);
    Shape index = type.shape;
    index[axis] = Int(1, 4);
    if (Elements(index) > options_.max_elements) return false;
    return Emit(builder_.Add(Op::gather, {x.id, IndexInput(index)}, {{"axis", axis}}), x.bound);
  }

  bool TryIndexAdd() {
    const Known x = Pick();
    const TensorType type = builder_.type(x.id);
    if (type.rank() == 0) return false;
    const int64_t axis = Int(0, type.rank() - 1);
    const double bound = x.bound * static_cast<double>(type.shape[axis]);
    if (bound > kTame) return false;
    Shape shape = type.shape;
    shape[axis] = Int(1, options_.max_extent);
    if (Elements(shape) > options_.max_elements) return false;
    const ValueId base = builder_.Full(0, type.dtype, shape);
    return Emit(
        builder_.Add(Op::index_add, {base, IndexInput({type.shape[axis]}), x.id}, {{"axis", axis}}),
        bound);
  }

  bool TryAccumulate() {
    const Known first = Pick();
    const TensorType type = builder_.type(first.id);
    Shape shape = type.shape;
    for (int64_t& extent : shape) extent += Chance(0.3) ? Int(1, 4) : 0;
    if (Elements(shape) > options_.max_elements) return false;
    std::vector<ValueId> parts;
    std::vector<int64_t> starts;
    double bound = 0;
    const auto add = [&](const Known& k) {
      const Shape& part = builder_.type(k.id).shape;
      parts.push_back(k.id);
      for (size_t d = 0; d < part.size(); ++d) starts.push_back(Int(0, shape[d] - part[d]));
      bound += k.bound;
    };
    add(first);
    for (const Known& k : known_) {
      const TensorType& other = builder_.type(k.id);
      bool fits = parts.size() < 5 && other.dtype == type.dtype && other.rank() == type.rank();
      for (int d = 0; fits && d < type.rank(); ++d) fits = other.shape[d] <= shape[d];
      if (fits && Chance(0.4)) add(k);
    }
    if (bound > kTame) return false;
    return Emit(builder_.Add(Op::accumulate, parts, {{"shape", shape}, {"starts", starts}}), bound);
  }

  // What nobody reads becomes an output, and a few others: inputs, values listed twice.
  void AddOutputs() {
    int count = 0;
    for (const Known& k : known_) {
      const bool late = Index(k.id.node) + 3 >= builder_.num_nodes();
      if (k.uses > 0 && !late && !Chance(0.1)) continue;
      if (Chance(0.1) && !late) continue;
      std::vector<int64_t> strides;
      if (options_.strides && Chance(0.2))
        strides = RandomStrides(builder_.type(k.id).shape, false);
      builder_.Output(k.id, absl::StrCat("gradient_", count++), std::move(strides));
      if (Chance(0.05)) builder_.Output(k.id, "again");
    }
    if (count == 0) builder_.Output(known_.back().id, "gradient");
    if (Chance(0.3)) builder_.AbsentOutput("none");
  }

  const RandomGraphOptions& options_;
  std::mt19937 rng_;
  GraphBuilder builder_;
  Shape base_;
  std::vector<Known> known_;
};

// The smallest extent of an axis on which the integer input is an index.
int64_t IndexLimit(const BackwardGraph& graph, NodeId input) {
  int64_t limit = 1 << 20;
  for (const Use& use : graph.uses(input)) {
    const Pattern pattern = graph.pattern(use.user);
    if (pattern != Pattern::kGather && pattern != Pattern::kScatter) continue;
    const TensorType& x = graph.type(graph.operands(use.user)[0]);
    limit = std::min(limit, x.shape[graph.node(use.user).attrs.Int("axis")]);
  }
  return limit;
}

}  // namespace

BackwardGraph RandomGraph(uint32_t seed, const RandomGraphOptions& options) {
  return Generator(seed, options).Generate();
}

std::vector<Values> RandomInputs(const BackwardGraph& graph, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<Values> inputs;
  for (NodeId id : InputNodes(graph)) {
    const TensorType& type = graph.type(id);
    const int64_t limit = IsFloat(type.dtype) ? 0 : IndexLimit(graph, id);
    // An expanded dim of the input repeats its elements; they are drawn once per address.
    const std::vector<int64_t>& given = graph.node(id).input->strides;
    const std::vector<int64_t> strides = given.empty() ? DenseStrides(type.shape) : given;
    const uint32_t salt = rng();
    Values values(type.elements());
    std::vector<int64_t> index(type.shape.size());
    for (double& value : values) {
      int64_t address = 0;
      for (size_t d = 0; d < index.size(); ++d) address += index[d] * strides[d];
      std::minstd_rand local(salt + static_cast<uint32_t>(address) * 7919u + 1);
      local.discard(3);
      const double unit = static_cast<double>(local()) / 2147483647.0;
      value = type.dtype == DType::kBool ? (unit < 0.5 ? 0 : 1)
              : IsFloat(type.dtype)      ? RoundTo(type.dtype, 4 * unit - 2)
                                         : std::floor(unit * static_cast<double>(limit));
      for (int d = type.rank() - 1; d >= 0; --d) {
        if (++index[d] < type.shape[d]) break;
        index[d] = 0;
      }
    }
    inputs.push_back(std::move(values));
  }
  return inputs;
}

}  // namespace retrograd
