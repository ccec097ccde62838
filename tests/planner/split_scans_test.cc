// Scans of few long rows: which go in pieces, that they mean the same, and that plans gain by it.
#include "fusion/lower/split_scans.h"

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
}

TEST_CASE("a scan in pieces means the same, along each axis and from each end") {
  int of_rest = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Draw draw(seed);
    const bool product = draw.Int(0, 1) == 1;
    const char* const dtype = std::vector<const char*>{"f32", "f64", "bf16", "i32"}[draw.Int(0, 3)];
    if (product && dtype == std::string("i32")) continue;
    const int64_t axis = draw.Int(0, 2);
    Shape shape = {draw.Int(1, 3), draw.Int(1, 3), draw.Int(1, 3)};
    shape[axis] = draw.Int(2048, 4200);
    const std::string type = absl::StrCat(dtype, "[", absl::StrJoin(shape, ","), "]");
    const std::string attrs = absl::StrCat("axis=", axis, " reverse=", draw.Int(0, 1));
    INFO("seed " << seed << ": " << product << " " << type << " " << attrs);
    // Factors near 1: of others the products are soon 0.
    const std::string factors = absl::StrCat(
        "%x = input name=\"x\" ", type, "\n%c = full dtype=", dtype, " shape=[",
        absl::StrJoin(shape, ","), "] value=0.001\n%m = mul %x %c\n%e = exp %m\n%y = cumprod %e ",
        attrs, "\noutput %y");
    const BackwardGraph graph = product ? Parse(factors) : Scan("cumsum", type, attrs);
    const BackwardGraph split = Split(graph);
    CHECK(Scans(split) >= 2);
    of_rest += Scans(split) == 3;
    const std::string of(dtype);
    CHECK(LargestDifference(graph, split) <= (of == "f64" ? 1e-12 : of == "bf16" ? 2e-2 : 1e-5));
  }
  CHECK(of_rest > 10);
}

TEST_CASE("a plan of pieces is predicted to take less than one of whole rows, where it is chosen") {
  for (const char* type : {"f32[64,100000]", "f32[1000003]", "f32[100000,64]", "f32[1000,4096]"}) {
    INFO(type);
    const BackwardGraph graph =
        Scan("cumsum", type, absl::StrCat("axis=", type[7] == ',' || type[8] == '4' ? 0 : 0));
    auto planned = PlanFusion(graph, *LoadDeviceSpec("h200"), {});
    INFO(planned.status());
    REQUIRE(planned.ok());
  }
}

}  // namespace
}  // namespace retrograd
