// The oracle itself: rounding, every op against its formula, the three modes, magnitudes.
#include "graph/reference/reference.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/rounding.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

// The first output of the graph.
Values Run(const BackwardGraph& g, const std::vector<Values>& inputs,
           const ReferenceOptions& options = {}) {
  auto values = Evaluate(g, inputs, options);
  REQUIRE(values.status().ToString() == "OK");
  return (*values)[g.value_index(*g.outputs()[0].value)];
}

Values Run(absl::string_view text, const std::vector<Values>& inputs,
           const ReferenceOptions& options = {}) {
  return Run(Parse(text), inputs, options);
}

TEST_CASE("rounding goes to the nearest value, ties to even, and overflows to infinity") {
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(RoundTo(DType::kBf16, 1 + 1.0 / 256) == 1);             // a tie, to even
  CHECK(RoundTo(DType::kBf16, 1 + 3.0 / 256) == 1 + 1.0 / 64);  // a tie, to even above
  CHECK(RoundTo(DType::kBf16, 1 + 1.01 / 256) == 1 + 1.0 / 128);
  CHECK(RoundTo(DType::kBf16, -3.4e38) == -inf);
  CHECK(RoundTo(DType::kBf16, 3.3895313892515355e38) == 3.3895313892515355e38);
  CHECK(RoundTo(DType::kFp16, 65519) == 65504);
  CHECK(RoundTo(DType::kFp16, 65520) == inf);
  CHECK(RoundTo(DType::kFp16, 1 + 1.0 / 2048) == 1);
  CHECK(RoundTo(DType::kFp16, std::ldexp(1, -24)) == std::ldexp(1, -24));  // smallest subnormal
  CHECK(RoundTo(DType::kFp16, std::ldexp(1, -25)) == 0);
  CHECK(RoundTo(DType::kFp16, std::ldexp(1.5, -24)) == std::ldexp(2, -24));
  CHECK(std::isnan(RoundTo(DType::kBf16, std::nan(""))));
  CHECK(std::signbit(RoundTo(DType::kBf16, -1e-60)));
  CHECK(RoundTo(DType::kInt8, 130) == -126);
  CHECK(RoundTo(DType::kUInt8, -1) == 255);
  CHECK(RoundTo(DType::kInt32, -2.9) == -2);
  CHECK(RoundTo(DType::kInt64, 1e300) == 0);
  CHECK(RoundTo(DType::kBool, 0.25) == 1);
  CHECK(UnitInLastPlace(DType::kBf16, 1) == 1.0 / 128);
  CHECK(UnitInLastPlace(DType::kBf16, 0.99) == 1.0 / 256);
  CHECK(UnitInLastPlace(DType::kFp32, 2) == std::ldexp(1, -22));
}

// Doubles of both signs and all magnitudes, the neighbours of ties of fp16 and bf16 among them.
std::vector<double> ToRound() {
  std::mt19937 rng(3);
  std::vector<double> values = {0.0,   -0.0,  65504,  65519.999,
                                65520, 1e300, 1e-300, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < 2000; ++i) {
    const int exponent = static_cast<int>(rng() % 280) - 150;
    const double significand = 1 + static_cast<double>(rng()) / 4294967296.0;
    values.push_back(std::ldexp(significand, exponent));
    for (const int digits : {8, 11, 24}) {
      const double tie = std::floor(std::ldexp(significand, digits - 1)) + 0.5;
      const int place = exponent - digits + 1;
      for (const double beside : {-1e-9, 0.0, 1e-9}) {
        values.push_back(std::ldexp(tie + beside, place));
      }
    }
  }
  for (size_t i = 0, n = values.size(); i < n; ++i) values.push_back(-values[i]);
  return values;
}

TEST_CASE("rounding moves a value by half a unit in the last place at most, and only once") {
  for (const double value : ToRound()) {
    for (DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
      INFO(Name(dtype) << " of " << absl::StrFormat("%a", value));
      const double once = RoundTo(dtype, value);
      CHECK(RoundTo(dtype, once) == once);
      if (std::isfinite(once)) {
        CHECK(std::fabs(once - value) <= UnitInLastPlace(dtype, value) / 2);
      }
    }
  }
}

#ifdef __FLT16_MAX__
TEST_CASE("rounding to fp16 agrees with the compiler's own conversion") {
  for (const double value : ToRound()) {
    INFO(absl::StrFormat("%a", value));
    const double machine = static_cast<double>(static_cast<_Float16>(value));
    const double rounded = RoundTo(DType::kFp16, value);
    CHECK(rounded == machine);
    CHECK(std::signbit(rounded) == std::signbit(machine));
  }
}
#endif

