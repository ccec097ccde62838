#include "fusion/analysis/region_signature.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build/build.h"

namespace retrograd {
namespace {

// Numbers by seven bits a byte, small ones of either sign in one. Whatever varies in length comes
// after its length, so that different things never write the same.
class Text {
 public:
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
  void PutAttr(const AttrValue& value) {
    Put(static_cast<int64_t>(value.index()));
    if (auto* i = std::get_if<int64_t>(&value)) Put(*i);
    if (auto* f = std::get_if<double>(&value)) Put(std::bit_cast<int64_t>(*f));
    if (auto* s = std::get_if<std::string>(&value)) Put(absl::string_view(*s));
    if (auto* v = std::get_if<std::vector<int64_t>>(&value)) Put(absl::MakeConstSpan(*v));
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// A node but for its operands.
void PutComputed(const BackwardGraph& g, absl::Span<const Layout> layouts, NodeId id, Text& out) {
  const Node& node = g.node(id);
  out.Put(static_cast<int64_t>(node.op));
  out.Put(node.results[0]);
  out.Put(static_cast<int64_t>(node.attrs.all().size()));
  for (const auto& [name, value] : node.attrs.all()) {
    out.Put(absl::string_view(name));
    out.PutAttr(value);
  }
  out.Put(layouts[g.value_index({id, 0})].strides);
}

// A value from outside.
void PutRead(const BackwardGraph& g, absl::Span<const Layout> layouts, ValueId v, Text& out) {
  const Node& node = g.node(v.node);
  out.Put(static_cast<int64_t>(node.op == Op::input));
  out.Put(g.type(v));
  out.Put(layouts[g.value_index(v)].strides);
  if (node.op == Op::input) out.Put(node.input->alignment);
}

// Nodes by numbers that stand for all that they are.
struct ByNumber {
  NodeNumbers& numbers;
  void Computed(NodeId id, Text& out) const { out.Put(numbers.OfComputed(id)); }
  void Read(ValueId v, Text& out) const { out.Put(numbers.OfRead(v)); }
};

// Nodes by what does not follow from sizes.
struct ByStructure {
  const BackwardGraph& g;

  void PutType(const TensorType& type, Text& out) const {
    out.Put(static_cast<int64_t>(type.dtype));
    out.Put(static_cast<int64_t>(type.rank()));
    for (const int64_t extent : type.shape) out.Put(int64_t{extent == 1});
  }

  // Integers are sizes but for those that name axes.
  void PutAttr(absl::string_view name, const AttrValue& value, Text& out) const {
    const bool names_axes = name == "axis" || name == "axes" || name == "perm";
    const auto* list = std::get_if<std::vector<int64_t>>(&value);
    const bool number =
        std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
    out.Put(name);
    if (names_axes || (list == nullptr && !number)) {
      out.PutAttr(value);
    } else {
      out.Put(list == nullptr ? int64_t{-1} : static_cast<int64_t>(list->size()));
    }
  }

  void Computed(NodeId id, Text& out) const {
    const Node& node = g.node(id);
    out.Put(static_cast<int64_t>(node.op));
    PutType(node.results[0], out);
    out.Put(static_cast<int64_t>(node.attrs.all().size()));
    for (const auto& [name, value] : node.attrs.all()) PutAttr(name, value, out);
  }

  void Read(ValueId v, Text& out) const {
    out.Put(int64_t{g.op(v.node) == Op::input});
    PutType(g.type(v), out);
  }
};

template <typename Describe>
class Writer {
 public:
  Writer(const BackwardGraph& g, const Consumers& consumers, absl::Span<const NodeId> ops,
         Describe describe)
      : g_(g), consumers_(consumers), ops_(ops), describe_(describe) {}

  std::string OfRegion() {
    for (NodeId id : ops_) {
      Computed(id);
      bool leaves = consumers_.is_output(id);
      for (NodeId user : consumers_.of(id)) leaves = leaves || !Position(user);
      out_.Put(static_cast<int64_t>(leaves));
    }
    return out_.Take();
  }

  std::string OfKernel(absl::Span<const ValueId> stores) {
    for (NodeId id : ops_) {
      Computed(id);
      // What is written for the host does not count as passed on to other kernels.
      const bool stored = std::binary_search(stores.begin(), stores.end(), ValueId{id, 0});
      out_.Put(int64_t{stored ? (consumers_.is_output(id) ? kForHost : kForOthers) : kNotStored});
    }
    return out_.Take();
  }

 private:
  enum Storing : int64_t { kNotStored, kForOthers, kForHost };

  void Computed(NodeId id) {
    describe_.Computed(id, out_);
    const absl::Span<const ValueId> operands = g_.operands(id);
    out_.Put(static_cast<int64_t>(operands.size()));
    for (ValueId v : operands) Operand(v);
  }

  std::optional<size_t> Position(NodeId id) const {
    auto at = std::lower_bound(ops_.begin(), ops_.end(), id);
    if (at == ops_.end() || *at != id) return std::nullopt;
    return at - ops_.begin();
  }

  // What an operand is, before what describes it.
  enum Tag : int64_t { kInside, kView, kConstant, kSeen, kOutside };

  void Operand(ValueId v) {
    while (g_.pattern(v.node) == Pattern::kView) {
      out_.Put(int64_t{kView});
      describe_.Computed(v.node, out_);
      v = g_.operands(v.node)[0];
    }
    if (std::optional<size_t> position = Position(v.node)) {
      out_.Put(int64_t{kInside});
      out_.Put(static_cast<int64_t>(*position));
    } else if (IsConstant(g_, v.node)) {
      out_.Put(int64_t{kConstant});
      describe_.Computed(v.node, out_);
    } else {
      External(v);
    }
  }

  void External(ValueId v) {
    auto [at, added] = external_.try_emplace(v, external_.size());
    out_.Put(int64_t{added ? kOutside : kSeen});
    if (added) {
      describe_.Read(v, out_);
    } else {
      out_.Put(static_cast<int64_t>(at->second));
    }
  }

  const BackwardGraph& g_;
  const Consumers& consumers_;
  absl::Span<const NodeId> ops_;
  Describe describe_;
  absl::flat_hash_map<ValueId, size_t> external_;
  Text out_;
};

}  // namespace

int64_t NodeNumbers::OfComputed(NodeId id) {
  int64_t& number = computed_[Index(id)];
  if (number >= 0) return number;
  Text text;
  text.Put(int64_t{0});
  PutComputed(graph_, layouts_, id, text);
  return number = table_.try_emplace(text.Take(), table_.size()).first->second;
}

int64_t NodeNumbers::OfRead(ValueId value) {
  auto [at, added] = read_.try_emplace(value, 0);
  if (!added) return at->second;
  Text text;
  text.Put(int64_t{1});
  PutRead(graph_, layouts_, value, text);
  return at->second = table_.try_emplace(text.Take(), table_.size()).first->second;
}

std::string RegionSignature(const BackwardGraph& graph, const Consumers& consumers,
                            const Region& region, NodeNumbers& numbers) {
  return Writer(graph, consumers, region.ops, ByNumber{numbers}).OfRegion();
}

std::string RegionStructure(const BackwardGraph& graph, const Consumers& consumers,
                            const Region& region) {
  return Writer(graph, consumers, region.ops, ByStructure{graph}).OfRegion();
}

std::string KernelSignature(const BackwardGraph& graph, const Consumers& consumers,
                            absl::Span<const NodeId> ops, absl::Span<const ValueId> stores,
                            NodeNumbers& numbers) {
  return Writer(graph, consumers, ops, ByNumber{numbers}).OfKernel(stores);
}

}  // namespace retrograd
