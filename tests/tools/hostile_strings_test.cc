// Strings of a graph are for display. None reaches generated source, and what shows them escapes
// them, whatever they hold.
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "runtime/schedule/stream_schedule.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tools/explain/explanation.h"
#include "tools/explain/plan_html.h"
#include "tools/support/pipeline.h"

namespace retrograd {
namespace {

// Each holds the mark; none holds control characters, which are refused at the door.
constexpr absl::string_view kMark = "hostile_mark";
const std::vector<std::string>& Hostile() {
  static const auto& list = *new std::vector<std::string>{
      "*/ int hostile_mark; /*",
      "hostile_mark\\",
      "\\u000a#include \"hostile_mark\"",
      "\"); system(\"hostile_mark\"); //",
      "</script><script>hostile_mark()</script>",
      "<img src=x onerror=hostile_mark()>",
      "';alert(hostile_mark)//",
      "%s%n%x hostile_mark",
      "${hostile_mark} $(hostile_mark) `hostile_mark`",
      "R\"rg( hostile_mark )rg\"",
      "?\?/ hostile_mark",
      "&lt;hostile_mark&gt;\xe2\x80\xae",  // and a right-to-left override
  };
  return list;
}

// The graph with such strings wherever a file can have one.
BackwardGraph WithHostileStrings(const BackwardGraph& g) {
  size_t next = 0;
  const auto text = [&] { return Hostile()[next++ % Hostile().size()]; };
  GraphBuilder builder(text());
  Numerics numerics = g.numerics();
  numerics.framework = text();
  builder.SetNumerics(numerics);
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    builder.SetOrigin(Origin{text(), i, text(), text(), false});
    const Node& node = g.node(NodeId{i});
    if (node.op == Op::input) {
      InputInfo info = *node.input;
      info.name = text();
      builder.Input(node.results[0], info);
    } else {
      builder.Add(node.op, g.operands(NodeId{i}), node.attrs);
    }
  }
  for (const GraphOutput& output : g.outputs()) {
    if (output.value) {
      builder.Output(*output.value, text(), output.strides);
    } else {
      builder.AbsentOutput(text());
    }
  }
  absl::StatusOr<BackwardGraph> graph = builder.Build();
  REQUIRE(graph.status().ToString() == "OK");
  return *std::move(graph);
}

TEST_CASE("no string of a graph reaches generated source, or changes it") {
  const DeviceSpec device = *LoadDeviceSpec("h200");
  for (uint32_t seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    const BackwardGraph plain = RandomGraph(seed);
    const BackwardGraph hostile = WithHostileStrings(plain);
    REQUIRE(absl::StrContains(Print(hostile), kMark));
    const auto a = PlanFusion(plain, device), b = PlanFusion(hostile, device);
    REQUIRE((a.ok() && b.ok()));
    for (Dialect dialect : {Dialect::kCuda, Dialect::kHip, Dialect::kHost}) {
      const auto source = [&](const Planned& planned) {
        std::vector<GroupKernels> kernels;
        for (const Group& group : planned.plan.groups) {
          const KernelBody* body = KernelOf(group);
          if (body != nullptr) kernels.push_back(EmitGroup(*body, dialect));
        }
        return TranslationUnit(DistinctKernels(kernels), dialect);
      };
      const std::string text = source(*b);
      CHECK_FALSE(absl::StrContains(text, kMark));
      CHECK(text == source(*a));
    }
  }
}

size_t Count(absl::string_view text, absl::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != absl::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// What fusion-explain makes of a graph file.
struct Pages {
  std::string html, json;
};

Pages PagesOf(const BackwardGraph& graph, const std::string& path) {
  REQUIRE(SaveGraph(graph, path).ok());
  Progress progress;
  const auto planned = OpenAndPlan({.graph = path}, &progress);
  REQUIRE(planned.status().ToString() == "OK");
  const auto memory = PeakMemoryOf(*planned);
  REQUIRE(memory.ok());
  const auto schedule = ScheduleStreams(planned->planned.graph, planned->planned.plan,
                                        {.streams = 2, .chip_blocks = planned->spec.sms});
  REQUIRE(schedule.ok());
  return {ExplainAsHtml(*planned, *schedule, *memory, "graph"),
          ExplainAsJson(*planned, *memory, "graph")};
}

TEST_CASE("pages and JSON show hostile strings escaped") {
  const std::string path =
      (std::filesystem::temp_directory_path() / absl::StrCat("hostile_", getpid(), ".bwd.pb"))
          .string();
  const BackwardGraph plain = RandomGraph(3, {.min_ops = 20});
  const Pages before = PagesOf(plain, path);
  const Pages pages = PagesOf(WithHostileStrings(plain), path);
  std::filesystem::remove(path);
  CHECK(absl::StrContains(pages.html, kMark));
  for (absl::string_view tag : {"<script", "</script", "<img", "<!--"}) {
    INFO(std::string(tag));
    CHECK(Count(pages.html, tag) == Count(before.html, tag));
  }
  CHECK(absl::StrContains(pages.json, kMark));
  CHECK(nlohmann::json::parse(pages.json).is_object());
}

}  // namespace
}  // namespace retrograd
