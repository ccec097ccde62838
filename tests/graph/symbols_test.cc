// Sizes that symbols leave open: their arithmetic, and graphs that are bound to numbers.
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "graph/proto/bind_graph.h"
#include "graph/proto/graph.pb.h"
#include "graph/proto/proto.h"
#include "graph/symbols/bindings.h"
#include "graph/symbols/size_values.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

// --- arithmetic ----------------------------------------------------------------------------------

// The same values in 128 bits, by other code; `fits` becomes false where a number on the way is no
// int64 or is divided by 0.
class Wide {
 public:
  Wide(const SizeTable& table, const std::vector<int64_t>& symbols) {
    for (const SizeAtom& atom : table.atoms) {
      atoms_.push_back(atom.kind == SizeAtomKind::kSymbol ? symbols[atom.symbol] : Of(atom));
    }
    for (const SizePolynomial& polynomial : table.polynomials) values.push_back(Of(polynomial));
  }

  std::vector<__int128> values;
  bool fits = true;

 private:
  __int128 Checked(__int128 value) {
    if (value >= std::numeric_limits<int64_t>::min() &&
        value <= std::numeric_limits<int64_t>::max()) {
      return value;
    }
    fits = false;
    return 0;
  }

  __int128 Of(const SizePolynomial& polynomial) {
    __int128 sum = 0;
    for (const SizeTerm& term : polynomial) {
      __int128 product = term.coefficient;
      for (uint32_t atom : term.atoms) product = Checked(product * atoms_[atom]);
      sum = Checked(sum + product);
    }
    return sum;
  }

  __int128 Of(const SizeAtom& atom) {
    const __int128 left = Of(atom.left), right = Of(atom.right);
    if (atom.kind == SizeAtomKind::kMaximum) return left > right ? left : right;
    if (right == 0) {
      fits = false;
      return 0;
    }
    __int128 quotient = left / right;
    while ((quotient * right > left) == (right > 0) && quotient * right != left) --quotient;
    if (atom.kind == SizeAtomKind::kFloorDiv) return Checked(quotient);
    return Checked(left - quotient * right);
  }

  std::vector<__int128> atoms_;
};

class RandomTable {
 public:
  explicit RandomTable(uint32_t seed) : rng_(seed) {
    const uint32_t symbols = 1 + Below(3);
    for (uint32_t i = 0; i < symbols; ++i) {
      table.symbols.push_back({absl::StrCat("s", i), -1000, 1000, 1, 1});
      table.atoms.push_back({SizeAtomKind::kSymbol, i, {}, {}});
    }
    for (uint32_t i = Below(6); i > 0; --i) {
      const auto kind = static_cast<SizeAtomKind>(2 + Below(3));
      table.atoms.push_back({kind, 0, Polynomial(), Polynomial()});
    }
    for (uint32_t i = 0; i < 5; ++i) table.polynomials.push_back(Polynomial());
  }

  int64_t Number() {
    static const int64_t kEdges[] = {0,
                                     1,
                                     -1,
                                     2,
                                     3,
                                     64,
                                     -64,
                                     int64_t{1} << 31,
                                     int64_t{1} << 62,
                                     std::numeric_limits<int64_t>::max(),
                                     std::numeric_limits<int64_t>::min()};
    if (Below(4) == 0) return kEdges[Below(std::size(kEdges))];
    return static_cast<int64_t>(Below(2001)) - 1000;
  }

  SizeTable table;

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(rng_() % bound); }

  SizePolynomial Polynomial() {
    SizePolynomial polynomial;
    for (uint32_t i = Below(4); i > 0; --i) {
      SizeTerm term = {Number(), {}};
      for (uint32_t k = Below(4); k > 0; --k) {
        term.atoms.push_back(Below(static_cast<uint32_t>(table.atoms.size())));
      }
      polynomial.push_back(std::move(term));
    }
    return polynomial;
  }

  std::mt19937 rng_;
};

TEST_CASE("sizes are those of 128-bit arithmetic, or refused where 64 bits do not hold them") {
  int fitting = 0, refused = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    INFO("seed " << seed);
    RandomTable random(seed);
    std::vector<int64_t> symbols;
    for (size_t i = 0; i < random.table.symbols.size(); ++i) symbols.push_back(random.Number());
    const Wide wide(random.table, symbols);
    const absl::StatusOr<std::vector<int64_t>> values = EvaluateSizes(random.table, symbols);
    INFO(values.status().ToString());
    REQUIRE(values.ok() == wide.fits);
    fitting += wide.fits;
    refused += !wide.fits;
    for (size_t i = 0; wide.fits && i < values->size(); ++i) {
      INFO(Print(random.table, random.table.polynomials[i]));
      REQUIRE((*values)[i] == wide.values[i]);
    }
  }
  CHECK(fitting > 4000);
  CHECK(refused > 1000);
}

