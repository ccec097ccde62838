#include "codegen/preludes/attention_prelude.h"

namespace retrograd {

const char kAttentionKeys[] = R"(
// --- dK and dV ---
template <int dim, int groups, int stages, int own_stages, bool held_, int boxes = 0>
struct rg_key_shape
    : rg_attention_shape<dim, groups, stages, own_stages, 2, 1024, boxes && dim == 64 ? 232 : 240, boxes> {
  static constexpr bool held = held_;  // K and V lie in registers meanwhile
};

template <typename shape, bool causal, typename Bias>
RG_INLINE void rg_load_for_keys(const rg_attention_places at, const rg_map* map_q,
                                const rg_map* map_k, const rg_map* map_v, const rg_map* map_do,
                                const rg_map* map_numbers, const Bias bias,
                                const rg_attention_sizes s) {
  if (threadIdx.x != 0) return;
  const int share = s.heads / s.kv_heads;
  const int blocks = (s.keys + shape::rows - 1) / shape::rows, tiles = s.padded / rg_tile;
  unsigned loaded = 0;  // pairs of tiles
#pragma unroll 1
  for (int turn = 0;; ++turn) {
    const rg_work work = rg_work_of(turn, s.batch * s.kv_heads, blocks, s.chunk);
    if (work.done) break;
    const int first = work.block * shape::rows;
    const int batch = work.head / s.kv_heads, kv = work.head % s.kv_heads;
    const int side = turn % shape::own_stages;
    const unsigned own_bar = at.own_full + 8 * side;
    rg_bar_wait(at.own_empty + 8 * side, (turn / shape::own_stages & 1) ^ 1);
    rg_bar_expect(own_bar, 2 * shape::rows_bytes);
#pragma unroll
    for (int x = 0; x < shape::dim; x += 64) {
#pragma unroll
      for (int r = 0; r < shape::groups; ++r) {
        const unsigned to =
            at.own + 2 * side * shape::rows_bytes + x * shape::rows * 2 + r * 8192;
        rg_head_load(to, map_k, own_bar, x, first + 64 * r, kv, batch);
        rg_head_load(to + shape::rows_bytes, map_v, own_bar, x, first + 64 * r, kv, batch);
      }
    }
    const int heads_end = (work.head + 1) * share;
#pragma unroll 1
    for (int number = work.head * share; number < heads_end; ++number) {
      const auto kinds =
          rg_kinds_of(bias, 1, number / s.heads, number % s.heads, first, s.keys, s.queries);
#pragma unroll 1
      for (int j = causal ? first / rg_tile : 0; j < tiles; ++j) {
        rg_renew(j);
        if (!rg_seen_by_any<shape::groups>(kinds, j)) continue;
        const unsigned stage = loaded % shape::stages;
        rg_bar_wait(at.empty + 8 * stage, (loaded / shape::stages & 1) ^ 1);
        const unsigned ring = at.ring + stage * shape::stage_bytes, bar = at.full + 8 * stage;
        int bytes = 2 * shape::tile_bytes + 8 * rg_tile;
        if constexpr (Bias::boxed) bytes += rg_biased_steps<shape::groups>(kinds, j) * rg_bias_box;
        rg_bar_expect(bar, bytes);
        int head = number;
        rg_renew(head);
#pragma unroll
        for (int x = 0; x < shape::dim; x += 64) {
          const unsigned to = ring + x * rg_tile * 2;
          rg_head_load(to, map_q, bar, x, j * rg_tile, head % s.heads, head / s.heads);
          rg_head_load(to + shape::tile_bytes, map_do, bar, x, j * rg_tile, head % s.heads,
                       head / s.heads);
        }
        rg_head_load(ring + 2 * shape::tile_bytes, map_numbers, bar, 0, head * tiles + j, 0, 0);
        if constexpr (Bias::boxed) {
#pragma unroll 1
          for (int r = 0; r < shape::groups; ++r) {
            if (rg_kind_at(kinds, r, j) != rg_tile_any) continue;
            rg_renew(head);
            rg_head_load(ring + shape::bias_at + r * rg_bias_box, bias.map, bar, first + 64 * r,
                         j * rg_tile, bias.kinds_head != 0 ? head % s.heads : 0,
                         bias.kinds_batch != 0 ? head / s.heads : 0);
          }
        }
        ++loaded;
      }
    }
  }
}

template <typename T, typename shape, bool causal, typename Bias, typename Dropout>
RG_INLINE void rg_attention_keys(const rg_attention_places at, rg_head_rows dk, rg_head_rows dv,
                                 const Bias bias, const Dropout dropout,
                                 const rg_attention_sizes s) {
  constexpr int dim = shape::dim, stages = shape::stages;
  constexpr bool held = shape::held;
  T* const type = nullptr;
  const int group = rg_attention_group(), lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) % 128 / 32, 0);
  const int share = s.heads / s.kv_heads;
  const int blocks = (s.keys + shape::rows - 1) / shape::rows, tiles = s.padded / rg_tile;
  const unsigned mine = at.staged + (4 * group + warp) * (16 * dim * 2);
  const float c = s.scale * 1.4426950408889634f;
  int stage = 0;
  unsigned parity = 0;
