// The plan as text: one line a group, its terms below, then the decisions.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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

std::string PrintMatMul(const MatMulCall& m) {
  return absl::StrCat(
      "matmul ", m.batch.empty() ? "" : absl::StrCat("batch=", absl::StrJoin(m.batch, "x"), " "),
      m.m, "x", m.n, "x", m.k, " ", Name(m.in_dtype), "->", Name(m.out_dtype),
      m.accumulate ? " beta=1" : "");
}

std::string PrintBody(const Group& group) {
  if (auto* k = std::get_if<KernelBody>(&group.body)) return PrintKernel(*k);
  if (auto* m = std::get_if<MergedBody>(&group.body)) {
    return absl::StrCat("merged kernels=", m->members.size());
  }
  if (auto* m = std::get_if<MatMulCall>(&group.body)) return PrintMatMul(*m);
  if (auto* f = std::get_if<FusedMatMul>(&group.body)) {
    return absl::StrCat(PrintMatMul(f->product), " epilogue=", f->implementation);
  }
  if (std::holds_alternative<PlacedJoin>(group.body)) return "placed join";
  const AttentionCall& a = std::get<AttentionCall>(group.body);
  return absl::StrCat("attention_backward ", absl::StrJoin(a.operands[1].shape, "x"), " ",
                      Name(a.dtype), a.causal ? " causal" : "");
}

}  // namespace

std::string FusionPlan::Print(const BackwardGraph& graph) const {
  std::string out = absl::StrCat("plan device=", device, " graph=", graph.name(), "\n");
  absl::StrAppendFormat(&out, "ops=%d kernels=%d price=%dps unfused=%dps bound=%dps gap=%dps\n",
                        summary.ops, summary.kernels, summary.price_ps, summary.unfused_ps,
                        summary.bound_ps, summary.gap_ps);
  if (summary.merged_launches > 0) {
    absl::StrAppendFormat(&out, "merged launches=%d wins=%dps\n", summary.merged_launches,
                          summary.merged_ps);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& g = groups[i];
    absl::StrAppend(&out, "group ", i, " nodes=", PrintNodes(g.nodes),
                    " in=", PrintValues(g.inputs), " out=", PrintValues(g.outputs), " ",
                    PrintBody(g), " price=", g.price_ps, "ps");
    if (g.workspace_bytes > 0) absl::StrAppend(&out, " workspace=", g.workspace_bytes, "B");
    out += "\n";
    if (auto* merged = std::get_if<MergedBody>(&g.body)) {
      for (const MergedBody::Member& m : merged->members) {
        absl::StrAppend(&out, "  member nodes=", PrintNodes(m.nodes), " ", PrintKernel(m.kernel),
                        " alone=", m.price_ps, "ps\n");
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