// bf16 is the upper half of fp32's bits: half of the lower half's range is added, and one less
// where the upper half is even.
float UpperHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits += 0x7fff + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xffff0000);
}

TEST_CASE("rounding fp32 to bf16 agrees with integer arithmetic on its bits, and the compiler's") {
  for (const double drawn : ToRound()) {
    const float value = static_cast<float>(drawn);
    INFO(absl::StrFormat("%a", value));
    const double rounded = RoundTo(DType::kBf16, value);
    CHECK(rounded == static_cast<double>(UpperHalf(value)));
    CHECK(std::signbit(rounded) == std::signbit(value));
#ifdef __BFLT16_MAX__  // from g++ 13 on
    CHECK(rounded == static_cast<double>(static_cast<__bf16>(value)));
#endif
  }
}

TEST_CASE("every pointwise row agrees with its formula, written here a second time") {
  struct Row {
    Op op;
    double (*f)(double, double, double);
  };
  const Row rows[] = {
      {Op::add, [](double a, double b, double) { return a + b; }},
      {Op::sub, [](double a, double b, double) { return a - b; }},
      {Op::mul, [](double a, double b, double) { return a * b; }},
      {Op::div, [](double a, double b, double) { return a / b; }},
      {Op::fma, [](double a, double b, double c) { return a * b + c; }},
      {Op::neg, [](double a, double, double) { return 0 - a; }},
      {Op::abs, [](double a, double, double) { return a < 0 ? -a : a; }},
      {Op::sign, [](double a, double, double) { return a > 0   ? 1.0
                                                       : a < 0 ? -1.0
                                                               : 0.0; }},
      {Op::maximum, [](double a, double b, double) { return a < b ? b : a; }},
      {Op::minimum, [](double a, double b, double) { return a < b ? a : b; }},
      {Op::relu, [](double a, double, double) { return a > 0 ? a : 0.0; }},
      {Op::floor, [](double a, double, double) { return a - (a - std::floor(a)); }},
      {Op::floor_pow2,
       [](double a, double, double) { return std::exp2(std::floor(std::log2(a))); }},
      {Op::reciprocal, [](double a, double, double) { return 1 / a; }},
      {Op::sqrt, [](double a, double, double) { return std::pow(a, 0.5); }},
      {Op::rsqrt, [](double a, double, double) { return std::pow(a, -0.5); }},
      {Op::exp, [](double a, double, double) { return std::pow(M_E, a); }},
      {Op::log, [](double a, double, double) { return std::log2(a) / std::log2(M_E); }},
      {Op::exp2, [](double a, double, double) { return std::pow(2.0, a); }},
      {Op::log2, [](double a, double, double) { return std::log(a) / std::log(2.0); }},
      {Op::log1p, [](double a, double, double) { return std::log(1 + a); }},
      {Op::tanh,
       [](double a, double, double) {
         return (std::exp(a) - std::exp(-a)) / (std::exp(a) + std::exp(-a));
       }},
      {Op::sigmoid, [](double a, double, double) { return std::exp(a) / (1 + std::exp(a)); }},
      {Op::sin, [](double a, double, double) { return std::cos(a - M_PI / 2); }},
      {Op::cos, [](double a, double, double) { return std::sin(a + M_PI / 2); }},
      {Op::erf, [](double a, double, double) { return 1 - std::erfc(a); }},
      {Op::pow, [](double a, double b, double) { return std::exp(b * std::log(a)); }},
      {Op::fmod, [](double a, double b, double) { return a - b * std::trunc(a / b); }},
      {Op::copy, [](double a, double, double) { return a; }},
      {Op::eq, [](double a, double b, double) { return a == b ? 1.0 : 0.0; }},
      {Op::ne, [](double a, double b, double) { return a == b ? 0.0 : 1.0; }},
      {Op::lt, [](double a, double b, double) { return a < b ? 1.0 : 0.0; }},
      {Op::le, [](double a, double b, double) { return b < a ? 0.0 : 1.0; }},
      {Op::gt, [](double a, double b, double) { return b < a ? 1.0 : 0.0; }},
      {Op::ge, [](double a, double b, double) { return a < b ? 0.0 : 1.0; }},
      {Op::logical_and, [](double a, double b, double) { return a * b != 0 ? 1.0 : 0.0; }},
      {Op::logical_or, [](double a, double b, double) { return a + b != 0 ? 1.0 : 0.0; }},
      {Op::logical_not, [](double a, double, double) { return 1 - a; }},
      {Op::where, [](double a, double b, double c) { return a != 0 ? b : c; }},
  };
  std::set<Op> covered;
  std::mt19937 rng(5);
  for (const Row& row : rows) {
    covered.insert(row.op);
    const OpInfo& info = Info(row.op);
    INFO(std::string(info.name));
    const bool logical = info.type_rule == TypeRule::kLogical;
    for (int trial = 0; trial < 50; ++trial) {
      GraphBuilder b;
      std::vector<ValueId> ids;
      std::vector<Values> inputs;
      double x[3] = {};
      for (int k = 0; k < info.min_operands; ++k) {
        const bool boolean = logical || (row.op == Op::where && k == 0);
        x[k] =
            boolean ? static_cast<double>(rng() % 2) : 0.125 * static_cast<double>(1 + rng() % 24);
        if (!boolean && (row.op == Op::relu || row.op == Op::sign || row.op == Op::abs)) {
          x[k] -= 1.5;
        }
        ids.push_back(b.Input({boolean ? DType::kBool : DType::kFp64, {1}}, {}));
        inputs.push_back({x[k]});
      }
      b.Output(b.Add(row.op, ids), "");
      auto g = b.Build();
      REQUIRE(g.status().ToString() == "OK");
      CHECK(Run(*g, inputs)[0] == Approx(row.f(x[0], x[1], x[2])).epsilon(1e-12).margin(1e-12));
    }
  }
  for (const OpInfo& info : AllOps()) {
    if (info.pattern != Pattern::kPointwise || info.reference == nullptr) continue;
    INFO(std::string(info.name));
    CHECK(covered.count(info.op) == 1);  // a new row needs a formula here
  }
}

