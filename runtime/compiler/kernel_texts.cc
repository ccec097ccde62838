#include "runtime/compiler/kernel_texts.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/preludes/attention_prelude.h"
#include "codegen/preludes/multiplier_prelude.h"

namespace retrograd {
namespace {

// Functions that a merged launch runs stand before it.
constexpr absl::string_view kMemberStart = "RG_MEMBER(";

bool IsIdentifier(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

}  // namespace

absl::StatusOr<SplitSource> SplitKernels(absl::string_view source) {
  SplitSource split;
  struct Start {
    size_t members, kernel;
  };
  std::vector<Start> starts;
  constexpr size_t kNone = absl::string_view::npos;
  size_t members = kNone;  // those of the kernel that comes next
  for (size_t at = 0; at < source.size();) {
    if (absl::StartsWith(source.substr(at), kMemberStart)) members = std::min(members, at);
    if (absl::StartsWith(source.substr(at), kKernelStart) ||
        absl::StartsWith(source.substr(at), kMultiplierStart) ||
        absl::StartsWith(source.substr(at), kAttentionStart)) {
      starts.push_back({std::min(members, at), at});
      members = kNone;
    }
    const size_t end = source.find('\n', at);
    at = end == kNone ? source.size() : end + 1;
  }
  split.prelude = source.substr(0, starts.empty() ? source.size() : starts[0].members);
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto [first, kernel] = starts[i];
    const size_t end = i + 1 < starts.size() ? starts[i + 1].members : source.size();
    const absl::string_view text = source.substr(kernel, end - kernel);
    const absl::string_view rest = text.substr(text.find('(') + 1);
    std::string name(rest.substr(0, rest.find(',')));
    if (!IsIdentifier(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "kernel source, kernel ", i, ": \"", name.substr(0, 60), "\" is not a kernel's name"));
    }
    split.kernels.push_back({std::move(name), source.substr(first, kernel - first), text});
  }
  std::vector<absl::string_view> names;
  for (const KernelText& kernel : split.kernels) names.push_back(kernel.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel source: two kernels are named ", *twice));
  }
  return split;
}

}  // namespace retrograd
