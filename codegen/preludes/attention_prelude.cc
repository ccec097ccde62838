#include "codegen/preludes/attention_prelude.h"

#include "absl/strings/str_cat.h"

namespace retrograd {

const char kAttentionTiles[] = R"(
// --- attention's backward: sm_90a ---

// A kernel takes descriptions of Q, K, V, dO and either O or the numbers that dQ's kernel leaves of
// each query. It has a warpgroup that loads and some that multiply.
#define RG_ATTENTION_MAPS(name, threads, arguments)                                          \
  extern "C" __global__ void __launch_bounds__(threads, 1) name(                             \
      void* const* __restrict__ rg_table, const RG_GRID_CONSTANT rg_slots<arguments> rg_slot, \
      const RG_GRID_CONSTANT rg_map rg_map_q, const RG_GRID_CONSTANT rg_map rg_map_k,        \
      const RG_GRID_CONSTANT rg_map rg_map_v, const RG_GRID_CONSTANT rg_map rg_map_do,       \
      const RG_GRID_CONSTANT rg_map rg_map_rows
#define RG_ATTENTION(name, threads, arguments) RG_ATTENTION_MAPS(name, threads, arguments))
#define RG_ATTENTION_WITH_BIAS(name, threads, arguments) \
  RG_ATTENTION_MAPS(name, threads, arguments), const RG_GRID_CONSTANT rg_map rg_map_bias)

// Rows from `row` on of one head of one batch entry, `width` elements from `x` on.
RG_INLINE void rg_head_load(unsigned to, const rg_map* map, unsigned bar, int x, int row, int head,
                            int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];"
      ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(row), "r"(head), "r"(batch) : "memory");
}

#define RG_NEW_FOUR(d, i) "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3])
#define RG_NEW_SIXTEEN(d, i) \
  RG_NEW_FOUR(d, i), RG_NEW_FOUR(d, i + 4), RG_NEW_FOUR(d, i + 8), RG_NEW_FOUR(d, i + 12)

// d (64 x 64 or 128, fp32) = or += a (64 x 16, registers) b (16 x 64 or 128, shared memory).
#define RG_WGMMA_64(type, sixteen, add)                                                        \
  asm volatile(                                                                                \
      "{\n"                                                                                    \
      ".reg .pred p;\n"                                                                        \
      "setp.ne.b32 p, %37, 0;\n"                                                               \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "                          \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "      \
      "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n"                                             \
      "}\n"                                                                                    \
      : sixteen(d, 0), sixteen(d, 16)                                                          \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(add), "n"(across))
#define RG_WGMMA_128(type, sixteen, add)                                                       \
  asm volatile(                                                                                \
      "{\n"                                                                                    \
      ".reg .pred p;\n"                                                                        \
      "setp.ne.b32 p, %69, 0;\n"                                                               \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " "                         \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "       \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "       \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "      \
      "{%64, %65, %66, %67}, %68, p, 1, 1, %70;\n"                                             \
      "}\n"                                                                                    \
      : sixteen(d, 0), sixteen(d, 16), sixteen(d, 32), sixteen(d, 48)                          \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(add), "n"(across))
#define RG_WGMMA_KIND(T, count, form, type)                                                    \
  template <bool adds, int across>                                                             \
  RG_INLINE void rg_multiply_by(T*, float (&d)[count], const unsigned (&a)[4],                 \
                                unsigned long long b) {                                        \
    if constexpr (adds) {                                                                      \
      form(type, RG_SIXTEEN, 1);                                                               \
    } else {                                                                                   \
      form(type, RG_NEW_SIXTEEN, 0);                                                           \
    }                                                                                          \
  }
RG_WGMMA_KIND(rg_bf16, 32, RG_WGMMA_64, "bf16")
RG_WGMMA_KIND(rg_bf16, 64, RG_WGMMA_128, "bf16")
RG_WGMMA_KIND(rg_fp16, 32, RG_WGMMA_64, "f16")
RG_WGMMA_KIND(rg_fp16, 64, RG_WGMMA_128, "f16")

