#include "tools/explain/explanation.h"

#include <algorithm>
#include <cstdlib>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/ops/call_op.h"
#include "fusion/plan/group_dag.h"
#include "graph/base/status.h"
#include "graph/reference/reference.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/schedule/schedule_options.h"

namespace retrograd {
namespace {

// Names by count, in order of first appearance, at most `most` of them.
std::string CountNames(const std::vector<std::string>& names, size_t most) {
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& name : names) {
    const auto it = std::find_if(counts.begin(), counts.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    if (it == counts.end()) {
      counts.emplace_back(name, 1);
    } else {
      ++it->second;
    }
  }
  std::string text;
  for (size_t i = 0; i < counts.size() && i < most; ++i) {
    if (i > 0) text += ", ";
    text += counts[i].first;
    if (counts[i].second > 1) absl::StrAppend(&text, " ", counts[i].second);
  }
  if (counts.size() > most) absl::StrAppend(&text, ", ...");
  return text;
}

std::string DescribeShared(const KernelLaunch& merged) {
  int64_t blocks = 0, registers = 0;
  for (const KernelLaunch::Member& member : merged.members) {
    blocks += member.kernel.schedule.blocks;
    registers = std::max<int64_t>(registers, member.kernel.registers);
  }
  const Schedule& first = merged.members[0].kernel.schedule;
  return absl::StrFormat("%d kernels in one launch, %s threads=%d blocks=%d, %d registers",
                         merged.members.size(), Name(first.kind), first.threads, blocks, registers);
}

std::string BindingTerm(const Group& group) {
  const Term* binding = nullptr;
  for (const Term& term : group.terms) {
    if (term.binds) binding = &term;
  }
  if (binding == nullptr) return "";
  return absl::StrCat(binding->name, " ", binding->formula);
}

// "%506 is stored" as "% is stored": what is equal in two layers but for the nodes' numbers.
std::string WithoutIds(absl::string_view text) {
  std::string result;
  bool in_id = false;
  for (char c : text) {
    if (in_id && c >= '0' && c <= '9') continue;
    in_id = c == '%';
    result.push_back(c);
  }
  return result;
}

}  // namespace

std::string DescribeBody(const Group& group) {
  if (const KernelLaunch* launch = SharedLaunchOf(group)) return DescribeShared(*launch);
  if (const KernelBody* kernel = KernelOf(group)) {
    std::string text =
        absl::StrFormat("%s, %d registers", kernel->schedule.Print(), kernel->registers);
    if (kernel->spill_bytes > 0) absl::StrAppend(&text, ", spills ", kernel->spill_bytes, " B");
    return text;
  }
  if (const Alias* alias = AliasOf(group)) {
    return absl::StrCat("no kernel: ", alias->parts.size(), " parts stored side by side");
  }
  if (const CallLaunch* shared = SharedCallsOf(group)) {
    const Call& first = shared->members[0].call;
    const CallOp& row = CallOpOf(first.op);
    return absl::StrCat(shared->members.size(), " ", row.together, ", the first ",
                        row.describe(first));
  }
  const Call& call = *CallOf(group);
  std::string text = CallOpOf(call.op).describe(call);
  if (call.epilogue) {
    absl::StrAppend(&text, " with an epilogue (", call.epilogue->implementation, ", tiles of ",
                    call.epilogue->tile.Print(), ")");
  }
  return text;
}

std::string CountOrigins(const BackwardGraph& graph, absl::Span<const NodeId> nodes) {
  std::vector<std::pair<std::string, int64_t>> calls;
  for (NodeId id : nodes) {
    const Origin* origin = graph.origin(id);
    if (origin == nullptr || origin->op.empty()) continue;
    std::pair<std::string, int64_t> call{origin->op, origin->instance};
    if (std::find(calls.begin(), calls.end(), call) == calls.end()) calls.push_back(call);
  }
  std::vector<std::string> names;
  for (const auto& [op, instance] : calls) names.push_back(op);
  return CountNames(names, 4);
}

std::string CountOps(const BackwardGraph& graph, absl::Span<const NodeId> nodes) {
  std::vector<std::string> names;
  for (NodeId id : nodes) names.emplace_back(Name(graph.op(id)));
  return CountNames(names, 6);
}

std::vector<KernelKind> KernelKinds(const BackwardGraph& graph, const FusionPlan& plan) {
  std::vector<KernelKind> kinds;
  absl::flat_hash_map<std::string, size_t> known;
  for (uint32_t g = 0; g < plan.groups.size(); ++g) {
    const Group& group = plan.groups[g];
    KernelKind kind{.ops = CountOps(graph, group.nodes),
                    .how = DescribeBody(group),
                    .binds = BindingTerm(group)};
    const std::string key =
        absl::StrCat(kind.ops, "|", kind.how, "|", kind.binds, "|", group.price_ps);
    const auto [it, is_new] = known.try_emplace(key, kinds.size());
    if (is_new) {
      kind.origins = CountOrigins(graph, group.nodes);
      kinds.push_back(std::move(kind));
    }
    kinds[it->second].groups.push_back(GroupId{g});
    kinds[it->second].total_ps += group.price_ps;
  }
  std::stable_sort(kinds.begin(), kinds.end(), [](const KernelKind& a, const KernelKind& b) {
    return a.total_ps > b.total_ps;
  });
  return kinds;
}

std::vector<Refusal> Refusals(const BackwardGraph& graph, const FusionPlan& plan) {
  std::vector<Refusal> refusals;
  absl::flat_hash_map<std::string, size_t> known;
  for (const Decision& decision : plan.decisions) {
    if (decision.together && decision.limit.empty()) continue;
    Refusal refusal{&decision, CountOps(graph, decision.a)};
    if (!decision.b.empty()) absl::StrAppend(&refusal.sides, " | ", CountOps(graph, decision.b));
    const auto [it, is_new] = known.try_emplace(
        absl::StrCat(refusal.sides, "|", decision.limit, "|", WithoutIds(decision.reason)),
        refusals.size());
    if (is_new) {
      refusals.push_back(std::move(refusal));
    } else {
      ++refusals[it->second].times;
    }
  }
  return refusals;
}

std::vector<MergedMatMul> MergedMatMulsOf(const BackwardGraph& graph, const FusionPlan& plan) {
  std::vector<MergedMatMul> merged;
  for (const Decision& d : plan.decisions) {
    const bool is_merge = d.together && d.limit.empty() && d.b.empty() && d.a.size() == 1 &&
                          graph.op(d.a[0]) == Op::matmul;
    if (!is_merge) continue;
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const MergedMatMul& m) {
      return WithoutIds(m.decision->reason) == WithoutIds(d.reason);
    });
    if (same == merged.end()) {
      merged.push_back({&d});
    } else {
      ++same->times;
    }
  }
  return merged;
}

