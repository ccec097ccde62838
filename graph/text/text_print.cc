#include <cctype>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/text/text.h"

namespace retrograd {
namespace {

// A string that needs no quotes: a lower-case word that no number parser takes.
bool IsPlainWord(absl::string_view text) {
  if (text.empty() || text == "inf" || text == "nan" || text == "infinity") return false;
  if (!std::islower(static_cast<unsigned char>(text[0]))) return false;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (!std::islower(byte) && !std::isdigit(byte) && c != '_') return false;
  }
  return true;
}

std::string PrintInts(absl::Span<const int64_t> list) {
  return absl::StrCat("[", absl::StrJoin(list, ","), "]");
}

std::string PrintValue(const AttrValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return absl::StrCat(*integer);
  if (const auto* number = std::get_if<double>(&value)) return PrintDouble(*number);
  if (const auto* text = std::get_if<std::string>(&value)) {
    return IsPlainWord(*text) ? *text : Quote(*text);
  }
  return PrintInts(std::get<std::vector<int64_t>>(value));
}

absl::string_view Name(InputKind kind) {
  switch (kind) {
    case InputKind::kSaved: return "saved";
    case InputKind::kParameter: return "parameter";
    case InputKind::kTangent: return "tangent";
    case InputKind::kConstant: return "constant";
  }
  return "saved";
}

void AppendInput(std::string& out, const InputInfo& info) {
  absl::StrAppend(&out, " name=", Quote(info.name), " kind=", Name(info.kind));
  if (!info.strides.empty()) absl::StrAppend(&out, " strides=", PrintInts(info.strides));
  if (info.alignment != 0) absl::StrAppend(&out, " alignment=", info.alignment);
  if (info.donated) absl::StrAppend(&out, " donated=1");
}

std::string PrintValueId(const BackwardGraph& graph, ValueId v) {
  if (graph.node(v.node).results.size() == 1) return absl::StrCat("%", Index(v.node));
  return absl::StrCat("%", Index(v.node), ".", v.result);
}

std::string PrintOrigin(const Origin& origin, size_t index) {
  std::string out = absl::StrCat("origin @", index, " op=", Quote(origin.op));
  if (origin.instance != 0) absl::StrAppend(&out, " instance=", origin.instance);
  if (!origin.module_path.empty()) absl::StrAppend(&out, " module=", Quote(origin.module_path));
  if (!origin.source.empty()) absl::StrAppend(&out, " source=", Quote(origin.source));
  if (origin.recomputed) absl::StrAppend(&out, " recomputed=1");
  return out;
}

std::string PrintNumerics(const Numerics& numerics) {
  std::string out = "numerics";
  if (numerics.allow_tf32) absl::StrAppend(&out, " tf32=1");
  if (numerics.allow_reduced_precision_reduction) absl::StrAppend(&out, " reduced_precision=1");
  if (!numerics.deterministic) absl::StrAppend(&out, " deterministic=0");
  if (!numerics.framework.empty()) {
    absl::StrAppend(&out, " framework=", Quote(numerics.framework));
  }
  return out;
}

std::string PrintOutput(const BackwardGraph& graph, const GraphOutput& output) {
  std::string out = "output ";
  absl::StrAppend(&out, output.value.has_value() ? PrintValueId(graph, *output.value) : "none");
  if (!output.name.empty()) absl::StrAppend(&out, " name=", Quote(output.name));
  if (!output.strides.empty()) absl::StrAppend(&out, " strides=", PrintInts(output.strides));
  return out;
}

}  // namespace

std::string Quote(absl::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

std::string PrintDouble(double value) {
  std::string text;
  for (int digits = 15; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    double back;
    if (absl::SimpleAtod(text, &back) && back == value) break;
  }
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string PrintNode(const BackwardGraph& graph, NodeId id) {
  const Node& node = graph.node(id);
  std::string out = absl::StrCat("%", Index(id));
  if (node.results.size() > 1) absl::StrAppend(&out, ":", node.results.size());
  absl::StrAppend(&out, " = ", Name(node.op));
  for (ValueId v : graph.operands(id)) absl::StrAppend(&out, " ", PrintValueId(graph, v));
  for (const auto& [name, value] : node.attrs.all()) {
    absl::StrAppend(&out, " ", name, "=", PrintValue(value));
  }
  if (node.input != nullptr) AppendInput(out, *node.input);
  out += ' ';
  for (const TensorType& type : node.results) absl::StrAppend(&out, " ", type.Print());
  if (const Origin* origin = graph.origin(id)) {
    absl::StrAppend(&out, "  ; @", node.origin, " ", origin->op, "#", origin->instance);
  }
  return out;
}

std::string Print(const BackwardGraph& graph) {
  std::string out;
  if (!graph.name().empty()) absl::StrAppend(&out, "graph ", Quote(graph.name()), "\n");
  if (graph.numerics() != Numerics()) absl::StrAppend(&out, PrintNumerics(graph.numerics()), "\n");
  for (size_t i = 0; i < graph.origins().size(); ++i) {
    absl::StrAppend(&out, PrintOrigin(graph.origins()[i], i), "\n");
  }
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    absl::StrAppend(&out, PrintNode(graph, NodeId{i}), "\n");
  }
  for (const GraphOutput& output : graph.outputs()) {
    absl::StrAppend(&out, PrintOutput(graph, output), "\n");
  }
  return out;
}

}  // namespace retrograd
