// Sums at known indices: which become gathers, and that values do not change.
#include "fusion/lower/indexed/gather_sums.h"

#include <cmath>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "fusion/lower/indexed/index_lines.h"
#include "fusion/lower/indexed/known_index.h"
#include "graph/reference/reference.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"

namespace retrograd {
namespace {

BackwardGraph Gathered(const BackwardGraph& graph) {
  auto gathered = GatherKnownSums(graph);
  REQUIRE(gathered.status().ToString() == "OK");
  REQUIRE(gathered->Verify().ToString() == "OK");
  return *std::move(gathered);
}

// index_add of x [2, places.., 3] into a table of `rows` rows of its axis 1, at an index that
// `text` makes as %index.
std::string Sum(absl::string_view text, absl::string_view places, int64_t rows,
                absl::string_view dtype = "f64") {
  return absl::StrCat("%x = input name=\"x\" ", dtype, "[2,", places, ",3]\n",
                      "%base = input name=\"base\" ", dtype, "[2,", rows, ",3]\n", text,
                      "%sum = index_add %base %index %x axis=1\noutput %sum\n");
}

std::string Iota(absl::string_view name, absl::string_view shape, int axis, int64_t start,
                 int64_t step) {
  return absl::StrCat("%", name, " = iota axis=", axis, " dtype=i64 shape=[", shape,
                      "] start=", start, " step=", step, "\n");
}

Values Numbers(int64_t count, std::mt19937& random) {
  Values values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(random() % 1000) / 7);
  return values;
}

std::vector<Values> RandomNumbers(const BackwardGraph& graph, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Values> inputs;
  for (const NodeId id : InputNodes(graph)) {
    inputs.push_back(Numbers(graph.type(id).elements(), random));
  }
  return inputs;
}

// The sum gives the same bits in both forms: an axis alone decides the index.
void CheckSame(const BackwardGraph& graph, uint32_t seed) {
  const std::vector<Values> inputs = RandomNumbers(graph, seed);
  CHECK(FirstOutput(graph, inputs) == FirstOutput(Gathered(graph), inputs));
}

// The same numbers, added up in another order: an axis of the table at a time.
void CheckClose(const BackwardGraph& graph, uint32_t seed) {
  const std::vector<Values> inputs = RandomNumbers(graph, seed);
  const Values expected = FirstOutput(graph, inputs), found = FirstOutput(Gathered(graph), inputs);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    REQUIRE(std::fabs(found[i] - expected[i]) <= 1e-12 * (1 + std::fabs(expected[i])));
  }
}

TEST_CASE("an index of constants becomes views, at any slope, with places outside left out") {
  for (const int64_t step : {-3, -1, 1, 2, 5}) {
    for (const int64_t start : {-4, 0, 3, 40}) {
      INFO("start " << start << ", step " << step);
      const BackwardGraph graph = Parse(Sum(Iota("index", "7", 0, start, step), "7", 11));
      const BackwardGraph gathered = Gathered(graph);
      CHECK_FALSE(HasOp(gathered, Op::index_add));
      std::mt19937 random(1);
      const Values x = Numbers(2 * 7 * 3, random), base = Numbers(2 * 11 * 3, random);
      Values expected = base;
      for (int64_t i = 0; i < 2 * 7 * 3; ++i) {
        int64_t row = start + i / 3 % 7 * step;
        if (row < 0) row += 11;
        if (row < 0 || row >= 11) continue;
        expected[(i / 21 * 11 + row) * 3 + i % 3] += x[i];
      }
      CHECK(FirstOutput(gathered, {x, base}) == expected);
    }
  }
}

TEST_CASE("windows that overlap are as many lines as they are long") {
  const BackwardGraph graph = Parse(Sum(
      absl::StrCat(Iota("i", "4,1", 0, 0, 1), Iota("j", "1,9", 1, 0, 2), "%index = add %i %j\n"),
      "4,9", 24));
  CHECK_FALSE(HasOp(Gathered(graph), Op::index_add));
  CheckSame(graph, 2);
}

TEST_CASE("an index of two axes of a table is one of each") {
  const IndexFactor flat{{2, 3}, 12, {1, 2, 3, 9, 10, 11}};
  const std::vector<IndexFactor> factors = Factors(flat);
  REQUIRE(factors.size() == 2);
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      CHECK(factors[0].values[i] * factors[1].rows + factors[1].values[j] ==
            flat.values[i * 3 + j]);
    }
  }
  CHECK(Factors({{2, 2}, 4, {0, 1, 3, 2}}).size() == 1);
}

