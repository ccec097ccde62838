// Every row of the op table tests itself by existing: its kernel, run on the host in fp64 and fp32,
// against its reference function; and its kernel's text through the run-time compilers of both GPU
// vendors, where they are installed.
#include <cmath>
#include <set>

#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/planner/planner.h"
#include "graph/reference/reference.h"
#include "runtime/compiler/rtc.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

// A graph that holds one op, on small shapes that its row accepts; nullopt for rows that stand for
// no computation of their own.
std::optional<BackwardGraph> OneOp(Op op, DType dtype) {
  GraphBuilder b(std::string(Name(op)));
  auto input = [&](Shape shape, DType d, const char* name) {
    return b.Input({d, std::move(shape)}, {.name = name, .alignment = 16});
  };
  const OpInfo& info = Info(op);
  const Shape shape = {6, 32};
  std::vector<ValueId> operands;
  Attrs attrs;
  switch (info.pattern) {
    case Pattern::kInput: return std::nullopt;
    case Pattern::kPointwise:
      if (info.max_operands == 0) {
        attrs = op == Op::full
                    ? Attrs{{"value", 1.5}}
                    : Attrs{{"axis", int64_t{1}}, {"start", int64_t{3}}, {"step", int64_t{2}}};
        attrs.Set("shape", shape);
        attrs.Set("dtype", std::string(Name(dtype)));
        break;
      }
      for (int i = 0; i < info.min_operands; ++i) {
        const bool boolean =
            info.type_rule == TypeRule::kLogical || (info.type_rule == TypeRule::kSelect && i == 0);
        operands.push_back(input(shape, boolean ? DType::kBool : dtype, "x"));
      }
      if (op == Op::cast) attrs.Set("dtype", std::string("f16"));
      // Domains: what a logarithm, root, power or quotient takes.
      if (op == Op::log || op == Op::log2 || op == Op::sqrt || op == Op::rsqrt || op == Op::pow ||
          op == Op::log1p) {
        operands[0] = b.Add(Op::abs, {operands[0]});
      }
      if (op == Op::rsqrt || op == Op::log || op == Op::log2 || op == Op::reciprocal ||
          op == Op::pow) {
        operands[0] = b.Add(Op::add, {b.Add(Op::abs, {operands[0]}), b.Full(0.25, dtype)});
      }
      if (op == Op::div || op == Op::fmod) {
        operands[1] = b.Add(Op::add, {b.Add(Op::abs, {operands[1]}), b.Full(0.25, dtype)});
      }
      break;
    case Pattern::kReduction:
      operands = {input(shape, dtype, "x")};
      attrs.Set("axes", std::vector<int64_t>{1});
      break;
    case Pattern::kLibrary: {
      if (op == Op::matmul) {
        operands = {input({6, 8}, dtype, "a"), input({8, 4}, dtype, "b")};
        break;
      }
      if (op == Op::grouped_matmul) {
        operands = {input({6, 8}, dtype, "a"), input({3, 8, 4}, dtype, "b"),
                    input({3}, DType::kInt32, "ends")};
        break;
      }
      if (op == Op::segment_amax) {
        operands = {input({40, 8}, dtype, "x"), input({3}, DType::kInt32, "ends")};
        attrs = {{"axis", int64_t{0}}, {"magnitude", int64_t{1}}};  // no infinity of empty groups
        break;
      }
      if (op == Op::scatter_lines) {
        operands = {input({3, 40}, DType::kInt64, "index"), input({2, 3, 40}, dtype, "src")};
        attrs.Set("extent", int64_t{12});
        break;
      }
      if (op == Op::sort_indices) {
        operands = {input({40}, DType::kInt64, "index")};
        attrs.Set("rows", int64_t{12});
        break;
      }
      if (op != Op::attention_backward) {
        const Shape x = {2, 4, 6, 5}, w = {6, 2, 3, 2}, y = {2, 6, 3, 2};
        attrs = {{"stride", Shape{2, 3}},
                 {"padding", Shape{1, 0}},
                 {"dilation", Shape{1, 1}},
                 {"groups", int64_t{2}}};
        if (op == Op::convolution_input_gradient) attrs.Set("input_shape", x);
        if (op == Op::convolution_weight_gradient) attrs.Set("weight_shape", w);
        operands = {input(op == Op::convolution ? x : y, dtype, "a"),
                    input(op == Op::convolution_weight_gradient ? x : w, dtype, "b")};
        break;
      }
      const Shape heads = {1, 2, 6, 8};
      operands = {input(heads, dtype, "dO"),
                  input(heads, dtype, "Q"),
                  input(heads, dtype, "K"),
                  input(heads, dtype, "V"),
                  input(heads, dtype, "O"),
                  input({1, 2, 6}, dtype == DType::kFp64 ? dtype : DType::kFp32, "lse")};
      attrs = {{"scale", 0.25},
               {"causal", int64_t{1}},
               {"dropout_p", 0.0},
               {"variant", std::string("flash_cpu")}};
      break;
    }
    case Pattern::kView:
      operands = {input(op == Op::expand ? Shape{1, 32} : shape, dtype, "x")};
      if (op == Op::reshape) attrs.Set("shape", Shape{12, 16});
      if (op == Op::permute) attrs.Set("perm", std::vector<int64_t>{1, 0});
      if (op == Op::expand) attrs.Set("shape", shape);
      if (op == Op::slice)
        attrs = {{"axis", int64_t{1}},
                 {"start", int64_t{3}},
                 {"stop", int64_t{30}},
                 {"step", int64_t{2}}};
      if (op == Op::flip) attrs.Set("axes", std::vector<int64_t>{1});
      if (op == Op::pad) attrs = {{"low", Shape{1, 0}}, {"high", Shape{0, 2}}, {"value", 0.5}};
      break;
    case Pattern::kJoin:
      operands = {input(shape, dtype, "x"), input(op == Op::cat ? shape : Shape{6, 5}, dtype, "y")};
      attrs.Set("axis", int64_t{1});
      if (op == Op::slice_scatter) {
        attrs.Set("start", int64_t{2});
        attrs.Set("stop", int64_t{12});
        attrs.Set("step", int64_t{2});
      }
      break;
    case Pattern::kGather:
      operands = {input(shape, dtype, "x"),
                  input(op == Op::gather ? Shape{4, 32} : Shape{9}, DType::kInt64, "index")};
      attrs.Set("axis", int64_t{0});
      break;
    case Pattern::kScatter:
      operands = {input(shape, dtype, "base"), input({9}, DType::kInt64, "index"),
                  input({9, 32}, dtype, "src")};
      if (op == Op::segment_add) {
        operands[1] = b.Add(Op::sort_indices, {operands[1]}, {{"rows", shape[0]}});
      }
      attrs.Set("axis", int64_t{0});
      break;
    case Pattern::kAccumulate:
      operands = {input(shape, dtype, "a"), input({3, 32}, dtype, "b"), input(shape, dtype, "c")};
      attrs = {{"shape", shape}, {"starts", std::vector<int64_t>{0, 0, 2, 0, 0, 0}}};
      break;
    case Pattern::kScan:
      operands = {input(shape, dtype, "x")};
      attrs.Set("axis", int64_t{1});
      break;
    case Pattern::kComposite: {
      const bool norm = op == Op::rms_norm_backward || op == Op::layer_norm_backward;
      for (int i = 0; i < info.min_operands; ++i) {
        const bool last = norm && i + 1 == info.min_operands;
        operands.push_back(input(last             ? Shape{32}
                                 : norm && i >= 2 ? Shape{6, 1}
                                                  : shape,
                                 dtype, "x"));
      }
      break;
    }
  }
  const ValueId first = b.Add(op, operands, attrs);
  if (!b.status().ok()) return std::nullopt;
  for (uint32_t r = 0; b.HasValue({first.node, r}); ++r) b.Output({first.node, r}, "y");
  auto graph = b.Build();
  return graph.ok() ? std::optional<BackwardGraph>(*graph) : std::nullopt;
}

