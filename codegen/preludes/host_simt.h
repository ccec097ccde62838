// The host dialect: the vocabulary of generated kernels, spelled for a CPU. This text starts every
// generated host translation unit. Threads of a block run one after the other, as fibers between
// barriers and shuffles where a kernel has such.
//   RG_WARP        threads of a warp, 32 unless defined
//   RG_CHECK_MODE  if defined, every access to arguments and shared memory is checked
#ifndef RETROGRAD_CODEGEN_PRELUDES_HOST_SIMT_H_
#define RETROGRAD_CODEGEN_PRELUDES_HOST_SIMT_H_

#include "codegen/preludes/host_abi.h"

#ifndef RG_WARP
#define RG_WARP 32
#endif
#define RG_INLINE inline

// --- storage types ------------------------------------------------------------------------------

struct rg_bf16 {
  uint16_t bits;
};
struct rg_fp16 {
  uint16_t bits;
};
struct rg_f8e4m3 {
  uint8_t bits;
};
struct rg_f8e5m2 {
  uint8_t bits;
};
struct rg_f8e4m3fnuz {
  uint8_t bits;
};
struct rg_f8e5m2fnuz {
  uint8_t bits;
};

inline uint32_t rg_bits_of(float v) {
  uint32_t bits;
  __builtin_memcpy(&bits, &v, sizeof bits);
  return bits;
}
inline float rg_float_of(uint32_t bits) {
  float v;
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
}

inline float rg_widen(rg_bf16 v) { return rg_float_of(static_cast<uint32_t>(v.bits) << 16); }