TEST_CASE("sizes are printed as people write them") {
  SizeTable table;
  table.symbols = {{"s0", 1, 9, 1, 1}, {"s1", 1, 9, 1, 1}};
  table.atoms = {{SizeAtomKind::kSymbol, 0, {}, {}},
                 {SizeAtomKind::kSymbol, 1, {}, {}},
                 {SizeAtomKind::kFloorDiv, 0, {{1, {0}}, {-1, {}}}, {{2, {}}}},
                 {SizeAtomKind::kModulo, 0, {{1, {0}}}, {{1, {1}}}},
                 {SizeAtomKind::kMaximum, 0, {{1, {}}}, {{1, {2}}}}};
  CHECK(Print(table, {}) == "0");
  CHECK(Print(table, {{-1, {0, 1}}, {64, {0}}, {-7, {}}}) == "-s0*s1 + 64*s0 - 7");
  CHECK(Print(table, {{3, {2}}, {1, {3}}}) == "3*floor((s0 - 1) / (2)) + mod(s0, s1)");
  CHECK(Print(table, {{1, {4}}}) == "max(1, floor((s0 - 1) / (2)))");
  CHECK(Print(table, {{std::numeric_limits<int64_t>::min(), {0}}}) == "-9223372036854775808*s0");
  SizePolynomial great = {{1, {0}}};
  for (int i = 0; i < 12; ++i) {  // each atom prints the one before it twice
    table.atoms.push_back({SizeAtomKind::kMaximum, 0, great, great});
    great = {{1, {static_cast<uint32_t>(table.atoms.size()) - 1}}};
  }
  CHECK(Print(table, great).size() <= 500);
}

// --- graphs --------------------------------------------------------------------------------------

// [rows, 2 * columns] in all spellings that a graph has: dims, attributes of each kind, strides.
std::string Text(int64_t rows, int64_t columns) {
  const int64_t wide = 2 * columns;
  return absl::StrCat(
      "graph \"sized\"\norigin @0 op=\"aten.mul\" instance=1\n%0 = input name=\"x\" kind=saved "
      "strides=[1,",
      rows, "]  f32[", rows, ",", wide, "]\n%1 = full dtype=\"f32\" shape=[", rows, ",1]",
      " value=", PrintDouble(1.0 / static_cast<double>(rows * wide)),
      "\n%2 = mul %0 %1  ; @0\n%3 = slice %2 axis=1 start=", columns, " step=1 stop=", wide,
      "\n%4 = full dtype=\"f32\" shape=[3] value=2.0\n%5 = neg %4\n%6 = reshape %3 shape=[",
      rows * columns, "]\noutput %6 name=\"w\"\noutput %3 name=\"x\" strides=[1,", rows,
      "]\noutput %5\n");
}

BackwardGraph Graph(int64_t rows, int64_t columns) {
  auto graph = ParseGraph(Text(rows, columns));
  INFO(Text(rows, columns));
  REQUIRE(graph.status().ToString() == "OK");
  return *std::move(graph);
}

void AddTerm(v1::SizePolynomial* of, int64_t coefficient, const std::vector<uint32_t>& atoms) {
  v1::SizeTerm* term = of->add_terms();
  term->set_coefficient(coefficient);
  for (uint32_t atom : atoms) term->add_atoms(atom);
}

