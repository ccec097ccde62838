#include "codegen/print/launch_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/print/kernel_text.h"
#include "codegen/print/numbers/index_text.h"
#include "fusion/kernel/templates/registers.h"

namespace retrograd {
namespace {

// The distinct ops of the kernel in order of first use.
std::string OpList(const KernelIr& ir) {
  std::vector<absl::string_view> names;
  for (const Instr& instr : ir.instrs) {
    if (instr.kind != InstrKind::kPointwise && instr.kind != InstrKind::kReduce &&
        instr.kind != InstrKind::kScan && instr.kind != InstrKind::kFold) {
      continue;
    }
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
    : body_(body), dialect_(dialect) {
  kernel_.threads = threads;
  kernel_.blocks = std::max<int64_t>(blocks, 1);
  wide_ = NeedsWideIndex(body.ir, 0);
}

void LaunchText::UseWideIndexAbove(int64_t largest_number) {
  wide_ = wide_ || NeedsWideIndex(body_.ir, largest_number);
}

int LaunchText::Argument(KernelArg arg) {
  auto it = std::find(kernel_.args.begin(), kernel_.args.end(), arg);
  if (it == kernel_.args.end()) it = kernel_.args.insert(kernel_.args.end(), arg);
  return static_cast<int>(it - kernel_.args.begin());
}

bool LaunchText::IsDeclared(absl::string_view name) const {
  const std::vector<Declaration>& all = kernel_.function.declarations;
  return std::any_of(all.begin(), all.end(), [&](const Declaration& d) { return d.name == name; });
}

std::string LaunchText::BufferName(int buffer) {
  const Buffer& b = body_.ir.buffers[buffer];
  std::string name = absl::StrCat("p", buffer);
  if (IsDeclared(name)) return name;
  const int arg = Argument({.kind = KernelArg::kValue, .value = b.value});
  kernel_.function.declarations.push_back(
      {.kind = Declaration::kArgument,
       .type = absl::StrCat(b.written ? "" : "const ", StorageName(b.dtype)),
       .name = name,
       .at = arg});
  buffers_.push_back(buffer);
  return name;
}

void LaunchText::Operand(absl::string_view name, DType dtype, ValueId value) {
  const int arg = Argument({.kind = KernelArg::kValue, .value = value});
  kernel_.function.declarations.push_back({.kind = Declaration::kArgument,
                                           .type = absl::StrCat("const ", StorageName(dtype)),
                                           .name = std::string(name),
                                           .at = arg});
}

std::string LaunchText::WorkspaceName(absl::string_view type) {
  std::string name = absl::StrCat("w_", type);
  if (IsDeclared(name)) return name;
  const int arg = Argument({.kind = KernelArg::kWorkspace, .value = {}});
  kernel_.function.declarations.push_back(
      {.kind = Declaration::kArgument, .type = std::string(type), .name = name, .at = arg});
  return name;
}

std::string LaunchText::Shared(DType type, absl::string_view name, int64_t count) {
  if (IsDeclared(name)) return std::string(name);
  kernel_.function.declarations.push_back({.kind = Declaration::kShared,
                                           .type = std::string(StorageName(type)),
                                           .name = std::string(name),
                                           .count = count});
  kernel_.shared_bytes += SharedArrayBytes(count, SizeBytes(type));
  kernel_.threads_meet = true;
  return std::string(name);
}

std::string LaunchText::Staged(DType type, absl::string_view name, int64_t count) {
  kernel_.function.declarations.push_back({.kind = Declaration::kStaged,
                                           .type = std::string(StorageName(type)),
                                           .name = std::string(name),
                                           .at = kernel_.staged_bytes,
                                           .count = count});
  kernel_.staged_bytes += SharedArrayBytes(count, SizeBytes(type));
  return std::string(name);
}

void LaunchText::Barrier() {
  out.Line("RG_BARRIER();");
  kernel_.threads_meet = true;
}

bool LaunchText::OpenUnrolled(absl::string_view variable, int64_t trips) {
  if (trips == 1) return false;
  out.Pragma(SpellingOf(dialect_).unroll);
  out.Open("for (int ", variable, " = 0; ", variable, " < ", trips, "; ++", variable, ")");
  return true;
}

void LaunchText::SetHead(KernelHead head, PreludePart part) {
  kernel_.head = head;
  kernel_.parts |= part;
  kernel_.threads_meet = true;
}

Kernel LaunchText::Finish(absl::string_view phase) {
  std::string comment = absl::StrCat(
      "// ", phase.empty() ? "" : absl::StrCat(phase, " of "), body_.schedule.Print(),
      "\n// axes [", absl::StrJoin(body_.ir.extents, ", "), "]: ", OpList(body_.ir), "\n");
  for (int b : buffers_) {
    const Buffer& buffer = body_.ir.buffers[b];
    absl::StrAppend(&comment, "//   p", b, buffer.written ? " written " : " read    ",
                    Name(buffer.dtype), ", ", buffer.elements * SizeBytes(buffer.dtype),
                    " bytes, at ", AccessComment(body_.ir, b), "\n");
  }
  kernel_.function.comment = std::move(comment);
  kernel_.function.statements = out.text();
  kernel_.arguments = static_cast<int>(kernel_.args.size());
  NameKernel(&kernel_);
  return std::move(kernel_);
}

}  // namespace retrograd