TEST_CASE("pointwise ops broadcast over every kind of missing dim") {
  CHECK(Run(R"(%a = input f64[2,1,3]
%b = input f64[2,1]
%c = add %a %b
output %c)",
            {{1, 2, 3, 4, 5, 6}, {10, 20}}) ==
        Values{11, 12, 13, 21, 22, 23, 14, 15, 16, 24, 25, 26});
  CHECK(Run("%a = input f64[]\n%b = add %a %a\noutput %b", {{3}}) == Values{6});
  CHECK(Run("%a = input f64[2,0,3]\n%b = add %a %a\noutput %b", {{}}).empty());
}

TEST_CASE("constants, casts and integers") {
  CHECK(Run("%a = iota axis=0 dtype=i64 shape=[3,2] start=5 step=-2\noutput %a", {}) ==
        Values{5, 5, 3, 3, 1, 1});
  CHECK(Run("%a = input f32[4]\n%b = cast %a dtype=i8\noutput %b", {{1.9, -1.9, 300, 0}}) ==
        Values{1, -1, 44, 0});
  CHECK(Run("%a = input i8[2]\n%b = add %a %a\noutput %b", {{100, -100}}) == Values{-56, 56});
  CHECK(Run("%a = input f32[2]\n%b = cast %a dtype=bool\noutput %b", {{0.5, 0}}) == Values{1, 0});
}

TEST_CASE("reductions fold the axes they name, anywhere in the shape") {
  const Values x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};  // [2,3,2]
  const auto reduce = [&](absl::string_view op) {
    return Run(absl::StrCat("%a = input f64[2,3,2]\n%b = ", op, "\noutput %b"), {x});
  };
  CHECK(reduce("sum %a axes=[1]") == Values{9, 12, 27, 30});
  CHECK(reduce("sum %a axes=[0,2] keep=1") == Values{18, 26, 34});
  CHECK(reduce("sum %a axes=[0,1,2]") == Values{78});
  CHECK(reduce("amax %a axes=[0,1]") == Values{11, 12});
  CHECK(reduce("amin %a axes=[2]") == Values{1, 3, 5, 7, 9, 11});
  CHECK(Run("%a = input f64[0,2]\n%b = sum %a axes=[0]\noutput %b", {{}}) == Values{0, 0});
}

