#include "codegen/preludes/gpu/parts.h"

namespace retrograd {

const char kVectorLoads[] = R"(
// --- memory ---

template <typename T>
RG_INLINE typename rg_compute<T>::type rg_load(T* p, int64_t i) { return rg_widen(p[i]); }
template <typename T, typename V>
RG_INLINE void rg_store(T* p, int64_t i, V v) { p[i] = rg_narrow(v, static_cast<T*>(nullptr)); }

template <int bytes> struct rg_word;
template <> struct rg_word<1> { typedef unsigned char type; };
template <> struct rg_word<2> { typedef unsigned short type; };
template <> struct rg_word<4> { typedef unsigned type; };
template <> struct rg_word<8> { typedef uint2 type; };
template <> struct rg_word<16> { typedef uint4 type; };

template <typename T, int V>
union rg_vector {
  typename rg_word<V * sizeof(T)>::type word;
  T element[V];
  // A word may be of class type.
  __device__ rg_vector() {}
  __device__ rg_vector(const rg_vector& other) : word(other.word) {}
  __device__ rg_vector& operator=(const rg_vector& other) {
    word = other.word;
    return *this;
  }
};

template <typename T, int V>
RG_INLINE typename rg_compute<T>::type rg_lane(const rg_vector<T, V>& pack, int lane) {
  return rg_widen(pack.element[lane]);
}
// Each half of a word is the upper half of its number: no element has to be taken out of its word first.
template <int V>
RG_INLINE float rg_lane(const rg_vector<rg_bf16, V>& pack, int lane) {
  if constexpr (V == 1) {
    return rg_widen(pack.element[lane]);
  } else {
    const unsigned word = reinterpret_cast<const unsigned*>(&pack.word)[lane / 2];
    return rg_from_bits(lane % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
}

// Zero, or what is given, where it is not there. Nothing but the load depends on that: a conversion
// beside it would make a branch, at whose end a thread waits for the load.
template <typename T>
RG_INLINE typename rg_compute<T>::type rg_load_where(bool there, T* p, int64_t i) {
  typedef typename rg_plain<T>::type E;
  rg_vector<E, 1> v;
  v.word = {};
  if (there) v.word = *reinterpret_cast<const typename rg_word<sizeof(E)>::type*>(p + i);
  return rg_lane(v, 0);
}
template <typename T>
RG_INLINE typename rg_compute<T>::type rg_load_where(bool there, T* p, int64_t i,
                                                     typename rg_compute<T>::type otherwise) {
  const typename rg_compute<T>::type v = rg_load_where(there, p, i);
  return there ? v : otherwise;
}

template <int V, typename T>
RG_INLINE void rg_load_vec(T* p, int64_t i, typename rg_compute<T>::type* out) {
  typedef typename rg_plain<T>::type E;
  rg_vector<E, V> v;
  v.word = *reinterpret_cast<const typename rg_word<V * sizeof(E)>::type*>(p + i);
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = rg_lane(v, k);
}

// Lanes that are kept as they lie in memory.
template <typename T, int V>
using rg_pack = rg_vector<T, V>;

template <typename T, int V>
RG_INLINE void rg_load_pack(const T* p, int64_t i, rg_vector<T, V>* out) {
  out->word = *reinterpret_cast<const typename rg_word<V * sizeof(T)>::type*>(p + i);
}

// The same of elements that are not wanted again: they leave the caches before others.
template <int V, typename T>
RG_INLINE void rg_load_vec_once(T* p, int64_t i, typename rg_compute<T>::type* out) {
  typedef typename rg_plain<T>::type E;
  rg_vector<E, V> v;
  v.word = RG_LOAD_ONCE(reinterpret_cast<const typename rg_word<V * sizeof(E)>::type*>(p + i));
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = rg_lane(v, k);
}
template <typename T, int V>
RG_INLINE void rg_load_pack_once(const T* p, int64_t i, rg_vector<T, V>* out) {
  out->word = RG_LOAD_ONCE(reinterpret_cast<const typename rg_word<V * sizeof(T)>::type*>(p + i));
}

template <typename T, int V>
RG_INLINE void rg_clear(rg_vector<T, V>* out) {
  out->word = typename rg_word<V * sizeof(T)>::type();
}

// Words at any address: of the two aligned accesses that hold them. What lies around them in those
// is of the same 16 bytes as one of them, so it can be read.
template <int bytes, int element>
RG_INLINE void rg_load_shifted(const void* p, unsigned* out) {
  constexpr int n = bytes / 4;
  typedef typename rg_word<bytes>::type word;
  const char* const from = static_cast<const char*>(p);
  const int shift = static_cast<int>(reinterpret_cast<size_t>(p) % bytes);
  rg_vector<unsigned, n> low, high;
  low.word = *reinterpret_cast<const word*>(from - shift);
  high.word = *reinterpret_cast<const word*>(from + (bytes - shift) % bytes);
  unsigned w[2 * n];
#pragma unroll
  for (int k = 0; k < n; ++k) w[k] = low.element[k], w[n + k] = high.element[k];
#pragma unroll
  for (int step = n / 2; step > 0; step /= 2) {
    const bool skip = (shift / 4 & step) != 0;
#pragma unroll
    for (int k = 0; k + step < 2 * n; ++k) w[k] = skip ? w[k + step] : w[k];
  }
#pragma unroll
  for (int k = 0; k < n; ++k) {
    out[k] = element >= 4 ? w[k] : rg_shift_words(w[k], w[k + 1], shift % 4 * 8);
  }
}

template <typename T, int V>
RG_INLINE void rg_load_pack_shifted(const T* p, int64_t i, rg_vector<T, V>* out) {
  rg_load_shifted<V * sizeof(T), sizeof(T)>(p + i, reinterpret_cast<unsigned*>(&out->word));
}

template <int V, typename T>
RG_INLINE void rg_load_vec_shifted(T* p, int64_t i, typename rg_compute<T>::type* out) {
  rg_vector<typename rg_plain<T>::type, V> v;
  rg_load_pack_shifted(p, i, &v);
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = rg_lane(v, k);
}

template <int V, typename T>
RG_INLINE void rg_copy_ahead(T* to, int64_t at, const T* from, int64_t i) {
  rg_copy_bytes<V * static_cast<int>(sizeof(T))>(to + at, from + i);
}
template <int V, typename T>
RG_INLINE void rg_copy_part_ahead(T* to, int64_t at, const T* from, int64_t i) {
  rg_copy_bytes_of_line<V * static_cast<int>(sizeof(T))>(to + at, from + i);
}

// From here on the compiler does not know what the pack holds: it widens its lanes again where they are
// used again, and does not keep them all in registers meanwhile.
RG_INLINE void rg_hide(unsigned char&) {}
RG_INLINE void rg_hide(unsigned short&) {}
RG_INLINE void rg_hide(uint2& words) { rg_hide(words.x), rg_hide(words.y); }
RG_INLINE void rg_hide(uint4& words) {
  rg_hide(words.x), rg_hide(words.y), rg_hide(words.z), rg_hide(words.w);
}
template <typename T, int V, int N>
RG_INLINE void rg_forget(rg_vector<T, V> (&packs)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) rg_hide(packs[n].word);
}
)";

}  // namespace retrograd