inline rg_bf16 rg_narrow_bf16(float v) {
  const uint32_t bits = rg_bits_of(v);
  if (v != v) return {static_cast<uint16_t>((bits >> 16) | 0x40)};  // stays a NaN
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

inline float rg_widen(rg_fp16 v) {
  const uint32_t sign = static_cast<uint32_t>(v.bits & 0x8000) << 16;
  const uint32_t exponent = (v.bits >> 10) & 31, mantissa = v.bits & 0x3ff;
  if (exponent == 31) return rg_float_of(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {
    const float subnormal = static_cast<float>(mantissa) * 0x1p-24f;
    return rg_float_of(sign | rg_bits_of(subnormal));
  }
  return rg_float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

inline rg_fp16 rg_narrow_fp16(float v) {
  const uint32_t bits = rg_bits_of(v);
  const uint32_t sign = (bits >> 16) & 0x8000;
  uint32_t x = bits & 0x7fffffff;
  if (x > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00)};   // NaN
  if (x >= 0x47800000) return {static_cast<uint16_t>(sign | 0x7c00)};  // 65536 and more
  if (x < 0x38800000) {
    // Subnormal: one unit of 0.5f's last place is the smallest fp16, so the addition rounds.
    const float shifted = rg_float_of(x) + 0.5f;
    return {static_cast<uint16_t>(sign | (rg_bits_of(shifted) - 0x3f000000))};
  }
  x += 0xc8000fff + ((x >> 13) & 1);  // exponent bias 127 to 15, and half a unit, ties to even
  return {static_cast<uint16_t>(sign | (x >> 13))};
}

// An fp16 of the same fields is 2^-8 times the number.
inline float rg_widen(rg_f8e4m3 v) {
  if ((v.bits & 0x7f) == 0x7f) return rg_float_of(0x7fc00000);
  return 256.0f *
         rg_widen(rg_fp16{static_cast<uint16_t>((v.bits & 0x80) << 8 | (v.bits & 0x7f) << 7)});
}
inline float rg_widen(rg_f8e5m2 v) { return rg_widen(rg_fp16{static_cast<uint16_t>(v.bits << 8)}); }
// The fields as those of an fp32 are the number but for the exponent's bias.
template <int fraction, int bias>
inline float rg_widen_fnuz(uint32_t code) {
  if (code == 0x80) return rg_float_of(0x7fc00000);
  const float size =
      rg_float_of((code & 0x7f) << (23 - fraction)) * rg_float_of((254u - bias) << 23);
  return rg_float_of((code & 0x80) << 24 | rg_bits_of(size));
}
inline float rg_widen(rg_f8e4m3fnuz v) { return rg_widen_fnuz<3, 8>(v.bits); }
inline float rg_widen(rg_f8e5m2fnuz v) { return rg_widen_fnuz<2, 16>(v.bits); }

// The code of the nearest number, ties to even, or `beyond` past the one of code `largest`.
template <int fraction, int bias>
inline uint8_t rg_narrow_fp8(float v, uint32_t largest, uint32_t beyond) {
  const uint32_t bits = rg_bits_of(v), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return static_cast<uint8_t>(sign | 0x7f);  // NaN
  // Adding a number whose last place is the smallest fp8 number rounds what is subnormal.
  constexpr uint32_t unit = (127u - bias + 1 - fraction + 23) << 23, normal = (128u - bias) << 23;
  constexpr uint32_t shift = 23 - fraction, half = (1u << (shift - 1)) - 1;
  const uint32_t code = size < normal
                            ? rg_bits_of(rg_float_of(size) + rg_float_of(unit)) - unit
                            : (size - ((127u - bias) << 23) + half + (size >> shift & 1)) >> shift;
  return static_cast<uint8_t>(sign | (code > largest ? beyond : code));
}
inline rg_f8e4m3 rg_narrow_f8e4m3(float v) { return {rg_narrow_fp8<3, 7>(v, 0x7e, 0x7f)}; }
inline rg_f8e5m2 rg_narrow_f8e5m2(float v) { return {rg_narrow_fp8<2, 15>(v, 0x7b, 0x7c)}; }
// Of |v|; 0 has no sign, and code 0x80 is NaN.
template <int fraction, int bias>
inline uint8_t rg_narrow_fnuz(float v) {
  if (v != v) return 0x80;
  const uint32_t bits = rg_bits_of(v);
  const uint8_t code = rg_narrow_fp8<fraction, bias>(rg_float_of(bits & 0x7fffffff), 0x7f, 0x80);
  return code == 0 || code == 0x80 ? code : static_cast<uint8_t>(bits >> 24 & 0x80) | code;
}
inline rg_f8e4m3fnuz rg_narrow_f8e4m3fnuz(float v) { return {rg_narrow_fnuz<3, 8>(v)}; }
inline rg_f8e5m2fnuz rg_narrow_f8e5m2fnuz(float v) { return {rg_narrow_fnuz<2, 16>(v)}; }

// rg_storage<T>: the type that T is computed in, and the way there and back.
template <typename T>
struct rg_storage {
  typedef T compute;
  static T widen(T v) { return v; }
  template <typename V>
  static T narrow(V v) {
    return static_cast<T>(v);
  }
};
template <typename T>
struct rg_storage<const T> : rg_storage<T> {};
template <>
struct rg_storage<rg_bf16> {
  typedef float compute;
  static float widen(rg_bf16 v) { return rg_widen(v); }
  static rg_bf16 narrow(float v) { return rg_narrow_bf16(v); }
};
template <>
struct rg_storage<rg_fp16> {
  typedef float compute;
  static float widen(rg_fp16 v) { return rg_widen(v); }
  static rg_fp16 narrow(float v) { return rg_narrow_fp16(v); }
};
template <>
struct rg_storage<rg_f8e4m3> {
  typedef float compute;
  static float widen(rg_f8e4m3 v) { return rg_widen(v); }
  static rg_f8e4m3 narrow(float v) { return rg_narrow_f8e4m3(v); }
};
template <>
struct rg_storage<rg_f8e5m2> {
  typedef float compute;
  static float widen(rg_f8e5m2 v) { return rg_widen(v); }
  static rg_f8e5m2 narrow(float v) { return rg_narrow_f8e5m2(v); }
};
template <>
struct rg_storage<rg_f8e4m3fnuz> {
  typedef float compute;
  static float widen(rg_f8e4m3fnuz v) { return rg_widen(v); }
  static rg_f8e4m3fnuz narrow(float v) { return rg_narrow_f8e4m3fnuz(v); }
};
template <>
struct rg_storage<rg_f8e5m2fnuz> {
  typedef float compute;
  static float widen(rg_f8e5m2fnuz v) { return rg_widen(v); }
  static rg_f8e5m2fnuz narrow(float v) { return rg_narrow_f8e5m2fnuz(v); }
};
template <>
struct rg_storage<bool> {
  typedef bool compute;
  static bool widen(bool v) { return v; }
  template <typename V>
  static bool narrow(V v) {
    return v != 0;
  }
};

template <typename T, typename V>
inline typename rg_storage<T>::compute rg_round(V v) {
  return rg_storage<T>::widen(rg_storage<T>::narrow(v));
}

// --- memory: raw pointers -----------------------------------------------------------------------

template <typename T>
inline typename rg_storage<T>::compute rg_load(T* p, int64_t i) {
  return rg_storage<T>::widen(p[i]);
}

// Zero, or what is given, where it is not there.
template <typename T>
inline typename rg_storage<T>::compute rg_load_where(
    bool there, T* p, int64_t i, typename rg_storage<T>::compute otherwise = 0) {
  return there ? rg_load(p, i) : otherwise;
}

template <typename T, typename V>
inline void rg_store(T* p, int64_t i, V v) {
  p[i] = rg_storage<T>::narrow(v);
}

// V elements in one access: the address is a multiple of the whole size.
template <int V, typename T>
inline void rg_load_vec(T* p, int64_t i, typename rg_storage<T>::compute* out) {
  const T* from = static_cast<const T*>(__builtin_assume_aligned(p + i, V * sizeof(T)));
  for (int k = 0; k < V; ++k) out[k] = rg_storage<T>::widen(from[k]);
}

// Lanes that are kept as they lie in memory.
template <typename T, int V>
struct rg_pack {
  T at[V];
};

template <typename T, int V>
inline void rg_load_pack(const T* p, int64_t i, rg_pack<T, V>* out) {
  const T* from = static_cast<const T*>(__builtin_assume_aligned(p + i, V * sizeof(T)));
  for (int k = 0; k < V; ++k) out->at[k] = from[k];
}

template <typename T, int V>
inline void rg_clear(rg_pack<T, V>* out) {
  *out = rg_pack<T, V>();
}

// The same at any address: no more than the elements is read.
template <int V, typename T>
inline void rg_load_vec_shifted(T* p, int64_t i, typename rg_storage<T>::compute* out) {
  for (int k = 0; k < V; ++k) out[k] = rg_storage<T>::widen(p[i + k]);
}

template <typename T, int V>
inline void rg_load_pack_shifted(const T* p, int64_t i, rg_pack<T, V>* out) {
  for (int k = 0; k < V; ++k) out->at[k] = p[i + k];
}

template <typename T, int V>
inline typename rg_storage<T>::compute rg_lane(const rg_pack<T, V>& pack, int lane) {
  return rg_storage<T>::widen(pack.at[lane]);
}

template <typename T, int V, int N>
inline void rg_forget(rg_pack<T, V> (&)[N]) {}

template <int V, typename T>
inline void rg_store_vec(T* p, int64_t i, const typename rg_storage<T>::compute* in) {
  T* to = static_cast<T*>(__builtin_assume_aligned(p + i, V * sizeof(T)));
  for (int k = 0; k < V; ++k) to[k] = rg_storage<T>::narrow(in[k]);
}

// Elements that lie in shared memory, in pieces of P at multiples of their size, by one access.
template <int V, int P, typename T>
inline void rg_store_from(T* p, int64_t i, const T* from, int64_t at) {
  T* to = static_cast<T*>(__builtin_assume_aligned(p + i, V * sizeof(T)));
  for (int k = 0; k < V; ++k) to[k] = from[at + k];
}

// --- memory: checked pointers -------------------------------------------------------------------

// An argument that asks before each access. A refused load gives zero, a refused store does
// nothing.
template <typename T>
struct rg_checked {
  T* data;  // of the argument's first element
  int64_t first;
  rg_host_thread* self;
  int argument;

  bool allowed(int64_t i, int count, bool write, int line) const {
    return self->block->calls->global_access(
        self, argument, (first + i) * static_cast<int64_t>(sizeof(T)),
        count * static_cast<int64_t>(sizeof(T)), sizeof(T), write, line);
  }
  rg_checked operator+(int64_t n) const { return {data, first + n, self, argument}; }
  rg_checked operator-(int64_t n) const { return {data, first - n, self, argument}; }
};

template <typename T>
inline typename rg_storage<T>::compute rg_load(rg_checked<T> p, int64_t i,
                                               int line = __builtin_LINE()) {
  if (!p.allowed(i, 1, false, line)) return 0;
  return rg_storage<T>::widen(p.data[p.first + i]);
}

template <typename T>
inline typename rg_storage<T>::compute rg_load_where(bool there, rg_checked<T> p, int64_t i,
                                                     typename rg_storage<T>::compute otherwise = 0,
                                                     int line = __builtin_LINE()) {
  return there ? rg_load(p, i, line) : otherwise;
}

template <typename T, typename V>
inline void rg_store(rg_checked<T> p, int64_t i, V v, int line = __builtin_LINE()) {
  if (p.allowed(i, 1, true, line)) p.data[p.first + i] = rg_storage<T>::narrow(v);
}

template <int V, typename T>
inline void rg_load_vec(rg_checked<T> p, int64_t i, typename rg_storage<T>::compute* out,
                        int line = __builtin_LINE()) {
  const bool allowed = p.allowed(i, V, false, line);
  for (int k = 0; k < V; ++k) out[k] = allowed ? rg_load(p.data, p.first + i + k) : 0;
}

template <typename C, typename T, int V>
inline void rg_load_pack(rg_checked<C> p, int64_t i, rg_pack<T, V>* out,
                         int line = __builtin_LINE()) {
  const bool allowed = p.allowed(i, V, false, line);
  for (int k = 0; k < V; ++k) out->at[k] = allowed ? p.data[p.first + i + k] : T();
}

template <int V, typename T>
inline void rg_load_vec_shifted(rg_checked<T> p, int64_t i, typename rg_storage<T>::compute* out,
                                int line = __builtin_LINE()) {
  for (int k = 0; k < V; ++k) out[k] = rg_load(p, i + k, line);
}

template <typename C, typename T, int V>
inline void rg_load_pack_shifted(rg_checked<C> p, int64_t i, rg_pack<T, V>* out,
                                 int line = __builtin_LINE()) {
  for (int k = 0; k < V; ++k) {
    out->at[k] = p.allowed(i + k, 1, false, line) ? p.data[p.first + i + k] : T();
  }
}

template <int V, typename T>
inline void rg_store_vec(rg_checked<T> p, int64_t i, const typename rg_storage<T>::compute* in,
                         int line = __builtin_LINE()) {
  if (!p.allowed(i, V, true, line)) return;
  for (int k = 0; k < V; ++k) rg_store(p.data, p.first + i + k, in[k]);
}

// Of values that are NaN or lie within the type's numbers: a GPU rounds them with fewer
// instructions.
#define rg_store_vec_within rg_store_vec

// Of elements that are not wanted again: a GPU keeps others in its caches.
#define rg_load_vec_once rg_load_vec
#define rg_load_pack_once rg_load_pack
#define rg_store_vec_once rg_store_vec

// An element of a checked shared array: reads and writes like a T.
template <typename T>
struct rg_checked_element {
  T* data;  // of the array
  int64_t index;
  rg_host_thread* self;

  bool allowed(bool write) const {
    return self->block->calls->shared_access(self, data, index * static_cast<int64_t>(sizeof(T)),
                                             sizeof(T), write);
  }
  operator T() const { return allowed(false) ? data[index] : T(); }
  const rg_checked_element& operator=(T v) const {
    if (allowed(true)) data[index] = v;
    return *this;
  }
  const rg_checked_element& operator=(const rg_checked_element& other) const {
    return *this = static_cast<T>(other);
  }
  const rg_checked_element& operator+=(T v) const { return *this = static_cast<T>(*this) + v; }
  const rg_checked_element& operator-=(T v) const { return *this = static_cast<T>(*this) - v; }
  const rg_checked_element& operator*=(T v) const { return *this = static_cast<T>(*this) * v; }
};

template <typename T>
struct rg_checked_shared {
  T* data;
  rg_host_thread* self;
  rg_checked_element<T> operator[](int64_t i) const { return {data, i, self}; }
};

template <typename T>
inline typename rg_storage<T>::compute rg_load(rg_checked_shared<T> p, int64_t i) {
  return rg_storage<T>::widen(p[i]);
}
template <typename T>
inline typename rg_storage<T>::compute rg_load_where(
    bool there, rg_checked_shared<T> p, int64_t i, typename rg_storage<T>::compute otherwise = 0) {
  return there ? rg_load(p, i) : otherwise;
}
template <typename T, int V>
inline void rg_load_pack(rg_checked_shared<T> p, int64_t i, rg_pack<T, V>* out) {
  for (int k = 0; k < V; ++k) out->at[k] = p[i + k];
}
template <typename T, typename V>
inline void rg_store(rg_checked_shared<T> p, int64_t i, V v) {
  p[i] = rg_storage<T>::narrow(v);
}

template <int V, typename T>
inline void rg_store_vec(rg_checked_shared<T> p, int64_t i,
                         const typename rg_storage<T>::compute* in) {
  for (int k = 0; k < V; ++k) rg_store(p, i + k, in[k]);
}
template <int V, int P, typename T>
inline void rg_store_from(rg_checked<T> p, int64_t i, rg_checked_shared<T> from, int64_t at,
                          int line = __builtin_LINE()) {
  if (!p.allowed(i, V, true, line)) return;
  for (int k = 0; k < V; ++k) p.data[p.first + i + k] = from[at + k];
}

// --- threads ------------------------------------------------------------------------------------

template <typename T>
inline T rg_shuffle(rg_host_thread& self, rg_host_shuffle_mode mode, T v, int distance, int line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move float, double, int, long long");
  self.block->calls->shuffle(&self, line, mode, distance, &v, sizeof v);
  return v;
}

// Copies into shared memory that come as late as RG_COPIES_WAIT lets them.
struct rg_copier {
  rg_host_thread& self;

  template <int V, typename T>
  void ahead(T* to, int64_t at, const T* from, int64_t i) const {
    self.block->calls->copy(&self, to + at, from + i, V * static_cast<int>(sizeof(T)));
  }
  template <int V, typename T, typename C>
  void ahead(rg_checked_shared<T> to, int64_t at, rg_checked<C> from, int64_t i,
             int line = __builtin_LINE()) const {
    constexpr int size = static_cast<int>(sizeof(T)), bytes = V * size;
    bool allowed = from.allowed(i, V, false, line);
    for (int k = 0; k < V; ++k) {
      allowed &= self.block->calls->shared_access(&self, to.data, (at + k) * size, size, true);
    }
    if (!allowed) return;
    self.block->calls->copy(&self, to.data + at, from.data + from.first + i, bytes);
  }
};
#define rg_copy_ahead rg_copier{rg_self}.ahead
#define rg_copy_part_ahead rg_copier{rg_self}.ahead
#define RG_COPIES_SENT() rg_self.block->calls->copies_sent(&rg_self)
#define RG_COPIES_WAIT(n) rg_self.block->calls->copies_wait(&rg_self, n)

// Shared memory lies in the launcher's block, not in the module, so that launches do not meet.
template <typename T>
inline T* rg_shared(rg_host_thread& self, const void* key, const char* name, int64_t count) {
  return static_cast<T*>(self.block->calls->shared(
      &self, key, name, count * static_cast<int64_t>(sizeof(T)), sizeof(T)));
}

// An element of a shared array of another block of the cluster.
template <typename T>
inline T rg_peer(rg_host_thread& self, const T* own, int rank, int64_t i) {
  const int64_t size = sizeof(T);
  const void* there = self.block->calls->peer(&self, own, rank, i * size, size);
  return there == nullptr ? T() : *static_cast<const T*>(there);
}
template <typename T>
inline T rg_peer(rg_host_thread& self, rg_checked_shared<T> own, int rank, int64_t i) {
  return rg_peer<T>(self, own.data, rank, i);
}

// Where the arguments of a kernel begin. A kernel that shares its launch is a function, with its
// own number in place of this one.
constexpr int rg_first_argument = 0;

#ifdef RG_CHECK_MODE
#define RG_HOST_CHECKED true
#define RG_ARG(type, name, index)                                                      \
  [[maybe_unused]] const rg_checked<type> name = {                                     \
      static_cast<type*>(rg_self.block->data[rg_first_argument + index]), 0, &rg_self, \
      rg_first_argument + index}
#define RG_SHARED(type, name, count)                                                            \
  static const char rg_key_##name = 0;                                                          \
  const rg_checked_shared<type> name = {rg_shared<type>(rg_self, &rg_key_##name, #name, count), \
                                        &rg_self}
#else
#define RG_HOST_CHECKED false
#define RG_ARG(type, name, index)     \
  [[maybe_unused]] type* const name = \
      static_cast<type*>(rg_self.block->data[rg_first_argument + index])
#define RG_SHARED(type, name, count)   \
  static const char rg_key_##name = 0; \
  type* const name = rg_shared<type>(rg_self, &rg_key_##name, #name, count)
#endif

// Numbers that are arguments: the lower 32 bits of what would be a pointer.
inline uint32_t rg_word(const rg_host_thread& self, int index) {
  return static_cast<uint32_t>(reinterpret_cast<uint64_t>(self.block->data[index]));
}
template <typename T>
inline T rg_number(uint64_t bits) {
  T out;
  __builtin_memcpy(&out, &bits, sizeof out);
  return out;
}
#define RG_NUMBER(type, name, index) const type name = rg_number<type>(rg_word(rg_self, index))
#define RG_WIDE_NUMBER(type, name, index) \
  const type name =                       \
      rg_number<type>(uint64_t{rg_word(rg_self, index + 1)} << 32 | rg_word(rg_self, index))

#define RG_STAGED(type, name, first_byte, count) RG_SHARED(type, name, count)
#define RG_THREAD rg_thread
#define RG_BLOCK rg_block
#define RG_BARRIER() rg_self.block->calls->barrier(&rg_self, __LINE__)
// Who has arrived goes on, and nobody can tell: the barrier is where threads wait.
#define RG_CLUSTER_ARRIVE()
#define RG_CLUSTER_DONE()
#define RG_CLUSTER_WAIT() rg_self.block->calls->cluster_barrier(&rg_self, __LINE__)
#define RG_PEER(array, rank, i) rg_peer(rg_self, array, rank, i)
// What a block sends lies in its own memory, and the others come for it: they meet in both cases.
#define RG_BEGIN_MEETINGS(meetings, count)
#define RG_MEETINGS_BEGUN()
#define RG_EXPECT(meetings, m, bytes)
#define RG_PUSH(array, first, own, rank, value, meetings, m) \
  if ((rank) == (own)) array[(first) + (own)] = value
#define RG_MEET(meetings, m, parity) RG_CLUSTER_WAIT()
#define RG_PUSHED(array, first, from) rg_peer(rg_self, array, from, (first) + (from))
#define RG_END_MEETINGS() RG_CLUSTER_WAIT()
#define RG_SHUFFLE_XOR(v, n) rg_shuffle(rg_self, rg_host_shuffle_xor, v, n, __LINE__)
#define RG_SHUFFLE_DOWN(v, n) rg_shuffle(rg_self, rg_host_shuffle_down, v, n, __LINE__)
#define RG_BALLOT(p)     \
  static_cast<unsigned>( \
      rg_shuffle(rg_self, rg_host_ballot, static_cast<int>((p) ? 1 : 0), 0, __LINE__))
#define RG_POPCOUNT(bits) __builtin_popcount(bits)
// The 32 threads that vote together meet: each sees what the others have stored before.
#define RG_WARP_BARRIER() static_cast<void>(rg_shuffle(rg_self, rg_host_meeting, 0, 0, __LINE__))
// The 32 threads that vote together store where `there`; of several at one element any one's value
// stands, for all to see. Checked, they store one after the other: in blocks of even numbers the
// last one's value stands, in others the first one's.
#ifdef RG_CHECK_MODE
#define RG_STORE_ANY(there, element, value)                             \
  do {                                                                  \
    for (int rg_turn = 0; rg_turn < 32; ++rg_turn) {                    \
      const int rg_next = (rg_block & 1) != 0 ? 31 - rg_turn : rg_turn; \
      if ((there) && rg_thread % 32 == rg_next) element = value;        \
      RG_WARP_BARRIER();                                                \
    }                                                                   \
  } while (false)
#else
#define RG_STORE_ANY(there, element, value) \
  do {                                      \
    if (there) element = value;             \
    RG_WARP_BARRIER();                      \
  } while (false)
#endif

// A kernel that shares its launch. Its shared arrays need no pool: a block has those that it uses.
#define RG_POOL(bytes)
#define RG_POOLED(type, name, count) RG_SHARED(type, name, count)
#define RG_MEMBER(name)                                                               \
  static inline void name(                                                            \
      [[maybe_unused]] rg_host_thread& rg_self, [[maybe_unused]] const int rg_thread, \
      [[maybe_unused]] const int rg_block, [[maybe_unused]] const int rg_first_argument)
#define RG_RUN(name, first_block, first_argument) \
  name(rg_self, rg_thread, rg_block - (first_block), first_argument)

#define RG_HOST_EXPORT(name, threads, arguments, cluster, cooperative, run_thread, run_block) \
  extern "C" {                                                                                \
  __attribute__((visibility("default"))) extern const rg_host_kernel name;                    \
  const rg_host_kernel name = {RG_HOST_ABI,     threads,     arguments,  RG_WARP,  cluster,   \
                               RG_HOST_CHECKED, cooperative, run_thread, run_block};          \
  }

// Kernels run one after the other here.
#define RG_EARLY_WAIT()
#define RG_EARLY_START()

// A kernel whose threads never wait for each other: a plain loop over them.
#define RG_KERNEL(name, threads, arguments)                                    \
  static inline void name##_body(rg_host_thread& rg_self, const int rg_thread, \
                                 const int rg_block);                          \
  static void name##_block(rg_host_block* block) {                             \
    rg_host_thread self = {block, block->first_thread};                        \
    for (int k = 0; k < threads; ++k) {                                        \
      name##_body(self, self.thread, block->block);                            \
      self.thread += block->thread_stride;                                     \
      if (self.thread >= threads) self.thread -= threads;                      \
    }                                                                          \
  }                                                                            \
  RG_HOST_EXPORT(name, threads, arguments, 1, false, nullptr, &name##_block)   \
  static inline void name##_body([[maybe_unused]] rg_host_thread& rg_self,     \
                                 [[maybe_unused]] const int rg_thread,         \
                                 [[maybe_unused]] const int rg_block)

// What a GPU's kernels take differs (gpu_prelude.cc).
#define RG_KERNEL_DIRECT(name, threads, arguments) RG_KERNEL(name, threads, arguments)

// A kernel with barriers, shuffles or shared memory. Emitters print RG_KERNEL for all; whoever
// compiles the text picks this one by what the body uses.
#define RG_KERNEL_COOPERATIVE(name, threads, arguments) \
  RG_KERNEL_CLUSTER(name, threads, arguments, 1)

// The same in clusters of so many blocks.
#define RG_KERNEL_CLUSTER(name, threads, arguments, blocks)                       \
  static inline void name##_body(rg_host_thread& rg_self, const int rg_thread,    \
                                 const int rg_block);                             \
  static void name##_thread(rg_host_thread* self) {                               \
    name##_body(*self, self->thread, self->block->block);                         \
  }                                                                               \
  RG_HOST_EXPORT(name, threads, arguments, blocks, true, &name##_thread, nullptr) \
  static inline void name##_body([[maybe_unused]] rg_host_thread& rg_self,        \
                                 [[maybe_unused]] const int rg_thread,            \
                                 [[maybe_unused]] const int rg_block)

