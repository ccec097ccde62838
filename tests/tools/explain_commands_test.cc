// What fusion-explain gives beyond the plan: what two plans differ in, other viewers' formats, and
// a page.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fusion/plan/call_key.h"
#include "tests/catch.h"
#include "tools/explain/explain_why.h"
#include "tools/explain/explanation.h"
#include "tools/explain/op_names.h"
#include "tools/explain/plan_diff.h"
#include "tools/explain/plan_export.h"
#include "tools/explain/plan_html.h"
#include "tools/support/byte_size.h"
#include "tools/support/text_file.h"

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

// The plan with choices for its first library call, and the call's group.
std::pair<PlannedGraph, size_t> PlanWithChoices() {
  PlannedGraph graph = PlanOf({.graph = kSmall});
  const auto& groups = graph.planned.plan.groups;
  size_t g = 0;
  while (CallOf(groups[g]) == nullptr) ++g;
  const std::set<std::string> uses = {CallKey(*CallOf(groups[g]))};
  graph.choices[{"matmul 1", "NVIDIA H200, sm_90, 132 multiprocessors", "cublaslt 1", "m"}] = {
      .candidates = {{"algorithm 0", 0}, {"algorithm 1", 16}, {"algorithm 2", 12}},
      .usual = 1,
      .chosen = 2,
      .uses = uses};
  graph.choices[{"of another", "call", "altogether", "n"}] = {
      .candidates = {{"of another call", 1}}};
  return {std::move(graph), g};
}

TEST_CASE("an explanation shows the implementations of a call, their times and the margin") {
  const auto [graph, g] = PlanWithChoices();
  auto memory = PeakMemoryOf(graph);
  REQUIRE(memory.ok());
  const std::string text = ExplainAsText(graph, *memory, "small");
  CHECK_THAT(text, ContainsSubstring(
                       "\n        timed on NVIDIA H200, matmul 1: 1 of 3, algorithm 2, 12.0 us, "
                       "25.0% less than the default, algorithm 1, 16.0 us\n"));
  const auto json = nlohmann::json::parse(ExplainAsJson(graph, *memory, "small"));
  CHECK(json["groups"][g]["body"]["choices"] == nlohmann::json::parse(R"([{
    "kind": "matmul 1", "device": "NVIDIA H200, sm_90, 132 multiprocessors",
    "library": "cublaslt 1",
    "candidates": [{"name": "algorithm 0", "us": 0.0}, {"name": "algorithm 1", "us": 16.0},
                   {"name": "algorithm 2", "us": 12.0}],
    "default": "algorithm 1", "chosen": "algorithm 2", "margin": 0.25}])"));
  size_t with_choices = 0;
  for (const auto& group : json["groups"]) with_choices += group["body"].contains("choices");
  auto schedule = ScheduleOf(graph, 1);
  REQUIRE(schedule.ok());
  const std::string page = ExplainAsHtml(graph, *schedule, *memory, "small");
  CHECK_THAT(page, ContainsSubstring("algorithm 2"));
  CHECK_THAT(page, !ContainsSubstring("of another call"));

  PlannedGraph without = graph;
  without.choices.clear();
  const std::string plain = ExplainAsText(without, *memory, "small");
  CHECK_THAT(plain, !ContainsSubstring("timed"));
  CHECK(with_choices > 0);
  for (const auto& group :
       nlohmann::json::parse(ExplainAsJson(without, *memory, "small"))["groups"]) {
    CHECK_FALSE(group["body"].contains("choices"));
  }
}

