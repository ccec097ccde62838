// Which launches of a program start early, and that a wrong mark is found.
#include "runtime/program/early_launches.h"

#include <algorithm>
#include <map>

#include "codegen/translation_unit.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

const EarlyLaunchLimits kAll{.gain_ps = 1, .longest_ps = INT64_MAX, .most_bytes = INT64_MAX};

CompiledPlan Compiled(absl::string_view model, const EarlyLaunchLimits& early,
                      Dialect dialect = Dialect::kCuda, int streams = 1, int phases = 1) {
  const auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  const auto graph = BuildModel(model);
  INFO(graph.status());
  REQUIRE(graph.ok());
  const auto planned = PlanFusion(*graph, *spec, {.disable = {"matmul_epilogues"}});
  REQUIRE(planned.ok());
  CompileOptions options{.dialect = dialect, .early = early};
  options.schedule.streams = streams;
  options.memory.phases.most = phases;
  auto compiled = Compile(planned->graph, planned->plan, options);
  INFO(compiled.status());
  REQUIRE(compiled.ok());
  return *std::move(compiled);
}

CommandList Commands(const CompiledPlan& compiled, uint64_t order_seed = 0) {
  auto list = BuildCommands(compiled, order_seed);
  INFO(list.status());
  REQUIRE(list.ok());
  return *std::move(list);
}

int64_t Early(const CommandList& list) {
  int64_t early = 0;
  for (const Command& command : list.commands) early += command.early ? 1 : 0;
  return early;
}

constexpr absl::string_view kModel = "norm_stack:layers=2,rows=2000,columns=24,dtype=fp32";

TEST_CASE("a launch is early where right in front of it on its stream stands a launch or a call") {
  const int streams = GENERATE(1, 3);
  const int phases = GENERATE(1, 4);
  const uint64_t seed = GENERATE(0, 1, 2);
  const std::string model = GENERATE(as<std::string>{}, std::string(kModel), "mlp:tokens=512");
  INFO(model << ", " << streams << " streams, " << phases << " phases, order " << seed);
  const CompiledPlan compiled = Compiled(model, kAll, Dialect::kCuda, streams, phases);
  const CommandList list = Commands(compiled, seed);
  REQUIRE(Early(list) > 0);
  std::map<int, Command> before;  // by stream; events that are recorded are no work
  int64_t late = 0;
  for (const Command& command : list.commands) {
    const auto found = before.find(command.stream);
    const bool behind =
        found != before.end() && found->second.phase == command.phase &&
        (found->second.kind == Command::kLaunch || found->second.kind == Command::kCall);
    const bool work = command.kind == Command::kLaunch || command.kind == Command::kCall;
    CHECK(command.early == (work && behind));
    late += work && !behind ? 1 : 0;
    if (command.kind != Command::kRecord) before[command.stream] = command;
  }
  CHECK(late > 0);
}

// Launches of a group behind one of the same group, which does not start early itself.
int64_t AddingUp(const CommandList& list) {
  int64_t adding = 0;
  for (size_t i = 1; i < list.commands.size(); ++i) {
    const Command &first = list.commands[i - 1], &second = list.commands[i];
    adding += first.kind == Command::kLaunch && second.kind == Command::kLaunch &&
              first.group == second.group && !list.launches[first.number].starts_early;
  }
  return adding;
}

TEST_CASE("of large or long kernels those alone are early that add up partial results") {
  CHECK(Early(Commands(Compiled(kModel, {}))) == 0);
  EarlyLaunchLimits limits = kAll;
  limits.longest_ps = 1;
  const CommandList long_ones = Commands(Compiled(kModel, limits));
  CHECK(AddingUp(long_ones) > 0);
  CHECK(Early(long_ones) == AddingUp(long_ones));
  limits = kAll;
  limits.most_bytes = 1;
  CHECK(Early(Commands(Compiled(kModel, limits))) == 0);
  // Both kernels of a pair must be below a limit.
  const CommandList all = Commands(Compiled(kModel, kAll));
  const auto bytes_of = [&](const Command& command) {
    int64_t bytes = 0;
    for (const LaunchArg& arg : all.launches[command.number].args) bytes += arg.bytes;
    return bytes;
  };
  for (const Command& limiting : all.commands) {
    if (limiting.kind != Command::kLaunch) continue;
    limits.most_bytes = bytes_of(limiting);
    int64_t expected = 0;
    for (size_t i = 1; i < all.commands.size(); ++i) {
      const Command &first = all.commands[i - 1], &second = all.commands[i];
      if (!second.early) continue;
      REQUIRE(first.kind == Command::kLaunch);
      const int64_t most = std::max(bytes_of(first), bytes_of(second));
      expected += most <= limits.most_bytes ? 1 : 0;
    }
    CHECK(Early(Commands(Compiled(kModel, limits))) == expected);
  }
}

