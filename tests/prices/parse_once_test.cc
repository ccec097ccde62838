// Texts that are parsed once.
#include "fusion/device/parse_once.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

TEST_CASE("an equal text is not parsed again, another one is, and an error is told each time") {
  ParseOnce<int> numbers;
  int parsed = 0;
  const auto get = [&](const std::string& text) {
    return numbers.Get(text, [&]() -> absl::StatusOr<int> {
      ++parsed;
      int number = 0;
      if (absl::SimpleAtoi(text, &number)) return number;
      return absl::InvalidArgumentError(absl::StrCat(text, " is no number"));
    });
  };
  CHECK(*get("7") == 7);
  CHECK(*get("7") == 7);
  CHECK(parsed == 1);
  CHECK(*get("8") == 8);
  CHECK(parsed == 2);
  CHECK_FALSE(get("seven").ok());
  CHECK_FALSE(get("seven").ok());
  CHECK(parsed == 4);
  // However many there are, each has its own answer.
  for (int i = 0; i < 1000; ++i) REQUIRE(*get(absl::StrCat(i)) == i);
  for (int i = 0; i < 1000; ++i) REQUIRE(*get(absl::StrCat(i)) == i);
}

}  // namespace
}  // namespace retrograd