TEST_CASE("with choices for every call an explanation still has at most 60 lines") {
  for (const char* model : {"golf_tiny", "golf_plain_b48"}) {
    PlannedGraph graph = PlanOf({.graph = model});
    int number = 0;
    for (const Group& group : graph.planned.plan.groups) {
      if (CallOf(group) == nullptr) continue;
      for (const char* kind : {"maker 1", "plan 1", "third 1"}) {
        graph.choices[{kind, "device", "library", std::to_string(++number)}] = {
            .candidates = {{std::string(200, 'x'), 1}}, .uses = {CallKey(*CallOf(group))}};
      }
    }
    auto memory = PeakMemoryOf(graph);
    REQUIRE(memory.ok());
    const std::string text = ExplainAsText(graph, *memory, model);
    CHECK(std::count(text.begin(), text.end(), '\n') <= 60);
    CHECK_THAT(text, ContainsSubstring("Most telling of"));
    for (absl::string_view line : absl::StrSplit(text, '\n')) CHECK(line.size() <= 120);
  }
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

constexpr char kHostile[] = "a\"</script>\\<img src=x onerror=alert(1)>&'b";

// y = -x, from a module whose name is an attack on whoever prints it.
PlannedGraph HostileGraph() {
  GraphBuilder builder("g\"\\");
  const ValueId x = builder.Input({DType::kFp32, {64}}, {.name = kHostile});
  builder.SetOrigin(Origin{.op = "aten.neg", .module_path = kHostile, .source = kHostile});
  builder.Output(builder.Add(Op::neg, {x}), "y");
  PlannedGraph graph;
  graph.original = *builder.Build();
  graph.spec = *LoadDeviceSpec("h200");
  graph.planned = *PlanFusion(graph.original, graph.spec, {});
  return graph;
}

TEST_CASE("the trace has a track for each stream and a slice for each group, none overlapping") {
  const PlannedGraph graph = PlanOf({.graph = "golf_tiny"});
  for (int streams : {1, 3}) {
    const StreamSchedule schedule = *ScheduleOf(graph, streams);
    const auto trace = nlohmann::json::parse(ExportPerfetto(graph, schedule));
    std::vector<double> busy_until(streams, 0.0);
    int names = 0;
    size_t slices = 0;
    for (const auto& event : trace["traceEvents"]) {
      if (event["name"] == "thread_name") ++names;
      if (event["ph"] != "X") continue;
      double& until = busy_until[event["tid"].get<size_t>()];
      CHECK(event["ts"].get<double>() >= until - 1e-6);
      until = event["ts"].get<double>() + event["dur"].get<double>();
      const GroupId group = schedule.steps[slices].group;
      CHECK(event["args"]["ops"].size() == graph.planned.plan.groups[Index(group)].nodes.size());
      CHECK(event["args"].contains("bound by"));
      ++slices;
    }
    CHECK(names == streams);
    CHECK(slices == graph.planned.plan.groups.size());
    CHECK(*std::max_element(busy_until.begin(), busy_until.end()) ==
          Approx(static_cast<double>(schedule.makespan_ps) / 1e6));
  }
}

TEST_CASE("the drawing has a cluster for each group, each op once and each operand as an edge") {
  const PlannedGraph graph = PlanOf({.graph = kSmall});
  const std::string dot = ExportDot(graph);
  const auto count = [&](const char* what) {
    int64_t times = 0;
    for (size_t at = dot.find(what); at != std::string::npos; at = dot.find(what, at + 1)) ++times;
    return times;
  };
  int64_t operands = 0;
  for (uint32_t n = 0; n < graph.planned.graph.num_nodes(); ++n) {
    operands += graph.planned.graph.operands(NodeId{n}).size();
  }
  CHECK(count("subgraph cluster_") == static_cast<int64_t>(graph.planned.plan.groups.size()));
  CHECK(count("tooltip=") == static_cast<int64_t>(graph.planned.graph.num_nodes()));
  CHECK(count(" -> n") == operands);
}

TEST_CASE("names out of a file can't end a string of an export") {
  const PlannedGraph graph = HostileGraph();
  const auto trace = nlohmann::json::parse(ExportPerfetto(graph, *ScheduleOf(graph, 1)));
  CHECK_THAT(trace["traceEvents"].back()["args"]["ops"][0].get<std::string>(),
             ContainsSubstring(kHostile));
  const std::string dot = ExportDot(graph);
  CHECK_THAT(dot, ContainsSubstring("a\\\"</script>\\\\<img src=x onerror=alert(1)>&'b"));
}

std::string PageOf(const PlannedGraph& graph, absl::string_view name) {
  auto memory = PeakMemoryOf(graph);
  REQUIRE(memory.ok());
  return ExplainAsHtml(graph, *ScheduleOf(graph, 2), *memory, name);
}

// What a browser takes for the data: up to the first "</script".
nlohmann::json DataOf(const std::string& page) {
  const std::string head = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(head);
  REQUIRE(begin != std::string::npos);
  const size_t end = page.find("</script", begin);
  REQUIRE(end != std::string::npos);
  return nlohmann::json::parse(page.substr(begin + head.size(), end - begin - head.size()));
}

TEST_CASE("the page holds the plan with its sources, each once, and refers to nothing outside") {
  for (const char* model : {"golf_tiny", "golf_plain_b48"}) {
    INFO(model);
    const PlannedGraph graph = PlanOf({.graph = model});
    const FusionPlan& plan = graph.planned.plan;
    const std::string page = PageOf(graph, model);
    CHECK(page.size() < 10'000'000);
    for (const char* outside : {"http", "src=", "@import", "url(", "fetch(", "innerHTML"}) {
      INFO(outside);
      CHECK(page.find(outside) == std::string::npos);
    }
    const nlohmann::json data = DataOf(page);
    REQUIRE(data["groups"].size() == plan.groups.size());
    CHECK(data["summary"]["price"] == plan.summary.price_ps);
    CHECK(data["summary"]["cost"] == plan.summary.cost_ps);
    int64_t most_alive = 0;
    for (const auto& group : data["groups"])
      most_alive = std::max<int64_t>(most_alive, group["live"]);
    CHECK(most_alive >= plan.summary.peak_bytes / 2);  // launched in another order
    CHECK(most_alive <= plan.summary.peak_bytes * 2);
    CHECK(data["left_out"]["sources"] == 0);
    std::vector<std::string> names;
    for (const auto& source : data["sources"]) {
      names.push_back(source["name"]);
      for (const char* dialect : {"cuda", "hip", "host"}) REQUIRE(source.contains(dialect));
      CHECK_THAT(source["cuda"].get<std::string>(), ContainsSubstring(names.back()));
    }
    std::sort(names.begin(), names.end());
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      const auto& group = data["groups"][g];
      CHECK(group["ops"].size() == plan.groups[g].nodes.size());
      CHECK(group["terms"].size() == plan.groups[g].terms.size());
      CHECK(group["price"] == plan.groups[g].price_ps);
      const bool ours =
          !KernelsOf(plan.groups[g]).empty() || (FusedCallOf(plan.groups[g]) != nullptr);
      CHECK(group["sources"].empty() != ours);
    }
    CHECK_FALSE(data["refusals"].empty());
    for (const auto& refusal : data["refusals"]) {
      for (const auto& g : refusal["a"]) CHECK(g < plan.groups.size());
    }
  }
}

