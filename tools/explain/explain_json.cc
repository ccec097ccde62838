// The explanation as JSON: complete, versioned, times in picoseconds and sizes in bytes.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "fusion/ops/call_op.h"
#include "fusion/plan/call_key.h"
#include "fusion/plan/group_dag.h"
#include "tools/explain/explanation.h"
#include "tools/explain/group_json.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

Json Nodes(absl::Span<const NodeId> nodes) {
  Json list = Json::array();
  for (NodeId id : nodes) list.push_back(Index(id));
  return list;
}

Json Values(absl::Span<const ValueId> values) {
  Json list = Json::array();
  for (ValueId v : values) list.push_back(PrintValue(v));
  return list;
}

Json Terms(const std::vector<Term>& terms) {
  Json list = Json::array();
  for (const Term& t : terms) {
    list.push_back({{"name", t.name}, {"ps", t.ps}, {"binds", t.binds}, {"formula", t.formula}});
  }
  return list;
}

Json ScheduleJson(const Schedule& s) {
  return {{"template", std::string(Name(s.kind))},
          {"threads", s.threads},
          {"vector_width", s.vector_width},
          {"threads_per_row", s.threads_per_row},
          {"rows_per_block", s.rows_per_block},
          {"rows_per_thread", s.rows_per_thread},
          {"turns", s.turns},
          {"persistent", s.persistent},
          {"staged", s.staged},
          {"cluster", s.cluster},
          {"split", s.split},
          {"blocks", s.blocks}};
}

Json Tensors(const std::vector<CallTensor>& tensors) {
  Json list = Json::array();
  for (const CallTensor& t : tensors) {
    list.push_back({{"value", PrintValue(t.value)},
                    {"dtype", std::string(Name(t.dtype))},
                    {"shape", t.shape},
                    {"strides", t.strides}});
  }
  return list;
}

Json CallJson(const Call& call) {
  const CallOp& row = CallOpOf(call.op);
  Json body = {{"kind", call.epilogue ? absl::StrCat("fused_", row.name) : std::string(row.name)},
               {"describe", row.describe(call)},
               {"operands", Tensors(call.operands)},
               {"results", Tensors(call.results)},
               {"accumulate", call.previous.has_value()}};
  for (const auto& [name, size] : row.sizes(call)) body[name] = size;
  if (call.epilogue) {
    body["implementation"] = call.epilogue->implementation;
    body["tile"] = call.epilogue->tile.Print();
    body["epilogue_extents"] = call.epilogue->kernel.ir.extents;
    body["product_ps"] = call.epilogue->call_ps;
    body["epilogue_ps"] = call.epilogue->kernel_ps;
  }
  return body;
}

// The implementations that were timed for a call.
Json ChoicesJson(const Call& call, const Choices& choices) {
  Json list = Json::array();
  for (const Choices::value_type* entry : ChoicesFor(choices, CallKey(call))) {
    const auto& [key, choice] = *entry;
    Json candidates = Json::array();
    for (const TimedCandidate& c : choice.candidates) {
      candidates.push_back({{"name", c.name}, {"us", c.us}});
    }
    list.push_back({{"kind", key.kind},
                    {"device", key.device},
                    {"library", key.library},
                    {"candidates", std::move(candidates)},
                    {"default", choice.candidates[choice.usual].name},
                    {"chosen", choice.name()},
                    {"margin", choice.margin()}});
  }
  return list;
}

Json Body(const Group& group, const Choices& choices) {
  if (const KernelBody* kernel = KernelOf(group)) {
    return {{"kind", "kernel"},
            {"schedule", ScheduleJson(kernel->schedule)},
            {"extents", kernel->ir.extents},
            {"registers", kernel->registers},
            {"spill_bytes", kernel->spill_bytes}};
  }
  if (const KernelLaunch* launch = SharedLaunchOf(group)) {
    Json members = Json::array();
    for (const KernelLaunch::Member& member : launch->members) {
      members.push_back({{"nodes", Nodes(member.nodes)},
                         {"recomputed", Nodes(member.recomputed)},
                         {"schedule", ScheduleJson(member.kernel.schedule)},
                         {"extents", member.kernel.ir.extents},
                         {"registers", member.kernel.registers},
                         {"price_ps", member.price_ps},
                         {"terms", Terms(member.terms)}});
    }
    return {{"kind", "shared_launch"}, {"members", std::move(members)}};
  }
  if (const CallLaunch* shared = SharedCallsOf(group)) {
    Json members = Json::array();
    for (const CallLaunch::Member& member : shared->members) {
      Json call = CallJson(member.call);
      call["nodes"] = Nodes(member.nodes);
      call["price_ps"] = member.price_ps;
      call["terms"] = Terms(member.terms);
      members.push_back(std::move(call));
    }
    return {{"kind", "shared_calls"}, {"members", std::move(members)}};
  }
  if (const Alias* alias = AliasOf(group)) {
    Json offsets = Json::array();
    for (const Alias::Part& part : alias->parts) offsets.push_back(part.offset);
    return {{"kind", "alias"}, {"offsets", std::move(offsets)}};
  }
  Json body = CallJson(*CallOf(group));
  Json timed = ChoicesJson(*CallOf(group), choices);
  if (!timed.empty()) body["choices"] = std::move(timed);
  return body;
}

}  // namespace