TEST_CASE("views read what their definition says") {
  const Values x = {1, 2, 3, 4, 5, 6};  // [2,3]
  const auto view = [&](absl::string_view op) {
    return Run(absl::StrCat("%a = input f64[2,3]\n%b = ", op, "\noutput %b"), {x});
  };
  CHECK(view("permute %a perm=[1,0]") == Values{1, 4, 2, 5, 3, 6});
  CHECK(view("reshape %a shape=[3,2]") == x);
  CHECK(view("expand %a shape=[2,2,3]") == Values{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
  CHECK(view("slice %a axis=1 start=0 stop=3 step=2") == Values{1, 3, 4, 6});
  CHECK(view("slice %a axis=0 start=1 stop=1 step=1").empty());
  CHECK(view("flip %a axes=[0,1]") == Values{6, 5, 4, 3, 2, 1});
  CHECK(view("pad %a low=[0,1] high=[1,0] value=9") == Values{9, 1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 9});
}

TEST_CASE("joins, indexed ops and accumulate") {
  CHECK(Run("%a = input f64[2,1]\n%b = input f64[2,2]\n%c = cat %a %b %a axis=1\noutput %c",
            {{1, 2}, {3, 4, 5, 6}}) == Values{1, 3, 4, 1, 2, 5, 6, 2});
  CHECK(Run("%a = input f64[5]\n%b = input f64[2]\n%c = slice_scatter %a %b axis=0 start=1 stop=4 "
            "step=2\noutput %c",
            {{1, 2, 3, 4, 5}, {8, 9}}) == Values{1, 8, 3, 9, 5});
  CHECK(Run("%a = input f64[3,2]\n%i = input i32[2,2]\n%c = index_select %a %i axis=0\noutput %c",
            {{1, 2, 3, 4, 5, 6}, {2, 0, 1, 1}}) == Values{5, 6, 1, 2, 3, 4, 3, 4});
  CHECK(Run("%a = input f64[2,3]\n%i = input i64[3]\n%c = index_select %a %i axis=1\noutput %c",
            {{1, 2, 3, 4, 5, 6}, {2, 0, 2}}) == Values{3, 1, 3, 6, 4, 6});
  CHECK(Run("%a = input f64[2,3]\n%i = input i64[2,1]\n%c = gather %a %i axis=1\noutput %c",
            {{1, 2, 3, 4, 5, 6}, {2, 0}}) == Values{3, 4});
  CHECK(Run("%a = input f64[2,3]\n%i = input i64[1,3]\n%c = gather %a %i axis=0\noutput %c",
            {{1, 2, 3, 4, 5, 6}, {1, 0, 1}}) == Values{4, 2, 6});
  CHECK(Run("%a = input f64[3,2]\n%i = input i64[3]\n%s = input f64[3,2]\n%c = index_add %a %i %s "
            "axis=0\noutput %c",
            {{0, 0, 0, 0, 100, 100}, {1, 1, 2}, {1, 2, 3, 4, 5, 6}}) ==
        Values{0, 0, 4, 6, 105, 106});
  CHECK(Run("%a = input f64[2]\n%b = input f64[3]\n%c = accumulate %a %b shape=[5] starts=[0,1]\n"
            "output %c",
            {{1, 2}, {10, 20, 30}}) == Values{1, 12, 20, 30, 0});
}

TEST_CASE("an index outside its axis is an error that names the node") {
  const auto g = Parse("%a = input f64[3]\n%i = input i64[1]\n%c = gather %a %i axis=0\noutput %c");
  for (double index : {3.0, -4.0}) {
    const absl::Status status = Evaluate(g, {{1, 2, 3}, {index}}).status();
    CHECK(status.message() ==
          absl::StrCat("node %2 (gather): index ", index, " on an axis of extent 3"));
  }
  CHECK_FALSE(Evaluate(g, {{1, 2, 3}}).ok());
  CHECK_FALSE(Evaluate(g, {{1, 2}, {0}}).ok());
}

TEST_CASE("matmul multiplies batches") {
  CHECK(Run("%a = input f64[2,1,2]\n%b = input f64[2,2,3]\n%c = matmul %a %b\noutput %c",
            {{1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}) ==
        Values{9, 12, 15, 61, 68, 75});
}

// Softmax attention with grouped heads, causal or not, with a bias per key.
struct Attention {
  int64_t batch = 2, heads = 4, kv_heads = 2, queries = 3, keys = 3, width = 2;
  double scale = 0.7;
  bool causal = false, biased = false;

  void Forward(const Values& q, const Values& k, const Values& v, const Values& bias, Values& o,
               Values& lse) const {
    o.assign(batch * heads * queries * width, 0);
    lse.assign(batch * heads * queries, 0);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t g = h / (heads / kv_heads);
        for (int64_t i = 0; i < queries; ++i) {
          std::vector<double> weight(keys);
          double sum = 0;
          for (int64_t j = 0; j < keys; ++j) {
            if (causal && j > i) continue;
            double score = biased ? bias[i * keys + j] : 0;
            for (int64_t d = 0; d < width; ++d) {
              score += scale * q[((b * heads + h) * queries + i) * width + d] *
                       k[((b * kv_heads + g) * keys + j) * width + d];
            }
            sum += weight[j] = std::exp(score);
          }
          const int64_t row = (b * heads + h) * queries + i;
          lse[row] = std::log(sum);
          for (int64_t j = 0; j < keys; ++j) {
            for (int64_t d = 0; d < width; ++d) {
              o[row * width + d] +=
                  weight[j] / sum * v[((b * kv_heads + g) * keys + j) * width + d];
            }
          }
        }
      }
    }
  }
};

TEST_CASE("attention gradients equal finite differences, grouped heads, causal, biased or plain") {
  for (const auto& [causal, biased] :
       {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    Attention a;
    a.causal = causal;
    a.biased = biased;
    INFO("causal " << causal << " biased " << biased);
    std::mt19937 rng(11);
    std::uniform_real_distribution<double> uniform(-1, 1);
    const auto random = [&](int64_t count) {
      Values values(count);
      for (double& v : values) v = uniform(rng);
      return values;
    };
    const int64_t q_count = a.batch * a.heads * a.queries * a.width;
    const int64_t k_count = a.batch * a.kv_heads * a.keys * a.width;
    Values q = random(q_count), k = random(k_count), v = random(k_count);
    const Values d_o = random(q_count);
    Values bias = random(a.queries * a.keys);
    Values o, lse;
    a.Forward(q, k, v, bias, o, lse);
    std::string text = R"(%do = input f64[2,4,3,2]
%q = input f64[2,4,3,2]
%k = input f64[2,2,3,2]
%v = input f64[2,2,3,2]
%o = input f64[2,4,3,2]
%lse = input f64[2,4,3]
)";
    std::vector<Values> inputs = {d_o, q, k, v, o, lse};
    if (biased) {
      absl::StrAppend(&text, "%bias = input f64[3,3]\n");
      inputs.push_back(bias);
    }
    absl::StrAppend(&text, "%d = attention_backward %do %q %k %v %o %lse ", biased ? "%bias " : "",
                    causal ? "causal=1 " : "", biased ? "score_gradient=1 " : "",
                    "scale=0.7\noutput %d.0\noutput %d.1\noutput %d.2\n");
    if (biased) absl::StrAppend(&text, "%db = sum %d.3 axes=[0,1] keep=0\noutput %db\n");
    const BackwardGraph g = Parse(text);
    auto values = Evaluate(g, inputs);
    REQUIRE(values.status().ToString() == "OK");
    const auto objective = [&] {
      Values out, ignored;
      a.Forward(q, k, v, bias, out, ignored);
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) sum += d_o[i] * out[i];
      return sum;
    };
    Values* leaves[] = {&q, &k, &v, &bias};
    for (int r = 0; r < (biased ? 4 : 3); ++r) {
      const Values& got = (*values)[g.value_index(*g.outputs()[r].value)];
      for (size_t i = 0; i < leaves[r]->size(); ++i) {
        double& x = (*leaves[r])[i];
        const double at = x;
        x = at + 1e-5;
        const double above = objective();
        x = at - 1e-5;
        const double slope = (above - objective()) / 2e-5;
        x = at;
        CHECK(got[i] == Approx(slope).epsilon(1e-6).margin(1e-8));
      }
    }
  }
}

