// What lies in memory between kernels and matmuls: as narrow as it is, in the order in which it was
// made, with rows that a matmul library can read at full speed.
#include <algorithm>

#include "fusion/analysis/cheap_sources.h"
#include "fusion/lower/padded_rows.h"
#include "fusion/lower/rematerialize.h"
#include "fusion/ops/grouped_matmul/grouped_matmul_call.h"
#include "fusion/ops/matmul/matmul_call.h"
#include "fusion/planner/planner.h"
#include "graph/base/status.h"
#include "tests/catch.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

Planned PlanOf(const absl::StatusOr<BackwardGraph>& graph,
               const DeviceSpec& device = *LoadDeviceSpec("h200")) {
  REQUIRE(graph.ok());
  auto planned = PlanFusion(*graph, device, {});
  REQUIRE(planned.ok());
  REQUIRE(planned->plan.Verify(planned->graph).ok());
  return *std::move(planned);
}

// Bytes that fused kernels read and write.
int64_t KernelBytes(const FusionPlan& plan) {
  int64_t bytes = 0;
  for (const Group& group : plan.groups) {
    if (!KernelsOf(group).empty()) bytes += group.read_bytes + group.written_bytes;
  }
  return bytes;
}

MatMulCall OnlyMatMul(const FusionPlan& plan) {
  const Call* found = nullptr;
  for (const Group& group : plan.groups) {
    if (const Call* call = CallOf(group)) {
      CHECK(found == nullptr);
      found = call;
    }
  }
  REQUIRE(found != nullptr);
  return MatMulOf(*found);
}

// Probabilities that dropout masks, a matmul of them, and the masked gradient of what it made: the
// mask is read before and after a barrier.
absl::StatusOr<BackwardGraph> Dropout(int64_t n) {
  GraphBuilder b("dropout");
  const ValueId mask = b.Input({DType::kBool, {n, n}}, {.name = "mask"});
  const ValueId p = b.Input({DType::kFp32, {n, n}}, {.name = "p"});
  const ValueId grad = b.Input({DType::kBf16, {n, n}}, {.name = "grad"});
  const ValueId scale = b.Cast(mask, DType::kFp32);
  const ValueId kept = b.Cast(b.Add(Op::mul, {p, scale}), DType::kBf16);
  const ValueId made = b.Cast(b.MatMul(kept, grad), DType::kFp32);
  b.Output(b.Add(Op::mul, {made, scale}), "dp");
  return b.Build();
}

TEST_CASE("a mask that is read on both sides of a matmul is never stored as fp32") {
  const int64_t n = 1024;
  const Planned planned = PlanOf(Dropout(n));
  // mask, p -> bf16; mask, the product in bf16 -> fp32.
  CHECK(KernelBytes(planned.plan) == n * n * (1 + 4 + 2 + 1 + 2 + 4));
}

TEST_CASE("a widening cast is separated by the barrier depths of its readers, views and all") {
  GraphBuilder b("separated");
  const int64_t n = 256;
  const ValueId x = b.Input({DType::kBf16, {n, n}}, {.name = "x"});
  const ValueId wide = b.Permute(b.Cast(x, DType::kFp32), {1, 0});
  const ValueId before = b.Add(Op::exp, {wide});
  const ValueId after = b.Add(Op::mul, {b.MatMul(before, before), wide});
  b.Output(after, "after");
  b.Output(b.Add(Op::neg, {wide}), "beside");
  const auto graph = b.Build();
  REQUIRE(graph.ok());
  const auto separated = RematerializeAtBarriers(*graph);
  REQUIRE(separated.ok());
  int casts = 0;
  for (uint32_t i = 0; i < separated->num_nodes(); ++i)
    casts += IsWideningCast(*separated, NodeId{i});
  CHECK(casts == 2);
  const auto again = RematerializeAtBarriers(*separated);
  REQUIRE(again.ok());
  CHECK(again->num_nodes() == separated->num_nodes());
}

GroupedMatMulCall OnlyGroupedMatMul(const Planned& planned) {
  for (const Group& group : planned.plan.groups) {
    if (const Call* call = CallOf(group)) return GroupedMatMulOf(*call);
  }
  FAIL("no call");
  return {};
}

Attrs Into(const char* dtype) {
  Attrs attrs;
  attrs.Set("dtype", std::string(dtype));
  return attrs;
}

constexpr int64_t kPlaces = 64, kLeft = 48, kRight = 80, kGroups = 3;

// Sums in groups of what `left` and `right`, [places, columns], make fp8 of.
template <typename Make>
absl::StatusOr<BackwardGraph> SumsOfFp8(Make make) {
  GraphBuilder b("sums");
  const ValueId ends = b.Input({DType::kInt32, {kGroups}}, {.name = "ends"});
  const ValueId left = make(b, kLeft, "left"), right = make(b, kRight, "right");
  const ValueId product =
      b.Add(Op::grouped_matmul, {b.Permute(left, {1, 0}), right, ends}, Into("bf16"));
  b.Output(product, "product");
  return b.Build();
}

