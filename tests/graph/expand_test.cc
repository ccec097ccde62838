// Composites: their expansion against finite differences of their forward formula.
#include "graph/passes/expand.h"

#include <cmath>
#include <functional>
#include <random>

#include "graph/ir/composites.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

constexpr int64_t kRows = 3, kColumns = 5;
using Matrix = Values;  // [kRows, kColumns], or [kColumns] for weights

Values RandomValues(std::mt19937& rng, size_t count, double low = -2, double high = 2) {
  std::uniform_real_distribution<double> uniform(low, high);
  Values values(count);
  for (double& v : values) v = uniform(rng);
  return values;
}

// d/dx of sum(dy * f(x)), element by element, by central differences.
Values FiniteDifference(const std::function<Matrix(const Values&)>& f, const Values& dy, Values x) {
  const auto objective = [&] {
    const Matrix y = f(x);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  Values gradient(x.size());
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = objective();
    x[i] = at - kStep;
    gradient[i] = (above - objective()) / (2 * kStep);
    x[i] = at;
  }
  return gradient;
}

std::function<Matrix(const Values&)> Elementwise(double (*f)(double)) {
  return [f](const Values& x) {
    Matrix y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
    return y;
  };
}

struct Operand {
  Shape shape;
  Values values;
};

// All results of one composite, expanded and evaluated in float64.
std::vector<Values> Run(Op op, const std::vector<Operand>& operands) {
  GraphBuilder b;
  std::vector<ValueId> ids;
  std::vector<Values> inputs;
  for (const Operand& operand : operands) {
    ids.push_back(b.Input({DType::kFp64, operand.shape}, {}));
    inputs.push_back(operand.values);
  }
  const ValueId node = b.Add(op, ids);
  const size_t results = DefinitionOf(op).results.size();
  for (uint32_t r = 0; r < results; ++r) b.Output({node.node, r}, "");
  auto whole = b.Build();
  REQUIRE(whole.status().ToString() == "OK");
  auto expanded = ExpandComposites(*whole);
  REQUIRE(expanded.status().ToString() == "OK");
  REQUIRE(expanded->Verify().ok());
  auto values = Evaluate(*expanded, inputs);
  REQUIRE(values.status().ToString() == "OK");
  auto direct = Evaluate(*whole, inputs);
  REQUIRE(direct.status().ToString() == "OK");
  std::vector<Values> out;
  for (size_t r = 0; r < results; ++r) {
    out.push_back((*values)[expanded->value_index(*expanded->outputs()[r].value)]);
    CHECK(out.back() == (*direct)[whole->value_index(*whole->outputs()[r].value)]);
  }
  return out;
}

void CheckClose(const Values& got, const Values& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i);
    CHECK(got[i] == Approx(expected[i]).epsilon(1e-6).margin(1e-7));
  }
}

Matrix SoftmaxForward(const Values& x, bool log) {
  Matrix y(x.size());
  for (int64_t i = 0; i < kRows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < kColumns; ++j) sum += std::exp(x[i * kColumns + j]);
    for (int64_t j = 0; j < kColumns; ++j) {
      const double v = x[i * kColumns + j];
      y[i * kColumns + j] = log ? v - std::log(sum) : std::exp(v) / sum;
    }
  }
  return y;
}

struct NormState {
  Values mean, rstd;  // [kRows]
};

NormState Statistics(const Values& x, bool centred) {
  NormState s{Values(kRows), Values(kRows)};
  for (int64_t i = 0; i < kRows; ++i) {
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < kColumns; ++j) sum += x[i * kColumns + j];
    s.mean[i] = centred ? sum / kColumns : 0;
    for (int64_t j = 0; j < kColumns; ++j) {
      const double d = x[i * kColumns + j] - s.mean[i];
      squares += d * d;
    }
    s.rstd[i] = 1 / std::sqrt(squares / kColumns + 1e-5);
  }
  return s;
}

Matrix NormForward(const Values& x, const Values& w, const Values& b, bool centred) {
  const NormState s = Statistics(x, centred);
  Matrix y(x.size());
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      y[i * kColumns + j] = (x[i * kColumns + j] - s.mean[i]) * s.rstd[i] * w[j] + b[j];
    }
  }
  return y;
}

TEST_CASE("activation gradients equal finite differences of the activations") {
  std::mt19937 rng(17);
  const Shape shape = {kRows, kColumns};
  const Values dy = RandomValues(rng, kRows * kColumns), x = RandomValues(rng, kRows * kColumns);
  const auto from_input = [&](Op op, double (*f)(double)) {
    INFO(std::string(Name(op)));
    CheckClose(Run(op, {{shape, dy}, {shape, x}})[0], FiniteDifference(Elementwise(f), dy, x));
  };
  from_input(Op::gelu_backward,
             [](double v) { return v / 2 * (1 + std::erf(v / std::sqrt(2.0))); });
  from_input(Op::gelu_tanh_backward, [](double v) {
    return v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  });
  from_input(Op::silu_backward, [](double v) { return v / (1 + std::exp(-v)); });
  const auto from_output = [&](Op op, double (*f)(double)) {
    INFO(std::string(Name(op)));
    CheckClose(Run(op, {{shape, dy}, {shape, Elementwise(f)(x)}})[0],
               FiniteDifference(Elementwise(f), dy, x));
  };
  from_output(Op::relu_backward, [](double v) { return v > 0 ? v : 0.0; });
  from_output(Op::tanh_backward, [](double v) { return std::tanh(v); });
  from_output(Op::sigmoid_backward, [](double v) { return 1 / (1 + std::exp(-v)); });
}

