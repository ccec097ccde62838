#include "codegen/preludes/dropout_prelude.h"

namespace retrograd {
namespace {

constexpr char kDropout[] = R"(
// --- dropout: Philox 4x32 ---

struct rg_words { unsigned at[4]; };
RG_INLINE unsigned rg_word_at(const rg_words& four, int i) {
  const unsigned low = i & 1 ? four.at[1] : four.at[0], high = i & 1 ? four.at[3] : four.at[2];
  return i & 2 ? high : low;
}
template <int rounds>
RG_INLINE rg_words rg_philox(unsigned long long low, unsigned long long high,
                             unsigned long long seed) {
  unsigned a = static_cast<unsigned>(low), b = static_cast<unsigned>(low >> 32);
  unsigned c = static_cast<unsigned>(high), d = static_cast<unsigned>(high >> 32);
  unsigned k0 = static_cast<unsigned>(seed), k1 = static_cast<unsigned>(seed >> 32);
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    const unsigned long long u = static_cast<unsigned long long>(a) * 0xD2511F53u;
    const unsigned long long v = static_cast<unsigned long long>(c) * 0xCD9E8D57u;
    a = static_cast<unsigned>(v >> 32) ^ b ^ k0, b = static_cast<unsigned>(v);
    c = static_cast<unsigned>(u >> 32) ^ d ^ k1, d = static_cast<unsigned>(u);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{a, b, c, d}};
}

// `share` is 1 / (1 - p), `most` the greatest number that is kept.
struct rg_dropout_cudnn {
  static constexpr bool given = true;
  unsigned long long seed, offset;
  unsigned most;
  float share;
  int queries, keys;
  RG_INLINE rg_words words(int head, int key, int query_tile, int key_tile) const {
    return rg_philox<7>(offset / 4 + 8ll * head + key,
                        static_cast<unsigned long long>(key_tile) * ((queries + 15) / 16) +
                            query_tile,
                        seed);
  }
  RG_INLINE bool kept(unsigned word, int odd) const {
    return (word >> (odd ? 16 : 0) & 0xffffu) <= most;
  }
  RG_INLINE bool keeps(int head, int i, int j) const {
    const rg_words four = words(head, j % 8, i / 16, j / 16);
    return kept(rg_word_at(four, i % 16 / 8 * 2 + j % 16 / 8), i % 2);
  }
};

struct rg_dropout_flash {
  static constexpr bool given = true;
  unsigned long long seed, offset;
  unsigned most;
  float share;
  int queries, keys;
  // Of a tile of 16 x 32 elements.
  RG_INLINE rg_words words(int head, int lane, int query_tile, int key_tile) const {
    return rg_philox<7>(offset + 32ll * head + lane,
                        static_cast<unsigned long long>(key_tile) << 32 | query_tile, seed);
  }
  RG_INLINE bool kept(unsigned word, int byte) const { return (word >> 8 * byte & 0xffu) <= most; }
  RG_INLINE bool keeps(int head, int i, int j) const {
    const rg_words four = words(head, i % 8 * 4 + j % 8 / 2, i / 16, j / 32);
    return kept(rg_word_at(four, j % 32 / 8), i % 16 / 8 * 2 + j % 2);
  }
};

struct rg_dropout_efficient {
  static constexpr bool given = true;
  unsigned long long seed, offset;
  float above;  // the probability to be dropped
  float share;
  int queries, keys;
  RG_INLINE bool kept(unsigned word) const {
    return static_cast<float>(word) * 2.3283064365386963e-10f + 1.1641532182693481e-10f > above;
  }
  RG_INLINE bool keeps(int head, int i, int j) const {
    const unsigned long long element =
        offset + (static_cast<unsigned long long>(head) * queries + i) * keys + j;
    const rg_words four = rg_philox<10>(element / 4, 0, seed);
    return kept(rg_word_at(four, static_cast<int>(element % 4)));
  }
};
)";

constexpr char kTiled[] = R"(
// --- dropout of a tile of 64 x 64 by tensor cores ---

// A warp has 16 rows of the tile; of a thread's elements, number 4 n + 2 r + b lies in its row
// lane / 4 + 8 r, at 8 n + lane % 4 * 2 + b. A bit says whether an element of this number is kept.
// Threads that need the same random words make some of them each.

