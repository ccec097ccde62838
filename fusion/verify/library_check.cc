#include "fusion/verify/library_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/verify/symbolic_value.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}

// Calls fn at places of a tensor: all of a small one, else its corners along each axis and a fixed
// sample.
template <typename Fn>
absl::Status ForPlaces(absl::Span<const int64_t> shape, Fn fn) {
  constexpr int64_t kAll = 512, kSamples = 64;
  const int64_t points = Elements(shape);
  Coords at(shape.size());
  uint64_t random = 2463534242u;
  const bool all = points <= kAll;
  for (int64_t p = 0; p < (all ? points : kSamples); ++p) {
    int64_t rest = p;
    for (size_t i = shape.size(); i-- > 0;) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      const auto drawn = static_cast<int64_t>(random >> 8);
      if (all) {
        at[i] = rest % shape[i];
        rest /= shape[i];
      } else if (drawn % 3 == 0) {
        at[i] = drawn % 2 == 0 ? 0 : shape[i] - 1;
      } else {
        at[i] = (drawn >> 3) % shape[i];
      }
    }
    RG_RETURN_IF_ERROR(fn(at));
  }
  return absl::OkStatus();
}

int64_t Dot(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  int64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<bool> NothingComputed(const BackwardGraph& g) {
  return std::vector<bool>(g.num_nodes(), false);
}

absl::Status CheckLists(const Group& group, std::vector<ValueId> read,
                        std::vector<ValueId> written) {
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  std::sort(written.begin(), written.end());
  if (read != group.inputs) return Broken("P5: its call reads other values than it lists");
  if (written != group.outputs) return Broken("P5: its call writes other values than it lists");
  if (group.workspace_bytes < 0) return Broken("P5: its workspace is negative");
  return absl::OkStatus();
}

class MatMulChecker {
 public:
  MatMulChecker(const BackwardGraph& g, const FusionPlan& plan, const Group& group,
                const MatMulCall& call)
      : g_(g),
        group_(group),
        c_(call),
        graph_(g, plan.layouts, NothingComputed(g), 1),
        layouts_(plan.layouts) {}

  absl::Status Run() {
    const NodeId id = group_.nodes[0];
    if (g_.op(id) != Op::matmul) return Broken("P5: its call multiplies for no matmul");
    const Shape& d = g_.type(id).shape;
    const size_t batch = d.size() - 2;
    const TensorType& a = g_.type(g_.operands(id)[0]);
    if (c_.batch != std::vector<int64_t>(d.begin(), d.end() - 2) || c_.m != d[batch] ||
        c_.n != d[batch + 1] || c_.k != a.shape.back()) {
      return Broken("P5: its matmul is ", c_.m, "x", c_.n, "x", c_.k, ", the graph's is ", d[batch],
                    "x", d[batch + 1], "x", a.shape.back(), " or another batch");
    }
    if (c_.in_dtype != a.dtype) return Broken("P5: its matmul reads another dtype");
    RG_RETURN_IF_ERROR(CheckRead(c_.a, g_.operands(id)[0], "a"));
    RG_RETURN_IF_ERROR(CheckRead(c_.b, g_.operands(id)[1], "b"));
    return CheckResult(id);
  }

 private:
  // One of the two strides is 1, as BLAS has it, wherever it is ever taken.
  absl::Status CheckForm(const MatrixOperand& m, absl::Span<const int64_t> shape,
                         absl::string_view name) const {
    const int64_t rows = shape[shape.size() - 2], columns = shape[shape.size() - 1];
    if (m.batch_strides.size() != c_.batch.size()) {
      return Broken("P5: ", name, " of its matmul has other batch axes");
    }
    if (rows > 1 && columns > 1 && m.row_stride != 1 && m.col_stride != 1) {
      return Broken("P5: ", name, " of its matmul has no unit stride");
    }
    return absl::OkStatus();
  }

  int64_t AddressIn(const MatrixOperand& m, const Coords& at) const {
    const size_t batch = c_.batch.size();
    return m.offset + Dot(absl::MakeConstSpan(at).subspan(0, batch), m.batch_strides) +
           at[batch] * m.row_stride + at[batch + 1] * m.col_stride;
  }

  absl::Status CheckRead(const MatrixOperand& m, ValueId operand, absl::string_view name) {
    const Shape& shape = g_.type(operand).shape;
    RG_RETURN_IF_ERROR(CheckForm(m, shape, name));
    return ForPlaces(shape, [&](const Coords& at) -> absl::Status {
      ValueId stored;
      int64_t address = 0;
      if (graph_.Address(operand, at, stored, address) && stored == m.value &&
          address == AddressIn(m, at)) {
        return absl::OkStatus();
      }
      return Broken("P6: its matmul reads ", name, " elsewhere than where it lies");
    });
  }

  // The result, or what the absorbed ops make of it: a widening, then an accumulate step.
  absl::Status CheckResult(NodeId id) {
    ValueId last{id, 0};
    bool adds = false;
    std::vector<ValueId> steps;  // how each absorbed op reads the one before it
    for (size_t i = 1; i < group_.nodes.size(); ++i) {
      const NodeId next = group_.nodes[i];
      const auto operands = g_.operands(next);
      int mine = -1;
      for (size_t o = 0; o < operands.size(); ++o) {
        ValueId v = operands[o];
        while (g_.pattern(v.node) == Pattern::kView) v = g_.operands(v.node)[0];
        if (v == last) mine = static_cast<int>(o);
      }
      const bool cast = g_.op(next) == Op::cast && !adds;
      const bool add = g_.pattern(next) == Pattern::kAccumulate && operands.size() == 2 && !adds;
      if (mine < 0 || (!cast && !add)) {
        return Broken("P5: its matmul absorbs %", Index(next), ", which it cannot do");
      }
      if (add) RG_RETURN_IF_ERROR(CheckPrevious(next, operands[1 - mine]));
      if (g_.type(operands[mine]).shape != g_.type(next).shape) {
        return Broken("P5: its matmul absorbs %", Index(next), " of another shape");
      }
      adds = adds || add;
      steps.push_back(operands[mine]);
      last = {next, 0};
    }
    if (adds != c_.accumulate) return Broken("P5: its matmul adds, or not, unlike the graph");
    if (c_.d.value != last || c_.out_dtype != g_.type(last).dtype) {
      return Broken("P5: its matmul stores another value or dtype");
    }
    if (group_.nodes.size() == 1 && c_.out_dtype != g_.type(id).dtype) {
      return Broken("P5: its matmul stores another dtype");
    }
    std::vector<ValueId> read = {c_.a.value, c_.b.value};
    if (adds) read.push_back(c_.previous);
    RG_RETURN_IF_ERROR(CheckLists(group_, read, {last}));
    const std::vector<Group::InPlace> pairs =
        adds ? std::vector<Group::InPlace>{{c_.previous, last}} : std::vector<Group::InPlace>{};
    if (group_.in_place != pairs) return Broken("P8: its matmul takes over the wrong bytes");
    RG_RETURN_IF_ERROR(CheckForm(c_.d, g_.type(id).shape, "d"));
    return CheckStored(id, last, steps);
  }

  // beta = 1 adds to the whole of `previous` where it lies.
  absl::Status CheckPrevious(NodeId add, ValueId previous) const {
    const auto starts = g_.node(add).attrs.Ints("starts");
    const bool whole =
        std::all_of(starts.begin(), starts.end(), [](int64_t s) { return s == 0; }) &&
        g_.type(previous) == g_.type(add);
    if (!whole || previous != c_.previous || g_.pattern(previous.node) == Pattern::kView ||
        layouts_[g_.value_index(previous)] != layouts_[g_.value_index({add, 0})]) {
      return Broken("P5: its matmul adds to %", Index(c_.previous.node),
                    ", which the graph's accumulate does not");
    }
    return absl::OkStatus();
  }

  // Element by element of the last op's result: which place of the product it is, and where d puts
  // that place.
  absl::Status CheckStored(NodeId id, ValueId last, const std::vector<ValueId>& steps) {
    const Shape& product = g_.type(id).shape;
    std::vector<Layout> numbered(layouts_.begin(), layouts_.end());
    numbered[g_.value_index({id, 0})].strides = DenseStrides(product);
    for (ValueId step : steps) {
      ValueId v = step;
      while (g_.pattern(v.node) == Pattern::kView) v = g_.operands(v.node)[0];
      numbered[g_.value_index(v)].strides = DenseStrides(g_.type(v).shape);
    }
    const GraphMeaning numbers(g_, numbered, NothingComputed(g_), 1);
    if (Elements(product) != g_.type(last).elements()) {
      return Broken("P5: its matmul stores another number of elements");
    }
    return ForPlaces(g_.type(last).shape, [&](const Coords& at) -> absl::Status {
      ValueId stored;
      int64_t address = 0, number = 0;
      bool known = graph_.Address(last, at, stored, address);
      Coords place = at;
      for (size_t s = steps.size(); s-- > 0 && known;) {
        known = numbers.Address(steps[s], place, stored, number);
        if (known) place = Numbered(number, g_.type(stored).shape);
      }
      if (known && address == AddressIn(c_.d, place)) return absl::OkStatus();
      return Broken("P6: its matmul stores d elsewhere than where it lies");
    });
  }

  static Coords Numbered(int64_t number, const Shape& shape) {
    Coords at(shape.size());
    for (size_t i = shape.size(); i-- > 0;) {
      at[i] = number % shape[i];
      number /= shape[i];
    }
    return at;
  }

  const BackwardGraph& g_;
  const Group& group_;
  const MatMulCall& c_;
  GraphMeaning graph_;
  absl::Span<const Layout> layouts_;
};

absl::Status CheckTensor(const BackwardGraph& g, const GraphMeaning& graph, ValueId v,
                         const AttentionOperand& t) {
  if (t.shape != g.type(v).shape || t.strides.size() != t.shape.size()) {
    return Broken("P5: its attention takes %", Index(v.node), ".", v.result, " for another shape");
  }
  return ForPlaces(t.shape, [&](const Coords& at) -> absl::Status {
    ValueId stored;
    int64_t address = 0;
    if (graph.Address(v, at, stored, address) && stored == t.value &&
        address == t.offset + Dot(at, t.strides)) {
      return absl::OkStatus();
    }
    return Broken("P6: its attention takes %", Index(v.node), ".", v.result,
                  " from elsewhere than where it lies");
  });
}

}  // namespace

