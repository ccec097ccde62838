// Coordinates of points and offsets as text: which of both ways is printed, and what is declared.
#include "codegen/print/numbers/axis_numbers.h"

#include "absl/strings/str_join.h"
#include "codegen/print/numbers/sized_number.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

IndexExpr Sum(const std::vector<int64_t>& coefficients, int64_t constant = 0) {
  IndexExpr e = IndexExpr::Constant(constant);
  for (size_t a = 0; a < coefficients.size(); ++a) {
    e.AddScaled(IndexExpr::Axis(static_cast<int>(a)), coefficients[a]);
  }
  return e;
}

struct Printed {
  std::string declarations;
  std::vector<std::string> offsets;
};

Printed Print(const std::vector<int64_t>& extents, const std::vector<IndexExpr>& offsets,
              AxisMask coordinates = 0, const AxisLane& lane = {}, absl::string_view type = "int",
              absl::string_view number = "i") {
  AxisNumbers axes(extents);
  AxisUse use;
  for (const IndexExpr& e : offsets) use.AddOffset(e);
  use.AddCoordinates(coordinates);
  const AxisMask all = (AxisMask{1} << extents.size()) - 1;
  Printed out;
  out.declarations = WithoutMarks(absl::StrJoin(axes.Declare(all, use, number, type), "\n"));
  for (const IndexExpr& e : offsets) out.offsets.push_back(WithoutMarks(axes.Offset(e, lane)));
  return out;
}

TEST_CASE("the offset of a dense tensor is the number of the point") {
  const Printed p = Print({4, 15, 8}, {Sum({120, 8, 1}), Sum({120, 8, 1}, 7), Sum({240, 16, 2})});
  CHECK(p.declarations.empty());
  CHECK(p.offsets == std::vector<std::string>{"i", "i + 7", "2 * i"});
}

TEST_CASE("an offset in another order takes quotients and no remainder") {
  const Printed p = Print({4, 15, 8}, {Sum({1, 32, 4})});
  CHECK(p.declarations ==
        "const unsigned n2 = i;\n"
        "const unsigned n0 = n2 / 120;");
  CHECK(p.offsets[0] == "int(4 * n2 - 479 * n0)");
}

TEST_CASE("an offset that varies along one axis takes its coordinate") {
  const Printed p = Print({4, 15, 8}, {Sum({0, 1, 0}), Sum({3, 0, 0})});
  CHECK(p.declarations ==
        "const unsigned n2 = i;\n"
        "const unsigned n1 = n2 / 8;\n"
        "const int a0 = n1 / 15;\n"
        "const int a1 = n1 % 15;");
  CHECK(p.offsets == std::vector<std::string>{"a1", "3 * a0"});
}

TEST_CASE("a quotient that nothing else needs is taken at once") {
  const Printed p = Print({4, 15, 8}, {Sum({0, 8, 1})});
  CHECK(p.declarations ==
        "const unsigned n2 = i;\n"
        "const unsigned n0 = n2 / 120;");
  CHECK(p.offsets[0] == "int(n2 - 120 * n0)");
}

TEST_CASE("coordinates that guards test are declared beside the number") {
  const Printed p = Print({4, 15, 8}, {Sum({120, 8, 1})}, AxisMask{1} << 1);
  CHECK(p.declarations ==
        "const unsigned n2 = i;\n"
        "const unsigned n1 = n2 / 8;\n"
        "const int a1 = n1 % 15;");
  CHECK(p.offsets[0] == "i");
}

TEST_CASE("lanes follow along the innermost axis, and none takes the quotient of another") {
  const std::vector<IndexExpr> dense = {Sum({120, 8, 1})};
  CHECK(Print({4, 15, 8}, dense, 0, {.axis = 2, .plus = "j"}).offsets[0] == "(i + j)");
  CHECK(Print({4, 15, 8}, dense, 0, {.axis = 2, .plus = ""}).offsets[0] == "i");
  CHECK(Print({4, 15, 8}, dense, 0, {.axis = 1, .plus = "4"}).offsets[0] ==
        "120 * static_cast<int>(static_cast<unsigned>(i) / 120) + "
        "8 * (static_cast<int>(static_cast<unsigned>(i) / 8 % 15) + 4) + "
        "static_cast<int>(static_cast<unsigned>(i) % 8)");
}

TEST_CASE("a coordinate that is divided once more is one of a signed number") {
  const std::vector<int64_t> extents = {4, 15, 8};
  const Printed p = Print(extents, {FloorDiv(Sum({0, 1, 0}), 3, extents) + Sum({0, 0, 5})});
  CHECK(p.declarations ==
        "const unsigned n2 = i;\n"
        "const int a1 = i / 8 % 15;\n"
        "const int a2 = n2 % 8;");
  CHECK(p.offsets[0] == "5 * a2 + (a1 / 3)");
}

TEST_CASE("constants stand behind the sum of quotients, where addresses take them in") {
  CHECK(Print({4, 15, 8}, {Sum({1, 32, 4}, -7)}).offsets[0] == "int(4 * n2 - 479 * n0) - 7");
  CHECK(Print({4, 15, 8}, {Sum({1, 32, 4}, 7)}).offsets[0] == "int(4 * n2 - 479 * n0) + 7");
}

TEST_CASE("wide indices are divided as wide numbers") {
  const Printed p = Print({4, 15, 8}, {Sum({1, 32, 4})}, 0, {}, "int64_t");
  CHECK(p.declarations ==
        "const unsigned long long n2 = i;\n"
        "const unsigned long long n0 = n2 / 120;");
  CHECK(p.offsets[0] == "int64_t(4 * n2 - 479 * n0)");
}

TEST_CASE("a number that is an expression is named before it is used") {
  const Printed p = Print({4, 15}, {Sum({15, 1})}, 0, {}, "int", "c0 + lane");
  CHECK(p.declarations == "const unsigned n1 = c0 + lane;");
  CHECK(p.offsets[0] == "int(n1)");
}

TEST_CASE("one axis of several points is the number itself") {
  const Printed p = Print({1, 15, 1}, {Sum({0, 3, 0})});
  CHECK(p.declarations == "const int a1 = i;");
  CHECK(p.offsets[0] == "3 * a1");
}

}  // namespace
}  // namespace retrograd
