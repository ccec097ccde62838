// Sums of rows of which one element is not zero.
#include "graph/one_hot.h"

#include <algorithm>

#include "graph/reference.h"
#include "tests/catch.h"
#include "tests/support/random_graph.h"
#include "tests/support/same_outputs.h"

namespace retrograd {
namespace {

int Count(const BackwardGraph& g, Op op) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == op;
  return count;
}

struct Case {
  bool masked = false;      // columns past the 40th cut off
  bool factor = true;       // times a value a row
  bool narrowed = false;    // cast
  double elsewhere = 0;     // in the columns that are not the label's
  bool keep = true;
  int64_t start = 0;        // of the column numbers
};

// sum(where(label == column, -1, elsewhere) * factor), and the rows themselves.
BackwardGraph Build(const Case& c) {
  GraphBuilder b("one hot");
  const int64_t rows = 64, columns = 50;
  // Labels 0 to 63: most are columns.
  const ValueId label = b.Add(Op::iota, {},
                              {{"axis", int64_t{0}}, {"dtype", std::string("i64")}, {"shape", Shape{rows, 1}},
                               {"start", int64_t{0}}, {"step", int64_t{1}}});
  const ValueId factor = b.Input({DType::kFp64, {rows, 1}}, {.name = "factor"});
  const ValueId column = b.Add(Op::iota, {},
                               {{"axis", int64_t{0}}, {"dtype", std::string("i64")}, {"shape", Shape{columns}},
                                {"start", c.start}, {"step", int64_t{1}}});
  const ValueId is = b.Add(Op::eq, {b.Expand(label, {rows, columns}), b.Reshape(column, {1, columns})});
  ValueId hot = b.Add(Op::where, {is, b.Full(-1, DType::kFp64), b.Full(c.elsewhere, DType::kFp64)});
  if (c.narrowed) hot = b.Cast(hot, DType::kFp32);
  if (c.factor) hot = b.Add(Op::mul, {hot, b.Cast(factor, b.type(hot).dtype)});
  if (c.masked) {
    const ValueId inside = b.Add(Op::lt, {column, b.Full(40, DType::kInt64)});
    hot = b.Add(Op::where, {inside, hot, b.Full(0, b.type(hot).dtype)});
  }
  b.Output(b.Sum(hot, {1}, c.keep), "sum");
  b.Output(hot, "rows");
  auto graph = b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  return *std::move(graph);
}

TEST_CASE("the sum of a one-hot row is its one value, whatever it is made by") {
  for (const Case& c : {Case{}, Case{.masked = true}, Case{.factor = false}, Case{.narrowed = true},
                        Case{.keep = false}, Case{.masked = true, .narrowed = true, .start = 3}}) {
    const BackwardGraph graph = Build(c);
    const auto summed = SumOneHots(graph);
    REQUIRE(summed.ok());
    CHECK(Count(*summed, Op::sum) == 0);
    CHECK(LargestDifference(graph, *summed) == 0);
    const auto values = Evaluate(graph, RandomInputs(graph, 7));
    REQUIRE(values.ok());
    const Values& sums = (*values)[graph.value_index(*graph.outputs()[0].value)];
    const auto zeros = std::count(sums.begin(), sums.end(), 0);
    CHECK(zeros > 0);
    CHECK(zeros < static_cast<int64_t>(sums.size()));
  }
}

TEST_CASE("rows with more than one value are summed") {
  const BackwardGraph graph = Build({.elsewhere = 0.5});
  const auto summed = SumOneHots(graph);
  REQUIRE(summed.ok());
  CHECK(Count(*summed, Op::sum) == 1);
  CHECK(LargestDifference(graph, *summed) == 0);
}

TEST_CASE("a sum down the columns, or of a factor that is none a row, is left alone") {
  GraphBuilder b("columns");
  const ValueId label = b.Input({DType::kInt64, {8, 1}}, {.name = "label"});
  const ValueId x = b.Input({DType::kFp64, {8, 5}}, {.name = "x"});
  const ValueId column = b.Add(Op::iota, {},
                               {{"axis", int64_t{0}}, {"dtype", std::string("i64")}, {"shape", Shape{5}},
                                {"start", int64_t{0}}, {"step", int64_t{1}}});
  const ValueId zero = b.Full(0, DType::kFp64);
  const ValueId hot = b.Add(Op::where, {b.Add(Op::eq, {label, column}), b.Full(1, DType::kFp64), zero});
  b.Output(b.Sum(hot, {0}), "down");
  b.Output(b.Sum(b.Add(Op::mul, {hot, x}), {1}), "picked");
  const auto graph = b.Build();
  REQUIRE(graph.ok());
  const auto summed = SumOneHots(*graph);
  REQUIRE(summed.ok());
  CHECK(Count(*summed, Op::sum) == 2);
  CHECK(LargestDifference(*graph, *summed) == 0);
}

}  // namespace
}  // namespace retrograd
