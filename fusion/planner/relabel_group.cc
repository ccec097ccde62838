#include "fusion/planner/relabel_group.h"

#include <algorithm>

#include "graph/base/status.h"

namespace retrograd {

Relabeling::Relabeling(const BackwardGraph& g, const Region& from, const Region& to) {
  RG_CHECK(from.ops.size() == to.ops.size());
  for (size_t i = 0; i < from.ops.size(); ++i) to_[{from.ops[i], 0}] = {to.ops[i], 0};
  for (size_t i = 0; i < from.ops.size(); ++i) {
    const absl::Span<const ValueId> here = g.operands(from.ops[i]), there = g.operands(to.ops[i]);
    RG_CHECK(here.size() == there.size());
    for (size_t k = 0; k < here.size(); ++k) {
      ValueId a = here[k], b = there[k];
      while (to_.emplace(a, b).second && g.pattern(a.node) == Pattern::kView) {
        a = g.operands(a.node)[0];
        b = g.operands(b.node)[0];
      }
    }
  }
}

void Relabeling::Rename(KernelBody& kernel) const {
  for (Buffer& b : kernel.ir.buffers) b.value = Of(b.value);
  for (Instr& i : kernel.ir.instrs) {
    if (const auto at = to_.find(i.value); at != to_.end()) i.value = at->second;
  }
}

void Relabeling::Rename(Call& call) const {
  for (std::vector<CallTensor>* list : {&call.operands, &call.results}) {
    for (CallTensor& tensor : *list) tensor.value = Of(tensor.value);
  }
  call.node = Of(call.node);
  if (call.previous) call.previous = Of(*call.previous);
  if (call.epilogue) Rename(call.epilogue->kernel);
}

Group Relabeling::Rename(Group group) const {
  for (std::vector<NodeId>* list : {&group.nodes, &group.recomputed}) {
    for (NodeId& id : *list) id = Of(id);
  }
  for (std::vector<ValueId>* list : {&group.inputs, &group.outputs}) {
    for (ValueId& v : *list) v = Of(v);
    std::sort(list->begin(), list->end());
  }
  for (Group::InPlace& pair : group.in_place) pair = {Of(pair.input), Of(pair.output)};
  if (KernelBody* kernel = KernelOf(group)) Rename(*kernel);
  if (Call* call = CallOf(group)) Rename(*call);
  if (CallLaunch* shared = SharedCallsOf(group)) {
    for (CallLaunch::Member& member : shared->members) {
      for (NodeId& id : member.nodes) id = Of(id);
      Rename(member.call);
    }
  }
  return group;
}

}  // namespace retrograd