// --- arithmetic ---------------------------------------------------------------------------------
// float and double by the C library (under 1 unit in the last place, rarely 2); integers exact.

inline float rg_abs(float v) { return __builtin_fabsf(v); }
inline double rg_abs(double v) { return __builtin_fabs(v); }
inline int rg_abs(int v) { return v < 0 ? -v : v; }
inline int64_t rg_abs(int64_t v) { return v < 0 ? -v : v; }

inline float rg_sign(float v) { return static_cast<float>((v > 0) - (v < 0)); }
inline double rg_sign(double v) { return (v > 0) - (v < 0); }
inline int rg_sign(int v) { return (v > 0) - (v < 0); }
inline int64_t rg_sign(int64_t v) { return (v > 0) - (v < 0); }

// The larger or smaller one; a NaN wins.
inline float rg_max(float a, float b) { return a > b || a != a ? a : b; }
inline double rg_max(double a, double b) { return a > b || a != a ? a : b; }
inline int rg_max(int a, int b) { return a > b ? a : b; }
inline int64_t rg_max(int64_t a, int64_t b) { return a > b ? a : b; }
inline float rg_min(float a, float b) { return a < b || a != a ? a : b; }
inline double rg_min(double a, double b) { return a < b || a != a ? a : b; }
inline int rg_min(int a, int b) { return a < b ? a : b; }
inline int64_t rg_min(int64_t a, int64_t b) { return a < b ? a : b; }

