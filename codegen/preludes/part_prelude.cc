#include "codegen/preludes/part_prelude.h"

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr char kHost[] = R"(
template <typename T>
struct rg_part {
  typename rg_storage<T>::compute at[16 / sizeof(T)];
};

template <typename T, typename From>
inline void rg_fetch_part(From from, int64_t i, int count, rg_part<T>* out) {
  for (int k = 0; k < static_cast<int>(16 / sizeof(T)); ++k) {
    out->at[k] = k < count ? rg_load(from, i + k) : 0;
  }
}

template <typename To, typename T>
inline void rg_settle_part(To to, int64_t at, const rg_part<T>& part) {
  for (int k = 0; k < static_cast<int>(16 / sizeof(T)); ++k) rg_store(to, at + k, part.at[k]);
}

// What is not whole passes through registers.
struct rg_part_copier {
  rg_host_thread& self;
  template <typename To, typename From>
  void copy(To to, int64_t at, From from, int64_t i, int count) const {
    typedef typename rg_element_of<To>::type element;
    constexpr int elements = 16 / sizeof(element);
    if (count >= elements) {
      rg_copier{self}.ahead<elements>(to, at, from, i);
      return;
    }
    rg_part<element> part;
    rg_fetch_part(from, i, count, &part);
    rg_settle_part(to, at, part);
  }
};
#define rg_copy_part rg_part_copier{rg_self}.copy
)";

constexpr char kGpu[] = R"(
// The two aligned words that hold it.
template <typename T>
struct rg_part {
  rg_vector<unsigned, 4> low, high;
  int shift, bytes;
};

template <typename T, typename I>
RG_INLINE void rg_fetch_part(const T* from, I i, int count, rg_part<T>* out) {
  const char* const p = reinterpret_cast<const char*>(from + i);
  out->shift = static_cast<int>(reinterpret_cast<size_t>(p) % 16);
  out->bytes = count * static_cast<int>(sizeof(T)) < 16 ? count * static_cast<int>(sizeof(T)) : 16;
#pragma unroll
  for (int k = 0; k < 4; ++k) out->low.element[k] = out->high.element[k] = 0;
  if (out->bytes > 0) out->low.word = *reinterpret_cast<const uint4*>(p - out->shift);
  if (out->bytes > 0 && out->shift + out->bytes > 16) {
    out->high.word = *reinterpret_cast<const uint4*>(p - out->shift + 16);
  }
}

template <typename T>
RG_INLINE void rg_settle_part(T* to, int at, const rg_part<T>& part) {
  unsigned w[8];
#pragma unroll
  for (int k = 0; k < 4; ++k) w[k] = part.low.element[k], w[4 + k] = part.high.element[k];
#pragma unroll
  for (int step = 2; step > 0; step /= 2) {
    const bool skip = (part.shift / 4 & step) != 0;
#pragma unroll
    for (int k = 0; k + step < 8; ++k) w[k] = skip ? w[k + step] : w[k];
  }
  rg_vector<unsigned, 4> out;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const unsigned word = sizeof(T) >= 4 ? w[k] : rg_shift_words(w[k], w[k + 1], part.shift % 4 * 8);
    const int kept = part.bytes - 4 * k;
    out.element[k] = kept >= 4 ? word : kept > 0 ? word & ((1u << 8 * kept) - 1) : 0;
  }
  *reinterpret_cast<uint4*>(to + at) = out.word;
}
)";

// The address of what is not copied is that of the tensor's first element, though nothing is read.
constexpr char kCudaCopy[] = R"(
template <typename T, typename I>
RG_INLINE void rg_copy_part(T* to, int at, const T* from, I i, int count) {
  const int bytes = count * static_cast<int>(sizeof(T));
  const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(to + at));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(from + (count > 0 ? i : 0)),
               "r"(bytes < 0 ? 0 : bytes < 16 ? bytes : 16) : "memory");
}
)";

constexpr char kHipCopy[] = R"(
template <typename T, typename I>
RG_INLINE void rg_copy_part(T* to, int at, const T* from, I i, int count) {
  rg_part<T> part;
  rg_fetch_part(from, i, count, &part);
  rg_settle_part(to, at, part);
}
)";

}  // namespace

std::string PartPrelude(Dialect dialect) {
  switch (dialect) {
    case Dialect::kCuda: return absl::StrCat(kGpu, kCudaCopy);
    case Dialect::kHip: return absl::StrCat(kGpu, kHipCopy);
    case Dialect::kHost: return kHost;
  }
  RG_CHECK(false);
}

}  // namespace retrograd
