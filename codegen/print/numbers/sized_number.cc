#include "codegen/print/numbers/sized_number.h"

#include <cstring>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Characters that no source text contains.
constexpr char kBegin = '\x01', kEnd = '\x02';

bool IsNumber(absl::string_view literal) {
  absl::ConsumePrefix(&literal, "-");
  return !literal.empty() && absl::ascii_isdigit(literal[0]) && !absl::StrContains(literal, "x");
}

bool IsInteger(absl::string_view literal) {
  return literal.find_first_of(".ef") == absl::string_view::npos;
}

int64_t IntegerOf(absl::string_view literal) {
  int64_t value = 0;
  absl::ConsumeSuffix(&literal, "LL");
  RG_CHECK(absl::SimpleAtoi(literal, &value));
  return value;
}

template <typename T>
std::vector<int32_t> Bits(T value) {
  std::vector<int32_t> words(sizeof value / sizeof(int32_t));
  std::memcpy(words.data(), &value, sizeof value);
  return words;
}

std::string Marked(absl::string_view number) {
  return absl::StrCat(absl::string_view(&kBegin, 1), number, absl::string_view(&kEnd, 1));
}

}  // namespace

std::string Sized(int64_t number) { return Marked(absl::StrCat(number)); }

std::string SizedLiteral(absl::string_view literal) {
  // "(-0.5f)", "int64_t(3LL)"
  const size_t open = literal.find('(');
  if (open == absl::string_view::npos) {
    return IsNumber(literal) ? Marked(literal) : std::string(literal);
  }
  absl::string_view number = literal.substr(open + 1);
  if (!absl::ConsumeSuffix(&number, ")") || number.find_first_of(" ()_") != number.npos ||
      !IsNumber(number)) {
    return std::string(literal);
  }
  return absl::StrCat(literal.substr(0, open + 1), Marked(number), ")");
}

std::string ReplaceSized(absl::string_view text,
                         absl::FunctionRef<std::string(absl::string_view literal)> print) {
  std::string replaced;
  while (true) {
    const size_t begin = text.find(kBegin);
    absl::StrAppend(&replaced, text.substr(0, begin));
    if (begin == absl::string_view::npos) return replaced;
    const size_t end = text.find(kEnd, begin);
    RG_CHECK(end != absl::string_view::npos);
    absl::StrAppend(&replaced, print(text.substr(begin + 1, end - begin - 1)));
    text.remove_prefix(end + 1);
  }
}

std::string WithoutMarks(absl::string_view text) {
  return ReplaceSized(text, [](absl::string_view literal) { return std::string(literal); });
}

absl::string_view Name(SizedType type) {
  constexpr absl::string_view kNames[] = {"int", "int64_t", "float", "double"};
  return kNames[static_cast<int>(type)];
}

int WordsOf(SizedType type) { return type == SizedType::kInt || type == SizedType::kFloat ? 1 : 2; }

SizedType TypeOfLiteral(absl::string_view literal) {
  if (!IsInteger(literal)) {
    return absl::EndsWith(literal, "f") ? SizedType::kFloat : SizedType::kDouble;
  }
  if (absl::EndsWith(literal, "LL")) return SizedType::kInt64;
  const int64_t value = IntegerOf(literal);
  const bool fits =
      value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
  return fits ? SizedType::kInt : SizedType::kInt64;
}

std::vector<int32_t> WordsOfLiteral(absl::string_view literal) {
  switch (TypeOfLiteral(literal)) {
    case SizedType::kInt: return {static_cast<int32_t>(IntegerOf(literal))};
    case SizedType::kInt64: return Bits(IntegerOf(literal));
    case SizedType::kFloat: {
      float value = 0;
      literal.remove_suffix(1);
      RG_CHECK(absl::SimpleAtof(literal, &value));
      return Bits(value);
    }
    case SizedType::kDouble: {
      double value = 0;
      RG_CHECK(absl::SimpleAtod(literal, &value));
      return Bits(value);
    }
  }
  RG_CHECK(false);
}

}  // namespace retrograd
