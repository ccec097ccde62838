// Files of choices: what is written, that it is read as it was, and what is refused, with its line.
#include "runtime/tuning/choices_text.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

const ChoiceKey kKey = {"matmul 1", "NVIDIA H200, sm_90, 132 multiprocessors", "cublaslt 130000",
                        "matmul 4x3x5, bf16 to bf16 [1 4  /16] [1 3  /16] [1 4  /16]"};

Choices Some() {
  Choices choices;
  choices[kKey] = {.candidates = {{"algorithm 66 tile 20", 13.25}, {"algorithm 0", 12.5}},
                   .usual = 0,
                   .chosen = 1,
                   .uses = {"matmul bf16[4,5]5,1 bf16[5,3]3,1 bf16[4,3]3,1"}};
  ChoiceKey other = kKey;
  other.kind = "convolution 2";
  choices[other] = {.candidates = {{"cudnn", 0}, {"a \"quoted\"\nname", 3}},
                    .usual = 1,
                    .chosen = 1,
                    .state = std::string("\0\xff\n\"\\", 5)};
  return choices;
}

constexpr char kText[] =
    R"(# Choices among implementations of library calls, by `retrograd tune`; see docs/tuning.md.
version: 1

choice {
  kind: "convolution 2"
  device: "NVIDIA H200, sm_90, 132 multiprocessors"
  library: "cublaslt 130000"
  call: "matmul 4x3x5, bf16 to bf16 [1 4  /16] [1 3  /16] [1 4  /16]"
  candidate { name: "cudnn" us: 0 }
  candidate { name: "a \"quoted\"\nname" us: 3 }
  default: "a \"quoted\"\nname"
  chosen: "a \"quoted\"\nname"
  margin: 0.000
}

choice {
  kind: "matmul 1"
  device: "NVIDIA H200, sm_90, 132 multiprocessors"
  library: "cublaslt 130000"
  call: "matmul 4x3x5, bf16 to bf16 [1 4  /16] [1 3  /16] [1 4  /16]"
  use: "matmul bf16[4,5]5,1 bf16[5,3]3,1 bf16[4,3]3,1"
  candidate { name: "algorithm 66 tile 20" us: 13.25 }
  candidate { name: "algorithm 0" us: 12.5 }
  default: "algorithm 66 tile 20"
  chosen: "algorithm 0"
  margin: 0.057
}
)";

TEST_CASE("choices are written in the order of their keys, without what is no text for people") {
  CHECK(PrintChoices(Some()) == kText);
}

TEST_CASE("what is written is read as it was") {
  Choices some = Some();
  const auto with_state = ParseChoices(PrintChoices(some, /*state=*/true), "mine");
  INFO(with_state.status());
  REQUIRE(with_state.ok());
  CHECK(*with_state == some);
  for (auto& [key, choice] : some) choice.state.clear();
  CHECK(*ParseChoices(kText, "mine") == some);
  CHECK(ParseChoices(PrintChoices({}), "mine")->empty());
  // Times keep six digits, and the same ones when they are written again.
  some[kKey].candidates[0].us = 1.0 / 3;
  const std::string once = PrintChoices(some);
  CHECK(PrintChoices(*ParseChoices(once, "mine")) == once);
}

TEST_CASE("a choice that nothing was timed for is in no file") {
  CHECK(PrintChoices({{kKey, Choice{}}}) == PrintChoices({}));
}

TEST_CASE("what is malformed is refused with its line and the reason") {
  struct Wrong {
    const char *from, *to, *message;
  };
  const Wrong wrongs[] = {
      {"version: 1\n", "version: 2\n", "mine:2: a file of choices has version: 1, not 2"},
      {"version: 1\n", "\n", "mine:1: a file of choices has version: 1, not 0"},
      {"  kind: \"matmul 1\"\n", "  knd: \"matmul 1\"\n", "mine:17: "},
      {"  kind: \"matmul 1\"\n", "\n", "mine:16: a choice without kind"},
      {"\"matmul 1\"", "\"matmul", "mine:17: "},
      {"  chosen: \"algorithm 0\"", "  chosen: \"another\"",
       "mine:25: the chosen candidate \"another\" is none of the candidates"},
      {"  default: \"algorithm 66 tile 20\"", "  default: \"\"",
       "mine:24: the default candidate \"\" is none of the candidates"},
      {"\"algorithm 0\" us: 12.5", "\"algorithm 66 tile 20\" us: 12.5",
       "mine:23: there are two candidates \"algorithm 66 tile 20\""},
      {"us: 12.5", "us: 0", "mine:25: the chosen candidate \"algorithm 0\" has no time"},
      {"us: 12.5", "us: -3", "mine:23: -3 is no time in microseconds"},
      {"us: 12.5", "us: nan", "mine:23: nan is no time in microseconds"},
      {"us: 12.5", "us: twelve", "mine:23: "},
      {"\"convolution 2\"", "\"matmul 1\"", "mine:16: the call has a choice already"},
      {"  margin: 0.057\n}\n", "", "mine:26: "},
  };
  for (const Wrong& wrong : wrongs) {
    const std::string text = absl::StrReplaceAll(kText, {{wrong.from, wrong.to}});
    INFO(wrong.from << " -> " << wrong.to);
    REQUIRE(text != kText);
    const auto parsed = ParseChoices(text, "mine");
    REQUIRE(absl::IsInvalidArgument(parsed.status()));
    INFO(parsed.status());
    CHECK(parsed.status().message().substr(0, std::string(wrong.message).size()) == wrong.message);
  }
}

TEST_CASE("a choice says by how much it wins over the default") {
  Choices some = Some();
  CHECK(Describe(some[kKey]) ==
        "algorithm 0, 12.5 us, 5.7% less than the default, algorithm 66 tile 20, 13.2 us");
  some[kKey].chosen = 0;
  CHECK(Describe(some[kKey]) == "algorithm 66 tile 20, 13.2 us, the default");
  CHECK(Describe(Choice{}) == "not timed");
}

TEST_CASE(
    "choices are found by the plans' calls that they serve, and a newer one replaces another") {
  Choices some = Some();
  CHECK(ChoicesFor(some, "matmul bf16[4,5]5,1 bf16[5,3]3,1 bf16[4,3]3,1").size() == 1);
  CHECK(ChoicesFor(some, "matmul").empty());
  Update({{kKey, Choice{.candidates = {{"alone", 1}}}}}, some);
  CHECK(some.size() == 2);
  CHECK(some[kKey].name() == "alone");
}

}  // namespace
}  // namespace retrograd
