// Gathers at known indices: which become slices that are joined, and that values do not change.
#include "fusion/lower/indexed/slice_gathers.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/reference/reference.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"

namespace retrograd {
namespace {

BackwardGraph Sliced(const BackwardGraph& graph) {
  auto sliced = SliceKnownGathers(graph);
  REQUIRE(sliced.status().ToString() == "OK");
  REQUIRE(sliced->Verify().ToString() == "OK");
  return *std::move(sliced);
}

int64_t Gathers(const BackwardGraph& graph) {
  int64_t count = 0;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) == Op::index_select) ++count;
  }
  return count;
}

// index_select of -x [2, rows, 3] along its axis 1, at an index that `text` makes as %index.
BackwardGraph Gather(absl::string_view text, int64_t rows) {
  return Parse(absl::StrCat("%x = input name=\"x\" f64[2,", rows, ",3]\n", text,
                            "%table = neg %x\n%y = index_select %table %index axis=1\n"
                            "output %y\n"));
}

// Values of x that differ from each other.
void CheckSame(const BackwardGraph& graph) {
  Values x(static_cast<size_t>(graph.type(InputNodes(graph)[0]).elements()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  CHECK(FirstOutput(graph, {x}) == FirstOutput(Sliced(graph), {x}));
}

std::string Iota(absl::string_view name, absl::string_view shape, int axis, int64_t start,
                 int64_t step) {
  return absl::StrCat("%", name, " = iota axis=", axis, " dtype=i64 shape=[", shape,
                      "] start=", start, " step=", step, "\n");
}

TEST_CASE("a run of rows, whatever its direction and its step, is a slice") {
  for (const auto& [start, step, count] :
       {std::tuple(0, 1, 9), std::tuple(2, 1, 4), std::tuple(1, 3, 3), std::tuple(8, -1, 9),
        std::tuple(7, -2, 3), std::tuple(5, 1, 1)}) {
    INFO(start << " " << step << " " << count);
    const BackwardGraph graph = Gather(Iota("index", absl::StrCat(count), 0, start, step), 9);
    CHECK(Gathers(Sliced(graph)) == 0);
    CheckSame(graph);
  }
}

TEST_CASE("a roll, whose index is a remainder of fp64 division, is two slices") {
  const std::string remainder =
      Iota("at", "9", 0, 4, 1) +
      "%n = full dtype=f64 shape=[] value=9.0\n%a = cast %at dtype=f64\n%q = div %a %n\n"
      "%f = floor %q\n%m = mul %f %n\n%r = sub %a %m\n%index = cast %r dtype=i64\n";
  const BackwardGraph graph = Gather(remainder, 9);
  const BackwardGraph sliced = Sliced(graph);
  CHECK(Gathers(sliced) == 0);
  CheckSame(graph);
}

TEST_CASE("what fp32 division decides may be another compiler's, and stays a gather") {
  const BackwardGraph graph =
      Gather(Iota("at", "8", 0, 0, 1) +
                 "%two = full dtype=f32 shape=[] value=2.0\n%a = cast %at dtype=f32\n"
                 "%q = div %a %two\n%f = floor %q\n%index = cast %f dtype=i64\n",
             9);
  CHECK(Gathers(Sliced(graph)) == 1);
}

TEST_CASE("windows are a view, whatever their steps and however they overlap") {
  for (const auto& [windows, places, step, apart] :
       {std::tuple(4, 3, 1, 1), std::tuple(4, 3, 2, 1), std::tuple(3, 4, 1, 2),
        std::tuple(3, 3, 3, 1), std::tuple(2, 2, 5, 3), std::tuple(2, 3, 1, 3),
        std::tuple(7, 2, 1, 1), std::tuple(3, 3, 1, 1)}) {
    for (const int64_t first : {0, 1}) {
      const BackwardGraph graph =
          Gather(Iota("begin", absl::StrCat(windows, ",1"), 0, first, step) +
                     Iota("place", absl::StrCat("1,", places), 1, 0, apart) +
                     "%index = add %begin %place\n",
                 10);
      INFO(windows << " windows of " << places << ", " << step << " and " << apart << " apart");
      const BackwardGraph sliced = Sliced(graph);
      CHECK(Gathers(sliced) == 0);
      CHECK_FALSE(HasOp(sliced, Op::cat));
      CheckSame(graph);
    }
  }
}

TEST_CASE("an index of several axes that decide several axes of the table is taken axis by axis") {
  // Windows of 2 x 2 of a table of 4 x 5, in each of its lines 4 windows.
  const BackwardGraph graph =
      Gather(Iota("row", "3,1,1,1", 0, 0, 5) + Iota("in_row", "1,2,1,1", 1, 0, 5) +
                 Iota("column", "1,1,4,1", 2, 0, 1) + Iota("in_column", "1,1,1,2", 3, 0, 1) +
                 "%a = add %row %in_row\n%b = add %column %in_column\n%index = add %a %b\n",
             20);
  const BackwardGraph sliced = Sliced(graph);
  CHECK(Gathers(sliced) == 0);
  CheckSame(graph);
}

TEST_CASE("many runs, rows outside of the table and indices of inputs stay gathers") {
  const std::string repeated = Iota("at", "20,1", 0, 0, 1) +
                               "%twice = expand %at shape=[20,2]\n"
                               "%index = reshape %twice shape=[40]\n";
  CHECK(Gathers(Sliced(Gather(repeated, 20))) == 1);
  CHECK(Gathers(Sliced(Gather(Iota("index", "9", 0, 1, 1), 9))) == 1);
  CHECK(Gathers(Sliced(Gather(Iota("index", "9", 0, -1, 1), 9))) == 1);
  CHECK(Gathers(Sliced(Gather("%index = input name=\"i\" i64[4]\n", 9))) == 1);
}

TEST_CASE("random joins of few runs give what the gather gives") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint32_t>(n));
    };
    std::string text;
    const int64_t parts = 1 + below(4), rows = 12;
    std::string joined;
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t count = 1 + below(5), step = 1 + below(2);
      const int64_t start = below(rows - (count - 1) * step);
      const bool back = below(2) == 1;
      text += Iota(absl::StrCat("p", p), absl::StrCat(count), 0,
                   back ? start + (count - 1) * step : start, back ? -step : step);
      absl::StrAppend(&joined, " %p", p);
    }
    text += absl::StrCat("%index = cat", joined, " axis=0\n");
    const BackwardGraph graph = Gather(text, rows);
    CHECK(Gathers(Sliced(graph)) == 0);
    CheckSame(graph);
  }
}

