#include "codegen/print/kernel_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/print/source_writer.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Stands for the name in the text that the name is made of.
constexpr absl::string_view kUnnamed = "RG_NAME_OF_THIS_KERNEL";

// 64-bit FNV-1a: names need to be stable and distinct, not secret.
uint64_t Digest(absl::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3;
  return h;
}

absl::string_view HeadMacro(const Kernel& kernel) {
  switch (kernel.head) {
    case KernelHead::kPlain: return kernel.direct ? "RG_KERNEL_DIRECT" : "RG_KERNEL";
    case KernelHead::kMultiplier: return "RG_MULTIPLIER";
    case KernelHead::kAttention: return "RG_ATTENTION";
  }
  RG_CHECK(false);
}

std::string Parameters(const Kernel& kernel) {
  return absl::StrCat(kernel.name, ", ", kernel.threads, ", ", kernel.arguments);
}

// A member's shared arrays lie in its launch's pool: a block is in one member alone.
std::string PrintDeclaration(const Declaration& d, bool of_member) {
  switch (d.kind) {
    case Declaration::kArgument:
      return absl::StrCat("RG_ARG(", d.type, ", ", d.name, ", ", d.at, ");");
    case Declaration::kShared:
      return absl::StrCat(of_member ? "RG_POOLED(" : "RG_SHARED(", d.type, ", ", d.name, ", ",
                          d.count, ");");
    case Declaration::kStaged:
      return absl::StrCat("RG_STAGED(", d.type, ", ", d.name, ", ", d.at, ", ", d.count, ");");
  }
  RG_CHECK(false);
}

std::string PrintFunction(const KernelFunction& function, absl::string_view head, bool is_member) {
  SourceWriter declarations;
  declarations.SetDepth(1);
  for (const Declaration& d : function.declarations) {
    declarations.Line(PrintDeclaration(d, is_member));
  }
  return absl::StrCat(function.comment, head, " {\n", declarations.text(), function.statements,
                      "}\n");
}

std::string MemberName(const Kernel& kernel, size_t member) {
  return absl::StrCat(kernel.name, "_", member);
}

// "2 + n * 3"
std::string Step(int64_t first, int64_t step) {
  return absl::StrCat(first > 0 ? absl::StrCat(first, " + ") : "", "n",
                      step != 1 ? absl::StrCat(" * ", step) : "");
}

// Calls the member, which counts its blocks and arguments from 0.
void PrintRun(const MemberRun& run, absl::string_view member, SourceWriter* out) {
  if (run.count == 1) {
    out->Line("RG_RUN(", member, ", ", run.first_block, ", ", run.first_argument, ");");
    return;
  }
  const bool bare = run.first_block == 0 || run.blocks == 1;
  out->Line("const int n = ", bare ? "" : "(", "RG_BLOCK",
            run.first_block == 0 ? "" : absl::StrCat(" - ", run.first_block), bare ? "" : ")",
            run.blocks > 1 ? absl::StrCat(" / ", run.blocks) : "", ";");
  out->Line("RG_RUN(", member, ", ", Step(run.first_block, run.blocks), ", ",
            Step(run.first_argument, run.arguments), ");");
}

// Sends each range of blocks to its member.
std::string PrintRuns(const Kernel& kernel) {
  SourceWriter out;
  out.SetDepth(1);
  if (kernel.shared_bytes > 0) out.Line("RG_POOL(", kernel.shared_bytes, ");");
  for (size_t r = 0; r < kernel.runs.size(); ++r) {
    const MemberRun& run = kernel.runs[r];
    const std::string branch =
        absl::StrCat("if (RG_BLOCK < ", run.first_block + run.count * run.blocks, ")");
    if (r + 1 == kernel.runs.size()) {
      r == 0 ? out.OpenScope() : out.Else();
    } else if (r == 0) {
      out.Open(branch);
    } else {
      out.Else(branch, " ");
    }
    PrintRun(run, MemberName(kernel, static_cast<size_t>(run.member)), &out);
  }
  out.Close();
  return out.text();
}

}  // namespace

std::string PrintHead(const Kernel& kernel) {
  if (kernel.head == KernelHead::kMultiplier && kernel.cluster != Kernel().cluster) {
    return absl::StrCat("RG_MULTIPLIER_CLUSTER(", Parameters(kernel), ", ", kernel.cluster, ")");
  }
  return absl::StrCat(HeadMacro(kernel), "(", Parameters(kernel), ")");
}

std::string PrintCooperativeHead(const Kernel& kernel) {
  RG_CHECK(kernel.head == KernelHead::kPlain);
  return absl::StrCat("RG_KERNEL_COOPERATIVE(", Parameters(kernel), ")");
}

std::string PrintResidentHead(const Kernel& kernel, int64_t blocks) {
  RG_CHECK(kernel.head == KernelHead::kPlain);
  return absl::StrCat(HeadMacro(kernel), "_RESIDENT(", Parameters(kernel), ", ", blocks, ")");
}

std::string PrintKernel(const Kernel& kernel, absl::string_view head) {
  if (kernel.members.empty()) return PrintFunction(kernel.function, head, false);
  std::string text;
  for (size_t m = 0; m < kernel.members.size(); ++m) {
    const std::string member = absl::StrCat("RG_MEMBER(", MemberName(kernel, m), ")");
    absl::StrAppend(&text, PrintFunction(kernel.members[m], member, true), "\n");
  }
  return absl::StrCat(text, kernel.function.comment, head, " {\n", PrintRuns(kernel), "}\n");
}

std::string PrintKernel(const Kernel& kernel) { return PrintKernel(kernel, PrintHead(kernel)); }

void NameKernel(Kernel* kernel) {
  kernel->name = std::string(kUnnamed);
  kernel->name = absl::StrFormat("rg_%016x", Digest(PrintKernel(*kernel)));
}

}  // namespace retrograd
