#include "tools/explain/plan_html.h"

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/emit.h"
#include "codegen/print/kernel_text.h"
#include "fusion/plan/call_key.h"
#include "fusion/plan/peak_memory.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPage[] =
#include "tools/explain/plan_view.inc"
    ;
constexpr absl::string_view kDataMark = "@DATA@";
constexpr absl::string_view kTitleMark = "@TITLE@";

// Together with the ops of a graph of some 10,000 this stays below 10 MB.
constexpr size_t kMostSourceBytes = 5'000'000;
constexpr size_t kMostRefusals = 3000;

// Strings that repeat (module paths, formulas), each once: the data speaks of them by number.
class StringTable {
 public:
  size_t Number(const std::string& text) {
    const auto [it, is_new] = numbers_.try_emplace(text, list_.size());
    if (is_new) list_.push_back(text);
    return it->second;
  }
  Json& list() { return list_; }

 private:
  absl::flat_hash_map<std::string, size_t> numbers_;
  Json list_ = Json::array();
};

// Sources by the kernel's name in the first dialect: equal kernels have equal names.
class SourceTable {
 public:
  // The places of the launches' sources in list(); none once the bound is reached.
  Json Add(const Group& group) {
    const std::vector<Kernel> cuda = EmitGroup(group, Dialect::kCuda).launches;
    Json places = Json::array();
    std::vector<Kernel> hip, host;
    for (size_t i = 0; i < cuda.size(); ++i) {
      const auto [it, is_new] = places_.try_emplace(cuda[i].name, list_.size());
      if (is_new) {
        if (hip.empty()) {
          hip = EmitGroup(group, Dialect::kHip).launches;
          host = EmitGroup(group, Dialect::kHost).launches;
        }
        list_.push_back(Entry(cuda[i], hip[i], host[i]));
      }
      places.push_back(it->second);
    }
    return places;
  }
  Json& list() { return list_; }
  int64_t left_out() const { return left_out_; }

 private:
  Json Entry(const Kernel& cuda, const Kernel& hip, const Kernel& host) {
    Json entry = {{"name", cuda.name},
                  {"blocks", cuda.blocks},
                  {"threads", cuda.threads},
                  {"shared", cuda.shared_bytes}};
    const std::string in_cuda = PrintKernel(cuda), in_hip = PrintKernel(hip),
                      in_host = PrintKernel(host);
    bytes_ += in_cuda.size() + in_hip.size() + in_host.size();
    if (bytes_ > kMostSourceBytes) {
      ++left_out_;
      return entry;
    }
    entry["cuda"] = in_cuda;
    entry["hip"] = in_hip == in_cuda ? Json(nullptr) : Json(in_hip);
    entry["host"] = in_host == in_cuda ? Json(nullptr) : Json(in_host);
    return entry;
  }

  absl::flat_hash_map<std::string, size_t> places_;
  Json list_ = Json::array();
  size_t bytes_ = 0;
  int64_t left_out_ = 0;
};

Json Terms(const std::vector<Term>& terms, StringTable* strings) {
  Json list = Json::array();
  for (const Term& t : terms) {
    list.push_back({strings->Number(t.name), t.ps, t.binds ? 1 : 0, strings->Number(t.formula)});
  }
  return list;
}

// [node, op, origin, instance, module path, source line]
Json Ops(const BackwardGraph& graph, const std::vector<NodeId>& nodes, StringTable* strings) {
  static const Origin kNone;
  Json ops = Json::array();
  for (NodeId id : nodes) {
    const Origin& origin = graph.origin(id) == nullptr ? kNone : *graph.origin(id);
    ops.push_back({Index(id), strings->Number(std::string(Name(graph.op(id)))),
                   strings->Number(origin.op), origin.instance, strings->Number(origin.module_path),
                   strings->Number(origin.source)});
  }
  return ops;
}

// Of a shared launch: [ops, schedule, price alone] for each kernel.
Json Members(const BackwardGraph& graph, const Group& group, StringTable* strings) {
  Json members = Json::array();
  const KernelLaunch* merged = SharedLaunchOf(group);
  if (merged == nullptr) return members;
  for (const KernelLaunch::Member& m : merged->members) {
    members.push_back({strings->Number(CountOps(graph, m.nodes)),
                       strings->Number(m.kernel.schedule.Print()), m.price_ps});
  }
  return members;
}

// Of a library call: [who chooses, device, chosen, default, [[candidate, microseconds]..]] each.
Json ChoicesOf(const Group& group, const Choices& choices, StringTable* strings) {
  Json list = Json::array();
  const Call* call = CallOf(group);
  if (call == nullptr || choices.empty()) return list;
  for (const Choices::value_type* entry : ChoicesFor(choices, CallKey(*call))) {
    const auto& [key, choice] = *entry;
    Json candidates = Json::array();
    for (const TimedCandidate& c : choice.candidates) {
      candidates.push_back({strings->Number(c.name), c.us});
    }
    list.push_back({strings->Number(key.kind), strings->Number(key.device), choice.chosen,
                    choice.usual, std::move(candidates)});
  }
  return list;
}

