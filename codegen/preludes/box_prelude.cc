#include "codegen/preludes/box_prelude.h"

#include "absl/strings/str_cat.h"

namespace retrograd {
namespace {

// As a kernel's text describes them. A GPU's engine has descriptions of its own.
constexpr char kTypes[] = R"(
// --- boxes ---

struct rg_walk {
  int64_t offset, channels, images, image_pitch;
  int64_t extent[3], pitch[3], first[3], last[3], step[3];
};
struct rg_matrix {
  int64_t offset, columns, lines, pitch;
};
)";

// A thread asks for boxes; all threads wait for those of a stage at its barrier.
constexpr char kCuda[] = R"(
template <int n>
struct rg_maps {
  rg_map at[n];
};
#define RG_BOXES(name, threads, arguments, maps)                                              \
  RG_INLINE void name##_body(void* const* __restrict__ rg_table, const rg_in_order& rg_slot,  \
                             const rg_map* rg_described);                                     \
  extern "C" __global__ void __launch_bounds__(threads)                                       \
      name(const RG_GRID_CONSTANT rg_addresses<arguments> rg_given,                           \
           const RG_GRID_CONSTANT rg_maps<maps> rg_boxes) {                                   \
    name##_body(rg_given.at, rg_in_order(), rg_boxes.at);                                     \
  }                                                                                           \
  RG_INLINE void name##_body(void* const* __restrict__ rg_table, const rg_in_order& rg_slot,  \
                             const rg_map* rg_described)

// A kernel that shares its launch, with descriptions of its own.
#define RG_MEMBER_BOXES(name)                                                                \
  template <typename rg_slots_of_launch>                                                     \
  RG_INLINE void name(void* const* __restrict__ rg_table, const rg_slots_of_launch& rg_slot, \
                      const int rg_first_block, const int rg_first_argument, char* rg_pool,  \
                      const rg_map* rg_described)
#define RG_RUN_BOXES(name, first_block, first_argument, first_map) \
  name(rg_table, rg_slot, first_block, first_argument, rg_pool, rg_described + (first_map))

RG_INLINE void rg_begin_boxes(int64_t* bars, int stages) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) rg_bar_init(rg_shared_address(bars + s), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
}
// Pixels of a walk over images of two or three dims, from the given one on, all of them so far from
// there; the innermost dim last.
template <int dims>
RG_INLINE void rg_load_pixels(unsigned to, const rg_map* map, unsigned bar, int channel, int p0,
                              int p1, int p2, int image, int by0, int by1, int by2) {
  if constexpr (dims == 2) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
        ::"r"(to), "l"(map), "r"(bar), "r"(channel), "r"(p2), "r"(p1), "r"(image),
          "h"(static_cast<unsigned short>(by2)), "h"(static_cast<unsigned short>(by1)) : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};"
        ::"r"(to), "l"(map), "r"(bar), "r"(channel), "r"(p2), "r"(p1), "r"(p0), "r"(image),
          "h"(static_cast<unsigned short>(by2)), "h"(static_cast<unsigned short>(by1)),
          "h"(static_cast<unsigned short>(by0)) : "memory");
  }
}

// The first element that a box may begin at: of 1024 bytes' multiples.
#define RG_FIRST_BOX(tiles) \
  static_cast<int>((0 - rg_shared_address(tiles) & 1023) / static_cast<unsigned>(sizeof(*tiles)))
#define RG_BOXES_BEGIN(bars, stages) rg_begin_boxes(bars, stages)
#define RG_BOXES_EXPECT(bars, stage, bytes) rg_bar_expect(rg_shared_address(bars + (stage)), bytes)
// kImageDims: of the kernel's text.
#define RG_LOAD_PIXELS(tiles, at, bars, stage, from, walks, which, channel, ...)            \
  rg_load_pixels<kImageDims>(rg_shared_address(tiles + (at)), rg_described + (which),       \
                             rg_shared_address(bars + (stage)), channel, __VA_ARGS__)
#define RG_LOAD_LINES(tiles, at, bars, stage, from, matrix, which, column, line)            \
  rg_map_load<1>(rg_shared_address(tiles + (at)), rg_described + (which),                   \
                 rg_shared_address(bars + (stage)), column, line, 0)
#define RG_BOXES_SENT()
#define RG_BOXES_WAIT(bars, stage, parity, under_way) \
  rg_bar_wait(rg_shared_address(bars + (stage)), parity)
// What is multiplied now may go on; all boxes before have been.
#define RG_BOXES_FREE()                                              \
  asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");     \
  __syncthreads()
#define RG_BOXES_END(sums) rg_end_boxes(sums)

