// Which scatter_lines stay, and that those which do not give the same sums.
#include "fusion/lower/indexed/choose_scatters.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "fusion/device/device_spec.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

BackwardGraph Chosen(const BackwardGraph& g, const ScatterOptions& options) {
  auto chosen = ChooseScatters(g, options);
  REQUIRE(chosen.status().ToString() == "OK");
  REQUIRE(chosen->Verify().ToString() == "OK");
  return *std::move(chosen);
}

int Count(const BackwardGraph& g, Op op) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == op;
  return count;
}

BackwardGraph Scatter(absl::string_view index, absl::string_view src, int64_t extent) {
  return Parse(absl::StrCat("%i = input ", index, "\n%x = input ", src,
                            "\n%y = scatter_lines %i %x extent=", extent, "\noutput %y\n"));
}

bool Stays(const BackwardGraph& g) {
  const DeviceSpec device = *LoadDeviceSpec("h200");
  return Count(Chosen(g, {.device = &device}), Op::scatter_lines) == 1;
}

TEST_CASE("many lines stay, few of many indices are sorted") {
  CHECK(Stays(Scatter("i64[384,384]", "bf16[96,384,384]", 1024)));
  CHECK(Stays(Scatter("i64[8192,8]", "bf16[8192,8]", 128)));
  CHECK(Stays(Scatter("i32[2000,64]", "f32[2000,64]", 5000)));
  CHECK(!Stays(Scatter("i64[1000000]", "f32[1000000]", 1000)));
  CHECK(!Stays(Scatter("i64[4,300000]", "f32[4,300000]", 100000)));
}

TEST_CASE("what is too large to be sorted stays") {
  CHECK(Stays(Scatter("i64[64,1024]", "bf16[65536,64,1024]", 1024)));
}

TEST_CASE("without a device's prices all are sums over one index") {
  CHECK(Count(Chosen(Scatter("i64[384,384]", "bf16[96,384,384]", 1024), {}), Op::scatter_lines) ==
        0);
}

TEST_CASE("an index that is repeated is read as it is") {
  const DeviceSpec device = *LoadDeviceSpec("h200");
  const BackwardGraph g = Chosen(Parse(R"(
%i = input i64[1,64,32]
%e = expand %i shape=[512,64,32]
%r = reshape %i shape=[64,32]
%f = expand %r shape=[512,64,32]
%x = input f32[512,64,32]
%y = scatter_lines %e %x extent=40
%z = scatter_lines %f %x extent=40
output %y
output %z
)"),
                                 {.device = &device});
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    if (g.op(NodeId{i}) != Op::scatter_lines) continue;
    CHECK(g.type(g.operands(NodeId{i})[0]).elements() == 64 * 32);
  }
  CHECK(Count(g, Op::scatter_lines) == 2);
}

TEST_CASE("an index that is known gathers its terms") {
  const BackwardGraph g = Parse(R"(
%i = iota axis=1 dtype=i64 shape=[256,64] start=0 step=2
%x = input f32[256,64]
%y = scatter_lines %i %x extent=128
output %y
)");
  const DeviceSpec device = *LoadDeviceSpec("h200");
  CHECK(Count(Chosen(g, {.device = &device}), Op::scatter_lines) == 0);
  CHECK(Count(Chosen(g, {.device = &device, .gathered_sums = false}), Op::scatter_lines) == 1);
}

TEST_CASE("sums over one index of all lines are those of each line") {
  const BackwardGraph graphs[] = {
      Scatter("i64[3,4,5]", "f32[3,4,5]", 6), Scatter("i32[5]", "f64[3,4,5]", 2),
      Scatter("i64[4,5]", "f32[1,4,5]", 9),   Scatter("i64[7]", "f32[7]", 3),
      Scatter("i64[2,0]", "f32[2,0]", 3),     Scatter("i64[0,3]", "f32[0,3]", 2)};
  for (const BackwardGraph& g : graphs) {
    INFO(Print(g));
    std::vector<Values> inputs = RandomInputs(g, 7);
    const int64_t extent = g.type(NodeId{2}).shape.back();
    for (size_t i = 0; i < inputs[0].size() && extent > 0; ++i) {  // some from the lines' ends
      inputs[0][i] = static_cast<double>(static_cast<int64_t>(i) * 5 % (2 * extent) - extent);
    }
    const BackwardGraph all = Chosen(g, {});
    const auto result = [&](const BackwardGraph& of) {
      auto values = Evaluate(of, inputs, {.mode = ReferenceOptions::kFloat64});
      REQUIRE(values.status().ToString() == "OK");
      return (*values)[of.value_index(*of.outputs()[0].value)];
    };
    CHECK(Count(all, Op::index_add) == 1);
    CHECK(result(all) == result(g));
  }
}

}  // namespace
}  // namespace retrograd
