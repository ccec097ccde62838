#include "fusion/region_signature.h"

#include <bit>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
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
      Describe(id);
      bool leaves = consumers_.is_output(id);
      for (NodeId user : consumers_.of(id)) leaves = leaves || !position_.contains(user);
      absl::StrAppend(&out_, leaves ? "!" : "", "\n");
    }
    return std::move(out_);
  }

 private:
  void Describe(NodeId id) {
    const Node& node = g_.node(id);
    absl::StrAppend(&out_, static_cast<int>(node.op), node.results[0].Print());
    for (const auto& [name, value] : node.attrs.all()) {
      absl::StrAppend(&out_, " ", name, "=");
      if (auto* i = std::get_if<int64_t>(&value)) absl::StrAppend(&out_, *i);
      if (auto* f = std::get_if<double>(&value)) absl::StrAppend(&out_, "f", std::bit_cast<uint64_t>(*f));
      if (auto* s = std::get_if<std::string>(&value)) absl::StrAppend(&out_, s->size(), ":", *s);
      if (auto* v = std::get_if<std::vector<int64_t>>(&value)) {
        for (int64_t x : *v) absl::StrAppend(&out_, x, ",");
      }
    }
    Strides({id, 0});
    for (ValueId v : g_.operands(id)) Operand(v);
  }

  void Strides(ValueId v) {
    out_ += "@";
    for (int64_t s : layouts_[g_.value_index(v)].strides) absl::StrAppend(&out_, s, ",");
  }

  void Operand(ValueId v) {
    if (auto at = position_.find(v.node); at != position_.end()) {
      absl::StrAppend(&out_, " r", at->second);
    } else if (g_.pattern(v.node) == Pattern::kView || IsConstant(g_, v.node)) {
      out_ += " (";
      Describe(v.node);
      out_ += ")";
    } else {
      auto [at, added] = external_.try_emplace(v, external_.size());
      absl::StrAppend(&out_, " x", at->second);
      if (!added) return;
      absl::StrAppend(&out_, ":", g_.type(v).Print());
      Strides(v);
      const Node& node = g_.node(v.node);
      if (node.op == Op::input) absl::StrAppend(&out_, "i", node.input->alignment);
    }
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
