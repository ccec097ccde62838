// grouped_matmul: which nodes are legal, what they give, and how they print.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "graph/passes/rebatch.h"
#include "graph/passes/simplify.h"
#include "graph/proto/proto.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"

namespace retrograd {
namespace {

constexpr char kRows[] = R"(graph "rows"
%x = input f32[5,2]
%w = input f32[3,2,1]
%e = input i32[3]
%y = grouped_matmul %x %w %e
output %y
)";

constexpr char kSums[] = R"(graph "sums"
%x = input f32[2,5]
%d = input f32[5,1]
%e = input i32[3]
%g = grouped_matmul %x %d %e dtype=f64
output %g
)";

std::string Refusal(absl::string_view a, absl::string_view b, absl::string_view ends,
                    absl::string_view attrs = "") {
  const auto graph =
      ParseGraph(absl::StrCat("graph \"g\"\n%a = input ", a, "\n%b = input ", b, "\n%e = input ",
                              ends, "\n%y = grouped_matmul %a %b %e ", attrs, "\noutput %y\n"));
  return graph.ok() ? "legal" : std::string(graph.status().message());
}

Values Evaluated(const BackwardGraph& graph, const std::vector<Values>& inputs) {
  auto values = Evaluate(graph, inputs, {.mode = ReferenceOptions::kFloat64});
  REQUIRE(values.ok());
  return (*values)[graph.value_index(*graph.outputs()[0].value)];
}

TEST_CASE("rows in groups meet their group's matrix; those behind the last are zero") {
  const BackwardGraph graph = Parse(kRows);
  CHECK(graph.type({NodeId{3}, 0}).Print() == "f32[5,1]");
  const Values x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, w = {1, 10, 2, 20, 3, 30};
  CHECK(Evaluated(graph, {x, w, {1, 1, 4}}) == Values{21, 129, 195, 261, 0});
  CHECK(Evaluated(graph, {x, w, {-3, 2, 9}}) == Values{42, 86, 195, 261, 327});
  CHECK(Evaluated(graph, {x, w, {3, 1, 2}}) == Values{21, 43, 65, 0, 0});
}

TEST_CASE("sums in groups give a matrix each; that of an empty group is zero") {
  const BackwardGraph graph = Parse(kSums);
  CHECK(graph.type({NodeId{3}, 0}).Print() == "f64[3,2,1]");
  const Values x = {1, 2, 3, 4, 5, 10, 20, 30, 40, 50}, d = {1, 1, 2, 2, 7};
  CHECK(Evaluated(graph, {x, d, {2, 2, 4}}) == Values{3, 30, 0, 0, 14, 140});
}

constexpr char kBlocks[] = R"(graph "blocks"
%x = input f32[2,20]
%w = input f32[20,17]
%e = input i32[2]
%r = input f32[2,2]
%c = input f32[1,2,2]
%g = grouped_matmul %x %w %e %r %c scale_block=16
output %g
)";

TEST_CASE("blocks of terms have scales of their own, whatever groups have of them") {
  const BackwardGraph graph = Parse(kBlocks);
  CHECK(graph.type({NodeId{5}, 0}).Print() == "f32[2,2,17]");
  const Values x(40, 1), w(340, 1), rows = {1, 2, 3, 4}, columns = {10, 100, 1000, 10000};
  const Values g = Evaluated(graph, {x, w, {15, 20}, rows, columns});
  // Of the first row's scales 1 and 2: 15 terms of the first block, then one of it and 4 of the
  // other.
  CHECK(g[0] == 15 * 1 * 10);
  CHECK(g[16] == 15 * 1 * 100);
  CHECK(g[17] == 15 * 3 * 10);
  CHECK(g[34] == 1 * 1 * 10 + 4 * 2 * 1000);
  CHECK(g[50] == 1 * 1 * 100 + 4 * 2 * 10000);
}

