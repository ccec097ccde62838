#include "codegen/print/kernel_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/print/numbers/sized_number.h"
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
    case KernelHead::kAttention:
      return kernel.maps > kAttentionMaps ? "RG_ATTENTION_WITH_BIAS" : "RG_ATTENTION";
    case KernelHead::kCluster: return "RG_KERNEL_CLUSTER";
    case KernelHead::kBoxes: return "RG_BOXES";
  }
  RG_CHECK(false);
}

std::string Parameters(const Kernel& kernel) {
  return absl::StrCat(kernel.name, ", ", kernel.threads, ", ", kernel.arguments);
}

std::string ClusterOf(const Kernel& kernel) {
  return kernel.head == KernelHead::kCluster ? absl::StrCat(", ", kernel.cluster) : "";
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

// Prints the functions of one kernel, in the order of its text, with its numbers as literals or by
// the names of the arguments that they are.
class FunctionPrinter {
 public:
  explicit FunctionPrinter(const Kernel& kernel) : lifted_(kernel.lifted) {
    int at = kernel.arguments - lifted_.words();
    for (SizedType type : lifted_.types) {
      places_.push_back(at);
      at += WordsOf(type);
    }
  }

  std::string Print(const KernelFunction& function, absl::string_view statements,
                    absl::string_view head, bool is_member) {
    SourceWriter declarations;
    declarations.SetDepth(1);
    for (const Declaration& d : function.declarations) {
      declarations.Line(PrintDeclaration(d, is_member));
    }
    std::vector<bool> used(lifted_.types.size(), false);
    const std::string body = ReplaceSized(statements, [&](absl::string_view literal) {
      const int argument = lifted_.empty() ? -1 : lifted_.argument[next_++];
      if (argument < 0) return std::string(literal);
      used[static_cast<size_t>(argument)] = true;
      return absl::StrCat("n_", argument);
    });
    for (size_t n = 0; n < used.size(); ++n) {
      if (!used[n]) continue;
      const SizedType type = lifted_.types[n];
      declarations.Line(WordsOf(type) > 1 ? "RG_WIDE_NUMBER(" : "RG_NUMBER(", Name(type), ", n_", n,
                        ", ", places_[n], ");");
    }
    return absl::StrCat(function.comment, head, " {\n", declarations.text(), body, "}\n");
  }

 private:
  const LiftedNumbers& lifted_;
  std::vector<int> places_;  // by argument: of its first word
  size_t next_ = 0;          // number of the text
};

std::string MemberName(const Kernel& kernel, size_t member) {
  return absl::StrCat(kernel.name, "_", member);
}

// "2 + n * 3"
std::string Step(const std::string& first, const std::string& step) {
  return absl::StrCat(first, first.empty() ? "" : " + ", "n", step == "1" ? "" : " * ",
                      step == "1" ? "" : step);
}

// Calls the member, which counts its blocks, arguments and descriptions from 0.
void PrintRun(const MemberRun& run, absl::string_view member, SourceWriter* out) {
  const bool boxes = run.maps > 0;
  const absl::string_view word = boxes ? "RG_RUN_BOXES(" : "RG_RUN(";
  if (run.count == 1) {
    out->Line(word, member, ", ", run.first_block > 0 ? Sized(run.first_block) : "0", ", ",
              run.first_argument, boxes ? absl::StrCat(", ", run.first_map) : "", ");");
    return;
  }
  const std::string first = run.first_block > 0 ? Sized(run.first_block) : "";
  const std::string blocks = run.blocks > 1 ? Sized(run.blocks) : "1";
  const std::string argument = run.first_argument > 0 ? absl::StrCat(run.first_argument) : "";
  const bool bare = first.empty() || run.blocks == 1;
  out->Line("const int n = ", bare ? "" : "(", "RG_BLOCK", first.empty() ? "" : " - ", first,
            bare ? "" : ")", run.blocks > 1 ? " / " : "", run.blocks > 1 ? blocks : "", ";");
  const std::string map = run.first_map > 0 ? absl::StrCat(run.first_map) : "";
  out->Line(word, member, ", ", Step(first, blocks), ", ",
            Step(argument, absl::StrCat(run.arguments)),
            boxes ? absl::StrCat(", ", Step(map, absl::StrCat(run.maps))) : "", ");");
}

// Sends each range of blocks to its member.
std::string PrintRuns(const Kernel& kernel) {
  SourceWriter out;
  out.SetDepth(1);
  if (kernel.shared_bytes > 0) out.Line("RG_POOL(", kernel.shared_bytes, ");");
  for (size_t r = 0; r < kernel.runs.size(); ++r) {
    const MemberRun& run = kernel.runs[r];
    const std::string branch =
        absl::StrCat("if (RG_BLOCK < ", Sized(run.first_block + run.count * run.blocks), ")");
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

int LiftedNumbers::words() const {
  int words = 0;
  for (SizedType type : types) words += WordsOf(type);
  return words;
}

std::vector<std::string> NumbersOf(const Kernel& kernel) {
  std::vector<std::string> literals;
  const auto take = [&](absl::string_view text) {
    ReplaceSized(text, [&](absl::string_view literal) {
      literals.emplace_back(literal);
      return std::string();
    });
  };
  for (const KernelFunction& member : kernel.members) take(member.statements);
  take(kernel.members.empty() ? kernel.function.statements : PrintRuns(kernel));
  return literals;
}

std::string PrintHead(const Kernel& kernel) {
  if (kernel.head == KernelHead::kMultiplier && kernel.direct) {
    return absl::StrCat("RG_MULTIPLIER_DIRECT(", Parameters(kernel), ", ", kernel.cluster, ")");
  }
  if (kernel.head == KernelHead::kMultiplier && kernel.cluster != Kernel().cluster) {
    return absl::StrCat("RG_MULTIPLIER_CLUSTER(", Parameters(kernel), ", ", kernel.cluster, ")");
  }
  const std::string maps = kernel.head == KernelHead::kBoxes ? absl::StrCat(", ", kernel.maps) : "";
  return absl::StrCat(HeadMacro(kernel), "(", Parameters(kernel), ClusterOf(kernel), maps, ")");
}

std::string PrintCooperativeHead(const Kernel& kernel) {
  if (kernel.head == KernelHead::kBoxes) return PrintHead(kernel);  // its threads always meet
  RG_CHECK(MayBeResident(kernel));
  if (kernel.head == KernelHead::kCluster) return PrintHead(kernel);  // its threads always meet
  return absl::StrCat("RG_KERNEL_COOPERATIVE(", Parameters(kernel), ")");
}

bool MayBeResident(const Kernel& kernel) {
  return kernel.head == KernelHead::kPlain || kernel.head == KernelHead::kCluster;
}

std::string PrintResidentHead(const Kernel& kernel, int64_t blocks) {
  RG_CHECK(MayBeResident(kernel));
  return absl::StrCat(HeadMacro(kernel), "_RESIDENT(", Parameters(kernel), ClusterOf(kernel), ", ",
                      blocks, ")");
}

std::string PrintKernel(const Kernel& kernel, absl::string_view head) {
  FunctionPrinter printer(kernel);
  if (kernel.members.empty()) {
    return printer.Print(kernel.function, kernel.function.statements, head, false);
  }
  const absl::string_view member_word =
      kernel.head == KernelHead::kBoxes ? "RG_MEMBER_BOXES(" : "RG_MEMBER(";
  std::string text;
  for (size_t m = 0; m < kernel.members.size(); ++m) {
    const KernelFunction& member = kernel.members[m];
    absl::StrAppend(&text,
                    printer.Print(member, member.statements,
                                  absl::StrCat(member_word, MemberName(kernel, m), ")"), true),
                    "\n");
  }
  return absl::StrCat(text, printer.Print(kernel.function, PrintRuns(kernel), head, false));
}

std::string PrintKernel(const Kernel& kernel) { return PrintKernel(kernel, PrintHead(kernel)); }

void NameKernel(Kernel* kernel) {
  kernel->name = std::string(kUnnamed);
  kernel->name = absl::StrFormat("rg_%016x", Digest(PrintKernel(*kernel)));
}

}  // namespace retrograd
