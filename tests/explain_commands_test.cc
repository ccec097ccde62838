// What fusion-explain says beyond the plan: what two plans differ in.
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tools/explanation.h"
#include "tools/plan_diff.h"
#include "tools/text_file.h"

namespace retrograd {
namespace {

constexpr char kSmall[] = "mlp:layers=2,tokens=64,in=16,hidden=32,out=16,dtype=fp32";

PlannedGraph PlanOf(PlanArguments arguments) {
  Progress progress;
  auto graph = OpenAndPlan(arguments, &progress);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

nlohmann::json JsonOf(const PlanArguments& arguments) {
  const PlannedGraph graph = PlanOf(arguments);
  auto memory = PeakMemoryOf(graph);
  REQUIRE(memory.ok());
  return nlohmann::json::parse(ExplainAsJson(graph, *memory, arguments.graph));
}

PlanOutline OutlineOf(const nlohmann::json& json) {
  auto outline = OutlineFromJson(json.dump(), "plan.json");
  INFO(outline.status());
  REQUIRE(outline.ok());
  return *std::move(outline);
}

TEST_CASE("a plan is the same as itself, and as itself with its ops renumbered") {
  nlohmann::json json = JsonOf({.graph = "golf_tiny"});
  const PlanOutline a = OutlineOf(json);
  CHECK(a.kernels.size() == json["groups"].size());
  for (auto& group : json["groups"]) {
    for (auto& op : group["ops"]) op["node"] = op["node"].get<int64_t>() * 2 + 5;
  }
  for (const PlanOutline& b : {a, OutlineOf(json)}) {
    const PlanDiff diff = DiffPlans(a, b);
    CHECK(diff.same);
    CHECK(diff.unchanged == a.kernels.size());
  }
}

TEST_CASE("a diff tells removed and added kernels from one that is run otherwise") {
  const nlohmann::json before = JsonOf({.graph = kSmall});
  nlohmann::json after = before;
  const size_t kernels = before["groups"].size();
  REQUIRE(kernels >= 3);
  after["groups"][0]["price_ps"] = before["groups"][0]["price_ps"].get<int64_t>() + 1'000'000;
  after["summary"]["price_ps"] = before["summary"]["price_ps"].get<int64_t>() + 1'000'000;
  for (auto& op : after["groups"][2]["ops"]) after["groups"][1]["ops"].push_back(op);
  after["groups"].erase(2);
  const PlanOutline a = OutlineOf(before), b = OutlineOf(after);
  const PlanDiff diff = DiffPlans(a, b);
  CHECK_FALSE(diff.same);
  CHECK(diff.removed.size() == 2);
  CHECK(diff.added == std::vector<size_t>{1});
  REQUIRE(diff.changed.size() == 1);
  CHECK(diff.changed[0].a == 0);
  CHECK(diff.unchanged == kernels - 3);
  CHECK_THAT(PrintDiff(a, b, diff), ContainsSubstring("+1.00 us"));
  CHECK_THAT(PrintDiff(a, b, diff), ContainsSubstring("2 removed (-), 1 added (+), 1 changed (~)"));
}

TEST_CASE("without fusion the same ops are in other kernels, and the diff stays short") {
  const PlanOutline a = OutlineOf(JsonOf({.graph = "golf_tiny"}));
  const PlanOutline b = OutlineOf(JsonOf({.graph = "golf_tiny", .disable = {"fusion"}}));
  const PlanDiff diff = DiffPlans(a, b);
  CHECK(diff.added.size() > diff.removed.size());
  CHECK(diff.unchanged > 0);  // the matmuls
  const std::string text = PrintDiff(a, b, diff);
  CHECK(std::count(text.begin(), text.end(), '\n') <= 60);
  CHECK_THAT(text, ContainsSubstring("more"));
}

TEST_CASE("a threshold is exceeded by growth beyond it alone") {
  PlanOutline a, b;
  a.price_ps = 1000;
  a.peak_bytes = 0;
  const auto exceeds = [&](const char* text) {
    const auto threshold = ParseDiffThreshold(text);
    INFO(threshold.status());
    REQUIRE(threshold.ok());
    return !Exceeds(*threshold, a, b).empty();
  };
  b.price_ps = 1020;
  CHECK_FALSE(exceeds("slower:2%"));
  CHECK(exceeds("slower:1.9%"));
  b.price_ps = 10;
  CHECK_FALSE(exceeds("slower:0%"));
  CHECK_FALSE(exceeds("memory:0%"));
  b.peak_bytes = 1;
  CHECK(exceeds("memory:1000%"));
  CHECK_FALSE(exceeds("traffic:0%"));
  for (const char* wrong : {"", "slower", "slower:", "slower:2", "slower:-1%", "slower:nan%",
                            "slower:inf%", "faster:2%", "slower:2%%", ":2%"}) {
    INFO(wrong);
    CHECK_FALSE(ParseDiffThreshold(wrong).ok());
  }
}

TEST_CASE("what is no plan is refused with the place that is wrong") {
  const nlohmann::json good = JsonOf({.graph = kSmall});
  const auto says = [](const std::string& text) {
    const auto outline = OutlineFromJson(text, "x.json");
    REQUIRE_FALSE(outline.ok());
    return std::string(outline.status().message());
  };
  CHECK_THAT(says("{"), ContainsSubstring("x.json: not JSON"));
  CHECK_THAT(says("[]"), ContainsSubstring("x.json: not an object"));
  CHECK_THAT(says(std::string(200000, '[')), ContainsSubstring("not JSON"));
  nlohmann::json bad = good;
  bad["version"] = 99;
  CHECK_THAT(says(bad.dump()), ContainsSubstring("version 99"));
  bad = good;
  bad["format"] = "chrome";
  CHECK_THAT(says(bad.dump()), ContainsSubstring("format is chrome"));
  bad = good;
  bad["groups"][1]["price_ps"] = "dear";
  CHECK_THAT(says(bad.dump()), ContainsSubstring("x.json.groups[1].price_ps: not an integer"));
  bad = good;
  bad["groups"][0]["read_bytes"] = -1;
  CHECK_THAT(says(bad.dump()), ContainsSubstring("out of range"));
  bad = good;
  bad["groups"][0]["ops"][0].erase("op");
  CHECK_THAT(says(bad.dump()), ContainsSubstring("x.json.groups[0].ops[0]: no op"));
}

TEST_CASE("a file is replaced whole or not at all") {
  CHECK_FALSE(WriteTextFile("/no/such/folder/file", "x").ok());
  CHECK_FALSE(ReadTextFile("/no/such/file").ok());
  CHECK_FALSE(ReadTextFile("/").ok());
}

}  // namespace
}  // namespace retrograd
