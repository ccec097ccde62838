// Which kernels of programs that differ in sizes become one, and that such programs give the same
// bits as those that have kernels of their own.
#include "runtime/compiler/kernel_families.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "codegen/attention/emit_tiled_attention.h"
#include "codegen/print/kernel_text.h"
#include "fusion/device/device_spec.h"
#include "fusion/ops/attention/attention_tiles.h"
#include "fusion/planner/planner.h"
#include "models/models.h"
#include "runtime/device/shared_kernels.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

// Of a matrix whose rows have so many columns.
Kernel Rows(int64_t rows, int64_t columns) {
  Kernel kernel{.threads = 64, .arguments = 1};
  kernel.function = {
      .declarations = {{.type = "float", .name = "y", .at = 0}},
      .statements = absl::StrCat("  const int i = RG_BLOCK * 64 + RG_THREAD;\n  if (i < ",
                                 Sized(rows * columns), ") rg_store(y, i, i / ", Sized(columns),
                                 " * 1.0f + ", Sized(rows), ");\n")};
  NameKernel(&kernel);
  return kernel;
}

using Words = std::vector<int32_t>;

TEST_CASE("the first program has its kernels as they are") {
  KernelFamilies families;
  const int64_t program = families.NewProgram();
  for (int64_t columns : {768, 3072}) {
    const Kernel kernel = Rows(10, columns);
    const LiftedKernel lifted = families.Lift(program, kernel);
    CHECK(*lifted.kernel == kernel);
    CHECK(lifted.numbers.empty());
  }
}

TEST_CASE("the second size makes arguments of what it changes, and later sizes find the kernel") {
  KernelFamilies families;
  int64_t program = families.NewProgram();
  families.Lift(program, Rows(10, 768));
  families.Lift(program, Rows(10, 3072));
  program = families.NewProgram();
  const LiftedKernel narrow = families.Lift(program, Rows(20, 768));
  const LiftedKernel wide = families.Lift(program, Rows(20, 3072));
  CHECK(narrow.numbers == Words{20 * 768, 20});
  CHECK(wide.numbers == Words{20 * 3072, 20});
  // What is the same in both sizes stays a literal, though other kernels differ in it.
  CHECK_THAT(PrintKernel(*narrow.kernel), ContainsSubstring("i / 768"));
  CHECK_THAT(PrintKernel(*wide.kernel), ContainsSubstring("i / 3072"));
  program = families.NewProgram();
  const LiftedKernel third = families.Lift(program, Rows(33, 768));
  CHECK(third.kernel == narrow.kernel);
  CHECK(third.numbers == Words{33 * 768, 33});
}

TEST_CASE("numbers that were equal by chance are parted when they differ") {
  KernelFamilies families;
  families.Lift(families.NewProgram(), Rows(1, 5));
  const LiftedKernel alike = families.Lift(families.NewProgram(), Rows(1, 7));
  CHECK(alike.numbers == Words{7});
  const LiftedKernel parted = families.Lift(families.NewProgram(), Rows(3, 7));
  CHECK(parted.numbers == Words{21, 7, 3});
  // The first one is served by it, too.
  const LiftedKernel again = families.Lift(families.NewProgram(), Rows(2, 5));
  CHECK(again.kernel == parted.kernel);
  CHECK(again.numbers == Words{10, 5, 2});
}

TEST_CASE("a kernel gets the same answer whenever it is asked for") {
  KernelFamilies families;
  families.Lift(families.NewProgram(), Rows(1, 5));
  const LiftedKernel first = families.Lift(families.NewProgram(), Rows(1, 7));
  families.Lift(families.NewProgram(), Rows(3, 9));
  const LiftedKernel again = families.Lift(families.NewProgram(), Rows(1, 7));
  CHECK(again.kernel == first.kernel);
  CHECK(again.numbers == first.numbers);
}

TEST_CASE("a kernel that takes its addresses without a table keeps its numbers") {
  KernelFamilies families;
  for (int64_t rows : {3, 4}) {
    Kernel kernel = Rows(rows, 5);
    kernel.direct = true;
    NameKernel(&kernel);
    CHECK(*families.Lift(families.NewProgram(), kernel).kernel == kernel);
  }
}

TEST_CASE("different kernels that were given one name get names of their own") {
  KernelFamilies families;
  const int64_t program = families.NewProgram();
  Kernel first = Rows(3, 5), second = Rows(3, 6), direct = Rows(3, 7);
  direct.direct = true;
  for (Kernel* kernel : {&first, &second, &direct}) kernel->name = "rg_given";
  const std::string names[] = {families.Lift(program, first).kernel->name,
                               families.Lift(program, second).kernel->name,
                               families.Lift(program, direct).kernel->name};
  CHECK(names[0] != names[1]);
  CHECK(names[0] != names[2]);
  CHECK(names[1] != names[2]);
}

