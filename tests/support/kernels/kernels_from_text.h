// Kernels written as text. Each begins with a line  RG_KERNEL(name, threads, arguments) {  or
// RG_KERNEL_DIRECT(...) or RG_KERNEL_CLUSTER(name, threads, arguments, blocks) {  and ends with the
// next line  }  at the margin.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_KERNELS_FROM_TEXT_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_KERNELS_FROM_TEXT_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "codegen/print/kernel.h"
#include "graph/base/status.h"

namespace retrograd {

inline bool ThreadsMeetIn(absl::string_view text) {
  constexpr absl::string_view kMeetings[] = {"RG_BARRIER", "RG_WARP_BARRIER", "RG_SHUFFLE_",
                                             "RG_SHARED",  "RG_POOLED",       "RG_STAGED",
                                             "RG_CLUSTER_"};
  return std::any_of(std::begin(kMeetings), std::end(kMeetings),
                     [&](absl::string_view use) { return absl::StrContains(text, use); });
}

// The parts of the prelude that the text is written with, of those that the host has.
inline PreludeParts PartsOf(absl::string_view text) {
  PreludeParts parts;
  if (absl::StrContains(text, "rg_multiply_tiles<")) parts |= PreludePart::kTensorCores;
  if (absl::StrContains(text, "rg_fetch_part(")) parts |= PreludePart::kParts;
  if (absl::StrContains(text, "rg_multiply_rows<")) {
    parts |= PreludePart::kTensorCores;
    parts |= PreludePart::kWideTiles;
  }
  if (absl::StrContains(text, "rg_dropout_") && !absl::StrContains(text, "struct rg_dropout_")) {
    parts |= PreludePart::kDropout;
  }
  return parts;
}

// A head's name and numbers; RG_WARP threads are `warp`.
inline Kernel KernelOfHead(absl::string_view head, int warp) {
  const bool direct = absl::ConsumePrefix(&head, "RG_KERNEL_DIRECT(");
  const bool cluster = absl::ConsumePrefix(&head, "RG_KERNEL_CLUSTER(");
  RG_CHECK(direct || cluster || absl::ConsumePrefix(&head, "RG_KERNEL("));
  const std::vector<std::string> parts = absl::StrSplit(head.substr(0, head.find(')')), ", ");
  RG_CHECK(parts.size() == (cluster ? 4 : 3));
  Kernel kernel{.name = parts[0], .threads = warp, .direct = direct};
  RG_CHECK(parts[1] == "RG_WARP" || absl::SimpleAtoi(parts[1], &kernel.threads));
  RG_CHECK(absl::SimpleAtoi(parts[2], &kernel.arguments));
  if (cluster) {
    kernel.head = KernelHead::kCluster;
    RG_CHECK(absl::SimpleAtoi(parts[3], &kernel.cluster));
  }
  return kernel;
}

// Declarations stay among the statements. What stands before a kernel, such as a merged launch's
// members, is its comment.
inline std::vector<Kernel> KernelsFromText(absl::string_view text, int warp = 32) {
  std::vector<Kernel> kernels;
  std::string before;
  bool inside = false;
  for (absl::string_view line : absl::StrSplit(absl::StripTrailingAsciiWhitespace(text), '\n')) {
    if (inside && line == "}") {
      inside = false;
      Kernel& kernel = kernels.back();
      kernel.threads_meet =
          ThreadsMeetIn(kernel.function.comment) || ThreadsMeetIn(kernel.function.statements);
      kernel.parts = PartsOf(kernel.function.statements);
    } else if (!inside && (absl::StartsWith(line, "RG_KERNEL(") ||
                           absl::StartsWith(line, "RG_KERNEL_DIRECT(") ||
                           absl::StartsWith(line, "RG_KERNEL_CLUSTER("))) {
      inside = true;
      kernels.push_back(KernelOfHead(line, warp));
      kernels.back().function.comment.swap(before);
    } else if (inside || !line.empty()) {
      std::string& to = inside ? kernels.back().function.statements : before;
      absl::StrAppend(&to, line, "\n");
    }
  }
  RG_CHECK(!inside && before.empty());
  return kernels;
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_KERNELS_FROM_TEXT_H_