TEST_CASE("names out of a file reach the page as data alone") {
  const std::string page = PageOf(HostileGraph(), kHostile);
  CHECK(page.find("<img") == std::string::npos);
  const nlohmann::json data = DataOf(page);
  CHECK(data["graph"] == kHostile);
  const auto& op = data["groups"][0]["ops"][0];
  CHECK(data["strings"][op[4].get<size_t>()] == kHostile);
  CHECK(data["strings"][op[5].get<size_t>()] == kHostile);
}

TEST_CASE("a file that can't be read or written is an error") {
  CHECK_FALSE(WriteTextFile("/no/such/folder/file", "x").ok());
  CHECK_FALSE(WriteTextFile("/dev/full", "x").ok());
  CHECK_FALSE(ReadTextFile("/no/such/file").ok());
  CHECK_FALSE(ReadTextFile("/").ok());
}

TEST_CASE("diff exits with 0 for equal plans, 1 for different ones and 2 for none") {
  const std::string tool = absl::StrCat(RETROGRAD_BIN_DIR, "/fusion-explain");
  if (!std::filesystem::exists(tool)) RG_SKIP("the binaries are not built");
  const std::string plan =
      (std::filesystem::temp_directory_path() / absl::StrCat("explain_test_", getpid(), ".json"))
          .string();
  const auto status = [&](const std::string& arguments) {
    return WEXITSTATUS(std::system(absl::StrCat(tool, " ", arguments, " >&2").c_str()));
  };
  REQUIRE(status(absl::StrCat("plan ", kSmall, " --format json -o ", plan)) == 0);
  const std::string both = absl::StrCat("diff ", plan, " ", kSmall);
  CHECK(status(both) == 0);
  CHECK(status(both + " --disable fusion") == 1);
  CHECK(status(both + " --disable fusion --fail-if slower:100000%") == 0);
  CHECK(status(both + " --disable fusion --fail-if slower:100000% --fail-if kernels:1%") == 1);
  CHECK(status(absl::StrCat("diff ", plan, " /no/such.json")) == 2);
  CHECK(status(both + " --fail-if slower:much") == 2);
  std::filesystem::remove(plan);
}

