#include "graph/symbols/substitute.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/ir/node_rules.h"
#include "graph/ir/shape_rules.h"

namespace retrograd {
namespace {

// Whether doubles hold the number and its neighbours.
bool IsExact(int64_t number) {
  constexpr int64_t kMost = int64_t{1} << 53;
  return number >= -kMost && number <= kMost;
}

std::string NameOf(const SizePlace& place) {
  switch (place.field) {
    case SizeField::kDim:
      return absl::StrCat("dim ", place.element, " of result ", place.part, " of node %",
                          place.owner);
    case SizeField::kAttr:
      return absl::StrCat("number ", place.element, " of attribute ", place.part, " of node %",
                          place.owner);
    case SizeField::kStride:
      return absl::StrCat("stride ", place.element, " of node %", place.owner);
    case SizeField::kOutputStride:
      return absl::StrCat("stride ", place.element, " of output ", place.owner);
  }
  return "";
}

absl::Status NoSuchPlace(const SizePlace& place) {
  return Malformed(Malformation::kSizePlace,
                   absl::StrCat("a size is said to be ", NameOf(place), ", which does not exist"));
}

// In the order of nodes, then of outputs.
auto Order(const SizePlace& place) {
  return std::make_tuple(place.field == SizeField::kOutputStride, place.owner, place.field,
                         place.part, place.element);
}

absl::StatusOr<double> Quotient(int64_t number, int64_t divisor) {
  if (divisor == 0) return absl::InvalidArgumentError("a number is divided by 0: bind other sizes");
  if (!IsExact(number) || !IsExact(divisor)) {
    return absl::OutOfRangeError(absl::StrCat(
        number, " / ", divisor, " is no quotient that doubles hold: bind smaller sizes"));
  }
  return static_cast<double>(number) / static_cast<double>(divisor);
}

class Substitution {
 public:
  Substitution(const SizeTable& table, absl::Span<const int64_t> values)
      : table_(table), values_(values) {}

  int64_t Number(const SizePlace& place) const { return values_[place.polynomial]; }

  absl::StatusOr<double> Float(const SizePlace& place) const {
    if (place.divisor == 0) return static_cast<double>(Number(place));
    return Quotient(Number(place), values_[place.divisor - 1]);
  }

  // The places of a node or an output; called in their order.
  absl::Span<const SizePlace> Of(bool output, uint32_t owner) {
    const absl::Span<const SizePlace> all = table_.places;
    const auto behind = [&](const SizePlace& place) {
      return std::make_pair(place.field == SizeField::kOutputStride, place.owner) !=
             std::make_pair(output, owner);
    };
    const size_t begin = next_;
    while (next_ < all.size() && !behind(all[next_])) ++next_;
    return all.subspan(begin, next_ - begin);
  }

  absl::Status SetAttr(const SizePlace& place, Attrs& attrs) const {
    const auto& [name, old] = attrs.all()[place.part];
    AttrValue value = old;
    if (auto* integer = std::get_if<int64_t>(&value)) {
      *integer = Number(place);
    } else if (auto* number = std::get_if<double>(&value)) {
      RG_ASSIGN_OR_RETURN(*number, Float(place));
    } else {
      std::get<std::vector<int64_t>>(value)[place.element] = Number(place);
    }
    attrs.Set(std::string(name), std::move(value));
    return absl::OkStatus();
  }

 private:
  const SizeTable& table_;
  absl::Span<const int64_t> values_;
  size_t next_ = 0;
};

class Rebuilder {
 public:
  Rebuilder(const BackwardGraph& graph, const SizeTable& table, absl::Span<const int64_t> values)
      : graph_(graph), sizes_(table, values), builder_(graph.name()) {}

  absl::StatusOr<BackwardGraph> Run() {
    builder_.Reserve(graph_.num_nodes(), graph_.num_operands());
    builder_.ShareOrigins(graph_);
    builder_.SetNumerics(graph_.numerics());
    changed_.reserve(graph_.num_nodes());
    for (uint32_t i = 0; i < graph_.num_nodes(); ++i) {
      const absl::Status status = Add(NodeId{i}, sizes_.Of(false, i));
      RG_RETURN_IF_ERROR(builder_.status());
      if (!status.ok()) return At(NodeName(i, Name(graph_.op(NodeId{i}))), status);
    }
    for (uint32_t i = 0; i < graph_.outputs().size(); ++i) Output(i);
    return builder_.Build();
  }