TEST_CASE("softmax gradients equal finite differences") {
  std::mt19937 rng(18);
  const Shape shape = {kRows, kColumns};
  const Values dy = RandomValues(rng, kRows * kColumns), x = RandomValues(rng, kRows * kColumns);
  for (bool log : {false, true}) {
    const auto forward = [log](const Values& v) { return SoftmaxForward(v, log); };
    CheckClose(Run(log ? Op::log_softmax_backward : Op::softmax_backward,
                   {{shape, dy}, {shape, forward(x)}})[0],
               FiniteDifference(forward, dy, x));
  }
}

TEST_CASE("norm gradients equal finite differences, for input, weight and bias") {
  std::mt19937 rng(19);
  const Shape shape = {kRows, kColumns}, stats = {kRows, 1}, columns = {kColumns};
  const Values dy = RandomValues(rng, kRows * kColumns), x = RandomValues(rng, kRows * kColumns);
  const Values w = RandomValues(rng, kColumns), zero(kColumns, 0.0);
  for (bool centred : {false, true}) {
    const NormState s = Statistics(x, centred);
    const auto of_x = [&](const Values& v) { return NormForward(v, w, zero, centred); };
    const auto of_w = [&](const Values& v) { return NormForward(x, v, zero, centred); };
    const auto of_b = [&](const Values& v) { return NormForward(x, w, v, centred); };
    std::vector<Values> got;
    if (centred) {
      got = Run(Op::layer_norm_backward,
                {{shape, dy}, {shape, x}, {stats, s.mean}, {stats, s.rstd}, {columns, w}});
      REQUIRE(got.size() == 3);
      CheckClose(got[2], FiniteDifference(of_b, dy, zero));
    } else {
      got = Run(Op::rms_norm_backward, {{shape, dy}, {shape, x}, {stats, s.rstd}, {columns, w}});
      REQUIRE(got.size() == 2);
    }
    CheckClose(got[0], FiniteDifference(of_x, dy, x));
    CheckClose(got[1], FiniteDifference(of_w, dy, w));
  }
}

TEST_CASE("every composite row parses, and its primitives carry its name and one instance each") {
  for (const OpInfo& info : AllOps()) {
    if (info.pattern != Pattern::kComposite) continue;
    INFO(std::string(info.name));
    auto definition = ParseDefinition(info.expand);
    REQUIRE(definition.status().ToString() == "OK");
    CHECK(definition->num_operands == info.min_operands);
    CHECK(definition->num_operands == info.max_operands);
    CHECK_FALSE(definition->results.empty());
  }
  auto g = ParseGraph(R"(origin @0 op="aten.gelu_backward" instance=5
%a = input f32[2,4]
%b = gelu_backward %a %a
%c = silu_backward %b %a
%d = silu_backward %c %a
%e = gelu_backward %d %a ; @0
output %e)");
  REQUIRE(g.status().ToString() == "OK");
  auto e = ExpandComposites(*g);
  REQUIRE(e.status().ToString() == "OK");
  std::vector<std::string> seen;
  for (uint32_t i = 1; i < e->num_nodes(); ++i) {
    const Origin* origin = e->origin(NodeId{i});
    REQUIRE(origin != nullptr);
    const std::string name = origin->op + "#" + std::to_string(origin->instance);
    if (seen.empty() || seen.back() != name) seen.push_back(name);
  }
  CHECK(seen == std::vector<std::string>{"gelu_backward#0", "silu_backward#1", "silu_backward#2",
                                         "aten.gelu_backward#5"});
}

TEST_CASE("a definition that is wrong is refused with the place and the reason") {
  const auto error = [](absl::string_view text) {
    return std::string(ParseDefinition(text).status().message());
  };
  CHECK_THAT(error("dx = mul(dy, y)"), ContainsSubstring("-> are missing"));
  CHECK_THAT(error("dy -> dx = mull(dy, dy)"), ContainsSubstring("mull is no pointwise op"));
  CHECK_THAT(error("dy -> dx = mul(dy, z)"), ContainsSubstring("z is neither a name nor a number"));
  CHECK_THAT(error("dy -> dx = mul(dy, dy"), ContainsSubstring("a call is not closed"));
  CHECK_THAT(error("dy -> dy = neg(dy)"), ContainsSubstring("dy is assigned twice"));
}

}  // namespace
}  // namespace retrograd
