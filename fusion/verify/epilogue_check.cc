#include "fusion/verify/epilogue_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

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
    if (i.kind == InstrKind::kReduce || i.kind == InstrKind::kFold || i.kind == InstrKind::kScan ||
        ir.scatter) {
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

// Kernels of tiles are of 16-bit products, for sm_90: 227 KiB of a block by opt-in, and 65536
// registers of which each of 256 multiplying threads may have 232.
absl::Status CheckTile(const Call& call) {
  const GemmTile& t = call.epilogue->tile;
  if (SizeBytes(call.results[0].dtype) != 2) return absl::OkStatus();
  const auto misfit = [&](absl::string_view why) {
    return Broken("P7: its tile ", t.Print(), " ", why);
  };
  // What the copy engine swizzles is 64 elements wide; tensor cores take 64 rows at once.
  const bool boxes = t.k == 64 && t.m >= 64 && t.n >= 64 && t.m % 64 == 0 && t.n % 64 == 0;
  if (!boxes) return misfit("is not made of boxes of 64 x 64");
  // The threads of a warpgroup share rows of packs of 8.
  if (t.n > 256 || 1024 % t.n != 0) return misfit("has rows that 128 threads do not share");
  if (t.m > 192 || int64_t{t.m} * t.n > int64_t{128} * 128)
    return misfit("is more than registers hold");
  if ((t.tall != 1 && t.tall != 2) || (t.wide != 1 && t.wide != 2)) {
    return misfit("shares loads among other than one or two blocks");
  }
  if (t.stages < 2) return misfit("loads nothing ahead");
  const int64_t operands = int64_t{t.m + t.n} * 64 * 2, products = int64_t{2} * t.m * t.n * 2;
  if (t.stages * (operands + 16) + products + 16 + 1024 > int64_t{227} * 1024) {
    return misfit("takes more than 227 KiB of shared memory");
  }
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
  RG_RETURN_IF_ERROR(CheckTile(call));
  return CheckPoints(group, call);
}

}  // namespace retrograd
