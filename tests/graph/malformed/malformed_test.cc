// Files that are not graphs: each is refused with its code, its node named, quickly. Every code
// that a file can cause has a case.
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/proto/bind_graph.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/malformed_graphs.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

TEST_CASE("every malformed graph is refused with its code and its place") {
  REQUIRE(ParseGraphProto(LegalMessage().SerializeAsString()).status().ToString() == "OK");
  for (const MalformedGraph& c : MalformedGraphs()) {
    INFO(std::string(c.name));
    v1::Graph g = LegalMessage();
    c.spoil(g);
    CheckRefused(g.SerializeAsString(), c.kind, c.place);
  }
}

TEST_CASE("bytes that are no graph are refused by their frame") {
  using M = Malformation;
  const std::string legal = LegalMessage().SerializeAsString();
  CheckRefused("", M::kEmptyFile, "empty");
  CheckRefused("PK\x03\x04 a zip file, say", M::kNotAGraph, "not a graph file");
  CheckRefused("hello, world", M::kNotAGraph, "not a graph file");
  CheckRefused(std::string(100, '\xff'), M::kNotAGraph, "ten bytes");
  CheckRefused(std::string(1, '\0'), M::kNotAGraph, "number 0");
  CheckRefused(kVersion1 + "\x3f", M::kNotAGraph, "wire type 7");
  CheckRefused(kVersion1 + "\x38\x01", M::kNotAGraph, "nodes has wire type 0");
  CheckRefused(legal.substr(0, legal.size() - 1), M::kTruncated, "truncated");
  // 8 GiB claimed for a node, in a file of a kilobyte.
  CheckRefused(kVersion1 + "\x3a" + Varint(uint64_t{8} << 30) + std::string(1000, '\0'),
               M::kLengthClaim, "8589934592");
  CheckRefused(kVersion1 + "\x3a" + Varint(1 << 30) + std::string(1000, '\0'), M::kTruncated,
               "1073741824");
  CheckRefused(kVersion1 + Delimited(7,
                                     "\x12\x7f"
                                     "mul"),
               M::kTruncated, "node %0");
}

TEST_CASE("every cut of a legal file is refused or a graph with fewer outputs or no symbols") {
  const std::string legal = LegalMessage().SerializeAsString();
  for (size_t length = 0; length < legal.size(); ++length) {
    INFO("length " << length);
    auto g = ParseGraphProto(legal.substr(0, length));
    if (g.ok()) CHECK((g->outputs().size() < 3 || SymbolsOf(*g)->empty()));
  }
}

TEST_CASE("codes are unique, ascend, and each has a case or a reason to have none") {
  std::set<Malformation> covered = {// Of bytes: malformed_test.cc, reader_memory_test.cc.
                                    Malformation::kNotAGraph, Malformation::kTruncated,
                                    Malformation::kLengthClaim, Malformation::kTooMany,
                                    // Of text: text_test.cc. A file beyond 2 GiB is not made here.
                                    Malformation::kTextSyntax, Malformation::kUndefinedName,
                                    Malformation::kFileTooLarge};
  for (const MalformedGraph& c : MalformedGraphs()) covered.insert(c.kind);
  constexpr int kFree = 22;  // of a rule that there is none of; a code never means another one
  int number = 0;
  for (const MalformationInfo& info : AllMalformations()) {
    INFO(std::string(info.code));
    if (++number == kFree) ++number;
    CHECK(info.code == absl::StrFormat("RG-G%03d", number));
    CHECK(covered.count(info.kind) == 1);
    CHECK_FALSE(info.rule.empty());
  }
}

TEST_CASE("docs/malformations.md is the table") {
  std::ifstream file(RETROGRAD_SOURCE_DIR "/docs/malformations.md");
  REQUIRE(file.good());
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const MalformationInfo& info : AllMalformations()) {
    CHECK_THAT(text, ContainsSubstring(absl::StrCat("| ", info.code, " | ", info.invariant, " | ",
                                                    info.rule, " |\n")));
  }
}

// Not run by default: malformed_test "[.corpus]" writes what the fuzzer starts from, one file a
// malformation and small random graphs in both forms. The first byte is the fuzzer's own
// (tests/support/graphs/fuzz_input.h).
TEST_CASE("writes the corpus of the fuzzer", "[.corpus]") {
  const std::string folder = RETROGRAD_SOURCE_DIR "/tests/fuzz/corpus/";
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder + name, std::ios::binary) << bytes;
  };
  int number = 0;
  for (const MalformedGraph& c : MalformedGraphs()) {
    v1::Graph g = LegalMessage();
    c.spoil(g);
    write(absl::StrCat("malformed_", number++, "_", Info(c.kind).code),
          std::string(1, '\0') + g.SerializeAsString());
  }
  const std::string legal = LegalMessage().SerializeAsString();
  write("malformed_truncated", std::string(1, '\0') + legal.substr(0, legal.size() - 1));
  write("malformed_length_claim",
        std::string(1, '\0') + kVersion1 + "\x3a" + Varint(uint64_t{8} << 30) + "abc");
  for (uint32_t seed = 0; seed < 24; ++seed) {
    const BackwardGraph g = RandomGraph(seed, {.min_ops = 2, .max_ops = 6});
    const char header = static_cast<char>(2 * (seed * 5 % 128));
    write(absl::StrCat("random_", seed), header + SerializeGraph(g));
    if (seed < 6) write(absl::StrCat("text_", seed), static_cast<char>(header | 1) + Print(g));
  }
}

}  // namespace
}  // namespace retrograd