TEST_CASE("the modes differ in what they round, and comparisons always see rounded operands") {
  const BackwardGraph g = Parse(R"(%a = input bf16[1]
%one = full dtype=bf16 shape=[] value=1.0
%s = add %a %one
%d = sub %s %one
%c = gt %s %one
%w = where %c %d %a
output %w
output %c)");
  const Values tiny = {1.0 / 512};  // vanishes beside 1 in bf16
  const auto run = [&](ReferenceOptions options) {
    options.keep_all = true;
    auto values = Evaluate(g, {tiny}, options);
    REQUIRE(values.ok());
    return *values;
  };
  const size_t d = 3, c = 4;
  ReferenceOptions options;
  CHECK(run(options)[d][0] == 1.0 / 512);
  CHECK(run(options)[c][0] == 1);
  options.mode = ReferenceOptions::kRoundEveryOp;
  CHECK(run(options)[d][0] == 0);
  CHECK(run(options)[c][0] == 0);
  options.mode = ReferenceOptions::kRoundGiven;
  CHECK(run(options)[d][0] == 1.0 / 512);  // %s stays in a register
  CHECK(run(options)[c][0] == 0);          // and is rounded where it is compared
  options.rounded.assign(g.num_values(), false);
  options.rounded[2] = true;
  CHECK(run(options)[d][0] == 0);
}

