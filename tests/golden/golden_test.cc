// Runs every tests/golden/<stage>/*.rgt: a comment that says the behaviour, a line with the stage
// and its flags (tests/support/golden/golden_run.h), a graph, "----", and what the stage prints.
// RETROGRAD_REWRITE_GOLDEN=1 rewrites the expectations; review the diff.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fusion/cost/limits.h"
#include "fusion/kernel/build/build_limit.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "tests/catch.h"
#include "tests/support/golden/golden_stages.h"

namespace retrograd {
namespace {

namespace fs = std::filesystem;

struct Case {
  fs::path file;
  std::string comment, flags;  // comment: its lines; flags: one line
  std::string graph, expected;
};

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Case ParseCase(const fs::path& file) {
  Case c{.file = file};
  const std::string text = ReadFile(file);
  bool expected = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (expected) {
      absl::StrAppend(&c.expected, line, "\n");
    } else if (line == "----") {
      expected = true;
    } else if (absl::StartsWith(line, "#") && c.flags.empty()) {
      absl::StrAppend(&c.comment, line, "\n");
    } else if (c.flags.empty()) {
      c.flags = std::string(line);
    } else {
      absl::StrAppend(&c.graph, line, "\n");
    }
  }
  while (absl::EndsWith(c.expected, "\n\n")) c.expected.pop_back();
  return c;
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const auto& entry : fs::recursive_directory_iterator(RETROGRAD_SOURCE_DIR "/tests/golden")) {
    if (entry.path().extension() == ".rgt") cases.push_back(ParseCase(entry.path()));
  }
  std::sort(cases.begin(), cases.end(),
            [](const Case& a, const Case& b) { return a.file < b.file; });
  return cases;
}

TEST_CASE("golden files") {
  const bool rewrite = std::getenv("RETROGRAD_REWRITE_GOLDEN") != nullptr;
  for (const Case& c : AllCases()) {
    INFO(c.file.string());
    const absl::StatusOr<GoldenRun> run = ParseGoldenRun(c.flags);
    INFO(run.status());
    REQUIRE(run.ok());
    CHECK(run->stage == c.file.parent_path().filename());
    const absl::StatusOr<std::string> got = TextOfStage(*run, c.graph);
    INFO(got.status());
    CHECK(got.ok());
    if (!got.ok()) continue;
    if (rewrite) {
      std::ofstream(c.file) << c.comment << c.flags << "\n" << c.graph << "----\n" << *got;
    } else {
      CHECK(*got == c.expected);
    }
  }
}

// In the expectations, so that a file whose refusal is gone does not count.
TEST_CASE("each limit refuses something in a golden file") {
  std::set<std::string> limits;
  for (const Case& c : AllCases()) {
    const absl::StatusOr<GoldenRun> run = ParseGoldenRun(c.flags);
    if (!run.ok() || run->stage != "refusal") continue;
    INFO(c.file.string());
    const bool refused = absl::StrContains(c.expected, absl::StrCat("[", run->limit, "]: ")) ||
                         absl::StrContains(c.expected, absl::StrCat(": ", run->limit, ": "));
    CHECK(refused);
    limits.insert(run->limit);
  }
  for (const Limit& limit : kLimits) {
    INFO("tests/golden/refusal/ has no file with limit=" << limit.name);
    CHECK(limits.contains(std::string(limit.name)));
  }
  for (absl::string_view name : kBuildLimitNames) {
    INFO("tests/golden/refusal/ has no file with limit=" << name);
    CHECK(limits.contains(std::string(name)));
  }
}

TEST_CASE("the source of each kernel template is in a golden file") {
  std::string sources;
  for (const Case& c : AllCases()) {
    if (absl::StartsWith(c.flags, "kernels ")) absl::StrAppend(&sources, c.expected);
  }
  for (const KernelTemplate* t : KernelTemplates()) {
    INFO("tests/golden/kernels/ has no file with a kernel of the template " << t->name);
    CHECK(absl::StrContains(sources, absl::StrCat(" ", t->name, " threads=")));
  }
}

}  // namespace
}  // namespace retrograd