absl::Status CheckMatMul(const BackwardGraph& graph, const FusionPlan& plan, const Group& group,
                         const MatMulCall& call) {
  return MatMulChecker(graph, plan, group, call).Run();
}

absl::Status CheckAttention(const BackwardGraph& graph, const FusionPlan& plan, const Group& group,
                            const AttentionCall& call) {
  const NodeId id = group.nodes[0];
  if (graph.op(id) != Op::attention_backward || group.nodes.size() != 1 || call.node != id) {
    return Broken("P5: its call attends for another op");
  }
  const auto operands = graph.operands(id);
  const Node& node = graph.node(id);
  if (call.operands.size() != operands.size() || call.results.size() != node.results.size()) {
    return Broken("P5: its attention has other operands or results");
  }
  if (call.dtype != graph.type(operands[0]).dtype || call.scale != node.attrs.Float("scale", 1) ||
      call.causal != (node.attrs.Int("causal") != 0)) {
    return Broken("P5: its attention has another dtype, scale or mask");
  }
  const GraphMeaning places(graph, plan.layouts, NothingComputed(graph), 1);
  std::vector<ValueId> read, written;
  for (size_t i = 0; i < operands.size(); ++i) {
    RG_RETURN_IF_ERROR(CheckTensor(graph, places, operands[i], call.operands[i]));
    read.push_back(call.operands[i].value);
  }
  for (uint32_t r = 0; r < node.results.size(); ++r) {
    RG_RETURN_IF_ERROR(CheckTensor(graph, places, {id, r}, call.results[r]));
    if (call.results[r].value != ValueId{id, r})
      return Broken("P5: its attention stores elsewhere");
    written.push_back(call.results[r].value);
  }
  if (!group.in_place.empty()) return Broken("P8: its attention takes over bytes");
  return CheckLists(group, read, written);
}

}  // namespace retrograd
