// The example outputs in the docs are what the tools print. A block of the docs that begins with
// "$ TOOL ARGUMENTS" is that command and its output; a line "..." (indented or not) stands for any
// lines up to the next one of the block, or to the end. RETROGRAD_REWRITE_GOLDEN=1 writes today's
// output into the docs, cut at the same places; review the diff.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/catch.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

using Lines = std::vector<std::string>;

Lines LinesOf(absl::string_view text) {
  return absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
}

bool IsCut(absl::string_view line) { return absl::StripAsciiWhitespace(line) == "..."; }

// `example` is trusted text of the docs.
Lines OutputOf(const std::string& example) {
  const std::string command = absl::StrCat(RETROGRAD_BIN_DIR, "/", example, " 2>/dev/null");
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  std::array<char, 4096> buffer;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), n);
  pclose(pipe);
  return LinesOf(out);
}

// The output cut where the example is. A cut ends at the first line that begins with the same word
// as the example's line after it.
Lines CutLike(const Lines& example, const Lines& output) {
  const auto word = [](const std::string& line) {
    return std::string(absl::StripLeadingAsciiWhitespace(line)).substr(0, 6);
  };
  Lines cut;
  size_t at = 0;
  for (size_t i = 0; i < example.size(); ++i) {
    if (!IsCut(example[i])) {
      if (at < output.size()) cut.push_back(output[at++]);
      continue;
    }
    cut.push_back(example[i]);
    if (i + 1 == example.size()) return cut;
    while (at < output.size() && word(output[at]) != word(example[i + 1])) ++at;
  }
  cut.insert(cut.end(), output.begin() + at, output.end());
  return cut;
}

TEST_CASE("the example outputs of docs/fusion-explain.md are what fusion-explain prints") {
  const std::string tool = absl::StrCat(RETROGRAD_BIN_DIR, "/fusion-explain");
  if (!std::filesystem::exists(tool)) RG_SKIP("the binaries are not built");
  const std::string path = RETROGRAD_SOURCE_DIR "/docs/fusion-explain.md";
  const auto text = ReadTextFile(path);
  REQUIRE(text.ok());
  const Lines lines = LinesOf(*text);
  Lines rewritten;
  int examples = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    rewritten.push_back(lines[i]);
    if (!absl::StartsWith(lines[i], "$ fusion-explain ")) continue;
    size_t end = i + 1;
    while (end < lines.size() && lines[end] != "```") ++end;
    const Lines example(lines.begin() + i + 1, lines.begin() + end);
    const Lines now = CutLike(example, OutputOf(lines[i].substr(2)));
    INFO(lines[i]);
    INFO("RETROGRAD_REWRITE_GOLDEN=1 build/release/tests/docs_examples_test writes the new output");
    if (std::getenv("RETROGRAD_REWRITE_GOLDEN") == nullptr) {
      CHECK(absl::StrJoin(now, "\n") == absl::StrJoin(example, "\n"));
    }
    rewritten.insert(rewritten.end(), now.begin(), now.end());
    i = end - 1;
    ++examples;
  }
  CHECK(examples >= 2);
  if (std::getenv("RETROGRAD_REWRITE_GOLDEN") != nullptr) {
    REQUIRE(WriteTextFile(path, absl::StrJoin(rewritten, "\n") + "\n").ok());
  }
}

}  // namespace
}  // namespace retrograd