TEST_CASE("an accumulate can be evaluated in any given order, and no other") {
  const BackwardGraph g = Parse(R"(%a = input f64[1]
%b = input f64[1]
%c = input f64[1]
%s = accumulate %a %b %c shape=[1] starts=[0,0,0]
output %s)");
  const std::vector<Values> inputs = {{1e17}, {1}, {-1e17}};
  ReferenceOptions options;
  CHECK(Run(g, inputs, options) == Values{0});
  options.accumulate_order[3] = {0, 2, 1};
  CHECK(Run(g, inputs, options) == Values{1});
  options.accumulate_order[3] = {0, 0, 1};
  CHECK_FALSE(Evaluate(g, inputs, options).ok());
}

TEST_CASE("values that nobody asked for are freed") {
  const BackwardGraph g = Parse("%a = input f64[2]\n%b = neg %a\n%c = neg %b\noutput %c");
  auto values = Evaluate(g, {{1, 2}});
  REQUIRE(values.ok());
  CHECK((*values)[1].empty());
  CHECK((*values)[2] == Values{1, 2});
}

TEST_CASE("magnitudes bound the values, and rounding errors stay within their scale") {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    RandomGraphOptions graph_options;
    graph_options.dtypes = RandomGraphOptions::kFp32;
    const BackwardGraph g = RandomGraph(seed, graph_options);
    const std::vector<Values> inputs = RandomInputs(g, seed);
    ReferenceOptions options;
    options.keep_all = true;
    auto exact = Evaluate(g, inputs, options);
    REQUIRE(exact.status().ToString() == "OK");
    auto scale = Magnitudes(g, *exact);
    REQUIRE(scale.status().ToString() == "OK");
    bool compares = false;  // a comparison may flip, and then nothing bounds what follows
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      compares |= Info(g.op(NodeId{i})).type_rule == TypeRule::kCompare;
    }
    options.mode = ReferenceOptions::kRoundEveryOp;
    auto rounded = Evaluate(g, inputs, options);
    REQUIRE(rounded.ok());
    for (size_t v = 0; v < g.num_values(); ++v) {
      for (size_t i = 0; i < (*exact)[v].size(); ++i) {
        REQUIRE(std::isfinite((*exact)[v][i]));
        REQUIRE(std::fabs((*exact)[v][i]) <= (*scale)[v][i] * (1 + 1e-9) + 1e-300);
        if (compares) continue;
        // 40 ops in a row, each half a unit of 2^-24 and more through condition numbers.
        REQUIRE(std::fabs((*exact)[v][i] - (*rounded)[v][i]) <= 1e-5 * (*scale)[v][i]);
      }
    }
  }
}

TEST_CASE("random graphs are legal, repeatable, and together use every kind of op") {
  std::set<Op> seen;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    const BackwardGraph g = RandomGraph(seed);
    REQUIRE(g.Verify().ToString() == "OK");
    for (uint32_t i = 0; i < g.num_nodes(); ++i) seen.insert(g.op(NodeId{i}));
    if (seed % 50 == 0) CHECK(RandomGraph(seed) == g);
  }
  for (Op op : {Op::add,
                Op::mul,
                Op::where,
                Op::cast,
                Op::iota,
                Op::sum,
                Op::amax,
                Op::amin,
                Op::matmul,
                Op::grouped_matmul,
                Op::segment_amax,
                Op::scatter_lines,
                Op::reshape,
                Op::permute,
                Op::expand,
                Op::slice,
                Op::flip,
                Op::pad,
                Op::cat,
                Op::slice_scatter,
                Op::index_select,
                Op::gather,
                Op::index_add,
                Op::accumulate,
                Op::cumsum,
                Op::cumprod,
                Op::convolution,
                Op::convolution_input_gradient,
                Op::convolution_weight_gradient}) {
    INFO(std::string(Name(op)));
    CHECK(seen.count(op) == 1);
  }
}

}  // namespace
}  // namespace retrograd
