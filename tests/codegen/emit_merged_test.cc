// Kernels that share a launch: run on the host and held against the interpreter, each by itself,
// and compiled by the vendors' compilers.
#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "runtime/compiler/rtc.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"
#include "tests/support/kernels/run_kernel.h"

namespace retrograd {
namespace {

// The IR with values of its own, so that members have nothing in common.
KernelBody Distinct(KernelBody body, uint32_t number) {
  for (size_t b = 0; b < body.ir.buffers.size(); ++b) {
    body.ir.buffers[b].value = {NodeId{number * 100 + static_cast<uint32_t>(b)}, 0};
  }
  return body;
}

// Launches of up to `size` kernels, of every template whose kernels have a single launch: each
// example in its schedules of 256 threads, every third one twice.
std::vector<KernelLaunch> Launches(DType dtype, int warp, size_t size) {
  std::map<Template, std::vector<KernelBody>> bodies;
  for (const KernelExample& example : KernelExamples(dtype)) {
    const Classification shape = Classify(example.ir);
    const ScheduleLimits limits = {.warp = warp, .sms = 3, .shared_bytes = 48 << 10};
    size_t taken = 0;
    for (const Schedule& s : CandidateSchedules(example.ir, shape, limits)) {
      if (s.threads != 256 || s.split > 1 || example.ir.scatter || ++taken > 6) continue;
      std::vector<KernelBody>& list = bodies[s.kind];
      for (int times = taken % 3 == 0 ? 2 : 1; times > 0; --times) {
        list.push_back(Distinct({.ir = example.ir, .schedule = s}, list.size() + 1));
      }
    }
  }
  std::vector<KernelLaunch> launches;
  for (const auto& [kind, list] : bodies) {
    for (size_t from = 0; from < list.size(); from += size) {
      KernelLaunch merged;
      for (size_t i = from; i < std::min(from + size, list.size()); ++i) {
        merged.members.push_back({.kernel = list[i]});
      }
      if (merged.members.size() > 1) launches.push_back(std::move(merged));
    }
  }
  return launches;
}

// A body with the buffers and stores of all members, to run the launch with.
KernelBody Everything(const KernelLaunch& merged) {
  KernelBody all;
  for (const KernelLaunch::Member& m : merged.members) {
    const int first = static_cast<int>(all.ir.buffers.size());
    for (const Buffer& b : m.kernel.ir.buffers) all.ir.buffers.push_back(b);
    for (Store s : m.kernel.ir.stores) {
      s.buffer += first;
      all.ir.stores.push_back(s);
    }
  }
  return all;
}

// "" if each member has computed what it would alone.
std::string RunAndCompare(const HostModule& module, const KernelLaunch& merged,
                          const GroupKernels& kernels, uint64_t seed) {
  BufferValues before;
  for (const KernelLaunch::Member& m : merged.members) {
    for (auto& values : RandomBuffers(m.kernel.ir, seed)) before.push_back(std::move(values));
  }
  auto after = RunKernels(module, Everything(merged), kernels, before, seed);
  if (!after.ok()) return std::string(after.status().message());
  size_t first = 0;
  for (const KernelLaunch::Member& m : merged.members) {
    const auto slice = [&](const BufferValues& all) {
      const auto begin = all.begin() + static_cast<int64_t>(first);
      return BufferValues(begin, begin + static_cast<int64_t>(m.kernel.ir.buffers.size()));
    };
    const std::string wrong = CompareToInterpreter(m.kernel.ir, slice(before), slice(*after));
    if (!wrong.empty()) return absl::StrCat(m.kernel.schedule.Print(), ": ", wrong);
    first += m.kernel.ir.buffers.size();
  }
  return "";
}

void RunAll(DType dtype, const HostCompileOptions& options) {
  const std::vector<KernelLaunch> launches = Launches(dtype, options.warp, 5);
  CHECK(launches.size() >= 8);
  std::vector<GroupKernels> kernels;
  for (const KernelLaunch& merged : launches) {
    kernels.push_back(EmitGroup(Group{.body = merged}, Dialect::kHost));
    REQUIRE(kernels.back().launches.size() == 1);
  }
  auto module = HostModule::Compile(DistinctKernels(kernels), options);
  INFO(module.status().ToString());
  REQUIRE(module.ok());
  for (size_t i = 0; i < launches.size(); ++i) {
    const uint64_t seed = 23 + i;
    INFO("seed " << seed << "\n" << PrintKernel(kernels[i].launches[0]));
    CHECK(RunAndCompare(**module, launches[i], kernels[i], seed) == "");
  }
}

TEST_CASE("kernels that share a launch compute what they would alone") { RunAll(DType::kFp64, {}); }

TEST_CASE("the checking build finds nothing in shared launches, in warps of 32 and of 64") {
  const int warp = GENERATE(32, 64);
  RunAll(DType::kBf16, {.check = true, .warp = warp});
}

TEST_CASE(
    "equal kernels of a launch are one function, called with the blocks and arguments of each") {
  const KernelExample example = KernelExamples(DType::kFp32)[0];
  const Schedule s = CandidateSchedules(example.ir, Classify(example.ir), {})[0];
  KernelLaunch merged;
  for (uint32_t i = 1; i <= 4; ++i) {
    merged.members.push_back({.kernel = Distinct({.ir = example.ir, .schedule = s}, i)});
  }
  const Kernel alone = EmitGroup(merged.members[0].kernel, Dialect::kCuda).launches[0];
  const Kernel kernel = EmitGroup(Group{.body = merged}, Dialect::kCuda).launches[0];
  INFO(PrintKernel(kernel));
  CHECK(kernel.blocks == 4 * alone.blocks);
  CHECK(kernel.args.size() == 4 * alone.args.size());
  REQUIRE(kernel.members.size() == 1);
  CHECK(kernel.members[0] == alone.function);
  CHECK(kernel.runs == std::vector<MemberRun>{{.member = 0,
                                               .count = 4,
                                               .first_block = 0,
                                               .blocks = alone.blocks,
                                               .first_argument = 0,
                                               .arguments = alone.arguments}});
  for (uint32_t m = 0; m < 4; ++m) {
    for (size_t a = 0; a < alone.args.size(); ++a) {
      const KernelArg& arg = kernel.args[m * alone.args.size() + a];
      CHECK(arg.member == m);
      CHECK(Index(arg.value.node) / 100 == m + 1);
    }
  }
}

std::vector<Kernel> KernelsOf(DType dtype, Dialect dialect, int warp) {
  std::vector<GroupKernels> all;
  for (const KernelLaunch& merged : Launches(dtype, warp, 6)) {
    all.push_back(EmitGroup(Group{.body = merged}, dialect));
  }
  return DistinctKernels(all);
}

// A block is in one kernel at a time: the launch needs no more shared memory than its hungriest
// one, and argument numbers that only the block knows do not push arguments through local memory.
TEST_CASE("shared launches compile for sm_90, with the shared memory of their hungriest kernel") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  const std::vector<Kernel> kernels = KernelsOf(DType::kBf16, Dialect::kCuda, 32);
  const auto object = CompileKernels(Dialect::kCuda, kernels, "sm_90");
  INFO(object.status().ToString());
  REQUIRE(object.ok());
  CHECK(object->kernels.size() == kernels.size());
  INFO(object->log);
  CHECK_FALSE(absl::StrContains(object->log, "warning"));
  std::map<std::string, Kernel> emitted;
  for (const Kernel& k : kernels) emitted[k.name] = k;
  for (const KernelResources& k : object->kernels) {
    INFO(k.name << " " << PrintKernel(emitted[k.name]));
    CHECK(k.spill_bytes == 0);
    CHECK(k.stack_bytes == 0);
    CHECK(k.shared_bytes <= emitted[k.name].shared_bytes + 1024);  // 1 KB is the system's own
  }
}

TEST_CASE("shared launches compile for gfx90a") {
  RG_NEEDS_COMPILER(HipCompilerAvailable());
  const std::vector<Kernel> kernels = KernelsOf(DType::kFp16, Dialect::kHip, 64);
  const auto object = CompileKernels(Dialect::kHip, kernels, "gfx90a");
  INFO(object.status().ToString());
  REQUIRE(object.ok());
  CHECK(object->kernels.size() == kernels.size());
}

}  // namespace
}  // namespace retrograd
