// With S = scale Q·Kᵀ + bias, P = exp(S - lse) (0 where masked), O = P·V:
//   dV = (P ∘ M)ᵀ·dO,  dP = M ∘ dO·Vᵀ,  D_i = Σ_j dO_ij O_ij,  dS = P ∘ (dP - D),  dQ = scale dS·K,
//   dK = scale dSᵀ·Q, and dS itself where it is a result
// (Dao, FlashAttention-2, algorithm 2), here for blocks of rows of Q against all of K. Query heads
// that share a key head (grouped queries) add up in dK and dV. The causal mask is aligned at the
// top left: query i sees keys 0 .. i. M is 1, or with dropout 1 / (1 - p) for what is kept and 0
// for the rest.
#include "runtime/ops/attention/host_attention.h"

#include <cblas.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/host/host_numbers.h"

namespace retrograd {
namespace {

constexpr int64_t kRows =
    128;  // of Q at once: the scores of a block fit the cache for usual lengths

enum { kDO, kQ, kK, kV, kO, kLse, kBias };  // operands
enum { kDQ, kDK, kDV };                     // results

struct Sizes {
  int64_t batch, heads, kv_heads, queries, keys, dim, v_dim, rows;
};

Sizes SizesOf(const AttentionCall& call) {
  const std::vector<int64_t>& q = call.operands[kQ].shape;
  const std::vector<int64_t>& k = call.operands[kK].shape;
  return {q[0], q[1], k[1], q[2], k[2], q[3], call.operands[kV].shape[3], std::min(kRows, q[2])};
}

// Scratch matrices, row-major.
template <typename C>
struct Scratch {
  C *q, *d_o, *o, *dq;  // [rows, dim or v_dim]
  C *k, *v, *dk, *dv;   // [keys, dim or v_dim]
  C *p, *ds;            // [rows, keys]
  C* lse;               // [rows]
};

int64_t ScratchElements(const Sizes& s) {
  return s.rows * (2 * s.dim + 2 * s.v_dim + 2 * s.keys + 1) + s.keys * 2 * (s.dim + s.v_dim);
}

template <typename C>
Scratch<C> Carve(const Sizes& s, C* base) {
  const auto take = [&](int64_t elements) {
    C* p = base;
    base += elements;
    return p;
  };
  Scratch<C> m;
  m.q = take(s.rows * s.dim);
  m.d_o = take(s.rows * s.v_dim);
  m.o = take(s.rows * s.v_dim);
  m.dq = take(s.rows * s.dim);
  m.k = take(s.keys * s.dim);
  m.v = take(s.keys * s.v_dim);
  m.dk = take(s.keys * s.dim);
  m.dv = take(s.keys * s.v_dim);
  m.p = take(s.rows * s.keys);
  m.ds = take(s.rows * s.keys);
  m.lse = take(s.rows);
  return m;
}

// Strides over [B, H, T, last], 0 where the operand repeats its elements. The log-sum-exp lacks the
// last axis, a bias may lack leading ones.
using Strides = std::array<int64_t, 4>;
Strides StridesOf(const AttentionOperand& t, size_t missing_leading) {
  Strides strides{};
  for (size_t axis = 0; axis < t.shape.size(); ++axis) {
    if (t.shape[axis] != 1) strides[missing_leading + axis] = t.strides[axis];
  }
  return strides;
}

// A [rows, cols] piece of head h, batch b, from token `first` on.
template <typename C>
void Read(const void* data, DType dtype, int64_t offset, const Strides& strides, int64_t b,
          int64_t h, int64_t first, int64_t rows, int64_t cols, C* to) {
  WithFloatType(dtype, [&](auto* type) {
    const auto* p = static_cast<const std::remove_pointer_t<decltype(type)>*>(data) + offset +
                    b * strides[0] + h * strides[1] + first * strides[2];
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        to[r * cols + c] = LoadAs<C>(p, r * strides[2] + c * strides[3]);
      }
    }
  });
}

template <typename C>
void Write(const AttentionOperand& t, DType dtype, void* data, int64_t b, int64_t h, int64_t first,
           int64_t rows, int64_t cols, const C* from) {
  WithFloatType(dtype, [&](auto* type) {
    auto* p = static_cast<decltype(type)>(data) + t.offset + b * t.strides[0] + h * t.strides[1] +
              first * t.strides[2];
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        StoreAs(p, r * t.strides[2] + c * t.strides[3], from[r * cols + c]);
      }
    }
  });
}

