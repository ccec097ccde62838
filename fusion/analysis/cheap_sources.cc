#include "fusion/analysis/cheap_sources.h"

#include <algorithm>
#include <utility>

#include "fusion/analysis/barrier_depths.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

// An operand of at most this share of the result's elements (a row's statistic, a weight) is free
// to read: any share far below one would tell such operands from those of the result's shape.
constexpr int64_t kSmallOperand = 8;

class Sourcing {
 public:
  Sourcing(const BackwardGraph& g, const FreeReads& free)
      : g_(g), free_(free), ops_(g.num_nodes(), 0), fs_(g.num_nodes(), 0), dear_(g.num_nodes()) {
    sources_.reserve(g.num_nodes());
    for (uint32_t i = 0; i < g.num_nodes(); ++i) sources_.push_back(Of(NodeId{i}));
  }
  std::vector<std::optional<ValueId>> Take() { return std::move(sources_); }

 private:
  int Bytes(ValueId v) const { return SizeBytes(g_.type(v).dtype); }

  std::optional<ValueId> Of(NodeId id) {
    const TensorType& type = g_.type(id);
    if (g_.pattern(id) != Pattern::kPointwise || type.elements() < free_.large_elements) {
      return std::nullopt;
    }
    const CostClass cost = Info(g_.op(id)).cost;
    bool dear = cost > CostClass::kDivide;
    const bool widens = IsWideningCast(g_, id, free_);
    std::optional<ValueId> source;
    int ops = g_.op(id) == Op::cast ? 0 : 1;
    int64_t fs = free_.op_fs[static_cast<int>(cost)];
    if (type.dtype == DType::kFp64) fs = MulDiv(fs, kPpm, free_.fp64_ppm);
    for (ValueId operand : g_.operands(id)) {
      const ValueId made = BehindViews(g_, operand);
      if (IsConstant(g_, made.node)) continue;
      const int64_t elements = std::min(g_.type(operand).elements(), g_.type(made).elements());
      if (elements * kSmallOperand <= type.elements()) continue;
      std::optional<ValueId> under = sources_[Index(made.node)];
      if (under) {
        ops += ops_[Index(made.node)];
        fs += fs_[Index(made.node)];
        dear = dear || dear_[Index(made.node)];
      } else if (widens || g_.op(made.node) == Op::input || IsBarrier(g_, made.node)) {
        under = made;
      }
      if (!under || (source && *source != *under)) return std::nullopt;
      source = under;
    }
    if (!source || Bytes(*source) > SizeBytes(type.dtype) || ops > free_.remade_ops) {
      return std::nullopt;
    }
    // What is dear is made again in less time than memory takes for the result.
    if (dear && fs >= SizeBytes(type.dtype) * free_.byte_fs) return std::nullopt;
    ops_[Index(id)] = ops, fs_[Index(id)] = fs, dear_[Index(id)] = dear;
    return source;
  }

  const BackwardGraph& g_;
  const FreeReads free_;
  std::vector<int> ops_;     // that lead from the source to the result
  std::vector<int64_t> fs_;  // in which all units evaluate one element of them
  std::vector<bool> dear_;   // whether one is dearer than a division
  std::vector<std::optional<ValueId>> sources_;
};

}  // namespace

bool IsWideningCast(const BackwardGraph& g, NodeId id, const FreeReads& free) {
  if (g.op(id) != Op::cast) return false;
  const TensorType &from = g.type(g.operands(id)[0]), &to = g.type(id);
  return SizeBytes(to.dtype) > SizeBytes(from.dtype) && to.elements() >= free.large_elements;
}

std::vector<std::optional<ValueId>> Sources(const BackwardGraph& graph, const FreeReads& free) {
  return Sourcing(graph, free).Take();
}

}  // namespace retrograd