// d (64 x 64) = a b or, adding, += a b, both from shared memory, where each row of b is a column of
// the product. What d held before is nobody's, so that its registers are free until then.
#define RG_WGMMA_64_SHARED(type, sixteen, add)                                                 \
  asm volatile(                                                                                \
      "{\n"                                                                                    \
      ".reg .pred p;\n"                                                                        \
      "setp.ne.b32 p, %34, 0;\n"                                                               \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "                          \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "      \
      "%32, %33, p, 1, 1, 0, 0;\n"                                                              \
      "}\n"                                                                                    \
      : sixteen(d, 0), sixteen(d, 16)                                                          \
      : "l"(a), "l"(b), "n"(add))
#define RG_WGMMA_SHARED_KIND(T, type)                                                          \
  template <bool adds>                                                                         \
  RG_INLINE void rg_multiply_tiles(T*, float (&d)[32], unsigned long long a,                   \
                                   unsigned long long b) {                                     \
    if constexpr (adds) {                                                                      \
      RG_WGMMA_64_SHARED(type, RG_SIXTEEN, 1);                                                 \
    } else {                                                                                   \
      RG_WGMMA_64_SHARED(type, RG_NEW_SIXTEEN, 0);                                             \
    }                                                                                          \
  }
RG_WGMMA_SHARED_KIND(rg_bf16, "bf16")
RG_WGMMA_SHARED_KIND(rg_fp16, "f16")

// What follows from the value is made anew, not kept from turn to turn of a loop.
RG_INLINE void rg_renew(int& value) { asm volatile("" : "+r"(value)); }
// Nothing that uses these registers moves across.
template <int count>
RG_INLINE void rg_pin(float (&d)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int count>
RG_INLINE void rg_pin(unsigned (&d)[count][4]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    asm volatile("" : "+r"(d[i][0]), "+r"(d[i][1]), "+r"(d[i][2]), "+r"(d[i][3])::"memory");
  }
}
// The assembler of CUDA 13.0 takes registers that products read for free after the last that does,
// even inside of a loop that comes back to the first: a use behind the loop, of which only we know
// that it never comes (no 16-bit number lies at an odd address), keeps them. The assembler must not
// know it: a condition of constants is folded, and the use goes.
template <int count>
RG_INLINE void rg_keep(const unsigned (&a)[count][4], unsigned where, const void* numbers) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.eq.u32 p, %5, 1;\n"
        "@p st.shared.v4.b32 [%4], {%0, %1, %2, %3};\n"
        "}\n" ::"r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(where),
        "r"(static_cast<unsigned>(reinterpret_cast<unsigned long long>(numbers) & 1))
        : "memory");
  }
}
RG_INLINE void rg_products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RG_INLINE void rg_products_sent() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int left>
RG_INLINE void rg_products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

// A tile of rows of 64 elements (128 bytes, swizzled); those of a head that is wider lie one tile
// after the other, `bytes` apart. As the right side of a product: its rows are columns of the
// product, or, across, what is summed over.
template <int across, int bytes>
RG_INLINE unsigned rg_head_tile(unsigned address) {
  return address >> 4 | static_cast<unsigned>(across ? bytes / 16 : 1) << 16;
}
RG_INLINE unsigned long long rg_head_part(unsigned tile, int bytes) {
  return static_cast<unsigned long long>(tile + bytes / 16) |
         (static_cast<unsigned long long>(1024 / 16) << 32 | 1ull << 62);
}

