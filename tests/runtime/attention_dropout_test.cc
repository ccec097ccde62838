// Attention backward with dropout, as far as a machine without cuDNN goes: what its operands are,
// that it is planned like any other, and who refuses it. That the mask is the forward's, only a GPU
// can show: python/tests/test_attention_dropout.py.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

// One layer's attention; `last` are the operands behind the log-sum-exp.
absl::StatusOr<BackwardGraph> Attention(absl::string_view last, absl::string_view attributes) {
  return ParseGraph(absl::Substitute(R"(
%do = input kind=tangent  bf16[2,4,16,8]
%q = input kind=saved  bf16[2,4,16,8]
%k = input kind=saved  bf16[2,2,16,8]
%v = input kind=saved  bf16[2,2,16,8]
%o = input kind=saved  bf16[2,4,16,8]
%lse = input kind=saved  f32[2,4,16]
%bias = input kind=saved  bf16[1,1,16,16]
%seed = input kind=saved  i64[]
%offset = input kind=saved  i64[]
%p = input kind=saved  f32[]
%flag = input kind=saved  bool[]
%g = attention_backward %do %q %k %v %o %lse $0 scale=0.25 $1
output %g.0
output %g.1
output %g.2
)",
                                     last, attributes));
}

BackwardGraph Dropout(absl::string_view variant, absl::string_view bias = "") {
  auto graph = Attention(absl::StrCat(bias, " %seed %offset"),
                         absl::StrCat("causal=1 dropout_p=0.1 variant=\"", variant, "\""));
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

TEST_CASE(
    "with dropout the seed and the offset are the last operands, integers, and without it "
    "there are none") {
  const auto refusal = [](absl::string_view last, absl::string_view attributes) {
    return std::string(Attention(last, attributes).status().message());
  };
  CHECK(refusal("%seed %offset", "dropout_p=0.1").empty());
  CHECK(refusal("%bias %seed %offset", "dropout_p=0.1").empty());
  CHECK(refusal("%bias", "dropout_p=0").empty());
  for (const char* few : {"", "%bias"}) {
    CHECK_THAT(refusal(few, "dropout_p=0.1"), ContainsSubstring("seed and offset last"));
  }
  for (const char* many : {"%seed %offset", "%bias %seed %offset"}) {
    CHECK_THAT(refusal(many, "dropout_p=0"), ContainsSubstring("no more than a bias"));
  }
  CHECK_THAT(refusal("%seed %p", "dropout_p=0.1"), ContainsSubstring("are integers"));
  CHECK_THAT(refusal("%p %offset", "dropout_p=0.1"), ContainsSubstring("are integers"));
  CHECK_THAT(refusal("%seed %flag", "dropout_p=0.1"), ContainsSubstring("are integers"));
  CHECK_THAT(refusal("%seed %offset", "dropout_p=1"), ContainsSubstring("[0, 1)"));
}

TEST_CASE("attention with dropout is planned as one library call that reads seed and offset") {
  const DeviceSpec device = *LoadDeviceSpec("h200");
  for (const char* bias : {"", "%bias"}) {
    const BackwardGraph graph = Dropout("cudnn", bias);
    const auto again = ParseGraph(Print(graph));
    REQUIRE(again.ok());
    CHECK(Print(*again) == Print(graph));
    const auto planned = PlanFusion(graph, device);
    INFO(planned.status());
    REQUIRE(planned.ok());
    CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
    REQUIRE(planned->plan.groups.size() == 1);
    const Call& call = *CallOf(planned->plan.groups[0]);
    REQUIRE(call.operands.size() == graph.operands(call.node).size());
    CHECK(call.operands.back().shape.empty());
    CHECK_THAT(planned->plan.Print(planned->graph), ContainsSubstring("attention 2x4 heads"));
  }
}

TEST_CASE(
    "dropout is refused at load: the host draws no mask of cuDNN's, and nobody one of another "
    "implementation's") {
  const auto refusal = [](absl::string_view variant) {
    const BackwardGraph graph = Dropout(variant);
    const absl::Status status = RunOnHost(graph, RandomInputs(graph, 1), {}).status();
    CHECK(status.code() == absl::StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  CHECK_THAT(refusal("cudnn"), ContainsSubstring("drops out by cuDNN's random numbers") &&
                                   ContainsSubstring("run it on the cuda device"));
  for (const char* variant : {"flash", "efficient", ""}) {
    CHECK_THAT(refusal(variant), ContainsSubstring("p = 0.1") &&
                                     ContainsSubstring(absl::StrCat("\"", variant, "\"")) &&
                                     ContainsSubstring("SDPBackend.CUDNN_ATTENTION"));
  }
}

TEST_CASE("a GPU without cuDNN refuses dropout at load and takes the next program") {
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const FakeDriver driver(vendor);
  const auto load = [&](const BackwardGraph& graph) {
    const auto planned = PlanFusion(graph, *LoadDeviceSpec(vendor.spec));
    REQUIRE(planned.ok());
    auto compiled = Compile(planned->graph, planned->plan, {.dialect = vendor.dialect});
    REQUIRE(compiled.ok());
    return Load(FakeOptions(vendor), *compiled).status;
  };
  for (const char* bias : {"", "%bias"}) {
    const std::string status = load(Dropout("cudnn", bias)).ToString();
    CHECK_THAT(status, ContainsSubstring(vendor.cuda() ? "drops out with p = 0.1 by cuDNN's random "
                                                         "numbers, which only cuDNN draws again"
                                                       : "dropout's mask is cuDNN's"));
  }
  CHECK_THAT(load(Dropout("flash")).ToString(), ContainsSubstring("SDPBackend.CUDNN_ATTENTION"));
  CHECK(load(*Attention("%bias", "")).ToString() == "OK");
}

}  // namespace
}  // namespace retrograd
