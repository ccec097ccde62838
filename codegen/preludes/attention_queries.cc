#include "codegen/preludes/attention_prelude.h"

namespace retrograd {

const char kAttentionQueries[] = R"(
// --- dQ, and by the way delta = rowsum(dO O) and the log-sum-exp in powers of two ---
template <int dim, int groups, int stages, int own_stages, int boxes = 0>
struct rg_query_shape
    : rg_attention_shape<dim, groups, stages, own_stages, 3, 0, groups == 3 ? 160 : 232, boxes> {};

// Tiles of keys, for the queries below `end`.
template <bool causal>
RG_INLINE int rg_key_tiles(int end, const rg_attention_sizes& s) {
  const int seen = causal && end < s.keys ? end : s.keys;
  return (seen + rg_tile - 1) / rg_tile;
}

template <typename shape, bool causal, typename Bias>
RG_INLINE void rg_load_for_queries(const rg_attention_places at, const rg_map* map_q,
                                   const rg_map* map_k, const rg_map* map_v, const rg_map* map_do,
                                   const rg_map* map_o, const Bias bias,
                                   const rg_attention_sizes s) {
  if (threadIdx.x != 0) return;
  const int blocks = (s.queries + shape::rows - 1) / shape::rows;
  int stage = 0;
  unsigned parity = 1;
#pragma unroll 1
  for (int turn = 0;; ++turn) {
    const rg_work work = rg_work_of(turn, s.batch * s.heads, blocks, s.chunk);
    if (work.done) break;
    const int first = (blocks - 1 - work.block) * shape::rows;
    const int batch = work.head / s.heads, head = work.head % s.heads;
    const int kv = head / (s.heads / s.kv_heads);
    const int side = turn % shape::own_stages;
    const unsigned own_bar = at.own_full + 8 * side;
    rg_bar_wait(at.own_empty + 8 * side, (turn / shape::own_stages & 1) ^ 1);
    rg_bar_expect(own_bar, 3 * shape::rows_bytes);
#pragma unroll
    for (int x = 0; x < shape::dim; x += 64) {
#pragma unroll
      for (int r = 0; r < shape::groups; ++r) {
        const unsigned to =
            at.own + 3 * side * shape::rows_bytes + x * shape::rows * 2 + r * 8192;
        const int row = first + 64 * r;
        rg_head_load(to, map_q, own_bar, x, row, head, batch);
        rg_head_load(to + shape::rows_bytes, map_do, own_bar, x, row, head, batch);
        rg_head_load(to + 2 * shape::rows_bytes, map_o, own_bar, x, row, head, batch);
      }
    }
    const int tiles = rg_key_tiles<causal>(first + shape::rows, s);
    const auto kinds = rg_kinds_of(bias, 0, batch, head, first, s.queries, s.keys);
#pragma unroll 1
    for (int j = 0; j < tiles; ++j) {
      if (!rg_seen_by_any<shape::groups>(kinds, j)) continue;
      rg_bar_wait(at.empty + 8 * stage, parity);
      const unsigned ring = at.ring + stage * shape::stage_bytes, bar = at.full + 8 * stage;
      int bytes = 2 * shape::tile_bytes;
      if constexpr (Bias::boxed) bytes += rg_biased_steps<shape::groups>(kinds, j) * rg_bias_box;
      rg_bar_expect(bar, bytes);
#pragma unroll
      for (int x = 0; x < shape::dim; x += 64) {
        const unsigned to = ring + x * rg_tile * 2;
        rg_head_load(to, map_k, bar, x, j * rg_tile, kv, batch);
        rg_head_load(to + shape::tile_bytes, map_v, bar, x, j * rg_tile, kv, batch);
      }
      if constexpr (Bias::boxed) {
#pragma unroll
        for (int r = 0; r < shape::groups; ++r) {
          if (rg_kind_at(kinds, r, j) != rg_tile_any) continue;
          rg_head_load(ring + shape::bias_at + r * rg_bias_box, bias.map, bar, j * rg_tile,
                       first + 64 * r, bias.kinds_head != 0 ? head : 0,
                       bias.kinds_batch != 0 ? batch : 0);
        }
      }
      if (++stage == shape::stages) stage = 0, parity ^= 1;
    }
  }
}

// `numbers` are, of each tile of queries, 64 log-sum-exps and 64 deltas.
template <typename T, typename shape, bool causal, typename Bias, typename Dropout,
          typename Scores>
RG_INLINE void rg_attention_queries(const rg_attention_places at, const float* lse,
                                    long long lse_batch, long long lse_head, long long lse_row,
                                    float* numbers, rg_head_rows dq, const Bias bias,
                                    const Dropout dropout, const Scores scores,
                                    const rg_attention_sizes s) {
  constexpr int dim = shape::dim, stages = shape::stages;
  T* const type = nullptr;
  const int group = rg_attention_group(), lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) % 128 / 32, 0);
  const int blocks = (s.queries + shape::rows - 1) / shape::rows;
  const unsigned mine = at.staged + (4 * group + warp) * (16 * dim * 2);
  const float c = s.scale * 1.4426950408889634f;
  const float infinity = rg_from_bits(0x7f800000u);
  int stage = 0;
  unsigned parity = 0;