RG_INLINE void rg_load_matrices(unsigned (&a)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from) : "memory");
}
// The same with rows and columns swapped.
RG_INLINE void rg_load_turned(unsigned (&a)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from) : "memory");
}
RG_INLINE void rg_save_matrices(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
RG_INLINE float2 rg_shared_two(unsigned from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}
RG_INLINE uint4 rg_shared_pack(unsigned from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
  return v;
}
RG_INLINE float rg_near_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
RG_INLINE float rg_low(unsigned two, rg_bf16*) { return rg_from_bits(two << 16); }
RG_INLINE float rg_high(unsigned two, rg_bf16*) { return rg_from_bits(two & 0xffff0000u); }
RG_INLINE float rg_low(unsigned two, rg_fp16*) {
  return rg_widen(rg_fp16{static_cast<unsigned short>(two)});
}
RG_INLINE float rg_high(unsigned two, rg_fp16*) {
  return rg_widen(rg_fp16{static_cast<unsigned short>(two >> 16)});
}

constexpr int rg_tile = 64;  // keys or queries that are loaded at once
constexpr int rg_bias_box = rg_tile * rg_tile * 2;  // bytes

struct rg_yes { static constexpr bool value = true; };
struct rg_no { static constexpr bool value = false; };

struct rg_attention_sizes {
  int batch, heads, kv_heads, queries, keys;
  int padded;  // queries, up to a multiple of 64
  int chunk;   // heads that are worked on side by side
  float scale;
};
// What is added to the scores, in elements; an axis along which it stays the same has the stride 0.
// `kinds` says what tiles of 64 x 64 of it hold: first all tables by queries, from `by_keys` on by
// keys.
enum { rg_tile_unseen = 0, rg_tile_zeros = 1, rg_tile_any = 2 };  // unseen: no key by any row
template <typename T>
struct rg_bias {
  static constexpr bool given = true, boxed = false;
  const T* data;
  long long batch, head, query, key;
  const unsigned char* kinds;
  long long by_keys;
  int kinds_batch, kinds_head;  // tables from one to the next
};
// The same, brought by the copy engine in boxes of 64 queries x 64 keys.
template <typename T>
struct rg_boxed_bias {
  static constexpr bool given = true, boxed = true;
  typedef T type;
  const rg_map* map;
  const unsigned char* kinds;
  long long by_keys;
  int kinds_batch, kinds_head;  // 0: one table for all
};
struct rg_no_bias { static constexpr bool given = false, boxed = false; };
struct rg_no_dropout { static constexpr bool given = false; };

// Of the rows of a block: each 64 of them have the kinds of `along` tiles of the others.
template <bool given>
struct rg_block_kinds {
  const unsigned char* first;
  int rows, along;  // rows: in steps of 64
};
template <typename Bias>
RG_INLINE rg_block_kinds<Bias::given> rg_kinds_of(const Bias& bias, int by_keys, int batch,
                                                  int head, int row, int rows, int others) {
  rg_block_kinds<Bias::given> kinds = {};
  if constexpr (Bias::given) {
    const long long table =
        static_cast<long long>(batch) * bias.kinds_batch + head * bias.kinds_head;
    const int down = (rows + 63) / 64;
    kinds.along = (others + 63) / 64, kinds.rows = down - row / 64;
    kinds.first =
        bias.kinds + by_keys * bias.by_keys + (table * down + row / 64) * kinds.along;
  }
  return kinds;
}
// Where the rows of step r meet tile j.
template <bool given>
RG_INLINE int rg_kind_at(const rg_block_kinds<given>& kinds, int r, int j) {
  if constexpr (!given) return rg_tile_zeros;
  return r < kinds.rows ? kinds.first[r * kinds.along + j] : rg_tile_unseen;
}
template <int groups, bool given>
RG_INLINE bool rg_seen_by_any(const rg_block_kinds<given>& kinds, int j) {
  int any = 0;
#pragma unroll
  for (int r = 0; r < groups; ++r) any |= rg_kind_at(kinds, r, j);
  return any != 0;
}
// How many of them hold numbers, whose boxes of a bias are brought.
template <int groups, bool given>
RG_INLINE int rg_biased_steps(const rg_block_kinds<given>& kinds, int j) {
  int count = 0;
#pragma unroll
  for (int r = 0; r < groups; ++r) count += rg_kind_at(kinds, r, j) == rg_tile_any;
  return count;
}
// Of what lies behind the last row or key, which counts for nothing, that of the last one: loads
// that depend on no condition wait for each other's data together.
template <typename Bias>
RG_INLINE float rg_bias_near(const Bias& bias, int batch, int head, int query, int key,
                             const rg_attention_sizes& s) {
  query = query < s.queries ? query : s.queries - 1, key = key < s.keys ? key : s.keys - 1;
  return static_cast<float>(rg_load(bias.data, batch * bias.batch + head * bias.head +
                                                   query * bias.query + key * bias.key));
}

// The rows of a tensor [batch, head, row, dim], in elements.
struct rg_head_rows {
  void* data;
  long long batch, head, row;
};

// Where the gradients of the scores go: [batch, head, query, key] in elements, neighbouring keys
// side by side, in `pairs` at addresses of 4 bytes; or nowhere.
template <typename T, bool pairs>
struct rg_score_rows {
  static constexpr bool given = true;
  T* data;
  long long batch, head, query;
};
struct rg_no_scores { static constexpr bool given = false; };
// A warp's 16 rows of a tile, of which this lane has `query` and query + 8, from the key on. The
// addresses are made here, not kept in registers from tile to tile.
template <typename T, bool pairs>
RG_INLINE void rg_store_scores(const rg_score_rows<T, pairs>& to, const unsigned (&ds)[4][4],
                               int batch, int head, int query, int key, int lane,
                               const rg_attention_sizes& s) {
  rg_renew(query), rg_renew(lane);
  key += lane % 4 * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = query + 8 * r, left = row < s.queries ? s.keys - key : 0;
    unsigned short* const at = reinterpret_cast<unsigned short*>(
        to.data + batch * to.batch + head * to.head + row * to.query + key);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const unsigned two = ds[n / 2][n % 2 * 2 + r];
      if constexpr (pairs) {
        if (8 * n < left) *reinterpret_cast<unsigned*>(at + 8 * n) = two;
      } else {
        if (8 * n < left) at[8 * n] = static_cast<unsigned short>(two);
        if (8 * n + 1 < left) at[8 * n + 1] = static_cast<unsigned short>(two >> 16);
      }
    }
  }
}