// c[m,n] = alpha·op(a)·op(b) + beta·c, all row-major and dense.
void Gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          const float* b, float beta, float* c) {
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
              static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(std::max<int64_t>(1, ta ? m : k)), b,
              static_cast<int>(std::max<int64_t>(1, tb ? k : n)), beta, c,
              static_cast<int>(std::max<int64_t>(1, n)));
}
void Gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
          const double* b, double beta, double* c) {
  cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
              static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(std::max<int64_t>(1, ta ? m : k)), b,
              static_cast<int>(std::max<int64_t>(1, tb ? k : n)), beta, c,
              static_cast<int>(std::max<int64_t>(1, n)));
}

template <typename C>
class Backward {
 public:
  Backward(const AttentionCall& call, const AttentionPointers& pointers, C* scratch)
      : call_(call), pointers_(pointers), s_(SizesOf(call)), m_(Carve(s_, scratch)) {
    if (call.dropout_p == 0) return;
    const size_t seed = AttentionSeed(call);
    mask_.emplace(DropoutOf(call), call.dropout_p, Integer(seed), Integer(seed + 1), s_.queries,
                  s_.keys);
  }

  void Run() {
    const int64_t sharing = s_.heads / s_.kv_heads;
    for (int64_t b = 0; b < s_.batch; ++b) {
      for (int64_t kv = 0; kv < s_.kv_heads; ++kv) {
        ReadOperand(kK, b, kv, 0, s_.keys, s_.dim, m_.k);
        ReadOperand(kV, b, kv, 0, s_.keys, s_.v_dim, m_.v);
        std::fill_n(m_.dk, s_.keys * s_.dim, C{0});
        std::fill_n(m_.dv, s_.keys * s_.v_dim, C{0});
        for (int64_t h = kv * sharing; h < (kv + 1) * sharing; ++h) {
          for (int64_t first = 0; first < s_.queries; first += s_.rows) {
            Block(b, h, first, std::min(s_.rows, s_.queries - first));
          }
        }
        WriteResult(kDK, b, kv, 0, s_.keys, s_.dim, m_.dk);
        WriteResult(kDV, b, kv, 0, s_.keys, s_.v_dim, m_.dv);
      }
    }
  }

 private:
  // Rows [first, first + rows) of one query head: writes dQ, adds to dK and dV.
  void Block(int64_t b, int64_t h, int64_t first, int64_t rows) {
    const C scale = static_cast<C>(call_.scale);
    ReadOperand(kQ, b, h, first, rows, s_.dim, m_.q);
    ReadOperand(kDO, b, h, first, rows, s_.v_dim, m_.d_o);
    ReadOperand(kO, b, h, first, rows, s_.v_dim, m_.o);
    ReadOperand(kLse, b, h, first, rows, 1, m_.lse);
    const bool bias = HasBias(call_);
    if (bias) ReadOperand(kBias, b, h, first, rows, s_.keys, m_.p);
    Gemm(false, true, rows, s_.keys, s_.dim, scale, m_.q, m_.k, bias ? C{1} : C{0}, m_.p);
    Gemm(false, true, rows, s_.keys, s_.v_dim, C{1}, m_.d_o, m_.v, C{0}, m_.ds);
    for (int64_t r = 0; r < rows; ++r) Row(b * s_.heads + h, first + r, r);
    Gemm(true, false, s_.keys, s_.v_dim, rows, C{1}, m_.p, m_.d_o, C{1}, m_.dv);
    Gemm(true, false, s_.keys, s_.dim, rows, scale, m_.ds, m_.q, C{1}, m_.dk);
    Gemm(false, false, rows, s_.dim, s_.keys, scale, m_.ds, m_.k, C{0}, m_.dq);
    WriteResult(kDQ, b, h, first, rows, s_.dim, m_.dq);
    if (HasScoreGradient(call_)) WriteResult(kScoreGradient, b, h, first, rows, s_.keys, m_.ds);
  }

