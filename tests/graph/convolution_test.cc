// The convolution ops: which nodes are legal, and their references against the definition, written
// here a second time.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/passes/rebatch.h"
#include "graph/passes/simplify.h"
#include "graph/proto/proto.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"

namespace retrograd {
namespace {

std::string Refusal(absl::string_view text) {
  const auto graph = ParseGraph(text);
  return graph.ok() ? "legal" : std::string(graph.status().message());
}

struct Case {
  int64_t batch = 1, groups = 1, in_channels = 1, out_channels = 1;
  std::vector<int64_t> in, kernel, stride, padding, dilation, out;
};

Case RandomCase(std::mt19937& rng) {
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng() % static_cast<uint64_t>(high - low + 1));
  };
  Case c{.batch = draw(1, 2), .groups = draw(1, 3)};
  c.in_channels = c.groups * draw(1, 2);
  c.out_channels = c.groups * draw(1, 2);
  const int64_t dims = draw(1, 3);
  for (int64_t d = 0; d < dims; ++d) {
    c.kernel.push_back(draw(1, 3));
    c.stride.push_back(draw(1, 3));
    c.dilation.push_back(draw(1, 3));
    c.padding.push_back(draw(0, 4));
    const int64_t window = c.dilation[d] * (c.kernel[d] - 1) + 1;
    c.in.push_back(std::max<int64_t>(window - 2 * c.padding[d], 1) + draw(0, 3));
    c.out.push_back((c.in[d] + 2 * c.padding[d] - window) / c.stride[d] + 1);
  }
  return c;
}

Shape Joined(int64_t a, int64_t b, const std::vector<int64_t>& rest) {
  Shape shape = {a, b};
  shape.insert(shape.end(), rest.begin(), rest.end());
  return shape;
}
Shape XShape(const Case& c) { return Joined(c.batch, c.in_channels, c.in); }
Shape WShape(const Case& c) { return Joined(c.out_channels, c.in_channels / c.groups, c.kernel); }
Shape YShape(const Case& c) { return Joined(c.batch, c.out_channels, c.out); }

void ForEach(const Shape& shape, const std::function<void(const std::vector<int64_t>&)>& fn) {
  std::vector<int64_t> index(shape.size());
  for (int64_t i = 0; i < Elements(shape); ++i) {
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0;) {
      index[d] = rest % shape[d];
      rest /= shape[d];
    }
    fn(index);
  }
}

size_t Flat(const Shape& shape, const std::vector<int64_t>& index) {
  int64_t flat = 0;
  for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return static_cast<size_t>(flat);
}

// fn(x, w, y) for every product of the convolution, with flat indices.
void ForEachProduct(const Case& c, const std::function<void(size_t, size_t, size_t)>& fn) {
  const int64_t per_group = c.in_channels / c.groups, k_per_group = c.out_channels / c.groups;
  ForEach(YShape(c), [&](const std::vector<int64_t>& y) {
    ForEach(WShape(c), [&](const std::vector<int64_t>& w) {
      if (w[0] != y[1]) return;
      std::vector<int64_t> x = {y[0], y[1] / k_per_group * per_group + w[1]};
      for (size_t d = 0; d < c.in.size(); ++d) {
        x.push_back(y[d + 2] * c.stride[d] - c.padding[d] + w[d + 2] * c.dilation[d]);
        if (x.back() < 0 || x.back() >= c.in[d]) return;
      }
      fn(Flat(XShape(c), x), Flat(WShape(c), w), Flat(YShape(c), y));
    });
  });
}

std::string Print(const std::vector<int64_t>& list) {
  return absl::StrCat("[", absl::StrJoin(list, ","), "]");
}

std::string GraphText(const Case& c, absl::string_view dtype = "f64") {
  const std::string attrs =
      absl::StrCat(" dilation=", Print(c.dilation), " groups=", c.groups,
                   " padding=", Print(c.padding), " stride=", Print(c.stride));
  return absl::StrCat(
      "%x = input name=\"x\" ", dtype, Print(XShape(c)), "\n%w = input name=\"w\" ", dtype,
      Print(WShape(c)), "\n%dy = input name=\"dy\" ", dtype, Print(YShape(c)),
      "\n%y = convolution %x %w", attrs, "\n%dx = convolution_input_gradient %dy %w", attrs,
      " input_shape=", Print(XShape(c)), "\n%dw = convolution_weight_gradient %dy %x", attrs,
      " weight_shape=", Print(WShape(c)), "\noutput %y\noutput %dx\noutput %dw\n");
}

std::vector<Values> RandomInputs(const BackwardGraph& graph, std::mt19937& rng) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<Values> inputs;
  for (NodeId id : InputNodes(graph)) {
    inputs.emplace_back(graph.type(id).elements());
    for (double& v : inputs.back()) v = uniform(rng);
  }
  return inputs;
}

void CheckNear(const Values& got, const Values& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(1e-12));
}

