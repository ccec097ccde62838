#include "tools/explain/plan_export.h"

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/plan/group_dag.h"
#include "tools/explain/explanation.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

// Names come from files: printing ASCII alone, quotes and backslashes escaped.
std::string DotString(absl::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c >= ' ' && c <= '~' ? c : '?');
  }
  return quoted + "\"";
}

double Microseconds(int64_t ps) { return static_cast<double>(ps) / 1e6; }

// Group -> the kind that it is one of.
std::vector<const KernelKind*> KindOfGroups(const std::vector<KernelKind>& kinds, size_t groups) {
  std::vector<const KernelKind*> kind_of(groups);
  for (const KernelKind& kind : kinds) {
    for (GroupId id : kind.groups) kind_of[Index(id)] = &kind;
  }
  return kind_of;
}

Json Metadata(const char* name, int stream, const std::string& value) {
  return {{"ph", "M"}, {"pid", 1}, {"tid", stream}, {"name", name}, {"args", {{"name", value}}}};
}

Json SliceArguments(const BackwardGraph& graph, const Group& group, const KernelKind& kind) {
  Json arguments = {{"how", kind.how},
                    {"bound by", kind.binds},
                    {"read bytes", group.read_bytes},
                    {"written bytes", group.written_bytes}};
  for (const Term& term : group.terms) {
    arguments["term " + term.name] =
        absl::StrCat(PrintTime(term.ps), term.binds ? ", binds: " : ": ", term.formula);
  }
  Json ops = Json::array();
  for (NodeId id : group.nodes) {
    const Origin* origin = graph.origin(id);
    ops.push_back(absl::StrCat(PrintValue({id, 0}), " ", Name(graph.op(id)),
                               origin == nullptr
                                   ? ""
                                   : absl::StrCat("  ", origin->op, "#", origin->instance, "  ",
                                                  origin->module_path, "  ", origin->source)));
  }
  arguments["ops"] = std::move(ops);
  return arguments;
}

// Graphviz's node of a value's producer.
std::string DotNode(NodeId id) { return absl::StrCat("n", Index(id)); }

void AppendOp(const BackwardGraph& graph, NodeId id, absl::string_view style, std::string* text) {
  const Node& node = graph.node(id);
  const std::string name = node.input == nullptr ? std::string(Name(node.op)) : node.input->name;
  const Origin* origin = graph.origin(id);
  absl::StrAppend(text, DotNode(id),
                  " [label=", DotString(absl::StrCat(PrintValue({id, 0}), " ", name)), ", tooltip=",
                  DotString(origin == nullptr ? name
                                              : absl::StrCat(origin->op, " ", origin->module_path,
                                                             " ", origin->source)),
                  style, "];\n");
}

}  // namespace

std::string ExportPerfetto(const PlannedGraph& graph, const StreamSchedule& schedule) {
  const BackwardGraph& lowered = graph.planned.graph;
  const FusionPlan& plan = graph.planned.plan;
  const std::vector<KernelKind> kinds = KernelKinds(lowered, plan);
  const std::vector<const KernelKind*> kind_of = KindOfGroups(kinds, plan.groups.size());
  Json events = Json::array();
  events.push_back(Metadata("process_name", 0,
                            absl::StrCat(lowered.name(), " on ", graph.spec.name, ", predicted")));
  for (int stream = 0; stream < schedule.streams; ++stream) {
    events.push_back(Metadata("thread_name", stream, absl::StrCat("stream ", stream)));
  }
  for (const Step& step : schedule.steps) {
    const Group& group = plan.groups[Index(step.group)];
    Json arguments = SliceArguments(lowered, group, *kind_of[Index(step.group)]);
    Json waits = Json::array();
    for (uint32_t wait : step.waits) {
      waits.push_back(absl::StrCat("group ", Index(schedule.steps[wait].group)));
    }
    if (!waits.empty()) arguments["waits for"] = std::move(waits);
    events.push_back(
        {{"ph", "X"},
         {"pid", 1},
         {"tid", step.stream},
         {"ts", Microseconds(step.start_ps)},
         {"dur", Microseconds(step.end_ps - step.start_ps)},
         {"name", absl::StrCat(Index(step.group), ": ", kind_of[Index(step.group)]->ops)},
         {"cat", !KernelsOf(group).empty() ? "kernel" : "library"},
         {"args", std::move(arguments)}});
  }
  const Json document = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  return document.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

std::string ExportDot(const PlannedGraph& graph) {
  const BackwardGraph& lowered = graph.planned.graph;
  const FusionPlan& plan = graph.planned.plan;
  const std::vector<KernelKind> kinds = KernelKinds(lowered, plan);
  const std::vector<const KernelKind*> kind_of = KindOfGroups(kinds, plan.groups.size());
  std::string text = absl::StrCat(
      "digraph ", DotString(lowered.name()),
      " {\nnode [shape=box, style=filled, fillcolor=white, fontname=Helvetica, fontsize=10];\n"
      "fontname=Helvetica;\nfontsize=11;\n");
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const Group& group = plan.groups[g];
    const bool kernel = !KernelsOf(group).empty();
    absl::StrAppend(
        &text, "subgraph cluster_", g, " {\nlabel=",
        DotString(absl::StrCat(g, ": ", PrintTime(group.price_ps), "  ", kind_of[g]->how)),
        ";\nstyle=filled;\nfillcolor=\"", kernel ? "#e8f0fe" : "#fef3e0", "\";\n");
    for (NodeId id : group.nodes) AppendOp(lowered, id, "", &text);
    text += "}\n";
  }
  for (uint32_t n = 0; n < lowered.num_nodes(); ++n) {
    const NodeId id{n};
    if (plan.group_of[n] == kNoGroup) {
      AppendOp(lowered, id, ", shape=ellipse, fillcolor=\"#f4f4f4\", color=gray", &text);
    }
    for (ValueId operand : lowered.operands(id)) {
      absl::StrAppend(&text, DotNode(operand.node), " -> ", DotNode(id), ";\n");
    }
  }
  return text + "}\n";
}

}  // namespace retrograd
