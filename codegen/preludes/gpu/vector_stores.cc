#include "codegen/preludes/gpu/parts.h"

namespace retrograd {

const char kVectorStores[] = R"(
template <typename T, int V>
RG_INLINE void rg_narrow_all(const typename rg_compute<T>::type* in, rg_vector<T, V>* out) {
#pragma unroll
  for (int k = 0; k < V; ++k) out->element[k] = rg_narrow(in[k], static_cast<T*>(nullptr));
}
template <typename T, int V>
RG_INLINE void rg_narrow_pairs(const float* in, rg_vector<T, V>* out) {
  unsigned* const words = reinterpret_cast<unsigned*>(&out->word);
#pragma unroll
  for (int k = 0; k < V / 2; ++k) {
    words[k] = rg_narrow_two(in[2 * k], in[2 * k + 1], static_cast<T*>(nullptr));
  }
  if (V % 2 != 0) out->element[V - 1] = rg_narrow(in[V - 1], static_cast<T*>(nullptr));
}
template <typename T, int V>
RG_INLINE void rg_narrow_bytes(const float* in, rg_vector<T, V>* out) {
  unsigned short* const pairs = reinterpret_cast<unsigned short*>(&out->word);
#pragma unroll
  for (int k = 0; k < V / 2; ++k) {
    pairs[k] = static_cast<unsigned short>(
        rg_narrow_two(in[2 * k], in[2 * k + 1], static_cast<T*>(nullptr)));
  }
  if (V % 2 != 0) out->element[V - 1] = rg_narrow(in[V - 1], static_cast<T*>(nullptr));
}
template <int V>
RG_INLINE void rg_narrow_all(const float* in, rg_vector<rg_f8e4m3, V>* out) { rg_narrow_bytes(in, out); }
template <int V>
RG_INLINE void rg_narrow_all(const float* in, rg_vector<rg_f8e5m2, V>* out) { rg_narrow_bytes(in, out); }
template <int V>
RG_INLINE void rg_narrow_all(const float* in, rg_vector<rg_f8e4m3fnuz, V>* out) { rg_narrow_bytes(in, out); }
template <int V>
RG_INLINE void rg_narrow_all(const float* in, rg_vector<rg_f8e5m2fnuz, V>* out) { rg_narrow_bytes(in, out); }
template <int V>
RG_INLINE void rg_narrow_all(const float* in, rg_vector<rg_bf16, V>* out) { rg_narrow_pairs(in, out); }
template <int V>
RG_INLINE void rg_narrow_all(const float* in, rg_vector<rg_fp16, V>* out) { rg_narrow_pairs(in, out); }

template <int V, typename T>
RG_INLINE void rg_store_vec(T* p, int64_t i, const typename rg_compute<T>::type* in) {
  rg_vector<T, V> v;
  rg_narrow_all(in, &v);
  *reinterpret_cast<typename rg_word<V * sizeof(T)>::type*>(p + i) = v.word;
}

template <int V, typename T>
RG_INLINE void rg_store_vec_once(T* p, int64_t i, const typename rg_compute<T>::type* in) {
  rg_vector<T, V> v;
  rg_narrow_all(in, &v);
  RG_STORE_ONCE(reinterpret_cast<typename rg_word<V * sizeof(T)>::type*>(p + i), v.word);
}

// The same of values that are NaN or lie within the type's numbers: none has to be looked at again.
template <typename T, int V>
RG_INLINE void rg_narrow_all_within(const typename rg_compute<T>::type* in, rg_vector<T, V>* out) {
  rg_narrow_all(in, out);
}
#ifdef RG_FP8_CONVERSIONS
template <typename T, int V>
RG_INLINE void rg_narrow_bytes_within(const float* in, rg_vector<T, V>* out) {
  unsigned short* const pairs = reinterpret_cast<unsigned short*>(&out->word);
#pragma unroll
  for (int k = 0; k < V / 2; ++k) {
    pairs[k] = static_cast<unsigned short>(
        rg_narrow_two_within(in[2 * k], in[2 * k + 1], static_cast<T*>(nullptr)));
  }
  if (V % 2 != 0) out->element[V - 1] = rg_narrow(in[V - 1], static_cast<T*>(nullptr));
}
template <int V>
RG_INLINE void rg_narrow_all_within(const float* in, rg_vector<rg_f8e4m3, V>* out) {
  rg_narrow_bytes_within(in, out);
}
template <int V>
RG_INLINE void rg_narrow_all_within(const float* in, rg_vector<rg_f8e5m2, V>* out) {
  rg_narrow_bytes_within(in, out);
}
#endif
template <int V, typename T>
RG_INLINE void rg_store_vec_within(T* p, int64_t i, const typename rg_compute<T>::type* in) {
  rg_vector<T, V> v;
  rg_narrow_all_within(in, &v);
  *reinterpret_cast<typename rg_word<V * sizeof(T)>::type*>(p + i) = v.word;
}

// Elements that lie in shared memory, in pieces of P at multiples of their size, by one access.
template <int V, int P, typename T>
RG_INLINE void rg_store_from(T* to, int64_t i, const T* from, int at) {
  constexpr int words = P * static_cast<int>(sizeof(T)) / 4, pieces = V / P;
  rg_vector<unsigned, words * pieces> whole;
#pragma unroll
  for (int k = 0; k < pieces; ++k) {
    rg_vector<unsigned, words> piece;
    piece.word = *reinterpret_cast<const typename rg_word<words * 4>::type*>(from + at + k * P);
#pragma unroll
    for (int w = 0; w < words; ++w) whole.element[k * words + w] = piece.element[w];
  }
  *reinterpret_cast<typename rg_word<words * pieces * 4>::type*>(to + i) = whole.word;
}
)";

}  // namespace retrograd
