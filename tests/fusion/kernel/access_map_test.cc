// Access maps against brute force: every point of random view chains, forward and backward.
#include "fusion/kernel/ir/access_map.h"

#include <random>

#include "fusion/kernel/build/build.h"
#include "fusion/kernel/build/iteration_space.h"
#include "fusion/lower/layouts/layouts.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

std::vector<IndexExpr> OwnAxes(size_t rank) {
  std::vector<IndexExpr> coords;
  for (size_t i = 0; i < rank; ++i) coords.push_back(IndexExpr::Axis(static_cast<int>(i)));
  return coords;
}

// Calls fn with each point of the shape.
template <typename Fn>
void ForEachPoint(const Shape& shape, Fn fn) {
  std::vector<int64_t> at(shape.size(), 0);
  for (int64_t n = Elements(shape); n > 0; --n) {
    fn(at);
    for (size_t i = shape.size(); i-- > 0;) {
      if (++at[i] < shape[i]) break;
      at[i] = 0;
    }
  }
}

// The element of the view's operand that a point of its result shows, worked out without index
// expressions; -1 for a fill.
int64_t Shown(const BackwardGraph& g, NodeId view, const std::vector<int64_t>& at) {
  const Node& node = g.node(view);
  const Shape& in = g.type(g.operands(view)[0]).shape;
  std::vector<int64_t> from(in.size());
  switch (node.op) {
    case Op::reshape: {
      int64_t flat = 0;
      for (size_t i = 0; i < at.size(); ++i) flat = flat * node.results[0].shape[i] + at[i];
      return flat;
    }
    case Op::permute:
      for (size_t i = 0; i < at.size(); ++i) from[node.attrs.Ints("perm")[i]] = at[i];
      break;
    case Op::expand:
      for (size_t i = 0; i < in.size(); ++i) {
        from[i] = in[i] == 1 ? 0 : at[at.size() - in.size() + i];
      }
      break;
    case Op::slice:
      from = at;
      from[node.attrs.Int("axis")] =
          node.attrs.Int("start") + node.attrs.Int("step", 1) * at[node.attrs.Int("axis")];
      break;
    case Op::flip:
      from = at;
      for (int64_t a : node.attrs.Ints("axes")) from[a] = in[a] - 1 - at[a];
      break;
    case Op::pad:
      for (size_t i = 0; i < in.size(); ++i) {
        from[i] = at[i] - node.attrs.Ints("low")[i];
        if (from[i] < 0 || from[i] >= in[i]) return -1;
      }
      break;
    default: FAIL("not a view");
  }
  int64_t flat = 0;
  for (size_t i = 0; i < in.size(); ++i) flat = flat * in[i] + from[i];
  return flat;
}

ValueId RandomView(GraphBuilder& b, ValueId v, std::mt19937& rng) {
  const Shape shape = b.type(v).shape;
  const int rank = static_cast<int>(shape.size());
  auto pick = [&](int64_t n) { return static_cast<int64_t>(rng() % n); };
  switch (pick(6)) {
    case 0: {  // merge two dims, or split one
      const int64_t axis = pick(rank);
      Shape to = shape;
      if (axis + 1 < rank && pick(2) == 0) {
        to[axis] *= to[axis + 1];
        to.erase(to.begin() + axis + 1);
      } else {
        for (int64_t d : {2, 3}) {
          if (to[axis] % d == 0) {
            to[axis] /= d;
            to.insert(to.begin() + axis + 1, d);
            break;
          }
        }
      }
      return b.Reshape(v, to);
    }
    case 1: {
      std::vector<int64_t> perm(rank);
      for (int i = 0; i < rank; ++i) perm[i] = i;
      std::shuffle(perm.begin(), perm.end(), rng);
      return b.Permute(v, perm);
    }
    case 2: {
      const int64_t axis = pick(rank), start = pick(shape[axis]);
      return b.Add(
          Op::slice, {v},
          {{"axis", axis}, {"start", start}, {"stop", shape[axis]}, {"step", 1 + pick(2)}});
    }
    case 3: return b.Add(Op::flip, {v}, {{"axes", std::vector<int64_t>{pick(rank)}}});
    case 4: {
      std::vector<int64_t> low(rank), high(rank);
      low[pick(rank)] = 1;
      high[pick(rank)] = 2;
      return b.Add(Op::pad, {v}, {{"low", low}, {"high", high}, {"value", 0.0}});
    }
    default: {
      Shape to = shape;
      to.insert(to.begin(), 2);
      return b.Expand(v, to);
    }
  }
}