#pragma unroll 1
  for (int turn = 0;; ++turn) {
    const rg_work work = rg_work_of(turn, s.batch * s.heads, blocks, s.chunk);
    if (work.done) break;
    const int block = blocks - 1 - work.block;
    const int start = block * shape::rows + 64 * group;  // of this warpgroup
    const int batch = work.head / s.heads, head = work.head % s.heads;
    const int row = start + 16 * warp + lane / 4;  // and row + 8
    float two[2], delta[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = row + 8 * r;
      two[r] = infinity;
      if (query < s.queries) {
        const float v = lse[batch * lse_batch + head * lse_head + query * lse_row];
        two[r] = v == -infinity ? infinity : v * 1.4426950408889634f;
      }
    }
    const int side = turn % shape::own_stages;
    const unsigned here = at.own + 3 * side * shape::rows_bytes;
    rg_bar_wait(at.own_full + 8 * side, turn / shape::own_stages & 1);
    const int own_row = 64 * group + 16 * warp;
#pragma unroll 2
    for (int k = 0; k < dim / 16; ++k) {
      unsigned o[4], d_out[4];
      rg_load_part<shape::rows>(d_out, here + shape::rows_bytes, own_row, k, lane);
      rg_load_part<shape::rows>(o, here + 2 * shape::rows_bytes, own_row, k, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        delta[i & 1] += rg_low(d_out[i], type) * rg_low(o[i], type);
        delta[i & 1] += rg_high(d_out[i], type) * rg_high(o[i], type);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      delta[r] += __shfl_xor_sync(~0u, delta[r], 1);
      delta[r] += __shfl_xor_sync(~0u, delta[r], 2);
      const int query = row + 8 * r;
      if (lane % 4 == 0 && query < s.padded) {
        float* const to = numbers + 2ll * work.head * s.padded +
                          query / rg_tile * (2 * rg_tile) + query % rg_tile;
        to[0] = two[r], to[rg_tile] = delta[r];
      }
    }
    float sums[dim / 2];
#pragma unroll
    for (int i = 0; i < dim / 2; ++i) sums[i] = 0;
    const int first = block * shape::rows;  // of the whole block
    const int all = rg_key_tiles<causal>(first + shape::rows, s);
    const int tiles = rg_key_tiles<causal>(start + 64, s);
    const auto kinds = rg_kinds_of(bias, 0, batch, head, first, s.queries, s.keys);
    unsigned ds[rg_tile / 16][4];
    const unsigned q_tile = here + 8192 * group, do_tile = q_tile + shape::rows_bytes;
    int before = -1, j = 0;
    rg_pin(sums);
    const auto next_stage = [&] {
      parity ^= stage + 1 == stages;
      stage = stage + 1 == stages ? 0 : stage + 1;
    };
    const auto step = [&](auto masked, int kind) {
      const unsigned k_tile = at.ring + stage * shape::stage_bytes;
      rg_bar_wait(at.full + 8 * stage, parity);
      float p[rg_tile / 2], g[rg_tile / 2];
      rg_products_begin();
      rg_scores<T, dim, shape::rows>(p, q_tile, k_tile);
      rg_products_sent();
      rg_scores<T, dim, shape::rows>(g, do_tile, k_tile + shape::tile_bytes);
      rg_products_sent();
      // Loads of the bias are under way while the products are made.
      constexpr bool adds = Bias::given && !Bias::boxed && decltype(masked)::value;
      float added[adds ? rg_tile / 2 : 1];
      if constexpr (adds) {
#pragma unroll
        for (int i = 0; i < rg_tile / 2; ++i) {
          const int key = j * rg_tile + (i >> 2) * 8 + lane % 4 * 2 + (i & 1);
          const int query = row + 8 * ((i >> 1) & 1);
          added[i] = rg_bias_near(bias, batch, head, query, key, s);
        }
      }
      unsigned kept = ~0u;
      if constexpr (Dropout::given) {
        kept = rg_kept_by_queries(dropout, work.head, row, j * rg_tile, lane);
      }
      rg_products_wait<1>();
      rg_pin(p);
      rg_release_if(before >= 0, at.empty + 8 * (before < 0 ? 0 : before), lane);
      constexpr bool boxed = Bias::boxed && decltype(masked)::value;
      if constexpr (boxed) {
        rg_add_bias<false>(bias, kind, p, k_tile + shape::bias_at + group * rg_bias_box,
                           16 * warp, lane, c);
      }
#pragma unroll
      for (int i = 0; i < rg_tile / 2; ++i) {
        float x = p[i] * (boxed ? 1 : c) - two[(i >> 1) & 1];
        bool seen = true;
        if constexpr (decltype(masked)::value) {
          const int key = j * rg_tile + (i >> 2) * 8 + lane % 4 * 2 + (i & 1);
          const int query = row + 8 * ((i >> 1) & 1);
          seen = key < s.keys && !(causal && key > query);
          if constexpr (adds) x += 1.4426950408889634f * added[i];
        }
        p[i] = rg_near_exp2(x);
        if (!seen) p[i] = 0;
      }
      rg_products_wait<0>();
      rg_pin(g);
      if constexpr (Dropout::given) {
#pragma unroll
        for (int i = 0; i < rg_tile / 2; ++i) g[i] = kept >> i & 1 ? g[i] * dropout.share : 0;
      }
#pragma unroll
      for (int k = 0; k < rg_tile / 16; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int n = 8 * k + 2 * i;
          const float d = delta[i & 1];
          ds[k][i] = rg_narrow_two(p[n] * (g[n] - d), p[n + 1] * (g[n + 1] - d), type);
        }
      }
      rg_pin(ds), rg_pin(sums);
      rg_products_begin();
      rg_gradients<T, dim>(sums, ds, k_tile);
      rg_products_sent();
      if constexpr (Scores::given) {
        rg_store_scores(scores, ds, batch, head, row, j * rg_tile, lane, s);
      }
      before = stage;
      next_stage();
    };
    const auto unseen = [&](int tile) {
      if constexpr (Scores::given) {
        const unsigned zeros[rg_tile / 16][4] = {};
        rg_store_scores(scores, zeros, batch, head, row, tile * rg_tile, lane, s);
      }
    };
    const auto finish = [&] {
      rg_products_wait<0>();
      rg_pin(sums);
      rg_release_if(before >= 0, at.empty + 8 * (before < 0 ? 0 : before), lane);
      before = -1;
    };
    const auto pass_over = [&] {
      rg_bar_wait(at.full + 8 * stage, parity);
      if (lane == 0) rg_bar_arrive(at.empty + 8 * stage);
      next_stage();
    };
    // The tiles from `clean` on hold keys that some query does not see.
    const int clean = (causal && start + 1 < s.keys ? start + 1 : s.keys) / rg_tile;
    if constexpr (Bias::given) {
#pragma unroll 1
      for (; j < tiles; ++j) {
        const int kind = rg_kind_at(kinds, group, j);
        if (kind == rg_tile_unseen) {
          unseen(j);
          if (!rg_seen_by_any<shape::groups>(kinds, j)) continue;
          finish();  // nothing is held while others are passed over
          pass_over();
        } else if (kind == rg_tile_zeros && j < clean) {
          step(rg_no{}, kind);
        } else {
          step(rg_yes{}, kind);
        }
      }
    } else {
#pragma unroll 1
      for (; j < clean && j < tiles; ++j) step(rg_no{}, rg_tile_zeros);
#pragma unroll 1
      for (; j < tiles; ++j) step(rg_yes{}, rg_tile_zeros);
    }
    finish();
    if (lane == 0) rg_bar_arrive(at.own_empty + 8 * side);
#pragma unroll 1
    for (; j < all; ++j) {
      if (rg_seen_by_any<shape::groups>(kinds, j)) pass_over();
    }
    if constexpr (Scores::given) {
#pragma unroll 1
      for (int tile = tiles; tile * rg_tile < s.keys; ++tile) unseen(tile);
    }
    T* const to = static_cast<T*>(dq.data) + batch * dq.batch + head * dq.head;
    rg_write_rows<T, dim>(sums, s.scale, mine, lane, to, dq.row, start + 16 * warp, s.queries);
  }
}

)";

}  // namespace retrograd