 private:
  absl::Status Add(NodeId id, absl::Span<const SizePlace> places) {
    const std::shared_ptr<const Node>& node = graph_.shared_node(id);
    const absl::Span<const ValueId> operands = graph_.operands(id);
    const bool same = places.empty() && std::none_of(operands.begin(), operands.end(), [&](auto v) {
                        return changed_[Index(v.node)];
                      });
    changed_.push_back(!same);
    if (same) {
      builder_.AddShared(node, operands);
      return absl::OkStatus();
    }
    builder_.SetOriginIndex(node->origin);
    std::vector<TensorType> types = node->results;
    Attrs attrs = node->attrs;
    InputInfo info = node->input != nullptr ? *node->input : InputInfo{};
    for (const SizePlace& place : places) {
      switch (place.field) {
        case SizeField::kDim: types[place.part].shape[place.element] = sizes_.Number(place); break;
        case SizeField::kStride: info.strides[place.element] = sizes_.Number(place); break;
        default: RG_RETURN_IF_ERROR(sizes_.SetAttr(place, attrs));
      }
    }
    for (const TensorType& type : types) RG_RETURN_IF_ERROR(CheckShape(type.shape));
    if (node->op == Op::input) {
      builder_.Input(std::move(types[0]), std::move(info));
      return absl::OkStatus();
    }
    return builder_.AddNode(node->op, operands, std::move(attrs), types).status();
  }

  void Output(uint32_t index) {
    GraphOutput output = graph_.outputs()[index];
    for (const SizePlace& place : sizes_.Of(true, index)) {
      output.strides[place.element] = sizes_.Number(place);
    }
    if (output.value.has_value()) {
      builder_.Output(*output.value, std::move(output.name), std::move(output.strides));
    } else {
      builder_.AbsentOutput(std::move(output.name));
    }
  }

  const BackwardGraph& graph_;
  Substitution sizes_;
  GraphBuilder builder_;
  std::vector<bool> changed_;  // by node: whether its results may have other types
};

// The integer at a place; nullptr if there is none.
const int64_t* IntegerAt(const BackwardGraph& graph, const SizePlace& place) {
  const auto at = [](const std::vector<int64_t>& list, size_t i) {
    return i < list.size() ? &list[i] : nullptr;
  };
  if (place.field == SizeField::kOutputStride) {
    if (place.owner >= graph.outputs().size() || place.part != 0) return nullptr;
    return at(graph.outputs()[place.owner].strides, place.element);
  }
  if (place.owner >= graph.num_nodes()) return nullptr;
  const Node& node = graph.node(NodeId{place.owner});
  switch (place.field) {
    case SizeField::kDim:
      return place.part < node.results.size() ? at(node.results[place.part].shape, place.element)
                                              : nullptr;
    case SizeField::kStride:
      return node.input != nullptr && place.part == 0 ? at(node.input->strides, place.element)
                                                      : nullptr;
    default: break;
  }
  if (place.part >= node.attrs.all().size()) return nullptr;
  const AttrValue& value = node.attrs.all()[place.part].second;
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return at(*list, place.element);
  return place.element == 0 ? std::get_if<int64_t>(&value) : nullptr;
}

const double* FloatAt(const BackwardGraph& graph, const SizePlace& place) {
  if (place.field != SizeField::kAttr || place.owner >= graph.num_nodes() || place.element != 0) {
    return nullptr;
  }
  const auto all = graph.node(NodeId{place.owner}).attrs.all();
  return place.part < all.size() ? std::get_if<double>(&all[place.part].second) : nullptr;
}

absl::Status CheckPlace(const BackwardGraph& graph, const Substitution& sizes,
                        const SizePlace& place) {
  const auto differs = [&](auto there, auto follows) {
    return Malformed(Malformation::kSizeHint,
                     absl::StrCat(NameOf(place), " is ", there, " and at the hints ", follows));
  };
  if (const double* number = FloatAt(graph, place)) {
    const absl::StatusOr<double> follows = sizes.Float(place);
    if (!follows.ok()) return Malformed(Malformation::kSizeHint, follows.status().message());
    return *number == *follows ? absl::OkStatus() : differs(*number, *follows);
  }
  const int64_t* number = IntegerAt(graph, place);
  if (number == nullptr || place.divisor != 0) return NoSuchPlace(place);
  const int64_t follows = sizes.Number(place);
  return *number == follows ? absl::OkStatus() : differs(*number, follows);
}

}  // namespace

absl::Status CheckPlaces(const BackwardGraph& graph, const SizeTable& table,
                         absl::Span<const int64_t> values) {
  const Substitution sizes(table, values);
  for (size_t i = 0; i < table.places.size(); ++i) {
    const SizePlace& place = table.places[i];
    if (i > 0 && Order(table.places[i - 1]) >= Order(place)) {
      return Malformed(Malformation::kSizePlace,
                       absl::StrCat(NameOf(place), " is named twice or behind its order"));
    }
    RG_RETURN_IF_ERROR(CheckPlace(graph, sizes, place));
  }
  return absl::OkStatus();
}

absl::StatusOr<BackwardGraph> Substitute(const BackwardGraph& graph, const SizeTable& table,
                                         absl::Span<const int64_t> values) {
  return Rebuilder(graph, table, values).Run();
}

}  // namespace retrograd
