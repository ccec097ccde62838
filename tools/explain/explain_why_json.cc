// The answer of `why` as JSON.
#include "tools/explain/explain_why.h"
#include "tools/explain/group_json.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

Json OpJson(const BackwardGraph& graph, NodeId id) {
  Json op = {{"node", Index(id)},
             {"op", std::string(Name(graph.op(id)))},
             {"type", graph.type(id).Print()}};
  if (const Origin* origin = graph.origin(id)) {
    op["origin"] = origin->op;
    op["instance"] = origin->instance;
    op["module"] = origin->module_path;
    op["source"] = origin->source;
  }
  return op;
}

Json SideJson(const BackwardGraph& graph, const WhySide& side) {
  Json json = {{"feasible", side.feasible}};
  if (!side.feasible) {
    json["limit"] = side.limit;
    json["reason"] = side.reason;
    return json;
  }
  json["cost_ps"] = side.cost_ps;
  json["shared_launch_ps"] = side.shared_launch_ps;
  json["kernels"] = Json::array();
  for (const WhyKernel& kernel : side.kernels) {
    Json group = GroupJson(graph, kernel.group);
    group["cost_ps"] = kernel.cost_ps;
    group["margin_ps"] = kernel.margin_ps;
    json["kernels"].push_back(std::move(group));
  }
  return json;
}

Json FlipsJson(const Flips& flips) {
  Json list = Json::array();
  for (const Flip& flip : flips.flips) {
    list.push_back({{"name", flip.name},
                    {"change", flip.change},
                    {"option", flip.option},
                    {"factor", flip.factor},
                    {"a", Index(flip.a)},
                    {"b", Index(flip.b)}});
  }
  return {{"tried", flips.tried}, {"found", std::move(list)}};
}

}  // namespace

std::string WhyAsJson(const WhyAnswer& answer, absl::string_view graph_name) {
  const Why& why = answer.why;
  const BackwardGraph& graph = answer.lowered;
  Json document = {{"format", "retrograd.why"},        {"version", kWhyVersion},
                   {"graph", std::string(graph_name)}, {"device", answer.opened.spec.name},
                   {"a", OpJson(graph, why.a)},        {"b", OpJson(graph, why.b)},
                   {"together", why.together},         {"decides", why.decides}};
  if (!why.never.empty()) {
    document["never"] = why.never;
  } else {
    document["one_atom"] = why.one_atom;
    document["recomputed"] = why.recomputed;
    document["region"] = {{"number", why.region},
                          {"ops", why.region_ops},
                          {"atoms", why.region_atoms},
                          {"planned_ps", why.planned_ps}};
    document["sides"] = {{"together", SideJson(graph, why.share)},
                         {"apart", SideJson(graph, why.part)}};
    document["terms"] = Json::array();
    for (const WhyTerm& term : why.terms) {
      document["terms"].push_back(
          {{"name", term.name}, {"together_ps", term.together_ps}, {"apart_ps", term.apart_ps}});
    }
  }
  if (const auto& merge = answer.merge; merge.has_value()) {
    document["one_matmul"] = {{"together", merge->together},
                              {"together_ps", merge->together_ps},
                              {"apart_ps", merge->apart_ps},
                              {"limit", merge->limit},
                              {"reason", merge->reason}};
  }
  if (answer.flips.has_value()) document["flips"] = FlipsJson(*answer.flips);
  return document.dump(1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace retrograd