// The dtypes in which a row is tried: floats, and int64 or bool where it takes no floats.
DType DTypeFor(const OpInfo& info, DType wanted) {
  return info.type_rule == TypeRule::kLogical ? DType::kBool : wanted;
}

void CheckRow(const OpInfo& info, DType wanted, double tolerance) {
  const auto graph = OneOp(info.op, DTypeFor(info, wanted));
  INFO("op " << info.name << " in " << Name(wanted));
  if (info.pattern == Pattern::kInput) return;
  REQUIRE(graph.has_value());
  const std::vector<Values> inputs = RandomInputs(*graph, 11);
  RunSetup setup;
  setup.host.compile.check = true;
  auto run = RunOnHost(*graph, inputs, setup);
  REQUIRE(run.status().ToString() == "OK");
  auto values =
      Evaluate(run->planned.graph, inputs, {.mode = ReferenceOptions::kFloat64, .keep_all = true});
  REQUIRE(values.status().ToString() == "OK");
  auto scale = Magnitudes(run->planned.graph, *values);
  REQUIRE(scale.ok());
  const BackwardGraph& g = run->planned.graph;
  for (size_t o = 0; o < g.outputs().size(); ++o) {
    const size_t v = g.value_index(*g.outputs()[o].value);
    REQUIRE(run->outputs[o].size() == (*values)[v].size());
    for (size_t i = 0; i < run->outputs[o].size(); ++i) {
      const bool half = g.type(*g.outputs()[o].value).dtype == DType::kFp16;
      const double bound = (half ? 1e-3 : tolerance) * std::max((*scale)[v][i], 1e-6);
      INFO("output " << o << " element " << i);
      CHECK(std::fabs(run->outputs[o][i] - (*values)[v][i]) <= bound);
    }
  }
}

