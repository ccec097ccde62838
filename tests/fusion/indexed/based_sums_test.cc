// Sums at indices that begin with the gradient to which they are added: when, and that it is the
// same gradient.
#include "fusion/lower/indexed/based_sums.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_spec.h"
#include "fusion/lower/lower.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/graphs/check_rewritten.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

// One table embeds tokens and makes predictions: its gradient is a product and a sum.
constexpr absl::string_view kTied = R"(
%tokens = input i64[24]
%scores = input f32[40,9]
%states = input f32[40,12]
%x = input f32[24,12]
%t = permute %scores perm=[1,0]
%product = matmul %t %states
%zeros = full dtype=f32 shape=[9,12] value=0.0
%sum = index_add %zeros %tokens %x axis=0
%whole = add %product %sum
output %whole
)";

BackwardGraph LoweredFor(const BackwardGraph& g) {
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.status().ToString() == "OK");
  auto lowered = Lower(g, {.device = &*device});
  REQUIRE(lowered.status().ToString() == "OK");
  REQUIRE(lowered->Verify().ToString() == "OK");
  return *std::move(lowered);
}

int Count(const BackwardGraph& g, Op op) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == op ? 1 : 0;
  return count;
}

void CheckSame(const BackwardGraph& g, double bound = 1e-4) {
  CheckRewritten(g, LoweredFor(g), g, bound);
}

TEST_CASE("a tied table's gradient is its product with the tokens' rows added") {
  const BackwardGraph g = Parse(kTied);
  const BackwardGraph lowered = LoweredFor(g);
  CHECK(Count(lowered, Op::segment_add) == 1);
  CHECK(Count(lowered, Op::accumulate) == 0);
  CheckSame(g);
}

TEST_CASE("rows without a token, and long segments, begin with the product as well") {
  // Nearly all of 2,000 tokens name one of few rows; most of the 300 rows have none.
  CheckSame(Parse(absl::StrReplaceAll(kTied, {{"i64[24]", "i64[2000]"},
                                              {"f32[24,12]", "f32[2000,12]"},
                                              {"[9,12]", "[3,12]"},
                                              {"[40,9]", "[40,3]"}})));
  CheckSame(Parse(absl::StrReplaceAll(kTied, {{"[9,12]", "[3000,12]"}, {"[40,9]", "[40,3000]"}})));
}

TEST_CASE("no token at all leaves the product") {
  const BackwardGraph g =
      Parse(absl::StrReplaceAll(kTied, {{"i64[24]", "i64[0]"}, {"f32[24,12]", "f32[0,12]"}}));
  CheckSame(g);
}

TEST_CASE("widths from one to more than an access has are added onto") {
  for (const int width : {1, 3, 4, 6, 8, 16, 33, 64}) {
    INFO(width << " columns");
    CheckSame(Parse(absl::StrReplaceAll(kTied, {{"[24,12]", absl::StrCat("[24,", width, "]")},
                                                {"[40,12]", absl::StrCat("[40,", width, "]")},
                                                {"[9,12]", absl::StrCat("[9,", width, "]")}})));
  }
}

// Under autocast the product is narrower than the table, of which it has some rows more.
constexpr absl::string_view kNarrow = R"(
%tokens = input i64[24]
%scores = input bf16[40,16]
%states = input bf16[40,8]
%x = input f32[24,8]
%t = permute %scores perm=[1,0]
%padded = matmul %t %states
%product = slice %padded axis=0 start=0 stop=13 step=1
%wide = cast %product dtype=f32
%zeros = full dtype=f32 shape=[13,8] value=0.0
%sum = index_add %zeros %tokens %x axis=0
%whole = add %wide %sum
output %whole
)";

TEST_CASE("a narrower product, and the first rows of one, are read as they are") {
  const BackwardGraph g = Parse(kNarrow);
  const BackwardGraph lowered = LoweredFor(g);
  CHECK(Count(lowered, Op::accumulate) == 0);
  CHECK(Count(lowered, Op::cast) == 0);
  CHECK(Count(lowered, Op::copy) == 0);
  CheckSame(g, 2e-2);
}

