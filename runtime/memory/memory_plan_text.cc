// The text form of a memory plan.
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "runtime/memory/memory_plan.h"

namespace retrograd {
namespace {

// Reads one line word by word; after the first mismatch every call fails.
class Line {
 public:
  explicit Line(absl::string_view text) : words_(absl::StrSplit(text, ' ', absl::SkipEmpty())) {}

  bool Word(absl::string_view expected) {
    if (!ok_ || next_ >= words_.size() || words_[next_] != expected) return false;
    ++next_;
    return true;
  }
  // A number after a fixed prefix: "@128".
  template <typename Int>
  void Number(absl::string_view prefix, Int* number) {
    ok_ = ok_ && next_ < words_.size() && absl::StartsWith(words_[next_], prefix) &&
          absl::SimpleAtoi(words_[next_].substr(prefix.size()), number);
    ++next_;
  }
  void Value(ValueId* value) {
    ok_ = ok_ && next_ < words_.size() && ParseValue(words_[next_], value);
    ++next_;
  }
  void Steps(uint32_t* first, uint32_t* last) { Range("steps", first, last); }
  void Phases(uint32_t* first, uint32_t* last) { Range("phases", first, last); }
  void Require(bool condition) { ok_ = ok_ && condition; }
  bool complete() const { return ok_ && next_ == words_.size(); }

 private:
  void Range(absl::string_view of, uint32_t* first, uint32_t* last) {
    ok_ = ok_ && Word(of) && next_ < words_.size();
    if (!ok_) return;
    const std::vector<absl::string_view> ends = absl::StrSplit(words_[next_++], "..");
    ok_ = ends.size() == 2 && absl::SimpleAtoi(ends[0], first) && absl::SimpleAtoi(ends[1], last);
  }

  std::vector<absl::string_view> words_;
  size_t next_ = 0;
  bool ok_ = true;
};

bool ParseLine(absl::string_view text, MemoryPlan* memory) {
  Line line(text);
  if (line.Word("workspace")) {
    Workspace workspace;
    uint32_t group = 0;
    line.Number("", &group);
    workspace.group = GroupId{group};
    line.Number("@", &workspace.offset);
    line.Number("+", &workspace.bytes);
    line.Require(line.Word("step"));
    line.Number("", &workspace.step);
    memory->workspaces.push_back(workspace);
  } else if (line.Word("phase")) {
    uint32_t first = 0;
    line.Require(line.Word("from") && line.Word("step"));
    line.Number("", &first);
    memory->phases.push_back(first);
  } else if (line.Word("block")) {
    ArenaBlock block;
    line.Number("@", &block.offset);
    line.Number("+", &block.bytes);
    line.Phases(&block.first, &block.last);
    memory->blocks.push_back(block);
  } else if (line.Word("copy")) {
    OutputCopy copy;
    line.Value(&copy.value);
    line.Require(line.Word("to") && line.Word("output"));
    line.Number("", &copy.output);
    memory->copies.push_back(copy);
  } else {
    Placement placement;
    line.Value(&placement.value);
    if (line.Word("input")) {
      placement.place = Placement::kInput;
      line.Number("", &placement.number);
    } else if (line.Word("output")) {
      placement.place = Placement::kOutput;
      line.Number("", &placement.number);
    } else {
      line.Number("@", &placement.offset);
    }
    line.Number("+", &placement.bytes);
    line.Steps(&placement.first, &placement.last);
    if (line.Word("over")) {
      placement.takes_over.emplace();
      line.Value(&*placement.takes_over);
    }
    if (line.Word("inside")) {
      placement.inside.emplace();
      line.Value(&*placement.inside);
    }
    memory->placements.push_back(placement);
  }
  return line.complete();
}

}  // namespace

std::string MemoryPlan::Print() const {
  std::string text =
      absl::StrFormat("memory arena=%d without_reuse=%d\n", arena_bytes, bytes_without_reuse);
  for (size_t phase = 1; phase < phases.size(); ++phase) {
    absl::StrAppendFormat(&text, "phase from step %d\n", phases[phase]);
  }
  for (const ArenaBlock& b : blocks) {
    if (phases.size() == 1) break;  // the arena is the block
    absl::StrAppendFormat(&text, "block @%d +%d phases %d..%d\n", b.offset, b.bytes, b.first,
                          b.last);
  }
  for (const Placement& p : placements) {
    absl::StrAppend(&text, PrintValue(p.value), " ");
    if (p.place == Placement::kArena) absl::StrAppend(&text, "@", p.offset);
    if (p.place == Placement::kInput) absl::StrAppend(&text, "input ", p.number);
    if (p.place == Placement::kOutput) absl::StrAppend(&text, "output ", p.number);
    absl::StrAppendFormat(&text, " +%d steps %d..%d", p.bytes, p.first, p.last);
    if (p.takes_over) absl::StrAppend(&text, " over ", PrintValue(*p.takes_over));
    if (p.inside) absl::StrAppend(&text, " inside ", PrintValue(*p.inside));
    text += "\n";
  }
  for (const Workspace& w : workspaces) {
    absl::StrAppendFormat(&text, "workspace %d @%d +%d step %d\n", Index(w.group), w.offset,
                          w.bytes, w.step);
  }
  for (const OutputCopy& c : copies) {
    absl::StrAppendFormat(&text, "copy %s to output %d\n", PrintValue(c.value), c.output);
  }
  return text;
}

absl::StatusOr<MemoryPlan> ParseMemoryPlan(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  MemoryPlan memory;
  if (lines.empty()) return absl::InvalidArgumentError("memory plan: the text is empty");
  Line head(lines[0]);
  head.Require(head.Word("memory"));
  head.Number("arena=", &memory.arena_bytes);
  head.Number("without_reuse=", &memory.bytes_without_reuse);
  if (!head.complete()) {
    return absl::InvalidArgumentError(
        "memory plan: the first line must be \"memory arena=BYTES without_reuse=BYTES\"");
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    if (!ParseLine(lines[i], &memory)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("memory plan line %d: expected a placement (%%N @OFFSET +BYTES steps "
                          "A..B), phase, block, "
                          "workspace or copy, found \"%s\"",
                          i + 1, lines[i]));
    }
  }
  if (memory.phases.size() == 1 && memory.arena_bytes > 0) {
    memory.blocks = {{.bytes = memory.arena_bytes}};
  }
  return memory;
}

}  // namespace retrograd
