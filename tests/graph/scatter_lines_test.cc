// scatter_lines: which nodes are legal, and what they give.
#include "absl/strings/str_cat.h"
#include "graph/proto/proto.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

absl::StatusOr<BackwardGraph> Parsed(absl::string_view index, absl::string_view src,
                                     absl::string_view attrs) {
  return ParseGraph(absl::StrCat("graph \"g\"\n%i = input ", index, "\n%x = input ", src,
                                 "\n%y = scatter_lines %i %x ", attrs, "\noutput %y\n"));
}

std::string Refusal(absl::string_view index, absl::string_view src, absl::string_view attrs) {
  const auto graph = Parsed(index, src, attrs);
  return graph.ok() ? "legal" : std::string(graph.status().message());
}

Values Evaluated(const BackwardGraph& graph, const std::vector<Values>& inputs) {
  auto values = Evaluate(graph, inputs, {.mode = ReferenceOptions::kFloat64});
  REQUIRE(values.ok());
  return (*values)[graph.value_index(*graph.outputs()[0].value)];
}

TEST_CASE("each line adds up what its indices name, negative ones from its end") {
  const auto graph = Parsed("i64[2,3]", "f32[2,3]", "extent=2");
  REQUIRE(graph.ok());
  CHECK(graph->type({NodeId{2}, 0}).Print() == "f32[2,2]");
  CHECK(Evaluated(*graph, {{0, 1, 0, -1, 1, -2}, {1, 2, 3, 4, 5, 6}}) == Values{4, 2, 6, 9});
}

TEST_CASE("an index without the first axes is the same for all lines of them") {
  const auto graph = Parsed("i32[2]", "f32[3,1,2]", "extent=3");
  REQUIRE(graph.ok());
  CHECK(Evaluated(*graph, {{2, 0}, {1, 2, 3, 4, 5, 6}}) == Values{2, 0, 1, 4, 0, 3, 6, 0, 5});
}

TEST_CASE("lines without elements or indices are zeros") {
  const auto empty = Parsed("i32[2,0]", "f32[2,0]", "extent=2");
  REQUIRE(empty.ok());
  CHECK(Evaluated(*empty, {{}, {}}) == Values{0, 0, 0, 0});
}

TEST_CASE("an index outside of its line is told") {
  const auto graph = Parsed("i64[2,1]", "f32[2,1]", "extent=2");
  REQUIRE(graph.ok());
  for (const double outside : {2.0, -3.0}) {
    const auto values =
        Evaluate(*graph, {{0, outside}, {1, 2}}, {.mode = ReferenceOptions::kFloat64});
    CHECK(absl::IsOutOfRange(values.status()));
    CHECK_THAT(std::string(values.status().message()), ContainsSubstring("in a line of 2"));
  }
}

TEST_CASE("what scatter_lines refuses") {
  CHECK(Refusal("i64[3]", "f32[2,3]", "extent=2") == "legal");
  CHECK_THAT(Refusal("f32[3]", "f32[2,3]", "extent=2"), ContainsSubstring("int32 or int64"));
  CHECK_THAT(Refusal("i64[3]", "i32[2,3]", "extent=2"), ContainsSubstring("floating values"));
  CHECK_THAT(Refusal("i64[1,3]", "f32[2,3]", "extent=2"), ContainsSubstring("last axes"));
  CHECK_THAT(Refusal("i64[2,2,3]", "f32[2,3]", "extent=2"), ContainsSubstring("last axes"));
  CHECK_THAT(Refusal("i64[]", "f32[2,3]", "extent=2"), ContainsSubstring("last axes"));
  CHECK_THAT(Refusal("i64[3]", "f32[2,3]", "extent=-1"), ContainsSubstring("extent is -1"));
  CHECK_THAT(Refusal("i64[3]", "f32[2,3]", "extent=2147483648"), ContainsSubstring("2^31 - 1"));
  CHECK_THAT(Refusal("i64[3]", "f32[2,3]", ""), ContainsSubstring("extent is missing"));
}

}  // namespace
}  // namespace retrograd