TEST_CASE("matrices of fp8 are stored along the sums of their product") {
  const auto graph = SumsOfFp8([](GraphBuilder& b, int64_t columns, const char* name) {
    return b.Cast(b.Input({DType::kBf16, {kPlaces, columns}}, {.name = name}), DType::kFp8E4M3);
  });
  const Planned planned = PlanOf(graph);
  const GroupedMatMulCall call = OnlyGroupedMatMul(planned);
  CHECK((call.a.col_stride == 1 && call.a.row_stride == kPlaces));
  CHECK((call.b.row_stride == 1 && call.b.col_stride == kPlaces));
  CHECK(KernelBytes(planned.plan) == kPlaces * (kLeft + kRight) * (2 + 1));  // and nothing copied
}

TEST_CASE("given matrices of fp8 that lie otherwise are copied once") {
  const auto graph = SumsOfFp8([](GraphBuilder& b, int64_t columns, const char* name) {
    return b.Input({DType::kFp8E4M3, {kPlaces, columns}}, {.name = name});
  });
  const Planned planned = PlanOf(graph);
  const GroupedMatMulCall call = OnlyGroupedMatMul(planned);
  CHECK((call.a.col_stride == 1 && call.b.row_stride == 1));
  CHECK(KernelBytes(planned.plan) == kPlaces * (kLeft + kRight) * 2);
}

TEST_CASE("a matrix of fp8 that two products want to lie in two ways is copied for one") {
  GraphBuilder b("two");
  const ValueId x = b.Cast(b.Input({DType::kBf16, {64, 64}}, {.name = "x"}), DType::kFp8E4M3);
  const ValueId y = b.Input({DType::kFp8E4M3, {64, 64}}, {.name = "y"});
  const Attrs wide = Into("f32");
  b.Output(b.Add(Op::matmul, {x, b.Permute(y, {1, 0})}, wide), "rows");
  b.Output(b.Add(Op::matmul, {b.Permute(x, {1, 0}), b.Permute(y, {1, 0})}, wide), "columns");
  b.Output(b.Add(Op::matmul, {x, b.Permute(x, {1, 0})}, wide), "square");
  const auto graph = b.Build();
  const Planned planned = PlanOf(graph);
  int calls = 0;
  for (const Group& group : planned.plan.groups) {
    const Call* call = CallOf(group);
    if (call == nullptr) continue;
    ++calls;
    const MatMulCall product = MatMulOf(*call);
    CHECK((product.a.col_stride == 1 && product.b.row_stride == 1));
  }
  CHECK(calls == 3);
}

// Reads `scaled` before and after a matmul.
absl::StatusOr<BackwardGraph> OnBothSides(GraphBuilder& b, ValueId scaled, ValueId grad) {
  const ValueId before = b.Cast(b.Add(Op::exp, {scaled}), DType::kBf16);
  b.Output(b.Add(Op::mul, {b.Cast(b.MatMul(before, grad), DType::kFp32), scaled}), "after");
  return b.Build();
}

TEST_CASE("what is made of one saved tensor at no more than the cost of reading it is made again") {
  GraphBuilder b("again");
  const int64_t n = 1024;
  const ValueId x = b.Input({DType::kFp32, {n, n}}, {.name = "x"});
  const ValueId row = b.Input({DType::kFp32, {n, 1}}, {.name = "row"});
  const ValueId grad = b.Input({DType::kBf16, {n, n}}, {.name = "grad"});
  const ValueId scaled = b.Add(Op::mul, {b.Add(Op::div, {x, b.Full(512, DType::kFp32)}), row});
  const Planned planned = PlanOf(OnBothSides(b, scaled, grad));
  // x -> bf16; x, the product in bf16 -> fp32; the row twice.
  CHECK(KernelBytes(planned.plan) == n * n * (4 + 2 + 4 + 2 + 4) + 2 * 4 * n);
}

// sin takes 1 / 7.8 of a clock and SM, half of what memory takes for 4 bytes.
TEST_CASE("one special function is made again in less time than memory takes for its result") {
  GraphBuilder b("again");
  const int64_t n = 1024;
  const ValueId x = b.Input({DType::kFp32, {n, n}}, {.name = "x"});
  const ValueId grad = b.Input({DType::kBf16, {n, n}}, {.name = "grad"});
  const Planned planned = PlanOf(OnBothSides(b, b.Add(Op::sin, {x}), grad));
  CHECK(KernelBytes(planned.plan) == n * n * (4 + 2 + 4 + 2 + 4));
}

