#include "runtime/compiler/kernel_families.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "codegen/print/kernel_text.h"
#include "codegen/print/lift_numbers.h"
#include "runtime/compiler/module_cache.h"

namespace retrograd {
namespace {

using Literals = std::vector<std::string>;

// Answers that are kept: those of some hundred programs.
constexpr size_t kMostKnown = 50'000;

// Of a kernel, words that it takes: a launch has 4096 bytes of parameters.
constexpr int kMostArguments = 900;

// By its text, since others find its code by its name.
std::shared_ptr<const Kernel> Named(const Kernel& kernel) {
  auto named = std::make_shared<Kernel>(kernel);
  NameKernel(named.get());
  return named;
}

// What tells the kernel's text from others. Most names are a digest of it (NameKernel).
std::string TextKey(const Kernel& kernel) {
  constexpr size_t kDigits = 16;
  absl::string_view digits = kernel.name;
  if (absl::ConsumePrefix(&digits, "rg_") && digits.size() == kDigits &&
      absl::c_all_of(digits, absl::ascii_isxdigit)) {
    return kernel.name;
  }
  return Digest(PrintKernel(kernel));
}

// Whether arguments in place of some numbers make these of the others.
bool Serves(const std::vector<int>& argument, const Literals& served, const Literals& wanted) {
  std::vector<const std::string*> values;  // by argument
  for (size_t i = 0; i < argument.size(); ++i) {
    if (argument[i] < 0) {
      if (served[i] != wanted[i]) return false;
      continue;
    }
    const auto a = static_cast<size_t>(argument[i]);
    if (a >= values.size()) {
      values.push_back(&wanted[i]);
    } else if (*values[a] != wanted[i]) {
      return false;
    }
  }
  return true;
}

int NumbersToLift(const std::vector<int>& argument, const Literals& served,
                  const Literals& wanted) {
  int count = 0;
  for (size_t i = 0; i < argument.size(); ++i) count += argument[i] < 0 && served[i] != wanted[i];
  return count;
}

// The arguments that serve both. Numbers that have changed alike are one argument.
std::vector<int> Widened(const std::vector<int>& argument, const Literals& served,
                         const Literals& wanted) {
  std::map<std::pair<std::string, std::string>, int> arguments;
  std::vector<int> widened;
  for (size_t i = 0; i < argument.size(); ++i) {
    if (argument[i] < 0 && served[i] == wanted[i]) {
      widened.push_back(-1);
      continue;
    }
    // What was an argument before may have had other values than these.
    const std::string before =
        argument[i] < 0 ? served[i] : "argument " + std::to_string(argument[i]);
    const auto next = static_cast<int>(arguments.size());
    widened.push_back(arguments.try_emplace({before, wanted[i]}, next).first->second);
  }
  return widened;
}

}  // namespace

int64_t KernelFamilies::NewProgram() {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A program that is being loaded and has to ask again compiles a kernel once more at worst.
  if (known_.size() > kMostKnown) known_.clear();
  return ++programs_;
}

KernelFamilies::Member& KernelFamilies::MemberFor(int64_t program, const Kernel& kernel,
                                                  Literals literals) {
  std::vector<Member>& members = members_[Digest(SkeletonOf(kernel))];
  Member* nearest = nullptr;
  int least = 0;
  for (Member& member : members) {
    if (Serves(member.argument, member.literals, literals)) return member;
    if (member.program == program) continue;
    const int count = NumbersToLift(member.argument, member.literals, literals);
    if (nearest != nullptr && count >= least) continue;
    nearest = &member;
    least = count;
  }
  if (nearest != nullptr) {
    std::vector<int> widened = Widened(nearest->argument, nearest->literals, literals);
    auto lifted = std::make_shared<Kernel>(LiftNumbers(kernel, widened));
    if (lifted->arguments <= kMostArguments) {
      *nearest = {std::move(literals), std::move(widened), std::move(lifted)};
      return *nearest;
    }
  }
  std::vector<int> none(literals.size(), -1);
  members.push_back({std::move(literals), std::move(none), Named(kernel)});
  return members.back();
}

LiftedKernel KernelFamilies::Lift(int64_t program, const Kernel& kernel) {
  // A kernel without a table has no room for numbers.
  if (kernel.direct) return {Named(kernel), {}};
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string key = TextKey(kernel);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  Literals literals = NumbersOf(kernel);
  Member& member = MemberFor(program, kernel, literals);
  member.program = program;
  return known_[key] = {member.kernel, WordsOf(member.kernel->lifted, literals)};
}

}  // namespace retrograd
