#include "tests/support/plans/plan_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fusion/ops/matmul/matmul_call.h"
#include "graph/base/status.h"
#include "graph/ir/sorted_indices.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/kernels/kernel_ir_interpreter.h"
#include "tests/support/kernels/sorted_list.h"

namespace retrograd {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kMostPoints = 1 << 20;

template <typename Fn>  // fn(position) row-major; stops at false
bool EveryPlace(absl::Span<const int64_t> extents, Fn fn) {
  std::vector<int64_t> at(extents.size(), 0);
  const int64_t points = Elements(extents);
  for (int64_t p = 0; p < points; ++p) {
    int64_t rest = p;
    for (size_t i = extents.size(); i-- > 0;) {
      at[i] = rest % extents[i];
      rest /= extents[i];
    }
    if (!fn(at)) return false;
  }
  return true;
}

int64_t Dot(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  int64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

bool Holds(const std::vector<Guard>& guards, const std::vector<int64_t>& at) {
  return std::all_of(guards.begin(), guards.end(), [&](const Guard& g) {
    const int64_t v = g.expr.Evaluate(at);
    return g.begin <= v && v < g.end;
  });
}

// What the interpreter takes for granted.
bool WellFormed(const KernelIr& ir) {
  const int n = static_cast<int>(ir.instrs.size()), buffers = static_cast<int>(ir.buffers.size());
  for (int64_t e : ir.extents) {
    if (e < 0) return false;
  }
  if (ir.Points(ir.all_axes()) > kMostPoints) return false;
  const auto inside = [&](const IndexExpr& e) { return (e.axes() & ~ir.all_axes()) == 0; };
  for (int i = 0; i < n; ++i) {
    const Instr& instr = ir.instrs[i];
    AxisMask used = instr.offset.axes();
    if (!inside(instr.offset)) return false;
    for (const Guard& g : instr.guards) {
      if (!inside(g.expr)) return false;
      used |= g.expr.axes();
    }
    for (int o : instr.operands) {
      if (o < 0 || o >= i) return false;
      used |= ir.instrs[o].axes;
    }
    for (const Indirect& ind : instr.indirect) {
      if (ind.instr < 0 || ind.instr >= i) return false;
      used |= ir.instrs[ind.instr].axes;
    }
    if (instr.kind == InstrKind::kReduce) used &= ~instr.reduced;
    if ((used & ~instr.axes) != 0 || (instr.axes & ~ir.all_axes()) != 0) return false;
    if (instr.kind == InstrKind::kReduce && (instr.axes & instr.reduced) != 0) return false;
    if ((instr.reduced & ~ir.all_axes()) != 0) return false;
    if (instr.kind == InstrKind::kLoad && (instr.buffer < 0 || instr.buffer >= buffers))
      return false;
    if (instr.kind == InstrKind::kPointwise) {
      const OpInfo& info = Info(instr.op);
      if (info.pattern != Pattern::kPointwise || info.reference == nullptr ? instr.op != Op::cast
                                                                           : false)
        return false;
      if (static_cast<int>(instr.operands.size()) != info.min_operands) return false;
    }
  }
  for (const Store& s : ir.stores) {
    if (s.instr < 0 || s.instr >= n || s.buffer < 0 || s.buffer >= buffers || !inside(s.offset))
      return false;
    if ((s.offset.axes() & ~ir.instrs[s.instr].axes) != 0) return false;
  }
  if (!ir.scatter) return true;
  const Scatter& s = *ir.scatter;
  if (s.src_instr < 0 || s.src_instr >= n || s.buffer < 0 || s.buffer >= buffers || s.sorted < 0 ||
      s.sorted >= buffers || s.table_rows < 0 || s.table_rows >= (1 << 16)) {
    return false;
  }
  const SortedIndices sorted{.rows = s.table_rows, .indices = ir.Points(s.row_axes)};
  return ir.buffers[s.sorted].dtype == DType::kInt32 &&
         ir.buffers[s.sorted].elements == sorted.elements();
}

// Every access of the kernel stays inside its buffer, whatever the indices are.
bool InBounds(const KernelIr& ir) {
  const auto fits = [&](int64_t low, int64_t high, int buffer) {
    return low >= 0 && high < ir.buffers[buffer].elements;
  };
  return EveryPlace(ir.extents, [&](const std::vector<int64_t>& at) {
    for (const Instr& i : ir.instrs) {
      if (i.kind != InstrKind::kLoad || !Holds(i.guards, at)) continue;
      int64_t low = i.offset.Evaluate(at), high = low;
      bool never = false;
      for (const Indirect& ind : i.indirect) {
        never = never || ind.extent <= 0;
        const int64_t reach = (ind.extent - 1) * ind.stride;
        (reach < 0 ? low : high) += reach;
      }
      if (!never && !fits(low, high, i.buffer)) return false;
    }
    for (const Store& s : ir.stores) {
      const int64_t offset = s.offset.Evaluate(at);
      if (!fits(offset, offset, s.buffer)) return false;
    }
    return true;
  });
}

bool RunKernel(const BackwardGraph& g, const KernelIr& ir,
               std::vector<std::vector<double>>& memory) {
  if (!WellFormed(ir) || !InBounds(ir)) return false;
  BufferValues buffers;
  for (const Buffer& b : ir.buffers) {
    const std::vector<double>& stored = memory[g.value_index(b.value)];
    if (static_cast<int64_t>(stored.size()) != b.elements) return false;
    buffers.push_back(stored);
  }
  buffers = InterpretKernel(ir, std::move(buffers));
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (!ir.buffers[b].written) continue;
    std::vector<double>& stored = memory[g.value_index(ir.buffers[b].value)];
    if (stored.size() != buffers[b].size()) return false;
    for (double& v : buffers[b]) v = RoundTo(ir.buffers[b].dtype, v);
    stored = std::move(buffers[b]);
  }
  return true;
}

bool RunMatMul(const BackwardGraph& g, const Call& call, std::vector<std::vector<double>>& memory) {
  const Shape &left = call.operands[0].shape, &right = call.operands[1].shape,
              &result = call.results[0].shape;
  const size_t rank = left.size();
  if (right.size() != rank || result.size() != rank) return false;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t expected = i + 1 == rank ? right[i] : left[i];
    if (result[i] != expected || (i + 2 < rank && right[i] != left[i])) return false;
  }
  if (left[rank - 1] != right[rank - 2]) return false;
  const MatMulCall c = MatMulOf(call);
  std::vector<int64_t> extents = c.batch;
  extents.push_back(c.m);
  extents.push_back(c.n);
  for (int64_t e : {c.m, c.n, c.k}) {
    if (e < 0 || e > 10'000) return false;
  }
  for (const MatrixOperand* m : {&c.a, &c.b, &c.d}) {
    if (m->batch_strides.size() != c.batch.size()) return false;
  }
  const std::vector<double>& a = memory[g.value_index(c.a.value)];
  const std::vector<double>& b = memory[g.value_index(c.b.value)];
  std::vector<double> d = memory[g.value_index(c.accumulate ? *call.previous : c.d.value)];
  if (d.size() != memory[g.value_index(c.d.value)].size()) return false;
  const size_t batch = c.batch.size();
  const auto in = [](const std::vector<double>& list, int64_t at) {
    return at >= 0 && at < static_cast<int64_t>(list.size());
  };
  const bool fits = EveryPlace(extents, [&](const std::vector<int64_t>& at) {
    const absl::Span<const int64_t> outer = absl::MakeConstSpan(at).subspan(0, batch);
    double sum = 0;
    for (int64_t k = 0; k < c.k; ++k) {
      const int64_t i = c.a.offset + Dot(outer, c.a.batch_strides) + at[batch] * c.a.row_stride +
                        k * c.a.col_stride;
      const int64_t j = c.b.offset + Dot(outer, c.b.batch_strides) + k * c.b.row_stride +
                        at[batch + 1] * c.b.col_stride;
      if (!in(a, i) || !in(b, j)) return false;
      sum += a[i] * b[j];
    }
    const int64_t to = c.d.offset + Dot(outer, c.d.batch_strides) + at[batch] * c.d.row_stride +
                       at[batch + 1] * c.d.col_stride;
    if (!in(d, to)) return false;
    d[to] = (c.accumulate ? d[to] : 0) + sum;
    return true;
  });
  if (fits) memory[g.value_index(c.d.value)] = std::move(d);
  return fits;
}

bool AlwaysMatters(PlanFault fault) {
  switch (fault) {
    case PlanFault::kOpMissing:
    case PlanFault::kOpTwice:
    case PlanFault::kOpElsewhere:
    case PlanFault::kOwnerWrong:
    case PlanFault::kInputMissing:
    case PlanFault::kInputInvented:
    case PlanFault::kOutputMissing:
    case PlanFault::kOutputInvented:
    case PlanFault::kRecomputeUndeclared:
    case PlanFault::kRecomputeInvented:
    case PlanFault::kLayoutChanged:
    case PlanFault::kStoreMissing:
    case PlanFault::kDTypeChanged:
    case PlanFault::kBufferSpan:
    case PlanFault::kBufferDType:
    case PlanFault::kBufferAlignment:
    case PlanFault::kBufferValue:
    case PlanFault::kTemplateWrong:
    case PlanFault::kBlocksWrong:
    case PlanFault::kThreadsWrong:
    case PlanFault::kWidthWrong:
    case PlanFault::kSplitWrong:
    case PlanFault::kWorkspaceSmall:
    case PlanFault::kMatMulDType:
    case PlanFault::kAttentionScale: return true;
    default: return false;
  }
}

// The addresses at which an access of a kernel falls, point by point; -1 where a guard fails.
bool SamePlaces(const KernelIr& ir, const Instr& load, const Store& store) {
  if (!load.indirect.empty()) return false;
  return EveryPlace(ir.extents, [&](const std::vector<int64_t>& at) {
    return Holds(load.guards, at) && load.offset.Evaluate(at) == store.offset.Evaluate(at);
  });
}

int BufferOf(const KernelIr& ir, ValueId v, bool written) {
  for (size_t b = 0; b < ir.buffers.size(); ++b) {
    if (ir.buffers[b].value == v && ir.buffers[b].written == written) return static_cast<int>(b);
  }
  return -1;
}

// Whether each point reads of one buffer just the element that it writes of the other.
bool SameWalk(const KernelIr& ir, int in, int out) {
  const Buffer &a = ir.buffers[in], &b = ir.buffers[out];
  if (SizeBytes(a.dtype) != SizeBytes(b.dtype) || a.elements != b.elements || ir.scatter)
    return false;
  for (const Store& s : ir.stores) {
    if (s.buffer != out) continue;
    for (const Instr& i : ir.instrs) {
      if (i.kind == InstrKind::kLoad && i.buffer == in && !SamePlaces(ir, i, s)) return false;
    }
  }
  return true;
}

}  // namespace