TEST_CASE("what takes two special functions, or two saved tensors, is stored") {
  for (const bool special : {false, true}) {
    GraphBuilder b("stored");
    const int64_t n = 1024;
    const ValueId x = b.Input({DType::kFp32, {n, n}}, {.name = "x"});
    const ValueId y = b.Input({DType::kFp32, {n, n}}, {.name = "y"});
    const ValueId grad = b.Input({DType::kBf16, {n, n}}, {.name = "grad"});
    const ValueId scaled = special ? b.Add(Op::sin, {b.Add(Op::sin, {x})}) : b.Add(Op::add, {x, y});
    const Planned planned = PlanOf(OnBothSides(b, scaled, grad));
    CHECK(KernelBytes(planned.plan) == n * n * ((special ? 4 : 8) + 4 + 2 + 4 + 2 + 4));
  }
}

// g1 = r + cast(a·b) feeds nothing but g2 = g1 + cast(c·d), where c is made from another matmul: g1
// could be computed before that matmul or beside g2.
TEST_CASE("a gradient that only a later kernel adds to is made there and never stored") {
  for (const bool read_between : {false, true}) {
    GraphBuilder b("sums");
    const int64_t n = 1024;
    const TensorType bf16{DType::kBf16, {n, n}};
    const ValueId r = b.Input({DType::kFp32, {n, n}}, {.name = "r"});
    const ValueId a = b.Input(bf16, {.name = "a"}), w = b.Input(bf16, {.name = "w"});
    const ValueId first = b.Cast(b.MatMul(a, w), DType::kFp32);
    const ValueId g1 = b.Add(Op::add, {r, first});
    const ValueId c = b.Add(Op::exp, {read_between ? b.Cast(g1, DType::kBf16) : b.MatMul(w, a)});
    const ValueId second = b.Cast(b.MatMul(b.MatMul(c, w), a), DType::kFp32);
    b.Output(b.Add(Op::add, {g1, second}), "g2");
    const Planned planned = PlanOf(b.Build());
    // Apart, g1 is written and read; together, only what it is made of is read.
    const int64_t exp = 2 + 2, sum = 4 + 2 + 4;
    CHECK(KernelBytes(planned.plan) ==
          n * n * (read_between ? 4 + 2 + 4 + 2 + sum : exp + 4 + 2 + 2 + 4));
  }
}

TEST_CASE("a cast that the host receives or that is small stays one") {
  for (const bool small : {false, true}) {
    GraphBuilder b("one");
    const int64_t n = small ? 8 : 256;
    const ValueId x = b.Input({DType::kBf16, {n, n}}, {.name = "x"});
    const ValueId wide = b.Cast(x, DType::kFp32);
    b.Output(b.Add(Op::mul, {b.MatMul(wide, wide), wide}), "y");
    b.Output(small ? b.Add(Op::exp, {wide}) : wide, "z");
    const auto graph = b.Build();
    REQUIRE(graph.ok());
    const auto separated = RematerializeAtBarriers(*graph);
    REQUIRE(separated.ok());
    CHECK(separated->num_nodes() == graph->num_nodes());
  }
}

TEST_CASE("a kernel does not transpose what a matmul reads in either order") {
  GraphBuilder b("transposed");
  const ValueId p = b.Input({DType::kFp32, {16, 512, 512}}, {.name = "p"});
  const ValueId g = b.Input({DType::kBf16, {16, 512, 64}}, {.name = "g"});
  const ValueId turned = b.Cast(b.Permute(p, {0, 2, 1}), DType::kBf16);
  b.Output(b.MatMul(turned, g), "dv");
  const Planned planned = PlanOf(b.Build());
  for (const Group& group : planned.plan.groups) {
    const KernelBody* kernel = KernelOf(group);
    if (kernel != nullptr) CHECK(kernel->schedule.kind == Template::kPointwise);
  }
  const MatMulCall call = OnlyMatMul(planned.plan);
  CHECK(call.a.row_stride == 1);
  CHECK(call.a.col_stride == 512);
}

TEST_CASE("rows that a kernel stores for a matmul begin at multiples of 16 bytes") {
  GraphBuilder b("vocabulary");
  const ValueId logits = b.Input({DType::kBf16, {256, 1021}}, {.name = "logits"});
  const ValueId x = b.Input({DType::kBf16, {256, 64}}, {.name = "x"});
  const ValueId grad = b.Add(Op::exp, {logits});
  b.Output(b.MatMul(b.Permute(grad, {1, 0}), x), "dw");
  const Planned planned = PlanOf(b.Build());
  const MatMulCall call = OnlyMatMul(planned.plan);
  CHECK(call.a.row_stride == 1);
  CHECK(call.a.col_stride == 1024);
}