TEST_CASE("a view chain composes to the element that each step shows") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    GraphBuilder b("views");
    ValueId v = b.Input({DType::kFp32, {4, 3, 6}}, {.name = "x"});
    const int steps = 1 + static_cast<int>(rng() % 5);
    for (int i = 0; i < steps; ++i) v = RandomView(b, v, rng);
    b.Output(v, "y");
    auto graph = b.Build();
    REQUIRE(graph.ok());
    const BackwardGraph& g = *graph;
    const ValueId result = *g.outputs()[0].value;
    const Shape extents = g.type(result).shape;
    AccessMap map{.coords = OwnAxes(extents.size()), .guards = {}, .fill = 0};
    std::vector<NodeId> chain;
    for (ValueId at = result; g.pattern(at.node) == Pattern::kView; at = g.operands(at.node)[0]) {
      map = ThroughView(g, at.node, map, extents);
      chain.push_back(at.node);
    }
    const IndexExpr address = Linearize(map.coords, DenseStrides({4, 3, 6}));
    ForEachPoint(extents, [&](const std::vector<int64_t>& point) {
      std::vector<int64_t> at = point;
      int64_t shown = 0;
      for (size_t i = 0; i < chain.size() && shown >= 0; ++i) {
        shown = Shown(g, chain[i], at);
        const Shape& in = g.type(g.operands(chain[i])[0]).shape;
        at.assign(in.size(), 0);
        for (int64_t d = static_cast<int64_t>(in.size()) - 1, rest = shown; d >= 0 && shown >= 0;
             --d) {
          at[d] = rest % in[d];
          rest /= in[d];
        }
      }
      bool inside = true;
      for (const Guard& guard : map.guards) {
        const int64_t x = guard.expr.Evaluate(point);
        inside = inside && guard.begin <= x && x < guard.end;
      }
      CHECK(inside == (shown >= 0));
      if (inside && shown >= 0) CHECK(address.Evaluate(point) == shown);
    });
  }
}

TEST_CASE("strides stand for a view chain wherever affine addresses do, and say the same") {
  int strided = 0;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    GraphBuilder b("views");
    // Permuted, with gaps, or repeating: any layout of an input.
    const std::vector<std::vector<int64_t>> layouts = {
        {18, 6, 1}, {1, 4, 12}, {40, 12, 2}, {6, 0, 1}};
    const std::vector<int64_t> base = layouts[rng() % layouts.size()];
    ValueId v = b.Input({DType::kFp32, {4, 3, 6}}, {.name = "x", .strides = base});
    const int steps = 1 + static_cast<int>(rng() % 5);
    for (int i = 0; i < steps; ++i) v = RandomView(b, v, rng);
    b.Output(v, "y");
    auto graph = b.Build();
    REQUIRE(graph.ok());
    const BackwardGraph& g = *graph;
    const ValueId result = *g.outputs()[0].value;
    const Shape extents = g.type(result).shape;
    AccessMap map{.coords = OwnAxes(extents.size()), .guards = {}, .fill = 0};
    ValueId stored = result;
    for (; g.pattern(stored.node) == Pattern::kView; stored = g.operands(stored.node)[0]) {
      map = ThroughView(g, stored.node, map, extents);
    }
    const IndexExpr address = Linearize(map.coords, base);
    const auto view = AsStrided(g, AssignLayouts(g).of, result);
    if (view) {
      ++strided;
      CHECK(view->stored == stored);
      REQUIRE(map.guards.empty());
      ForEachPoint(extents, [&](const std::vector<int64_t>& point) {
        int64_t at = view->offset;
        for (size_t d = 0; d < point.size(); ++d) at += point[d] * view->strides[d];
        CHECK(at == address.Evaluate(point));
      });
    } else {
      bool backwards = false;
      for (size_t d = 0; d < extents.size(); ++d) {
        backwards = backwards || address.axis_coef(static_cast<int>(d)) < 0;
      }
      CHECK((backwards || !map.guards.empty() || !address.is_affine()));
    }
  }
  CHECK(strided > 400);
}