// A sort's list lies without gaps.
void RunSort(const BackwardGraph& g, const Call& call, std::vector<std::vector<double>>& memory) {
  const CallTensor& index = call.operands[0];
  const std::vector<double>& from = memory[g.value_index(index.value)];
  const auto first = from.begin() + index.offset;
  memory[g.value_index(call.results[0].value)] =
      SortedList({first, first + Elements(index.shape)}, call.attributes.Int("rows"));
}

PlanOracle::PlanOracle(const BackwardGraph& graph, const FusionPlan& good, uint32_t seed)
    : g_(graph), good_(good) {
  for (uint32_t draw = 0; draw < 2; ++draw) {
    const std::vector<Values> dense = RandomInputs(g_, seed + 7 * draw);
    Memory memory(g_.num_values());
    size_t next = 0;
    for (uint32_t n = 0; n < g_.num_nodes(); ++n) {
      for (uint32_t r = 0; r < g_.node(NodeId{n}).results.size(); ++r) {
        const ValueId v{NodeId{n}, r};
        const std::vector<int64_t>& strides = good_.layouts[g_.value_index(v)].strides;
        const Shape& shape = g_.type(v).shape;
        if (strides.size() != shape.size()) continue;
        std::vector<double>& at = memory[g_.value_index(v)];
        at.assign(SpanElements(shape, strides), kNan);
        if (g_.op(v.node) != Op::input) continue;
        const Values& values = dense[next];
        size_t i = 0;
        EveryPlace(shape, [&](const std::vector<int64_t>& place) {
          at[Dot(place, strides)] = values[i++];
          return true;
        });
      }
      next += g_.op(NodeId{n}) == Op::input;
    }
    inputs_.push_back(memory);
    RG_CHECK(Run(good_, memory));
    wanted_.push_back(Outputs(memory));
  }
}

