// Programs of a graph whose sizes vary are those that their sizes alone would have been given.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/planner/sized_patterns.h"
#include "graph/proto/bind_graph.h"
#include "graph/proto/proto.h"
#include "runtime/program/early_launches.h"
#include "runtime/program/program_text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

using Sizes = std::vector<SizeBinding>;

// What makes programs of a graph's sizes, one after the other.
class Maker {
 public:
  explicit Maker(const BackwardGraph& graph)
      : binder_(*GraphBinder::Of(graph)), patterns_(graph, binder_.symbols()) {}

  std::string TextAt(const Sizes& sizes) {
    auto bound = binder_.Bind(sizes);
    INFO(bound.status());
    REQUIRE(bound.ok());
    PlanOptions options{.disable = {"held_tiles", "matmul_tiles", "shared_products"},
                        .decisions = false};
    auto pattern = patterns_.For(sizes, spec_, "h200", options);
    REQUIRE(pattern.ok());
    options.pattern = *pattern;
    options.second_pattern = [&] { return patterns_.Second(sizes, spec_, "h200", {}); };
    auto planned = PlanFusion(*bound, spec_, options);
    INFO(planned.status());
    REQUIRE(planned.ok());
    auto compiled = Compile(std::move(planned->graph), std::move(planned->plan),
                            {.dialect = Dialect::kCuda,
                             .epilogue_kernels = true,
                             .memory = {.phases = PhaseOptionsOf(spec_, 8)},
                             .early = EarlyLaunchLimitsOf(spec_)});
    INFO(compiled.status());
    REQUIRE(compiled.ok());
    auto text = ProgramText(*compiled);
    REQUIRE(text.ok());
    return *text;
  }

 private:
  const DeviceSpec spec_ = *LoadDeviceSpec("h200");
  GraphBinder binder_;
  SizedPatterns patterns_;
};

TEST_CASE("a size's program is the same to the byte, whatever sizes came before") {
  struct Range {
    std::string graph, symbol;
    std::vector<int64_t> fixed;  // ends, primes, powers of two and their neighbours
    Sizes others;
  };
  const Range range =
      GENERATE(Range{"gpt2", "length", {2, 3, 97, 128, 509, 513, 1023, 1024}, {{"batch", 3}}},
               Range{"bert_base", "length", {2, 17, 64, 251, 511, 512}, {{"batch", 2}}},
               Range{"golf_gpt_34m_b32", "batch", {2, 7, 31, 64}, {}});
  const auto graph =
      LoadGraph(absl::StrCat(RETROGRAD_SOURCE_DIR "/tests/data/sizes/", range.graph, ".bwd.pb"));
  REQUIRE(graph.ok());
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  std::vector<int64_t> drawn = range.fixed;
  const int64_t most = *std::max_element(drawn.begin(), drawn.end());
  for (int i = 0; i < 4; ++i) {
    drawn.push_back(2 + static_cast<int64_t>(random() % static_cast<uint64_t>(most - 1)));
  }
  std::shuffle(drawn.begin(), drawn.end(), random);
  Maker of_all(*graph);
  for (const int64_t size : drawn) {
    Sizes sizes = range.others;
    sizes.push_back({range.symbol, size});
    INFO(range.graph << " at " << range.symbol << "=" << size << ", seed " << seed);
    const std::string text = of_all.TextAt(sizes);
    Maker alone(*graph);
    REQUIRE(text == alone.TextAt(sizes));
  }
}

}  // namespace
}  // namespace retrograd