std::vector<Refusal> MostTelling(std::vector<Refusal> refusals, size_t most) {
  const auto loss = [](const Refusal& r) {
    return std::abs(r.decision->together_ps - r.decision->apart_ps) * r.times;
  };
  std::vector<Refusal> kinds[3];  // schedules, prices, what cannot be built
  for (Refusal& r : refusals) {
    const bool schedule = r.decision->together;
    kinds[schedule ? 0 : r.decision->limit.empty() ? 1 : 2].push_back(std::move(r));
  }
  for (std::vector<Refusal>& kind : kinds) {
    std::stable_sort(kind.begin(), kind.end(),
                     [&](const Refusal& a, const Refusal& b) { return loss(a) > loss(b); });
  }
  std::vector<Refusal> chosen;
  for (size_t i = 0; chosen.size() < most; ++i) {
    bool any = false;
    for (std::vector<Refusal>& kind : kinds) {
      if (i >= kind.size() || chosen.size() == most) continue;
      chosen.push_back(std::move(kind[i]));
      any = true;
    }
    if (!any) break;
  }
  return chosen;
}

absl::StatusOr<StreamSchedule> ScheduleOf(const PlannedGraph& graph, int streams) {
  RG_ASSIGN_OR_RETURN(const ScheduleOptions options,
                      ScheduleOptionsFor(graph.spec, graph.spec_text, streams));
  return ScheduleStreams(graph.planned.graph, graph.planned.plan, options);
}

absl::StatusOr<PeakMemory> PeakMemoryOf(const PlannedGraph& graph) {
  const BackwardGraph& lowered = graph.planned.graph;
  RG_ASSIGN_OR_RETURN(const StreamSchedule schedule, ScheduleOf(graph, /*streams=*/1));
  RG_ASSIGN_OR_RETURN(const MemoryPlan memory,
                      PlanMemory(lowered, graph.planned.plan, schedule, {}));
  PeakMemory peak{memory.arena_bytes, memory.bytes_without_reuse};
  for (NodeId id : InputNodes(lowered)) {
    const TensorType& type = lowered.type(id);
    const std::vector<int64_t>& strides = lowered.node(id).input->strides;
    peak.inputs_bytes +=
        SpanElements(type.shape, strides.empty() ? DenseStrides(type.shape) : strides) *
        SizeBytes(type.dtype);
  }
  for (const GraphOutput& output : lowered.outputs()) {
    if (output.value) peak.outputs_bytes += lowered.type(*output.value).size_bytes();
  }
  return peak;
}

std::string PrintTime(int64_t ps) {
  const double us = static_cast<double>(ps) / 1e6;
  if (us < 1000) return absl::StrFormat("%.*f us", us < 10 ? 2 : us < 100 ? 1 : 0, us);
  const double ms = us / 1000;
  return absl::StrFormat("%.*f ms", ms < 10 ? 2 : ms < 100 ? 1 : 0, ms);
}

std::string PrintBytes(int64_t bytes) {
  double value = static_cast<double>(bytes);
  for (const char* unit : {"B", "KB", "MB", "GB"}) {
    if (value < 1000) return absl::StrFormat("%.3g %s", value, unit);
    value /= 1000;
  }
  return absl::StrFormat("%.3g TB", value);
}

}  // namespace retrograd