TEST_CASE("many places for one row, and places without a pattern, stay sums") {
  CHECK(HasOp(Gathered(Parse(Sum(Iota("index", "100", 0, 3, 0), "100", 7))), Op::index_add));
  CHECK_FALSE(HasOp(Gathered(Parse(Sum(Iota("index", "5", 0, 3, 0), "5", 7))), Op::index_add));
  CheckSame(Parse(Sum(Iota("index", "5", 0, 3, 0), "5", 7)), 3);
}

TEST_CASE("an index that an input decides, or that a compiler may round, is not known") {
  const std::string given = "%index = input name=\"index\" i64[7]\n";
  CHECK(HasOp(Gathered(Parse(Sum(given, "7", 11))), Op::index_add));
  // The product is a little below 7 until it is rounded.
  const std::string rounded = R"(
%i = iota axis=0 dtype=f32 shape=[7] start=0 step=10
%scale = full dtype=f32 shape=[] value=0.699999988079071
%shift = full dtype=f32 shape=[] value=-7.0
%p = mul %i %scale
%s = add %p %shift
%f = floor %s
%index = cast %f dtype=i64
)";
  CHECK(HasOp(Gathered(Parse(Sum(rounded, "7", 11))), Op::index_add));
}

// The index of an interpolation along two axes: floor((i + 0.5) scale + shift), clamped.
std::string RandomIndex(int64_t rows, int axis, absl::string_view shape, absl::string_view name,
                        std::mt19937& random) {
  const double scale = static_cast<double>(1 + random() % 16) / 8;
  const double shift = static_cast<double>(random() % 9) / 4 - 1;
  const auto full = [&](absl::string_view what, double value) {
    return absl::StrCat("%", name, what, " = full dtype=f32 shape=[] value=", value, "\n");
  };
  return absl::StrCat("%", name, "i = iota axis=", axis, " dtype=f32 shape=[", shape,
                      "] start=0 step=1\n", full("scale", scale), full("shift", shift),
                      full("zero", 0), full("last", rows - 1),                  //
                      "%", name, "m = mul %", name, "i %", name, "scale\n",     //
                      "%", name, "s = add %", name, "m %", name, "shift\n",     //
                      "%", name, "f = floor %", name, "s\n",                    //
                      "%", name, "a = maximum %", name, "f %", name, "zero\n",  //
                      "%", name, "b = minimum %", name, "a %", name, "last\n",  //
                      "%", name, " = cast %", name, "b dtype=i64\n");
}

TEST_CASE("random interpolations keep their sums") {
  int gathered = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const int64_t n = 3 + random() % 10, m = 3 + random() % 10;
    const int64_t rows = 2 + random() % 9, columns = 2 + random() % 9;
    const std::string text =
        absl::StrCat(RandomIndex(rows, 0, absl::StrCat(n, ",1"), "r", random),
                     RandomIndex(columns, 1, absl::StrCat("1,", m), "c", random),
                     "%columns = full dtype=i64 shape=[] value=", columns,
                     "\n%t = mul %r %columns\n%index = add %t %c\n");
    const BackwardGraph graph = Parse(Sum(text, absl::StrCat(n, ",", m), rows * columns));
    gathered += HasOp(Gathered(graph), Op::index_add) ? 0 : 1;
    CheckClose(graph, seed);
  }
  CHECK(gathered > 20);
}

// Gradients of a bilinear interpolation from `rows` x `columns` by whole factors, as it is
// decomposed: x, times a row's weight or less that, times a column's or less that, is added to the
// four corners.
std::string Corners(int64_t rows, int64_t columns, int64_t by) {
  const int64_t high = rows * by, wide = columns * by;
  std::string text =
      absl::StrCat("%x = input name=\"x\" f64[2,", high, ",", wide, ",3]\n",
                   "%base = input name=\"base\" f64[2,", rows * columns, ",3]\n",
                   "%wr = input name=\"wr\" f64[", high, ",1,1]\n%wc = input name=\"wc\" f64[",
                   wide, ",1]\n%columns = full dtype=i64 shape=[] value=", columns, "\n");
  const auto index = [&](absl::string_view name, int64_t last, absl::string_view shape, int axis) {
    const auto full = [&](absl::string_view what, double value) {
      return absl::StrCat("%", name, what, " = full dtype=f32 shape=[] value=", value, "\n");
    };
    text += absl::StrCat(
        "%", name, "i = iota axis=", axis, " dtype=f32 shape=[", shape, "] start=0 step=1\n",
        full("half", 0.5), full("scale", 1.0 / static_cast<double>(by)), full("zero", 0), "%", name,
        "h = add %", name, "i %", name, "half\n%", name, "m = mul %", name, "h %", name, "scale\n%",
        name, "s = sub %", name, "m %", name, "half\n%", name, "a = maximum %", name, "s %", name,
        "zero\n%", name, "0 = cast %", name, "a dtype=i64\n%", name,
        "one = full dtype=i64 shape=[] value=1\n%", name,
        "last = full dtype=i64 shape=[] value=", last, "\n%", name, "n = add %", name, "0 %", name,
        "one\n%", name, "1 = minimum %", name, "n %", name, "last\n");
  };
  index("r", rows - 1, absl::StrCat(high, ",1"), 0);
  index("c", columns - 1, absl::StrCat("1,", wide), 1);
  text += "%x1 = mul %x %wr\n%x0 = sub %x %x1\n";
  std::string sum = "%base";
  for (const char* r : {"0", "1"}) {
    text += absl::StrCat("%x", r, "1 = mul %x", r, " %wc\n%x", r, "0 = sub %x", r, " %x", r, "1\n");
    for (const char* c : {"0", "1"}) {
      text += absl::StrCat("%t", r, c, " = mul %r", r, " %columns\n%i", r, c, " = add %t", r, c,
                           " %c", c, "\n%s", r, c, " = index_add ", sum, " %i", r, c, " %x", r, c,
                           " axis=1\n");
      sum = absl::StrCat("%s", r, c);
    }
  }
  return absl::StrCat(text, "output ", sum, "\n");
}