// Kernels for tensor cores of the attention of a model with heads of 64.
std::vector<Kernel> AttentionOfLength(int length) {
  const auto graph = BuildModel(
      absl::StrCat("gpt2:layers=1,d=128,heads=2,batch=2,vocab=8,dtype=bf16,seq=", length));
  REQUIRE(graph.ok());
  const auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), {});
  REQUIRE(planned.ok());
  std::vector<Kernel> kernels;
  for (const Group& group : planned->plan.groups) {
    const Call* call = CallOf(group);
    if (call == nullptr || call->op != Op::attention_backward) continue;
    const AttentionCall attention = AttentionOf(*call);
    std::vector<DType> dtypes;
    for (const CallTensor& operand : call->operands) dtypes.push_back(operand.dtype);
    const AttentionTiles tiles = ChooseAttentionTiles(attention, /*sms=*/132);
    for (const auto& launch : EmitTiledAttention(attention, dtypes, tiles).launches) {
      kernels.push_back(launch.kernel);
    }
  }
  return kernels;
}

TEST_CASE("kernels of attention that served two lengths serve the others") {
  KernelFamilies families;
  std::set<std::string> names;
  // Of two lengths that tiles divide: what then comes out even must not be taken for equal.
  for (int length : {128, 192, 100, 77, 33}) {
    const int64_t program = families.NewProgram();
    for (const Kernel& kernel : AttentionOfLength(length)) {
      names.insert(families.Lift(program, kernel).kernel->name);
    }
    const size_t texts = length == 128 ? 2 : 4;  // the gradient of Q, those of K and V
    CHECK(names.size() == texts);
  }
}

// --- programs

struct Family {
  const char* model;
  std::vector<int> sizes;
};

const Family kFamilies[] = {
    {"bert:layers=1,d=8,heads=2,batch=2,vocab=7,dtype=fp32,seq=", {3, 1, 8, 17, 5, 32, 7}},
    {"gpt2:layers=2,d=16,heads=2,vocab=7,dtype=bf16,seq=5,batch=", {2, 1, 3, 8, 13}},
    {"llama:layers=1,d=8,heads=2,kv_heads=1,batch=2,ff=12,vocab=7,dtype=fp32,seq=",
     {4, 3, 64, 65, 127}},
    {"vit:layers=1,d=8,heads=2,image=4,patch=2,classes=5,dtype=fp32,batch=", {2, 1, 3, 31, 64}},
};

TEST_CASE("programs of several sizes that share kernels give the bits of those that do not") {
  const Family family = GENERATE(from_range(std::begin(kFamilies), std::end(kFamilies)));
  const bool check = GENERATE(false, true);
  RunSetup shared;
  shared.host.compile.check = check;
  shared.host.shared_kernels = std::make_shared<SharedKernels<HostModule>>();
  for (int size : family.sizes) {
    const std::string name = absl::StrCat(family.model, size);
    INFO(name << (check ? ", checked" : ""));
    const auto graph = BuildModel(name);
    REQUIRE(graph.ok());
    const std::vector<Values> inputs = RandomInputs(*graph, 5);
    const auto alone = RunOnHost(*graph, inputs, {});
    const auto together = RunOnHost(*graph, inputs, shared);
    INFO(alone.status() << together.status());
    REQUIRE((alone.ok() && together.ok()));
    for (size_t o = 0; o < alone->outputs.size(); ++o) {
      CHECK(together->outputs[o] == alone->outputs[o]);
    }
  }
}

TEST_CASE("after a few sizes a program of another one compiles hardly anything") {
  RunSetup shared;
  shared.host.shared_kernels = std::make_shared<SharedKernels<HostModule>>();
  const auto run = [&](int size) {
    const auto graph = BuildModel(
        absl::StrCat("gpt2:layers=1,d=64,heads=2,batch=2,vocab=64,dtype=fp32,seq=", size));
    REQUIRE(graph.ok());
    const size_t before = shared.host.shared_kernels->size();
    REQUIRE(RunOnHost(*graph, RandomInputs(*graph, 5), shared).ok());
    return shared.host.shared_kernels->size() - before;
  };
  const size_t first = run(100);
  size_t most = 0;
  for (int size : {120, 96, 77, 127})
    run(size);  // from 122 on the embedding's sum has another schedule
  for (int size : {101, 111, 88, 123}) most = std::max(most, run(size));
  INFO(first << " kernels, at most " << most << " new ones");
  CHECK(first >= 5);
  CHECK(most * 4 <= first);
  // Of each kernel its own text, those of several sizes as these are told apart, another
  // schedule's.
  CHECK(shared.host.shared_kernels->size() <= 4 * first);
}

}  // namespace
}  // namespace retrograd
