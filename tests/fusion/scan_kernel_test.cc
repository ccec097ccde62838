// Cumulative sums as kernels: planned, run on the host with every access checked, and held against
// the reference evaluator.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "fusion/planner/planner.h"
#include "graph/reference/reference.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

constexpr uint64_t kSeed = 23;

struct Kernels {
  int all = 0, scans = 0, by_vectors = 0;
};

// Of a plan of the graph, which gives the reference's values.
Kernels KernelsOnHost(const BackwardGraph& graph, int warp) {
  const std::vector<Values> inputs = RandomInputs(graph, kSeed);
  RunSetup setup;
  setup.host.compile = {.check = true, .warp = warp};
  auto run = RunOnHost(graph, inputs, setup);
  REQUIRE(run.status().ToString() == "OK");
  const BackwardGraph& g = run->planned.graph;
  auto values = Evaluate(g, inputs, {.mode = ReferenceOptions::kFloat64, .keep_all = true});
  REQUIRE(values.status().ToString() == "OK");
  auto scale = Magnitudes(g, *values);
  REQUIRE(scale.ok());
  for (size_t o = 0; o < g.outputs().size(); ++o) {
    const size_t v = g.value_index(*g.outputs()[o].value);
    REQUIRE(run->outputs[o].size() == (*values)[v].size());
    for (size_t i = 0; i < run->outputs[o].size(); ++i) {
      INFO("seed " << kSeed << ", output " << o << ", element " << i);
      CHECK(std::fabs(run->outputs[o][i] - (*values)[v][i]) <=
            2e-6 * std::max((*scale)[v][i], 1e-6));
    }
  }
  Kernels count;
  for (const Group& group : run->planned.plan.groups) {
    for (const KernelBody* kernel : KernelsOf(group)) {
      ++count.all;
      count.scans += kernel->schedule.kind == Template::kScan;
      count.by_vectors +=
          kernel->schedule.kind == Template::kScan && kernel->schedule.vector_width > 1;
    }
  }
  return count;
}

int CheckOnHost(const BackwardGraph& graph, int warp) { return KernelsOnHost(graph, warp).scans; }

int CheckScan(absl::string_view type, absl::string_view attrs, int warp = 32,
              absl::string_view op = "cumsum") {
  INFO(op << " " << type << " " << attrs << ", warps of " << warp);
  return CheckOnHost(Parse(absl::StrCat("%x = input name=\"x\" ", type, "\n%y = ", op, " %x ",
                                        attrs, "\noutput %y")),
                     warp);
}

TEST_CASE("a cumulative sum is a kernel along its axis, forwards and backwards") {
  const int warp = GENERATE(32, 64);
  CHECK(CheckScan("f32[3,1000]", "axis=1", warp) == 1);
  CHECK(CheckScan("f32[3,1000]", "axis=1 reverse=1", warp) == 1);
  CHECK(CheckScan("f32[70,33]", "axis=0", warp) == 1);
  CHECK(CheckScan("f32[4,70,5]", "axis=1 reverse=1", warp) == 1);
  CHECK(CheckScan("f32[7]", "axis=0", warp) == 1);
  CHECK(CheckScan("i64[5,40]", "axis=1", warp) == 1);
}

TEST_CASE("a long row is scanned in pieces, by vectors, from each end") {
  const int warp = GENERATE(32, 64);
  for (const char* reverse : {"0", "1"}) {
    const std::string attrs = absl::StrCat("axis=1 reverse=", reverse);
    CHECK(CheckScan("f32[2,40000]", attrs, warp) == 2);
    CHECK(CheckScan("f32[1,65543]", attrs, warp) == 3);
    CHECK(CheckOnHost(Parse(absl::StrCat("%x = input name=\"x\" bf16[1,40000]\n"
                                         "%w = cast %x dtype=f32\n%y = cumsum %w ",
                                         attrs, "\noutput %y")),
                      warp) == 2);
    CHECK(CheckScan("i64[2,40000]", attrs, warp) == 2);
  }
}

