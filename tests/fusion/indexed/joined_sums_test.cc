// Sums at indices that are added up become one: when, and that it is the same sum.
#include "fusion/lower/indexed/joined_sums.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "fusion/device/device_spec.h"
#include "fusion/planner/planner.h"
#include "graph/passes/accumulate.h"
#include "graph/passes/simplify.h"
#include "tests/catch.h"
#include "tests/support/graphs/check_rewritten.h"
#include "tests/support/graphs/parsed_graph.h"

namespace retrograd {
namespace {

// A device whose memory is so slow that tables of a few rows are worth a kernel's launch.
DeviceSpec SlowMemory() {
  auto device = LoadDeviceSpec("h200");
  REQUIRE(device.status().ToString() == "OK");
  device->hbm_bytes_per_s = 10'000'000;
  return *std::move(device);
}

BackwardGraph Joined(const BackwardGraph& graph, const DeviceSpec& device) {
  auto collected = CollectAccumulates(graph);
  REQUIRE(collected.status().ToString() == "OK");
  auto joined = JoinIndexedSums(*collected, device);
  REQUIRE(joined.status().ToString() == "OK");
  auto simple = Simplify(*joined, {});
  REQUIRE(simple.status().ToString() == "OK");
  REQUIRE(simple->Verify().ToString() == "OK");
  return *std::move(simple);
}

int Count(const BackwardGraph& g, Op op) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == op ? 1 : 0;
  return count;
}

void CheckSame(const BackwardGraph& g, const BackwardGraph& joined, double bound = 1e-4) {
  CheckRewritten(g, joined, joined, bound);
}

constexpr absl::string_view kTables = R"(
%first = input i64[12]
%second = input i64[3,5]
%third = input i64[12]
%x = input f32[12,6]
%y = input f32[3,5,6]
%z = input f32[12,6]
%zeros = full dtype=f32 shape=[90,6] value=0.0
)";

BackwardGraph Tables(absl::string_view text) { return Parse(absl::StrCat(kTables, text)); }

TEST_CASE("a chain of sums at indices is one sum, of indices with any number of axes") {
  const BackwardGraph g = Tables(R"(
%a = index_add %zeros %first %x axis=0
%b = index_add %a %second %y axis=0
%c = index_add %b %third %z axis=0
output %c
)");
  const BackwardGraph joined = Joined(g, SlowMemory());
  CHECK(Count(joined, Op::index_add) == 1);
  CheckSame(g, joined);
}

TEST_CASE("a chain keeps what it adds onto") {
  const BackwardGraph g = Tables(R"(
%base = input f32[90,6]
%a = index_add %base %first %x axis=0
%b = index_add %a %third %z axis=0
output %b
)");
  const BackwardGraph joined = Joined(g, SlowMemory());
  CHECK(Count(joined, Op::index_add) == 1);
  CheckSame(g, joined);
}

TEST_CASE("tables that are added up with other terms are one of them") {
  const BackwardGraph g = Tables(R"(
%other = input f32[90,6]
%part = input f32[90,2]
%a = index_add %zeros %first %x axis=0
%b = index_add %zeros %second %y axis=0
%s = slice_scatter %zeros %part axis=1 start=2 stop=4 step=1
%ab = add %a %other
%abs = add %ab %s
%abc = add %abs %b
output %abc
)");
  const BackwardGraph joined = Joined(g, SlowMemory());
  CHECK(Count(joined, Op::index_add) == 1);
  CHECK(Count(joined, Op::accumulate) == 1);
  CheckSame(g, joined);
}

TEST_CASE("sums that are narrowed before they are added are narrowed once") {
  const BackwardGraph g = Tables(R"(
%a = index_add %zeros %first %x axis=0
%b = index_add %zeros %third %z axis=0
%na = cast %a dtype=bf16
%nb = cast %b dtype=bf16
%s = add %na %nb
output %s
)");
  const BackwardGraph joined = Joined(g, SlowMemory());
  CHECK(Count(joined, Op::index_add) == 1);
  CHECK(Count(joined, Op::cast) == 1);
  CHECK(Count(joined, Op::accumulate) == 0);
  CheckSame(g, joined, 2e-2);
}

TEST_CASE("tables that are widened before they are added stay apart") {
  const BackwardGraph g = Tables(R"(
%nx = cast %x dtype=f16
%nz = cast %z dtype=f16
%narrow = full dtype=f16 shape=[90,6] value=0.0
%a = index_add %narrow %first %nx axis=0
%b = index_add %narrow %first %nz axis=0
%wa = cast %a dtype=f32
%wb = cast %b dtype=f32
%s = add %wa %wb
output %s
)");
  CHECK(Count(Joined(g, SlowMemory()), Op::index_add) == 2);
}

