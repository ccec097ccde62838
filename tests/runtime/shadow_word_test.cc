// Which accesses to a word of shared memory the checker calls a race, in clusters of two blocks.
#include "runtime/host/sanitizer/shadow_word.h"

#include "tests/catch.h"

namespace retrograd {
namespace {

constexpr ThreadShape kShape = {.threads = 128, .of_block = 64};

// A thread behind so many barriers of its cluster, and of its block since the last of those.
Accessor Thread(int thread, int cluster_barriers, int barriers) {
  return {.thread = thread, .epoch = (cluster_barriers << kBlockEpochBits) + barriers};
}

TEST_CASE("reads by a block itself do not hide that another block of its cluster has read") {
  ShadowWord word;
  CHECK(!word.Write(Thread(3, 0, 0), kShape));
  CHECK(!word.Read(Thread(64 + 5, 1, 0), kShape));  // the other block
  CHECK(!word.Read(Thread(7, 1, 0), kShape));
  CHECK(!word.Read(Thread(7, 1, 1), kShape));  // behind a barrier of its own
  ShadowWord met = word;
  CHECK(word.Write(Thread(3, 1, 2), kShape));
  CHECK(!met.Write(Thread(3, 2, 0), kShape));  // behind a barrier of the cluster
}

TEST_CASE("a block's barrier orders its own threads") {
  ShadowWord word;
  CHECK(!word.Read(Thread(7, 0, 0), kShape));
  CHECK(!word.Write(Thread(3, 0, 1), kShape));
  CHECK(word.Read(Thread(40, 0, 1), kShape));
}

}  // namespace
}  // namespace retrograd
