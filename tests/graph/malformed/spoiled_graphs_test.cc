// Random edits of files, byte by byte: the readers never crash, and what they accept verifies.
#include <random>

#include "absl/strings/match.h"
#include "graph/proto/proto.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

TEST_CASE("spoiled bytes never crash the reader, and what it accepts verifies") {
  int accepted = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    const std::string bytes = SerializeGraph(RandomGraph(seed % 20));
    for (int trial = 0; trial < 20; ++trial) {
      std::string spoiled = bytes;
      for (uint32_t i = 0; i <= rng() % 3; ++i) {
        const size_t at = rng() % spoiled.size();
        switch (rng() % 3) {
          case 0: spoiled[at] = static_cast<char>(rng()); break;
          case 1: spoiled.erase(at, 1 + rng() % 4); break;
          default: spoiled.insert(at, 1, static_cast<char>(rng())); break;
        }
        if (spoiled.empty()) break;
      }
      auto g = ParseGraphProto(spoiled);
      if (!g.ok()) {
        CHECK(absl::StartsWith(g.status().message(), "RG-G"));
        continue;
      }
      ++accepted;
      CHECK(g->Verify().ok());
      auto back = ParseGraphProto(SerializeGraph(*g));
      REQUIRE(back.ok());
      CHECK(*back == *g);
    }
  }
  CHECK(accepted > 0);  // some spoil a name or an unread number
}

TEST_CASE("spoiled text never crashes the parser") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 rng(seed);
    const std::string text = Print(RandomGraph(seed % 20));
    for (int trial = 0; trial < 20; ++trial) {
      std::string spoiled = text;
      for (int i = 0; i < 3; ++i) {
        const size_t at = rng() % spoiled.size();
        if (rng() % 2 == 0) {
          spoiled[at] = "%=[],.;@\"\\x0-9e\n"[rng() % 16];
        } else {
          spoiled.erase(at, 1 + rng() % 5);
        }
      }
      auto g = ParseGraph(spoiled);
      if (g.ok()) {
        CHECK(g->Verify().ok());
      } else {
        CHECK(absl::StartsWith(g.status().message(), "RG-G"));
      }
    }
  }
}

}  // namespace
}  // namespace retrograd