// By group: bytes alive while it runs, if groups run one after the other as they are launched.
std::vector<int64_t> LiveInLaunchOrder(const BackwardGraph& graph, const FusionPlan& plan,
                                       const StreamSchedule& schedule) {
  FusionPlan launched{.layouts = plan.layouts};
  for (const Step& step : schedule.steps) launched.groups.push_back(plan.groups[Index(step.group)]);
  const std::vector<int64_t> by_step = LiveBytes(graph, launched);
  std::vector<int64_t> live(plan.groups.size(), 0);
  for (size_t i = 0; i < by_step.size(); ++i) live[Index(schedule.steps[i].group)] = by_step[i];
  return live;
}

Json Groups(const PlannedGraph& graph, const StreamSchedule& schedule, StringTable* strings,
            SourceTable* sources) {
  const BackwardGraph& lowered = graph.planned.graph;
  const FusionPlan& plan = graph.planned.plan;
  std::vector<const Step*> step_of(plan.groups.size());
  for (const Step& step : schedule.steps) step_of[Index(step.group)] = &step;
  const std::vector<int64_t> live = LiveInLaunchOrder(lowered, plan, schedule);
  Json groups = Json::array();
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const Group& group = plan.groups[g];
    groups.push_back({{"stream", step_of[g]->stream},
                      {"start", step_of[g]->start_ps},
                      {"ps", step_of[g]->end_ps - step_of[g]->start_ps},
                      {"price", group.price_ps},
                      {"read", group.read_bytes},
                      {"written", group.written_bytes},
                      {"live", live[g]},
                      {"terms", Terms(group.terms, strings)},
                      {"ops", Ops(lowered, group.nodes, strings)},
                      {"members", Members(lowered, group, strings)},
                      {"choices", ChoicesOf(group, graph.choices, strings)},
                      {"sources", sources->Add(group)}});
  }
  for (const KernelKind& kind : KernelKinds(lowered, plan)) {
    for (GroupId id : kind.groups) {
      groups[Index(id)]["what"] = strings->Number(kind.ops);
      groups[Index(id)]["how"] = strings->Number(kind.how);
    }
  }
  return groups;
}

// The groups that hold the nodes.
Json GroupsOf(const FusionPlan& plan, const std::vector<NodeId>& nodes) {
  std::vector<uint32_t> groups;
  for (NodeId id : nodes) {
    const GroupId group = plan.group_of[Index(id)];
    if (group != kNoGroup && (groups.empty() || groups.back() != Index(group))) {
      groups.push_back(Index(group));
    }
  }
  return groups;
}

Json RefusalsJson(const BackwardGraph& graph, const FusionPlan& plan, StringTable* strings) {
  Json refusals = Json::array();
  for (const Decision& d : plan.decisions) {
    if (d.together && d.limit.empty()) continue;
    if (refusals.size() == kMostRefusals) break;
    refusals.push_back(
        {{"a", GroupsOf(plan, d.a)},
         {"b", GroupsOf(plan, d.b)},
         {"sides", {strings->Number(CountOps(graph, d.a)), strings->Number(CountOps(graph, d.b))}},
         {"schedule", d.together},
         {"together", d.together_ps},
         {"apart", d.apart_ps},
         {"limit", d.limit},
         {"reason", d.reason}});
  }
  return refusals;
}

int64_t CountRefusals(const FusionPlan& plan) {
  int64_t count = 0;
  for (const Decision& d : plan.decisions) count += !d.together || !d.limit.empty();
  return count;
}

// Inside <script> the one thing that ends the data is "</script": no "<" is left in it.
std::string ForScript(const Json& json) {
  return absl::StrReplaceAll(
      json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace),
      {{"<", "\\u003c"}});
}

std::string ForHtml(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

}  // namespace

std::string ExplainAsHtml(const PlannedGraph& graph, const StreamSchedule& schedule,
                          const PeakMemory& memory, absl::string_view name) {
  const FusionPlan& plan = graph.planned.plan;
  const PlanSummary& s = plan.summary;
  StringTable strings;
  SourceTable sources;
  Json document = {{"graph", std::string(name)},
                   {"device", graph.spec.name},
                   {"calibrated", graph.spec.calibrated},
                   {"streams", schedule.streams},
                   {"makespan", schedule.makespan_ps},
                   {"summary",
                    {{"ops", s.ops},
                     {"kernels", s.kernels},
                     {"price", s.price_ps},
                     {"cost", s.cost_ps},
                     {"unfused", s.unfused_ps},
                     {"bytes", s.bytes},
                     {"unfused_bytes", s.unfused_bytes},
                     {"bound", s.bound_ps},
                     {"gap", s.gap_ps},
                     {"peak", memory.total()}}}};
  document["groups"] = Groups(graph, schedule, &strings, &sources);
  document["refusals"] = RefusalsJson(graph.planned.graph, plan, &strings);
  document["left_out"] = {
      {"refusals", CountRefusals(plan) - static_cast<int64_t>(document["refusals"].size())},
      {"sources", sources.left_out()}};
  document["strings"] = std::move(strings.list());
  document["sources"] = std::move(sources.list());
  const absl::string_view page = kPage;
  const size_t title = page.find(kTitleMark), data = page.find(kDataMark);
  return absl::StrCat(page.substr(0, title), ForHtml(name),
                      page.substr(title + kTitleMark.size(), data - title - kTitleMark.size()),
                      ForScript(document), page.substr(data + kDataMark.size()));
}

}  // namespace retrograd
