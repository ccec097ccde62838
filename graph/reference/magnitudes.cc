// The scale of a tolerance, see reference.h. A bound on how far rounding errors of the operands can
// travel: linear ops carry magnitudes as they carry values; a nonlinear op scales them by its
// derivative, taken here by a central difference.
#include <algorithm>
#include <cmath>

#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/ir/composites.h"
#include "graph/ir/node_rules.h"
#include "graph/reference/library_reference.h"
#include "graph/reference/reference.h"

namespace retrograd {
namespace {

// Magnitude of f at the values x[0..n) whose magnitudes are m[0..n).
double Nonlinear(ReferenceFn f, int n, const double* x, const double* m) {
  const double value = std::fabs(f(x));
  double total = value;
  double moved[4];
  for (int i = 0; i < n; ++i) {
    std::copy(x, x + n, moved);
    const double h = 1e-6 * std::max(1e-6, std::fabs(x[i]));
    moved[i] = x[i] + h;
    const double above = f(moved);
    moved[i] = x[i] - h;
    const double slope = std::fabs(above - f(moved)) / (2 * h);
    // At a pole or the edge of the domain (sqrt of 0) there is no slope to speak of.
    if (std::isfinite(slope)) total += slope * m[i];
  }
  return total;
}

double PointwiseMagnitude(const OpInfo& info, int n, const double* x, const double* m) {
  switch (info.op) {
    case Op::add:
    case Op::sub: return m[0] + m[1];
    case Op::mul: return m[0] * m[1];
    case Op::fma: return m[0] * m[1] + m[2];
    case Op::neg:
    case Op::abs:
    case Op::relu:
    case Op::copy:
    case Op::cast: return m[0];
    case Op::maximum:
    case Op::minimum: return std::max(m[0], m[1]);
    case Op::where: return x[0] != 0 ? m[1] : m[2];
    case Op::sign:
    case Op::floor_pow2:
    case Op::floor: return std::fabs(info.reference(x));
    default: break;
  }
  if (info.type_rule == TypeRule::kCompare || info.type_rule == TypeRule::kLogical) return 1;
  return Nonlinear(info.reference, n, x, m);
}

class MagnitudeWalk {
 public:
  MagnitudeWalk(const BackwardGraph& graph, absl::Span<const Values> values)
      : graph_(graph), values_(values), magnitudes_(graph.num_values()) {}

  absl::StatusOr<std::vector<Values>> Run() {
    for (uint32_t i = 0; i < graph_.num_nodes(); ++i) {
      for (uint32_t r = 0; r < graph_.node(NodeId{i}).results.size(); ++r) {
        const size_t v = graph_.value_index({NodeId{i}, r});
        if (static_cast<int64_t>(values_[v].size()) != graph_.type({NodeId{i}, r}).elements()) {
          return absl::InvalidArgumentError("Magnitudes needs every value; evaluate with keep_all");
        }
        magnitudes_[v].resize(values_[v].size());
      }
      absl::Status status = Walk(NodeId{i});
      if (!status.ok()) return At(NodeName(i, Name(graph_.op(NodeId{i}))), status);
    }
    return std::move(magnitudes_);
  }

 private:
  absl::Status Walk(NodeId id) {
    const Node& node = graph_.node(id);
    const OpInfo& info = Info(node.op);
    std::vector<DenseTensor> exact, magnitudes;
    for (ValueId v : graph_.operands(id)) {
      const size_t index = graph_.value_index(v);
      exact.push_back({&graph_.type(v), values_[index].data()});
      magnitudes.push_back({&graph_.type(v), magnitudes_[index].data()});
    }
    const size_t first = graph_.value_index({id, 0});
    Values& out = magnitudes_[first];
    if (info.pattern == Pattern::kComposite) {
      return absl::UnimplementedError("expand composites before taking magnitudes");
    }
    if (exact.empty()) {
      std::transform(values_[first].begin(), values_[first].end(), out.begin(),
                     [](double v) { return std::fabs(v); });
      return absl::OkStatus();
    }
    if (info.pattern == Pattern::kLibrary) {
      std::vector<double*> results;
      for (size_t r = 0; r < node.results.size(); ++r) {
        results.push_back(magnitudes_[first + r].data());
      }
      return EvaluateLibrary({node.op, node.attrs, magnitudes, exact, node.results, true}, results);
    }
    if (info.pattern == Pattern::kPointwise) {
      Pointwise(info, node.results[0], exact, magnitudes, out);
      return absl::OkStatus();
    }
    if (info.pattern == Pattern::kGather || info.pattern == Pattern::kScatter) {
      magnitudes[1] = exact[1];  // indices
    }
    RG_RETURN_IF_ERROR(
        EvaluateLinear(node.op, node.attrs, magnitudes, node.results[0], {}, out.data()));
    // amin and amax of magnitudes, pads with negative fills: the value itself always counts.
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], std::fabs(values_[first][i]));
    if (node.op == Op::amin) return LargestOf(node, magnitudes[0], out);
    return absl::OkStatus();
  }

  // An error may make any element the least: the largest magnitude bounds what comes out.
  absl::Status LargestOf(const Node& node, const DenseTensor& operand, Values& out) {
    return EvaluateLinear(Op::amax, node.attrs, {operand}, node.results[0], {}, out.data());
  }

  static void Pointwise(const OpInfo& info, const TensorType& result,
                        absl::Span<const DenseTensor> exact,
                        absl::Span<const DenseTensor> magnitudes, Values& out) {
    // Broadcast every operand to the result's shape, values and magnitudes alike.
    const int n = static_cast<int>(exact.size());
    std::vector<Values> x(n, Values(out.size())), m(n, Values(out.size()));
    const ReferenceFn copy = [](const double* v) { return v[0]; };
    for (int k = 0; k < n; ++k) {
      EvaluatePointwise(exact.subspan(k, 1), result, copy, x[k].data());
      EvaluatePointwise(magnitudes.subspan(k, 1), result, copy, m[k].data());
    }
    double xs[4] = {}, ms[4] = {};
    for (size_t i = 0; i < out.size(); ++i) {
      for (int k = 0; k < n; ++k) {
        xs[k] = x[k][i];
        ms[k] = m[k][i];
      }
      out[i] = PointwiseMagnitude(info, n, xs, ms);
    }
  }

  const BackwardGraph& graph_;
  absl::Span<const Values> values_;
  std::vector<Values> magnitudes_;
};

}  // namespace

absl::StatusOr<std::vector<Values>> Magnitudes(const BackwardGraph& graph,
                                               absl::Span<const Values> values) {
  if (values.size() != graph.num_values()) {
    return absl::InvalidArgumentError("Magnitudes needs the values of all of the graph");
  }
  return MagnitudeWalk(graph, values).Run();
}

}  // namespace retrograd
