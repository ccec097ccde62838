// Each dimension of each value is a member of a union-find; ops tie those that must scale together
// and pin those that they use in a way that scaling would change.
#include "graph/passes/rebatch.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/library_ops.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

class Dimensions {
 public:
  explicit Dimensions(const BackwardGraph& graph) : g_(graph) {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      for (const TensorType& type : g_.node(NodeId{i}).results) {
        first_.push_back(parent_.size());
        for (int64_t extent : type.shape) {
          parent_.push_back(parent_.size());
          extents_.push_back(extent);
        }
      }
    }
    pinned_by_.assign(parent_.size(), -1);
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) TieOf(NodeId{i});
  }

  size_t ClassOf(ValueId v, int d) { return Root(first_[g_.value_index(v)] + d); }
  int64_t pinned_by(size_t root) const { return pinned_by_[root]; }
  const std::vector<int64_t>& extents() const { return extents_; }
  size_t Root(size_t d) {
    while (parent_[d] != d) d = parent_[d] = parent_[parent_[d]];
    return d;
  }

 private:
  void Tie(ValueId v, int d, ValueId w, int e) {
    const size_t one = ClassOf(v, d), other = ClassOf(w, e);
    if (one == other) return;
    parent_[std::max(one, other)] = std::min(one, other);
    int64_t& pin = pinned_by_[std::min(one, other)];
    if (pin < 0) pin = pinned_by_[std::max(one, other)];
  }
  void Pin(ValueId v, int d, NodeId by) {
    int64_t& pin = pinned_by_[ClassOf(v, d)];
    if (pin < 0) pin = Index(by);
  }
  const Shape& ShapeOf(ValueId v) const { return g_.type(v).shape; }

  // Aligned at the last dimension, as numpy broadcasts: equal extents are tied.
  void TieBroadcast(ValueId from, ValueId to) {
    const int shift = static_cast<int>(ShapeOf(to).size()) - static_cast<int>(ShapeOf(from).size());
    for (int d = 0; d < static_cast<int>(ShapeOf(from).size()); ++d) {
      if (d + shift >= 0 && ShapeOf(from)[d] == ShapeOf(to)[d + shift]) Tie(from, d, to, d + shift);
    }
  }

  // All dimensions but `axis` are the same; along it both stay as they are, unless `whole`.
  void TieButAxis(ValueId from, ValueId to, int axis, bool whole, NodeId by) {
    for (int d = 0; d < static_cast<int>(ShapeOf(from).size()); ++d) {
      if (d != axis || whole) {
        Tie(from, d, to, d);
      } else {
        Pin(from, d, by);
        Pin(to, d, by);
      }
    }
  }

  void TieReduction(NodeId id, ValueId x, ValueId y) {
    const absl::Span<const int64_t> axes = g_.node(id).attrs.Ints("axes");
    const bool keep = g_.node(id).attrs.Int("keep") == 1;
    int to = 0;
    for (int d = 0; d < static_cast<int>(ShapeOf(x).size()); ++d) {
      const bool reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
      if (!reduced) Tie(x, d, y, to);
      if (!reduced || keep) ++to;
    }
  }

  // Runs of dimensions with equal products stand for each other: the outermost of each are tied,
  // and what lies inside a run keeps its extent.
  void TieReshape(NodeId id, ValueId x, ValueId y) {
    const Shape &from = ShapeOf(x), &to = ShapeOf(y);
    size_t i = 0, j = 0;
    const auto skip_ones = [](const Shape& shape, size_t& at) {
      while (at < shape.size() && shape[at] == 1) ++at;
    };
    for (;;) {
      skip_ones(from, i);
      skip_ones(to, j);
      if (i == from.size() || j == to.size()) return;
      Tie(x, static_cast<int>(i), y, static_cast<int>(j));
      int64_t in = from[i++], out = to[j++];
      while (in != out) {
        const bool more_in = in < out;
        const bool left = more_in ? i < from.size() : j < to.size();
        if (!left) return;  // an extent of 0
        if (more_in) {
          Pin(x, static_cast<int>(i), id);
          in *= from[i++];
        } else {
          Pin(y, static_cast<int>(j), id);
          out *= to[j++];
        }
      }
    }
  }

  void TieView(NodeId id, ValueId x, ValueId y) {
    const Attrs& attrs = g_.node(id).attrs;
    const int rank = static_cast<int>(ShapeOf(x).size());
    switch (g_.op(id)) {
      case Op::reshape: return TieReshape(id, x, y);
      case Op::permute:
        for (int d = 0; d < rank; ++d) Tie(y, d, x, static_cast<int>(attrs.Ints("perm")[d]));
        return;
      case Op::expand: return TieBroadcast(x, y);
      case Op::flip: return TieBroadcast(x, y);
      case Op::pad:
        for (int d = 0; d < rank; ++d) {
          if (attrs.Ints("low")[d] == 0 && attrs.Ints("high")[d] == 0) {
            Tie(x, d, y, d);
          } else {
            Pin(x, d, id);
            Pin(y, d, id);
          }
        }
        return;
      default: {
        const int axis = static_cast<int>(attrs.Int("axis"));
        TieButAxis(x, y, axis, ShapeOf(x) == ShapeOf(y), id);
      }
    }
  }

  void TieLibrary(NodeId id) {
    std::vector<ValueId> values(g_.operands(id).begin(), g_.operands(id).end());
    for (uint32_t r = 0; r < g_.node(id).results.size(); ++r) values.push_back({id, r});
    std::vector<const TensorType*> types;
    for (ValueId v : values) types.push_back(&g_.type(v));
    const LibraryDims dims =
        LibraryOpOf(g_.op(id)).dims(types, static_cast<int>(g_.operands(id).size()));
    for (const auto& [a, b] : dims.equal) Tie(values[a.tensor], a.dim, values[b.tensor], b.dim);
    for (const TensorDim& d : dims.fixed) Pin(values[d.tensor], d.dim, id);
  }

  // x.shape[:axis] + index.shape + x.shape[axis+1:]
  void TieSelected(ValueId x, ValueId index, ValueId y, int axis) {
    const int more = static_cast<int>(ShapeOf(index).size());
    for (int d = 0; d < static_cast<int>(ShapeOf(x).size()); ++d) {
      if (d != axis) Tie(x, d, y, d < axis ? d : d + more - 1);
    }
    for (int d = 0; d < more; ++d) Tie(index, d, y, axis + d);
  }

  void TieGather(NodeId id, ValueId x, ValueId index, ValueId y, int axis) {
    if (g_.op(id) == Op::index_select) return TieSelected(x, index, y, axis);
    TieBroadcast(index, y);
    for (int d = 0; d < static_cast<int>(ShapeOf(x).size()); ++d) {
      if (d == axis) continue;
      if (ShapeOf(x)[d] == ShapeOf(index)[d]) {
        Tie(x, d, index, d);
      } else {
        Pin(x, d, id);
        Pin(index, d, id);
      }
    }
  }

  void TieAccumulate(NodeId id) {
    const absl::Span<const int64_t> starts = g_.node(id).attrs.Ints("starts");
    const ValueId y{id, 0};
    const int rank = static_cast<int>(ShapeOf(y).size());
    for (size_t i = 0; i < g_.operands(id).size(); ++i) {
      const ValueId x = g_.operands(id)[i];
      for (int d = 0; d < rank; ++d) {
        if (ShapeOf(x)[d] == ShapeOf(y)[d] && starts[i * rank + d] == 0) {
          Tie(x, d, y, d);
        } else {
          Pin(x, d, id);
          Pin(y, d, id);
        }
      }
    }
  }

  void TieOf(NodeId id) {
    const absl::Span<const ValueId> in = g_.operands(id);
    const ValueId y{id, 0};
    const int axis = static_cast<int>(g_.node(id).attrs.Int("axis"));
    switch (g_.pattern(id)) {
      case Pattern::kInput: return;
      case Pattern::kPointwise:
        for (ValueId x : in) TieBroadcast(x, y);
        return;
      case Pattern::kReduction: return TieReduction(id, in[0], y);
      case Pattern::kLibrary: return TieLibrary(id);
      case Pattern::kView: return TieView(id, in[0], y);
      case Pattern::kJoin:
        if (g_.op(id) == Op::slice_scatter) {
          TieBroadcast(in[0], y);
          return TieButAxis(in[1], y, axis, ShapeOf(in[1]) == ShapeOf(y), id);
        }
        for (ValueId x : in) TieButAxis(x, y, axis, true, id);
        return;
      case Pattern::kGather: return TieGather(id, in[0], in[1], y, axis);
      case Pattern::kScatter: TieBroadcast(in[0], y); return TieSelected(in[0], in[1], in[2], axis);
      case Pattern::kAccumulate: return TieAccumulate(id);
      case Pattern::kScan: return TieBroadcast(in[0], y);
      case Pattern::kComposite:
        for (ValueId v : in) {
          for (int d = 0; d < static_cast<int>(ShapeOf(v).size()); ++d) Pin(v, d, id);
        }
    }
  }

  const BackwardGraph& g_;
  std::vector<size_t> first_;   // by value index: its first dimension
  std::vector<size_t> parent_;  // by dimension
  std::vector<int64_t> extents_;
  std::vector<int64_t> pinned_by_;  // by class: a node that holds it, or -1
};