bool PlanOracle::Run(const FusionPlan& plan, Memory& memory) const {
  for (const Group& group : plan.groups) {
    for (const KernelBody* kernel : KernelsOf(group)) {
      if (!RunKernel(g_, kernel->ir, memory)) return false;
    }
    const Call* call = CallOf(group);
    if (call != nullptr && call->op == Op::matmul && !RunMatMul(g_, *call, memory)) return false;
    if (call != nullptr && call->op == Op::sort_indices) RunSort(g_, *call, memory);
  }
  return true;
}

// All that groups store: what a fault changes there matters, whether or not an output shows it.
std::vector<double> PlanOracle::Outputs(const Memory& memory) const {
  std::vector<double> all;
  for (const Group& group : good_.groups) {
    for (ValueId v : group.outputs) {
      const std::vector<double>& at = memory[g_.value_index(v)];
      all.insert(all.end(), at.begin(), at.end());
    }
  }
  return all;
}

// What a schedule does between reading and writing is not looked at: a pair that only a schedule
// forbids counts as harmless.
bool PlanOracle::PairMatters(const FusionPlan& plan) const {
  for (const Group& group : plan.groups) {
    for (const Group::InPlace& pair : group.in_place) {
      bool found = CallOf(group) != nullptr && CallOf(group)->op == Op::matmul;
      for (const KernelBody* kernel : KernelsOf(group)) {
        const int in = BufferOf(kernel->ir, pair.input, false);
        const int out = BufferOf(kernel->ir, pair.output, true);
        // Kernels that share a launch read at any time.
        if (in >= 0 && out < 0) return true;
        if (in < 0 || out < 0) continue;
        found = true;
        if (!SameWalk(kernel->ir, in, out)) return true;
      }
      if (!found) return true;
    }
  }
  return false;
}

