#include "runtime/tuning/choices_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/tuning/choices.pb.h"

namespace retrograd {
namespace {

using google::protobuf::TextFormat;

constexpr int kVersion = 1;

std::string Quoted(absl::string_view text) { return absl::StrCat("\"", absl::CEscape(text), "\""); }

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int, const std::string& message) override {
    if (text.empty()) text = absl::StrCat(line + 1, ": ", message);
  }
  std::string text;
};

// One choice of a file, with the lines of its fields.
class Reader {
 public:
  Reader(const v1::ChoiceProto& proto, TextFormat::ParseInfoTree* lines, int line,
         absl::string_view where)
      : proto_(proto), lines_(lines), line_(line), where_(where) {}

  absl::StatusOr<Choices::value_type> Read() const {
    ChoiceKey key{proto_.kind(), proto_.device(), proto_.library(), proto_.call()};
    for (const auto& [name, text] :
         {std::pair("kind", &key.kind), {"device", &key.device}, {"call", &key.call}}) {
      if (text->empty()) return Wrong(0, absl::StrCat("a choice without ", name));
    }
    Choice choice{.uses = {proto_.use().begin(), proto_.use().end()}, .state = proto_.state()};
    RG_ASSIGN_OR_RETURN(choice.candidates, Candidates());
    RG_ASSIGN_OR_RETURN(choice.usual, Place(choice, proto_.default_(), "default",
                                            v1::ChoiceProto::kDefaultFieldNumber));
    RG_ASSIGN_OR_RETURN(choice.chosen, Place(choice, proto_.chosen(), "chosen",
                                             v1::ChoiceProto::kChosenFieldNumber));
    return Choices::value_type(std::move(key), std::move(choice));
  }

 private:
  absl::StatusOr<std::vector<TimedCandidate>> Candidates() const {
    if (proto_.candidate().empty()) return Wrong(0, "a choice without candidates");
    std::vector<TimedCandidate> candidates;
    for (int i = 0; i < proto_.candidate_size(); ++i) {
      const v1::CandidateProto& c = proto_.candidate(i);
      const auto wrong = [&](absl::string_view what) {
        return Wrong(v1::ChoiceProto::kCandidateFieldNumber, what, i);
      };
      if (c.name().empty()) return wrong("a candidate without a name");
      if (std::any_of(candidates.begin(), candidates.end(),
                      [&](const TimedCandidate& other) { return other.name == c.name(); })) {
        return wrong(absl::StrCat("there are two candidates ", Quoted(c.name())));
      }
      if (!std::isfinite(c.us()) || c.us() < 0) {
        return wrong(absl::StrFormat("%g is no time in microseconds", c.us()));
      }
      candidates.push_back({c.name(), c.us()});
    }
    return candidates;
  }

  // Of the candidate with the name, which must have run.
  absl::StatusOr<size_t> Place(const Choice& choice, const std::string& name,
                               absl::string_view what, int field) const {
    for (size_t i = 0; i < choice.candidates.size(); ++i) {
      if (choice.candidates[i].name != name) continue;
      if (choice.candidates[i].us > 0) return i;
      return Wrong(field, absl::StrCat("the ", what, " candidate ", Quoted(name), " has no time"));
    }
    return Wrong(field, absl::StrCat("the ", what, " candidate ", Quoted(name),
                                     " is none of the candidates"));
  }

  // At the field's line, or at the choice's where it has none.
  absl::Status Wrong(int field, absl::string_view what, int index = -1) const {
    int line = -1;
    const auto* described = v1::ChoiceProto::descriptor()->FindFieldByNumber(field);
    if (lines_ != nullptr && described != nullptr) {
      line = lines_->GetLocation(described, index).line;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(where_, ":", (line < 0 ? line_ : line) + 1, ": ", what));
  }

  const v1::ChoiceProto& proto_;
  TextFormat::ParseInfoTree* const lines_;
  const int line_;
  const absl::string_view where_;
};

}  // namespace

std::string PrintChoices(const Choices& choices, bool state) {
  std::string text = absl::StrCat(
      "# Choices among implementations of library calls, by `retrograd tune`; see docs/tuning.md.\n"
      "version: ",
      kVersion, "\n");
  for (const auto& [key, choice] : choices) {
    if (!choice.timed()) continue;
    absl::StrAppend(&text, "\nchoice {\n  kind: ", Quoted(key.kind),
                    "\n  device: ", Quoted(key.device), "\n  library: ", Quoted(key.library),
                    "\n  call: ", Quoted(key.call), "\n");
    for (const std::string& use : choice.uses) {
      absl::StrAppend(&text, "  use: ", Quoted(use), "\n");
    }
    for (const TimedCandidate& c : choice.candidates) {
      absl::StrAppendFormat(&text, "  candidate { name: %s us: %.6g }\n", Quoted(c.name), c.us);
    }
    absl::StrAppendFormat(&text, "  default: %s\n  chosen: %s\n  margin: %.3f\n",
                          Quoted(choice.candidates[choice.usual].name), Quoted(choice.name()),
                          choice.margin());
    if (state && !choice.state.empty()) {
      absl::StrAppend(&text, "  state: ", Quoted(choice.state), "\n");
    }
    absl::StrAppend(&text, "}\n");
  }
  return text;
}

absl::StatusOr<Choices> ParseChoices(absl::string_view text, absl::string_view where) {
  v1::ChoicesProto proto;
  TextFormat::Parser parser;
  TextFormat::ParseInfoTree lines;
  FirstError error;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&lines);
  if (!parser.ParseFromString(std::string(text), &proto)) {
    return absl::InvalidArgumentError(absl::StrCat(where, ":", error.text));
  }
  if (proto.version() != kVersion) {
    const auto* field =
        v1::ChoicesProto::descriptor()->FindFieldByNumber(v1::ChoicesProto::kVersionFieldNumber);
    const int line = std::max(lines.GetLocation(field, -1).line, 0);
    return absl::InvalidArgumentError(
        absl::StrFormat("%s:%d: a file of choices has version: %d, not %d", where, line + 1,
                        kVersion, proto.version()));
  }
  Choices choices;
  const auto* field =
      v1::ChoicesProto::descriptor()->FindFieldByNumber(v1::ChoicesProto::kChoiceFieldNumber);
  for (int i = 0; i < proto.choice_size(); ++i) {
    const int line = lines.GetLocation(field, i).line;
    const Reader reader(proto.choice(i), lines.GetTreeForNested(field, i), line, where);
    RG_ASSIGN_OR_RETURN(Choices::value_type read, reader.Read());
    if (!choices.insert(std::move(read)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ":", line + 1, ": the call has a choice already"));
    }
  }
  return choices;
}

}  // namespace retrograd
