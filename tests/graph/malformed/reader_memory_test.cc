// What the reader takes: of files that swell, of malformed graphs and of the largest legal ones.
// Memory is bounded by a multiple of a file's size.
#include <malloc.h>

#include <ctime>
#include <fstream>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "graph/proto/proto.h"
#include "tests/catch.h"
#include "tests/support/graphs/malformed_graphs.h"

namespace retrograd {
namespace {

// Peak resident memory in bytes since the last call; -1 where the system does not tell.
int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  int64_t peak = -1;
  while (std::getline(status, line)) {
    int64_t kib;
    if (absl::StartsWith(line, "VmHWM:") &&
        absl::SimpleAtoi(absl::string_view(line).substr(6, line.find("kB") - 6), &kib)) {
      peak = kib * 1024;
    }
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return peak;
}

std::string Repeat(const std::string& text, size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST_CASE("files that swell when they are read are refused within 8 times their size + 64 MiB") {
  using M = Malformation;
  struct Bomb {
    absl::string_view name;
    Malformation kind;
    std::string bytes;
  };
  std::string names_nothing;  // legal inputs, as many as may be, then one that is not
  for (uint32_t id = 0; id < (1u << 18) - 1; ++id) {
    v1::Node node;
    node.set_id(id);
    node.set_op("input");
    node.add_results()->set_dtype(v1::DTYPE_FP32);
    node.mutable_input()->set_kind(v1::INPUT_SAVED);
    names_nothing += Delimited(7, node.SerializeAsString());
  }
  names_nothing += Delimited(7, "");
  v1::Node first;
  first.set_op("input");
  first.add_results()->set_dtype(v1::DTYPE_FP32);
  first.mutable_input()->set_kind(v1::INPUT_SAVED);
  const std::string input = first.SerializeAsString();
  const std::string type = Delimited(4, "");
  const Bomb bombs[] = {
      {"empty nodes", M::kTooMany, kVersion1 + Repeat(Delimited(7, ""), 5'000'000)},
      {"empty origins", M::kTooMany,
       kVersion1 + Repeat(Delimited(6, ""), 5'000'000) + Delimited(7, "")},
      {"empty outputs", M::kTooMany,
       kVersion1 + Repeat(Delimited(8, ""), 5'000'000) + Delimited(7, "")},
      {"empty operands", M::kTooMany,
       kVersion1 + Delimited(7, Repeat(Delimited(3, ""), 5'000'000))},
      {"empty types", M::kTooMany, kVersion1 + Delimited(7, Repeat(type, 5'000'000))},
      {"empty attributes", M::kTooMany,
       kVersion1 + Delimited(7, Repeat(Delimited(5, ""), 5'000'000))},
      {"unknown fields", M::kTooMany,
       kVersion1 + Delimited(7, Repeat(std::string("\xa0\x06\x01", 3), 5'000'000))},
      {"a long list", M::kTooMany,
       kVersion1 +
           Delimited(7, Delimited(5, Delimited(5, Delimited(1, Repeat("\x01", 20'000'000)))))},
      {"many dims", M::kRankTooLarge,
       kVersion1 + Delimited(7, Delimited(4, Delimited(2, Repeat("\x01", 20'000'000))))},
      {"a long name", M::kBadString,
       kVersion1 + Delimited(7, Delimited(2, Repeat("a", 20'000'000)))},
      {"empty symbols", M::kTooMany,
       kVersion1 + Delimited(7, input) + Delimited(9, Repeat(Delimited(1, ""), 5'000'000))},
      {"sizes of many terms", M::kTooMany,
       kVersion1 + Delimited(7, input) +
           Delimited(9, Repeat(Delimited(3, Repeat(Delimited(1, ""), 200'000)), 20))},
      {"a full graph whose last node is empty", M::kUnknownOp, kVersion1 + names_nothing},
  };
  for (const Bomb& bomb : bombs) {
    INFO(std::string(bomb.name) << ", " << bomb.bytes.size() << " bytes");
    malloc_trim(0);  // what was freed before must not hide what is taken now
    PeakBytes();
    const int64_t before = PeakBytes();
    CheckRefused(bomb.bytes, bomb.kind, "");
    const int64_t peak = PeakBytes();
    if (before < 0) continue;
    INFO("peak " << peak - before << " bytes");
    // The bytes themselves are the test's.
    CHECK(peak - before <= 7 * static_cast<int64_t>(bomb.bytes.size()) + (int64_t{64} << 20));
  }
}

TEST_CASE("each malformation is refused within 64 MiB") {
  for (const MalformedGraph& c : MalformedGraphs()) {
    INFO(std::string(c.name));
    v1::Graph g = LegalMessage();
    c.spoil(g);
    const std::string bytes = g.SerializeAsString();
    malloc_trim(0);
    PeakBytes();
    const int64_t before = PeakBytes();
    CheckRefused(bytes, c.kind, c.place);
    const int64_t peak = PeakBytes();
    if (before < 0) continue;
    CHECK(peak - before <= 8 * static_cast<int64_t>(bytes.size()) + (int64_t{64} << 20));
  }
}

// A node of one operand, as SerializeGraph writes it.
std::string Unary(uint32_t id, const std::string& op, uint32_t operand, const v1::TensorType& type,
                  const std::function<void(v1::Node*)>& attributes = nullptr) {
  v1::Node node;
  node.set_id(id);
  node.set_op(op);
  node.add_operands()->set_node(operand);
  *node.add_results() = type;
  if (attributes) attributes(&node);
  return Delimited(7, node.SerializeAsString());
}

std::string InputBytes(const v1::TensorType& type) {
  v1::Node node;
  node.set_op("input");
  *node.add_results() = type;
  node.mutable_input()->set_kind(v1::INPUT_SAVED);
  return Delimited(7, node.SerializeAsString());
}

// Graphs as large as are allowed, which are legal: nothing but their size is suspicious.
struct Large {
  std::string name, bytes;
};

std::vector<Large> LargeGraphs() {
  constexpr uint32_t kNodes = 1u << 18;
  v1::TensorType type;
  type.set_dtype(v1::DTYPE_FP32);
  SetShape(&type, {4, 8});
  v1::TensorType huge = type;
  SetShape(&huge, {int64_t{1} << 24, int64_t{1} << 24});
  const auto chain = [&](const std::string& op, const v1::TensorType& of,
                         const std::function<void(v1::Node*)>& attributes) {
    std::string bytes = kVersion1 + InputBytes(of);
    for (uint32_t id = 1; id < kNodes; ++id) bytes += Unary(id, op, id - 1, of, attributes);
    v1::Output output;
    output.mutable_value()->set_node(kNodes - 1);
    return bytes + Delimited(8, output.SerializeAsString());
  };
  std::vector<Large> graphs;
  graphs.push_back({"a chain as deep as can be", chain("relu", type, nullptr)});
  graphs.push_back({"a chain of views as deep as can be",
                    chain("flip", type, [](v1::Node* node) { SetInts(node, "axes", {1}); })});
  graphs.push_back({"huge tensors", chain("relu", huge, nullptr)});
  graphs.push_back({"long names", chain("relu", type, nullptr) +
                                      Repeat(Delimited(6,
                                                       [] {
                                                         v1::Origin origin;
                                                         origin.set_module_path(
                                                             std::string(200, 'm'));
                                                         return origin.SerializeAsString();
                                                       }()),
                                             100'000)});
  std::string fan = kVersion1 + InputBytes(type);
  for (uint32_t id = 1; id < kNodes; ++id) fan += Unary(id, "relu", 0, type);
  graphs.push_back({"one value that all others read", fan});
  return graphs;
}

TEST_CASE("the largest legal graphs load within two seconds and 8 times their size + 64 MiB") {
  for (const Large& large : LargeGraphs()) {
    INFO(large.name << ", " << large.bytes.size() << " bytes");
    malloc_trim(0);
    PeakBytes();
    const int64_t before = PeakBytes();
    const std::clock_t begin = std::clock();
    const absl::StatusOr<BackwardGraph> graph = ParseGraphProto(large.bytes);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    const int64_t peak = PeakBytes();
    REQUIRE(graph.status().ToString() == "OK");
    INFO(seconds << " s, " << peak - before << " bytes");
    CHECK(seconds < 2);
    if (before < 0) continue;
    CHECK(peak - before <= 7 * static_cast<int64_t>(large.bytes.size()) + (int64_t{64} << 20));
  }
}

}  // namespace
}  // namespace retrograd
