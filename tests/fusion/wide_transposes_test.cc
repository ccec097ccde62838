// The plan checker on transposing kernels of wide tiles: vectors lie along the loads' axis, and
// rows of four along the stores'.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/accesses/transposed.h"
#include "fusion/planner/planner.h"
#include "graph/reference/reference.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

constexpr int kBatch = 32;

// A saved tensor that lies channels-last, less the mean of each channel, row-major.
BackwardGraph Centred(int64_t channels, int64_t pixels) {
  return Parse(absl::StrCat("%x = input kind=saved alignment=16 strides=[", channels * pixels,
                            ",1,", channels, "]  bf16[", kBatch, ",", channels, ",", pixels,
                            "]\n%mean = input kind=saved  f32[1,", channels,
                            ",1]\n%wide = cast %x dtype=f32\n%y = sub %wide %mean\noutput %y\n"));
}

absl::StatusOr<Planned> PlanOf(int64_t channels, int64_t pixels) {
  return PlanFusion(Centred(channels, pixels), *LoadDeviceSpec("h200"), {});
}

KernelBody* TransposeOf(FusionPlan& plan) {
  for (Group& group : plan.groups) {
    KernelBody* body = KernelOf(group);
    if (body != nullptr && body->schedule.kind == Template::kTranspose) return body;
  }
  return nullptr;
}

TEST_CASE("rows that no vector fills are stored by fours, where vectors fill the other axis") {
  auto planned = PlanOf(360, 196);
  REQUIRE(planned.status().ToString() == "OK");
  const KernelBody* body = TransposeOf(planned->plan);
  REQUIRE(body != nullptr);
  CHECK(body->schedule.vector_width == 8);
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
}

TEST_CASE("tiles are as short as the axis that is stored along, and the longer along the other") {
  const std::tuple<int64_t, int64_t, int64_t> few_pixels[] = {
      {3136, 16, 7}, {504, 24, 2}, {504, 40, 3}, {504, 120, 8}};
  for (const auto& [channels, pixels, tiles] : few_pixels) {
    CAPTURE(channels, pixels);
    const BackwardGraph graph = Centred(channels, pixels);
    const std::vector<Values> inputs = RandomInputs(graph, 7);
    RunSetup setup;
    setup.host.compile = {.check = true};
    auto run = RunOnHost(graph, inputs, setup);
    REQUIRE(run.status().ToString() == "OK");
    const KernelBody* body = TransposeOf(run->planned.plan);
    REQUIRE(body != nullptr);
    CHECK(body->schedule.vector_width == 8);
    CHECK(body->schedule.blocks == kBatch * tiles);
    const Values wanted = FirstOutput(graph, inputs);
    REQUIRE(run->outputs[0].size() == wanted.size());
    double worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      worst = std::max(worst, std::fabs(run->outputs[0][i] - wanted[i]));
    }
    CHECK(worst < 1e-6);  // values below 4, rounded to fp32
  }
}

TEST_CASE("a grid of other tiles than the fewest is evaluated by those, or refused") {
  auto planned = PlanOf(3136, 16);
  REQUIRE(planned.ok());
  KernelBody* body = TransposeOf(planned->plan);
  REQUIRE(body != nullptr);
  body->schedule.blocks = kBatch * 49;  // of 64 x 128 elements
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  CHECK(WideTilesOf(body->ir, body->schedule.blocks)->fast() == 128);
  body->schedule.blocks = kBatch * 48;
  CHECK_THAT(planned->plan.Verify(planned->graph).ToString(), Catch::Contains("P7"));
}

TEST_CASE("P7: vectors that reach beyond either axis of a tile are refused") {
  for (const auto& [channels, pixels, width] :
       {std::tuple{360, 198, 8}, {356, 196, 8}, {358, 196, 4}}) {
    CAPTURE(channels, pixels, width);
    auto planned = PlanOf(channels, pixels);
    REQUIRE(planned.status().ToString() == "OK");
    KernelBody* body = TransposeOf(planned->plan);
    REQUIRE(body != nullptr);
    CHECK(body->schedule.vector_width != width);
    CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
    body->schedule.vector_width = width;
    body->schedule.blocks =
        kBatch * ((channels + 63) / 64) * ((pixels + 16 * width - 1) / (16 * width));
    const absl::Status status = planned->plan.Verify(planned->graph);
    CHECK_THAT(status.ToString(), Catch::Contains("P7"));
  }
}

}  // namespace
}  // namespace retrograd
