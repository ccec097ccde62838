#include "codegen/preludes/gpu/parts.h"

namespace retrograd {

const char kNumberTypes[] = R"(RG_INLINE bool rg_widen(bool v) { return v; }
RG_INLINE int8_t rg_widen(int8_t v) { return v; }
RG_INLINE uint8_t rg_widen(uint8_t v) { return v; }
RG_INLINE int32_t rg_widen(int32_t v) { return v; }
RG_INLINE int64_t rg_widen(int64_t v) { return v; }
RG_INLINE float rg_widen(float v) { return v; }
RG_INLINE double rg_widen(double v) { return v; }

template <typename V>
RG_INLINE bool rg_narrow(V v, bool*) { return v != 0; }
template <typename T, typename V>
RG_INLINE T rg_narrow(V v, T*) { return static_cast<T>(v); }

template <typename T>
struct rg_compute { typedef T type; };
template <>
struct rg_compute<rg_bf16> { typedef float type; };
template <>
struct rg_compute<rg_fp16> { typedef float type; };
template <>
struct rg_compute<rg_f8e4m3> { typedef float type; };
template <>
struct rg_compute<rg_f8e5m2> { typedef float type; };
template <>
struct rg_compute<rg_f8e4m3fnuz> { typedef float type; };
template <>
struct rg_compute<rg_f8e5m2fnuz> { typedef float type; };
template <typename T>
struct rg_compute<const T> : rg_compute<T> {};

template <typename T>
struct rg_plain { typedef T type; };
template <typename T>
struct rg_plain<const T> { typedef T type; };

template <typename T>
RG_INLINE typename rg_compute<T>::type rg_round(typename rg_compute<T>::type v) {
  return rg_rounded(v, static_cast<T*>(nullptr));
}
)";

}  // namespace retrograd
