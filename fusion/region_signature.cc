#include "fusion/region_signature.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build.h"

namespace retrograd {
namespace {

class Writer {
 public:
  Writer(const BackwardGraph& g, absl::Span<const Layout> layouts, const Consumers& consumers,
         absl::Span<const NodeId> ops)
      : g_(g), layouts_(layouts), consumers_(consumers), ops_(ops) {}

  std::string OfRegion() {
    for (NodeId id : ops_) {
      Computed(id);
      bool leaves = consumers_.is_output(id);
      for (NodeId user : consumers_.of(id)) leaves = leaves || !Position(user);
      Put(leaves);
    }
    return std::move(out_);
  }

  std::string OfKernel(absl::Span<const ValueId> stores) {
    for (NodeId id : ops_) {
      Computed(id);
      // What is written for the host does not count as passed on to other kernels.
      const bool stored = std::binary_search(stores.begin(), stores.end(), ValueId{id, 0});
      Put(stored ? (consumers_.is_output(id) ? kForHost : kForOthers) : kNotStored);
    }
    return std::move(out_);
  }

 private:
  enum Storing : int64_t { kNotStored, kForOthers, kForHost };

  void Computed(NodeId id) {
    Head(id);
    const absl::Span<const ValueId> operands = g_.operands(id);
    Put(static_cast<int64_t>(operands.size()));
    for (ValueId v : operands) Operand(v);
  }

  std::optional<size_t> Position(NodeId id) const {
    auto at = std::lower_bound(ops_.begin(), ops_.end(), id);
    if (at == ops_.end() || *at != id) return std::nullopt;
    return at - ops_.begin();
  }

  // What an operand is, before what describes it.
  enum Tag : int64_t { kInside, kView, kConstant, kSeen, kStored, kInput };

  // Numbers by seven bits a byte, small ones of either sign in one. Whatever varies in length
  // comes after its length, so that different regions never write the same.
  void Put(int64_t number) {
    uint64_t rest = static_cast<uint64_t>(number) << 1 ^ static_cast<uint64_t>(number >> 63);
    for (; rest >= 0x80; rest >>= 7) out_ += static_cast<char>(rest | 0x80);
    out_ += static_cast<char>(rest);
  }
  void Put(absl::string_view text) {
    Put(static_cast<int64_t>(text.size()));
    out_.append(text.data(), text.size());
  }
  void Put(absl::Span<const int64_t> numbers) {
    Put(static_cast<int64_t>(numbers.size()));
    for (int64_t number : numbers) Put(number);
  }
  void Put(const TensorType& type) {
    Put(static_cast<int64_t>(type.dtype));
    Put(type.shape);
  }

  void PutValue(const AttrValue& value) {
    Put(static_cast<int64_t>(value.index()));
    if (auto* i = std::get_if<int64_t>(&value)) Put(*i);
    if (auto* f = std::get_if<double>(&value)) Put(std::bit_cast<int64_t>(*f));
    if (auto* s = std::get_if<std::string>(&value)) Put(*s);
    if (auto* v = std::get_if<std::vector<int64_t>>(&value)) Put(*v);
  }

  // A node but for its operands.
  void Head(NodeId id) {
    const Node& node = g_.node(id);
    Put(static_cast<int64_t>(node.op));
    Put(node.results[0]);
    Put(static_cast<int64_t>(node.attrs.all().size()));
    for (const auto& [name, value] : node.attrs.all()) {
      Put(name);
      PutValue(value);
    }
    Strides({id, 0});
  }

  void Strides(ValueId v) { Put(layouts_[g_.value_index(v)].strides); }

  void Operand(ValueId v) {
    while (g_.pattern(v.node) == Pattern::kView) {
      Put(kView);
      Head(v.node);
      v = g_.operands(v.node)[0];
    }
    if (std::optional<size_t> position = Position(v.node)) {
      Put(kInside);
      Put(static_cast<int64_t>(*position));
    } else if (IsConstant(g_, v.node)) {
      Put(kConstant);
      Head(v.node);
    } else {
      External(v);
    }
  }

  void External(ValueId v) {
    auto [at, added] = external_.try_emplace(v, external_.size());
    if (!added) {
      Put(kSeen);
      Put(static_cast<int64_t>(at->second));
      return;
    }
    const Node& node = g_.node(v.node);
    Put(node.op == Op::input ? kInput : kStored);
    Put(g_.type(v));
    Strides(v);
    if (node.op == Op::input) Put(node.input->alignment);
  }

  const BackwardGraph& g_;
  absl::Span<const Layout> layouts_;
  const Consumers& consumers_;
  absl::Span<const NodeId> ops_;
  absl::flat_hash_map<ValueId, size_t> external_;
  std::string out_;
};

}  // namespace

std::string RegionSignature(const BackwardGraph& graph, absl::Span<const Layout> layouts,
                            const Consumers& consumers, const Region& region) {
  return Writer(graph, layouts, consumers, region.ops).OfRegion();
}

std::string KernelSignature(const BackwardGraph& graph, absl::Span<const Layout> layouts,
                            const Consumers& consumers, absl::Span<const NodeId> ops,
                            absl::Span<const ValueId> stores) {
  return Writer(graph, layouts, consumers, ops).OfKernel(stores);
}

}  // namespace retrograd
