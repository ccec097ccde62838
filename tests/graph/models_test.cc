// The registry: every model builds, verifies and survives both file forms; sizes are checked; the
// builders' gradients are those of finite differences.
#include "models/models.h"
#include "models/parameters.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/passes/expand.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

std::string Message(absl::string_view model) {
  const absl::StatusOr<BackwardGraph> graph = BuildModel(model);
  REQUIRE_FALSE(graph.ok());
  return std::string(graph.status().message());
}

TEST_CASE("every model of the registry builds, verifies and comes back from text and protobuf") {
  REQUIRE(AllModels().size() >= 3);
  for (const Model& model : AllModels()) {
    INFO(model.name);
    const absl::StatusOr<BackwardGraph> graph = BuildModel(model.name);
    INFO(graph.status());
    REQUIRE(graph.ok());
    CHECK(graph->Verify().ok());
    CHECK(graph->num_nodes() > 0);
    CHECK_FALSE(graph->outputs().empty());
    CHECK_FALSE(model.description.empty());
    const absl::StatusOr<BackwardGraph> from_text = ParseGraph(Print(*graph));
    INFO(from_text.status());
    REQUIRE(from_text.ok());
    CHECK(*from_text == *graph);
    const absl::StatusOr<BackwardGraph> from_proto = ParseGraphProto(SerializeGraph(*graph));
    INFO(from_proto.status());
    REQUIRE(from_proto.ok());
    CHECK(*from_proto == *graph);
  }
}

TEST_CASE("every choice of every builder builds a graph that verifies") {
  const char* smallest[] = {"mlp:tokens=4,in=3,hidden=5,out=2",
                            "norm_stack:rows=3,columns=4",
                            "transformer:layers=1,d=8,tokens=6,seq=3,heads=2,vocab=5",
                            "bert:layers=1,d=8,heads=2,batch=2,seq=3,vocab=7",
                            "gpt2:layers=1,d=8,heads=2,batch=2,seq=3,vocab=7",
                            "llama:layers=1,d=8,heads=2,kv_heads=1,batch=2,seq=3,ff=12,vocab=7",
                            "vit:layers=1,d=8,heads=2,batch=2,image=4,patch=2,classes=5",
                            "resnet:batch=2,image=32,width=4,classes=5",
                            "moe:tokens=6,experts=4,chosen=2,width=8,inner=5"};
  for (const std::string base : smallest) {
    const std::string name = base.substr(0, base.find(':'));
    const Model* model = nullptr;
    for (const Model& each : AllModels()) {
      if (each.name == name) model = &each;
    }
    REQUIRE(model != nullptr);
    for (const ParameterSpec& parameter : model->parameters) {
      for (size_t i = 0; i < parameter.choices.size(); ++i) {
        const std::string sized = base + "," + std::string(parameter.name) + "=" +
                                  parameter.PrintValue(static_cast<int64_t>(i));
        INFO(sized);
        const absl::StatusOr<BackwardGraph> graph = BuildModel(sized);
        INFO(graph.status());
        REQUIRE(graph.ok());
        CHECK(graph->Verify().ok());
      }
    }
  }
}

TEST_CASE("builders add up nothing in 16 bits: what is summed is fp32, biases and embeddings too") {
  for (const std::string name :
       {"mlp", "norm_stack", "transformer", "bert", "gpt2", "llama", "vit", "moe"}) {
    for (const std::string dtype : {"bf16", "fp16"}) {
      const auto graph = BuildModel(absl::StrCat(name, ":dtype=", dtype));
      INFO(name << " " << dtype << ": " << graph.status());
      REQUIRE(graph.ok());
      const auto expanded = ExpandComposites(*graph);
      REQUIRE(expanded.ok());
      int sums = 0;
      for (uint32_t i = 0; i < expanded->num_nodes(); ++i) {
        const NodeId id{i};
        const Pattern pattern = expanded->pattern(id);
        if (pattern != Pattern::kReduction && pattern != Pattern::kScatter) continue;
        const DType summed = expanded->type(expanded->operands(id)[0]).dtype;
        INFO("%" << i << " " << Name(expanded->op(id)) << " of " << Name(summed));
        CHECK(SizeBytes(summed) > 2);
        ++sums;
      }
      CHECK(sums > 0);
    }
  }
}

TEST_CASE("a transformer of 2300 layers has more than 100,000 nodes") {
  const absl::StatusOr<BackwardGraph> graph = BuildModel("transformer:layers=2300");
  REQUIRE(graph.ok());
  CHECK(graph->num_nodes() > 100000);
}

