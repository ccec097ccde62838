// Attention backward with dropout: what its operands are, that it is planned like any other, what
// the host makes of it, and who refuses it. That the mask is the one a forward has drawn:
// dropout_mask_test, and on a GPU python/tests/ops/test_attention_dropout.py.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "runtime/ops/attention/attention_facts.h"
#include "tests/catch.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/compare_outputs.h"
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

// Operands' values; every probability is of the order of 1 / keys.
std::vector<Values> InputsOf(const BackwardGraph& graph, uint64_t seed) {
  std::vector<Values> inputs = RandomInputs(graph, seed);
  for (double& lse : inputs[5]) lse = 3;
  inputs[7] = {static_cast<double>(seed * 1234567)};
  inputs[8] = {static_cast<double>(seed * 4)};
  return inputs;
}

TEST_CASE("the host drops out what the reference evaluator does, for every known generator") {
  for (const char* variant : {"cudnn", "flash", "efficient"}) {
    for (const char* bias : {"", "%bias"}) {
      const BackwardGraph graph = Dropout(variant, bias);
      const std::vector<Values> inputs = InputsOf(graph, 3);
      const auto run = RunOnHost(graph, inputs, {});
      INFO(variant << bias << ": " << run.status());
      REQUIRE(run.ok());
      CHECK(CompareWithReference(graph, inputs, run->outputs, 0.02).ToString() == "OK");
      std::vector<Values> others = inputs;
      others[7] = {5};
      CHECK_FALSE(CompareWithReference(graph, others, run->outputs, 0.02).ok());
      others = inputs;
      others[8] = {1024};
      CHECK_FALSE(CompareWithReference(graph, others, run->outputs, 0.02).ok());
    }
  }
}

TEST_CASE("a generator that is not known is refused at load, with the ones that are") {
  for (const char* variant : {"math", ""}) {
    const BackwardGraph graph = Dropout(variant);
    const absl::Status status = RunOnHost(graph, InputsOf(graph, 1), {}).status();
    CHECK(status.code() == absl::StatusCode::kUnimplemented);
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring("p = 0.1") &&
                   ContainsSubstring(absl::StrCat("\"", variant, "\"")) &&
                   ContainsSubstring("torch.nn.attention.sdpa_kernel"));
  }
}

TEST_CASE("a seed or an offset that is not one integer of 32 or 64 bits is refused by name") {
  const BackwardGraph graph = Dropout("flash", "%bias");
  const auto planned = PlanFusion(graph, *LoadDeviceSpec("h200"));
  REQUIRE(planned.ok());
  AttentionRequest request(*CallOf(planned->plan.groups[0]), {});
  CHECK(CheckDropout(request).ok());
  request.dtypes.back() = DType::kUInt8;
  request.call.operands.back().shape = {1};
  CHECK_THAT(
      std::string(CheckDropout(request).message()),
      ContainsSubstring("needs one integer of 32 or 64 bits as dropout's offset, not u8[1]"));
  request.call.operands[AttentionSeed(request.call)].shape = {2};
  CHECK_THAT(std::string(CheckDropout(request).message()),
             ContainsSubstring("as dropout's seed, not i64[2]"));
}

TEST_CASE("a GPU without cuDNN draws the masks itself, but cuDNN's, and takes the next program") {
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const FakeDriver driver(vendor);
  const auto load = [&](const BackwardGraph& graph) {
    const auto planned = PlanFusion(graph, *LoadDeviceSpec(vendor.spec));
    REQUIRE(planned.ok());
    auto compiled = Compile(planned->graph, planned->plan, {.dialect = vendor.dialect});
    REQUIRE(compiled.ok());
    return Load(FakeOptions(vendor), *compiled).status.ToString();
  };
  for (const char* bias : {"", "%bias"}) {
    const std::string status = load(Dropout("cudnn", bias));
    if (vendor.cuda()) {
      CHECK_THAT(status, ContainsSubstring("which are those of a cuDNN that takes the call"));
    } else {
      CHECK(status == "OK");
    }
    for (const char* variant : {"flash", "efficient"}) {
      CHECK(load(Dropout(variant, bias)) == "OK");
    }
  }
  CHECK_THAT(load(Dropout("math")), ContainsSubstring("torch.nn.attention.sdpa_kernel"));
  CHECK(load(*Attention("%bias", "")) == "OK");
}

TEST_CASE("a GPU without cuDNN makes the gradients of the reference") {
  constexpr double kBf16Error = 0.02;  // of the scores' gradients and the results, both rounded
  const Vendor& vendor = RG_EACH_VENDOR();
  INFO(vendor.device);
  const FakeDriver driver(vendor);
  for (const BackwardGraph& graph : {*Attention("%bias", "causal=1"), Dropout("flash", "%bias")}) {
    const std::vector<Values> inputs = InputsOf(graph, 3);
    auto device = MakeDevice(FakeOptions(vendor));
    REQUIRE(device.ok());
    RunSetup setup;
    setup.device = vendor.spec;
    setup.compile.dialect = vendor.dialect;
    const auto ours = RunOnDevice(graph, inputs, setup, **device);
    INFO(ours.status());
    REQUIRE(ours.ok());
    const absl::Status same = CompareWithReference(graph, inputs, ours->outputs, kBf16Error);
    INFO(same);
    CHECK(same.ok());
  }
}

}  // namespace
}  // namespace retrograd
