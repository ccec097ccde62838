#include "fusion/verify/call_check.h"

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

// The tensor that a call is told of, against the value that the graph names.
absl::Status CheckTensor(const BackwardGraph& g, const GraphMeaning& graph, ValueId v,
                         const CallTensor& t) {
  if (t.shape != g.type(v).shape || t.strides.size() != t.shape.size()) {
    return Broken("P5: its call takes %", Index(v.node), ".", v.result, " for another shape");
  }
  if (t.dtype != g.type(v).dtype) {
    return Broken("P5: its call takes %", Index(v.node), ".", v.result, " for another dtype");
  }
  return ForPlaces(t.shape, [&](const Coords& at) -> absl::Status {
    ValueId stored;
    int64_t address = 0;
    if (graph.Address(v, at, stored, address) && stored == t.value &&
        address == t.offset + Dot(at, t.strides)) {
      return absl::OkStatus();
    }
    return Broken("P6: its call takes %", Index(v.node), ".", v.result,
                  " from elsewhere than where it lies");
  });
}

// BLAS takes rows, or columns, of unit stride, wherever it ever steps along both.
absl::Status CheckMatrix(const CallTensor& t, absl::string_view name) {
  const size_t rank = t.shape.size();
  if (rank < 2) return Broken("P5: ", name, " of its matmul is no matrix");
  if (t.shape[rank - 2] > 1 && t.shape[rank - 1] > 1 && t.strides[rank - 2] != 1 &&
      t.strides[rank - 1] != 1) {
    return Broken("P5: ", name, " of its matmul has no unit stride");
  }
  return absl::OkStatus();
}

absl::Status CheckMatMulForm(const Call& call) {
  RG_RETURN_IF_ERROR(CheckMatrix(call.operands[0], "a"));
  RG_RETURN_IF_ERROR(CheckMatrix(call.operands[1], "b"));
  return CheckMatrix(call.results[0], "d");
}

absl::Status CheckAttentionForm(const Call& call) {
  for (const std::vector<CallTensor>* list : {&call.operands, &call.results}) {
    for (const CallTensor& t : *list) {
      if (t.shape.size() == 4 && t.shape[3] > 1 && t.strides[3] != 1) {
        return Broken("P5: a head of its attention has no unit stride");
      }
    }
  }
  return absl::OkStatus();
}

// Whether the dims after the first nest one in the next, the channels before or after the
// pixels.
bool NestsWithoutGaps(const CallTensor& t, bool channels_innermost) {
  int64_t elements = 1;
  const auto nests = [&](size_t dim) {
    const bool fits = t.shape[dim] == 1 || t.strides[dim] == elements;
    elements *= t.shape[dim];
    return fits;
  };
  bool all = !channels_innermost || nests(1);
  for (size_t dim = t.shape.size() - 1; dim >= 2; --dim) all = nests(dim) && all;
  if (!channels_innermost) all = nests(1) && all;
  return nests(0) && all;
}

