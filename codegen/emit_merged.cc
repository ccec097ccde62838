// Kernels that share a launch: each is printed as if it were alone and becomes a function, whose
// block and argument numbers count from its own first ones. Equal ones (the same kernel in several
// layers) are one function. The launch sends each range of blocks to its function. A block is in
// one of them alone, so their shared arrays lie in the same bytes.
#include "codegen/emit_merged.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "codegen/emit.h"
#include "codegen/print/launch_text.h"
#include "codegen/print/source_writer.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Neighbours that are the same function.
struct Run {
  const Kernel* kernel = nullptr;
  int64_t count = 0;
};

std::vector<Run> Runs(const std::vector<Kernel>& kernels) {
  std::vector<Run> runs;
  for (const Kernel& kernel : kernels) {
    if (runs.empty() || runs.back().kernel->name != kernel.name) runs.push_back({&kernel, 0});
    RG_CHECK(kernel.blocks == runs.back().kernel->blocks);
    ++runs.back().count;
  }
  return runs;
}

// The kernel's text with the head of a function, its shared arrays in the launch's pool.
std::string AsMember(const Kernel& kernel, absl::string_view name) {
  const std::string head =
      absl::StrCat("RG_KERNEL(", kernel.name, ", ", kernel.threads, ", ", kernel.args.size(), ")");
  RG_CHECK(kernel.source.find(head) != std::string::npos);
  return absl::StrReplaceAll(
      kernel.source, {{head, absl::StrCat("RG_MEMBER(", name, ")")}, {"RG_SHARED(", "RG_POOLED("}});
}

// "2 + n * 3"
std::string Step(int64_t first, int64_t step) {
  return absl::StrCat(first > 0 ? absl::StrCat(first, " + ") : "", "n",
                      step != 1 ? absl::StrCat(" * ", step) : "");
}

// Calls the function for each of the run's kernels.
void PrintRun(const Run& run, absl::string_view name, int64_t first_block, int64_t first_argument,
              SourceWriter* out) {
  const int64_t blocks = run.kernel->blocks;
  if (run.count == 1) {
    out->Line("RG_RUN(", name, ", ", first_block, ", ", first_argument, ");");
    return;
  }
  const bool from_zero = first_block == 0;
  out->Line("const int n = ", from_zero || blocks == 1 ? "" : "(", "RG_BLOCK",
            from_zero ? "" : absl::StrCat(" - ", first_block), from_zero || blocks == 1 ? "" : ")",
            blocks > 1 ? absl::StrCat(" / ", blocks) : "", ";");
  out->Line("RG_RUN(", name, ", ", Step(first_block, blocks), ", ",
            Step(first_argument, static_cast<int64_t>(run.kernel->args.size())), ");");
}

}  // namespace

GroupKernels EmitMerged(const KernelLaunch& launch, Dialect dialect) {
  std::vector<Kernel> kernels;
  for (const KernelLaunch::Member& member : launch.members) {
    GroupKernels alone = EmitGroup(member.kernel, dialect);
    RG_CHECK(alone.launches.size() ==
             1);  // what follows a main launch would need all of its blocks
    kernels.push_back(std::move(alone.launches[0]));
    RG_CHECK(kernels.back().threads == kernels[0].threads);
  }
  Kernel merged{.blocks = 0, .threads = kernels[0].threads};
  for (uint32_t m = 0; m < kernels.size(); ++m) {
    for (KernelArg arg : kernels[m].args) {
      arg.member = m;
      merged.args.push_back(arg);
    }
  }
  std::vector<const Kernel*> functions;  // by number
  std::string members;
  SourceWriter out;
  out.SetDepth(1);
  const std::vector<Run> runs = Runs(kernels);
  int64_t arguments = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    const Run& run = runs[r];
    const auto known = std::find_if(functions.begin(), functions.end(),
                                    [&](const Kernel* k) { return k->name == run.kernel->name; });
    const std::string name = absl::StrCat(kNameOfThisKernel, "_", known - functions.begin());
    if (known == functions.end()) {
      functions.push_back(run.kernel);
      absl::StrAppend(&members, AsMember(*run.kernel, name), "\n");
      merged.shared_bytes = std::max(merged.shared_bytes, run.kernel->shared_bytes);
    }
    const int64_t first_block = merged.blocks;
    merged.blocks += run.count * run.kernel->blocks;
    const std::string branch = absl::StrCat("if (RG_BLOCK < ", merged.blocks, ")");
    if (r + 1 == runs.size()) {
      r == 0 ? out.OpenScope() : out.Else();
    } else if (r == 0) {
      out.Open(branch);
    } else {
      out.Else(branch, " ");
    }
    PrintRun(run, name, first_block, arguments, &out);
    arguments += run.count * static_cast<int64_t>(run.kernel->args.size());
  }
  out.Close();
  const std::string pool =
      merged.shared_bytes > 0 ? absl::StrCat("  RG_POOL(", merged.shared_bytes, ");\n") : "";
  NameKernel(absl::StrCat(members, "// ", kernels.size(), " kernels in one launch\n", "RG_KERNEL(",
                          kNameOfThisKernel, ", ", merged.threads, ", ", arguments, ") {\n", pool,
                          out.text(), "}\n"),
             &merged);
  return {.launches = {std::move(merged)}};
}

}  // namespace retrograd