// The graph of 6 rows and 10 columns with symbols: rows is a multiple of 2, columns at least 2, and
// columns is not 7.
v1::Graph Symbolic() {
  v1::Graph g;
  REQUIRE(g.ParseFromString(SerializeGraph(Graph(6, 10))));
  v1::Sizes& sizes = *g.mutable_sizes();
  const auto symbol = [&](const std::string& name, int64_t min, int64_t max, int64_t of,
                          int64_t hint) {
    v1::SizeSymbol* s = sizes.add_symbols();
    s->set_name(name);
    s->set_min(min);
    s->set_max(max);
    s->set_multiple_of(of);
    s->set_hint(hint);
    v1::SizeAtom* atom = sizes.add_atoms();
    atom->set_kind(v1::SIZE_ATOM_SYMBOL);
    atom->set_symbol(static_cast<uint32_t>(sizes.symbols_size()) - 1);
  };
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  symbol("rows", 2, kMax, 2, 6);
  symbol("columns", 2, 4096, 1, 10);
  enum { kRows, kWide, kColumns, kAll, kHalf, kOne, kFact };
  for (int i = 0; i <= kFact; ++i) sizes.add_polynomials();
  AddTerm(sizes.mutable_polynomials(kRows), 1, {0});
  AddTerm(sizes.mutable_polynomials(kWide), 2, {1});
  AddTerm(sizes.mutable_polynomials(kColumns), 1, {1});
  AddTerm(sizes.mutable_polynomials(kAll), 2, {0, 1});
  AddTerm(sizes.mutable_polynomials(kHalf), 1, {0, 1});
  AddTerm(sizes.mutable_polynomials(kOne), 1, {});
  AddTerm(sizes.mutable_polynomials(kFact), 1, {1});
  AddTerm(sizes.mutable_polynomials(kFact), -7, {});
  v1::SizeFact* fact = sizes.add_facts();
  fact->set_relation(v1::SIZE_RELATION_NOT_ZERO);
  fact->set_polynomial(kFact);
  fact->set_assumed_for("aten.slice.Tensor");
  const auto place = [&](v1::SizeField field, uint32_t owner, uint32_t part, uint32_t element,
                         uint32_t polynomial, uint32_t divisor = 0) {
    v1::SizePlace* p = sizes.add_places();
    p->set_field(field);
    p->set_owner(owner);
    p->set_part(part);
    p->set_element(element);
    p->set_polynomial(polynomial);
    p->set_divisor(divisor);
  };
  place(v1::SIZE_FIELD_DIM, 0, 0, 0, kRows);
  place(v1::SIZE_FIELD_DIM, 0, 0, 1, kWide);
  place(v1::SIZE_FIELD_STRIDE, 0, 0, 1, kRows);
  place(v1::SIZE_FIELD_DIM, 1, 0, 0, kRows);
  place(v1::SIZE_FIELD_ATTR, 1, 1, 0, kRows);           // dtype, shape, value
  place(v1::SIZE_FIELD_ATTR, 1, 2, 0, kOne, 1 + kAll);  // 1 / all
  place(v1::SIZE_FIELD_DIM, 2, 0, 0, kRows);
  place(v1::SIZE_FIELD_DIM, 2, 0, 1, kWide);
  place(v1::SIZE_FIELD_DIM, 3, 0, 0, kRows);
  place(v1::SIZE_FIELD_DIM, 3, 0, 1, kColumns);
  place(v1::SIZE_FIELD_ATTR, 3, 1, 0, kColumns);  // axis, start, step, stop
  place(v1::SIZE_FIELD_ATTR, 3, 3, 0, kWide);
  place(v1::SIZE_FIELD_DIM, 6, 0, 0, kHalf);
  place(v1::SIZE_FIELD_ATTR, 6, 0, 0, kHalf);
  place(v1::SIZE_FIELD_OUTPUT_STRIDE, 1, 0, 1, kRows);
  return g;
}

BackwardGraph Parsed(const v1::Graph& g) {
  auto graph = ParseGraphProto(g.SerializeAsString());
  REQUIRE(graph.status().ToString() == "OK");
  return *std::move(graph);
}

TEST_CASE("a bound graph is the graph of these numbers") {
  const BackwardGraph graph = Parsed(Symbolic());
  for (const int64_t rows : {2, 4, 6, 62, 64, 1022, 1 << 20}) {
    for (const int64_t columns : {2, 3, 10, 1021, 4096}) {
      INFO(rows << " rows, " << columns << " columns");
      auto bound = BindGraph(graph, {{"columns", columns}, {"rows", rows}});
      REQUIRE(bound.status().ToString() == "OK");
      CHECK(*bound == Graph(rows, columns));
      CHECK(bound->Verify().ToString() == "OK");
      CHECK(SymbolsOf(*bound)->empty());
    }
  }
}

TEST_CASE("an unbound graph stands at its hints and keeps its symbols until a pass changes it") {
  const BackwardGraph graph = Parsed(Symbolic());
  CHECK(Print(graph) == Print(Graph(6, 10)));
  CHECK(HintsOf(graph) == "rows=6, columns=10");
  const std::string bytes = SerializeGraph(graph);
  auto again = ParseGraphProto(bytes);
  REQUIRE(again.status().ToString() == "OK");
  CHECK(*again == graph);
  CHECK(SerializeGraph(*again) == bytes);
  auto bound = BindGraph(*again, {{"rows", 8}, {"columns", 3}});
  REQUIRE(bound.status().ToString() == "OK");
  CHECK(*bound == Graph(8, 3));
  CHECK(HintsOf(*bound) == "");
}

TEST_CASE("a bound graph has no fields of a newer version") {
  v1::Graph message = Symbolic();
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(900, 1);
  auto bound = BindGraph(Parsed(message), {{"rows", 8}, {"columns", 3}});
  REQUIRE(bound.status().ToString() == "OK");
  CHECK(bound->unknown_fields().empty());
}

std::string Refusal(const v1::Graph& g, const std::vector<SizeBinding>& bindings) {
  return BindGraph(Parsed(g), bindings).status().ToString();
}

