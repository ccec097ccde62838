#include "codegen/attention_prelude.h"

namespace retrograd {

const char kAttentionQueries[] = R"(
// --- dQ, and by the way delta = rowsum(dO O) and the log-sum-exp in powers of two ---
template <int dim, int groups, int stages, int own_stages>
struct rg_query_shape {
  static constexpr int rows = 64 * groups;
  static constexpr int tile_bytes = rg_tile * dim * 2, stage_bytes = 2 * tile_bytes;
  static constexpr int rows_bytes = rows * dim * 2;
  static constexpr int shared_bytes = 1024 + stages * stage_bytes +
                                      (3 * own_stages + 1) * rows_bytes + 16 * stages +
                                      16 * own_stages;
};

template <typename T, int dim, int groups, int stages, int own_stages, bool causal, typename Bias>
RG_INLINE void rg_attention_queries(const rg_map* map_q, const rg_map* map_k, const rg_map* map_v,
                                    const rg_map* map_o, const rg_map* map_do, const float* lse,
                                    long long lse_batch, long long lse_head, long long lse_row,
                                    float* lse_two, float* deltas, rg_head_rows dq,
                                    const Bias bias, void* shared, const rg_attention_sizes s) {
  typedef rg_query_shape<dim, groups, stages, own_stages> shape;
  char* const memory =
      static_cast<char*>(shared) + ((1024 - (rg_shared_address(shared) & 1023)) & 1023);
  const unsigned ring = rg_shared_address(memory);
  const unsigned own = ring + stages * shape::stage_bytes;  // Q, dO, O
  const unsigned staged = own + 3 * own_stages * shape::rows_bytes;
  const unsigned full = staged + shape::rows_bytes, empty = full + 8 * stages;
  const unsigned own_full = empty + 8 * stages, own_empty = own_full + 8 * own_stages;
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int warp = __shfl_sync(~0u, thread / 32, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      rg_bar_init(full + 8 * i, 1);
      rg_bar_init(empty + 8 * i, 4 * groups);
    }
    for (int i = 0; i < own_stages; ++i) {
      rg_bar_init(own_full + 8 * i, 1);
      rg_bar_init(own_empty + 8 * i, 4 * groups);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int heads = s.batch * s.heads, share = s.heads / s.kv_heads;
  const int blocks = (s.queries + shape::rows - 1) / shape::rows;
  const auto tiles_of = [&](int end) {  // of keys, for the rows below `end`
    const int seen = causal && end < s.keys ? end : s.keys;
    return (seen + rg_tile - 1) / rg_tile;
  };
  const auto kind_of = [&](int batch, int head, int row, int j) {
    return rg_kind_of(bias, 0, batch, head, row, s.queries, j, s.keys);
  };
  const auto seen_by_any = [&](int batch, int head, int row, int j) {
    return rg_seen_by_any<groups>(bias, 0, batch, head, row, s.queries, j, s.keys);
  };
  if (group < 0) {
    rg_registers_fewer<groups>();
    if (threadIdx.x == 0) {
      int stage = 0;
      unsigned parity = 1;
      for (int turn = 0;; ++turn) {
        const rg_work work = rg_work_of(turn, heads, blocks, s.chunk);
        if (work.done) break;
        const int first = (blocks - 1 - work.block) * shape::rows;
        const int batch = work.head / s.heads, head = work.head % s.heads, kv = head / share;
        const int side = turn % own_stages;
        const unsigned own_bar = own_full + 8 * side;
        rg_bar_wait(own_empty + 8 * side, (turn / own_stages & 1) ^ 1);
        rg_bar_expect(own_bar, 3 * shape::rows_bytes);
#pragma unroll
        for (int x = 0; x < dim; x += 64) {
#pragma unroll
          for (int r = 0; r < groups; ++r) {
            const unsigned at = own + 3 * side * shape::rows_bytes + x * shape::rows * 2 + r * 8192;
            rg_head_load(at, map_q, own_bar, x, first + 64 * r, head, batch);
            rg_head_load(at + shape::rows_bytes, map_do, own_bar, x, first + 64 * r, head, batch);
            rg_head_load(at + 2 * shape::rows_bytes, map_o, own_bar, x, first + 64 * r, head,
                         batch);
          }
        }
        const int tiles = tiles_of(first + shape::rows);
        for (int j = 0; j < tiles; ++j) {
          if (!seen_by_any(batch, head, first, j)) continue;
          rg_bar_wait(empty + 8 * stage, parity);
          const unsigned to = ring + stage * shape::stage_bytes, bar = full + 8 * stage;
          rg_bar_expect(bar, shape::stage_bytes);
#pragma unroll
          for (int x = 0; x < dim; x += 64) {
            const unsigned at = to + x * rg_tile * 2;
            rg_head_load(at, map_k, bar, x, j * rg_tile, kv, batch);
            rg_head_load(at + shape::tile_bytes, map_v, bar, x, j * rg_tile, kv, batch);
          }
          if (++stage == stages) stage = 0, parity ^= 1;
        }
      }
    }
  } else {
    rg_registers_more<groups>();
    T* const type = nullptr;
    const unsigned mine = staged + (4 * group + warp) * (16 * dim * 2);
    const char* const mine_data = memory + (mine - ring);
    const float c = s.scale * 1.4426950408889634f;
    const float infinity = rg_from_bits(0x7f800000u);
    int stage = 0;
    unsigned parity = 0;
    for (int turn = 0;; ++turn) {
      const rg_work work = rg_work_of(turn, heads, blocks, s.chunk);
      if (work.done) break;
      const int block = blocks - 1 - work.block;
      const int start = block * shape::rows + 64 * group;  // of this warpgroup
      const int batch = work.head / s.heads, head = work.head % s.heads;
      const int row = start + 16 * warp + lane / 4;  // and row + 8
      float two[2], delta[2] = {0, 0};
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int at = row + 8 * r;
        two[r] = infinity;
        if (at < s.queries) {
          const float v = lse[batch * lse_batch + head * lse_head + at * lse_row];
          two[r] = v == -infinity ? infinity : v * 1.4426950408889634f;
        }
      }
      const int side = turn % own_stages;
      const unsigned here = own + 3 * side * shape::rows_bytes;
      rg_bar_wait(own_full + 8 * side, turn / own_stages & 1);
      unsigned o[dim / 16][4], d_out[dim / 16][4];
      const int own_row = 64 * group + 16 * warp;
      rg_load_rows<dim, shape::rows>(d_out, here + shape::rows_bytes, own_row, lane);
      rg_load_rows<dim, shape::rows>(o, here + 2 * shape::rows_bytes, own_row, lane);
#pragma unroll
      for (int k = 0; k < dim / 16; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          delta[i & 1] += rg_low(d_out[k][i], type) * rg_low(o[k][i], type);
          delta[i & 1] += rg_high(d_out[k][i], type) * rg_high(o[k][i], type);
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        delta[r] += __shfl_xor_sync(~0u, delta[r], 1);
        delta[r] += __shfl_xor_sync(~0u, delta[r], 2);
        const int at = row + 8 * r;
        if (lane % 4 == 0 && at < s.padded) {
          lse_two[static_cast<long long>(work.head) * s.padded + at] = two[r];
          deltas[static_cast<long long>(work.head) * s.padded + at] = delta[r];
        }
      }
      float sums[dim / 2];
#pragma unroll
      for (int i = 0; i < dim / 2; ++i) sums[i] = 0;
      const int all = tiles_of(block * shape::rows + shape::rows), tiles = tiles_of(start + 64);
      float p[rg_tile / 2], g[rg_tile / 2];
#pragma unroll
      for (int i = 0; i < rg_tile / 2; ++i) p[i] = g[i] = 0;
      unsigned ds[rg_tile / 16][4];
      const unsigned q_tile = here + 8192 * group, do_tile = q_tile + shape::rows_bytes;
      int before = -1, j = 0;
      rg_pin(sums);
      const auto next_stage = [&] {
        parity ^= stage + 1 == stages;
        stage = stage + 1 == stages ? 0 : stage + 1;
      };
      const auto step = [&](auto masked) {
        const unsigned k_tile = ring + stage * shape::stage_bytes;
        rg_bar_wait(full + 8 * stage, parity);
        rg_pin(p), rg_pin(g);
        rg_products_begin();
        rg_scores<T, dim, shape::rows>(p, q_tile, k_tile);
        rg_products_sent();
        rg_scores<T, dim, shape::rows>(g, do_tile, k_tile + shape::tile_bytes);
        rg_products_sent();
        rg_products_wait<1>();
        rg_pin(p);
        rg_release_if(before >= 0, empty + 8 * (before < 0 ? 0 : before), lane);
#pragma unroll
        for (int i = 0; i < rg_tile / 2; ++i) {
          float x = p[i] * c - two[(i >> 1) & 1];
          bool seen = true;
          if constexpr (decltype(masked)::value) {
            const int key = j * rg_tile + (i >> 2) * 8 + lane % 4 * 2 + (i & 1);
            const int query = row + 8 * ((i >> 1) & 1);
            seen = key < s.keys && !(causal && key > query);
            if constexpr (Bias::given) {
              if (seen && query < s.queries) {
                x += 1.4426950408889634f * rg_bias_at(bias, batch, head, query, key);
              }
            }
          }
          p[i] = rg_exp2(x);
          if (!seen) p[i] = 0;
        }
        rg_products_wait<0>();
        rg_pin(g);
#pragma unroll
        for (int k = 0; k < rg_tile / 16; ++k) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int at = 8 * k + 2 * i;
            const float d = delta[i & 1];
            ds[k][i] = rg_narrow_two(p[at] * (g[at] - d), p[at + 1] * (g[at + 1] - d), type);
          }
        }
        rg_pin(ds), rg_pin(sums);
        rg_products_begin();
        rg_gradients<T, dim>(sums, ds, k_tile);
        rg_products_sent();
        before = stage;
        next_stage();
      };
      const auto finish = [&] {
        rg_products_wait<0>();
        rg_pin(sums);
        rg_release_if(before >= 0, empty + 8 * (before < 0 ? 0 : before), lane);
        before = -1;
      };
      const auto pass_over = [&] {
        rg_bar_wait(full + 8 * stage, parity);
        if (lane == 0) rg_bar_arrive(empty + 8 * stage);
        next_stage();
      };
      // The tiles from `clean` on hold keys that some query does not see.
      const int clean = (causal && start + 1 < s.keys ? start + 1 : s.keys) / rg_tile;
      if constexpr (Bias::given) {
        for (; j < tiles; ++j) {
          const int kind = kind_of(batch, head, start, j);
          if (kind == rg_tile_unseen) {
            if (!seen_by_any(batch, head, block * shape::rows, j)) continue;
            finish();  // nothing is held while others are passed over
            pass_over();
          } else if (kind == rg_tile_zeros && j < clean) {
            step(rg_no{});
          } else {
            step(rg_yes{});
          }
        }
      } else {
        for (; j < clean && j < tiles; ++j) step(rg_no{});
        for (; j < tiles; ++j) step(rg_yes{});
      }
      finish();
      if (lane == 0) rg_bar_arrive(own_empty + 8 * side);
      for (; j < all; ++j) {
        if (seen_by_any(batch, head, block * shape::rows, j)) pass_over();
      }
      T* const to = static_cast<T*>(dq.data) + batch * dq.batch + head * dq.head;
      rg_write_rows<T, dim>(sums, s.scale, mine, mine_data, lane, to, dq.row, start + 16 * warp,
                            s.queries);
    }
  }
}

)";

}  // namespace retrograd
