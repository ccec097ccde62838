// When the steps of a program run: traced on the host, by marks on a fake GPU, and as a file.
#include "tools/execute/timeline.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "models/models.h"
#include "runtime/devices/host_device.h"
#include "runtime/program/program.h"
#include "tests/catch.h"
#include "tools/execute/device_tensors.h"

namespace retrograd {
namespace {

using Json = nlohmann::json;

constexpr char kMlp[] = "mlp:layers=2,tokens=24,in=16,hidden=20,out=12,dtype=fp32";
constexpr char kTransformer[] =
    "transformer:layers=1,d=16,tokens=24,seq=12,heads=4,kv_heads=2,dtype=fp32";

struct Traced {
  CompiledPlan compiled;
  StepTrace trace;
};

Traced TraceOnHost(const std::string& model, int streams, uint64_t order_seed) {
  auto graph = BuildModel(model);
  INFO(graph.status());
  REQUIRE(graph.ok());
  auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  auto planned = PlanFusion(*graph, *spec);
  REQUIRE(planned.ok());
  auto compiled = Compile(planned->graph, planned->plan, {.schedule = {.streams = streams}});
  REQUIRE(compiled.ok());
  const std::unique_ptr<Device> device = MakeHostDevice({});
  auto program = Program::Load(*compiled, device.get(), {.order_seed = order_seed});
  REQUIRE(program.ok());
  Buffers buffers(device.get());
  auto inputs = DrawInputs(*graph, 3, device.get(), &buffers);
  REQUIRE(inputs.ok());
  auto outputs = AllocateOutputs(*graph, &buffers);
  REQUIRE(outputs.ok());
  auto trace = (*program)->Trace(*inputs, *outputs, 3);
  INFO(trace.status());
  REQUIRE(trace.ok());
  return {*std::move(compiled), *std::move(trace)};
}

TEST_CASE("a traced run has every step once, and steps of a stream one after another") {
  const std::string model = GENERATE(as<std::string>{}, kMlp, kTransformer);
  const int streams = GENERATE(1, 3);
  const uint64_t seed = GENERATE(0, 7);
  INFO(model << " on " << streams << " streams, order by " << seed);
  const Traced traced = TraceOnHost(model, streams, seed);
  CHECK(traced.trace.source == "the clock between the steps");
  CHECK(traced.trace.without.empty());
  std::map<uint32_t, int> times;
  std::map<int, double> until;
  for (const StepSpan& step : traced.trace.steps) {
    CHECK(step.begin_us >= 0);
    CHECK(step.end_us > step.begin_us);
    CHECK(step.begin_us >= until[step.stream]);
    until[step.stream] = step.end_us;
    if (step.group != kNoGroup) ++times[Index(step.group)];
  }
  for (const Step& step : traced.compiled.schedule.steps) {
    const Group& group = traced.compiled.plan.groups[Index(step.group)];
    const bool runs = AliasOf(group) == nullptr;
    CHECK(times[Index(step.group)] == (runs ? 1 : 0));
  }
}

TEST_CASE("the file is JSON with both sides, each step once on each, and their figures") {
  Traced traced = TraceOnHost(kTransformer, 2, 0);
  const Timeline timeline = MakeTimeline(traced.compiled, traced.trace, 123.5);
  const Json document = Json::parse(timeline.ChromeTrace(traced.compiled));
  std::map<int, std::multiset<int>> groups;  // by process
  std::map<std::pair<int, int>, double> until;
  std::set<std::string> processes;
  for (const Json& event : document.at("traceEvents")) {
    if (event.at("ph") == "M") {
      if (event.at("name") == "process_name") processes.insert(event["args"]["name"]);
      continue;
    }
    REQUIRE(event.at("ph") == "X");
    const int process = event.at("pid");
    double& end = until[{process, event.at("tid")}];
    CHECK(event.at("ts").get<double>() >= end - 1e-6);
    end = event["ts"].get<double>() + event.at("dur").get<double>();
    if (event.at("cat") == "copy") continue;
    const Json& arguments = event.at("args");
    groups[process].insert(arguments.at("group").get<int>());
    CHECK(arguments.at("predicted_us").get<double>() > 0);
    CHECK(arguments.at("measured_us").get<double>() > 0);
    CHECK(arguments.at("read_bytes").get<int64_t>() > 0);
    CHECK_THAT(event.at("name").get<std::string>(),
               ContainsSubstring(absl::StrCat(arguments["group"].get<int>(), ": ")));
  }
  CHECK(processes == std::set<std::string>{"predicted", "measured (the clock between the steps)"});
  REQUIRE(groups.size() == 2);
  CHECK(groups[1] == groups[2]);
  CHECK(groups[1].size() == std::set<int>(groups[1].begin(), groups[1].end()).size());
  const Json& other = document.at("otherData");
  CHECK(other.at("untraced_us") == 123.5);
  for (const char* side : {"predicted", "measured"}) {
    CHECK(other.at(side).at("total_us").get<double>() > 0);
    CHECK(other[side].at("idle_percent").get<double>() >= 0);
    CHECK(other[side].at("overlap_percent").get<double>() >= -1e-9);
  }
  const double makespan = static_cast<double>(traced.compiled.schedule.makespan_ps) / 1e6;
  CHECK(std::abs(other["predicted"]["total_us"].get<double>() - makespan) < 1e-6 * makespan + 1e-6);
}

TEST_CASE("idle time is what no step covers, overlap what two do") {
  const auto step = [](int stream, double begin, double end) {
    return StepSpan{.stream = stream, .begin_us = begin, .end_us = end};
  };
  const TimelineFigures figures =
      FiguresOf({step(0, 0, 10), step(0, 20, 40), step(1, 30, 50), step(1, 5, 8), step(1, 9, 12)});
  CHECK(figures.total_us == 50);
  CHECK(figures.busy_us == 42);
  CHECK(std::abs(figures.idle_share - 0.16) < 1e-12);
  CHECK(std::abs(figures.overlap_share - 14.0 / 50) < 1e-12);
  CHECK(FiguresOf({}).total_us == 0);
}

}  // namespace
}  // namespace retrograd
