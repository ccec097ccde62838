#include "fusion/lower/image_order.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/lower/image_chains.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

bool IsInput(const BackwardGraph& g, ValueId v) { return g.op(v.node) == Op::input; }

std::vector<int64_t> InputStrides(const BackwardGraph& g, ValueId v) {
  const std::vector<int64_t>& strides = g.node(v.node).input->strides;
  return strides.empty() ? DenseStrides(g.type(v).shape) : strides;
}

// Whether a tensor is given row-major and lies otherwise with its channels last.
bool IsGivenRowMajor(const BackwardGraph& g, ValueId v) {
  const Shape& shape = g.type(v).shape;
  return IsInput(g, v) && HasImageOrder(shape) && IsRowMajor(shape, InputStrides(g, v));
}

using Values = absl::flat_hash_set<ValueId>;

// What a chain's convolutions take, and what it takes to have its channels last.
class Chain {
 public:
  Chain(const BackwardGraph& g, const DeviceSpec& device) : g_(g), device_(device) {}

  void AddConvolution(NodeId id) { convolutions_.push_back(id); }
  // An image of the chain that is read, made or left in row-major order by what is no part of it.
  void AddCrossing(ValueId v) { crossings_ps_ += CopyPs(v); }
  // A tensor that the chain reads. A pixel of few channels would be stored element by element.
  void AddRead(ValueId v) {
    if (!IsGivenRowMajor(g_, v)) return;
    const TensorType& type = g_.type(v);
    if (type.shape[1] * SizeBytes(type.dtype) >= device_.sector_bytes) copied_.insert(v);
  }

  // The tensors of the graph's inputs to copy so that images have their channels last; none where
  // they are better left.
  Values Copied() {
    for (const NodeId id : convolutions_) {
      for (const ValueId v : g_.operands(id)) AddRead(v);
    }
    if (copied_.empty()) return {};
    const int64_t as_given = CallsPs(false);
    int64_t last = CallsPs(true) + crossings_ps_;
    for (const ValueId v : copied_) last += CopyPs(v);
    const int64_t margin = std::max(device_.margin_ps, Share(as_given, device_.margin_ppm));
    return last + margin < as_given ? copied_ : Values{};
  }

 private:
  // A kernel that transposes.
  int64_t CopyPs(ValueId v) const {
    const int64_t bytes = g_.type(v).elements() * SizeBytes(g_.type(v).dtype);
    return device_.launch_graph_ps + TransferPs(2 * bytes, device_.hbm_bytes_per_s);
  }

  std::vector<int64_t> StridesOf(ValueId v, bool last) const {
    const Shape& shape = g_.type(v).shape;
    if (last && (!IsInput(g_, v) || copied_.contains(v))) return ChannelsLastStrides(shape);
    if (!IsInput(g_, v)) return DenseStrides(shape);
    std::vector<int64_t> strides = InputStrides(g_, v);
    return IsPacked(shape, strides) ? strides : DenseStrides(shape);
  }

  CallTensor TensorOf(ValueId v, bool last) const {
    const TensorType& type = g_.type(v);
    return {.value = v, .shape = type.shape, .strides = StridesOf(v, last), .dtype = type.dtype};
  }

  int64_t CallsPs(bool last) const {
    int64_t ps = 0;
    for (const NodeId id : convolutions_) {
      Call call{.node = id,
                .op = g_.op(id),
                .attributes = g_.node(id).attrs,
                .tf32 = g_.numerics().allow_tf32};
      for (const ValueId v : g_.operands(id)) call.operands.push_back(TensorOf(v, last));
      call.results.push_back(TensorOf({id, 0}, last));
      ps += CallOpOf(call.op).price(call, device_, /*explain=*/false).ps;
    }
    return ps;
  }

  const BackwardGraph& g_;
  const DeviceSpec& device_;
  std::vector<NodeId> convolutions_;
  Values copied_;
  int64_t crossings_ps_ = 0;
};

bool IsFoldOrSpread(const BackwardGraph& g, NodeId id) {
  return g.pattern(id) == Pattern::kReduction || g.op(id) == Op::expand;
}

// The chains of a graph that have convolutions.
class Chains {
 public:
  Chains(const BackwardGraph& g, const DeviceSpec& device) : g_(g), device_(device), of_(g) {
    for (uint32_t i = 0; i < g.num_nodes(); ++i) AddConvolution(NodeId{i});
    if (chains_.empty()) return;
    for (uint32_t i = 0; i < g.num_nodes(); ++i) AddReads(NodeId{i});
    for (const GraphOutput& output : g.outputs()) AddOutput(output);
  }

