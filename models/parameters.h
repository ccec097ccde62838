// The sizes and choices that a model's builder takes: "layers=12,d=768,dtype=bf16" as text, checked
// against the ranges that the builder declares.
#ifndef RETROGRAD_MODELS_PARAMETERS_H_
#define RETROGRAD_MODELS_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace retrograd {

// One parameter. With choices the value is a position among them, and min and max go unused.
struct ParameterSpec {
  absl::string_view name;
  int64_t default_value = 0;
  int64_t min = 0, max = 0;
  absl::string_view meaning;
  std::vector<absl::string_view> choices;

  std::string PrintValue(int64_t value) const;
};

// A value for each declared parameter.
class Parameters {
 public:
  // `text` is "name=value,..."; what it leaves out keeps its default. `model` is for messages.
  static absl::StatusOr<Parameters> Parse(absl::string_view model,
                                          absl::Span<const ParameterSpec> specs,
                                          absl::string_view text);

  int64_t operator[](absl::string_view name) const;        // a declared name
  absl::string_view Choice(absl::string_view name) const;  // a declared name with choices
  std::string Print() const;                               // all of them, as Parse() reads them

 private:
  struct Entry {
    ParameterSpec spec;
    int64_t value;
  };
  const Entry& Find(absl::string_view name) const;
  std::vector<Entry> entries_;
};

}  // namespace retrograd

#endif  // RETROGRAD_MODELS_PARAMETERS_H_