TEST_CASE("what no graph can be bound to is refused with what to do") {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const v1::Graph g = Symbolic();
  const auto refused = [&](const std::vector<SizeBinding>& bindings, const std::string& why) {
    CHECK_THAT(Refusal(g, bindings), ContainsSubstring(why));
  };
  refused({{"rows", 4}, {"columns", 3}, {"width", 3}},
          "INVALID_ARGUMENT: no size is called 'width'; those of the graph, with hints and ranges: "
          "rows (6; at least 2, a multiple of 2), columns (10; 2 to 4096)");
  refused({{"rows", 4}}, "INVALID_ARGUMENT: columns is not bound: give each size a number");
  refused({}, "INVALID_ARGUMENT: rows is not bound");
  refused({{"rows", 4}, {"rows", 4}, {"columns", 3}}, "INVALID_ARGUMENT: rows is bound twice");
  refused({{"rows", 4}, {"columns", 4097}}, "OUT_OF_RANGE: columns=4097 is none of its numbers");
  refused({{"rows", 4}, {"columns", 1}}, "2 to 4096");
  refused({{"rows", 5}, {"columns", 3}},
          "OUT_OF_RANGE: rows=5 is none of its numbers: at least 2, a "
          "multiple of 2");
  refused({{"rows", 0}, {"columns", 3}}, "OUT_OF_RANGE: rows=0");
  refused({{"rows", kMax - 1}, {"columns", 4096}},
          "OUT_OF_RANGE: the size 2*rows*columns at "
          "rows=9223372036854775806, columns=4096 is beyond 64-bit integers: bind smaller sizes");
  refused({{"rows", int64_t{1} << 48}, {"columns", 2}},
          "INVALID_ARGUMENT: RG-G024 (G3): at rows=281474976710656, columns=2: node %0 (input): ");
  refused({{"rows", 4}, {"columns", 7}},
          "FAILED_PRECONDITION: the graph was made for sizes with columns - 7 != 0 (for "
          "aten.slice.Tensor), which is 0 here: export it again at these sizes");
  const BackwardGraph numbers = Graph(6, 10);
  CHECK_THAT(BindGraph(numbers, {{"rows", 6}}).status().ToString(),
             ContainsSubstring("has numbers alone and no sizes to bind"));
  CHECK(HintsOf(numbers) == "");
}

TEST_CASE("a size below 0, and one that a node does not take, name the node") {
  v1::Graph g = Symbolic();
  g.mutable_sizes()->clear_facts();
  // 4 * columns - 20 is 20 at the hint as well.
  v1::SizePolynomial* wide = g.mutable_sizes()->mutable_polynomials(1);
  wide->mutable_terms(0)->set_coefficient(4);
  AddTerm(wide, -20, {});
  CHECK_THAT(Refusal(g, {{"rows", 4}, {"columns", 3}}),
             ContainsSubstring("RG-G023 (G3): at rows=4, columns=3: node %0 (input): "));
  CHECK_THAT(Refusal(g, {{"rows", 4}, {"columns", 6}}),
             ContainsSubstring("at rows=4, columns=6: node %3 (slice): "));
}

TEST_CASE("a quotient that doubles do not hold is refused") {
  v1::Graph g = Symbolic();
  v1::SizePolynomial* all = g.mutable_sizes()->mutable_polynomials(3);
  AddTerm(all, int64_t{1} << 50, {0});
  AddTerm(all, -6 * (int64_t{1} << 50), {});  // nothing at the hint
  CHECK(Refusal(g, {{"rows", 12}, {"columns", 2}}) == "OK");
  CHECK_THAT(Refusal(g, {{"rows", 14}, {"columns", 2}}),
             ContainsSubstring("at rows=14, columns=2: node %1 (full): 1 / 9007199254741048 is no "
                               "quotient that doubles hold"));
  CHECK_THAT(Refusal(g, {{"rows", 2}, {"columns", 2}}), ContainsSubstring("OK"));
}

TEST_CASE("bindings are read from text") {
  auto bindings = ParseBindings("s0=1000,batch=-3");
  REQUIRE(bindings.ok());
  REQUIRE(bindings->size() == 2);
  CHECK((*bindings)[0].name == "s0");
  CHECK((*bindings)[0].value == 1000);
  CHECK((*bindings)[1].value == -3);
  for (const char* wrong : {"", "s0", "s0=", "=3", "s0=3,", "s0=3.5", "s0=99999999999999999999"}) {
    INFO(wrong);
    CHECK_THAT(ParseBindings(wrong).status().ToString(), ContainsSubstring("write NAME=NUMBER"));
  }
}

}  // namespace
}  // namespace retrograd
