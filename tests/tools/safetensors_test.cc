#include "tools/support/safetensors.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

TEST_CASE("tensors of a file have no gaps between them") {
  auto parsed = ParseBundle(SerializeBundle(Example()));
  REQUIRE(parsed.status().ToString() == "OK");
  uint64_t end = 0;
  for (const BundleTensor& t : parsed->tensors) {
    CHECK(t.offset == end);
    end += static_cast<uint64_t>(t.type.size_bytes());
  }
  CHECK(parsed->data.size() == end);
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

// A folder that goes with the test.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / absl::StrCat("bundle_files_", getpid());
  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

TEST_CASE("a folder or a pipe in place of a bundle is refused at once") {
  const Folder folder;
  const std::string pipe = folder.path / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {folder.path.string(), pipe}) {
    CHECK_THAT(std::string(LoadBundle(path).status().message()),
               ContainsSubstring(path + " is no regular file"));
  }
}

TEST_CASE("a header of 300,000 tensors is read, and so is one that repeats its first name last") {
  std::string header = "{";
  constexpr int kTensors = 300'000;
  for (int i = 0; i < kTensors; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"input/", i,
                    R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",", i + 1, "]}");
  }
  const std::string data(kTensors, 'x');
  const auto bundle = ParseBundle(Framed(header + "}", data));
  REQUIRE(bundle.status().ToString() == "OK");
  CHECK(bundle->tensors.size() == kTensors);
  CHECK(bundle->Find("input/299999")->offset == kTensors - 1);
  const auto repeated = ParseBundle(Framed(header + R"(,"input/0":{}})", data));
  CHECK_THAT(std::string(repeated.status().message()), ContainsSubstring("same name"));
}

// By how many KiB the most memory that a process had grows while it works; -1 if the work fails. In
// a process of its own, as the most never shrinks.
template <typename Prepare, typename Work>
int64_t MostGrowsBy(Prepare prepare, Work work) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  malloc_trim(0);  // what earlier tests gave back would hide what is taken
  const pid_t child = fork();
  if (child == 0) {
    const auto most_kib = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return static_cast<int64_t>(usage.ru_maxrss);
    };
    auto prepared = prepare();
    const int64_t before = most_kib();
    const int64_t grown = work(prepared) ? most_kib() - before : -1;
    _exit(write(ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
  }
  close(ends[1]);
  int64_t grown = -1;
  if (read(ends[0], &grown, sizeof grown) != sizeof grown) grown = -1;
  close(ends[0]);
  return waitpid(child, nullptr, 0) == child ? grown : -1;
}

TEST_CASE("a bundle is held once while it is read, and not again while it is written") {
  const Folder folder;
  const std::string path = folder.path / "large.safetensors";
  constexpr int64_t kBytes = int64_t{96} << 20, kKib = kBytes >> 10;
  const int64_t writing = MostGrowsBy(
      [] {
        Bundle bundle;
        bundle.tensors = {{"x", {DType::kUInt8, {kBytes}}, 0}};
        bundle.data.assign(kBytes, 'x');
        return bundle;
      },
      [&](const Bundle& bundle) { return SaveBundle(bundle, path).ok(); });
  CHECK(writing >= 0);
  CHECK(writing < kKib / 2);
  const int64_t reading = MostGrowsBy([] { return absl::StatusOr<Bundle>(Bundle()); },
                                      [&](absl::StatusOr<Bundle>& bundle) {
                                        bundle = LoadBundle(path);
                                        return bundle.ok() && bundle->data.size() == kBytes;
                                      });
  CHECK(reading >= kKib / 2);
  CHECK(reading < kKib + kKib / 2);
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
      {Framed(one, "123456789"), "1 bytes follow the last tensor"},
      {Framed("{}", "12345678"), "8 bytes follow the last tensor"},
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

TEST_CASE("a tensor of a bundle lies within the data and shares no byte with another") {
  const auto one = [](int64_t begin, int64_t end) {
    return absl::StrCat(R"({"a":{"dtype":"U8","shape":[)", end - begin, R"(],"data_offsets":[)",
                        begin, ",", end, "]}}");
  };
  CHECK(ParseBundle(Framed(one(0, 8), "12345678")).ok());
  CHECK_THAT(std::string(ParseBundle(Framed(one(0, 9), "12345678")).status().message()),
             ContainsSubstring("outside the 8 bytes"));
  const auto two = [](int64_t second) {
    return absl::StrCat(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)",
                        R"("b":{"dtype":"U8","shape":[4],"data_offsets":[)", second, ",",
                        second + 4, "]}}");
  };
  CHECK(ParseBundle(Framed(two(4), "12345678")).ok());
  CHECK_THAT(std::string(ParseBundle(Framed(two(3), "1234567")).status().message()),
             ContainsSubstring("share bytes"));
}

}  // namespace
}  // namespace retrograd
