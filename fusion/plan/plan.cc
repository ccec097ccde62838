#include "fusion/plan/plan.h"

#include <algorithm>

namespace retrograd {

std::vector<const KernelBody*> KernelsOf(const Group& group) {
  std::vector<const KernelBody*> kernels;
  if (const auto* kernel = std::get_if<KernelBody>(&group.body)) {
    kernels.push_back(kernel);
  } else if (const auto* merged = std::get_if<MergedBody>(&group.body)) {
    for (const MergedBody::Member& member : merged->members) kernels.push_back(&member.kernel);
  }
  return kernels;
}

Group GroupOf(const Group& merged, const MergedBody::Member& member) {
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
  group.body = member.kernel;
  group.terms = member.terms;
  group.price_ps = member.price_ps;
  return group;
}

std::pair<Group, Group> HalvesOf(const Group& fused) {
  const auto& body = std::get<FusedMatMul>(fused.body);
  const ValueId product = body.product.d.value;
  Group multiply{.nodes = {product.node},
                 .inputs = {body.product.a.value, body.product.b.value},
                 .outputs = {product},
                 .body = body.product,
                 .price_ps = body.product_ps};
  std::sort(multiply.inputs.begin(), multiply.inputs.end());
  multiply.inputs.erase(std::unique(multiply.inputs.begin(), multiply.inputs.end()),
                        multiply.inputs.end());
  Group rest{.recomputed = fused.recomputed,
             .outputs = fused.outputs,
             .body = body.epilogue,
             .price_ps = body.epilogue_ps,
             .in_place = fused.in_place};
  std::copy_if(fused.nodes.begin(), fused.nodes.end(), std::back_inserter(rest.nodes),
               [&](NodeId id) { return id != product.node; });
  for (const Buffer& b : body.epilogue.ir.buffers) {
    if (!b.written) rest.inputs.push_back(b.value);
  }
  std::sort(rest.inputs.begin(), rest.inputs.end());
  return {std::move(multiply), std::move(rest)};
}

std::vector<Group::InPlace> RequiredInPlace(const Group& group) {
  std::vector<Group::InPlace> required;
  if (const auto* matmul = std::get_if<MatMulCall>(&group.body)) {
    if (matmul->accumulate) required.push_back({matmul->previous, matmul->d.value});
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
