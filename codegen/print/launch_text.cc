#include "codegen/print/launch_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "codegen/print/index_text.h"

namespace retrograd {
namespace {

// 64-bit FNV-1a: names need to be stable and distinct, not secret.
uint64_t Digest(absl::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3;
  return h;
}

// The distinct ops of the kernel in order of first use.
std::string OpList(const KernelIr& ir) {
  std::vector<absl::string_view> names;
  for (const Instr& instr : ir.instrs) {
    if (instr.kind != InstrKind::kPointwise && instr.kind != InstrKind::kReduce) continue;
    if (std::find(names.begin(), names.end(), Name(instr.op)) == names.end()) {
      names.push_back(Name(instr.op));
    }
  }
  return names.empty() ? "copy" : absl::StrJoin(names, " ");
}

// How an access names the buffer's place: the first load or store of it.
std::string AccessComment(const KernelIr& ir, int buffer) {
  for (const Instr& instr : ir.instrs) {
    if (instr.kind == InstrKind::kLoad && instr.buffer == buffer) {
      return absl::StrCat(instr.offset.Print(), instr.indirect.empty() ? "" : " + looked up rows");
    }
  }
  for (const Store& s : ir.stores) {
    if (s.buffer == buffer) return s.offset.Print();
  }
  return "";
}

}  // namespace

LaunchText::LaunchText(const KernelBody& body, Dialect dialect, int threads, int64_t blocks)
    : body_(body), dialect_(dialect), threads_(threads), blocks_(std::max<int64_t>(blocks, 1)) {
  wide_ = NeedsWideIndex(body.ir, 0);
}

void LaunchText::UseWideIndexAbove(int64_t largest_number) {
  wide_ = wide_ || NeedsWideIndex(body_.ir, largest_number);
}

int LaunchText::Argument(KernelArg arg) {
  auto it = std::find(args_.begin(), args_.end(), arg);
  if (it == args_.end()) it = args_.insert(args_.end(), arg);
  return static_cast<int>(it - args_.begin());
}

std::string LaunchText::BufferName(int buffer) {
  const Buffer& b = body_.ir.buffers[buffer];
  std::string name = absl::StrCat("p", buffer);
  if (std::find(declared_.begin(), declared_.end(), name) != declared_.end()) return name;
  const int arg = Argument({.kind = KernelArg::kValue, .value = b.value});
  lines_.push_back(absl::StrCat("RG_ARG(", b.written ? "" : "const ", StorageName(b.dtype), ", ",
                                name, ", ", arg, ");"));
  declared_.push_back(name);
  buffers_.push_back(buffer);
  return name;
}

void LaunchText::Operand(absl::string_view name, DType dtype, ValueId value) {
  const int arg = Argument({.kind = KernelArg::kValue, .value = value});
  lines_.push_back(absl::StrCat("RG_ARG(const ", StorageName(dtype), ", ", name, ", ", arg, ");"));
}

std::string LaunchText::WorkspaceName(absl::string_view type) {
  std::string name = absl::StrCat("w_", type);
  if (std::find(declared_.begin(), declared_.end(), name) != declared_.end()) return name;
  const int arg = Argument({.kind = KernelArg::kWorkspace, .value = {}});
  lines_.push_back(absl::StrCat("RG_ARG(", type, ", ", name, ", ", arg, ");"));
  declared_.push_back(name);
  return name;
}

std::string LaunchText::Shared(DType type, absl::string_view name, int64_t count) {
  std::string full(name);
  if (std::find(declared_.begin(), declared_.end(), full) != declared_.end()) return full;
  lines_.push_back(absl::StrCat("RG_SHARED(", StorageName(type), ", ", full, ", ", count, ");"));
  declared_.push_back(full);
  shared_bytes_ += (count * SizeBytes(type) + 15) / 16 * 16;
  return full;
}

std::string LaunchText::Staged(DType type, absl::string_view name, int64_t count) {
  lines_.push_back(absl::StrCat("RG_STAGED(", StorageName(type), ", ", name, ", ", staged_bytes_,
                                ", ", count, ");"));
  staged_bytes_ += (count * SizeBytes(type) + 15) / 16 * 16;
  return std::string(name);
}

bool LaunchText::OpenUnrolled(absl::string_view variable, int64_t trips) {
  if (trips == 1) return false;
  out.Pragma(SpellingOf(dialect_).unroll);
  out.Open("for (int ", variable, " = 0; ", variable, " < ", trips, "; ++", variable, ")");
  return true;
}

void NameKernel(absl::string_view text, Kernel* kernel) {
  kernel->name = absl::StrFormat("rg_%016x", Digest(text));
  kernel->source = absl::StrReplaceAll(text, {{kNameOfThisKernel, kernel->name}});
}

Kernel LaunchText::Finish(absl::string_view phase) {
  std::string head = absl::StrCat(
      "// ", phase.empty() ? "" : absl::StrCat(phase, " of "), body_.schedule.Print(),
      "\n// axes [", absl::StrJoin(body_.ir.extents, ", "), "]: ", OpList(body_.ir), "\n");
  for (int b : buffers_) {
    const Buffer& buffer = body_.ir.buffers[b];
    absl::StrAppend(&head, "//   p", b, buffer.written ? " written " : " read    ",
                    Name(buffer.dtype), ", ", buffer.elements * SizeBytes(buffer.dtype),
                    " bytes, at ", AccessComment(body_.ir, b), "\n");
  }
  SourceWriter decls;
  decls.SetDepth(1);
  for (const std::string& line : lines_) decls.Line(line);
  const std::string text = absl::StrCat(head, start_, kNameOfThisKernel, ", ", threads_, ", ",
                                        args_.size(), ") {\n", decls.text(), out.text(), "}\n");
  Kernel kernel;
  NameKernel(text, &kernel);
  kernel.blocks = blocks_;
  kernel.threads = threads_;
  kernel.shared_bytes = shared_bytes_;
  kernel.staged_bytes = staged_bytes_;
  kernel.args = args_;
  return kernel;
}

}  // namespace retrograd
