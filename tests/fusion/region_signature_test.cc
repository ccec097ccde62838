// What kernels must have in common to share a price.
#include "fusion/analysis/region_signature.h"

#include "fusion/analysis/consumers.h"
#include "fusion/lower/layouts/layouts.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

// Signatures of the graph's kernels of one op each, in the order of `ops`, all of which are stored.
std::vector<std::string> Signatures(absl::string_view text, Op op) {
  const auto parsed = ParseGraph(text);
  INFO(parsed.status());
  REQUIRE(parsed.ok());
  const BackwardGraph& graph = *parsed;
  const std::vector<Layout> layouts = AssignLayouts(graph).of;
  const Consumers consumers(graph);
  NodeNumbers::Table table;
  NodeNumbers numbers(graph, layouts, table);
  std::vector<std::string> signatures;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (graph.op(id) != op) continue;
    signatures.push_back(
        KernelSignature(graph, consumers, std::vector{id}, std::vector{ValueId{id, 0}}, numbers));
  }
  return signatures;
}

// Whether two kernels of the op have one price.
bool Alike(absl::string_view text, Op op = Op::exp) {
  const std::vector<std::string> signatures = Signatures(text, op);
  REQUIRE(signatures.size() == 2);
  return signatures[0] == signatures[1];
}

TEST_CASE("kernels that are equal but for the values' numbers have one signature") {
  CHECK(
      Alike("%a = input f32[64] alignment=16\n%b = input f32[64] alignment=16\n"
            "%c = exp %a\n%d = exp %b\noutput %c\noutput %d"));
}

TEST_CASE("kernels that differ in what they read, store or compute have signatures of their own") {
  // Alignment decides how wide loads are.
  CHECK_FALSE(
      Alike("%a = input f32[64] alignment=16\n%b = input f32[64] alignment=4\n"
            "%c = exp %a\n%d = exp %b\noutput %c\noutput %d"));
  CHECK_FALSE(
      Alike("%a = input f32[64]\n%b = input bf16[64]\n"
            "%c = exp %a\n%d = exp %b\noutput %c\noutput %d"));
  CHECK_FALSE(
      Alike("%a = input f32[8,8]\n%b = input f32[8,8] strides=[1,8]\n"
            "%c = exp %a\n%d = exp %b\noutput %c\noutput %d strides=[8,1]"));
  // What is written for the host does not count as passed on.
  CHECK_FALSE(
      Alike("%a = input f32[64]\n%b = input f32[64]\n"
            "%c = exp %a\n%d = exp %b\n%e = neg %d\noutput %c\noutput %e"));
  CHECK_FALSE(
      Alike("%a = input f32[8,8]\n%b = sum %a axes=[0]\n%c = sum %a axes=[1]\n"
            "output %b\noutput %c",
            Op::sum));
}

}  // namespace
}  // namespace retrograd