// Rows are queries: `row` is the thread's first, `key` the tile's first.
RG_INLINE unsigned rg_kept_by_queries(const rg_dropout_cudnn& drop, int head, int row, int key,
                                      int lane) {
  // The 8 threads of a column need 8 counters: of 4 tiles of keys, each with two columns.
  const int own = lane / 4, odd = own & 1;
  const rg_words four =
      drop.words(head, lane % 4 * 2 + odd, row / 16, key / 16 + own / 2);
  unsigned mine = 0, other = 0;  // for queries of this thread's parity, and for the others
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      mine |= static_cast<unsigned>(drop.kept(four.at[2 * r + n], odd)) << (4 * n + 2 * r);
      other |= static_cast<unsigned>(drop.kept(four.at[2 * r + n], odd ^ 1)) << (4 * n + 2 * r);
    }
  }
  const int first = own / 2 * 8 + odd;
  unsigned kept = mine << first | __shfl_xor_sync(~0u, other << first, 4);
  kept |= __shfl_xor_sync(~0u, kept, 8);
  return kept | __shfl_xor_sync(~0u, kept, 16);
}
// Rows are keys.
RG_INLINE unsigned rg_kept_by_keys(const rg_dropout_cudnn& drop, int head, int row, int query,
                                   int lane) {
  // The 4 threads of a row need 4 counters: of 4 tiles of queries.
  const int own = lane % 4;
  const rg_words four = drop.words(head, lane / 4, query / 16 + own, row / 16);
  unsigned mine = 0;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        mine |= static_cast<unsigned>(drop.kept(four.at[2 * n + r], b)) << (4 * n + 2 * r + b);
      }
    }
  }
  mine <<= 8 * own;
  mine |= __shfl_xor_sync(~0u, mine, 1);
  return mine | __shfl_xor_sync(~0u, mine, 2);
}

RG_INLINE unsigned rg_kept_by_queries(const rg_dropout_flash& drop, int head, int row, int key,
                                      int lane) {
  unsigned kept = 0;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const rg_words four = drop.words(head, lane, row / 16, key / 32 + tile);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        kept |= static_cast<unsigned>(drop.kept(four.at[n], byte)) << (16 * tile + 4 * n + byte);
      }
    }
  }
  return kept;
}
RG_INLINE unsigned rg_kept_by_keys(const rg_dropout_flash& drop, int head, int row, int query,
                                   int lane) {
  // Two threads, whose keys are even and odd, need the same 8 counters: each makes those of one
  // parity of the queries.
  const int odd = lane / 4 & 1, from = (lane % 4 * 2 + odd) * 4 + lane / 8;
  const bool upper = row / 16 & 1;
  unsigned mine = 0, other = 0;
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    const rg_words four = drop.words(head, from, query / 16 + tile, row / 32);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned word = upper ? four.at[2 + r] : four.at[r];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int at = 8 * tile + 4 * n + 2 * r;
        mine |= static_cast<unsigned>(drop.kept(word, 2 * n + odd)) << at;
        other |= static_cast<unsigned>(drop.kept(word, 2 * n + (odd ^ 1))) << at;
      }
    }
  }
  return mine << odd | __shfl_xor_sync(~0u, other << odd, 4);
}

RG_INLINE unsigned rg_kept_by_queries(const rg_dropout_efficient& drop, int head, int row, int key,
                                      int lane) {
  unsigned kept = 0;
#pragma unroll 1
  for (int at = 0; at < 32; ++at) {
    kept |= static_cast<unsigned>(drop.keeps(head, row + 8 * (at >> 1 & 1),
                                             key + 8 * (at >> 2) + lane % 4 * 2 + (at & 1)))
            << at;
  }
  return kept;
}
RG_INLINE unsigned rg_kept_by_keys(const rg_dropout_efficient& drop, int head, int row, int query,
                                   int lane) {
  unsigned kept = 0;
#pragma unroll 1
  for (int at = 0; at < 32; ++at) {
    kept |= static_cast<unsigned>(drop.keeps(head, query + 8 * (at >> 2) + lane % 4 * 2 + (at & 1),
                                             row + 8 * (at >> 1 & 1)))
            << at;
  }
  return kept;
}
)";

}  // namespace

std::string DropoutPrelude() { return kDropout; }
std::string TiledDropoutPrelude() { return kTiled; }

}  // namespace retrograd
