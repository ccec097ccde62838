#include "fusion/region_signature.h"

#include <bit>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build.h"

namespace retrograd {
namespace {

class Writer {
 public:
  Writer(const BackwardGraph& g, absl::Span<const Layout> layouts, const Consumers& consumers,
         const Region& region)
      : g_(g), layouts_(layouts), consumers_(consumers), region_(region) {
    for (size_t i = 0; i < region.ops.size(); ++i) position_[region.ops[i]] = i;
  }

  std::string Run() {
    for (NodeId id : region_.ops) {
      Head(id);
      const absl::Span<const ValueId> operands = g_.operands(id);
      Put(static_cast<int64_t>(operands.size()));
      for (ValueId v : operands) Operand(v);
      bool leaves = consumers_.is_output(id);
      for (NodeId user : consumers_.of(id)) leaves = leaves || !position_.contains(user);
      Put(leaves);
    }
    return std::move(out_);
  }

 private:
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
    auto at = position_.find(v.node);
    while (at == position_.end() && g_.pattern(v.node) == Pattern::kView) {
      Put(kView);
      Head(v.node);
      v = g_.operands(v.node)[0];
      at = position_.find(v.node);
    }
    if (at != position_.end()) {
      Put(kInside);
      Put(static_cast<int64_t>(at->second));
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
  const Region& region_;
  absl::flat_hash_map<NodeId, size_t> position_;
  absl::flat_hash_map<ValueId, size_t> external_;
  std::string out_;
};

}  // namespace

std::string RegionSignature(const BackwardGraph& graph, absl::Span<const Layout> layouts,
                            const Consumers& consumers, const Region& region) {
  return Writer(graph, layouts, consumers, region).Run();
}

}  // namespace retrograd