#pragma unroll 1
  for (int turn = 0;; ++turn) {
    const rg_work work = rg_work_of(turn, s.batch * s.kv_heads, blocks, s.chunk);
    if (work.done) break;
    const int first = work.block * shape::rows;
    const int start = first + 64 * group;
    const int batch = work.head / s.kv_heads, kv = work.head % s.kv_heads;
    const int row = start + 16 * warp + lane / 4;  // key, and row + 8
    const int side = turn % shape::own_stages;
    const unsigned k_tile = at.own + 2 * side * shape::rows_bytes + 8192 * group;
    const unsigned v_tile = k_tile + shape::rows_bytes;
    rg_bar_wait(at.own_full + 8 * side, turn / shape::own_stages & 1);
    float dk_sums[dim / 2], dv_sums[dim / 2];
#pragma unroll
    for (int i = 0; i < dim / 2; ++i) dk_sums[i] = 0, dv_sums[i] = 0;
    unsigned weights[rg_tile / 16][4], ds[rg_tile / 16][4];
    // Tiles above the diagonal of this warpgroup's rows, but not of the block's, are passed over.
    const int begin = causal ? first / rg_tile : 0;
    const int own_begin = causal ? start / rg_tile : 0;
    // The tiles before `clean` hold queries that do not see some key.
    const int clean = causal ? (start + 63 + rg_tile - 1) / rg_tile : 0;
    int before = -1, j = 0, h = kv * share;
    unsigned k_rows[dim / 16][4], v_rows[dim / 16][4];
    if constexpr (held) {
      rg_load_rows<dim, shape::rows>(k_rows, k_tile, 16 * warp, lane);
      rg_load_rows<dim, shape::rows>(v_rows, v_tile, 16 * warp, lane);
      rg_pin(k_rows), rg_pin(v_rows);
    }
    rg_pin(dk_sums), rg_pin(dv_sums);
    const auto next_stage = [&] {
      parity ^= stage + 1 == stages;
      stage = stage + 1 == stages ? 0 : stage + 1;
    };
    const auto step = [&](auto masked, int kind) {
      const unsigned q_tile = at.ring + stage * shape::stage_bytes;
      const unsigned numbers = q_tile + 2 * shape::tile_bytes + lane % 4 * 8;
      rg_bar_wait(at.full + 8 * stage, parity);
      float p[rg_tile / 2], g[rg_tile / 2];
      rg_products_begin();
      if constexpr (held) {
        rg_scores_of<T, dim>(p, k_rows, q_tile);
      } else {
        rg_scores<T, dim, shape::rows>(p, k_tile, q_tile);
      }
      rg_products_sent();
      if constexpr (held) {
        rg_scores_of<T, dim>(g, v_rows, q_tile + shape::tile_bytes);
      } else {
        rg_scores<T, dim, shape::rows>(g, v_tile, q_tile + shape::tile_bytes);
      }
      rg_products_sent();
      unsigned kept = ~0u;
      if constexpr (Dropout::given) {
        kept = rg_kept_by_keys(dropout, batch * s.heads + h, row, j * rg_tile, lane);
      }
      rg_products_wait<1>();
      rg_pin(p);
      rg_release_if(before >= 0, at.empty + 8 * (before < 0 ? 0 : before), lane);
      constexpr bool boxed = Bias::boxed && decltype(masked)::value;
      if constexpr (boxed) {
        rg_add_bias<true>(bias, kind, p, q_tile + shape::bias_at + group * rg_bias_box, 16 * warp,
                          lane, c);
      }
#pragma unroll
      for (int i = 0; i < rg_tile / 8; ++i) {
        const float2 two = rg_shared_two(numbers + 32 * i);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          float x = p[4 * i + n] * (boxed ? 1 : c) - (n & 1 ? two.y : two.x);
          bool seen = true;
          if constexpr (decltype(masked)::value) {
            const int query = j * rg_tile + 8 * i + lane % 4 * 2 + (n & 1);
            const int key = row + 8 * (n >> 1);
            seen = !(causal && query < key);
            if constexpr (Bias::given && !Bias::boxed) {
              seen = seen && query < s.queries;  // its bias may be no number
              x += 1.4426950408889634f * rg_bias_near(bias, batch, h, query, key, s);
            }
          }
          p[4 * i + n] = rg_near_exp2(x);
          if (!seen) p[4 * i + n] = 0;
        }
      }
#pragma unroll
      for (int k = 0; k < rg_tile / 16; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int n = 8 * k + 2 * i;
          if constexpr (Dropout::given) {  // times `share` in the end
            weights[k][i] = rg_narrow_two(kept >> n & 1 ? p[n] : 0.0f,
                                          kept >> (n + 1) & 1 ? p[n + 1] : 0.0f, type);
          } else {
            weights[k][i] = rg_narrow_two(p[n], p[n + 1], type);
          }
        }
      }
      rg_pin(weights), rg_pin(dv_sums);
      rg_products_begin();
      rg_gradients<T, dim>(dv_sums, weights, q_tile + shape::tile_bytes);
      rg_products_sent();
      rg_products_wait<dim == 64 ? 1 : 0>();
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
          const float2 d = rg_shared_two(numbers + 4 * rg_tile + 64 * k + 32 * (i >> 1));
          ds[k][i] = rg_narrow_two(p[n] * (g[n] - d.x), p[n + 1] * (g[n + 1] - d.y), type);
        }
      }
      rg_pin(ds), rg_pin(dk_sums);
      rg_products_begin();
      rg_gradients<T, dim>(dk_sums, ds, q_tile);
      rg_products_sent();
      before = stage;
      next_stage();
    };
    const auto finish = [&] {
      rg_products_wait<0>();
      rg_pin(dk_sums), rg_pin(dv_sums);
      rg_release_if(before >= 0, at.empty + 8 * (before < 0 ? 0 : before), lane);
      before = -1;
    };
    const auto pass_over = [&] {
      rg_bar_wait(at.full + 8 * stage, parity);
      if (lane == 0) rg_bar_arrive(at.empty + 8 * stage);
      next_stage();
    };