TEST_CASE("places that are neighbours are scanned by vectors of the widest access") {
  for (const char* direction : {"axis=1", "axis=1 reverse=1"}) {
    // Of 4, 8 and 2 elements in 16 bytes.
    for (const char* text :
         {"%x = input f32[40,256]\n%s = cumsum %x DIRECTION\noutput %s",
          "%x = input bf16[40,256]\n%w = cast %x dtype=f32\n%s = cumsum %w DIRECTION\n"
          "%y = cast %s dtype=bf16\n%z = cast %y dtype=f32\noutput %z",
          "%x = input f64[40,256]\n%s = cumsum %x DIRECTION\noutput %s"}) {
      const std::string of = absl::StrReplaceAll(text, {{"DIRECTION", direction}});
      INFO(of);
      CHECK(KernelsOnHost(Parse(of), 32).by_vectors == 1);
    }
  }
  // Rows are neighbours.
  CHECK(KernelsOnHost(Parse("%x = input f32[40,256]\n%s = cumsum %x axis=0\noutput %s"), 32)
            .by_vectors == 0);
}

TEST_CASE("P7: a scan across its vectors is refused") {
  for (const int axis : {0, 1}) {
    auto planned = PlanFusion(
        Parse(absl::StrCat("%x = input f32[64,64]\n%s = cumsum %x axis=", axis, "\noutput %s")),
        *LoadDeviceSpec("h200"), {});
    REQUIRE(planned.ok());
    KernelOf(planned->plan.groups[0])->schedule.vector_width = 4;
    const std::string status = planned->plan.Verify(planned->graph).ToString();
    CHECK_THAT(status, Catch::Contains(axis == 0 ? "scans across its vectors" : "OK"));
  }
}

TEST_CASE("a cumulative product is such a kernel, too") {
  const int warp = GENERATE(32, 64);
  CHECK(CheckScan("f32[3,300]", "axis=1", warp, "cumprod") == 1);
  CHECK(CheckScan("f32[3,33]", "axis=1 reverse=1", warp, "cumprod") == 1);
  CHECK(CheckScan("f32[40,9]", "axis=0", warp, "cumprod") == 1);
}

TEST_CASE("along an axis of one place a cumulative sum only copies, and of nothing it is nothing") {
  CHECK(CheckScan("f32[6,1,5]", "axis=1") == 0);
  CHECK(CheckScan("f32[0,5]", "axis=0") == 0);
}

TEST_CASE("what stands before and behind a cumulative sum is computed, views included") {
  CHECK(CheckOnHost(Parse("%x = input name=\"x\" f32[24,10]\n"
                          "%e = mul %x %x\n"
                          "%t = permute %e perm=[1,0]\n"
                          "%r = reshape %t shape=[5,48]\n"
                          "%y = cumsum %r axis=1\n"
                          "%z = add %y %r\n"
                          "%w = cumsum %z axis=0 reverse=1\n"
                          "output %w\noutput %z"),
                    32) == 2);
}

TEST_CASE("pointwise neighbours of a cumulative sum share its kernel") {
  const int warp = GENERATE(32, 64);
  for (const char* scan : {"cumsum %e axis=1", "cumsum %e axis=0 reverse=1"}) {
    INFO(scan);
    const Kernels made = KernelsOnHost(Parse(absl::StrCat("%x = input name=\"x\" f32[40,70]\n"
                                                          "%b = input name=\"b\" f32[70]\n"
                                                          "%t = tanh %x\n%e = mul %t %b\n%s = ",
                                                          scan,
                                                          "\n%m = mul %s %x\n%y = add %m %e\n"
                                                          "output %y\noutput %s\noutput %e")),
                                       warp);
    CHECK(made.all == 1);
    CHECK(made.scans == 1);
  }
}