// Work is handed out in turns, from the longest to the shortest, forth and back.
struct rg_work { int head, block; bool done; };
RG_INLINE rg_work rg_work_of(int turn, int heads, int blocks, int chunk) {
  int width = static_cast<int>(gridDim.x), at = static_cast<int>(blockIdx.x);
  rg_renew(width), rg_renew(at);
  const int number = turn * width + (turn & 1 ? width - 1 - at : at);
  const int first = number / (chunk * blocks) * chunk, rest = number - first * blocks;
  const int side = heads - first < chunk ? heads - first : chunk;
  const int over = side > 0 ? side : 1;  // nothing is left past the end
  return {first + rest % over, rest / over, number >= heads * blocks};
}

// The 64 x dim sums of a warpgroup times `scale`: this warp's 16 rows of them go through `staged`,
// its own, to the rows from `row` on that are below `rows`.
template <typename T, int dim>
RG_INLINE void rg_write_rows(const float (&sums)[dim / 2], float scale, unsigned staged, int lane,
                             T* to, long long stride, int row, int rows) {
  T* const type = nullptr;
  rg_renew(lane);
  __syncwarp();
  const int mine = lane % 16;
#pragma unroll
  for (int c = 0; c < dim / 8; c += 2) {
    const float* d = sums + 4 * c;
    const int chunk = c + lane / 16;
    rg_save_matrices(staged + mine * dim * 2 + ((chunk ^ (mine & 7)) << 4),
                     rg_narrow_two(d[0] * scale, d[1] * scale, type),
                     rg_narrow_two(d[2] * scale, d[3] * scale, type),
                     rg_narrow_two(d[4] * scale, d[5] * scale, type),
                     rg_narrow_two(d[6] * scale, d[7] * scale, type));
  }
  __syncwarp();
  constexpr int packs = dim / 8, step = 32 / packs;
#pragma unroll
  for (int r = 0; r < 16; r += step) {
    const int at = r + lane / packs, chunk = lane % packs;
    const uint4 pack = rg_shared_pack(staged + at * dim * 2 + ((chunk ^ (at & 7)) << 4));
    if (row + at < rows) {
      *reinterpret_cast<uint4*>(to + (row + at) * stride + chunk * 8) = pack;
    }
  }
}

