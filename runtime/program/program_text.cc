#include "runtime/program/program_text.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"
#include "graph/text/text.h"
#include "runtime/program/commands.h"

namespace retrograd {
namespace {

std::string Text(absl::Span<const int64_t> numbers) { return absl::StrJoin(numbers, ","); }

std::string Text(const Attrs& attrs) {
  std::string out;
  for (const auto& [name, value] : attrs.all()) {
    absl::StrAppend(&out, " ", name, "=");
    if (const auto* number = std::get_if<int64_t>(&value)) absl::StrAppend(&out, *number);
    if (const auto* number = std::get_if<double>(&value)) out += PrintDouble(*number);
    if (const auto* text = std::get_if<std::string>(&value)) out += Quote(*text);
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value)) out += Text(*numbers);
  }
  return out;
}

std::string Text(const CallTensor& tensor, uint32_t slot) {
  return absl::StrCat(" s", slot, "+", tensor.offset, " ", Name(tensor.dtype), "[",
                      Text(tensor.shape), "] by ", Text(tensor.strides));
}

std::string Text(const Launch& launch) {
  std::string out = absl::StrCat("launch ", launch.kernel, " ", launch.blocks, "x", launch.threads,
                                 " staged ", launch.staged_bytes);
  for (const LaunchArg& arg : launch.args) absl::StrAppend(&out, " s", arg.slot);
  for (const OperandMap& map : launch.maps) {
    absl::StrAppend(&out, " map s", map.slot, "+", map.offset, " ", map.inner, "x", map.outer,
                    " by ", map.pitch, ",", map.heads, ",", map.head_pitch, ",", map.batch, ",",
                    map.batch_pitch);
  }
  return out;
}

bool IsConvolutionGradient(Op op) {
  return op == Op::convolution_input_gradient || op == Op::convolution_weight_gradient;
}

std::string Text(const CallCommand& command) {
  const Call& call = *command.call;
  std::string out =
      absl::StrCat("call ", Name(call.op), Text(call.attributes), call.previous ? " adds" : "",
                   command.facts.allow_tf32 ? " tf32" : "",
                   IsConvolutionGradient(call.op) && !command.facts.image_boxes ? " no boxes" : "");
  for (size_t i = 0; i < command.operands.size() && i < call.operands.size(); ++i) {
    out += Text(call.operands[i], command.operands[i]);
  }
  out += " ->";
  for (size_t i = 0; i < command.results.size() && i < call.results.size(); ++i) {
    out += Text(call.results[i], command.results[i]);
  }
  return out;
}

std::string Text(const CopyCommand& copy) {
  return absl::StrCat("copy s", copy.from, "+", copy.offset_bytes, " ", Name(copy.dtype), "[",
                      Text(copy.shape), "] by ", Text(copy.from_strides), " to output ",
                      copy.output, " by ", Text(copy.to_strides));
}

std::string Text(const CommandList& list, const Command& command) {
  switch (command.kind) {
    case Command::kWait: return absl::StrCat("wait ", command.number);
    case Command::kRecord: return absl::StrCat("record ", command.number);
    case Command::kLaunch:
      return absl::StrCat(command.early ? "early " : "", Text(list.launches[command.number]));
    case Command::kCall:
      return absl::StrCat(command.early ? "early " : "", Text(list.calls[command.number]));
    case Command::kCopy: return Text(list.copies[command.number]);
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> ProgramText(const CompiledPlan& compiled) {
  RG_ASSIGN_OR_RETURN(const CommandList list, BuildCommands(compiled, /*order_seed=*/0));
  std::string out;
  for (const Command& command : list.commands) {
    absl::StrAppend(&out, command.stream, ": ", Text(list, command), "\n");
  }
  for (const Placement& p : compiled.memory.placements) {
    absl::StrAppend(&out, "slot place ", p.place, " ",
                    p.place == Placement::kArena ? p.offset : p.number, " bytes ", p.bytes, "\n");
  }
  for (const Workspace& w : compiled.memory.workspaces) {
    absl::StrAppend(&out, "slot workspace ", w.offset, " bytes ", w.bytes, "\n");
  }
  for (const WorkspacePart& part : list.parts) {
    absl::StrAppend(&out, "slot part of workspace ", part.workspace, " at ", part.offset, " bytes ",
                    part.bytes, "\n");
  }
  return out;
}

}  // namespace retrograd