Json GroupJson(const BackwardGraph& graph, const Group& group, const Choices& choices) {
  Json ops = Json::array();
  for (NodeId id : group.nodes) {
    const Origin* origin = graph.origin(id);
    Json op = {{"node", Index(id)}, {"op", std::string(Name(graph.op(id)))}};
    if (origin != nullptr) {
      op["origin"] = origin->op;
      op["instance"] = origin->instance;
      op["module"] = origin->module_path;
      op["source"] = origin->source;
    }
    ops.push_back(std::move(op));
  }
  return {{"ops", std::move(ops)},          {"recomputed", Nodes(group.recomputed)},
          {"inputs", Values(group.inputs)}, {"outputs", Values(group.outputs)},
          {"body", Body(group, choices)},   {"terms", Terms(group.terms)},
          {"price_ps", group.price_ps},     {"workspace_bytes", group.workspace_bytes},
          {"read_bytes", group.read_bytes}, {"written_bytes", group.written_bytes}};
}

namespace {

Json DecisionJson(const Decision& decision) {
  Json alternatives = Json::array();
  for (const Decision::Alternative& a : decision.alternatives) {
    alternatives.push_back({{"nodes", Nodes(a.nodes)},
                            {"schedule", ScheduleJson(a.schedule)},
                            {"registers", a.registers},
                            {"spill_bytes", a.spill_bytes},
                            {"price_ps", a.price_ps},
                            {"terms", Terms(a.terms)}});
  }
  return {{"a", Nodes(decision.a)},        {"b", Nodes(decision.b)},
          {"together", decision.together}, {"together_ps", decision.together_ps},
          {"apart_ps", decision.apart_ps}, {"limit", decision.limit},
          {"reason", decision.reason},     {"alternatives", std::move(alternatives)}};
}

}  // namespace

std::string ExplainAsJson(const PlannedGraph& graph, const PeakMemory& memory,
                          absl::string_view name) {
  const FusionPlan& plan = graph.planned.plan;
  const PlanSummary& s = plan.summary;
  Json document = {{"format", "retrograd.explanation"},
                   {"version", kExplanationVersion},
                   {"graph", std::string(name)},
                   {"device", graph.spec.name},
                   {"calibrated", graph.spec.calibrated}};
  if (!graph.sizes.empty()) document["sizes"] = graph.sizes;
  document["summary"] = {{"ops", s.ops},
                         {"kernels", s.kernels},
                         {"recomputed_ops", s.recomputed_ops},
                         {"price_ps", s.price_ps},
                         {"cost_ps", s.cost_ps},
                         {"unfused_ps", s.unfused_ps},
                         {"bytes", s.bytes},
                         {"unfused_bytes", s.unfused_bytes},
                         {"bound_ps", s.bound_ps},
                         {"gap_ps", s.gap_ps},
                         {"launches_saved", s.launches_saved},
                         {"shared_launch_ps", s.shared_launch_ps},
                         {"regions", s.regions},
                         {"distinct_regions", s.distinct_regions},
                         {"largest_region_atoms", s.largest_region_atoms}};
  document["memory"] = {{"peak_bytes", memory.total()},
                        {"live_bytes", s.peak_bytes},
                        {"inputs_bytes", memory.inputs_bytes},
                        {"outputs_bytes", memory.outputs_bytes},
                        {"arena_bytes", memory.arena_bytes},
                        {"arena_bytes_without_reuse", memory.without_reuse_bytes}};
  document["groups"] = Json::array();
  for (const Group& group : plan.groups) {
    document["groups"].push_back(GroupJson(graph.planned.graph, group, graph.choices));
  }
  document["decisions"] = Json::array();
  for (const Decision& decision : plan.decisions) {
    document["decisions"].push_back(DecisionJson(decision));
  }
  return document.dump(1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace retrograd