TEST_CASE("sources at the same index are added before they are summed") {
  const BackwardGraph g = Tables(R"(
%a = index_add %zeros %first %x axis=0
%b = index_add %zeros %first %z axis=0
%s = add %a %b
output %s
)");
  const BackwardGraph joined = Joined(g, *LoadDeviceSpec("h200"));  // whatever memory takes
  CHECK(Count(joined, Op::index_add) == 1);
  CHECK(Count(joined, Op::cat) == 0);
  CheckSame(g, joined);
}

TEST_CASE("sums along an inner axis are joined along it") {
  const BackwardGraph g = Parse(R"(
%first = input i64[5]
%second = input i32[5]
%third = input i64[4]
%x = input f32[3,5,2]
%y = input f32[3,5,2]
%z = input f32[3,4,2]
%zeros = full dtype=f32 shape=[3,70,2] value=0.0
%a = index_add %zeros %first %x axis=1
%b = index_add %zeros %second %y axis=1
%c = index_add %zeros %third %z axis=1
%ab = add %a %b
%s = add %ab %c
output %s
)");
  const BackwardGraph joined = Joined(g, SlowMemory());
  CHECK(Count(joined, Op::index_add) == 2);  // 32-bit indices stay by themselves
  CheckSame(g, joined);
}

TEST_CASE("a sum that something else reads stays") {
  const BackwardGraph g = Tables(R"(
%a = index_add %zeros %first %x axis=0
%b = index_add %a %third %z axis=0
%n = neg %a
output %b
output %n
)");
  CHECK(Count(Joined(g, SlowMemory()), Op::index_add) == 2);
  CHECK(Count(Joined(g, SlowMemory()), Op::cat) == 0);
  const BackwardGraph results = Tables(R"(
%a = index_add %zeros %first %x axis=0
%b = index_add %zeros %third %z axis=0
%s = add %a %b
output %a
output %s
)");
  CHECK(Count(Joined(results, SlowMemory()), Op::index_add) == 2);
}

TEST_CASE("what small tables take is less than copies of their sources") {
  const BackwardGraph g = Tables(R"(
%a = index_add %zeros %first %x axis=0
%b = index_add %zeros %third %z axis=0
%s = add %a %b
output %s
)");
  CHECK(Count(Joined(g, *LoadDeviceSpec("h200")), Op::index_add) == 2);
}

// Two places of a model look up one table of 50,000 rows; `more` follows.
BackwardGraph Embeddings(absl::string_view more, int64_t indices) {
  return Parse(absl::StrCat("%i = input i64[", indices, "]\n%j = input i64[", indices,
                            "]\n%x = input bf16[", indices, ",512]\n%y = input bf16[", indices,
                            ",512]\n", R"(
%zeros = full dtype=bf16 shape=[50000,512] value=0.0
%a = index_add %zeros %i %x axis=0
%b = index_add %zeros %j %y axis=0
%s = add %a %b
output %s
)",
                            more));
}

TEST_CASE("an index that another sum sorts as well is sorted once more only where that pays") {
  const DeviceSpec h200 = *LoadDeviceSpec("h200");
  constexpr absl::string_view kOthers = R"(
%narrow = input bf16[16384,2]
%few = full dtype=bf16 shape=[50000,2] value=0.0
%c = index_add %few %i %narrow axis=0
%d = index_add %few %j %narrow axis=0
output %c
output %d
)";
  CHECK(Count(Joined(Embeddings("", 16384), h200), Op::index_add) == 1);
  CHECK(Count(Joined(Embeddings(kOthers, 16384), h200), Op::index_add) == 4);
}

TEST_CASE("a table that is looked up twice is written once") {
  const DeviceSpec h200 = *LoadDeviceSpec("h200");
  const BackwardGraph g = Embeddings("", 8192);
  const auto one = PlanFusion(g, h200, {});
  const auto apart = PlanFusion(g, h200, {.disable = {"joined_sums"}});
  REQUIRE(one.status().ToString() == "OK");
  REQUIRE(apart.status().ToString() == "OK");
  CHECK(3 * one->plan.summary.price_ps < 2 * apart->plan.summary.price_ps);
}

}  // namespace
}  // namespace retrograd
