#include "fusion/plan/plan.h"

#include <algorithm>
#include <utility>

namespace retrograd {

KernelLaunch LaunchOf(KernelBody kernel) {
  KernelLaunch launch;
  launch.members.push_back({.kernel = std::move(kernel)});
  return launch;
}

const KernelBody* KernelOf(const Group& group) {
  const auto* launch = std::get_if<KernelLaunch>(&group.body);
  return launch != nullptr && launch->members.size() == 1 ? &launch->members[0].kernel : nullptr;
}
KernelBody* KernelOf(Group& group) {
  return const_cast<KernelBody*>(KernelOf(std::as_const(group)));
}

const KernelLaunch* SharedLaunchOf(const Group& group) {
  const auto* launch = std::get_if<KernelLaunch>(&group.body);
  return launch != nullptr && launch->shared() ? launch : nullptr;
}
KernelLaunch* SharedLaunchOf(Group& group) {
  return const_cast<KernelLaunch*>(SharedLaunchOf(std::as_const(group)));
}

const Call* CallOf(const Group& group) { return std::get_if<Call>(&group.body); }
Call* CallOf(Group& group) { return std::get_if<Call>(&group.body); }

const CallLaunch* SharedCallsOf(const Group& group) { return std::get_if<CallLaunch>(&group.body); }
CallLaunch* SharedCallsOf(Group& group) { return std::get_if<CallLaunch>(&group.body); }

const Alias* AliasOf(const Group& group) { return std::get_if<Alias>(&group.body); }
Alias* AliasOf(Group& group) { return std::get_if<Alias>(&group.body); }

const Call* FusedCallOf(const Group& group) {
  const Call* call = CallOf(group);
  return call != nullptr && call->epilogue ? call : nullptr;
}

std::vector<const KernelBody*> KernelsOf(const Group& group) {
  std::vector<const KernelBody*> kernels;
  if (const auto* launch = std::get_if<KernelLaunch>(&group.body)) {
    for (const KernelLaunch::Member& member : launch->members) kernels.push_back(&member.kernel);
  }
  return kernels;
}

Group GroupOf(const Group& merged, const KernelLaunch::Member& member) {
  Group group{.nodes = member.nodes, .recomputed = member.recomputed};
  for (const Buffer& b : member.kernel.ir.buffers) {
    (b.written ? group.outputs : group.inputs).push_back(b.value);
  }
  for (std::vector<ValueId>* list : {&group.inputs, &group.outputs}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  for (const Group::InPlace& pair : merged.in_place) {
    const bool stores = std::binary_search(group.outputs.begin(), group.outputs.end(), pair.output);
    if (stores) group.in_place.push_back(pair);
  }
  group.workspace_bytes = merged.workspace_bytes;
  group.body = LaunchOf(member.kernel);
  group.terms = member.terms;
  group.price_ps = member.price_ps;
  return group;
}

Group GroupOf(const CallLaunch::Member& member) {
  Group group{.nodes = member.nodes, .terms = member.terms, .price_ps = member.price_ps};
  for (const CallTensor& t : member.call.operands) group.inputs.push_back(t.value);
  for (const CallTensor& t : member.call.results) group.outputs.push_back(t.value);
  for (std::vector<ValueId>* list : {&group.inputs, &group.outputs}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  group.body = member.call;
  return group;
}

std::pair<Group, Group> HalvesOf(const Group& fused) {
  Call call = *FusedCallOf(fused);
  const CallEpilogue epilogue = *std::move(call.epilogue);
  call.epilogue.reset();
  const ValueId product = call.results[0].value;
  Group multiply{.nodes = {product.node}, .outputs = {product}, .price_ps = epilogue.call_ps};
  for (const CallTensor& operand : call.operands) multiply.inputs.push_back(operand.value);
  std::sort(multiply.inputs.begin(), multiply.inputs.end());
  multiply.inputs.erase(std::unique(multiply.inputs.begin(), multiply.inputs.end()),
                        multiply.inputs.end());
  multiply.body = std::move(call);
  Group rest{.recomputed = fused.recomputed,
             .outputs = fused.outputs,
             .body = LaunchOf(epilogue.kernel),
             .price_ps = epilogue.kernel_ps,
             .in_place = fused.in_place};
  std::copy_if(fused.nodes.begin(), fused.nodes.end(), std::back_inserter(rest.nodes),
               [&](NodeId id) { return id != product.node; });
  for (const Buffer& b : epilogue.kernel.ir.buffers) {
    if (!b.written) rest.inputs.push_back(b.value);
  }
  std::sort(rest.inputs.begin(), rest.inputs.end());
  return {std::move(multiply), std::move(rest)};
}

std::vector<Group::InPlace> RequiredInPlace(const Group& group) {
  std::vector<Group::InPlace> required;
  if (const Call* call = CallOf(group)) {
    if (call->previous) required.push_back({*call->previous, call->results[0].value});
    return required;
  }
  for (const KernelBody* kernel : KernelsOf(group)) {
    for (const Store& store : kernel->ir.stores) {
      if (store.mode != StoreMode::kAdd) continue;
      const ValueId sum = kernel->ir.buffers[store.buffer].value;
      for (const Group::InPlace& pair : group.in_place) {
        const bool known = std::find(required.begin(), required.end(), pair) != required.end();
        if (pair.output == sum && !known) required.push_back(pair);
      }
    }
  }
  return required;
}

}  // namespace retrograd