TEST_CASE("what a row shares is no byte that an element behind a cumulative sum waits for") {
  for (int values = 1; values <= 12; ++values) {
    INFO(values);
    std::string text = "%x = input name=\"x\" f32[8,8]\n%s = cumsum %x axis=1\n";
    std::string last = "%s";
    for (int i = 0; i < values; ++i) {
      absl::StrAppend(&text, "%v", i, " = input name=\"v", i, "\" f32[8,1]\n");
      absl::StrAppend(&text, "%w", i, " = mul ", last, " %v", i, "\n");
      last = absl::StrCat("%w", i);
    }
    const BackwardGraph graph = Parse(absl::StrCat(text, "output ", last));
    for (const char* device : {"h200", "mi300x"}) {
      auto planned = PlanFusion(graph, *LoadDeviceSpec(device));
      REQUIRE(planned.ok());
      REQUIRE(planned->plan.groups.size() == 1);
    }
  }
}

TEST_CASE("a cumulative sum that every row reads is made once") {
  const Kernels made = KernelsOnHost(Parse("%x = input name=\"x\" f32[9,50]\n"
                                           "%v = input name=\"v\" f32[50]\n"
                                           "%s = cumsum %v axis=0\n%y = mul %x %s\n"
                                           "output %y\noutput %s"),
                                     32);
  CHECK(made.scans == 1);
}

TEST_CASE("who reads a cumulative sum at other places has a kernel of its own") {
  for (const char* view :
       {"flip %s axes=[1]", "permute %s perm=[1,0]", "slice %s axis=1 start=3 stop=23 step=1",
        "pad %s low=[0,20] high=[0,0]"}) {
    INFO(view);
    const char* const shape = view[0] == 's'   ? "f32[20,20]"
                              : view[1] == 'a' ? "f32[20,43]"
                              : view[1] == 'e' ? "f32[23,20]"
                                               : "f32[20,23]";
    const Kernels made =
        KernelsOnHost(Parse(absl::StrCat("%x = input name=\"x\" f32[20,23]\n%o = input name=\"o\" ",
                                         shape, "\n%s = cumsum %x axis=1\n%r = ", view,
                                         "\n%y = add %r %o\noutput %y\noutput %s")),
                      32);
    CHECK(made.scans == 1);
    if (view[1] != 'e') CHECK(made.all == 2);
  }
}

TEST_CASE("a cumulative sum shares no kernel with a sum or with another one") {
  const Kernels made = KernelsOnHost(Parse("%x = input name=\"x\" f32[33,40]\n"
                                           "%e = mul %x %x\n%s = cumsum %e axis=1\n"
                                           "%r = sum %s axes=[1]\n%w = cumsum %s axis=0\n"
                                           "output %r\noutput %w"),
                                     32);
  CHECK(made.all == 3);
  CHECK(made.scans == 2);
}

TEST_CASE("a scan that runs along no axis of its own is refused by number") {
  KernelIrBuilder b({4, 8});
  const int x = b.In(DType::kFp32, 8), y = b.Out(DType::kFp32, 8);
  b.Store(b.Scan(b.Load(x, A(1)), 0b01, false), y, A(1));
  CHECK_THAT(std::string(b.Build().Verify().message()), ContainsSubstring("K2: v1 runs along"));
}

TEST_CASE("no template walks a scan beside a reduction") {
  KernelIrBuilder b({4, 8});
  const int x = b.In(DType::kFp32, 32), y = b.Out(DType::kFp32, 32), z = b.Out(DType::kFp32, 4);
  const int v = b.Load(x, A(0) * 8 + A(1));
  b.Store(b.Scan(v, 0b10, false), y, A(0) * 8 + A(1));
  b.Store(b.Reduce(Op::sum, v, 0b10), z, A(0));
  const Classification c = Classify(b.Build());
  CHECK_FALSE(c.feasible);
  CHECK_THAT(c.reason, ContainsSubstring("beside another scan, a reduction"));
}

}  // namespace
}  // namespace retrograd
