// GraphBuilder, BackwardGraph and type inference.
#include "graph/ir/backward_graph.h"

#include <algorithm>
#include <boost/graph/dominator_tree.hpp>
#include <boost/graph/graph_concepts.hpp>
#include <boost/graph/topological_sort.hpp>

#include "graph/ir/boost_graph.h"
#include "graph/ir/structural_ops.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

TEST_CASE("a graph keeps operands in order, uses by id, and dense value numbers") {
  GraphBuilder b("g");
  const ValueId x = b.Input({DType::kFp32, {4, 8}}, {.name = "x"});
  const ValueId y = b.Add(Op::mul, {x, x});
  const ValueId s = b.Sum(y, {0});
  b.Output(s, "w");
  b.AbsentOutput("b");
  b.Output(x, "x");
  auto g = b.Build();
  REQUIRE(g.ok());
  CHECK(g->num_nodes() == 3);
  CHECK(g->num_values() == 3);
  CHECK(g->operands(y.node)[0] == x);
  CHECK(g->operands(y.node)[1] == x);
  REQUIRE(g->uses(x.node).size() == 2);
  CHECK(g->uses(x.node)[1] == Use{y.node, 1, 0});
  CHECK(g->type(s) == TensorType{DType::kFp32, {8}});
  CHECK(g->outputs().size() == 3);
  CHECK_FALSE(g->outputs()[1].value.has_value());
  CHECK(g->Verify().ok());
}

TEST_CASE("the first error of a builder sticks and names the node") {
  GraphBuilder b;
  const ValueId x = b.Input({DType::kFp32, {4, 8}}, {.name = "x"});
  const ValueId y = b.Input({DType::kFp32, {4, 7}}, {.name = "y"});
  b.Output(b.Add(Op::mul, {x, y}), "w");
  b.Sum(x, {9});
  auto g = b.Build();
  REQUIRE_FALSE(g.ok());
  CHECK(
      g.status().message() ==
      "RG-G018 (G3): node %2 (mul): operands f32[4,8], f32[4,7]: extents differ and neither is 1");
}

TEST_CASE("pointwise operands broadcast like numpy's and dtypes are strict") {
  GraphBuilder b;
  const ValueId x = b.Input({DType::kFp32, {4, 1, 8}}, {});
  const ValueId y = b.Input({DType::kFp32, {5, 1}}, {});
  CHECK(b.type(b.Add(Op::add, {x, y})) == TensorType{DType::kFp32, {4, 5, 8}});
  CHECK(b.type(b.Add(Op::lt, {x, y})).dtype == DType::kBool);
  b.Add(Op::add, {x, b.Full(1, DType::kBf16)});
  CHECK(b.status().message() ==
        "RG-G017 (G3): node %5 (add): operands f32[4,1,8], bf16[]: all have to be of one dtype; a "
        "cast is explicit");
}

TEST_CASE("a composite's results are those of its expansion") {
  GraphBuilder b;
  const ValueId dy = b.Input({DType::kFp32, {4, 8}}, {});
  const ValueId x = b.Input({DType::kFp32, {4, 8}}, {});
  const ValueId mean = b.Input({DType::kFp32, {4, 1}}, {});
  const ValueId rstd = b.Input({DType::kFp32, {4, 1}}, {});
  const ValueId w = b.Input({DType::kFp32, {8}}, {});
  const ValueId d = b.Add(Op::layer_norm_backward, {dy, x, mean, rstd, w});
  b.Output({d.node, 2}, "bias");
  auto g = b.Build();
  REQUIRE(g.ok());
  REQUIRE(g->node(d.node).results.size() == 3);
  CHECK(g->type(ValueId{d.node, 0}).shape == Shape{4, 8});
  CHECK(g->type(ValueId{d.node, 1}).shape == Shape{8});
  CHECK(g->type(ValueId{d.node, 2}).shape == Shape{8});
}

