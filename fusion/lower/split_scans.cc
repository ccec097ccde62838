#include "fusion/lower/split_scans.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "fusion/kernel/ir/scale.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// Search bounds: no piece is shorter, and with so many rows for each SM there is no lack of blocks.
constexpr int64_t kShortestPiece = 1024;
constexpr int64_t kRowsOfSm = 8;
constexpr int64_t kVector = 16;  // elements: no type has more in 16 bytes

// A row of `extent` places as pieces of `length`, and a rest behind them in the scan's direction.
struct Pieces {
  int64_t count = 1, length = 0, extent = 0;
  int64_t rest() const { return extent - count * length; }
};

// As many pieces as fill the device, of whole vectors; fewer, but more than half as many, where the
// row is then whole pieces.
std::optional<Pieces> PiecesOf(const BackwardGraph& g, NodeId id, const DeviceSpec& device) {
  if (g.op(id) != Op::cumsum) return std::nullopt;
  const TensorType& type = g.type(id);
  const int64_t extent = type.shape[g.node(id).attrs.Int("axis")];
  if (type.elements() == 0 || type.shape.size() >= kMaxRank) return std::nullopt;
  const int64_t rows = type.elements() / extent, filled = kRowsOfSm * device.sms;
  const int64_t wanted = std::min(CeilDiv(filled, rows), extent / kShortestPiece);
  if (wanted < 2) return std::nullopt;
  for (int64_t count = wanted; count > wanted / 2; --count) {
    if (extent % (count * kVector) == 0)
      return Pieces{.count = count, .length = extent / count, .extent = extent};
  }
  const int64_t length = extent / wanted / kVector * kVector;
  return Pieces{.count = extent / length, .length = length, .extent = extent};
}

// Builds one scan anew.
class Splitter {
 public:
  Splitter(GraphBuilder& b, const BackwardGraph& g, NodeId id, const Pieces& pieces)
      : b_(b),
        axis_(g.node(id).attrs.Int("axis")),
        reverse_(g.node(id).attrs.Int("reverse") != 0),
        pieces_(pieces) {}

  ValueId Split(ValueId x) const {
    const Shape shape = b_.type(x).shape;
    const DType given = b_.type(x).dtype;
    x = b_.Cast(x, Wide(given));
    const int64_t rest = pieces_.rest(), whole = pieces_.extent - rest;
    // The rest is scanned last.
    const int64_t first = reverse_ ? rest : 0;
    Shape cut = shape;
    cut[axis_] = pieces_.length;
    cut.insert(cut.begin() + axis_, pieces_.count);
    const ValueId main = b_.Reshape(b_.Slice(x, axis_, first, first + whole), cut);
    const ValueId totals = Scan(b_.Sum(main, {axis_ + 1}, /*keep=*/true), axis_);
    const ValueId scanned =
        b_.Add(Op::add, {b_.Expand(Before(totals), cut), Scan(main, axis_ + 1)});
    Shape flat = shape;
    flat[axis_] = whole;
    ValueId result = b_.Cast(b_.Reshape(scanned, flat), given);
    if (rest == 0) return result;
    Shape row = shape, end = shape;
    row[axis_] = 1;
    end[axis_] = rest;
    const ValueId before = b_.Expand(b_.Reshape(End(totals, axis_), row), end);
    const int64_t start = reverse_ ? 0 : whole;
    const ValueId of_rest = Scan(b_.Slice(x, axis_, start, start + rest), axis_);
    const ValueId last = b_.Cast(b_.Add(Op::add, {before, of_rest}), given);
    std::vector<ValueId> parts = {result, last};
    if (reverse_) std::swap(parts[0], parts[1]);
    return b_.Cat(parts, axis_);
  }

 private:
  static DType Wide(DType dtype) { return IsFloat(dtype) ? ComputeType(dtype) : dtype; }

  ValueId Scan(ValueId v, int64_t axis) const {
    return b_.Add(Op::cumsum, {v}, {{"axis", axis}, {"reverse", int64_t{reverse_}}});
  }

  // The place that a scan along the axis reaches last.
  ValueId End(ValueId v, int64_t axis) const {
    const int64_t last = reverse_ ? 0 : b_.type(v).shape[axis] - 1;
    return b_.Slice(v, axis, last, last + 1);
  }

  // Of each piece what the pieces before it give, from what they and the piece give.
  ValueId Before(ValueId totals) const {
    const int64_t first = reverse_ ? 1 : 0;
    const ValueId others = b_.Slice(totals, axis_, first, first + pieces_.count - 1);
    Shape low(b_.type(totals).shape.size(), 0), high = low;
    (reverse_ ? high : low)[axis_] = 1;
    return b_.Add(Op::pad, {others}, {{"low", low}, {"high", high}, {"value", 0.0}});
  }

  GraphBuilder& b_;
  const int64_t axis_;
  const bool reverse_;
  const Pieces pieces_;
};

}  // namespace

absl::StatusOr<BackwardGraph> SplitScans(const BackwardGraph& graph, const DeviceSpec& device) {
  std::vector<std::optional<Pieces>> pieces(graph.num_nodes());
  bool any = false;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    pieces[i] = PiecesOf(graph, NodeId{i}, device);
    any |= pieces[i].has_value();
  }
  if (!any) return graph;
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (!pieces[i].has_value()) {
      rewriter.Copy(id);
      continue;
    }
    rewriter.UseOrigin(id);
    const Splitter splitter(rewriter.builder(), graph, id, *pieces[i]);
    rewriter.Set({id, 0}, splitter.Split(rewriter.NewOperands(id)[0]));
  }
  return rewriter.Finish();
}

}  // namespace retrograd