TEST_CASE("the kernel of every row agrees with the row's reference in fp64") {
  for (const OpInfo& info : AllOps()) CheckRow(info, DType::kFp64, 1e-10);
}

TEST_CASE("the kernel of every row agrees with the row's reference in fp32") {
  for (const OpInfo& info : AllOps()) CheckRow(info, DType::kFp32, 2e-6);
}

// The kernels of every row, in one dialect and dtype.
std::vector<Kernel> AllRows(Dialect dialect, DType dtype) {
  std::vector<GroupKernels> kernels;
  auto device = LoadDeviceSpec(dialect == Dialect::kHip ? "mi250x" : "h200");
  for (const OpInfo& info : AllOps()) {
    const auto graph = OneOp(info.op, DTypeFor(info, dtype));
    if (!graph) continue;
    auto planned = PlanFusion(*graph, *device);
    REQUIRE(planned.status().ToString() == "OK");
    for (const Group& group : planned->plan.groups) {
      kernels.push_back(EmitGroup(group, dialect));
    }
  }
  return DistinctKernels(kernels);
}

TEST_CASE("the kernel of every row compiles for sm_90") {
#ifdef __SANITIZE_ADDRESS__
  RG_SKIP("NVRTC reads its own stacks in ways that AddressSanitizer takes for errors");
#endif
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  for (DType dtype : {DType::kBf16, DType::kFp32, DType::kFp64}) {
    auto object = CompileKernels(Dialect::kCuda, AllRows(Dialect::kCuda, dtype), "sm_90");
    CHECK(object.status().ToString() == "OK");
  }
}

TEST_CASE("the kernel of every row compiles for gfx90a") {
  RG_NEEDS_COMPILER(HipCompilerAvailable());
  for (DType dtype : {DType::kBf16, DType::kFp32, DType::kFp64}) {
    auto object = CompileKernels(Dialect::kHip, AllRows(Dialect::kHip, dtype), "gfx90a");
    CHECK(object.status().ToString() == "OK");
  }
}

}  // namespace
}  // namespace retrograd
