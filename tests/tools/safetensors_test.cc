#include "tools/support/safetensors.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

std::string Framed(absl::string_view header, absl::string_view data, uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i) & 0xff));
  return absl::StrCat(bytes, header, data);
}
std::string Framed(absl::string_view header, absl::string_view data) {
  return Framed(header, data, header.size());
}

Bundle Example() {
  Bundle bundle;
  bundle.Add("input/2", {DType::kBf16, {3}}, std::string(6, 'b'));
  bundle.Add("gradient/0", {DType::kFp32, {2, 2}}, std::string(16, 'f'));
  bundle.Add("input/1", {DType::kInt64, {}}, std::string(8, 'i'));
  bundle.Add("empty", {DType::kFp64, {0, 5}}, "");
  return bundle;
}

TEST_CASE("a bundle reads back what was written, by name") {
  const Bundle bundle = Example();
  auto parsed = ParseBundle(SerializeBundle(bundle));
  INFO(parsed.status());
  REQUIRE(parsed.ok());
  REQUIRE(parsed->tensors.size() == 4);
  const BundleTensor* gradient = parsed->Find("gradient/0");
  REQUIRE(gradient != nullptr);
  CHECK(gradient->type == TensorType{DType::kFp32, {2, 2}});
  CHECK(parsed->Bytes(*gradient) == std::string(16, 'f'));
  CHECK(parsed->Bytes(*parsed->Find("input/2")) == std::string(6, 'b'));
  CHECK(parsed->Bytes(*parsed->Find("empty")).empty());
  CHECK(parsed->Find("input/3") == nullptr);
}

TEST_CASE("a file is written whole or not at all, and a missing one is named") {
  const std::string folder =
      (std::filesystem::temp_directory_path() / absl::StrCat("bundle_test_", getpid())).string();
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/x.safetensors";
  REQUIRE(SaveBundle(Example(), path).ok());
  CHECK(LoadBundle(path).ok());
  const auto entries = std::distance(std::filesystem::directory_iterator(folder),
                                     std::filesystem::directory_iterator());
  CHECK(entries == 1);  // no temporary file stays
  CHECK_THAT(std::string(LoadBundle(folder + "/none").status().message()),
             ContainsSubstring(folder + "/none"));
  CHECK_FALSE(SaveBundle(Example(), folder + "/no/such/folder").ok());
  std::filesystem::remove_all(folder);
}

TEST_CASE("headers that lie are refused without taking their word for any size") {
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  REQUIRE(ParseBundle(Framed(one, "12345678")).ok());
  const struct {
    std::string bytes, why;
  } kBad[] = {
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {Framed(one, "", uint64_t{1} << 62), "does not fit"},
      {Framed(one, "", one.size() + 1), "does not fit"},
      {Framed(one, "1234"), "outside"},
      {Framed("[]", ""), "no JSON object"},
      {Framed("{", ""), "no JSON object"},
      {Framed(std::string(100000, '['), ""), "no JSON object"},
      {Framed(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678"), "takes 12"},
      {Framed(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", "12345678"), "extent"},
      {Framed(R"({"a":{"dtype":"F32","shape":[281474976710656,281474976710656],)"
              R"("data_offsets":[0,8]}})",
              "12345678"),
       "too many"},
      {Framed(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "12345678"), "outside"},
      {Framed(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", "12345678"), "F31"},
      {Framed(R"({"a":{"dtype":"F32","shape":[2]}})", "12345678"), "data_offsets"},
      {Framed(R"({"a":7})", ""), "\"a\""},
      {Framed(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
              R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
              "12345678"),
       "share"},
      {Framed(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
              R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
              "12345678"),
       "same name"},
  };
  for (const auto& bad : kBad) {
    INFO(bad.bytes.substr(0, 200));
    auto parsed = ParseBundle(bad.bytes);
    REQUIRE_FALSE(parsed.ok());
    CHECK_THAT(std::string(parsed.status().message()), ContainsSubstring(bad.why));
  }
}

TEST_CASE("every truncation of a bundle is refused or harmless") {
  const std::string whole = SerializeBundle(Example());
  for (size_t n = 0; n < whole.size(); ++n) {
    auto parsed = ParseBundle(absl::string_view(whole).substr(0, n));
    if (!parsed.ok()) continue;
    for (const BundleTensor& t : parsed->tensors) {
      CHECK(static_cast<int64_t>(parsed->Bytes(t).size()) == t.type.size_bytes());
    }
  }
}

}  // namespace
}  // namespace retrograd