  // Scores to probabilities as far as they are kept, dP to dS, of one row.
  void Row(int64_t head, int64_t query, int64_t r) {
    C delta = 0;
    for (int64_t c = 0; c < s_.v_dim; ++c) {
      delta += m_.d_o[r * s_.v_dim + c] * m_.o[r * s_.v_dim + c];
    }
    const C lse = m_.lse[r];
    const bool sees_nothing = lse == -std::numeric_limits<C>::infinity();
    C* p = m_.p + r * s_.keys;
    C* ds = m_.ds + r * s_.keys;
    for (int64_t j = 0; j < s_.keys; ++j) {
      const bool masked = sees_nothing || (call_.causal && j > query);
      const C whole = masked ? C{0} : std::exp(p[j] - lse);
      const C share = mask_ && !masked ? static_cast<C>(mask_->ShareOf(head, query, j)) : C{1};
      p[j] = whole * share;
      ds[j] = masked ? C{0} : whole * (ds[j] * share - delta);
    }
  }

  uint64_t Integer(size_t operand) const {
    const void* data = pointers_.operands[operand];
    const int64_t at = call_.operands[operand].offset;
    return static_cast<uint64_t>(pointers_.operand_dtypes[operand] == DType::kInt32
                                     ? int64_t{static_cast<const int32_t*>(data)[at]}
                                     : static_cast<const int64_t*>(data)[at]);
  }
  void ReadOperand(int which, int64_t b, int64_t h, int64_t first, int64_t rows, int64_t cols,
                   C* to) {
    const AttentionOperand& t = call_.operands[which];
    const size_t missing = which == kBias ? 4 - t.shape.size() : 0;
    Read(pointers_.operands[which], pointers_.operand_dtypes[which], t.offset,
         StridesOf(t, missing), b, h, first, rows, cols, to);
  }
  void WriteResult(size_t which, int64_t b, int64_t h, int64_t first, int64_t rows, int64_t cols,
                   const C* from) {
    Write(call_.results[which], call_.dtype, pointers_.results[which], b, h, first, rows, cols,
          from);
  }
  const AttentionCall& call_;
  const AttentionPointers& pointers_;
  const Sizes s_;
  const Scratch<C> m_;
  std::optional<DropoutMask> mask_;
};

}  // namespace

absl::StatusOr<int64_t> HostAttentionScratchBytes(const AttentionCall& call) {
  const size_t seed = AttentionSeed(call);
  if (seed < 6 || seed > 7 || call.results.size() < 3 || call.results.size() > 4) {
    return absl::UnimplementedError(absl::StrFormat(
        "attention_backward %%%d with %d operands and %d results: the host computes dQ, dK, dV, "
        "and dS, from dO, Q, K, V, O, log-sum-exp and at most a bias, and dropout's seed and "
        "offset",
        Index(call.node), call.operands.size(), call.results.size()));
  }
  for (size_t i = 0; i < seed; ++i) {
    const size_t rank = call.operands[i].shape.size();
    RG_CHECK(rank == call.operands[i].strides.size());
    RG_CHECK(i == kBias ? rank <= 4 : rank == (i == kLse ? 3 : 4));
  }
  if (!IsFloat(call.dtype)) {
    return absl::UnimplementedError(absl::StrFormat(
        "attention_backward %%%d in %s: only floating types", Index(call.node), Name(call.dtype)));
  }
  return ScratchElements(SizesOf(call)) * SizeBytes(ComputeType(call.dtype));
}

void HostAttentionBackward(const AttentionCall& call, const AttentionPointers& pointers,
                           void* scratch) {
  if (call.dtype == DType::kFp64) {
    Backward<double>(call, pointers, static_cast<double*>(scratch)).Run();
  } else {
    Backward<float>(call, pointers, static_cast<float*>(scratch)).Run();
  }
}

namespace {

class HostAttentionCall : public LoadedCall {
 public:
  HostAttentionCall(AttentionRequest request, int64_t scratch_bytes)
      : LoadedCall(scratch_bytes), request_(std::move(request)) {}
  absl::Status Run(int, const CallPointers& pointers, void* scratch) override {
    HostAttentionBackward(request_.call, request_.PointersOf(pointers), scratch);
    return absl::OkStatus();
  }
  std::string Describe() const override { return "OpenBLAS"; }

 private:
  const AttentionRequest request_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadHostAttention(const Call& call) {
  AttentionRequest request(call, {});
  RG_RETURN_IF_ERROR(CheckDropout(request));
  RG_ASSIGN_OR_RETURN(const int64_t scratch_bytes, HostAttentionScratchBytes(request.call));
  return std::make_unique<HostAttentionCall>(std::move(request), scratch_bytes);
}

}  // namespace retrograd