TEST_CASE("what does not lie as the table is copied first") {
  // The last rows of a product, and one that lies across.
  for (const auto& [from, to] : {std::pair("start=0 stop=13", "start=3 stop=16"),
                                 std::pair("%product = slice %padded axis=0 start=0 stop=13 step=1",
                                           "%across = matmul %u %scores\n"
                                           "%turned = permute %across perm=[1,0]\n"
                                           "%product = slice %turned axis=0 start=0 stop=13 "
                                           "step=1")}) {
    const std::string text = absl::StrReplaceAll(
        kNarrow, {{from, to}, {"%padded = ", "%u = permute %states perm=[1,0]\n%padded = "}});
    CheckSame(Parse(text), 2e-2);
  }
}

TEST_CASE("what is read transposed lies, or is copied, as the table does") {
  // A product of a weight that stands transposed in the model, and a given gradient, with a cast
  // and without.
  constexpr absl::string_view kTransposed = R"(
%tokens = input i64[24]
%states = input f32[12,40]
%scores = input f32[40,9]
%x = input f32[24,12]
%given = input f32[12,9]
%product = matmul %states %scores
%turned = permute %product perm=[1,0]
%across = permute %given perm=[1,0]
%zeros = full dtype=f32 shape=[9,12] value=0.0
%sum = index_add %zeros %tokens %x axis=0
%whole = add %turned %sum
%y = input f32[24,12]
%other = index_add %zeros %tokens %y axis=0
%more = add %across %other
output %whole
output %more
)";
  const BackwardGraph g = Parse(kTransposed);
  CHECK(Count(LoweredFor(g), Op::accumulate) == 0);
  CHECK(Count(LoweredFor(g), Op::copy) == 1);  // of the given gradient
  CheckSame(g);
  CheckSame(Parse(absl::StrReplaceAll(
                kTransposed,
                {{"states = input f32", "states = input bf16"},
                 {"scores = input f32", "scores = input bf16"},
                 {"given = input f32", "given = input bf16"},
                 {"%whole = add %turned", "%wide = cast %turned dtype=f32\n%whole = add %wide"},
                 {"%more = add %across", "%far = cast %across dtype=f32\n%more = add %far"}})),
            2e-2);
}

