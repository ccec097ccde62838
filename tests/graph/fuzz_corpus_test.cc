// What the fuzzer starts from, and what it once found, under every compiler; and that its edits of
// graphs do what they say.
#include <google/protobuf/stubs/logging.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/fuzz_input.h"
#include "tests/support/graphs/mutation/graph_mutation.h"
#include "tests/support/graphs/mutation/message_mutation.h"

namespace retrograd {
namespace {

std::map<std::string, std::string> Corpus() {
  std::map<std::string, std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(RETROGRAD_SOURCE_DIR "/tests/fuzz/corpus")) {
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] =
        std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  }
  return files;
}

TEST_CASE("every input of the corpus is refused by its code, or planned with all promises kept") {
  std::map<FuzzOutcome, int> outcomes;
  for (const auto& [name, bytes] : Corpus()) {
    INFO(name);
    ++outcomes[RunFuzzInput(bytes)];  // stops the process where a promise is broken
  }
  CHECK(outcomes[FuzzOutcome::kRefused] >= 40);
  CHECK(outcomes[FuzzOutcome::kPlanned] >= 20);
}

TEST_CASE("edited graphs stay legal, differ, and keep every promise when they are planned") {
  std::mt19937 rng(1);
  BackwardGraph graph = SmallestGraph();
  int changed = 0;
  std::set<Op> ops;
  for (int i = 0; i < 1500; ++i) {
    INFO("edit " << i);
    BackwardGraph next = MutateGraph(graph, rng);
    REQUIRE(next.Verify().ToString() == "OK");
    changed += !(next == graph);
    for (uint32_t n = 0; n < next.num_nodes(); ++n) ops.insert(next.op(NodeId{n}));
    graph = next.num_nodes() > 25 ? SmallestGraph() : std::move(next);
    const char header = static_cast<char>(2 * (i % 128));
    if (i % 4 == 0) RunFuzzInput(header + SerializeGraph(graph));
  }
  CHECK(changed > 1000);
  CHECK(ops.size() > kNumOps / 2);
}

TEST_CASE("edits of edited graphs give legal graphs, whatever the seed") {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    BackwardGraph graph = SmallestGraph();
    for (int edit = 0; edit < 14; ++edit) graph = MutateGraph(graph, rng);
    CHECK(graph.Verify().ToString() == "OK");
  }
}

TEST_CASE("edited messages are mostly refused, and never by anything but a code") {
  google::protobuf::SetLogHandler(nullptr);  // it would report each string that is no UTF-8
  std::mt19937 rng(2);
  int refused = 0, loaded = 0;
  for (const auto& [name, bytes] : Corpus()) {
    if (bytes.empty() || (bytes[0] & 1) == kFuzzText) continue;
    for (int i = 0; i < 20; ++i) {
      v1::Graph message;
      if (!message.ParseFromString(bytes.substr(1))) break;
      MutateMessage(message, rng);
      const bool ok = RunFuzzInput(bytes[0] + message.SerializeAsString()) != FuzzOutcome::kRefused;
      ++(ok ? loaded : refused);
    }
  }
  CHECK(refused > loaded);
  CHECK(loaded > 0);
}

// Found by fuzzing: an extent of 0 in one operand only, behind a pad, or under a norm.
TEST_CASE("what holds no element is a constant before it is planned") {
  const auto graph = ParseGraph(R"(
%x = input kind=saved  f32[33,0]
%y = input kind=saved  f32[0,3]
%s = input kind=saved  f32[0,1]
%w = input kind=parameter  f32[3]
%soft = softmax_backward %x %x
%padded = pad %soft low=[0,0] high=[1,2] value=0.5
%e = exp %padded
%norm:3 = layer_norm_backward %y %y %s %s %w
%yt = permute %y perm=[1,0]
%product = matmul %yt %y
%joined = cat %y %norm.0 axis=0
output %e
output %norm.0
output %norm.1
output %norm.2
output %product
output %joined
output %soft
)");
  REQUIRE(graph.status().ToString() == "OK");
  const auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"));
  REQUIRE(planned.status().ToString() == "OK");
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  for (uint32_t n = 0; n < planned->graph.num_nodes(); ++n) {
    const Op op = planned->graph.op(NodeId{n});
    INFO(PrintNode(planned->graph, NodeId{n}));
    CHECK((op == Op::input || op == Op::full || op == Op::copy || op == Op::exp));
  }
}

}  // namespace
}  // namespace retrograd
