// docs/ops.md tells every op of the table: operands, attributes, what it computes.
// RETROGRAD_REWRITE_GOLDEN=1 writes it; review the diff.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "graph/ir/attribute_rules.h"
#include "graph/ir/op.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

constexpr char kPath[] = RETROGRAD_SOURCE_DIR "/docs/ops.md";

std::string Attributes(const OpInfo& info) {
  return absl::StrJoin(AttrRules(info.op), "; ", [](std::string* out, const AttrRule& rule) {
    absl::StrAppend(out, "`", rule.name, "`: ", rule.required ? "" : "optional, ",
                    Describe(rule.kind));
  });
}

std::string Operands(const OpInfo& info) {
  if (info.max_operands < 0) return absl::StrCat(info.min_operands, " or more");
  if (info.min_operands == info.max_operands) return absl::StrCat(info.min_operands);
  return absl::StrCat(info.min_operands, " to ", info.max_operands);
}

// A bar ends a cell of a table.
std::string InCell(absl::string_view text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

// "a + b" of "$0 + $1".
std::string Formula(const OpInfo& info) {
  if (!info.meaning.empty()) return std::string(info.meaning);
  return absl::StrCat(
      "`", absl::StrReplaceAll(info.expr, {{"$0", "a"}, {"$1", "b"}, {"$2", "c"}, {"rg_", ""}}),
      "`");
}

absl::string_view Types(TypeRule rule) {
  switch (rule) {
    case TypeRule::kSame: return "T.. → T";
    case TypeRule::kFloat: return "T.. → T, floating";
    case TypeRule::kCompare: return "T, T → bool";
    case TypeRule::kLogical: return "bool.. → bool";
    case TypeRule::kSelect: return "bool, T, T → T";
    case TypeRule::kCast: return "any → `dtype`";
    case TypeRule::kConstant: return "→ `dtype`";
    case TypeRule::kStructural: return "";
  }
  return "";
}

std::string PointwiseRows() {
  std::string rows = "| op | dtypes | attributes | result |\n|---|---|---|---|\n";
  for (const OpInfo& info : AllOps()) {
    if (info.pattern != Pattern::kPointwise) continue;
    absl::StrAppend(&rows, "| `", info.name, "` | ", Types(info.type_rule), " | ", Attributes(info),
                    " | ", InCell(Formula(info)), " |\n");
  }
  return rows;
}

std::string StructuralRows() {
  std::string rows = "| op | operands | attributes | result |\n|---|---|---|---|\n";
  for (const OpInfo& info : AllOps()) {
    if (info.type_rule != TypeRule::kStructural || info.op == Op::input) continue;
    absl::StrAppend(&rows, "| `", info.name, "` | ", Operands(info), " | ", Attributes(info), " | ",
                    InCell(info.meaning), " |\n");
  }
  return rows;
}

// "dx, dw": the names that a definition assigns and nothing reads.
std::string Results(absl::string_view steps) {
  const std::vector<std::string> words =
      absl::StrSplit(steps, absl::ByAnyChar(" ,;()\n"), absl::SkipEmpty());
  std::vector<std::string> results;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i + 1] != "=" || std::count(words.begin(), words.end(), words[i]) != 1) continue;
    results.push_back(words[i]);
  }
  return absl::StrJoin(results, ", ");
}

// The definition's operands, "dy x", and its steps.
std::string CompositeSections() {
  std::string sections;
  for (const OpInfo& info : AllOps()) {
    if (info.pattern != Pattern::kComposite) continue;
    absl::string_view steps = info.expand;
    const size_t arrow = steps.find("->");
    const std::string operands =
        absl::StrReplaceAll(absl::StripAsciiWhitespace(steps.substr(0, arrow)), {{" ", ", "}});
    steps.remove_prefix(arrow + 3);
    absl::StrAppend(&sections, "### `", info.name, "`(", operands, ") → ", Results(steps), "\n\n",
                    info.meaning, "\n\n```\n",
                    absl::StrReplaceAll(absl::StripAsciiWhitespace(steps), {{"\n  ", "\n"}}),
                    "\n```\n\n");
  }
  return sections;
}

std::string Page() {
  return absl::StrCat(
      "# Ops\n\n"
      "The ops of [graphs](format.md), from the table `graph/ir/ops.def`. Each attribute is "
      "required "
      "unless it is optional;\nno op takes others. A graph input is the op `input`, which has a "
      "description in place of attributes.\n\n"
      "## Pointwise\n\n"
      "Operands a, b, c broadcast as in NumPy: trailing axes meet, and extents of 1 are repeated. "
      "T is "
      "one dtype for all.\nBelow 32 bits floats are computed in fp32 and rounded once.\n\n",
      PointwiseRows(),
      "\n## Reductions, products, views, joins, indices\n\n"
      "`axis` and `axes` count from 0. With `keep` a reduced axis stays with extent 1. Views move "
      "no "
      "data themselves. A negative index\ncounts from the end; one outside the axis reads 0 or "
      "adds "
      "nothing.\n\n",
      StructuralRows(),
      "\n## Gradients\n\n"
      "Each gives gradients of y for the incoming dy, and is defined by other ops. `sum_last` and "
      "`mean_last` go over the last axis, which\nstays with extent 1; `sum_lead` goes over all "
      "others, which go.\n\n",
      absl::StripTrailingAsciiWhitespace(CompositeSections()), "\n");
}

TEST_CASE("docs/ops.md is the op table") {
  const std::string page = Page();
  if (std::getenv("RETROGRAD_REWRITE_GOLDEN") != nullptr) std::ofstream(kPath) << page;
  std::ifstream file(kPath);
  std::stringstream written;
  written << file.rdbuf();
  CHECK(written.str() == page);
}

TEST_CASE("every op says what it computes") {
  for (const OpInfo& info : AllOps()) {
    INFO(info.name);
    CHECK((info.op == Op::input || !info.expr.empty() || !info.meaning.empty()));
    CHECK(
        (info.type_rule != TypeRule::kStructural || info.op == Op::input || !info.meaning.empty()));
  }
}

}  // namespace
}  // namespace retrograd
