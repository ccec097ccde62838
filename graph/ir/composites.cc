#include "graph/ir/composites.h"

#include <cctype>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Recursive descent over a row's text. The rows are ours and short: depth is bounded by them.
class DefinitionParser {
 public:
  explicit DefinitionParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<CompositeDefinition> Parse() {
    const size_t arrow = text_.find("->");
    if (arrow == absl::string_view::npos) return Error("the operands' names and -> are missing");
    for (absl::string_view name :
         absl::StrSplit(text_.substr(0, arrow), absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
      names_[name] = {CompositeArg::kOperand, definition_.num_operands++, 0};
    }
    at_ = arrow + 2;
    while (true) {
      RG_RETURN_IF_ERROR(ParseAssignment());
      if (!Take(';')) break;
    }
    if (Peek() != '\0') return Error("text is left over");
    for (int step : assigned_) {
      if (!read_[step]) definition_.results.push_back(step);
    }
    return std::move(definition_);
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("composite definition, character ", at_, ": ", what));
  }

  char Peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }

  absl::string_view Word() {
    Peek();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' ||
            text_[at_] == '.' || (text_[at_] == '-' && at_ == begin))) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  absl::Status ParseAssignment() {
    const absl::string_view name = Word();
    if (name.empty() || !Take('=')) return Error("an assignment has the form name = call(...)");
    if (names_.contains(name)) return Error(absl::StrCat(name, " is assigned twice"));
    RG_ASSIGN_OR_RETURN(const CompositeArg value, ParseArg());
    if (value.kind != CompositeArg::kStep) return Error("an assignment needs a call");
    names_[name] = value;
    assigned_.push_back(value.index);
    return absl::OkStatus();
  }

  absl::StatusOr<CompositeArg> ParseArg() {
    const absl::string_view word = Word();
    if (word.empty()) return Error("an argument is missing");
    if (Peek() == '(') return ParseCall(word);
    if (auto it = names_.find(word); it != names_.end()) {
      if (it->second.kind == CompositeArg::kStep) read_[it->second.index] = true;
      return it->second;
    }
    CompositeArg number;
    if (!absl::SimpleAtod(word, &number.number)) {
      return Error(absl::StrCat(word, " is neither a name nor a number"));
    }
    return number;
  }

  absl::StatusOr<CompositeArg> ParseCall(absl::string_view callee) {
    CompositeStep step;
    if (callee == "sum_last") {
      step.kind = CompositeStep::kSumLast;
    } else if (callee == "mean_last") {
      step.kind = CompositeStep::kMeanLast;
    } else if (callee == "sum_lead") {
      step.kind = CompositeStep::kSumLead;
    } else if (std::optional<Op> op = OpByName(callee);
               op.has_value() && PatternOf(*op) == Pattern::kPointwise) {
      step.op = *op;
    } else {
      return Error(absl::StrCat(callee, " is no pointwise op"));
    }
    Take('(');
    do {
      RG_ASSIGN_OR_RETURN(CompositeArg arg, ParseArg());
      step.args.push_back(arg);
    } while (Take(','));
    if (!Take(')')) return Error("a call is not closed");
    definition_.steps.push_back(std::move(step));
    read_.push_back(false);
    return CompositeArg{CompositeArg::kStep, static_cast<int>(definition_.steps.size()) - 1, 0};
  }

  absl::string_view text_;
  size_t at_ = 0;
  CompositeDefinition definition_;
  absl::flat_hash_map<absl::string_view, CompositeArg> names_;
  std::vector<bool> read_;     // by step, by name
  std::vector<int> assigned_;  // steps that have a name
};

std::vector<int64_t> AxisRange(int64_t begin, int64_t end) {
  std::vector<int64_t> axes(std::max<int64_t>(end - begin, 0));
  std::iota(axes.begin(), axes.end(), begin);
  return axes;
}

}  // namespace

absl::StatusOr<CompositeDefinition> ParseDefinition(absl::string_view text) {
  return DefinitionParser(text).Parse();
}

const CompositeDefinition& DefinitionOf(Op op) {
  static const auto& definitions = *[] {
    auto* all = new std::vector<CompositeDefinition>(kNumOps);
    for (const OpInfo& info : AllOps()) {
      if (info.pattern != Pattern::kComposite) continue;
      absl::StatusOr<CompositeDefinition> parsed = ParseDefinition(info.expand);
      RG_CHECK(parsed.ok() && parsed->num_operands == info.min_operands);
      (*all)[static_cast<int>(info.op)] = *std::move(parsed);
    }
    return all;
  }();
  return definitions[static_cast<int>(op)];
}

absl::StatusOr<std::vector<ValueId>> WalkDefinition(
    const CompositeDefinition& definition, absl::Span<const ValueId> operands,
    absl::FunctionRef<absl::StatusOr<ValueId>(Op, absl::Span<const ValueId>, Attrs)> add,
    absl::FunctionRef<const TensorType&(ValueId)> type) {
  const std::string dtype(Name(type(operands[0]).dtype));
  const auto constant = [&](double value) {
    return add(Op::full, {},
               Attrs{{"dtype", dtype}, {"shape", std::vector<int64_t>{}}, {"value", value}});
  };
  std::vector<ValueId> values;
  for (const CompositeStep& step : definition.steps) {
    std::vector<ValueId> args;
    for (const CompositeArg& arg : step.args) {
      if (arg.kind == CompositeArg::kNumber) {
        RG_ASSIGN_OR_RETURN(ValueId number, constant(arg.number));
        args.push_back(number);
      } else {
        args.push_back(arg.kind == CompositeArg::kOperand ? operands[arg.index]
                                                          : values[arg.index]);
      }
    }
    if (step.kind == CompositeStep::kOp) {
      RG_ASSIGN_OR_RETURN(ValueId value, add(step.op, args, {}));
      values.push_back(value);
      continue;
    }
    const Shape& shape = type(args[0]).shape;
    const auto rank = static_cast<int64_t>(shape.size());
    if (rank == 0) {
      return Malformed(Malformation::kOperandShape,
                       "the op reduces over axes, so its operands need at least one dim");
    }
    if (step.kind == CompositeStep::kSumLead) {
      if (rank == 1) {  // nothing leads
        values.push_back(args[0]);
        continue;
      }
      RG_ASSIGN_OR_RETURN(ValueId value,
                          add(Op::sum, args, Attrs{{"axes", AxisRange(0, rank - 1)}}));
      values.push_back(value);
      continue;
    }
    const int64_t count = shape.back();
    RG_ASSIGN_OR_RETURN(
        ValueId value,
        add(Op::sum, args, Attrs{{"axes", AxisRange(rank - 1, rank)}, {"keep", int64_t{1}}}));
    if (step.kind == CompositeStep::kMeanLast) {
      RG_ASSIGN_OR_RETURN(ValueId scale,
                          constant(count > 0 ? 1.0 / static_cast<double>(count) : 0));
      RG_ASSIGN_OR_RETURN(value, add(Op::mul, {value, scale}, {}));
    }
    values.push_back(value);
  }
  std::vector<ValueId> results;
  for (int step : definition.results) results.push_back(values[step]);
  return results;
}

}  // namespace retrograd