std::string WhyText(const char* a, const char* b, bool flip = false) {
  Progress progress;
  const auto answer = AnswerWhy({.graph = "golf_tiny"}, a, b, flip, &progress);
  return answer.ok() ? WhyAsText(*answer, "golf_tiny") : std::string(answer.status().message());
}

TEST_CASE(
    "ops are named by number, by the original op and its call, by module, or refused with a list") {
  const PlannedGraph planned = PlanOf({.graph = "golf_tiny"});
  const BackwardGraph& graph = planned.planned.graph;
  const auto ops = FindOps(graph, "aten.nll_loss_backward#335");
  REQUIRE(ops.ok());
  REQUIRE_FALSE(ops->empty());
  CHECK(*FindOps(graph, "nll_loss_backward#335") == *ops);
  CHECK(*FindOps(graph, "nll_loss_backward") == *ops);
  CHECK(*FindOps(graph, "%7") == std::vector<NodeId>{NodeId{7}});
  CHECK(*FindOps(graph, "7") == *FindOps(graph, "%7"));
  const auto says = [&](const char* name) {
    const auto found = FindOps(graph, name);
    return found.ok() ? "found" : std::string(found.status().message());
  };
  CHECK_THAT(says("aten.mul"), ContainsSubstring("calls; say which"));
  CHECK_THAT(says("norm"), ContainsSubstring("calls; say which"));
  CHECK(says("norm:aten.mul#325") == "found");
  for (const char* wrong : {"", "%", "#3", "aten.nothing", "nowhere:aten.mul#325", "%4294967295",
                            "99999999999999999999", "-1", "a\"b", "\x1b[31m"}) {
    INFO(wrong);
    const std::string message = says(wrong);
    CHECK(message != "found");
    CHECK(message.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("why fits a screen, and as JSON holds both sides with every term") {
  const PlannedGraph graph = PlanOf({.graph = "golf_tiny"});
  int asked = 0;
  for (const Decision& d : graph.planned.plan.decisions) {
    if (d.b.empty() || asked == 6) continue;
    if (graph.planned.graph.op(d.a.back()) == Op::matmul) continue;
    Progress progress;
    const std::string a = absl::StrCat(Index(d.a.back())), b = absl::StrCat("%", Index(d.b.back()));
    const auto answer = AnswerWhy({.graph = "golf_tiny"}, a, b, asked == 0, &progress);
    INFO(a << " " << b << " " << answer.status());
    REQUIRE(answer.ok());
    const std::string text = WhyAsText(*answer, "golf_tiny");
    CHECK(std::count(text.begin(), text.end(), '\n') <= 60);
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      CHECK(end - at <= 120);
      at = end + 1;
    }
    const auto json = nlohmann::json::parse(WhyAsJson(*answer, "golf_tiny"));
    CHECK(json["format"] == "retrograd.why");
    if (!answer->why.never.empty()) {  // they share a launch alone
      CHECK_THAT(d.reason, ContainsSubstring(" independent "));
      CHECK(json["never"] == answer->why.never);
      continue;
    }
    CHECK(json.contains("flips") == (asked == 0));
    ++asked;
    for (const char* side : {"together", "apart"}) {
      const auto& choice = json["sides"][side];
      CHECK(choice.contains("cost_ps") == choice["feasible"].get<bool>());
      CHECK(choice.contains("limit") != choice["feasible"].get<bool>());
      for (const auto& kernel : choice.value("kernels", nlohmann::json::array())) {
        CHECK_FALSE(kernel["terms"].empty());
      }
    }
  }
  CHECK(asked > 0);
  CHECK_THAT(WhyText("3", "3"), ContainsSubstring("the same op"));
  CHECK_THAT(WhyText("0", "1"), ContainsSubstring("can never share a kernel"));
  // Sentences end with a full stop.
  CHECK_THAT(WhyText("0", "1"), ContainsSubstring("it is an input, a view or a constant.\n"));
}

TEST_CASE("the plan and why tell which matmuls are one, what it wins, and why others are not") {
  const PlannedGraph graph = PlanOf({.graph = "golf_tiny"});
  const auto memory = PeakMemoryOf(graph);
  REQUIRE(memory.ok());
  const std::string text = ExplainAsText(graph, *memory, "golf_tiny");
  CHECK_THAT(text, ContainsSubstring("Merged matmuls:"));
  CHECK_THAT(text, ContainsSubstring("the whole plan takes"));
  CHECK(std::count(text.begin(), text.end(), '\n') <= 60);
  const auto whatif = [&](const Decision& d, NodeId b) {
    Progress progress;
    const auto answer = AnswerWhy({.graph = "golf_tiny"}, absl::StrCat(Index(d.a[0])),
                                  absl::StrCat(Index(b)), false, &progress);
    INFO(answer.status());
    REQUIRE(answer.ok());
    REQUIRE(answer->merge.has_value());
    CHECK(answer->merge->reason == d.reason);
    const auto json = nlohmann::json::parse(WhyAsJson(*answer, "golf_tiny"));
    CHECK(json["one_matmul"]["reason"] == d.reason);
  };
  int one = 0, apart = 0;
  for (const Decision& d : graph.planned.plan.decisions) {
    if (graph.planned.graph.op(d.a[0]) != Op::matmul) continue;
    if (!d.together && apart++ == 0) whatif(d, d.b[0]);
    if (!d.together || one++ > 0) continue;
    for (const Use& use : graph.planned.graph.uses(d.a[0])) {
      if (graph.planned.graph.op(use.user) == Op::slice) {
        whatif(d, use.user);
        break;
      }
    }
  }
  CHECK(one > 0);
  CHECK(apart > 0);
}

TEST_CASE("whatif shows what a choice changes, and an impossible one is an error with its limit") {
  const PlannedGraph graph = PlanOf({.graph = "golf_tiny"});
  const auto ask = [&](PlanArguments changed, std::vector<NamedChoice> choices) {
    changed.graph = "golf_tiny";
    Progress progress;
    const auto text = AnswerWhatIf({.graph = "golf_tiny"}, changed, choices, &progress);
    return text.ok() ? *text : "refused: " + std::string(text.status().message());
  };
  const Decision* split = nullptr;
  const Decision* limited = nullptr;
  for (const Decision& d : graph.planned.plan.decisions) {
    if (d.b.empty()) continue;
    if (d.together && split == nullptr && d.apart_ps > 0) split = &d;
    if (!d.together && limited == nullptr && !d.limit.empty() && d.limit != "horizontal")
      limited = &d;
  }
  const auto pair = [](const Decision& d) {
    return absl::StrCat(Index(d.a.back()), ",%", Index(d.b.back()));
  };
  CHECK_THAT(ask({}, {}), ContainsSubstring("0 removed (-), 0 added (+), 0 changed (~)"));
  if (split != nullptr) CHECK_THAT(ask({}, {{pair(*split), false}}), ContainsSubstring("apart "));
  if (limited != nullptr) {
    const std::string refusal = ask({}, {{pair(*limited), true}});
    CHECK_THAT(refusal, ContainsSubstring("refused: "));
    CHECK_THAT(refusal, ContainsSubstring(limited->limit));
  }
  CHECK_THAT(ask({.spec = "mi300x"}, {}), ContainsSubstring("golf_tiny on mi300x"));
  CHECK_THAT(ask({.set = {"max_registers=64"}}, {}),
             ContainsSubstring("h200 with max_registers=64"));
  CHECK_THAT(ask({.scale_rows = 2}, {}), ContainsSubstring("rows x 2"));
  CHECK_THAT(ask({.max_memory = "1KB"}, {}), ContainsSubstring("the least was"));
  CHECK_THAT(ask({.max_memory = "lots"}, {}), ContainsSubstring("'lots' is no size"));
  CHECK_THAT(ask({.dtype = "int8"}, {}), ContainsSubstring("bf16, fp16, fp32 and fp64"));
  CHECK_THAT(ask({.scale_rows = 0.3}, {}), ContainsSubstring("--scale-rows 0.3"));
  CHECK_THAT(ask({}, {{"%3", true}}), ContainsSubstring("name two ops"));
}

TEST_CASE("sizes are read with their units") {
  CHECK(*ParseByteSize("1048576") == 1048576);
  CHECK(*ParseByteSize("2GiB") == int64_t{2} << 30);
  CHECK(*ParseByteSize("1.5 GB") == 1'500'000'000);
  CHECK(*ParseByteSize("3KiB") == 3072);
  CHECK(*ParseByteSize("3MB") == 3'000'000);
  for (const char* wrong : {"", "0", "-1", "GiB", "1 XB", "1..2MB", "1e9", "99999999TiB", "nan"}) {
    INFO(wrong);
    CHECK_FALSE(ParseByteSize(wrong).ok());
  }
}

}  // namespace
}  // namespace retrograd
