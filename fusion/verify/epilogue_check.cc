#include "fusion/verify/epilogue_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace retrograd {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}

// An axis steps over all that the axes with smaller steps reach together, and so on from steps
// of 1.
bool VisitsEachOnce(const Instr& load, const KernelIr& ir, int64_t elements) {
  if (!load.guards.empty() || !load.indirect.empty()) return false;
  if (!load.offset.is_affine() || load.offset.offset() != 0) return false;
  int64_t points = 1;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (ir.extents[a] == 1) continue;
    points *= ir.extents[a];
    int64_t below = 1;
    for (size_t b = 0; b < ir.extents.size(); ++b) {
      const bool smaller =
          load.offset.axis_coef(static_cast<int>(b)) < load.offset.axis_coef(static_cast<int>(a));
      if (smaller && ir.extents[b] > 1) below *= ir.extents[b];
    }
    if (load.offset.axis_coef(static_cast<int>(a)) != below) return false;
  }
  return points == elements;
}

absl::Status CheckPoints(const Group& group, const Call& call) {
  const KernelIr& ir = call.epilogue->kernel.ir;
  const ValueId product = call.results[0].value;
  bool reads = false;
  for (const Instr& i : ir.instrs) {
    if (i.kind == InstrKind::kReduce || i.kind == InstrKind::kScan || ir.scatter) {
      return Broken("P9: its epilogue folds points");
    }
    if (i.kind != InstrKind::kLoad) continue;
    if (i.buffer < 0 || i.buffer >= static_cast<int>(ir.buffers.size())) continue;  // P6 says so
    if (ir.buffers[i.buffer].value != product) continue;
    reads = true;
    if (!VisitsEachOnce(i, ir, ir.buffers[i.buffer].elements)) {
      return Broken("P9: its epilogue reads %", Index(product.node),
                    " elsewhere than at its own point");
    }
  }
  if (!reads) return Broken("P9: its epilogue does not read %", Index(product.node));
  const bool takes =
      std::any_of(group.in_place.begin(), group.in_place.end(), [&](const auto& pair) {
        return pair.input == product ||
               std::any_of(call.operands.begin(), call.operands.end(),
                           [&](const CallTensor& t) { return t.value == pair.input; });
      });
  if (takes) return Broken("P8: takes over bytes that are still multiplied");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckEpilogue(const BackwardGraph& graph, const Group& group, const Call& call) {
  if (call.results.size() != 1) return Broken("P9: an epilogue follows one result");
  const ValueId product = call.results[0].value;
  const bool own = Index(product.node) < graph.num_nodes() && product.result == 0 &&
                   std::binary_search(group.nodes.begin(), group.nodes.end(), product.node);
  if (!own || group.nodes.size() < 2) {
    return Broken("P1: multiplies %", Index(product.node),
                  ", which is not one op of several that it owns");
  }
  if (call.previous) return Broken("P9: its product is added to what is there");
  auto [multiply, rest] = HalvesOf(group);
  std::vector<ValueId> read = multiply.inputs, written;
  for (const Buffer& b : call.epilogue->kernel.ir.buffers) {
    if (b.written) written.push_back(b.value);
    if (!b.written && b.value != product) read.push_back(b.value);
  }
  for (std::vector<ValueId>* list : {&read, &written}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  if (read != group.inputs || written != group.outputs) {
    return Broken("P5: its product and epilogue read or write other values than it lists");
  }
  if (std::binary_search(written.begin(), written.end(), product)) {
    return Broken("P9: its epilogue stores the product");
  }
  return CheckPoints(group, call);
}

}  // namespace retrograd