int64_t CountOf(const BackwardGraph& graph, Op op, const Shape& shape) {
  int64_t count = 0;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    count += graph.op(NodeId{i}) == op && graph.type(NodeId{i}).shape == shape ? 1 : 0;
  }
  return count;
}

TEST_CASE("interpolations by whole factors gather, an axis at a time, up to 32") {
  for (const int64_t by : {1, 2, 3, 4, 8, 16, 32}) {
    INFO(by);
    const BackwardGraph graph = Parse(Corners(3, 2, by));
    const bool gathers = !HasOp(Gathered(graph), Op::index_add);
    CHECK(gathers);
    CheckClose(graph, 9);
  }
  CHECK(HasOp(Gathered(Parse(Corners(3, 2, 48))), Op::index_add));
}

TEST_CASE("few places of large tables that lie on no line stay sums") {
  // Every 48th row and column.
  const auto sum = [](int64_t places, int64_t by) {
    const std::string n = absl::StrCat(places);
    return Parse(Sum(absl::StrCat(Iota("i", n + ",1", 0, 0, by), Iota("j", "1," + n, 1, 0, by),
                                  "%columns = full dtype=i64 shape=[] value=", places * by,
                                  "\n%r = mul %i %columns\n%index = add %r %j\n"),
                     n + "," + n, places * by * places * by));
  };
  CHECK(HasOp(Gathered(sum(40, 48)), Op::index_add));
  CHECK_FALSE(HasOp(Gathered(sum(40, 32)), Op::index_add));
}

TEST_CASE("corners of an interpolation share the sums along the first axis") {
  const BackwardGraph gathered = Gathered(Parse(Corners(5, 4, 8)));
  // Of x times a row's weight and of what is left of x, each along the rows. Products with weights
  // of columns are made of these.
  CHECK(CountOf(gathered, Op::mul, {2, 5, 32, 3}) == 2);
  CHECK(CountOf(gathered, Op::sub, {2, 5, 32, 3}) == 2);
  const int64_t shared = CountOf(gathered, Op::add, {2, 5, 32, 3});
  // A weight that varies along the rows keeps them apart.
  std::string apart = Corners(5, 4, 8);
  const std::string of_columns = "%wc = input name=\"wc\" f64[32,1]";
  const size_t at = apart.find(of_columns);
  REQUIRE(at != std::string::npos);
  apart.replace(at, of_columns.size(), "%wc = input name=\"wc\" f64[40,32,1]");
  const BackwardGraph graph = Parse(apart);
  CHECK(CountOf(Gathered(graph), Op::add, {2, 5, 32, 3}) == 2 * shared);
  CheckClose(graph, 10);
}

TEST_CASE("terms are added with an axis for each axis of the table, a base's rows, too") {
  const std::string text = absl::StrCat(Iota("i", "4,1", 0, 0, 3), Iota("j", "1,3", 1, 0, 1),
                                        "%one = full dtype=i64 shape=[] value=1\n",
                                        "%k = minimum %j %one\n%index = add %i %k\n");
  const BackwardGraph graph = Parse(Sum(text, "4,3", 12));
  const BackwardGraph gathered = Gathered(graph);
  int adds = 0;
  for (uint32_t i = 0; i < gathered.num_nodes(); ++i) {
    if (gathered.op(NodeId{i}) != Op::add || gathered.type(NodeId{i}).rank() < 3) continue;
    CHECK(gathered.type(NodeId{i}).shape == Shape{2, 4, 3, 3});
    ++adds;
  }
  CHECK(adds > 0);
  CheckClose(graph, 4);
}