// a (this warp's 16 rows, 16 elements of each from 16 k on) from a tile of `tile_rows` rows.
template <int tile_rows>
RG_INLINE void rg_load_part(unsigned (&a)[4], unsigned tile, int row, int k, int lane) {
  const int mine = row + lane % 16, chunk = 2 * k + lane / 16;
  rg_load_matrices(a, tile + chunk / 8 * (tile_rows * 128) + mine * 128 +
                          (((chunk % 8) ^ (mine & 7)) << 4));
}
// The same of a tile of 64 x 64 whose columns are rows of a: 16 of them from `column` on.
RG_INLINE void rg_load_turned_part(unsigned (&a)[4], unsigned tile, int column, int k, int lane) {
  const int mine = 16 * k + lane / 16 * 8 + lane % 8, chunk = column / 8 + (lane / 8 & 1);
  rg_load_turned(a, tile + mine * 128 + ((chunk ^ (mine & 7)) << 4));
}
// p = p c + bias, in powers of two: this warp's 16 rows of a tile, which lie from `own` on in a box of
// the bias: rows, or columns where the box is turned. Tiles of zeros have no box.
template <bool turned, typename Bias>
RG_INLINE void rg_add_bias(const Bias&, int kind, float (&p)[rg_tile / 2], unsigned box, int own,
                           int lane, float c) {
  typename Bias::type* const type = nullptr;
#pragma unroll
  for (int i = 0; i < rg_tile / 2; ++i) p[i] *= c;
  if (kind != rg_tile_any) return;
#pragma unroll
  for (int k = 0; k < rg_tile / 16; ++k) {
    unsigned a[4];
    if constexpr (turned) {
      rg_load_turned_part(a, box, own, k, lane);
    } else {
      rg_load_part<rg_tile>(a, box, own, k, lane);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& low = p[8 * k + 2 * i];
      float& high = p[8 * k + 2 * i + 1];
      low += 1.4426950408889634f * rg_low(a[i], type);
      high += 1.4426950408889634f * rg_high(a[i], type);
    }
  }
}
// All of them.
template <int dim, int tile_rows>
RG_INLINE void rg_load_rows(unsigned (&a)[dim / 16][4], unsigned tile, int row, int lane) {
#pragma unroll
  for (int k = 0; k < dim / 16; ++k) rg_load_part<tile_rows>(a[k], tile, row, k, lane);
}

