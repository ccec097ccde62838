// Graphs whose sizes a caller binds, by the C and the C++ interface.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "graph/proto/graph.pb.h"
#include "include/retrograd/retrograd.hpp"
#include "tests/catch.h"

namespace retrograd {
namespace {

// y = x * (1 / rows) of [rows, 3], at 2 rows.
std::string Scaled() {
  auto graph = Graph::Parse(R"(graph "scaled"
%x = input name="x" kind=saved f64[2,3]
%m = full dtype="f64" shape=[2,3] value=0.5
%y = mul %x %m
output %y name="y"
)");
  REQUIRE(graph.ok());
  v1::Graph message;
  REQUIRE(message.ParseFromString(*graph->Serialize()));
  v1::Sizes* sizes = message.mutable_sizes();
  v1::SizeSymbol* rows = sizes->add_symbols();
  rows->set_name("rows");
  rows->set_min(1);
  rows->set_max(std::numeric_limits<int64_t>::max());
  rows->set_multiple_of(1);
  rows->set_hint(2);
  sizes->add_atoms()->set_kind(v1::SIZE_ATOM_SYMBOL);
  v1::SizeTerm* term = sizes->add_polynomials()->add_terms();
  term->set_coefficient(1);
  term->add_atoms(0);
  sizes->add_polynomials()->add_terms()->set_coefficient(1);
  v1::SizeTerm* square = sizes->add_polynomials()->add_terms();
  square->set_coefficient(-1);
  square->add_atoms(0);
  sizes->mutable_polynomials(2)->add_terms()->set_coefficient(1000);
  const auto place = [&](v1::SizeField field, uint32_t owner, uint32_t part) {
    v1::SizePlace* made = sizes->add_places();
    made->set_field(field);
    made->set_owner(owner);
    made->set_part(part);
    return made;
  };
  place(v1::SIZE_FIELD_DIM, 0, 0);
  place(v1::SIZE_FIELD_DIM, 1, 0);
  place(v1::SIZE_FIELD_ATTR, 1, 1);  // shape
  v1::SizePlace* value = place(v1::SIZE_FIELD_ATTR, 1, 2);
  value->set_polynomial(1);
  value->set_divisor(1);
  place(v1::SIZE_FIELD_DIM, 2, 0);
  v1::SizeFact* fact = sizes->add_facts();
  fact->set_relation(v1::SIZE_RELATION_NOT_NEGATIVE);
  fact->set_polynomial(2);
  return message.SerializeAsString();
}

TEST_CASE("a graph with symbols runs at its hints, and bound at other sizes") {
  auto graph = Graph::Deserialize(Scaled());
  REQUIRE(graph.ok());
  REQUIRE(graph->symbols().size() == 1);
  const Symbol symbol = graph->symbols()[0];
  CHECK(symbol.name == "rows");
  CHECK(symbol.min == 1);
  CHECK(symbol.max == std::numeric_limits<int64_t>::max());
  CHECK(symbol.multiple_of == 1);
  CHECK(symbol.hint == 2);
  auto device = Device::Make();
  REQUIRE(device.ok());
  for (const int64_t rows : {2, 1, 7, 64}) {
    INFO(rows << " rows");
    auto bound = graph->Bind({{"rows", rows}});
    REQUIRE(bound.ok());
    CHECK(bound->symbols().empty());
    auto executable = Executable::Make(rows == 2 ? *graph : *bound, *device);
    REQUIRE(executable.ok());
    std::vector<double> x(static_cast<size_t>(3 * rows)), y(x.size(), NAN);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
    const void* inputs[] = {x.data()};
    void* outputs[] = {y.data()};
    REQUIRE(executable->Run(nullptr, inputs, outputs).ok());
    for (size_t i = 0; i < x.size(); ++i) {
      CHECK(y[i] == x[i] * (1.0 / static_cast<double>(rows)));
    }
  }
}

// The predicted time of a batch of products of odd sides, which tiles of ours are faster at than
// the library is.
double PredictedNs(const std::string& settings) {
  auto graph = Graph::Parse(R"(graph "windows"
%a = input name="a" kind=saved bf16[6144,49,32]
%b = input name="b" kind=saved bf16[6144,32,49]
%y = matmul %a %b
output %y name="y"
)");
  INFO(graph.error().message);
  REQUIRE(graph.ok());
  auto plan = Plan::Make(*graph, {.spec = "h100", .settings = settings});
  REQUIRE(plan.ok());
  return plan->predicted_ns();
}

TEST_CASE("where sizes vary the library makes matmuls, and they are priced so") {
  const double library = PredictedNs(R"({"disable": ["matmul_tiles"]})");
  CHECK(PredictedNs(R"({"sizes_vary": true})") == library);
  CHECK(PredictedNs("") < library);
}

TEST_CASE("a file keeps its symbols when it is written again") {
  auto graph = Graph::Deserialize(Scaled());
  REQUIRE(graph.ok());
  auto again = Graph::Deserialize(*graph->Serialize());
  REQUIRE(again.ok());
  CHECK(again->symbols().size() == 1);
  CHECK(again->Bind({{"rows", 5}}).ok());
}

void CheckFails(rg_code got, rg_code code, const std::string& words) {
  rg_error error = RG_INIT(rg_error);
  REQUIRE(rg_last_error(&error) == RG_OK);
  INFO(error.message);
  CHECK(got == code);
  CHECK_THAT(std::string(error.message), ContainsSubstring(words));
}

TEST_CASE("the C functions of symbols refuse what is wrong") {
  auto graph = Graph::Deserialize(Scaled());
  REQUIRE(graph.ok());
  const rg_graph* handle = graph->get();
  CHECK(rg_graph_num_symbols(nullptr) == 0);
  CHECK(rg_graph_num_symbols(handle) == 1);
  rg_symbol symbol = RG_INIT(rg_symbol);
  CheckFails(rg_graph_symbol(nullptr, 0, &symbol), RG_INVALID_ARGUMENT, "graph is null");
  CheckFails(rg_graph_symbol(handle, 0, nullptr), RG_INVALID_ARGUMENT, "symbol is null");
  CheckFails(rg_graph_symbol(handle, 1, &symbol), RG_INVALID_ARGUMENT, "there is no symbol 1");
  symbol.struct_size = 4000;
  CheckFails(rg_graph_symbol(handle, 0, &symbol), RG_INVALID_ARGUMENT, "struct_size is 4000");

  rg_graph* bound = nullptr;
  const rg_binding good = {"rows", 3}, nameless = {nullptr, 3}, zero = {"rows", 0},
                   many = {"rows", 1001}, other = {"row", 3};
  CheckFails(rg_graph_bind(nullptr, &good, 1, &bound), RG_INVALID_ARGUMENT, "graph is null");
  CheckFails(rg_graph_bind(handle, &good, 1, nullptr), RG_INVALID_ARGUMENT, "bound is null");
  CheckFails(rg_graph_bind(handle, nullptr, 1, &bound), RG_INVALID_ARGUMENT, "bindings is null");
  CheckFails(rg_graph_bind(handle, &nameless, 1, &bound), RG_INVALID_ARGUMENT,
             "bindings[0].name is null");
  CheckFails(rg_graph_bind(handle, nullptr, 0, &bound), RG_INVALID_ARGUMENT, "rows is not bound");
  CheckFails(rg_graph_bind(handle, &zero, 1, &bound), RG_INVALID_ARGUMENT, "at least 1");
  CheckFails(rg_graph_bind(handle, &other, 1, &bound), RG_INVALID_ARGUMENT, "no size is called");
  CheckFails(rg_graph_bind(handle, &many, 1, &bound), RG_FAILED_PRECONDITION,
             "-rows + 1000 >= 0, which is -1 here: export it again at these sizes");
  CHECK(bound == nullptr);
  REQUIRE(rg_graph_bind(handle, &good, 1, &bound) == RG_OK);
  CheckFails(rg_graph_bind(bound, &good, 1, &bound), RG_INVALID_ARGUMENT, "numbers alone");
  rg_graph_destroy(bound);
}

}  // namespace
}  // namespace retrograd