TEST_CASE("lines name what the index names, each place once, in the order of places") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const int64_t n = 1 + random() % 3, m = 1 + random() % 6, rows = 1 + random() % 6;
    IndexFactor index{{n, m}, rows, {}};
    for (int64_t i = 0; i < n * m; ++i) {
      index.values.push_back(static_cast<int64_t>(random() % (rows + 1)) - 1);
    }
    const auto lines = LinesOf(index, 100);
    REQUIRE(lines.has_value());
    std::vector<std::vector<int64_t>> places(rows), expected(rows);
    for (int64_t i = 0; i < n * m; ++i) {
      if (index.values[i] >= 0) expected[index.values[i]].push_back(i);
    }
    for (const IndexLine& line : *lines) {
      for (int64_t i = 0; i < line.count; ++i) {
        std::vector<int64_t> at = line.at;
        at[line.axis] = line.first + i * line.step;
        places[line.row + i * line.stride].push_back(at[0] * m + at[1]);
      }
    }
    CHECK(places == expected);
  }
}

TEST_CASE("sums of 16-bit floats are rounded once") {
  const std::string text =
      absl::StrCat(Iota("i", "4,1", 0, 0, 1), Iota("j", "1,3", 1, 0, 1), "%index = add %i %j\n");
  const BackwardGraph graph = Gathered(Parse(Sum(text, "4,3", 6, "bf16")));
  int adds = 0;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) != Op::add || graph.type(NodeId{i}).rank() != 3) continue;
    CHECK(graph.type(NodeId{i}).dtype == DType::kFp32);
    ++adds;
  }
  CHECK(adds > 0);
}

// The places of the index that a line goes through, by their numbers in memory.
std::vector<int64_t> PlacesOf(const IndexFactor& index, const IndexLine& line) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < line.count; ++i) {
    std::vector<int64_t> at = line.at;
    at[line.axis] = line.first + i * line.step;
    int64_t place = 0;
    for (size_t a = 0; a < at.size(); ++a) place = place * index.extents[a] + at[a];
    CHECK(index.values[place] == line.row + i * line.stride);
    places.push_back(place);
  }
  return places;
}

struct DrawnIndex {
  IndexFactor index;
  int64_t fewest = 0;  // lines at the most: the rows of the places along some axis
};

// Rows that go on by a slope of each axis, or random ones; some outside the table.
DrawnIndex AnIndex(std::mt19937& random) {
  const auto in = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % (high - low + 1));
  };
  DrawnIndex made{.index = {.rows = in(1, 40)}};
  IndexFactor& index = made.index;
  int64_t places = 1;
  std::vector<int64_t> slopes;
  for (int64_t rank = in(1, 3); rank > 0; --rank) {
    places *= index.extents.emplace_back(in(1, 9));
    slopes.push_back(in(-3, 3));
  }
  made.fewest = places;
  const int64_t start = in(-5, 45);
  const bool random_rows = in(0, 3) == 0;
  for (int64_t place = 0; place < places; ++place) {
    int64_t row = start, rest = place;
    for (size_t a = slopes.size(); a-- > 0;) {
      row += slopes[a] * (rest % index.extents[a]);
      rest /= index.extents[a];
    }
    if (random_rows) row = in(-2, 42);
    index.values.push_back(row < 0 || row >= index.rows ? -1 : row);
  }
  for (size_t a = 0; a < slopes.size() && !random_rows; ++a) {
    if (slopes[a] != 0) made.fewest = std::min(made.fewest, places / index.extents[a]);
  }
  return made;
}

TEST_CASE("lines go once through each place that names a row, in order, and are few") {
  const uint32_t seed = Catch::rngSeed() + 1;
  std::mt19937 random(seed);
  for (int tried = 0; tried < 500; ++tried) {
    const auto [index, fewest] = AnIndex(random);
    INFO("seed " << seed << ", try " << tried);
    const auto lines = LinesOf(index, 1000);
    REQUIRE(lines.has_value());
    std::vector<int> times(index.values.size(), 0);
    std::map<int64_t, int64_t> last;  // by row: the last place that named it
    for (const IndexLine& line : *lines) {
      for (const int64_t place : PlacesOf(index, line)) {
        ++times[place];
        const auto [at, first] = last.try_emplace(index.values[place], place);
        CHECK((first || at->second < place));
        at->second = place;
      }
    }
    for (size_t place = 0; place < times.size(); ++place) {
      CHECK(times[place] == (index.values[place] >= 0 ? 1 : 0));
    }
    const auto found = static_cast<int64_t>(lines->size());
    CHECK(found <= fewest);
    CHECK(LinesOf(index, found)->size() == lines->size());
    if (found > 0) CHECK_FALSE(LinesOf(index, found - 1).has_value());
  }
}

}  // namespace
}  // namespace retrograd
