#include "fusion/ops/matmul/gemm_tile_legality.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/accesses/vector_access.h"

namespace retrograd {
namespace {

// The copy engine's addresses and pitches are multiples of 16 bytes.
bool IsCopied(const MatrixOperand& operand) {
  const int64_t pitch = operand.row_stride == 1 ? operand.col_stride : operand.row_stride;
  return (operand.row_stride == 1 || operand.col_stride == 1) &&
         operand.offset % kProductPack == 0 && pitch > 0 && pitch % kProductPack == 0;
}

bool IsAligned(const BackwardGraph& graph, ValueId value) {
  const Node& node = graph.node(value.node);
  return graph.pattern(value.node) != Pattern::kInput ||
         (node.input != nullptr && node.input->alignment % kStoredAlignment == 0 &&
          node.input->alignment > 0);
}

// Whether the offset counts the points, the last axis fastest.
bool CountsThePoints(const IndexExpr& offset, const KernelIr& ir) {
  if (!offset.is_affine() || offset.offset() != 0) return false;
  int64_t points = 1;
  for (size_t a = ir.extents.size(); a-- > 0;) {
    if (ir.extents[a] > 1 && offset.axis_coef(static_cast<int>(a)) != points) return false;
    points *= ir.extents[a];
  }
  return true;
}

}  // namespace

std::string WhyNoTiles(const MatMulCall& call) {
  if (SizeBytes(call.in_dtype) != 2 || call.out_dtype != call.in_dtype) {
    return "its elements are not of 16 bits";
  }
  if (!call.batch.empty()) return "it is a batch of products";
  if (call.accumulate) return "it is added to what is there";
  if (call.k < 1 || call.n % kProductPack != 0) {
    return absl::StrCat("rows of ", call.n, " elements are not packs of ", kProductPack);
  }
  if (call.d.offset != 0 || call.d.col_stride != 1 || call.d.row_stride != call.n) {
    return "its rows do not lie one after the other";
  }
  if (!IsCopied(call.a) || !IsCopied(call.b)) {
    return absl::StrCat("an operand's rows do not begin at multiples of ", kStoredAlignment,
                        " bytes");
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const bool fits = call.m <= kMost / call.n && call.k <= kMost / 2;
  return fits ? "" : "it has more elements than 32 bits count";
}

std::string WhyNoTiles(const BackwardGraph& graph, const MatMulCall& call) {
  if (std::string why = WhyNoTiles(call); !why.empty()) return why;
  if (IsAligned(graph, call.a.value) && IsAligned(graph, call.b.value)) return "";
  return absl::StrCat("the address of an operand may be no multiple of ", kStoredAlignment,
                      " bytes");
}

std::string WhyNotByTiles(const KernelIr& ir, ValueId product) {
  const int fastest = FastestAxis(ir);
  if (fastest < 0 || ir.extents[fastest] % kProductPack != 0) {
    return absl::StrCat("its fastest axis is not made of packs of ", kProductPack);
  }
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& load = ir.instrs[i];
    if (load.kind != InstrKind::kLoad || ir.buffers[load.buffer].value != product) continue;
    if (!CountsThePoints(load.offset, ir)) return "it walks the product in another order";
    if (ComputeType(load.dtype) != ComputeType(ir.buffers[load.buffer].dtype) ||
        LoadWidth(ir, static_cast<int>(i), {fastest, kProductPack}) != kProductPack) {
      return "it does not read the product in packs";
    }
  }
  return "";
}

}  // namespace retrograd