  Values Copied() {
    Values all;
    for (auto& [number, chain] : chains_) {
      const Values copied = chain.Copied();
      all.insert(copied.begin(), copied.end());
    }
    return all;
  }

 private:
  Chain* Find(ValueId v) {
    const auto at = chains_.find(of_.Of(v));
    return at == chains_.end() || !HasImageOrder(g_.type(v).shape) ? nullptr : &at->second;
  }

  void AddConvolution(NodeId id) {
    const auto values = ConvolutionValuesOf(g_, id);
    if (!values) return;
    chains_.try_emplace(of_.Of(values->image), g_, device_).first->second.AddConvolution(id);
  }

  void AddReads(NodeId id) {
    if (g_.op(id) == Op::input || ConvolutionValuesOf(g_, id)) return;
    for (const ValueId v : g_.operands(id)) {
      Chain* const chain = Find(v);
      if (chain == nullptr) continue;
      if (HandsImagesOn(g_, id)) {
        chain->AddRead(v);
      } else if (!IsFoldOrSpread(g_, id) && !IsInput(g_, v)) {
        chain->AddCrossing(v);  // what is given can be read as it lies
      }
    }
    const ValueId result{id, 0};
    const bool made_here = HandsImagesOn(g_, id) || IsFoldOrSpread(g_, id);
    if (Chain* const chain = made_here ? nullptr : Find(result)) chain->AddCrossing(result);
  }

  void AddOutput(const GraphOutput& output) {
    if (!output.value || IsInput(g_, *output.value)) return;
    const Shape& shape = g_.type(*output.value).shape;
    Chain* const chain = Find(*output.value);
    if (chain == nullptr) return;
    if (output.strides.empty() || IsRowMajor(shape, output.strides)) {
      chain->AddCrossing(*output.value);
    }
  }

  const BackwardGraph& g_;
  const DeviceSpec& device_;
  const ImageChains of_;
  absl::btree_map<size_t, Chain> chains_;  // by number
};

// Copies each of the tensors once, before its first reader.
class Copier {
 public:
  Copier(const BackwardGraph& g, const Values& copied) : copied_(copied), rewriter_(g) {}

  absl::StatusOr<BackwardGraph> Run() {
    const BackwardGraph& g = rewriter_.graph();
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      const NodeId id{i};
      const bool reads = ConvolutionValuesOf(g, id) || HandsImagesOn(g, id);
      reads ? rewriter_.CopyOver(id, OperandsOf(id)) : rewriter_.Copy(id);
    }
    return rewriter_.Finish();
  }

 private:
  std::vector<ValueId> OperandsOf(NodeId id) {
    std::vector<ValueId> operands = rewriter_.NewOperands(id);
    const absl::Span<const ValueId> old = rewriter_.graph().operands(id);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (copied_.contains(old[i])) operands[i] = CopyOf(old[i], id);
    }
    return operands;
  }

  // [N,C,spatial..] as a view of what lies as [N,spatial..,C].
  ValueId CopyOf(ValueId old, NodeId reader) {
    const auto [at, added] = copies_.try_emplace(old);
    if (!added) return at->second;
    rewriter_.UseOrigin(reader);
    GraphBuilder& b = rewriter_.builder();
    const int64_t rank = static_cast<int64_t>(rewriter_.graph().type(old).rank());
    std::vector<int64_t> last(rank), back(rank);
    std::iota(last.begin(), last.end(), int64_t{1});
    std::iota(back.begin(), back.end(), int64_t{-1});
    last[0] = back[0] = 0, last[rank - 1] = 1, back[1] = rank - 1;
    std::iota(last.begin() + 1, last.end() - 1, int64_t{2});
    const ValueId copy = b.Add(Op::copy, {b.Permute(rewriter_.New(old), std::move(last))});
    return at->second = b.Permute(copy, std::move(back));
  }

  const Values& copied_;
  Rewriter rewriter_;
  absl::flat_hash_map<ValueId, ValueId> copies_;  // by the old tensor
};

}  // namespace

absl::StatusOr<BackwardGraph> OrderImages(const BackwardGraph& graph, const DeviceSpec& device) {
  const Values copied = Chains(graph, device).Copied();
  if (copied.empty()) return graph;
  return Copier(graph, copied).Run();
}

}  // namespace retrograd
