#include "fusion/ops/matmul/matmul_epilogue.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/ops/matmul/gemm_tile_legality.h"

namespace retrograd {
namespace {

// Whether the offset numbers the points: each exactly once, from 0 on.
bool NumbersThePoints(const IndexExpr& offset, const KernelIr& ir) {
  if (!offset.is_affine() || offset.offset() != 0) return false;
  std::vector<std::pair<int64_t, int64_t>> axes;  // coefficient, extent
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (ir.extents[a] > 1) axes.push_back({offset.axis_coef(static_cast<int>(a)), ir.extents[a]});
  }
  std::sort(axes.begin(), axes.end());
  int64_t next = 1;
  for (const auto& [coefficient, extent] : axes) {
    if (coefficient != next) return false;
    next *= extent;
  }
  return true;
}

}  // namespace

bool TakesProduct(const MatMulEpilogue& row, const MatMulCall& call) {
  const bool known =
      std::find(row.dtypes.begin(), row.dtypes.end(), call.in_dtype) != row.dtypes.end();
  const bool tiled = SizeBytes(call.in_dtype) != 2 || WhyNoTiles(call).empty();
  return known && call.out_dtype == call.in_dtype && !call.accumulate && tiled;
}

bool MayFollow(const BackwardGraph& graph, NodeId id, const TensorType& product) {
  const Pattern p = graph.pattern(id);
  return (p == Pattern::kPointwise || p == Pattern::kAccumulate) &&
         graph.type(id).elements() == product.elements();
}

std::string WhyNoEpilogue(const KernelIr& ir, ValueId product, const MatMulEpilogue& row) {
  int reads = 0, stores = 0, product_buffer = -1;
  for (size_t b = 0; b < ir.buffers.size(); ++b) {
    if (ir.buffers[b].written) {
      ++stores;
    } else if (ir.buffers[b].value == product) {
      product_buffer = static_cast<int>(b);
    } else {
      ++reads;
    }
  }
  if (product_buffer < 0) return "the epilogue does not read the product";
  if (reads > row.max_reads) {
    return absl::StrCat(row.name, " reads at most ", row.max_reads,
                        " tensors beside the product, not ", reads);
  }
  if (stores > row.max_stores) {
    return absl::StrCat(row.name, " stores at most ", row.max_stores, " tensors, not ", stores);
  }
  if (ir.scatter) return "a scatter follows no product";
  for (const Instr& i : ir.instrs) {
    if (i.kind == InstrKind::kReduce || i.kind == InstrKind::kFold || i.kind == InstrKind::kScan) {
      return "the epilogue sums over the product's points";
    }
    if (!i.indirect.empty() || !i.guards.empty()) {
      return "the epilogue chooses what it reads point by point";
    }
    if (i.kind == InstrKind::kLoad && i.buffer == product_buffer &&
        !NumbersThePoints(i.offset, ir)) {
      return "the epilogue reads the product elsewhere than at its own point";
    }
  }
  if (SizeBytes(ir.buffers[product_buffer].dtype) == 2) {
    if (std::string why = WhyNotByTiles(ir, product); !why.empty()) {
      return absl::StrCat("the epilogue follows no tiles: ", why);
    }
  }
  return "";
}

}  // namespace retrograd
