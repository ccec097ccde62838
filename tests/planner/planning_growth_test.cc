// Planning a deeper model costs what its layers cost. Bytes that planning asks the allocator for
// stand for its work: a walk of the whole model for each layer asks for a set as large as the model
// each time.
#include <string>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/allocation_count.h"

namespace retrograd {
namespace {

int64_t BytesToPlan(const BackwardGraph& graph) {
  const auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  const int64_t before = GivenBytes();
  REQUIRE(PlanFusion(graph, *spec).ok());
  return GivenBytes() - before;
}

int64_t BytesToPlan(const std::string& model, int64_t layers) {
  const auto graph = BuildModel(absl::StrCat(model, ":layers=", layers));
  INFO(graph.status());
  REQUIRE(graph.ok());
  return BytesToPlan(*graph);
}

// A product whose readers are joined, each join twice with the next.
BackwardGraph NestedJoins(int levels) {
  GraphBuilder b("joins");
  const auto input = [&](const std::string& name, Shape shape) {
    return b.Input({DType::kFp32, std::move(shape)}, {.name = name});
  };
  ValueId v = b.MatMul(input("left", {256, 512}), input("right", {512, 256}));
  for (int level = 0; level < levels; ++level) {
    const auto joined = [&](const char* name) {
      return b.Add(Op::cat, {{v, input(absl::StrCat(name, level), {1, 256})}},
                   {{"axis", int64_t{0}}});
    };
    const ValueId left = joined("a");
    v = b.Add(Op::add, {{left, b.Add(Op::exp, {{joined("b")}})}});
  }
  b.Output(v, "joined");
  auto graph = b.Build();
  REQUIRE(graph.ok());
  return *std::move(graph);
}

TEST_CASE("joins of joins are not followed once for each way through them") {
  const int64_t few = BytesToPlan(NestedJoins(10)), many = BytesToPlan(NestedJoins(20));
  INFO(few << " bytes for 10 levels, " << many << " for 20");
  CHECK(many <= 8 * few);
}

TEST_CASE("each further layer takes as much work to plan as those before it") {
  constexpr int64_t kFew = 40;
  for (const std::string model : {"transformer", "llama", "norm_stack"}) {
    INFO(model);
    const int64_t few = BytesToPlan(model, kFew);
    const int64_t more = BytesToPlan(model, 2 * kFew) - few;
    const int64_t many = BytesToPlan(model, 16 * kFew) - BytesToPlan(model, 15 * kFew);
    INFO(few << " bytes for the first layers, " << more << " for the next, " << many
             << " for those behind 15 times as many");
    CHECK(many <= 1.5 * static_cast<double>(more));
  }
}

}  // namespace
}  // namespace retrograd