TEST_CASE("a bijective view followed forward and back is where it began") {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    GraphBuilder b("views");
    const Shape extents = {4, 3, 6};
    ValueId v = b.Input({DType::kFp32, extents}, {.name = "x"});
    v = RandomView(b, v, rng);
    b.Output(v, "y");
    auto graph = b.Build();
    REQUIRE(graph.ok());
    const NodeId view = graph->outputs()[0].value->node;
    const AccessMap start{.coords = OwnAxes(3), .guards = {}, .fill = 0};
    auto there = ThroughViewForward(*graph, view, start, extents);
    if (!there) continue;
    const AccessMap back = ThroughView(*graph, view, *there, extents);
    CHECK(back.coords == start.coords);
  }
}

TEST_CASE(
    "quotient and remainder of one expression recombine, so a reshape and its inverse cancel") {
  const std::vector<int64_t> extents = {6, 8};
  const IndexExpr e = IndexExpr::Axis(0) * 8 + IndexExpr::Axis(1);
  for (int64_t k : {2, 3, 5, 7, 12, 16}) {
    CHECK(FloorDiv(e, k, extents) * k + Mod(e, k, extents) == e);
  }
}

TEST_CASE("a slice of a flattened tensor addresses it plainly, wherever it starts") {
  const std::vector<int64_t> extents = {50};
  for (int64_t start = 0; start < 90; ++start) {
    INFO("start " << start);
    const IndexExpr x = IndexExpr::Axis(0) * 2 + IndexExpr::Constant(start);
    const IndexExpr row = FloorDiv(x, 9, extents);
    CHECK(FloorDiv(row, 7, extents) == FloorDiv(x, 63, extents));
    const IndexExpr coords[] = {FloorDiv(x, 63, extents), Mod(row, 7, extents), Mod(x, 9, extents)};
    CHECK(Linearize(coords, {63, 9, 1}) == x);
  }
}

TEST_CASE("windows cut out of copies that lie one behind the other are addressed plainly") {
  // Rows of 58 over copies of 56: row a begins a * 2 later in its copy.
  const std::vector<int64_t> extents = {4, 50};
  const IndexExpr flat = IndexExpr::Axis(0) * 58 + IndexExpr::Axis(1);
  CHECK(FloorDiv(flat, 56, extents) == IndexExpr::Axis(0));
  CHECK(Mod(flat, 56, extents) == IndexExpr::Axis(0) * 2 + IndexExpr::Axis(1));
  // One place more, and a copy ends before its row.
  const std::vector<int64_t> longer = {4, 51};
  CHECK_FALSE(Mod(flat, 56, longer) == IndexExpr::Axis(0) * 2 + IndexExpr::Axis(1));
}

TEST_CASE("division and remainder agree with integers at every point") {
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    const std::vector<int64_t> extents = {3, 4, 5};
    IndexExpr e = IndexExpr::Constant(static_cast<int64_t>(rng() % 7) - 3);
    for (int a = 0; a < 3; ++a) e = e + IndexExpr::Axis(a) * (static_cast<int64_t>(rng() % 9) - 2);
    const int64_t k = 1 + rng() % 8, m = 1 + rng() % 6;
    const IndexExpr q = FloorDiv(e, k, extents), r = Mod(q, m, extents);
    const IndexRange range = Range(r, extents);
    ForEachPoint(extents, [&](const std::vector<int64_t>& at) {
      const int64_t x = e.Evaluate(at);
      const int64_t fq = x >= 0 ? x / k : -((-x + k - 1) / k);
      const int64_t fr = ((fq % m) + m) % m;
      CHECK(q.Evaluate(at) == fq);
      CHECK(r.Evaluate(at) == fr);
      CHECK(range.min <= fr);
      CHECK(fr <= range.max);
    });
  }
}

