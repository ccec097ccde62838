#include "codegen/print/share_functions.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "codegen/print/kernel_text.h"
#include "codegen/print/lift_numbers.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/source_writer.h"

namespace retrograd {
namespace {

using Row = std::vector<std::string>;  // the sizes of a kernel, in the order of its text

// Which of them differ from kernel to kernel.
std::vector<bool> Differing(absl::Span<const Row> rows) {
  std::vector<bool> differs(rows[0].size(), false);
  for (const Row& row : rows) {
    for (size_t n = 0; n < row.size(); ++n) differs[n] = differs[n] || row[n] != rows[0][n];
  }
  return differs;
}

// One function for all of them. first_argument: of the first one, in the launch.
void Share(absl::Span<Kernel> kernels, int64_t first_argument) {
  std::vector<Row> rows;
  int64_t blocks = 0;
  for (const Kernel& kernel : kernels) {
    rows.push_back(NumbersOf(kernel));
    blocks = std::max(blocks, kernel.blocks);
  }
  const std::vector<bool> differs = Differing(rows);
  std::vector<std::string> lines;
  for (size_t k = 0; k < kernels.size(); ++k) {
    Row line = {absl::StrCat(kernels[k].blocks)};
    for (size_t n = 0; n < differs.size(); ++n) {
      if (differs[n]) line.push_back(rows[k][n]);
    }
    lines.push_back(absl::StrCat("{", absl::StrJoin(line, ", "), "}"));
  }
  const int64_t columns = 1 + std::count(differs.begin(), differs.end(), true);
  SourceWriter out;
  out.SetDepth(1);
  out.Line("static constexpr int64_t rg_all_sizes[", kernels.size(), "][", columns, "] = {");
  for (const std::string& line : lines) out.Line("    ", line, ",");
  out.Line("};");
  out.Line("const int64_t* const rg_sizes = rg_all_sizes[(rg_first_argument - ", first_argument,
           ") / ", kernels[0].arguments, "];");
  out.Line("if (RG_BLOCK >= rg_sizes[0]) return;");
  size_t number = 0, column = 1;
  const std::string body =
      ReplaceSized(kernels[0].function.statements, [&](absl::string_view literal) {
        return differs[number++] ? absl::StrCat("rg_sizes[", column++, "]") : std::string(literal);
      });
  Kernel shared = kernels[0];
  shared.blocks = blocks;
  shared.function.statements = absl::StrCat(out.text(), body);
  NameKernel(&shared);
  std::fill(kernels.begin(), kernels.end(), shared);
}

}  // namespace

void ShareFunctions(std::vector<Kernel>& kernels) {
  int64_t first_argument = 0;
  for (size_t first = 0; first < kernels.size();) {
    const std::string skeleton = SkeletonOf(kernels[first]);
    size_t end = first + 1;
    bool differ = false;
    for (; end < kernels.size() && SkeletonOf(kernels[end]) == skeleton; ++end) {
      differ = differ || kernels[end].name != kernels[first].name;
    }
    const int64_t arguments = kernels[first].arguments * static_cast<int64_t>(end - first);
    if (differ) Share(absl::MakeSpan(kernels).subspan(first, end - first), first_argument);
    first_argument += arguments;
    first = end;
  }
}

}  // namespace retrograd