#pragma unroll 1
    for (; h < (kv + 1) * share; ++h) {
      const auto kinds_from = [&](int key) {
        return rg_kinds_of(bias, 1, batch, h, key, s.keys, s.queries);
      };
      if (own_begin > begin) finish();  // nothing is held while others are passed over
#pragma unroll 1
      for (j = begin; j < own_begin && j < tiles; ++j) {
        if (rg_seen_by_any<shape::groups>(kinds_from(first), j)) pass_over();
      }
      if constexpr (Bias::given) {
#pragma unroll 1
        for (; j < tiles; ++j) {
          const int kind = rg_kind_at(kinds_from(start), 0, j);
          if (kind == rg_tile_unseen) {
            if (!rg_seen_by_any<shape::groups>(kinds_from(first), j)) continue;
            finish();
            pass_over();
          } else if (kind == rg_tile_zeros && j >= clean) {
            step(rg_no{}, kind);
          } else {
            step(rg_yes{}, kind);
          }
        }
      } else {
#pragma unroll 1
        for (; j < clean && j < tiles; ++j) step(rg_yes{}, rg_tile_zeros);
#pragma unroll 1
        for (; j < tiles; ++j) step(rg_no{}, rg_tile_zeros);
      }
    }
    finish();
    if constexpr (held) rg_keep(k_rows, mine, dk.data), rg_keep(v_rows, mine, dv.data);
    if (lane == 0) rg_bar_arrive(at.own_empty + 8 * side);
    T* const to_k = static_cast<T*>(dk.data) + batch * dk.batch + kv * dk.head;
    rg_write_rows<T, dim>(dk_sums, s.scale, mine, lane, to_k, dk.row, start + 16 * warp,
                          s.keys);
    T* const to_v = static_cast<T*>(dv.data) + batch * dv.batch + kv * dv.head;
    float dv_scale = 1;
    if constexpr (Dropout::given) dv_scale = dropout.share;
    rg_write_rows<T, dim>(dv_sums, dv_scale, mine, lane, to_v, dv.row, start + 16 * warp,
                          s.keys);
  }
}

