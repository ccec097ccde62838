#include "runtime/ops/convolution/convolution_backends.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace retrograd {
namespace {

struct Row {
  ConvolutionBackend backend;
  absl::string_view name;
};
constexpr Row kRows[] = {{ConvolutionBackend::kCudnn, "cudnn"},
                         {ConvolutionBackend::kRetrograd, "retrograd"}};

}  // namespace

ConvolutionBackendList ConvolutionBackends::Of(Op op) const {
  if (op == Op::convolution_input_gradient) return input;
  if (op == Op::convolution_weight_gradient) return weight;
  return {ConvolutionBackend::kCudnn};
}

bool Has(const ConvolutionBackendList& list, ConvolutionBackend backend) {
  return std::find(list.begin(), list.end(), backend) != list.end();
}

absl::StatusOr<ConvolutionBackendList> ParseConvolutionBackends(absl::string_view text) {
  ConvolutionBackendList list;
  for (absl::string_view name : absl::StrSplit(text, ',')) {
    const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                  [&](const Row& r) { return r.name == name; });
    if (row == std::end(kRows) || Has(list, row->backend)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", text, "\" is no list of convolution backends: each of ",
          absl::StrJoin(kRows, ", ",
                        [](std::string* out, const Row& r) { absl::StrAppend(out, r.name); }),
          " at most once, separated by commas"));
    }
    list.push_back(row->backend);
  }
  return list;
}

std::string Print(const ConvolutionBackendList& list) {
  return absl::StrJoin(list, ",", [](std::string* out, ConvolutionBackend backend) {
    absl::StrAppend(out, kRows[static_cast<size_t>(backend)].name);
  });
}

}  // namespace retrograd