// d (64 x 64) = a tile^T, where a is 64 rows of `a_rows`
template <typename T, int dim, int a_rows>
RG_INLINE void rg_scores(float (&d)[32], unsigned a, unsigned tile) {
  T* const type = nullptr;
  const unsigned left = rg_head_tile<0, 0>(a), right = rg_head_tile<0, 0>(tile);
  rg_multiply_tiles<false>(type, d, rg_head_part(left, 0), rg_head_part(right, 0));
#pragma unroll
  for (int k = 1; k < dim / 16; ++k) {
    rg_multiply_tiles<true>(type, d, rg_head_part(left, k / 4 * (a_rows * 128) + k % 4 * 32),
                            rg_head_part(right, k / 4 * (rg_tile * 128) + k % 4 * 32));
  }
}
// The same with a in registers.
template <typename T, int dim>
RG_INLINE void rg_scores_of(float (&d)[32], const unsigned (&a)[dim / 16][4], unsigned tile) {
  T* const type = nullptr;
  const unsigned right = rg_head_tile<0, 0>(tile);
  rg_multiply_by<false, 0>(type, d, a[0], rg_head_part(right, 0));
#pragma unroll
  for (int k = 1; k < dim / 16; ++k) {
    rg_multiply_by<true, 0>(type, d, a[k],
                            rg_head_part(right, k / 4 * (rg_tile * 128) + k % 4 * 32));
  }
}
// d (64 x dim) += a tile
template <typename T, int dim>
RG_INLINE void rg_gradients(float (&d)[dim / 2], const unsigned (&a)[rg_tile / 16][4],
                            unsigned tile) {
  T* const type = nullptr;
  const unsigned right = rg_head_tile<1, rg_tile * 128>(tile);
#pragma unroll
  for (int k = 0; k < rg_tile / 16; ++k) {
    rg_multiply_by<true, 1>(type, d, a[k], rg_head_part(right, k * 2048));
  }
}
// This warp is done with what the barrier guards.
RG_INLINE void rg_release_if(bool yes, unsigned bar, int lane) {
  __syncwarp();  // the other lanes' reads come before the first one's word
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %1, 0;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}\n" ::"r"(bar), "r"(static_cast<int>(yes && lane == 0)) : "memory");
}
// What a block holds: `stages` pairs of tiles that pass by, each with `numbers` bytes more, behind
// which come `boxes` of a bias, and
// `own_stages` times `kept` tensors of its own rows. A thread that multiplies gets `registers`,
// those of the warpgroup that loads what is left.
template <int dim_, int groups_, int stages_, int own_stages_, int kept_, int numbers,
          int registers_, int boxes>
struct rg_attention_shape {
  static constexpr int dim = dim_, groups = groups_, stages = stages_, own_stages = own_stages_;
  static constexpr int rows = 64 * groups, kept = kept_, registers = registers_;
  static constexpr int tile_bytes = rg_tile * dim * 2, bias_at = 2 * tile_bytes + numbers;
  static constexpr int stage_bytes = bias_at + boxes * rg_bias_box;
  static constexpr int rows_bytes = rows * dim * 2;
  static constexpr int shared_bytes = 1024 + stages * stage_bytes +
                                      (kept * own_stages + 1) * rows_bytes + 16 * stages +
                                      16 * own_stages;
};

// Where that lies in shared memory, and the barriers that say what is full and what is empty.
struct rg_attention_places {
  unsigned ring, own, staged;
  unsigned full, empty, own_full, own_empty;
};
template <typename shape>
RG_INLINE rg_attention_places rg_attention_open(void* shared) {
  rg_attention_places at;
  at.ring = (rg_shared_address(shared) + 1023) & ~1023u;
  at.own = at.ring + shape::stages * shape::stage_bytes;
  at.staged = at.own + shape::kept * shape::own_stages * shape::rows_bytes;
  at.full = at.staged + shape::rows_bytes, at.empty = at.full + 8 * shape::stages;
  at.own_full = at.empty + 8 * shape::stages, at.own_empty = at.own_full + 8 * shape::own_stages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < shape::stages; ++i) {
      rg_bar_init(at.full + 8 * i, 1);
      rg_bar_init(at.empty + 8 * i, 4 * shape::groups);
    }
    for (int i = 0; i < shape::own_stages; ++i) {
      rg_bar_init(at.own_full + 8 * i, 1);
      rg_bar_init(at.own_empty + 8 * i, 4 * shape::groups);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  return at;
}

// The warpgroup's number among those that multiply, which is one for all its threads as the
// compiler sees it; -1: it loads.
RG_INLINE int rg_attention_group() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0) - 1;
}
template <typename shape>
RG_INLINE void rg_registers_more() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(shape::registers));
}
template <typename shape>
RG_INLINE void rg_registers_fewer() {
  constexpr int all = shape::groups + 1, given = 65536 / (128 * all) / 8 * 8;  // of each at first
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(given * all -
                                                           shape::groups * shape::registers));
}

)";

std::string AttentionPrelude() {
  return absl::StrCat(kAttentionTiles, kAttentionQueries, kAttentionKeys);
}

}  // namespace retrograd
