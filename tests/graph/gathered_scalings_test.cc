// Scalings that move behind a gather: which do, and that values stay.
#include "graph/passes/gathered_scalings.h"

#include "graph/passes/simplify.h"
#include "graph/reference/reference.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"

namespace retrograd {
namespace {

BackwardGraph Moved(const BackwardGraph& graph) {
  auto moved = ScaleBehindGathers(graph);
  REQUIRE(moved.status().ToString() == "OK");
  auto simple = Simplify(*moved);
  REQUIRE(simple.status().ToString() == "OK");
  REQUIRE(simple->Verify().ToString() == "OK");
  return *std::move(simple);
}

// The op whose result is gathered.
Op Gathered(const BackwardGraph& graph) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) == Op::index_select) return graph.op(graph.operands(NodeId{i})[0].node);
  }
  return Op::full;
}

TEST_CASE("rows are scaled behind their gather, by one op after the other") {
  const BackwardGraph graph = Parse(R"(
%x = input f32[3,2]
%index = input i64[5]
%number = input f32[]
%other = full shape=[1,1] value=2.0 dtype=f32
%wide = expand %number shape=[3,2]
%a = mul %wide %x
%b = neg %a
%c = div %b %other
%rows = index_select %c %index axis=0
output %rows
)");
  const BackwardGraph moved = Moved(graph);
  CHECK(Gathered(moved) == Op::input);
  const std::vector<Values> inputs = {{1, 2, 3, 4, 5, 6}, {2, -1, 0, -3, 1}, {3}};
  CHECK(FirstOutput(moved, inputs) == Values{-7.5, -9, -7.5, -9, -1.5, -3, -1.5, -3, -4.5, -6});
  CHECK(FirstOutput(graph, inputs) == FirstOutput(moved, inputs));
}

TEST_CASE("what others read, what is an output and what is no number stays in front") {
  for (const char* text : {R"(
%x = input f32[3,2]
%index = input i64[5]
%number = input f32[]
%a = mul %x %number
%rows = index_select %a %index axis=0
%more = exp %a
output %rows
output %more
)",
                           R"(
%x = input f32[3,2]
%index = input i64[5]
%number = input f32[]
%a = mul %x %number
%rows = index_select %a %index axis=0
output %rows
output %a
)",
                           R"(
%x = input f32[3,2]
%index = input i64[5]
%row = input f32[2]
%a = mul %x %row
%rows = index_select %a %index axis=0
output %rows
)"}) {
    CHECK(Gathered(Moved(Parse(text))) == Op::mul);
  }
  CHECK(Gathered(Moved(Parse(R"(
%x = input f32[3,2]
%index = input i64[5]
%number = input f32[]
%a = div %number %x
%rows = index_select %a %index axis=0
output %rows
)"))) == Op::div);
  // Indices outside of x read zero, which a number that may be zero must not divide.
  CHECK(Gathered(Moved(Parse(R"(
%x = input f32[3,2]
%index = input i64[5]
%number = input f32[]
%a = div %x %number
%rows = index_select %a %index axis=0
output %rows
)"))) == Op::div);
}

TEST_CASE("a gather that repeats rows reads them as narrow as they come") {
  const auto narrowed = [](const char* index) {
    return Gathered(Moved(Parse(std::string("%x = input f32[30,2]\n%index = input ") + index +
                                "\n%a = cast %x dtype=bf16\n"
                                "%rows = index_select %a %index axis=0\noutput %rows\n")));
  };
  CHECK(narrowed("i64[50]") == Op::cast);
  CHECK(narrowed("i64[20]") == Op::input);
  // A kernel that makes the rows stores them narrow.
  CHECK(Gathered(Moved(Parse(R"(
%x = input f32[30,2]
%index = input i64[20]
%e = exp %x
%a = cast %e dtype=bf16
%rows = index_select %a %index axis=0
output %rows
)"))) == Op::cast);
  CHECK(Gathered(Moved(Parse(R"(
%x = input bf16[3,2]
%index = input i64[5]
%a = cast %x dtype=f32
%rows = index_select %a %index axis=0
output %rows
)"))) == Op::input);
}

}  // namespace
}  // namespace retrograd
