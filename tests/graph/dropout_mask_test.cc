// What is known of the frameworks' random numbers, against masks that they drew on an H200: packed
// bits, of heads x queries x keys, the first in the lowest bit.
#include "graph/ir/library/dropout_mask.h"

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

struct Drawn {
  const char* name;
  int64_t heads, queries, keys;
  double p;
  uint64_t seed, offset;
};

constexpr Drawn kDrawn[] = {
    {"sizes", 4, 64, 72, 0.5, 12345, 4},
    {"p", 2, 128, 128, 0.1, 12345, 0},
    {"offset", 2, 128, 128, 0.5, 12345, uint64_t{1} << 33},
    {"long", 3, 200, 136, 0.25, (uint64_t{1} << 40) + 7, 8},
};

TEST_CASE("the masks are those that PyTorch drew, bit for bit") {
  for (const char* variant : {"cudnn", "flash", "efficient"}) {
    for (const Drawn& drawn : kDrawn) {
      const std::string path = absl::StrCat(RETROGRAD_SOURCE_DIR, "/tests/data/attention_masks/",
                                            variant, "_", drawn.name, ".bin");
      INFO(path);
      std::ifstream file(path, std::ios::binary);
      const std::string bits{std::istreambuf_iterator<char>(file), {}};
      const int64_t count = drawn.heads * drawn.queries * drawn.keys;
      REQUIRE(static_cast<int64_t>(bits.size()) == (count + 7) / 8);
      const DropoutMask mask(*DropoutVariantOf(variant), drawn.p, drawn.seed, drawn.offset,
                             drawn.queries, drawn.keys);
      int64_t differ = 0;
      for (int64_t i = 0; i < count; ++i) {
        const bool kept = (bits[static_cast<size_t>(i / 8)] >> (i % 8) & 1) != 0;
        const double share = mask.ShareOf(i / (drawn.queries * drawn.keys),
                                          i / drawn.keys % drawn.queries, i % drawn.keys);
        differ += share != (kept ? 1 / (1 - drawn.p) : 0);
      }
      CHECK(differ == 0);
    }
  }
}

TEST_CASE("a generator that nobody knows has no name here") {
  for (const char* name : {"", "math", "cuDNN"}) CHECK_FALSE(DropoutVariantOf(name).has_value());
}

}  // namespace
}  // namespace retrograd