TEST_CASE("the second launch of a sum at indices is early, however much the sum moves") {
  const auto graph = ParseGraph(R"(
    %x = input name="x" f32[20000,128]
    %source = input name="source" i64[200000]
    %target = input name="target" i64[200000]
    %zeros = full dtype=f32 shape=[20000,128] value=0.0
    %rows = index_select %x %source axis=0
    %sum = index_add %zeros %target %rows axis=0
    output %sum)");
  REQUIRE(graph.status().ToString() == "OK");
  const auto spec = LoadDeviceSpec("h200");
  const auto planned = PlanFusion(*graph, *spec, {});
  REQUIRE(planned.status().ToString() == "OK");
  EarlyLaunchLimits limits = EarlyLaunchLimitsOf(*spec);
  for (const bool gains : {true, false}) {
    if (!gains) limits.gain_ps = 0;
    CompileOptions options{.dialect = Dialect::kCuda, .early = limits};
    const auto compiled = Compile(planned->graph, planned->plan, options);
    REQUIRE(compiled.status().ToString() == "OK");
    const CommandList list = Commands(*compiled);
    std::vector<bool> early;
    for (const Command& command : list.commands) {
      if (command.kind == Command::kLaunch) early.push_back(command.early);
    }
    // A call that sorts stands before the first one.
    CHECK(early == std::vector<bool>{false, gains});
    CHECK(CheckEarlyLaunches(list).ToString() == "OK");
  }
}

TEST_CASE("the h200's spec has early launches, mi300x's has none") {
  CHECK(EarlyLaunchLimitsOf(*LoadDeviceSpec("h200")).gain_ps > 0);
  CHECK(EarlyLaunchLimitsOf(*LoadDeviceSpec("mi300x")).gain_ps == 0);
}

TEST_CASE("a launch that is early behind other work, or does not wait, is found") {
  const CommandList good = Commands(Compiled(kModel, kAll));
  CHECK(CheckEarlyLaunches(good).ok());
  bool marked = false;
  for (size_t i = 0; i < good.commands.size(); ++i) {
    if (good.commands[i].kind != Command::kLaunch || good.commands[i].early) continue;
    CommandList bad = good;
    bad.commands[i].early = true;
    CHECK_THAT(std::string(CheckEarlyLaunches(bad).message()),
               ContainsSubstring("stands behind no launch or call"));
    marked = true;
  }
  CHECK(marked);
  CommandList call = Commands(Compiled("mlp:tokens=512", kAll));
  const auto first = std::find_if(call.commands.begin(), call.commands.end(), [](const Command& c) {
    return c.kind == Command::kCall && !c.early;
  });
  REQUIRE(first != call.commands.end());
  first->early = true;
  CHECK_THAT(std::string(CheckEarlyLaunches(call).message()), ContainsSubstring("the call of"));
  CommandList bad = good;
  for (Launch& launch : bad.launches) launch.starts_early = false;
  CHECK_THAT(std::string(CheckEarlyLaunches(bad).message()), ContainsSubstring("does not wait"));
}

TEST_CASE("each kernel, and each member of a merged one, begins by waiting") {
  for (Dialect dialect : {Dialect::kCuda, Dialect::kHip, Dialect::kHost}) {
    const CompiledPlan compiled = Compiled(kModel, kAll, dialect);
    int kernels = 0;
    for (const GroupKernels& group : compiled.kernels) {
      for (const Kernel& kernel : group.launches) {
        ++kernels;
        CHECK(kernel.starts_early);
        std::vector<const KernelFunction*> functions;
        if (kernel.members.empty()) functions.push_back(&kernel.function);
        for (const KernelFunction& member : kernel.members) functions.push_back(&member);
        for (const KernelFunction* function : functions) {
          CHECK(function->statements.rfind("  RG_EARLY_START();\n", 0) == 0);
        }
      }
    }
    CHECK(kernels > 1);
  }
  const PreludeParts none;
  CHECK_THAT(Prelude(Dialect::kCuda, none), ContainsSubstring("griddepcontrol.wait"));
  CHECK_THAT(Prelude(Dialect::kHip, none), !ContainsSubstring("griddepcontrol"));
}

}  // namespace
}  // namespace retrograd