TEST_CASE("rows that are repeated whole are one slice, which is expanded") {
  const BackwardGraph graph =
      Gather(Iota("at", "1,9", 1, 0, 1) + "%index = expand %at shape=[20,9]\n", 9);
  const BackwardGraph sliced = Sliced(graph);
  CHECK(Gathers(sliced) == 0);
  CHECK_FALSE(HasOp(sliced, Op::cat));
  CheckSame(graph);
}

TEST_CASE("a table in memory is gathered from where slices would be joined") {
  const std::string roll =
      Iota("a", "4", 0, 5, 1) + Iota("b", "5", 0, 0, 1) + "%index = cat %a %b axis=0\n";
  const std::string run = Iota("index", "4", 0, 2, 1);
  for (const bool chooses : {false, true}) {
    const std::string& index = chooses ? roll : run;
    CHECK(Gathers(Sliced(Parse("%x = input name=\"x\" f64[9,3]\n" + index +
                               "%y = index_select %x %index axis=0\noutput %y\n"))) == chooses);
    CHECK(Gathers(Sliced(Parse("%x = input name=\"x\" f64[3,3,3]\n" + index +
                               "%table = reshape %x shape=[9,3]\n"
                               "%y = index_select %table %index axis=0\noutput %y\n"))) == chooses);
  }
}

TEST_CASE("an index that is too large to evaluate leaves the others sliced") {
  const BackwardGraph graph =
      Parse("%x = input name=\"x\" f64[9,3]\n%t = neg %x\n" + Iota("many", "5000000", 0, 0, 1) +
            "%few = slice %many axis=0 start=0 step=1 stop=4\n"
            "%a = index_select %t %few axis=0\noutput %a\n" +
            Iota("index", "4", 0, 2, 1) + "%b = index_select %t %index axis=0\noutput %b\n");
  CHECK(Gathers(Sliced(graph)) == 1);
}

TEST_CASE("a long chain of indices is not evaluated from its start for each of them") {
  std::string text = "%x = input name=\"x\" f64[70000]\n%t = neg %x\n";
  text += Iota("i0", "4096", 0, 0, 1) + "%one = full dtype=i64 shape=[] value=1.0\n";
  for (int n = 1; n <= 400; ++n) {
    absl::StrAppend(&text, "%i", n, " = add %i", n - 1, " %one\n%y", n, " = index_select %t %i", n,
                    " axis=0\noutput %y", n, "\n");
  }
  const BackwardGraph graph = Parse(text);
  const int64_t left = Gathers(Sliced(graph));
  CHECK(left > 0);
  CHECK(left < 400);
}

}  // namespace
}  // namespace retrograd