template <int columns>
RG_INLINE void rg_end_boxes(rg_tile<float> (&sums)[columns]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  rg_wgmma_begin(*reinterpret_cast<float (*)[columns * 8]>(sums));
  __syncthreads();
}
// Sums of 64 rows, a box, and 16 columns a tile += the products of a step of 64 terms.
template <bool across_a, bool across_b, int columns, typename T>
RG_INLINE void rg_multiply_boxes(rg_tile<float> (&sums)[columns], T* tiles, int a_at, int b_at,
                                 int /*row*/, int /*lane*/) {
  float(&d)[columns * 8] = *reinterpret_cast<float (*)[columns * 8]>(sums);
  const unsigned a = rg_shared_address(tiles + a_at), b = rg_shared_address(tiles + b_at);
  rg_wgmma_begin(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    rg_wgmma<across_a, across_b>(static_cast<T*>(nullptr), d,
                                 rg_tile_of<across_a>(a + j * (across_a ? 2048 : 32)),
                                 rg_tile_of<across_b>(b + j * (across_b ? 2048 : 32)), 1);
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
)";

// The copies of the thread that asks are under way until it waits for them, and the others for it.
constexpr char kHost[] = R"(
inline int rg_box_place(int line, int element) {
  return line * 64 + ((element / 8 ^ line % 8) * 8) + element % 8;
}

struct rg_box_copier {
  rg_host_thread& self;

  // `left`: elements of the line from i on; 0 and less: none.
  template <typename To, typename From>
  void line(To to, int64_t at, int line, From from, int64_t i, int64_t left) const {
    for (int pack = 0; pack < 64; pack += 8) {
      const int64_t place = at + rg_box_place(line, pack);
      if (pack + 8 <= left) {
        rg_copier{self}.ahead<8>(to, place, from, i + pack);
        continue;
      }
      for (int k = 0; k < 8; ++k) rg_store(to, place + k, pack + k < left ? rg_load(from, i + pack + k) : 0);
    }
  }

  template <typename To, typename From>
  void pixels(To to, int64_t at, From from, const rg_walk& walk, int channel, int p0, int p1, int p2,
              int64_t image, int by0, int by1, int by2) const {
    int64_t pixel[3] = {p0, p1, p2};
    const int64_t by[3] = {by0, by1, by2};
    for (int l = 0; l < 64; ++l) {
      bool inside = image >= 0 && image < walk.images;
      int64_t i = walk.offset + image * walk.image_pitch + channel;
      for (int d = 0; d < 3; ++d) {
        inside &= pixel[d] + by[d] >= 0 && pixel[d] + by[d] < walk.extent[d];
        i += (pixel[d] + by[d]) * walk.pitch[d];
      }
      line(to, at, l, from, i, inside ? walk.channels - channel : 0);
      int d = 3;
      while (d-- > 0) {
        pixel[d] += walk.step[d];
        if (pixel[d] <= walk.last[d]) break;
        pixel[d] = walk.first[d];
      }
      if (d < 0) ++image;
    }
  }

  template <typename To, typename From>
  void lines(To to, int64_t at, From from, const rg_matrix& matrix, int column, int64_t first) const {
    for (int l = 0; l < 64; ++l) {
      const bool inside = first + l < matrix.lines;
      line(to, at, l, from, matrix.offset + (first + l) * matrix.pitch + column,
           inside ? matrix.columns - column : 0);
    }
  }
};

#define RG_BOXES(name, threads, arguments, maps) RG_KERNEL_COOPERATIVE(name, threads, arguments)
#define RG_MEMBER_BOXES(name) RG_MEMBER(name)
#define RG_RUN_BOXES(name, first_block, first_argument, first_map) RG_RUN(name, first_block, first_argument)
#define RG_FIRST_BOX(tiles) 0
#define RG_BOXES_BEGIN(bars, stages) static_cast<void>(bars)
#define RG_BOXES_EXPECT(bars, stage, bytes)
#define RG_LOAD_PIXELS(tiles, at, bars, stage, from, walks, which, channel, ...) \
  rg_box_copier{rg_self}.pixels(tiles, at, from, walks[which], channel, __VA_ARGS__)
#define RG_LOAD_LINES(tiles, at, bars, stage, from, matrix, which, column, line) \
  rg_box_copier{rg_self}.lines(tiles, at, from, matrix, column, line)
#define RG_BOXES_SENT() RG_COPIES_SENT()
#define RG_BOXES_WAIT(bars, stage, parity, under_way) \
  if (rg_thread == 0) RG_COPIES_WAIT(under_way);      \
  RG_BARRIER()
#define RG_BOXES_FREE() RG_BARRIER()
#define RG_BOXES_END(sums) RG_BARRIER()

template <bool across_a, bool across_b, typename S, int columns, typename T>
inline void rg_multiply_boxes(rg_tile<S> (&sums)[columns], T tiles, int a_at, int b_at, int row, int lane) {
  for (int n = 0; n < columns; ++n) {
    for (int i = 0; i < rg_tile<S>::elements; ++i) {
      const int m = row + rg_tile_row(lane, i), column = 16 * n + rg_tile_column(lane, i);
      const int box = b_at + column / 64 * 4096, c = column % 64;
      S sum = sums[n].at[i];
      for (int k = 0; k < 64; ++k) {
        const S x = rg_load(tiles, a_at + (across_a ? rg_box_place(k, m) : rg_box_place(m, k)));
        const S y = rg_load(tiles, box + (across_b ? rg_box_place(k, c) : rg_box_place(c, k)));
        sum += x * y;
      }
      sums[n].at[i] = sum;
    }
  }
}
)";

}  // namespace

std::string BoxPrelude(Dialect dialect) {
  return absl::StrCat(kTypes, dialect == Dialect::kCuda ? kCuda : kHost);
}

}  // namespace retrograd