TEST_CASE("to Boost.Graph the edges are the operand lists, from both sides") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    INFO("seed " << seed);
    const BackwardGraph g = RandomGraph(seed);
    std::vector<OperandEdge> in, out, expected;
    for (auto [v, end] = vertices(g); v != end; ++v) {
      const NodeId id{static_cast<uint32_t>(*v)};
      for (uint32_t i = 0; i < g.operands(id).size(); ++i) {
        const ValueId operand = g.operands(id)[i];
        expected.push_back({Index(operand.node), *v, operand.result, i});
      }
      for (auto [e, last] = in_edges(*v, g); e != last; ++e) in.push_back(*e);
      for (auto [e, last] = out_edges(*v, g); e != last; ++e) out.push_back(*e);
      CHECK(degree(*v, g) == g.operands(id).size() + g.uses(id).size());
    }
    CHECK(num_edges(g) == expected.size());
    CHECK(in == expected);
    std::sort(out.begin(), out.end());
    std::sort(expected.begin(), expected.end());
    CHECK(out == expected);
  }
}

TEST_CASE("Boost's algorithms run on a graph: topological sort and dominators") {
  BOOST_CONCEPT_ASSERT((boost::BidirectionalGraphConcept<BackwardGraph>));
  BOOST_CONCEPT_ASSERT((boost::VertexListGraphConcept<BackwardGraph>));
  GraphBuilder b;
  const ValueId x = b.Input({DType::kFp32, {4, 8}}, {});
  const ValueId left = b.Add(Op::neg, {x});
  const ValueId right = b.Add(Op::exp, {x});
  const ValueId join = b.Add(Op::mul, {left, right});
  const ValueId last = b.Sum(join, {0});
  b.Output(last, "w");
  const BackwardGraph g = *b.Build();

  std::vector<size_t> order;
  boost::topological_sort(g, std::back_inserter(order));  // users first
  std::vector<size_t> place(g.num_nodes());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  for (auto [v, end] = vertices(g); v != end; ++v) {
    for (auto [e, done] = out_edges(*v, g); e != done; ++e) {
      CHECK(place[target(*e, g)] < place[source(*e, g)]);
    }
  }

  std::vector<size_t> dominator(g.num_nodes(), BoostTraits::null_vertex());
  boost::lengauer_tarjan_dominator_tree(
      g, size_t{Index(x.node)},
      boost::make_iterator_property_map(dominator.begin(), get(boost::vertex_index, g)));
  CHECK(dominator[Index(join.node)] == Index(x.node));  // two ways lead there
  CHECK(dominator[Index(last.node)] == Index(join.node));
}

TEST_CASE("strides: inputs may repeat elements, outputs may not") {
  CHECK(CheckStrides({4, 8}, {0, 1}, false).ok());
  CHECK_FALSE(CheckStrides({4, 8}, {0, 1}, true).ok());
  CHECK(CheckStrides({4, 8}, {1, 4}, true).ok());
  CHECK(CheckStrides({4, 8}, {16, 2}, true).ok());
  CHECK_FALSE(CheckStrides({4, 8}, {7, 1}, true).ok());
  CHECK(CheckStrides({1, 8}, {0, 1}, true).ok());  // one element has one address
  CHECK(CheckStrides({}, {}, true).ok());
}

TEST_CASE("copies of equal graphs are equal; a change of any part is not") {
  const BackwardGraph g = RandomGraph(7);
  CHECK(g == RandomGraph(7));
  CHECK_FALSE(g == RandomGraph(8));
  GraphBuilder a("g"), b("g");
  a.SetOrigin(Origin{"aten.mul"});
  const ValueId x = a.Input({DType::kFp32, {2}}, {.name = "x"});
  const ValueId y = b.Input({DType::kFp32, {2}}, {.name = "x"});
  a.Output(x, "x");
  b.Output(y, "x");
  CHECK_FALSE(*a.Build() == *b.Build());
}

TEST_CASE("the span of a strided tensor ends with its last element; an empty one has none") {
  CHECK(SpanElements({3, 4}, {10, 1}) == 24);
  CHECK(SpanElements({}, {}) == 1);
  CHECK(SpanElements({0, 4}, {1, 1}) == 0);
  CHECK(SpanElements({4, 0}, {7, 3}) == 0);
}

TEST_CASE("strides reach 2^48 elements together, not each by itself") {
  const auto built = [](int64_t outer, int64_t inner) {
    GraphBuilder b;
    const ValueId x = b.Input({DType::kFp32, {2, 2}}, {.name = "x", .strides = {outer, inner}});
    b.Output(b.Add(Op::neg, {x}), "y");
    return b.Build().status();
  };
  CHECK(built(200'000'000'000'000, 1).ok());
  CHECK(built(1, 150'000'000'000'000).ok());
  CHECK_FALSE(built(200'000'000'000'000, 150'000'000'000'000).ok());
}

}  // namespace
}  // namespace retrograd
