// The plan as text: one line a group, its terms below, then the decisions.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fusion/ops/call_op.h"
#include "fusion/plan/plan.h"

namespace retrograd {
namespace {

std::string PrintNodes(absl::Span<const NodeId> nodes) {
  return absl::StrCat(
      "[",
      absl::StrJoin(nodes, " ",
                    [](std::string* out, NodeId id) { absl::StrAppend(out, "%", Index(id)); }),
      "]");
}

std::string PrintValues(absl::Span<const ValueId> values) {
  return absl::StrCat("[",
                      absl::StrJoin(values, " ",
                                    [](std::string* out, ValueId v) {
                                      absl::StrAppend(out, "%", Index(v.node));
                                      if (v.result > 0) absl::StrAppend(out, ".", v.result);
                                    }),
                      "]");
}

std::string PrintKernel(const KernelBody& kernel) {
  return absl::StrCat(
      kernel.schedule.Print(), " registers=", kernel.registers,
      kernel.spill_bytes > 0 ? absl::StrCat(" spills=", kernel.spill_bytes, "B") : "");
}

std::string PrintBody(const Group& group) {
  if (const KernelBody* kernel = KernelOf(group)) return PrintKernel(*kernel);
  if (const KernelLaunch* launch = SharedLaunchOf(group)) {
    return absl::StrCat("shared launch kernels=", launch->members.size());
  }
  if (AliasOf(group) != nullptr) return "alias";
  if (const CallLaunch* shared = SharedCallsOf(group)) {
    return absl::StrCat("shared launch calls=", shared->members.size());
  }
  const Call& call = *CallOf(group);
  return absl::StrCat(CallOpOf(call.op).describe(call),
                      call.epilogue ? absl::StrCat(" epilogue=", call.epilogue->implementation,
                                                   " tile=", call.epilogue->tile.Print())
                                    : "");
}

}  // namespace

std::string FusionPlan::Print(const BackwardGraph& graph) const {
  std::string out = absl::StrCat("plan device=", device, " graph=", graph.name(), "\n");
  absl::StrAppendFormat(&out, "ops=%d kernels=%d price=%dps unfused=%dps bound=%dps gap=%dps\n",
                        summary.ops, summary.kernels, summary.price_ps, summary.unfused_ps,
                        summary.bound_ps, summary.gap_ps);
  if (summary.launches_saved > 0) {
    absl::StrAppendFormat(&out, "shared launches saved=%d wins=%dps\n", summary.launches_saved,
                          summary.shared_launch_ps);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& g = groups[i];
    absl::StrAppend(&out, "group ", i, " nodes=", PrintNodes(g.nodes),
                    " in=", PrintValues(g.inputs), " out=", PrintValues(g.outputs), " ",
                    PrintBody(g), " price=", g.price_ps, "ps");
    if (g.workspace_bytes > 0) absl::StrAppend(&out, " workspace=", g.workspace_bytes, "B");
    out += "\n";
    if (const KernelLaunch* launch = SharedLaunchOf(g)) {
      for (const KernelLaunch::Member& m : launch->members) {
        absl::StrAppend(&out, "  member nodes=", PrintNodes(m.nodes), " ", PrintKernel(m.kernel),
                        " alone=", m.price_ps, "ps\n");
      }
    }
    if (const CallLaunch* shared = SharedCallsOf(g)) {
      for (const CallLaunch::Member& m : shared->members) {
        absl::StrAppend(&out, "  member nodes=", PrintNodes(m.nodes), " ",
                        CallOpOf(m.call.op).describe(m.call), " alone=", m.price_ps, "ps\n");
      }
    }
    for (const Term& t : g.terms) {
      absl::StrAppend(&out, "  ", t.name, " ", t.ps, "ps", t.binds ? " (binds)" : "", ": ",
                      t.formula, "\n");
    }
  }
  for (const Decision& d : decisions) {
    absl::StrAppend(&out, d.together ? "yes " : "no  ", PrintNodes(d.a),
                    d.b.empty() ? "" : absl::StrCat(" + ", PrintNodes(d.b)),
                    d.limit.empty() ? "" : absl::StrCat(" [", d.limit, "]"), ": ", d.reason, "\n");
  }
  return out;
}

}  // namespace retrograd
