// A choice among the implementations of a library call: which there are, how long each took, and
// which was taken. Choices are data: what was found once serves later processes, and files of them
// other machines.
#ifndef RETROGRAD_RUNTIME_TUNING_CHOICE_H_
#define RETROGRAD_RUNTIME_TUNING_CHOICE_H_

#include <compare>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace retrograd {

// All that the times of a call's implementations depend on. Two keys that are equal stand for equal
// work on equal machines.
struct ChoiceKey {
  std::string kind;    // who chooses, and the version of what `call` means: "matmul 1"
  std::string device;  // "NVIDIA H200, sm_90, 132 multiprocessors"
  std::string
      library;       // "cublaslt 130000"; of kernels of ours the compiler and their text's digest
  std::string call;  // op, shapes, strides, dtypes, alignments and options, in the words of `kind`
  friend auto operator<=>(const ChoiceKey&, const ChoiceKey&) = default;
};

struct TimedCandidate {
  std::string name;  // of its choice's alone
  // Microseconds of one of several runs in a row; 0: it does not run here, or makes other numbers
  // than the others.
  double us = 0;
  friend bool operator==(const TimedCandidate&, const TimedCandidate&) = default;
};

struct Choice {
  std::vector<TimedCandidate> candidates;  // in the order of preference; empty: none was timed
  size_t usual = 0;                        // the default: the first that runs here
  size_t chosen = 0;
  std::set<std::string> uses;  // the plans' calls that it was made for, by CallKey
  std::string state;           // what brings the chosen one back sooner than its name; may be empty

  bool timed() const { return !candidates.empty(); }
  double us() const { return timed() ? candidates[chosen].us : 0; }
  const std::string& name() const { return candidates[chosen].name; }
  // What the chosen one wins over the default, as a part of the default's time; 0: it is the
  // default.
  double margin() const;
  bool HasNames(const std::vector<std::string>& names) const;
  friend bool operator==(const Choice&, const Choice&) = default;
};

using Choices = std::map<ChoiceKey, Choice>;

// "algorithm 1, 12.3 us, 5.4% less than the default, algorithm 0, 13.0 us"
std::string Describe(const Choice& choice);

// Takes over what `more` has, which stands in place of what `choices` has under the same key.
void Update(const Choices& more, Choices& choices);

// Those that were made for a plan's call.
std::vector<const Choices::value_type*> ChoicesFor(const Choices& choices,
                                                   absl::string_view call_key);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TUNING_CHOICE_H_
