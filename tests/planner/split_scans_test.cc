// Cumulative sums of few long rows: which go in pieces, that they mean the same, and that plans
// gain by it.
#include "fusion/lower/split_scans.h"

#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/drawn_convolutions.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/plans/changed_spec.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

BackwardGraph Scan(absl::string_view op, absl::string_view type, absl::string_view attrs) {
  return Parse(
      absl::StrCat("%x = input name=\"x\" ", type, "\n%y = ", op, " %x ", attrs, "\noutput %y"));
}

BackwardGraph Split(const BackwardGraph& graph) {
  auto split = SplitScans(graph, *LoadDeviceSpec("h200"));
  INFO(split.status());
  REQUIRE(split.ok());
  return *std::move(split);
}

int Scans(const BackwardGraph& g) {
  int scans = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) scans += g.pattern(NodeId{i}) == Pattern::kScan;
  return scans;
}

TEST_CASE("few long rows are scanned in pieces; many rows, and short ones, are not") {
  const auto scans = [](absl::string_view type, absl::string_view attrs) {
    return Scans(Split(Scan("cumsum", type, attrs)));
  };
  CHECK(scans("f32[64,100000]", "axis=1") == 2);
  CHECK(scans("f32[100003]", "axis=0") == 3);  // a prime: the rest is a scan of its own
  CHECK(scans("f32[100000,64]", "axis=0") == 2);
  CHECK(scans("f32[64,2047]", "axis=1") == 1);
  CHECK(scans("f32[2112,100000]", "axis=1") == 1);
  CHECK(scans("f32[100000,64]", "axis=1") == 1);
  CHECK(scans("f32[0,100000]", "axis=1") == 1);
  CHECK(scans("f32[1,1,1,1,1,1,1,1,1,1,2,9000]", "axis=11") == 1);  // no room for another dim
}

TEST_CASE("a sum in pieces means the same, along each axis and from each end") {
  int of_rest = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Draw draw(seed);
    const std::string dtype = std::vector<std::string>{"f32", "f64", "bf16", "i32"}[draw.Int(0, 3)];
    const int64_t axis = draw.Int(0, 2);
    Shape shape = {draw.Int(1, 3), draw.Int(1, 3), draw.Int(1, 3)};
    shape[axis] = draw.Int(2048, 4200);
    const std::string type = absl::StrCat(dtype, "[", absl::StrJoin(shape, ","), "]");
    const std::string attrs = absl::StrCat("axis=", axis, " reverse=", draw.Int(0, 1));
    INFO("seed " << seed << ": " << type << " " << attrs);
    const BackwardGraph graph = Scan("cumsum", type, attrs), split = Split(graph);
    CHECK(Scans(split) >= 2);
    of_rest += Scans(split) == 3;
    CHECK(LargestDifference(graph, split) <= (dtype == "i32"    ? 0
                                              : dtype == "f64"  ? 1e-12
                                              : dtype == "bf16" ? 2e-2
                                                                : 1e-5));
  }
  CHECK(of_rest > 10);
}

// Behind a factor of 0 a piece's own product may be infinite.
TEST_CASE("products are not cut") {
  const BackwardGraph graph = Scan("cumprod", "f32[1,4096]", "axis=1");
  CHECK(Split(graph) == graph);
}

int64_t PriceOf(const BackwardGraph& graph, const PlanOptions& options, int* scans) {
  auto planned = PlanFusion(graph, *LoadDeviceSpec("h200"), options);
  INFO(planned.status());
  REQUIRE(planned.ok());
  *scans = Scans(planned->graph);
  return planned->plan.summary.price_ps;
}

TEST_CASE("plans of few long rows gain by pieces, and those of many rows have none") {
  const std::tuple<const char*, int, bool> cases[] = {{"f32[64,100000]", 1, true},
                                                      {"f32[1000003]", 0, true},
                                                      {"f32[100000,64]", 0, true},
                                                      {"f32[4096,2048]", 1, false},
                                                      {"f32[64,100000]", 0, false}};
  for (const auto& [type, axis, gains] : cases) {
    INFO(type << " " << axis);
    const BackwardGraph graph = Scan("cumsum", type, absl::StrCat("axis=", axis));
    int scans = 0, scans_whole = 0;
    const int64_t price = PriceOf(graph, {}, &scans);
    const int64_t whole = PriceOf(graph, {.disable = {"split_scans"}}, &scans_whole);
    CHECK(scans_whole == 1);
    CHECK((scans > 1) == gains);
    CHECK((price < whole) == gains);
  }
}

}  // namespace
}  // namespace retrograd