// --- what each tile of the bias holds ---
// Masks for cuDNN are written with -65504 for minus infinity. A key whose bias is this far below
// the row's log-sum-exp has the probability exp(score - 6e4), which is 0 in fp32 for any score that the
// mask does hide. Rows of which nothing is seen have a log-sum-exp as low, and are computed.
constexpr float rg_unseen_below = -6e4f;

// A block looks at a tile of one of the bias's tables, of which there may be one for all batches or
// heads.
// In `packs`, rows of a 16-bit type are whole packs of 16 bytes at such addresses.
template <bool packs, typename T>
RG_INLINE void rg_bias_kinds(const T* data, long long batch, long long head, long long query,
                             long long key, int tables_batch, int tables_head, const float* lse,
                             long long lse_batch, long long lse_head, long long lse_row,
                             const rg_attention_sizes s, unsigned char* kinds, long long by_keys) {
  __shared__ float least[64];  // of the log-sum-exps of each row
  const int queries = s.queries, keys = s.keys;
  const int down = (queries + 63) / 64, along = (keys + 63) / 64;
  const int j = static_cast<int>(blockIdx.x) % along;
  const int i = static_cast<int>(blockIdx.x) / along % down;
  const int table = static_cast<int>(blockIdx.x) / (along * down);
  const int own_batch = table / tables_head, own_head = table % tables_head;
  const T* const from = data + own_batch * batch + own_head * head;
  if (threadIdx.x < 64) {
    const int row = i * 64 + static_cast<int>(threadIdx.x);
    float v = rg_from_bits(0x7f800000u);
    const int first_batch = tables_batch > 1 ? own_batch : 0;
    const int first_head = tables_head > 1 ? own_head : 0;
    const int end_batch = tables_batch > 1 ? own_batch + 1 : s.batch;
    const int end_head = tables_head > 1 ? own_head + 1 : s.heads;
    for (int b = first_batch; row < queries && b < end_batch; ++b) {
#pragma unroll 4
      for (int h = first_head; h < end_head; ++h) {
        v = fminf(v, lse[b * lse_batch + h * lse_head + row * lse_row]);
      }
    }
    least[threadIdx.x] = v;
  }
  __syncthreads();
  // Of what lies behind the last row or key, that of the last one: loads that depend on no condition
  // are under way together.
  int unseen = 1, plain = 1;
  const auto look = [&](float v, int row) {
    unseen &= (v == rg_from_bits(0xff800000u)) | (v - least[row - i * 64] <= rg_unseen_below);
    plain &= v == 0.0f;
  };
  if constexpr (packs) {
    const int mine = j * 64 + static_cast<int>(threadIdx.x) % 8 * 8;
    const int column = mine < keys ? mine : keys - 8;
#pragma unroll
    for (int r = static_cast<int>(threadIdx.x) / 8; r < 64; r += 16) {
      const int row = i * 64 + r < queries ? i * 64 + r : queries - 1;
      const uint4 pack = *reinterpret_cast<const uint4*>(from + row * query + column);
      T* const type = nullptr;
      const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) look(rg_low(words[n], type), row), look(rg_high(words[n], type), row);
    }
  } else {
    const int mine = j * 64 + static_cast<int>(threadIdx.x) % 64;
    const int column = mine < keys ? mine : keys - 1;
#pragma unroll 16
    for (int r = static_cast<int>(threadIdx.x) / 64; r < 64; r += 2) {
      const int row = i * 64 + r < queries ? i * 64 + r : queries - 1;
      look(static_cast<float>(rg_load(from, row * query + column * key)), row);
    }
  }
  unseen = __syncthreads_and(unseen), plain = __syncthreads_and(plain);
  if (threadIdx.x == 0) {
    const unsigned char kind = unseen ? rg_tile_unseen : plain ? rg_tile_zeros : rg_tile_any;
    const long long first = static_cast<long long>(table) * down * along;
    kinds[first + i * along + j] = kind;
    kinds[by_keys + first + j * down + i] = kind;
  }
}
)";

}  // namespace retrograd