absl::Status CheckConvolutionForm(const Call& call) {
  for (const std::vector<CallTensor>* list : {&call.operands, &call.results}) {
    for (const CallTensor& t : *list) {
      if (NestsWithoutGaps(t, true) || NestsWithoutGaps(t, false)) continue;
      return Broken("P5: its convolution's tensor has gaps, or its channels amid its pixels");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSortForm(const Call& call) {
  for (const CallTensor* t : {&call.operands[0], &call.results[0]}) {
    if (t->shape.size() != 1 || (t->shape[0] > 1 && t->strides[0] != 1)) {
      return Broken("P5: its sort's indices are no list without gaps");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroupedMatMulForm(const Call& call) {
  RG_RETURN_IF_ERROR(CheckMatMulForm(call));
  const CallTensor& ends = call.operands[2];
  if (ends.shape.size() != 1 || (ends.shape[0] > 1 && ends.strides[0] != 1)) {
    return Broken("P5: the ends of its groups are no list without gaps");
  }
  return absl::OkStatus();
}

// Whether its elements lie row by row without gaps.
bool IsDense(const CallTensor& t) {
  int64_t elements = 1;
  bool dense = true;
  for (size_t dim = t.shape.size(); dim-- > 0;) {
    dense = dense && (t.shape[dim] == 1 || t.strides[dim] == elements);
    elements *= t.shape[dim];
  }
  return dense || elements == 0;
}

absl::Status CheckDenseForm(const Call& call) {
  for (const std::vector<CallTensor>* tensors : {&call.operands, &call.results}) {
    if (!std::all_of(tensors->begin(), tensors->end(), IsDense)) {
      return Broken("P5: a tensor of its ", Name(call.op), " has gaps");
    }
  }
  return absl::OkStatus();
}

// Of more than two axes, those before and behind the groups' are one axis each.
absl::Status CheckSegmentAmaxForm(const Call& call) {
  for (const CallTensor* t : {&call.operands[0], &call.results[0]}) {
    if (t->shape.size() != 2 && !IsDense(*t)) {
      return Broken("P5: a tensor of its segment_amax has gaps");
    }
  }
  const CallTensor& ends = call.operands[1];
  if (ends.shape.size() != 1 || (ends.shape[0] > 1 && ends.strides[0] != 1)) {
    return Broken("P5: the ends of its groups are no list without gaps");
  }
  return absl::OkStatus();
}

// What a library asks of its operands beyond what the graph says, and what its call may do beside.
struct CallRule {
  Op op;
  absl::Status (*form)(const Call& call);
  bool widens = false, adds = false;  // a widening to fp32, then an accumulate step
};
constexpr CallRule kRules[] = {
    {Op::matmul, CheckMatMulForm, true, true},
    {Op::grouped_matmul, CheckGroupedMatMulForm, true, true},
    {Op::segment_amax, CheckSegmentAmaxForm},
    {Op::scatter_lines, CheckDenseForm},
    {Op::sort_indices, CheckSortForm},
    {Op::attention_backward, CheckAttentionForm},
    {Op::convolution, CheckConvolutionForm},
    {Op::convolution_input_gradient, CheckConvolutionForm, true},
    {Op::convolution_weight_gradient, CheckConvolutionForm, true},
};

class CallChecker {
 public:
  CallChecker(const BackwardGraph& g, const FusionPlan& plan, const Group& group, const Call& call)
      : g_(g),
        group_(group),
        c_(call),
        graph_(g, plan.layouts, NothingComputed(g), 1),
        layouts_(plan.layouts) {}

  absl::Status Run() {
    const NodeId id = group_.nodes[0];
    if (c_.node != id || c_.op != g_.op(id)) return Broken("P5: its call is of another op");
    const CallRule* rule = nullptr;
    for (const CallRule& r : kRules) {
      if (r.op == c_.op) rule = &r;
    }
    if (rule == nullptr) return Broken("P5: its call is of an op that no library makes");
    if (c_.attributes != g_.node(id).attrs) return Broken("P5: its call has other attributes");
    if (c_.tf32 != g_.numerics().allow_tf32) return Broken("P5: its call has other numerics");
    const absl::Span<const ValueId> operands = g_.operands(id);
    const size_t results = g_.node(id).results.size();
    if (c_.operands.size() != operands.size() || c_.results.size() != results) {
      return Broken("P5: its call has other operands or results");
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      RG_RETURN_IF_ERROR(CheckTensor(g_, graph_, operands[i], c_.operands[i]));
    }
    if (rule->widens || rule->adds) {
      RG_RETURN_IF_ERROR(CheckAbsorbed(id, *rule));
    } else {
      RG_RETURN_IF_ERROR(CheckResults(id));
    }
    return rule->form(c_);
  }

 private:
  std::vector<ValueId> ValuesOf(const std::vector<CallTensor>& tensors) const {
    std::vector<ValueId> values;
    for (const CallTensor& t : tensors) values.push_back(t.value);
    return values;
  }

  // Of a call that makes its op alone.
  absl::Status CheckResults(NodeId id) {
    if (group_.nodes.size() != 1 || c_.previous) {
      return Broken("P5: its call absorbs ops, which it cannot do");
    }
    for (uint32_t r = 0; r < c_.results.size(); ++r) {
      RG_RETURN_IF_ERROR(CheckTensor(g_, graph_, {id, r}, c_.results[r]));
      if (c_.results[r].value != ValueId{id, r}) return Broken("P5: its call stores elsewhere");
    }
    if (!group_.in_place.empty()) return Broken("P8: its call takes over bytes");
    return CheckLists(group_, ValuesOf(c_.operands), ValuesOf(c_.results));
  }

  // The result, or what the absorbed ops make of it: a widening, then an accumulate step.
  absl::Status CheckAbsorbed(NodeId id, const CallRule& rule) {
    const CallTensor& d = c_.results[0];
    if (d.shape != g_.type(id).shape || d.strides.size() != d.shape.size()) {
      return Broken("P5: its call makes a result of another shape");
    }
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
      const bool cast = rule.widens && g_.op(next) == Op::cast && !adds;
      const bool add =
          rule.adds && g_.pattern(next) == Pattern::kAccumulate && operands.size() == 2 && !adds;
      if (mine < 0 || (!cast && !add)) {
        return Broken("P5: its call absorbs %", Index(next), ", which it cannot do");
      }
      if (add) RG_RETURN_IF_ERROR(CheckPrevious(next, operands[1 - mine]));
      if (g_.type(operands[mine]).shape != g_.type(next).shape) {
        return Broken("P5: its call absorbs %", Index(next), " of another shape");
      }
      adds = adds || add;
      steps.push_back(operands[mine]);
      last = {next, 0};
    }
    if (adds != c_.previous.has_value()) {
      return Broken("P5: its call adds, or not, unlike the graph");
    }
    if (d.value != last || d.dtype != g_.type(last).dtype) {
      return Broken("P5: its call stores another value or dtype");
    }
    std::vector<ValueId> read = ValuesOf(c_.operands);
    if (adds) read.push_back(*c_.previous);
    RG_RETURN_IF_ERROR(CheckLists(group_, read, {last}));
    const std::vector<Group::InPlace> pairs =
        adds ? std::vector<Group::InPlace>{{*c_.previous, last}} : std::vector<Group::InPlace>{};
    if (group_.in_place != pairs) return Broken("P8: its call takes over the wrong bytes");
    return CheckStored(id, last, steps);
  }

  // beta = 1 adds to the whole of `previous` where it lies.
  absl::Status CheckPrevious(NodeId add, ValueId previous) const {
    const auto starts = g_.node(add).attrs.Ints("starts");
    const bool whole =
        std::all_of(starts.begin(), starts.end(), [](int64_t s) { return s == 0; }) &&
        g_.type(previous) == g_.type(add);
    if (!c_.previous || !whole || previous != *c_.previous ||
        g_.pattern(previous.node) == Pattern::kView ||
        layouts_[g_.value_index(previous)] != layouts_[g_.value_index({add, 0})]) {
      return Broken("P5: its call adds to %", Index(previous.node),
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
      return Broken("P5: its call stores another number of elements");
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
      if (known && address == c_.results[0].offset + Dot(place, c_.results[0].strides))
        return absl::OkStatus();
      return Broken("P6: its call stores its result elsewhere than where it lies");
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
  const Call& c_;
  GraphMeaning graph_;
  absl::Span<const Layout> layouts_;
};

}  // namespace

absl::Status CheckCall(const BackwardGraph& graph, const FusionPlan& plan, const Group& group,
                       const Call& call) {
  return CallChecker(graph, plan, group, call).Run();
}

}  // namespace retrograd