bool PlanOracle::AttentionMatters(const FusionPlan& plan) const {
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const Call* now = CallOf(plan.groups[i]);
    if (now == nullptr || now->op != Op::attention_backward) continue;
    const Call& then = *CallOf(good_.groups[i]);
    for (auto [a, b] :
         {std::pair{&now->operands, &then.operands}, {&now->results, &then.results}}) {
      for (size_t t = 0; t < a->size(); ++t) {
        const CallTensor &x = (*a)[t], &y = (*b)[t];
        if (x.value != y.value || x.shape != y.shape) return true;
        const bool same = EveryPlace(x.shape, [&](const std::vector<int64_t>& at) {
          return x.offset + Dot(at, x.strides) == y.offset + Dot(at, y.strides);
        });
        if (!same) return true;
      }
    }
  }
  return false;
}

bool PlanOracle::Matters(PlanFault fault, const FusionPlan& plan) const {
  if (AlwaysMatters(fault)) return true;
  if (fault == PlanFault::kInPlaceIllegal) return PairMatters(plan);
  if (fault == PlanFault::kAttentionOperands || fault == PlanFault::kAttentionStride) {
    return AttentionMatters(plan);
  }
  for (size_t draw = 0; draw < inputs_.size(); ++draw) {
    Memory memory = inputs_[draw];
    if (!Run(plan, memory)) return true;
    const std::vector<double> got = Outputs(memory);
    for (size_t i = 0; i < got.size(); ++i) {
      const double want = wanted_[draw][i];
      if (std::isnan(want) && std::isnan(got[i])) continue;
      if (!(std::fabs(got[i] - want) <= 1e-9 * std::fabs(want)) && got[i] != want) return true;
    }
  }
  return false;
}

}  // namespace retrograd
