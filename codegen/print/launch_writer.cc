#include "codegen/print/launch_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "codegen/print/kernel_text.h"

namespace retrograd {

LaunchWriter::LaunchWriter(Dialect dialect, absl::string_view what)
    : dialect_(dialect), unroll_(SpellingOf(dialect).unroll) {
  kernel_.direct = true;
  kernel_.function.comment = absl::StrCat("// ", Name(dialect), ": ", what, "\n");
  out_.SetDepth(1);
}

void LaunchWriter::Read(DType dtype, absl::string_view name, int slot) {
  Argument(absl::StrCat("const ", StorageName(dtype)), name, slot);
}

void LaunchWriter::Write(DType dtype, absl::string_view name, int slot) {
  Argument(std::string(StorageName(dtype)), name, slot);
}

void LaunchWriter::Argument(std::string type, absl::string_view name, int slot) {
  kernel_.function.declarations.push_back({.type = std::move(type),
                                           .name = std::string(name),
                                           .at = static_cast<int64_t>(slots_.size())});
  slots_.push_back(slot);
}

void LaunchWriter::Shared(DType dtype, absl::string_view name, int64_t elements) {
  kernel_.threads_meet = true;
  kernel_.shared_bytes += elements * SizeBytes(dtype);
  kernel_.function.declarations.push_back({.kind = Declaration::kShared,
                                           .type = std::string(ComputeName(dtype)),
                                           .name = std::string(name),
                                           .count = elements});
}

void LaunchWriter::Staged(DType dtype, absl::string_view name, int64_t elements) {
  kernel_.threads_meet = true;
  kernel_.staged_bytes = std::max(kernel_.staged_bytes, elements * SizeBytes(dtype));
  kernel_.function.declarations.push_back({.kind = Declaration::kStaged,
                                           .type = std::string(StorageName(dtype)),
                                           .name = std::string(name),
                                           .count = elements});
}

void LaunchWriter::StartsEarly() {
  kernel_.starts_early = true;
  out_.Line("RG_EARLY_START();");
}

void LaunchWriter::Multiplies(int cluster) {
  kernel_.head = KernelHead::kMultiplier;
  kernel_.cluster = cluster;
  kernel_.threads_meet = true;
  Uses(PreludePart::kMultiplier);
}

void LaunchWriter::Boxes(int maps) {
  kernel_.head = KernelHead::kBoxes;
  kernel_.maps = maps;
  kernel_.threads_meet = true;
  Uses(PreludePart::kBoxes);
  if (dialect_ == Dialect::kCuda) Uses(PreludePart::kMultiplier);
}

void LaunchWriter::Constants(const std::vector<Constant>& constants) {
  for (const Constant& c : constants) {
    out_.Line("[[maybe_unused]] constexpr int ", c.name, " = ", c.value, ";");
  }
}

void LaunchWriter::LongConstants(const std::vector<Constant>& constants) {
  for (const Constant& c : constants) {
    out_.Line("[[maybe_unused]] constexpr int64_t ", c.name, " = ", c.value, ";");
  }
}

void LaunchWriter::Text(absl::string_view text) {
  for (absl::string_view rest = text; !rest.empty();) {
    const size_t end = rest.find('\n');
    const absl::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == absl::string_view::npos ? rest.size() : end + 1);
    if (const size_t word = line.find("RG_UNROLL"); word != absl::string_view::npos) {
      out_.Pragma(Unrolled(line.substr(word)));
    } else {
      out_.Pragma(line);
    }
  }
}

std::string LaunchWriter::Unrolled(absl::string_view word) const {
  if (unroll_.empty() || !absl::ConsumePrefix(&word, "RG_UNROLL_")) return std::string(unroll_);
  return absl::StrCat(unroll_, " ", word);
}

LaunchWriter::Launch LaunchWriter::End(int64_t blocks, int64_t threads) {
  kernel_.blocks = blocks;
  kernel_.threads = static_cast<int>(threads);
  kernel_.arguments = static_cast<int>(slots_.size());
  kernel_.function.statements = out_.text();
  NameKernel(&kernel_);
  return {std::move(kernel_), std::move(slots_)};
}

}  // namespace retrograd