TEST_CASE("a model's sizes change its graph, and the same text gives the same graph") {
  const absl::StatusOr<BackwardGraph> small = BuildModel("mlp:layers=2,tokens=8");
  const absl::StatusOr<BackwardGraph> again = BuildModel("mlp:tokens=8,layers=2");
  const absl::StatusOr<BackwardGraph> large = BuildModel("mlp:layers=4,tokens=8");
  REQUIRE(small.ok());
  REQUIRE(again.ok());
  REQUIRE(large.ok());
  CHECK(*small == *again);
  CHECK(large->num_nodes() > small->num_nodes());
}

TEST_CASE("an unknown model is refused with the names that are near, or with all of them") {
  CHECK_THAT(Message("transfomer"), ContainsSubstring("did you mean transformer"));
  CHECK_THAT(Message("zzzzzzzzzzzz"), ContainsSubstring("norm_stack"));
  CHECK_THAT(Message(""), ContainsSubstring("no model"));
  CHECK_THAT(Message(std::string(100000, 'x')), ContainsSubstring("no model"));
  CHECK(Message(std::string(100000, 'x')).size() < 2000);
}

TEST_CASE("sizes outside their range, unknown, repeated or malformed are refused by name") {
  CHECK_THAT(Message("mlp:lyers=2"), ContainsSubstring("did you mean layers"));
  CHECK_THAT(Message("mlp:layers=0"), ContainsSubstring("from 1 to 100000"));
  CHECK_THAT(Message("mlp:layers=99999999999999999999"), ContainsSubstring("layers"));
  CHECK_THAT(Message("mlp:layers"), ContainsSubstring("layers is ''"));
  CHECK_THAT(Message("mlp:layers=2,layers=3"), ContainsSubstring("twice"));
  CHECK_THAT(Message("mlp:act=elu"), ContainsSubstring("gelu, gelu_tanh, silu, relu"));
  CHECK_THAT(Message("transformer:d=10,heads=3"), ContainsSubstring("no multiple of heads=3"));
  CHECK_THAT(Message("transformer:kv_heads=5"), ContainsSubstring("kv_heads=5"));
  CHECK_THAT(Message("transformer:tokens=10,seq=4"), ContainsSubstring("seq=4"));
  CHECK_THAT(Message("bert:d=10,heads=3"), ContainsSubstring("no multiple of heads=3"));
  CHECK_THAT(Message("gpt2:d=10,heads=3"), ContainsSubstring("no multiple of heads=3"));
  CHECK_THAT(Message("llama:d=6,heads=2"), ContainsSubstring("2 x heads=2"));
  CHECK_THAT(Message("llama:kv_heads=5"), ContainsSubstring("kv_heads=5"));
  CHECK_THAT(Message("vit:image=30"), ContainsSubstring("patch=16"));
  CHECK_THAT(Message("resnet:image=40"), ContainsSubstring("multiple of 32"));
  CHECK_THAT(Message("moe:experts=4,chosen=5"), ContainsSubstring("chosen=5 experts of 4"));
}

TEST_CASE("a file is opened as one, and one that is missing is named") {
  const absl::StatusOr<BackwardGraph> missing = OpenGraph("no/such/graph.bwd.pb");
  REQUIRE_FALSE(missing.ok());
  CHECK_THAT(std::string(missing.status().message()), ContainsSubstring("no/such/graph.bwd.pb"));
  const absl::StatusOr<BackwardGraph> model = OpenGraph("norm_stack:rows=8,columns=8");
  REQUIRE(model.ok());
  CHECK_FALSE(RecordedBundle("norm_stack").has_value());
}

TEST_CASE("a captured graph takes no sizes and finds what was recorded beside it") {
  bool seen = false;
  for (const Model& model : AllModels()) {
    if (model.kind != ModelKind::kCaptured) continue;
    seen = true;
    CHECK_THAT(Message(model.name + ":layers=3"), ContainsSubstring("captured at one size"));
    const std::optional<std::string> by_name = RecordedBundle(model.name);
    CHECK(by_name == RecordedBundle(model.path));
    CHECK(by_name.value_or("") == model.bundle_path);
  }
  if (!seen) RG_SKIP("models/graphs holds no captured graph");
}

TEST_CASE("a parameter takes every value of its range, the ends included") {
  const ParameterSpec specs[] = {{.name = "layers", .default_value = 4, .min = 2, .max = 8}};
  for (const auto& [text, legal] : {std::pair("layers=1", false),
                                    {"layers=2", true},
                                    {"layers=8", true},
                                    {"layers=9", false}}) {
    INFO(text);
    CHECK(Parameters::Parse("mlp", specs, text).ok() == legal);
  }
}

}  // namespace
}  // namespace retrograd