inline float rg_relu(float v) { return v < 0 ? 0 : v; }
inline double rg_relu(double v) { return v < 0 ? 0 : v; }
inline int rg_relu(int v) { return v < 0 ? 0 : v; }
inline int64_t rg_relu(int64_t v) { return v < 0 ? 0 : v; }

#define RG_HOST_MATH(name, builtin)                                     \
  inline float rg_##name(float v) { return __builtin_##builtin##f(v); } \
  inline double rg_##name(double v) { return __builtin_##builtin(v); }
RG_HOST_MATH(floor, floor)
RG_HOST_MATH(sqrt, sqrt)
RG_HOST_MATH(exp, exp)
inline float rg_exp_or_zero(float v) { return rg_exp(v); }
RG_HOST_MATH(log, log)
RG_HOST_MATH(exp2, exp2)
RG_HOST_MATH(log2, log2)
RG_HOST_MATH(log1p, log1p)
RG_HOST_MATH(tanh, tanh)
RG_HOST_MATH(sin, sin)
RG_HOST_MATH(cos, cos)
RG_HOST_MATH(erf, erf)
#undef RG_HOST_MATH

// The exponent alone; of a subnormal number, that of 2^24 times as much.
inline float rg_floor_pow2(float v) {
  const uint32_t size = rg_bits_of(v) & 0x7fffffff;
  if (size >= 0x7f800000) return v;
  const bool small = size < 0x00800000;
  const float power = rg_float_of(rg_bits_of(small ? v * 0x1p24f : v) & 0xff800000);
  return small ? power * 0x1p-24f : power;
}
inline double rg_floor_pow2(double v) {
  if (v == 0 || v - v != 0) return v;
  int exponent;
  (void)__builtin_frexp(v, &exponent);
  return __builtin_copysign(__builtin_ldexp(0.5, exponent), v);
}

inline float rg_rsqrt(float v) { return static_cast<float>(1 / __builtin_sqrt(v)); }
inline double rg_rsqrt(double v) { return 1 / __builtin_sqrt(v); }
inline float rg_pow(float a, float b) { return __builtin_powf(a, b); }
inline double rg_pow(double a, double b) { return __builtin_pow(a, b); }
inline float rg_fmod(float a, float b) { return __builtin_fmodf(a, b); }
inline double rg_fmod(double a, double b) { return __builtin_fmod(a, b); }

#endif  // RETROGRAD_CODEGEN_PRELUDES_HOST_SIMT_H_
