// Each kernel of a plan, fed with plan-exact values, against the reference.
//
// Plan-exact: a value is rounded where the plan stores it, where the graph casts it and where a
// comparison reads it, and nowhere else; inside a group it travels unrounded. So what is left is
// the arithmetic inside one kernel. |kernel - reference| <= tol * A, where A is the kernel's
// expression over absolute values and tol is 1e-6 (times max(1, sqrt(n)/64) for sums of n), plus
// one unit in the last place of what is stored.
#include <cmath>

#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/build/build.h"
#include "fusion/planner/planner.h"
#include "graph/base/rounding.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/kernels/kernel_ir_interpreter.h"
#include "tests/support/kernels/run_kernel.h"

namespace retrograd {
namespace {

// A value's elements where its layout puts them.
std::vector<double> Placed(const BackwardGraph& g, const FusionPlan& plan, ValueId v,
                           const Values& dense, int64_t span) {
  std::vector<double> out(span, 0);
  const Shape& shape = g.type(v).shape;
  const std::vector<int64_t>& strides = plan.layouts[g.value_index(v)].strides;
  std::vector<int64_t> at(shape.size(), 0);
  for (double x : dense) {
    int64_t element = 0;
    for (size_t d = 0; d < shape.size(); ++d) element += at[d] * strides[d];
    out[element] = x;
    for (size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

// Evaluates the groups in order; by value_index, of inputs and stored values.
class PlanExactEvaluator {
 public:
  PlanExactEvaluator(const BackwardGraph& g, const FusionPlan& plan)
      : g_(g), plan_(plan), stored_(g.num_values()) {}

  std::vector<Values> Run(const std::vector<Values>& inputs) {
    const std::vector<NodeId> nodes = InputNodes(g_);
    for (size_t i = 0; i < nodes.size(); ++i) stored_[g_.value_index({nodes[i], 0})] = inputs[i];
    for (const Group& group : plan_.groups) {
      here_.assign(g_.num_values(), {});
      for (ValueId v : group.outputs) {
        Values values = At(v, group);
        RoundTo(g_.type(v).dtype, absl::MakeSpan(values));
        stored_[g_.value_index(v)] = std::move(values);
      }
    }
    return std::move(stored_);
  }

 private:
  bool In(const Group& group, NodeId id) const {
    return std::binary_search(group.nodes.begin(), group.nodes.end(), id) ||
           std::binary_search(group.recomputed.begin(), group.recomputed.end(), id);
  }

  const Values& At(ValueId v, const Group& group) {
    const bool source = g_.pattern(v.node) == Pattern::kInput;
    const bool computed = Computes(g_, v.node);
    if (source || (computed && !In(group, v.node))) return stored_[g_.value_index(v)];
    Values& slot = here_[g_.value_index(v)];
    if (slot.empty()) Compute(v.node, group);
    return slot;
  }

  void Compute(NodeId id, const Group& group) {
    const bool compares = Info(g_.op(id)).type_rule == TypeRule::kCompare;
    std::vector<Values> rounded;
    std::vector<const Values*> operands;
    for (ValueId v : g_.operands(id)) {
      rounded.push_back(At(v, group));
      if (compares) RoundTo(g_.type(v).dtype, absl::MakeSpan(rounded.back()));
    }
    for (const Values& v : rounded) operands.push_back(&v);
    auto results = EvaluateNode(g_, id, operands);
    REQUIRE(results.status().ToString() == "OK");
    for (uint32_t r = 0; r < results->size(); ++r) {
      Values& values = (*results)[r];
      if (g_.op(id) == Op::cast) RoundTo(g_.type({id, r}).dtype, absl::MakeSpan(values));
      here_[g_.value_index({id, r})] = std::move(values);
    }
  }

  const BackwardGraph& g_;
  const FusionPlan& plan_;
  std::vector<Values> stored_, here_;
};

std::vector<Values> PlanExact(const BackwardGraph& g, const FusionPlan& plan,
                              const std::vector<Values>& inputs) {
  return PlanExactEvaluator(g, plan).Run(inputs);
}

int64_t LongestSum(const KernelIr& ir) {
  int64_t n = 1;
  for (const Instr& i : ir.instrs) {
    if (i.kind == InstrKind::kReduce || i.kind == InstrKind::kScan)
      n = std::max(n, ir.Points(i.reduced));
  }
  return ir.scatter ? ir.Points(ir.scatter->row_axes) : n;
}

void CheckKernels(const BackwardGraph& graph, const std::vector<Values>& inputs, uint64_t seed) {
  auto device = LoadDeviceSpec("h200");
  // Each kernel in a launch of its own, to look at one at a time.
  auto planned = PlanFusion(graph, *device, {.disable = {"horizontal"}});
  REQUIRE(planned.status().ToString() == "OK");
  const BackwardGraph& g = planned->graph;
  const FusionPlan& plan = planned->plan;
  const std::vector<Values> stored = PlanExact(g, plan, inputs);

  std::vector<GroupKernels> kernels(plan.groups.size());
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const KernelBody* body = KernelOf(plan.groups[i]);
    if (body != nullptr) kernels[i] = EmitGroup(*body, Dialect::kHost);
  }
  HostCompileOptions options;
  options.check = true;
  auto module = HostModule::Compile(DistinctKernels(kernels), options);
  REQUIRE(module.status().ToString() == "OK");
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const KernelBody* body = KernelOf(plan.groups[i]);
    if (body == nullptr) continue;
    const KernelIr& ir = body->ir;
    BufferValues before;
    for (const Buffer& b : ir.buffers) {
      before.push_back(b.written
                           ? std::vector<double>(b.elements, 0)
                           : Placed(g, plan, b.value, stored[g.value_index(b.value)], b.elements));
    }
    auto after = RunKernels(**module, *body, kernels[i], before, seed);
    INFO("group " << i << "\n" << ir.Print());
    REQUIRE(after.status().ToString() == "OK");
    const BufferValues scale = InterpretMagnitudes(ir, before);
    const double n = static_cast<double>(LongestSum(ir));
    const double tol = 1e-6 * std::max(1.0, std::sqrt(n) / 64);
    for (size_t b = 0; b < ir.buffers.size(); ++b) {
      const Buffer& buffer = ir.buffers[b];
      if (!buffer.written) continue;
      const std::vector<double> want =
          Placed(g, plan, buffer.value, stored[g.value_index(buffer.value)], buffer.elements);
      for (size_t e = 0; e < want.size(); ++e) {
        const double got = (*after)[b][e];
        const double bound = tol * scale[b][e] +
                             (IsFloat(buffer.dtype) ? UnitInLastPlace(buffer.dtype, want[e]) : 0);
        if (!(std::fabs(got - want[e]) <= bound) && !(std::isnan(got) && std::isnan(want[e])) &&
            got != want[e]) {
          INFO("b" << b << "[" << e << "]: " << got << " for " << want[e] << ", bound " << bound);
          FAIL("a kernel is less exact than its arithmetic");
        }
      }
    }
  }
}

TEST_CASE("kernels of random graphs are as exact as their arithmetic") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const auto dtypes = seed % 3 == 0   ? RandomGraphOptions::kBf16
                        : seed % 3 == 1 ? RandomGraphOptions::kMixed
                                        : RandomGraphOptions::kFp32;
    const BackwardGraph graph = RandomGraph(seed + 1000, {.dtypes = dtypes, .max_ops = 24});
    INFO("seed " << seed + 1000 << "\n" << Print(graph));
    CheckKernels(graph, RandomInputs(graph, seed), seed);
  }
}

TEST_CASE("kernels of the captured models are as exact as their arithmetic") {
  for (const char* name : {"golf_tiny", "golf_tiny_h200", "bert_tiny_h200", "llama_tiny"}) {
    auto graph = BuildModel(name);
    REQUIRE(graph.status().ToString() == "OK");
    INFO(name);
    CheckKernels(*graph, RandomInputs(*graph, 7), 7);
  }
}

}  // namespace
}  // namespace retrograd
