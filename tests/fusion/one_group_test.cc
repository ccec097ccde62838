// Groups of which there is one, and tables of one row: what is made of them gives what they give,
// whatever the ends and indices are, and fuses.
#include "fusion/lower/one_group.h"

#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

BackwardGraph Parse(const std::string& text) {
  auto graph = ParseGraph(text);
  INFO(text << graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

BackwardGraph Ungrouped(const BackwardGraph& graph) {
  auto made = UngroupSingles(graph);
  INFO(made.status());
  REQUIRE(made.ok());
  return *std::move(made);
}

bool Has(const BackwardGraph& graph, Op op) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) == op) return true;
  }
  return false;
}

Values OutputOf(const BackwardGraph& graph, const std::vector<Values>& inputs) {
  auto values = Evaluate(graph, inputs, {.mode = ReferenceOptions::kRoundEveryOp});
  INFO(values.status());
  REQUIRE(values.ok());
  return (*values)[graph.value_index(*graph.outputs()[0].value)];
}

void CheckSame(const Values& got, const Values& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK((got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))));
  }
}

Values Draw(int64_t count, std::mt19937& random) {
  std::normal_distribution<double> normal;
  Values values(count);
  for (double& v : values) v = std::round(normal(random) * 64) / 64;
  if (count > 5) values[random() % count] = std::numeric_limits<double>::infinity();
  if (count > 5) values[random() % count] = std::numeric_limits<double>::quiet_NaN();
  return values;
}

TEST_CASE("the largest of the only group is that of the places before its end") {
  const uint32_t seed = 41;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const char* type : {"bf16", "f32", "f64"}) {
    for (int axis : {0, 1, 2}) {
      for (int magnitude : {0, 1}) {
        const BackwardGraph graph = Parse(
            absl::StrCat("%x = input ", type, "[3,4,5]\n%e = input i32[1]\n%y = segment_amax %x %e",
                         " axis=", axis, " magnitude=", magnitude, "\noutput %y\n"));
        const BackwardGraph made = Ungrouped(graph);
        CHECK_FALSE(Has(made, Op::segment_amax));
        for (int end : {-2, 0, 1, 2, 3, 5, 9}) {
          const std::vector<Values> inputs = {Draw(60, random), {static_cast<double>(end)}};
          INFO(type << " axis " << axis << " magnitude " << magnitude << " end " << end);
          CheckSame(OutputOf(made, inputs), OutputOf(graph, inputs));
        }
      }
    }
  }
}

TEST_CASE("rows of a table of one are that row or zeros") {
  const uint32_t seed = 43;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const auto& [table, axis] : {std::pair("[1,4]", 0), {"[4,1]", 1}, {"[2,1,2]", 1}}) {
    for (const char* list : {"[6]", "[2,3]"}) {
      for (const char* type : {"i32", "i64"}) {
        const BackwardGraph graph =
            Parse(absl::StrCat("%x = input f32", table, "\n%i = input ", type, list,
                               "\n%y = index_select %x %i axis=", axis, "\noutput %y\n"));
        const BackwardGraph made = Ungrouped(graph);
        CHECK_FALSE(Has(made, Op::index_select));
        CHECK(made.type(*made.outputs()[0].value) == graph.type(*graph.outputs()[0].value));
        Values x = Draw(4, random);
        x[2] = std::numeric_limits<double>::quiet_NaN();
        const std::vector<Values> inputs = {x, {0, -1, 0, 0, -1, 0}};
        INFO(table << " " << list);
        CheckSame(OutputOf(made, inputs), OutputOf(graph, inputs));
      }
    }
  }
}

TEST_CASE("several groups, FP8 elements and empty axes are left as they are") {
  for (const char* operands : {"%x = input bf16[8,4]\n%e = input i32[2]\n",
                               "%x = input f8e4m3[8,4]\n%e = input i32[1]\n",
                               "%x = input bf16[0,4]\n%e = input i32[1]\n"}) {
    const BackwardGraph graph =
        Parse(absl::StrCat(operands, "%y = segment_amax %x %e axis=0\noutput %y\n"));
    CHECK(Has(Ungrouped(graph), Op::segment_amax));
  }
  CHECK(Has(Ungrouped(Parse("%x = input f32[2,4]\n%i = input i32[6]\n%y = index_select %x %i "
                            "axis=0\noutput %y\n")),
            Op::index_select));
}

TEST_CASE("a quantiser of one group reads its matrix once, of several twice") {
  const auto device = LoadDeviceSpec("h100");
  REQUIRE(device.ok());
  for (int groups : {1, 2}) {
    const BackwardGraph graph = Parse(absl::StrCat(
        "%x = input name=\"x\" alignment=16  bf16[16640,8192]\n%e = input i32[", groups, "]\n",
        "%largest = segment_amax %x %e axis=0 magnitude=1\n%wide = cast %largest dtype=f32\n",
        "%most = full dtype=f32 shape=[] value=448.0\n%scale = div %most %wide\n",
        "%place = iota dtype=i32 shape=[16640,1] axis=0 start=0 step=1\n",
        "%ends = reshape %e shape=[1,", groups, "]\n%before = le %ends %place\n",
        "%ended = cast %before dtype=i32\n%group = sum %ended axes=[1] keep=0\n",
        "%each = index_select %scale %group axis=0\n%value = cast %x dtype=f32\n",
        "%product = mul %value %each\n%y = cast %product dtype=f8e4m3\n",
        "%turned = permute %y perm=[1,0]\noutput %turned\noutput %scale\n"));
    const auto planned = PlanFusion(graph, *device, {});
    INFO(planned.status());
    REQUIRE(planned.ok());
    int readers = 0;
    for (const Group& group : planned->plan.groups) {
      for (const ValueId v : group.inputs) {
        readers += planned->graph.op(v.node) == Op::input &&
                   planned->graph.type(v).elements() == int64_t{16640} * 8192;
      }
    }
    CHECK(readers == groups);
  }
}

}  // namespace
}  // namespace retrograd