// Sums of quotients and remainders, each part a copy of one that is gone by the end.
TEST_CASE("sums keep the divisions of their parts, which end before them") {
  const std::vector<int64_t> extents = {3, 4, 5};
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    const auto draw = [&](int64_t low, uint32_t places) {
      return low + static_cast<int64_t>(rng() % places);
    };
    struct Part {
      std::vector<int64_t> coefs;
      int64_t divisor = 1, factor = 1;
      bool remainder = false;
    };
    std::vector<Part> parts(1 + rng() % 5);
    IndexExpr sum = IndexExpr::Constant(draw(-2, 5));
    const int64_t offset = sum.offset();
    for (Part& part : parts) {
      part = {.divisor = draw(1, 6), .factor = draw(-3, 7), .remainder = rng() % 2 == 0};
      IndexExpr inner;
      for (int a = 0; a < 3; ++a) {
        part.coefs.push_back(draw(-2, 7));
        inner = inner + IndexExpr::Axis(a) * part.coefs.back();
      }
      const IndexExpr divided = part.remainder ? Mod(inner, part.divisor, extents)
                                               : FloorDiv(inner, part.divisor, extents);
      sum.AddScaled(IndexExpr(divided), part.factor);
    }
    const IndexExpr copy = sum;
    sum = IndexExpr();
    ForEachPoint(extents, [&](const std::vector<int64_t>& at) {
      int64_t expected = offset;
      for (const Part& part : parts) {
        int64_t x = 0;
        for (int a = 0; a < 3; ++a) x += part.coefs[a] * at[a];
        const int64_t rest = ((x % part.divisor) + part.divisor) % part.divisor;
        expected += part.factor * (part.remainder ? rest : (x - rest) / part.divisor);
      }
      CHECK(copy.Evaluate(at) == expected);
    });
  }
}

TEST_CASE("axes with other numbers are the same axes") {
  IndexExpr e = IndexExpr::Constant(7);
  for (int a = 0; a < 5; ++a) e = e + IndexExpr::Axis(a) * (a + 1);
  e.RenumberAxes(std::vector<int>{3, -1, 0, 2, 1});
  CHECK(e == IndexExpr::Constant(7) + IndexExpr::Axis(3) + IndexExpr::Axis(0) * 3 +
                 IndexExpr::Axis(2) * 4 + IndexExpr::Axis(1) * 5);
  e.RenumberAxes(std::vector<int>{-1, -1, -1, -1});
  CHECK(e == IndexExpr::Constant(7));
}

TEST_CASE("a known divisor divides the address at every point") {
  const std::vector<int64_t> extents = {4, 6};
  const IndexExpr e = IndexExpr::Axis(0) * 24 + IndexExpr::Axis(1) * 4 + IndexExpr::Constant(8);
  CHECK(KnownDivisor(e, 16) == 4);
  CHECK(KnownDivisor(IndexExpr::Axis(0) * 32, 16) == 16);
  CHECK(KnownDivisor(IndexExpr::Axis(1) * 3, 16) == 1);
}

TEST_CASE("coordinates are one-to-one exactly when they are a mixed radix of the axes") {
  const std::vector<int64_t> extents = {4, 6};
  const IndexExpr a0 = IndexExpr::Axis(0), a1 = IndexExpr::Axis(1);
  CHECK(OneToOneAxes({a0, a1}, {4, 6}, extents) == AxisMask{3});
  CHECK(OneToOneAxes({a1, a0}, {6, 4}, extents) == AxisMask{3});
  CHECK(OneToOneAxes({a1}, {6}, extents) == AxisMask{2});
  CHECK_FALSE(OneToOneAxes({a0 + a1}, {9}, extents).has_value());
  CHECK_FALSE(OneToOneAxes({a1}, {7}, extents).has_value());
}

}  // namespace
}  // namespace retrograd