// The class that leads most of what is computed, as its root; the number of dimensions: none.
size_t LeadingClass(const BackwardGraph& g, Dimensions& dims) {
  std::map<size_t, int64_t> led;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    const NodeId id{i};
    if (g.pattern(id) == Pattern::kInput || g.operands(id).empty()) continue;
    const Shape& shape = g.type(id).shape;
    const auto lead = std::find_if(shape.begin(), shape.end(), [](int64_t e) { return e > 1; });
    if (lead != shape.end()) {
      ++led[dims.ClassOf({id, 0}, static_cast<int>(lead - shape.begin()))];
    }
  }
  const auto most = std::max_element(
      led.begin(), led.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == led.end() ? dims.extents().size() : most->first;
}

class Rescaler {
 public:
  Rescaler(const BackwardGraph& graph, int64_t numerator, int64_t denominator)
      : g_(graph),
        dims_(graph),
        rewriter_(graph),
        numerator_(numerator),
        denominator_(denominator) {}

  absl::StatusOr<BackwardGraph> Run() {
    scaled_ = LeadingClass(g_, dims_);
    RG_RETURN_IF_ERROR(CheckClass());
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      rewriter_.UseOrigin(id);
      const Node& node = g_.node(id);
      ValueId first;
      if (node.input != nullptr) {
        InputInfo info = *node.input;
        info.strides = ScaledStrides({id, 0}, info.strides);
        first = rewriter_.builder().Input({node.results[0].dtype, ScaledShape({id, 0})},
                                          std::move(info));
      } else {
        first = rewriter_.builder().Add(node.op, rewriter_.NewOperands(id), ScaledAttrs(id));
      }
      RG_RETURN_IF_ERROR(rewriter_.builder().status());
      for (uint32_t r = 0; r < node.results.size(); ++r) rewriter_.Set({id, r}, {first.node, r});
    }
    for (const GraphOutput& output : g_.outputs()) {
      if (!output.value.has_value()) {
        rewriter_.builder().AbsentOutput(output.name);
        continue;
      }
      rewriter_.builder().Output(rewriter_.New(*output.value), output.name,
                                 ScaledStrides(*output.value, output.strides));
    }
    return rewriter_.builder().Build();
  }

 private:
  absl::Status CheckClass() {
    if (scaled_ == dims_.extents().size()) {
      return absl::FailedPreconditionError("the graph has no dimension larger than 1 to rescale");
    }
    if (const int64_t by = dims_.pinned_by(scaled_); by >= 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the rows (an extent of ", dims_.extents()[scaled_], ") cannot be rescaled: %", by, " (",
          Name(g_.op(NodeId{static_cast<uint32_t>(by)})), ") takes a part of them"));
    }
    for (size_t d = 0; d < dims_.extents().size(); ++d) {
      const int64_t extent = dims_.extents()[d];
      if (dims_.Root(d) != scaled_) continue;
      const bool fits = extent % denominator_ == 0 && extent <= kMaxElements / numerator_;
      if (fits && extent / denominator_ * numerator_ > 1) continue;
      return absl::FailedPreconditionError(absl::StrCat("the rows cannot be rescaled by ",
                                                        numerator_, "/", denominator_,
                                                        ": an extent is ", extent));
    }
    return absl::OkStatus();
  }

  int64_t Scaled(int64_t extent) const { return extent / denominator_ * numerator_; }

  Shape ScaledShape(ValueId v) {
    Shape shape = g_.type(v).shape;
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      if (dims_.ClassOf(v, d) == scaled_) shape[d] = Scaled(shape[d]);
    }
    return shape;
  }

  // Dimensions that lie outside the scaled one in memory step over more or less of it.
  std::vector<int64_t> ScaledStrides(ValueId v, std::vector<int64_t> strides) {
    const Shape& shape = g_.type(v).shape;
    const std::vector<int64_t> old = strides;
    for (int s = 0; s < static_cast<int>(strides.size()); ++s) {
      if (dims_.ClassOf(v, s) != scaled_) continue;
      for (size_t d = 0; d < strides.size(); ++d) {
        if (old[s] > 0 && old[d] >= old[s] * shape[s]) strides[d] = Scaled(strides[d]);
      }
    }
    return strides;
  }

  Attrs ScaledAttrs(NodeId id) {
    Attrs attrs = g_.node(id).attrs;
    const Shape shape = ScaledShape({id, 0});
    if (attrs.Find("shape") != nullptr) attrs.Set("shape", shape);
    if (g_.pattern(id) == Pattern::kLibrary) {
      const absl::string_view repeats = LibraryOpOf(g_.op(id)).result_shape_attr;
      if (!repeats.empty()) attrs.Set(repeats, shape);
    }
    // Whole slices alone reach here with a scaled axis.
    const int axis = static_cast<int>(attrs.Int("axis"));
    if (attrs.Find("stop") != nullptr && dims_.ClassOf({id, 0}, axis) == scaled_) {
      attrs.Set("stop", shape[axis]);
    }
    return attrs;
  }

  const BackwardGraph& g_;
  Dimensions dims_;
  Rewriter rewriter_;
  const int64_t numerator_, denominator_;
  size_t scaled_ = 0;
};

}  // namespace

absl::StatusOr<Rows> FindRows(const BackwardGraph& graph) {
  Dimensions dims(graph);
  const size_t rows = LeadingClass(graph, dims);
  if (rows == dims.extents().size()) {
    return absl::FailedPreconditionError("the graph has no dimension larger than 1");
  }
  Rows found{.smallest = dims.extents()[rows], .largest = dims.extents()[rows]};
  for (size_t d = 0; d < dims.extents().size(); ++d) {
    if (dims.Root(d) != rows) continue;
    found.smallest = std::min(found.smallest, dims.extents()[d]);
    found.largest = std::max(found.largest, dims.extents()[d]);
  }
  return found;
}

absl::StatusOr<BackwardGraph> RescaleRows(const BackwardGraph& graph, int64_t numerator,
                                          int64_t denominator) {
  if (numerator < 1 || denominator < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows cannot be rescaled by ", numerator, "/", denominator));
  }
  return Rescaler(graph, numerator, denominator).Run();
}

}  // namespace retrograd
