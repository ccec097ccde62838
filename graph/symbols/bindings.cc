#include "graph/symbols/bindings.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

std::string Range(const SizeSymbol& symbol) {
  std::string text = absl::StrCat("at least ", symbol.min);
  if (symbol.max != std::numeric_limits<int64_t>::max()) {
    text = absl::StrCat(symbol.min, " to ", symbol.max);
  }
  if (symbol.multiple_of > 1) absl::StrAppend(&text, ", a multiple of ", symbol.multiple_of);
  return text;
}

std::string Names(const SizeTable& table) {
  return absl::StrJoin(table.symbols, ", ", [](std::string* out, const SizeSymbol& symbol) {
    absl::StrAppend(out, Print(symbol));
  });
}

absl::Status CheckValue(const SizeSymbol& symbol, int64_t value) {
  if (value >= symbol.min && value <= symbol.max && value % symbol.multiple_of == 0) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(
      absl::StrCat(symbol.name, "=", value, " is none of its numbers: ", Range(symbol)));
}

}  // namespace

std::string Print(const SizeSymbol& symbol) {
  return absl::StrCat(symbol.name, " (", symbol.hint, "; ", Range(symbol), ")");
}

absl::StatusOr<std::vector<SizeBinding>> ParseBindings(absl::string_view text) {
  std::vector<SizeBinding> bindings;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const size_t equals = part.find('=');
    int64_t value = 0;
    if (equals == 0 || equals == absl::string_view::npos ||
        !absl::SimpleAtoi(part.substr(equals + 1), &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part.substr(0, 200), "' binds no size: write NAME=NUMBER,.."));
    }
    bindings.push_back({std::string(part.substr(0, equals)), value});
  }
  return bindings;
}

absl::StatusOr<std::vector<int64_t>> SymbolValues(const SizeTable& table,
                                                  absl::Span<const SizeBinding> bindings) {
  if (table.symbols.empty()) {
    return absl::InvalidArgumentError(
        "the graph has numbers alone and no sizes to bind: export it with dynamic sizes");
  }
  std::vector<std::optional<int64_t>> values(table.symbols.size());
  for (const SizeBinding& binding : bindings) {
    const auto found =
        std::find_if(table.symbols.begin(), table.symbols.end(),
                     [&](const SizeSymbol& symbol) { return symbol.name == binding.name; });
    if (found == table.symbols.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no size is called '", absl::string_view(binding.name).substr(0, 200),
                       "'; those of the graph, with hints and ranges: ", Names(table)));
    }
    std::optional<int64_t>& value = values[found - table.symbols.begin()];
    if (value.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(binding.name, " is bound twice"));
    }
    RG_RETURN_IF_ERROR(CheckValue(*found, binding.value));
    value = binding.value;
  }
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(table.symbols[i].name,
                       " is not bound: give each size a number; those of the "
                       "graph, with hints and ranges: ",
                       Names(table)));
    }
    numbers.push_back(*values[i]);
  }
  return numbers;
}

}  // namespace retrograd
