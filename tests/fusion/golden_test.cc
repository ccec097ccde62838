// Runs every tests/golden/<stage>/*.rgt: a comment that says the behaviour, a line with the stage
// and its flags, a graph, "----", and what the stage prints. Prices are left out: they change with
// every calibration, behaviour should not. RETROGRAD_REWRITE_GOLDEN=1 rewrites the expectations;
// review the diff.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string comment;  // with the flags line, verbatim
  std::string stage, device = "h200", expect_limit;
  PlanOptions options;
  std::string graph, expected;
};

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Case ParseCase(const std::string& text) {
  Case c;
  bool flags_seen = false, expected = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (expected) {
      absl::StrAppend(&c.expected, line, "\n");
    } else if (line == "----") {
      expected = true;
    } else if (absl::StartsWith(line, "#") && !flags_seen) {
      absl::StrAppend(&c.comment, line, "\n");
    } else if (!flags_seen) {
      flags_seen = true;
      absl::StrAppend(&c.comment, line, "\n");
      for (absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
        const std::pair<std::string, std::string> kv =
            absl::StrSplit(word, absl::MaxSplits('=', 1));
        if (c.stage.empty()) c.stage = std::string(word);
        if (kv.first == "device") c.device = kv.second;
        if (kv.first == "expect-limit") c.expect_limit = kv.second;
        if (kv.first == "disable") c.options.disable.insert(kv.second);
        if (kv.first == "tighten") c.options.tighten.insert(kv.second);
      }
    } else {
      absl::StrAppend(&c.graph, line, "\n");
    }
  }
  while (absl::EndsWith(c.expected, "\n\n")) c.expected.pop_back();
  return c;
}

// The groups alone, without prices; every decision's sides and limit, without its figures.
std::string Structure(const FusionPlan& plan, const BackwardGraph& graph) {
  std::string out;
  const std::string text = plan.Print(graph);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "group ")) {
      std::vector<absl::string_view> words;
      for (absl::string_view w : absl::StrSplit(line, ' ')) {
        if (!absl::StartsWith(w, "price=") && !absl::StartsWith(w, "registers="))
          words.push_back(w);
      }
      absl::StrAppend(&out, absl::StrJoin(words, " "), "\n");
    } else if (absl::StartsWith(line, "yes ") || absl::StartsWith(line, "no ")) {
      absl::StrAppend(&out, line.substr(0, line.find(':')), "\n");
    }
  }
  return out;
}

std::string Run(const Case& c) {
  auto graph = ParseGraph(c.graph);
  if (!graph.ok()) return absl::StrCat(graph.status().message(), "\n");
  auto device = LoadDeviceSpec(c.device);
  REQUIRE(device.ok());
  if (c.stage == "lower") {
    auto lowered = Lower(*graph, LowerOptionsOf(c.options, *device));
    return lowered.ok() ? Print(*lowered) : absl::StrCat(lowered.status().message(), "\n");
  }
  auto planned = PlanFusion(*graph, *device, c.options);
  if (!planned.ok()) return absl::StrCat(planned.status().message(), "\n");
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  if (!c.expect_limit.empty()) {
    const auto& ds = planned->plan.decisions;
    const bool refused = std::any_of(ds.begin(), ds.end(),
                                     [&](const Decision& d) { return d.limit == c.expect_limit; });
    INFO("limit " << c.expect_limit << " refused nothing");
    CHECK(refused);
  }
  return absl::StrCat(Print(planned->graph), "\n", Structure(planned->plan, planned->graph));
}

TEST_CASE("golden files") {
  const bool rewrite = std::getenv("RETROGRAD_REWRITE_GOLDEN") != nullptr;
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(RETROGRAD_SOURCE_DIR "/tests/golden")) {
    if (entry.path().extension() == ".rgt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() >= 10);
  for (const fs::path& file : files) {
    INFO(file.string());
    const Case c = ParseCase(ReadFile(file));
    const std::string got = Run(c);
    if (rewrite) {
      std::ofstream(file) << c.comment << c.graph << "----\n" << got;
    } else {
      CHECK(got == c.expected);
    }
  }
}

}  // namespace
}  // namespace retrograd