TEST_CASE("a part of a concat in place is no base") {
  const BackwardGraph g = Parse(R"(
%tokens = input i64[300]
%x = input f32[300,256]
%q = input strides=[32768,64,256,1] bf16[1,4,128,64]
%sums = input f32[1,4,128]
%dout = input strides=[32768,64,256,1] bf16[1,4,128,64]
%w = input bf16[768,64]
%d:3 = attention_backward %dout %q %q %q %q %sums causal=1 scale=0.125
%pq = permute %d perm=[0,2,1,3]
%rq = reshape %pq shape=[128,256]
%pk = permute %d.1 perm=[0,2,1,3]
%rk = reshape %pk shape=[128,256]
%pv = permute %d.2 perm=[0,2,1,3]
%rv = reshape %pv shape=[128,256]
%joined = cat %rq %rk %rv axis=1
%projected = matmul %joined %w
%wide = cast %rk dtype=f32
%zeros = full dtype=f32 shape=[128,256] value=0.0
%sum = index_add %zeros %tokens %x axis=0
%whole = add %wide %sum
output %whole
output %projected
)");
  const std::vector<Values> inputs = RandomInputs(g, 1);
  RunSetup without;
  without.plan.disable = {"based_sums"};
  const auto run = RunOnHost(g, inputs, RunSetup()), apart = RunOnHost(g, inputs, without);
  REQUIRE(run.status().ToString() == "OK");
  REQUIRE(apart.status().ToString() == "OK");
  for (size_t o = 0; o < 2; ++o) {
    REQUIRE(run->outputs[o].size() == apart->outputs[o].size());
    for (size_t i = 0; i < run->outputs[o].size(); ++i) {
      CHECK(run->outputs[o][i] == Approx(apart->outputs[o][i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("a base at any address is read by accesses that are aligned") {
  CheckSame(Parse(R"(
%tokens = input i64[600]
%x = input f32[600,128]
%y = input f32[600,128]
%given = input alignment=4 f32[30,128]
%xy = mul %x %y
%dots = sum %xy axes=[1] keep=1
%scaled = mul %x %dots
%zeros = full dtype=f32 shape=[30,128] value=0.0
%sum = index_add %zeros %tokens %scaled axis=0
%whole = add %given %sum
output %whole
)"));
}

TEST_CASE("sorted sums with a type of their own lower, with indices and without") {
  for (const int indices : {48, 0}) {
    CheckSame(Parse(absl::StrReplaceAll(R"(
%i = input i64[N]
%base = input bf16[40,16]
%x = input f32[N,16]
%list = sort_indices %i rows=40
%sum = segment_add %base %list %x axis=0 dtype=f32
output %sum
)",
                                        {{"N", absl::StrCat(indices)}})));
  }
}

TEST_CASE("a given gradient is added onto without being changed") {
  const BackwardGraph g = Parse(R"(
%tokens = input i64[24]
%given = input f32[9,12]
%x = input f32[24,12]
%zeros = full dtype=f32 shape=[9,12] value=0.0
%sum = index_add %zeros %tokens %x axis=0
%whole = add %given %sum
%twice = add %given %given
output %whole
output %twice
)");
  CHECK(Count(LoweredFor(g), Op::accumulate) <= 1);
  CheckSame(g);
}

TEST_CASE("sums that are made before the product are added by it") {
  const BackwardGraph g = Parse(R"(
%tokens = input i64[24]
%scores = input f32[9,40]
%states = input f32[40,12]
%x = input f32[24,12]
%zeros = full dtype=f32 shape=[9,12] value=0.0
%sum = index_add %zeros %tokens %x axis=0
%product = matmul %scores %states
%whole = add %sum %product
output %whole
)");
  CHECK(Count(LoweredFor(g), Op::accumulate) == 1);
  CheckSame(g);
}

TEST_CASE("sums that another op reads as well are added as before") {
  const BackwardGraph read = Parse(absl::StrCat(kTied, "%further = neg %whole\noutput %further\n"));
  CHECK(Count(LoweredFor(read), Op::accumulate) == 1);
  CheckSame(read);
  const BackwardGraph alone = Parse(absl::StrCat(kTied, "output %sum\n"));
  CHECK(Count(LoweredFor(alone), Op::accumulate) == 1);
  CheckSame(alone);
}

TEST_CASE("a tied table of a language model is written once and read once") {
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  const BackwardGraph g = Parse(absl::StrReplaceAll(kTied, {{"i64[24]", "i64[4096]"},
                                                            {"f32[24,12]", "f32[4096,768]"},
                                                            {"f32[40,9]", "f32[4096,32000]"},
                                                            {"f32[40,12]", "f32[4096,768]"},
                                                            {"[9,12]", "[32000,768]"}}));
  const auto with = PlanFusion(g, *device, {});
  const auto without = PlanFusion(g, *device, {.disable = {"based_sums"}});
  REQUIRE(with.status().ToString() == "OK");
  REQUIRE(without.status().ToString() == "OK");
  CHECK(with->plan.Verify(with->graph).ToString() == "OK");
  // Without it the table of sums is written, and read where it is added.
  const int64_t table = int64_t{32000} * 768 * 4;
  CHECK(without->plan.summary.price_ps - with->plan.summary.price_ps >
        TransferPs(2 * table, device->hbm_bytes_per_s) * 9 / 10);
}

}  // namespace
}  // namespace retrograd