TEST_CASE("scales of blocks that do not fit are refused by name") {
  const auto refusal = [](absl::string_view rows, absl::string_view columns,
                          absl::string_view block) {
    const auto graph = ParseGraph(
        absl::StrCat("graph \"g\"\n%a = input f32[40,20]\n%b = input f32[2,20,17]\n%e = input "
                     "i32[2]\n%r = input ",
                     rows, "\n%c = input ", columns,
                     "\n%y = grouped_matmul %a %b %e %r %c scale_block=", block, "\noutput %y\n"));
    return graph.ok() ? "legal" : std::string(graph.status().message());
  };
  CHECK(refusal("f32[40,2]", "f32[2,2,17]", "16") == "legal");
  CHECK(refusal("f32[3,2]", "f32[2,2,2]", "16") == "legal");
  CHECK_THAT(refusal("f32[40,2]", "f32[2,2,17]", "8"), ContainsSubstring("no multiple of 16"));
  CHECK_THAT(refusal("f32[40,2]", "f32[2,2,17]", "0"), ContainsSubstring("no multiple of 16"));
  CHECK_THAT(refusal("f32[40,1]", "f32[2,2,17]", "16"), ContainsSubstring("[40 or 3, 2]"));
  CHECK_THAT(refusal("f32[40,2]", "f32[1,2,17]", "16"), ContainsSubstring("[2, 2, 17 or 2]"));
  CHECK_THAT(refusal("f32[40]", "f32[2,17]", "16"), ContainsSubstring("scales of blocks"));
  CHECK_THAT(Refusal("f32[8,4]", "f32[2,4,6]", "i32[2]", "scale_block=16"),
             ContainsSubstring("scales of blocks are operands"));
}

TEST_CASE("grouped_matmul is written as text and as a file") {
  for (const char* text : {kRows, kSums, kBlocks}) {
    const BackwardGraph graph = Parse(text);
    CHECK(Parse(Print(graph)) == graph);
    const auto again = ParseGraphProto(SerializeGraph(graph));
    REQUIRE(again.ok());
    CHECK(*again == graph);
  }
}

TEST_CASE("operands of grouped_matmul that do not fit are refused by name") {
  CHECK(Refusal("bf16[8,4]", "bf16[2,4,6]", "i32[2]") == "legal");
  CHECK(Refusal("bf16[4,8]", "bf16[8,6]", "i32[2]") == "legal");
  const auto refused = [](const std::string& refusal, const char* why) {
    CHECK_THAT(refusal, ContainsSubstring(why));
  };
  refused(Refusal("bf16[8,4]", "f32[2,4,6]", "i32[2]"), "two of one floating dtype");
  refused(Refusal("i32[8,4]", "i32[2,4,6]", "i32[2]"), "two of one floating dtype");
  refused(Refusal("f32[8,4]", "f32[2,4,6]", "i64[2]"), "the groups' ends are int32");
  refused(Refusal("f32[8,4]", "f32[2,4,6]", "i32[3]"), "2 matrices meet 3 groups");
  refused(Refusal("f32[8,4]", "f32[2,5,6]", "i32[2]"), "4 columns meet 5 rows");
  refused(Refusal("f32[8,4]", "f32[8,6]", "i32[2]"), "is a permute missing");
  refused(Refusal("f32[2,8,4]", "f32[2,4,6]", "i32[2]"), "the first is a matrix");
  refused(Refusal("f32[8,4]", "f32[4]", "i32[2]"), "the second is a matrix, or one for each group");
  refused(Refusal("f32[8,4]", "f32[2,4,6]", "i32[2,1]"), "the groups' ends are a list");
  refused(Refusal("f32[8,4]", "f32[2,4,6]", "i32[2]", "dtype=i32"), "it has to be floating");
}

TEST_CASE("a product of groups without rows or terms is zeros") {
  for (const char* shapes : {"f32[0,4] f32[2,4,6]", "f32[3,0] f32[2,0,6]", "f32[3,0] f32[0,6]"}) {
    const std::vector<std::string> ab = absl::StrSplit(shapes, ' ');
    const BackwardGraph graph =
        Parse(absl::StrCat("graph \"g\"\n%a = input ", ab[0], "\n%b = input ", ab[1],
                           "\n%e = input i32[2]\n%y = grouped_matmul %a %b %e\noutput %y\n"));
    auto simple = Simplify(graph);
    REQUIRE(simple.ok());
    for (uint32_t n = 0; n < simple->num_nodes(); ++n) {
      CHECK(simple->op(NodeId{n}) != Op::grouped_matmul);
    }
  }
}

}  // namespace
}  // namespace retrograd