// dx = pad(y) · pad(w) with 1021 terms made 1024, and dw = yᵀ · x with its 1021 rows, on a device
// where that takes long enough.
TEST_CASE("a matmul beside one that reads zeros appended to its operand reads them too") {
  DeviceSpec device = *LoadDeviceSpec("h200");
  device.matmul_odd_extent_ppm = 10'000'000;
  for (const bool aligned : {false, true}) {
    GraphBuilder b("padded");
    const int64_t v = aligned ? 1016 : 1021;
    const ValueId logits = b.Input({DType::kBf16, {256, v}}, {.name = "logits"});
    const ValueId w = b.Input({DType::kBf16, {v, 64}}, {.name = "w"});
    const ValueId x = b.Input({DType::kBf16, {256, 64}}, {.name = "x"});
    const ValueId y = b.Add(Op::tanh, {logits});
    const auto pad = [&](ValueId value, int64_t rows, int64_t columns) {
      return b.Add(Op::pad, {value},
                   {{"high", std::vector<int64_t>{rows, columns}},
                    {"low", std::vector<int64_t>{0, 0}},
                    {"value", 0.0}});
    };
    b.Output(b.MatMul(pad(y, 0, 1024 - v), pad(w, 1024 - v, 0)), "dx");
    b.Output(b.MatMul(b.Permute(y, {1, 0}), x), "dw");
    const auto graph = b.Build();
    const Planned planned = PlanOf(graph, device);
    std::vector<int64_t> rows;
    for (const Group& group : planned.plan.groups) {
      if (const Call* call = CallOf(group)) rows.push_back(MatMulOf(*call).m);
    }
    std::sort(rows.begin(), rows.end());
    CHECK(rows == std::vector<int64_t>{256, aligned ? v : 1024});
    CHECK(LargestDifference(*graph, planned.graph) <= 1e-10);
  }
}

// A softmax's gradient of `v` classes from logits that were padded to 1024, padded again for a
// matmul, beside a sum of its columns. `shifted`: the rows' other order, which no row of the padded
// length has.
absl::StatusOr<BackwardGraph> PaddedSoftmax(int64_t v, bool shifted) {
  GraphBuilder b("softmax");
  const ValueId logits = b.Input({DType::kBf16, {256, 1024}}, {.name = "logits"});
  const ValueId row = b.Input({DType::kFp32, {256, 1}}, {.name = "row"});
  const ValueId w = b.Input({DType::kBf16, {v, 64}}, {.name = "w"});
  ValueId x =
      b.Add(Op::slice, {logits},
            {{"axis", int64_t{1}}, {"start", int64_t{0}}, {"step", int64_t{1}}, {"stop", v}});
  if (shifted) x = b.Add(Op::flip, {x}, {{"axes", std::vector<int64_t>{1}}});
  const ValueId e = b.Add(Op::exp, {b.Add(Op::sub, {b.Cast(x, DType::kFp32), row})});
  const ValueId total = b.Sum(e, {1}, /*keep=*/true);
  const ValueId y = b.Cast(b.Add(Op::div, {e, total}), DType::kBf16);
  const auto pad = [&](ValueId value, int64_t rows, int64_t columns) {
    return b.Add(Op::pad, {value},
                 {{"high", std::vector<int64_t>{rows, columns}},
                  {"low", std::vector<int64_t>{0, 0}},
                  {"value", 0.0}});
  };
  b.Output(b.MatMul(pad(y, 0, 1024 - v), pad(w, 1024 - v, 0)), "dx");
  b.Output(b.Sum(b.Cast(y, DType::kFp32), {0}), "db");
  return b.Build();
}

TEST_CASE(
    "rows that are padded for a matmul are computed at the padded length, and mean the same") {
  const auto graph = PaddedSoftmax(1021, false);
  REQUIRE(graph.ok());
  const auto padded = PadRows(*graph);
  REQUIRE(padded.ok());
  CHECK(LargestDifference(*graph, *padded) == 0);
  const Planned planned = PlanOf(graph);
  CHECK(LargestDifference(*graph, planned.graph) <= 1e-10);
  for (const Group& group : planned.plan.groups) {
    const KernelBody* kernel = KernelOf(group);
    const bool rows = kernel != nullptr && kernel->schedule.kind == Template::kRowReduction;
    if (rows) CHECK(kernel->schedule.vector_width == 8);
  }
}

TEST_CASE("rows stay as long as they are where a pad has another reason or other ops lead to it") {
  for (const auto& graph : {PaddedSoftmax(1016, false), PaddedSoftmax(1021, true)}) {
    REQUIRE(graph.ok());
    const auto padded = PadRows(*graph);
    REQUIRE(padded.ok());
    const auto pads = [](const BackwardGraph& g) {
      int count = 0;
      for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == Op::pad;
      return count;
    };
    CHECK(pads(*padded) == pads(*graph));
  }
}

}  // namespace
}  // namespace retrograd