TEST_CASE("a convolution and its gradients are the sums of the definition's products") {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 rng(seed);
    const Case c = RandomCase(rng);
    const BackwardGraph graph = Parse(GraphText(c));
    INFO("seed " << seed << "\n" << Print(graph));
    const std::vector<Values> in = RandomInputs(graph, rng);
    const auto values = Evaluate(graph, in);
    REQUIRE(values.status().ToString() == "OK");
    Values y(in[2].size()), dx(in[0].size()), dw(in[1].size());
    ForEachProduct(c, [&](size_t x_at, size_t w_at, size_t y_at) {
      y[y_at] += in[0][x_at] * in[1][w_at];
      dx[x_at] += in[2][y_at] * in[1][w_at];
      dw[w_at] += in[2][y_at] * in[0][x_at];
    });
    CheckNear((*values)[3], y);
    CheckNear((*values)[4], dx);
    CheckNear((*values)[5], dw);
  }
}

TEST_CASE("the magnitudes of a convolution are the convolution of the magnitudes") {
  std::mt19937 rng(3);
  const Case c = RandomCase(rng);
  const BackwardGraph graph = Parse(GraphText(c));
  std::vector<Values> in = RandomInputs(graph, rng);
  const auto values = Evaluate(graph, in, {.keep_all = true});
  REQUIRE(values.ok());
  const auto magnitudes = Magnitudes(graph, *values);
  REQUIRE(magnitudes.status().ToString() == "OK");
  for (Values& v : in) {
    for (double& x : v) x = std::fabs(x);
  }
  const auto expected = Evaluate(graph, in);
  REQUIRE(expected.ok());
  for (size_t v : {3, 4, 5}) CheckNear((*magnitudes)[v], (*expected)[v]);
}

TEST_CASE("a result may be wider than its operands, never an integer") {
  const std::string text = R"(%x = input bf16[1,2,4]
%w = input bf16[3,2,1]
%y = convolution %x %w dilation=[1] groups=1 padding=[0] stride=[1] dtype=DTYPE
output %y)";
  const auto with = [&](absl::string_view dtype) {
    std::string changed = text;
    return changed.replace(changed.find("DTYPE"), 5, std::string(dtype));
  };
  CHECK(Parse(with("f32")).type(NodeId{2}).dtype == DType::kFp32);
  CHECK_THAT(Refusal(with("i32")), ContainsSubstring("attribute dtype is i32"));
}

TEST_CASE("convolutions read back from text and from a file") {
  std::mt19937 rng(5);
  for (int trial = 0; trial < 10; ++trial) {
    const BackwardGraph graph = Parse(GraphText(RandomCase(rng), "bf16"));
    CHECK(Parse(Print(graph)) == graph);
    const auto back = ParseGraphProto(SerializeGraph(graph));
    REQUIRE(back.ok());
    CHECK(*back == graph);
  }
}

TEST_CASE("what does not fit is refused with the numbers") {
  const auto forward = [](absl::string_view x, absl::string_view w, absl::string_view attrs) {
    return Refusal(absl::StrCat("%x = input f32", x, "\n%w = input f32", w,
                                "\n%y = convolution %x %w ", attrs, "\noutput %y"));
  };
  const std::string plain = "dilation=[1,1] groups=1 padding=[0,0] stride=[1,1]";
  CHECK(forward("[2,4,8,8]", "[6,4,3,3]", plain) == "legal");
  CHECK_THAT(forward("[2,4,8,8]", "[6,5,3,3]", plain),
             ContainsSubstring("the weight [6,5,3,3] takes 5 channels a group; 4 channels in 1 "
                               "groups are 4"));
  CHECK_THAT(forward("[2,4]", "[6,4]", plain), ContainsSubstring("need one rank of 3 to 5"));
  CHECK_THAT(forward("[2,4,8,8]", "[6,4,3]", plain), ContainsSubstring("need one rank of 3 to 5"));
  CHECK_THAT(
      forward("[2,4,8,8]", "[6,2,3,3]", "dilation=[1,1] groups=3 padding=[0,0] stride=[1,1]"),
      ContainsSubstring("4 input channels and 6 output channels are no multiples of 3"));
  CHECK_THAT(
      forward("[2,4,8,8]", "[6,4,3,3]", "dilation=[1,1] groups=0 padding=[0,0] stride=[1,1]"),
      ContainsSubstring("attribute groups is 0"));
  CHECK_THAT(forward("[2,4,8,8]", "[6,4,3,3]", "dilation=[1,1] groups=1 padding=[0] stride=[1,1]"),
             ContainsSubstring("attribute padding is [0]; 2 spatial dims need 2 numbers"));
  CHECK_THAT(
      forward("[2,4,8,8]", "[6,4,3,3]", "dilation=[1,1] groups=1 padding=[0,0] stride=[1,0]"),
      ContainsSubstring("attribute stride is [1,0]; its numbers lie between 1 and"));
  CHECK_THAT(
      forward("[2,4,8,8]", "[6,4,3,3]", "dilation=[1,1] groups=1 padding=[-1,0] stride=[1,1]"),
      ContainsSubstring("its numbers lie between 0 and"));
  CHECK_THAT(
      forward("[2,4,8,8]", "[6,4,3,3]", "dilation=[1,6] groups=1 padding=[0,2] stride=[1,1]"),
      ContainsSubstring("a window of 13 (kernel 3, dilation 6) does not fit into an extent "
                        "of 12 (8, padded by 2 on both sides)"));
  CHECK_THAT(forward("[2,4,8,8]", "[6,4,0,3]", plain), ContainsSubstring("kernel extent is 0"));
  CHECK_THAT(Refusal("%x = input f32[1,1,4]\n%w = input f16[1,1,1]\n%y = convolution %x %w "
                     "dilation=[1] groups=1 padding=[0] stride=[1]\noutput %y"),
             ContainsSubstring("two of one floating dtype"));
}

