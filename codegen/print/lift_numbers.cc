#include "codegen/print/lift_numbers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "codegen/print/kernel_text.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

void ClearComments(Kernel* kernel) {
  kernel->function.comment.clear();
  for (KernelFunction& member : kernel->members) member.comment.clear();
}

// By argument: the first number of the text that it stands for.
std::vector<size_t> FirstNumbers(absl::Span<const int> argument) {
  std::vector<size_t> first;
  for (size_t i = 0; i < argument.size(); ++i) {
    if (argument[i] < static_cast<int>(first.size())) continue;
    RG_CHECK(argument[i] == static_cast<int>(first.size()));
    first.push_back(i);
  }
  return first;
}

// With the kernel's name.
Kernel WithArguments(const Kernel& kernel, std::vector<int> argument) {
  RG_CHECK(kernel.lifted.empty());
  const std::vector<std::string> literals = NumbersOf(kernel);
  RG_CHECK(argument.size() == literals.size());
  Kernel lifted = kernel;
  ClearComments(&lifted);
  for (size_t i : FirstNumbers(argument)) lifted.lifted.types.push_back(TypeOfLiteral(literals[i]));
  lifted.lifted.argument = std::move(argument);
  lifted.arguments += lifted.lifted.words();
  return lifted;
}

}  // namespace

std::string SkeletonOf(const Kernel& kernel) {
  std::vector<int> all(NumbersOf(kernel).size());
  std::iota(all.begin(), all.end(), 0);
  Kernel lifted = WithArguments(kernel, std::move(all));
  lifted.name.clear();
  return PrintKernel(lifted);
}

Kernel LiftNumbers(const Kernel& kernel, std::vector<int> argument) {
  Kernel lifted = WithArguments(kernel, std::move(argument));
  NameKernel(&lifted);
  return lifted;
}

std::vector<int32_t> WordsOf(const LiftedNumbers& lifted, absl::Span<const std::string> literals) {
  std::vector<int32_t> words;
  if (lifted.empty()) return words;
  for (size_t i : FirstNumbers(lifted.argument)) {
    const std::vector<int32_t> value = WordsOfLiteral(literals[i]);
    words.insert(words.end(), value.begin(), value.end());
  }
  return words;
}

}  // namespace retrograd
