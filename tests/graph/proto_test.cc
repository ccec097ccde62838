// The interchange form: round trips and files. Refusals are in malformed_test.cc.
#include "graph/proto/proto.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "graph/ir/node_rules.h"
#include "graph/proto/graph.pb.h"
#include "graph/proto/proto_scan.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

BackwardGraph SmallGraph() {
  auto g = ParseGraph(R"(graph "small"
numerics tf32=1 deterministic=0 framework="torch 2.11.0"
origin @0 op="aten.mul" instance=7 module="blocks.0" source="m.py:3" recomputed=1
%0 = input name="dy" kind=tangent strides=[1,4] alignment=16 donated=1  f32[4,8]
%1 = full dtype=f32 shape=[] value=-inf  f32[]
%2 = mul %0 %1  f32[4,8]  ; @0
%3 = sum %2 axes=[0]  f32[8]
output %3 name="w"
output none name="b"
output %2 strides=[1,4]
)");
  REQUIRE(g.ok());
  return *g;
}

std::string TemporaryFolder() {
  std::string folder = "/tmp/retrograd_proto_test.XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  return folder;
}

TEST_CASE("a graph survives serialization, and equal graphs give equal bytes") {
  const BackwardGraph g = SmallGraph();
  auto back = ParseGraphProto(SerializeGraph(g));
  REQUIRE(back.status().ToString() == "OK");
  CHECK(*back == g);
  CHECK(SerializeGraph(*back) == SerializeGraph(g));
}

TEST_CASE("random graphs survive serialization") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const BackwardGraph g = RandomGraph(seed);
    auto back = ParseGraphProto(SerializeGraph(g));
    REQUIRE(back.status().ToString() == "OK");
    REQUIRE(*back == g);
  }
}

TEST_CASE("a newer minor version with fields that nobody knows yet is read, and loses none") {
  v1::Graph message;
  REQUIRE(message.ParseFromString(SerializeGraph(SmallGraph())));
  message.set_schema_minor(9);
  const auto add = [](google::protobuf::Message* of, uint64_t value) {
    of->GetReflection()->MutableUnknownFields(of)->AddVarint(900, value);
  };
  add(&message, 1);
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(901, "later");
  add(message.mutable_numerics(), 2);
  add(message.mutable_origins(0), 3);
  add(message.mutable_nodes(0), 4);
  add(message.mutable_nodes(0)->mutable_input(), 5);
  add(message.mutable_nodes(3), 6);
  add(message.mutable_outputs(1), 7);
  auto back = ParseGraphProto(message.SerializeAsString());
  REQUIRE(back.status().ToString() == "OK");
  CHECK(Print(*back) == Print(SmallGraph()));
  CHECK_FALSE(*back == SmallGraph());
  CHECK(back->unknown_fields().size() == 7);
  message.set_schema_minor(kSchemaMinor);  // of the writer
  CHECK(SerializeGraph(*back) == message.SerializeAsString());
  auto again = ParseGraphProto(SerializeGraph(*back));
  REQUIRE(again.ok());
  CHECK(*again == *back);
}

TEST_CASE("a list of numbers is refused where it goes beyond its length, on the bytes alone") {
  const MessageFields& fields = FieldsOf(*v1::TensorType::descriptor());
  const auto scanned = [&](int64_t rank) {
    v1::TensorType type;
    for (int64_t axis = 0; axis < rank; ++axis) type.add_dims(1);
    return ScanMessage(fields, type.SerializeAsString());
  };
  CHECK(scanned(kMaxRank).ok());
  CHECK_THAT(std::string(scanned(kMaxRank + 1).message()), ContainsSubstring("more than"));
}

TEST_CASE("saving replaces a file as a whole and leaves nothing beside it") {
  const std::string folder = TemporaryFolder();
  for (const std::string name : {"/g.bwd.pb", "/g.rgt"}) {
    const std::string path = folder + name;
    std::ofstream(path) << "old";
    REQUIRE(SaveGraph(SmallGraph(), path).ok());
    auto back = LoadGraph(path);
    REQUIRE(back.status().ToString() == "OK");
    CHECK(*back == SmallGraph());
    REQUIRE(::unlink(path.c_str()) == 0);
  }
  CHECK(::rmdir(folder.c_str()) == 0);  // fails if a temporary file is left
}

TEST_CASE("file errors name the path") {
  const absl::Status missing = LoadGraph("/nonexistent/g.bwd.pb").status();
  CHECK(missing.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(missing.message()), ContainsSubstring("/nonexistent/g.bwd.pb"));
  CHECK_FALSE(LoadGraph("/dev").ok());
  CHECK_FALSE(SaveGraph(SmallGraph(), "/nonexistent/g.bwd.pb").ok());
}

}  // namespace
}  // namespace retrograd