TEST_CASE("a gradient that is not the output's is refused with the shape that it needs") {
  const auto input_gradient = [](absl::string_view dy, absl::string_view shape) {
    return Refusal(absl::StrCat("%dy = input f32", dy,
                                "\n%w = input f32[6,4,3]\n%dx = convolution_input_gradient %dy %w "
                                "dilation=[1] groups=1 padding=[1] stride=[2] input_shape=",
                                shape, "\noutput %dx"));
  };
  CHECK(input_gradient("[2,6,4]", "[2,4,7]") == "legal");
  CHECK(input_gradient("[2,6,4]", "[2,4,8]") == "legal");  // a last pixel that no window reads
  CHECK_THAT(input_gradient("[2,6,4]", "[2,4,9]"),
             ContainsSubstring("the output's gradient is f32[2,6,4]; the input [2,4,9], the weight "
                               "[6,4,3] and the attributes give [2,6,5]"));
  CHECK_THAT(input_gradient("[2,6,4]", "[3,4,8]"), ContainsSubstring("give [3,6,4]"));
  CHECK_THAT(input_gradient("[2,6,4]", "[2,4,-8]"), ContainsSubstring("negative extent"));
  CHECK_THAT(Refusal("%dy = input f32[2,6,4]\n%x = input f32[2,4,8]\n"
                     "%dw = convolution_weight_gradient %dy %x dilation=[1] groups=2 padding=[1] "
                     "stride=[2] weight_shape=[6,4,3]\noutput %dw"),
             ContainsSubstring("takes 4 channels a group; 4 channels in 2 groups are 2"));
}

TEST_CASE("the batch scales through convolutions, and the attribute that repeats it follows") {
  const Case c{.batch = 2,
               .groups = 1,
               .in_channels = 3,
               .out_channels = 5,
               .in = {8, 8},
               .kernel = {3, 3},
               .stride = {2, 2},
               .padding = {1, 1},
               .dilation = {1, 1},
               .out = {4, 4}};
  const BackwardGraph graph = Parse(GraphText(c));
  const auto larger = RescaleRows(graph, 4, 1);
  INFO(larger.status());
  REQUIRE(larger.ok());
  CHECK(larger->type(NodeId{3}).shape == Shape{8, 5, 4, 4});
  CHECK(larger->type(NodeId{4}).shape == Shape{8, 3, 8, 8});
  CHECK(larger->type(NodeId{5}).shape == Shape{5, 3, 3, 3});
  const auto again = RescaleRows(*larger, 1, 4);
  REQUIRE(again.ok());
  CHECK(*again == graph);
}

TEST_CASE("rows that a convolution reads as channels or pixels do not scale") {
  const auto scaled = RescaleRows(Parse(R"(%a = input f32[6,4]
%w = input f32[5,6,1]
%r = relu %a
%x = reshape %r shape=[1,6,4]
%y = convolution %x %w dilation=[1] groups=1 padding=[0] stride=[1]
%z = slice %y axis=1 start=0 stop=1 step=1
output %z)"),
                                  2, 1);
  REQUIRE_FALSE(scaled.ok());
  CHECK_THAT(std::string(scaled.status().message()), ContainsSubstring("(convolution)"));
}

TEST_CASE("a convolution over an empty batch is zeros") {
  Case c{.batch = 0,
         .groups = 1,
         .in_channels = 2,
         .out_channels = 3,
         .in = {4},
         .kernel = {3},
         .stride = {1},
         .padding = {0},
         .dilation = {1},
         .out = {2}};
  const BackwardGraph graph = Parse(GraphText(c));
  const auto values = Evaluate(graph, {{}, Values(18, 1.0), {}});
  REQUIRE(values.ok());
  CHECK((*values)[5] == Values(18, 0.0));
  const auto simple = Simplify(graph);
  REQUIRE(simple.ok());
  for (const GraphOutput& output : simple->outputs()) {
    CHECK(simple->op(output.value->node) == Op::full);
  }
}

}  // namespace
}  // namespace retrograd
