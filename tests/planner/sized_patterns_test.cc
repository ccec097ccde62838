// Plans of a size that take over what the plan of a representative size has decided: as good as
// plans that are searched, and the same whatever was planned before.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "fusion/planner/plan_pattern.h"
#include "fusion/planner/sized_patterns.h"
#include "graph/proto/bind_graph.h"
#include "graph/proto/graph.pb.h"
#include "graph/proto/proto.h"
#include "graph/symbols/representative.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

using Sizes = std::vector<SizeBinding>;

DeviceSpec H200() {
  auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  return *spec;
}

BackwardGraph Graph(const std::string& name) {
  auto graph = LoadGraph(absl::StrCat(RETROGRAD_SOURCE_DIR "/tests/data/sizes/", name, ".bwd.pb"));
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// A graph that leaves sizes open, its patterns, and plans of it.
struct SizedGraph {
  explicit SizedGraph(BackwardGraph g)
      : graph(std::move(g)), symbols(*SymbolsOf(graph)), patterns(graph, symbols) {}

  BackwardGraph At(const Sizes& sizes) const {
    auto bound = BindGraph(graph, sizes);
    INFO(bound.status());
    REQUIRE(bound.ok());
    return *std::move(bound);
  }

  std::shared_ptr<const PlanPattern> PatternAt(const Sizes& sizes,
                                               const PlanOptions& options = {}) {
    auto pattern = patterns.For(sizes, spec, "h200", options);
    INFO(pattern.status());
    REQUIRE(pattern.ok());
    return *pattern;
  }

  Planned Plan(const Sizes& sizes, PlanOptions options = {}) {
    options.decisions = false;
    auto planned = PlanFusion(At(sizes), spec, options);
    INFO(planned.status());
    REQUIRE(planned.ok());
    return *std::move(planned);
  }

  Planned PlanByPattern(const Sizes& sizes) {
    PlanOptions options{.pattern = PatternAt(sizes)};
    options.second_pattern = [this, sizes] { return patterns.Second(sizes, spec, "h200", {}); };
    return Plan(sizes, std::move(options));
  }

  const DeviceSpec spec = H200();
  const BackwardGraph graph;
  const std::vector<SizeSymbol> symbols;
  SizedPatterns patterns;
};

// As many times as long as the plan of a search.
double Regret(SizedGraph& graph, const Sizes& sizes, int64_t* kept) {
  const Planned planned = graph.PlanByPattern(sizes);
  *kept += planned.kept_regions;
  return static_cast<double>(planned.plan.summary.price_ps) /
         static_cast<double>(graph.Plan(sizes).plan.summary.price_ps);
}

struct Drawn {
  const char* name;
  const char* symbol;
  int64_t low, high;
  Sizes others;
};

TEST_CASE("at 64 random sizes a plan by the pattern is predicted to take what a search's takes") {
  const auto drawn = GENERATE(Drawn{"gpt2", "length", 16, 1024, {{"batch", 4}}},
                              Drawn{"bert_base", "length", 16, 512, {{"batch", 8}}},
                              Drawn{"golf_gpt_34m_b32", "batch", 16, 64, {}});
  const uint32_t seed = Catch::rngSeed() + 1;
  std::mt19937 rng(seed);
  SizedGraph graph(Graph(drawn.name));
  std::map<int64_t, double> known;
  std::vector<double> regrets;
  int64_t kept = 0;
  for (int i = 0; i < 64; ++i) {
    // As often in each octave.
    const double octaves =
        std::log2(static_cast<double>(drawn.high) / static_cast<double>(drawn.low));
    const double at = octaves * static_cast<double>(rng()) / 4294967296.0;
    const int64_t size = std::llround(static_cast<double>(drawn.low) * std::exp2(at));
    Sizes sizes = drawn.others;
    sizes.push_back({drawn.symbol, size});
    INFO(drawn.name << " at " << size << ", seed " << seed);
    if (!known.contains(size)) known[size] = Regret(graph, sizes, &kept);
    CHECK(known[size] <= 1.10);
    regrets.push_back(known[size]);
  }
  std::nth_element(regrets.begin(), regrets.begin() + 32, regrets.end());
  INFO(drawn.name << ", seed " << seed);
  CHECK(regrets[32] <= 1.03);
  CHECK(kept > 0);
}

TEST_CASE("a plan by the pattern computes the graph") {
  SizedGraph graph(Graph("gpt2"));
  std::mt19937 rng(11);
  for (int i = 0; i < 4; ++i) {
    const Sizes sizes = {{"batch", 2 + static_cast<int64_t>(rng() % 7)},
                         {"length", 3 + static_cast<int64_t>(rng() % 300)}};
    INFO(sizes[0].value << " x " << sizes[1].value);
    const Planned planned = graph.PlanByPattern(sizes);
    CHECK(planned.kept_regions > 0);
    CHECK(planned.plan.Verify(planned.graph).ok());
  }
}

TEST_CASE("a representative size is planned as its search plans it") {
  SizedGraph graph(Graph("gpt2"));
  const Sizes sizes = {{"batch", 4}, {"length", 768}};
  const Planned by_pattern = graph.PlanByPattern(sizes);
  CHECK(by_pattern.kept_regions == by_pattern.plan.summary.distinct_regions);
  CHECK(by_pattern.plan.groups == graph.Plan(sizes).plan.groups);
}

TEST_CASE("a plan by the pattern is the same with decisions, which also tell what ops take apart") {
  SizedGraph graph(Graph("gpt2"));
  const Sizes sizes = {{"batch", 4}, {"length", 701}};
  const Planned plain = graph.PlanByPattern(sizes);
  PlanOptions options{.decisions = true, .pattern = graph.PatternAt(sizes)};
  const auto explained = PlanFusion(graph.At(sizes), graph.spec, options);
  INFO(explained.status());
  REQUIRE(explained.ok());
  CHECK(plain.kept_regions > 0);
  CHECK(explained->plan.groups == plain.plan.groups);
  CHECK(explained->plan.summary.unfused_ps > explained->plan.summary.price_ps);
  CHECK(explained->plan.summary.unfused_bytes > explained->plan.summary.bytes);
  CHECK(plain.plan.summary.unfused_ps == 0);
  CHECK(plain.plan.summary.unfused_bytes == 0);
}

TEST_CASE("a size has the same plan whatever was planned before") {
  SizedGraph one(Graph("gpt2")), other(Graph("gpt2"));
  const std::vector<Sizes> order = {{{"batch", 4}, {"length", 700}},
                                    {{"batch", 4}, {"length", 801}},
                                    {{"batch", 5}, {"length", 90}}};
  std::vector<Planned> forwards;
  for (const Sizes& sizes : order) forwards.push_back(one.PlanByPattern(sizes));
  for (size_t i = order.size(); i-- > 0;) {
    CHECK(other.PlanByPattern(order[i]).plan.groups == forwards[i].plan.groups);
  }
}

TEST_CASE("without the feature, under a ceiling and with choices there is no pattern") {
  SizedGraph graph(Graph("gpt2"));
  const Sizes sizes = {{"batch", 4}, {"length", 100}};
  PlanOptions off, ceiling, choices;
  off.disable.insert("kept_partitions");
  ceiling.max_memory_bytes = int64_t{1} << 40;
  choices.pairs.push_back({});
  for (const PlanOptions& options : {off, ceiling, choices}) {
    CHECK(graph.PatternAt(sizes, options) == nullptr);
  }
  off.pattern = graph.PatternAt(sizes);
  const Planned planned = graph.Plan(sizes, off);
  CHECK(planned.kept_regions == 0);
  CHECK(planned.plan.groups == graph.Plan(sizes).plan.groups);
}

TEST_CASE("a region is searched where the pattern's partition costs too much") {
  SizedGraph graph(Graph("gpt2"));
  const Sizes sizes = {{"batch", 4}, {"length", 100}};
  PlanPattern cheap = *graph.PatternAt(sizes);
  for (auto& [structure, regions] : cheap.regions) {
    for (PlanPattern::Region& region : regions) {
      RegionResult cheaper = *region.solved;
      cheaper.price_ps /= 2;
      region.solved = std::make_shared<RegionResult>(cheaper);
    }
  }
  const Planned planned =
      graph.Plan(sizes, {.pattern = std::make_shared<PlanPattern>(std::move(cheap))});
  CHECK(planned.kept_regions == 0);
}

TEST_CASE("the pattern of another graph makes no wrong plan") {
  SizedGraph gpt2(Graph("gpt2")), bert(Graph("bert_base"));
  const Sizes sizes = {{"batch", 4}, {"length", 64}};
  const Planned planned = gpt2.Plan(sizes, {.pattern = bert.PatternAt(sizes)});
  CHECK(planned.plan.Verify(planned.graph).ok());
}

TEST_CASE("a representative is near its size, its own, and one that the symbol may be") {
  std::mt19937_64 rng(3);
  for (int i = 0; i < 20'000; ++i) {
    SizeSymbol symbol{.name = "s"};
    symbol.multiple_of = i % 3 == 0 ? 1 : 1 + static_cast<int64_t>(rng() % 9);
    symbol.min = symbol.multiple_of * static_cast<int64_t>(rng() % 50);
    symbol.max = i % 2 == 0 ? std::numeric_limits<int64_t>::max()
                            : symbol.min + symbol.multiple_of * static_cast<int64_t>(rng() % 5000);
    const int64_t most = std::min<int64_t>(symbol.max, int64_t{1} << (i % 62));
    if (most < symbol.min) continue;
    const int64_t size =
        symbol.min + static_cast<int64_t>(rng() % static_cast<uint64_t>(most - symbol.min + 1)) /
                         symbol.multiple_of * symbol.multiple_of;
    const int64_t made = RepresentativeOf({symbol}, {{"s", size}})[0].value;
    INFO(size << " -> " << made << ", " << symbol.min << " to " << symbol.max << ", a multiple of "
              << symbol.multiple_of);
    REQUIRE(made >= symbol.min);
    REQUIRE(made <= symbol.max);
    REQUIRE(made % symbol.multiple_of == 0);
    REQUIRE(std::abs(static_cast<double>(made - size)) <=
            0.25 * static_cast<double>(size) + static_cast<double>(symbol.multiple_of));
  }
  CHECK(RepresentativeOf({{.name = "s", .max = 4096}}, {{"s", 1000}})[0].value == 1024);
  CHECK(RepresentativeOf({{.name = "s", .max = 1000}}, {{"s", 1000}})[0].value == 1000);
}

TEST_CASE("a second representative lies among the sizes that the first one stands for") {
  for (int64_t size = 2; size <= 5000; ++size) {
    const SizeSymbol symbol{.name = "s", .max = 1 << 20};
    const auto first = [&](int64_t s) { return RepresentativeOf({symbol}, {{"s", s}})[0].value; };
    const int64_t made = SecondRepresentativeOf({symbol}, {{"s", size}})[0].value;
    INFO(size << " -> " << first(size) << ", " << made);
    REQUIRE(first(made) == first(size));
    if (size == first(size)) REQUIRE(made == size);
    // On the size's side.
    REQUIRE((made - first(size)) * (size - first(size)) >= 0);
    if (size > 16) REQUIRE((made == first(size)) == (size == first(size)));
  }
  CHECK(SecondRepresentativeOf({{.name = "s", .max = 1000}}, {{"s", 1000}})[0].value == 1000);
  CHECK(SecondRepresentativeOf({{.name = "s", .max = 4096}}, {{"s", 1000}})[0].value == 960);
}

TEST_CASE("where a representative is a size of its own kind, the second one decides") {
  // At 1024 tokens the gradient of GPT-2's positions has no zeros behind it.
  SizedGraph graph(Graph("gpt2"));
  for (const int64_t length : {905, 960, 1000, 1018}) {
    INFO("length " << length);
    const Sizes sizes = {{"batch", 4}, {"length", length}};
    const auto second = graph.patterns.Second(sizes, graph.spec, "h200", {});
    REQUIRE(second.ok());
    REQUIRE(*second != nullptr);
    PlanOptions options{.pattern = graph.PatternAt(sizes)};
    const Planned one = graph.Plan(sizes, options);
    options.second_pattern = [&] { return second; };
    const Planned both = graph.Plan(sizes, options);
    CHECK(one.kept_regions < one.plan.summary.distinct_regions);
    // Odd rows have ends, for whose price one region is searched.
    CHECK(both.kept_regions == both.plan.summary.distinct_regions - length % 2);
    CHECK(both.plan.Verify(both.graph).ok());
    const Planned searched = graph.Plan(sizes);
    CHECK(static_cast<double>(both.plan.summary.price_ps) <=
          1.03 * static_cast<double>(searched.plan.summary.price_ps));
  }
}

TEST_CASE("what a second pattern cannot be made for ends the plan with its reason") {
  SizedGraph graph(Graph("gpt2"));
  const Sizes sizes = {{"batch", 4}, {"length", 1000}};
  PlanOptions options{.decisions = false, .pattern = graph.PatternAt(sizes)};
  options.second_pattern = []() -> absl::StatusOr<std::shared_ptr<const PlanPattern>> {
    return absl::CancelledError("no more");
  };
  CHECK(absl::IsCancelled(PlanFusion(graph.At(sizes), graph.spec, options).status()));
}

// y = x * x of [n, 8], which must not have 64 rows, at 12.
BackwardGraph Squares() {
  auto graph = ParseGraph(R"(graph "squares"
%x = input name="x" kind=saved f32[12,8]
%y = mul %x %x
output %y name="y"
)");
  REQUIRE(graph.ok());
  v1::Graph message;
  REQUIRE(message.ParseFromString(SerializeGraph(*graph)));
  v1::Sizes* sizes = message.mutable_sizes();
  v1::SizeSymbol* rows = sizes->add_symbols();
  rows->set_name("n");
  rows->set_max(1000);
  rows->set_multiple_of(1);
  rows->set_hint(12);
  sizes->add_atoms()->set_kind(v1::SIZE_ATOM_SYMBOL);
  v1::SizeTerm* term = sizes->add_polynomials()->add_terms();
  term->set_coefficient(1);
  term->add_atoms(0);
  v1::SizePolynomial* other = sizes->add_polynomials();
  *other = sizes->polynomials(0);
  other->add_terms()->set_coefficient(-64);
  v1::SizeFact* fact = sizes->add_facts();
  fact->set_relation(v1::SIZE_RELATION_NOT_ZERO);
  fact->set_polynomial(1);
  for (const uint32_t node : {0, 1}) {
    v1::SizePlace* place = sizes->add_places();
    place->set_field(v1::SIZE_FIELD_DIM);
    place->set_owner(node);
  }
  auto read = ParseGraphProto(message.SerializeAsString());
  INFO(read.status());
  REQUIRE(read.ok());
  return *std::move(read);
}

TEST_CASE("where the graph was not made for the representative, its hints stand for the size") {
  SizedGraph graph(Squares());
  CHECK_FALSE(BindGraph(graph.graph, Sizes{{"n", 64}}).ok());
  CHECK(graph.PatternAt({{"n", 61}}) == graph.PatternAt({{"n", 12}}));
  CHECK(graph.PlanByPattern({{"n", 61}}).kept_regions == 1);
}

}  // namespace
}  // namespace retrograd
