// With S = scale Q·Kᵀ + bias, P = exp(S - lse), D_i = Σ_c dO_ic O_ic and dS = P ∘ (M ∘ dO·Vᵀ - D):
//   dQ = scale dS·K,  dK = scale dSᵀ·Q,  dV = (P ∘ M)ᵀ·dO
// where M is 1, or with dropout 1 / (1 - p) for what is kept and 0 for the rest.
// A first kernel has a block for each query: it makes D, keeps it in the workspace, and dQ. A
// second one has a block for each key of each key head: it makes dK and dV, of all query heads that
// share it. Threads first take one score each, then one element of the result each.
#include "codegen/attention/emit_attention.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "codegen/attention/dropout_text.h"
#include "codegen/print/dialect.h"
#include "codegen/print/kernel_text.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/source_writer.h"
#include "fusion/kernel/templates/registers.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kThreads = 128;  // scores at once

enum { kDO, kQ, kK, kV, kO, kLse, kBias };  // operands
enum { kDQ, kDK, kDV, kDS };                // results

constexpr absl::string_view kOperandNames[] = {"d_o", "q", "k", "v", "o", "lse", "bias"};
constexpr absl::string_view kResultNames[] = {"dq", "dk", "dv", "d_s"};

// Strides over [batch, head, token, channel], 0 where the operand repeats its elements. The
// log-sum-exp lacks the last axis, a bias may lack leading ones.
std::array<int64_t, 4> StridesOf(const AttentionOperand& t, bool trailing) {
  std::array<int64_t, 4> strides{};
  const size_t missing = trailing ? 4 - t.shape.size() : 0;
  for (size_t axis = 0; axis < t.shape.size(); ++axis) {
    if (t.shape[axis] != 1) strides[missing + axis] = t.strides[axis];
  }
  return strides;
}

class Writer {
 public:
  Writer(const AttentionCall& call, absl::Span<const DType> operand_dtypes, Dialect dialect)
      : call_(call), dtypes_(operand_dtypes), dialect_(dialect) {
    const std::vector<int64_t>& q = call.operands[kQ].shape;
    const std::vector<int64_t>& k = call.operands[kK].shape;
    batch_ = q[0], heads_ = q[1], kv_heads_ = k[1], queries_ = q[2], keys_ = k[2];
    dim_ = q[3], v_dim_ = call.operands[kV].shape[3];
  }

  AttentionKernels::Launch Queries() {
    std::vector<int> results = {kDQ};
    if (HasScoreGradient(call_)) results.push_back(kDS);
    Begin("the gradient of Q", {kDO, kQ, kK, kV, kO, kLse}, results);
    Shared("query", dim_);
    Shared("d_out", v_dim_);
    Shared("ds", kThreads);
    Shared("part", kThreads);
    out_.Line("const int64_t i = block % ", Sized(queries_), ", h = block / ", Sized(queries_),
              " % ", Sized(heads_), ", b = block / ", Sized(queries_ * heads_), ";");
    out_.Line("real own = 0;");
    out_.Open("for (int c = t; c < ", v_dim_, "; c += ", kThreads, ")");
    out_.Line("const real value = ", Load(kDO, "b", "h", "i", "c"), ";");
    out_.Line("d_out[c] = value;");
    out_.Line("own += value * ", Load(kO, "b", "h", "i", "c"), ";");
    out_.Close();
    out_.Line("for (int c = t; c < ", dim_, "; c += ", kThreads,
              ") query[c] = ", Load(kQ, "b", "h", "i", "c"), ";");
    out_.Line("part[t] = own;");
    Barrier();
    out_.Line("real delta = 0;");
    out_.Line("for (int n = 0; n < ", kThreads, "; ++n) delta += part[n];");
    out_.Line("if (t == 0) rg_store(workspace, block, delta);");
    out_.Line("const real row_lse = ", Load(kLse, "b", "h", "i", "0"), ";");
    Sums("sum", dim_);
    const std::string seen =
        call_.causal ? absl::StrCat("(i + 1 < ", Sized(keys_), " ? i + 1 : static_cast<int64_t>(",
                                    Sized(keys_), "))")
                     : Sized(keys_);
    out_.Line("const int64_t seen = ", seen, ";");
    out_.Open("for (int64_t first = 0; first < seen; first += ", kThreads, ")");
    out_.Line("const int64_t j = first + t;");
    out_.Line("real g = 0;");
    out_.Open("if (j < seen)");
    Score([&](absl::string_view c) { return absl::StrCat("query[", c, "]"); },
          [&](absl::string_view c) { return Load(kK, "b", KvHead("h"), "j", c); },
          [&](absl::string_view c) { return absl::StrCat("d_out[", c, "]"); },
          [&](absl::string_view c) { return Load(kV, "b", KvHead("h"), "j", c); });
    out_.Line("g = weight * (", Kept("dp"), " - delta);");
    if (HasScoreGradient(call_)) StoreScore("j", "g");
    out_.Close();
    Barrier();
    out_.Line("ds[t] = g;");
    Barrier();
    Count("seen");
    Add("sum", dim_, "ds", [&](absl::string_view n, absl::string_view c) {
      return Load(kK, "b", KvHead("h"), absl::StrCat("(first + ", n, ")"), c);
    });
    out_.Close();
    StoreSums("sum", kDQ, dim_, "b", "h", "i", true);
    if (HasScoreGradient(call_) && call_.causal) {
      out_.Open("for (int64_t j = seen + t; j < ", Sized(keys_), "; j += ", kThreads, ")");
      StoreScore("j", "real(0)");
      out_.Close();
    }
    return End(batch_ * heads_ * queries_);
  }

  AttentionKernels::Launch Keys() {
    Begin("the gradients of K and V", {kDO, kQ, kK, kV, kLse}, {kDK, kDV});
    Shared("key", dim_);
    Shared("value", v_dim_);
    Shared("weights", kThreads);
    Shared("ds", kThreads);
    out_.Line("const int64_t j = block % ", Sized(keys_), ", kv = block / ", Sized(keys_), " % ",
              Sized(kv_heads_), ", b = block / ", Sized(keys_ * kv_heads_), ";");
    out_.Line("for (int c = t; c < ", dim_, "; c += ", kThreads,
              ") key[c] = ", Load(kK, "b", "kv", "j", "c"), ";");
    out_.Line("for (int c = t; c < ", v_dim_, "; c += ", kThreads,
              ") value[c] = ", Load(kV, "b", "kv", "j", "c"), ";");
    Sums("dk_sum", dim_);
    Sums("dv_sum", v_dim_);
    const int64_t sharing = heads_ / kv_heads_;
    out_.Open("for (int64_t h = kv * ", sharing, "; h < (kv + 1) * ", sharing, "; ++h)");
    out_.Open("for (int64_t first = ",
              call_.causal ? absl::StrCat("j / ", kThreads, " * ", kThreads) : "0", "; first < ",
              Sized(queries_), "; first += ", kThreads, ")");
    out_.Line("const int64_t i = first + t;");
    out_.Line("real w = 0, g = 0;");
    Barrier();
    out_.Open("if (i < ", Sized(queries_), call_.causal ? " && i >= j" : "", ")");
    out_.Line("const real row_lse = ", Load(kLse, "b", "h", "i", "0"), ";");
    Score([&](absl::string_view c) { return Load(kQ, "b", "h", "i", c); },
          [&](absl::string_view c) { return absl::StrCat("key[", c, "]"); },
          [&](absl::string_view c) { return Load(kDO, "b", "h", "i", c); },
          [&](absl::string_view c) { return absl::StrCat("value[", c, "]"); });
    out_.Line("w = ", Kept("weight"), ";");
    out_.Line("g = weight * (", Kept("dp"), " - rg_load(workspace, (b * ", Sized(heads_),
              " + h) * ", Sized(queries_), " + i));");
    out_.Close();
    out_.Line("weights[t] = w;");
    out_.Line("ds[t] = g;");
    Barrier();
    Count(Sized(queries_));
    Add("dk_sum", dim_, "ds", [&](absl::string_view n, absl::string_view c) {
      return Load(kQ, "b", "h", absl::StrCat("(first + ", n, ")"), c);
    });
    Add("dv_sum", v_dim_, "weights", [&](absl::string_view n, absl::string_view c) {
      return Load(kDO, "b", "h", absl::StrCat("(first + ", n, ")"), c);
    });
    out_.Close();
    out_.Close();
    StoreSums("dk_sum", kDK, dim_, "b", "kv", "j", true);
    StoreSums("dv_sum", kDV, v_dim_, "b", "kv", "j", false);
    return End(batch_ * kv_heads_ * keys_);
  }

  int64_t WorkspaceBytes() const {
    return batch_ * heads_ * queries_ * SizeBytes(ComputeType(call_.dtype));
  }

 private:
  // Head and arguments.
  void Begin(absl::string_view what, std::vector<int> operands, std::vector<int> results) {
    out_ = SourceWriter();
    out_.SetDepth(1);
    launch_ = {};
    if (HasBias(call_)) operands.push_back(kBias);
    launch_.kernel.threads = kThreads;
    launch_.kernel.function.comment = absl::StrCat(
        "// attention_backward, ", what, "; Q [", batch_, ", ", heads_, ", ", queries_, ", ", dim_,
        "], ", keys_, " keys of ", kv_heads_, " heads", call_.causal ? ", causal" : "",
        call_.dropout_p > 0 ? absl::StrCat(", dropout ", call_.dropout_p) : "", "\n");
    for (int operand : operands) {
      Argument(operand, false, StorageName(dtypes_[operand]), kOperandNames[operand]);
    }
    const int first_result = static_cast<int>(call_.operands.size());
    for (int result : results) {
      Argument(first_result + result, true, StorageName(call_.dtype), kResultNames[result]);
    }
    // The second kernel reads what the first has written.
    Argument(first_result + static_cast<int>(call_.results.size()), results[0] == kDQ,
             ComputeName(call_.dtype), "workspace");
    if (call_.dropout_p > 0) Dropout();
    out_.Line("typedef ", ComputeName(call_.dtype), " real;");
    out_.Line("const int t = RG_THREAD;");
    out_.Line("const int64_t block = RG_BLOCK;");
  }

  void Dropout() {
    const int seed = static_cast<int>(AttentionSeed(call_));
    Argument(seed, false, StorageName(dtypes_[seed]), "seed");
    Argument(seed + 1, false, StorageName(dtypes_[seed + 1]), "offset");
    launch_.kernel.parts |= PreludePart::kDropout;
    out_.Line(DropoutText(call_, dialect_));
  }

  void Argument(int place, bool written, absl::string_view type, absl::string_view name) {
    launch_.kernel.function.declarations.push_back(
        {.kind = Declaration::kArgument,
         .type = absl::StrCat(written ? "" : "const ", type),
         .name = std::string(name),
         .at = static_cast<int64_t>(launch_.args.size())});
    launch_.args.push_back(place);
    launch_.written.push_back(written);
  }

  AttentionKernels::Launch End(int64_t blocks) {
    launch_.kernel.blocks = blocks;
    launch_.kernel.arguments = static_cast<int>(launch_.args.size());
    launch_.kernel.function.statements = out_.text();
    NameKernel(&launch_.kernel);
    return std::move(launch_);
  }

  void Shared(absl::string_view name, int64_t count) {
    Kernel& kernel = launch_.kernel;
    kernel.function.declarations.push_back({.kind = Declaration::kShared,
                                            .type = std::string(ComputeName(call_.dtype)),
                                            .name = std::string(name),
                                            .count = count});
    kernel.shared_bytes += SharedArrayBytes(count, SizeBytes(ComputeType(call_.dtype)));
    kernel.threads_meet = true;
  }

  void Barrier() {
    out_.Line("RG_BARRIER();");
    launch_.kernel.threads_meet = true;
  }

  std::string Address(const AttentionOperand& t, bool trailing, absl::string_view b,
                      absl::string_view h, absl::string_view token, absl::string_view c) const {
    const std::array<int64_t, 4> strides = StridesOf(t, trailing);
    const absl::string_view at[] = {b, h, token, c};
    std::string text = Sized(t.offset);
    for (int axis = 0; axis < 4; ++axis) {
      if (strides[axis] == 0 || at[axis] == "0") continue;
      absl::StrAppend(&text, " + ", at[axis]);
      if (strides[axis] != 1) absl::StrAppend(&text, " * ", Sized(strides[axis]));
    }
    return text;
  }
  std::string Load(int operand, absl::string_view b, absl::string_view h, absl::string_view token,
                   absl::string_view c) const {
    return absl::StrCat("static_cast<real>(rg_load(", kOperandNames[operand], ", ",
                        Address(call_.operands[operand], operand == kBias, b, h, token, c), "))");
  }

  std::string KvHead(absl::string_view h) const {
    const int64_t sharing = heads_ / kv_heads_;
    return sharing == 1 ? std::string(h) : absl::StrCat("(", h, " / ", sharing, ")");
  }

  // Of a probability or its gradient: what dropout leaves.
  std::string Kept(absl::string_view name) const {
    if (call_.dropout_p == 0) return std::string(name);
    return absl::StrCat("(kept ? ", name, " * ", Number(1 / (1 - call_.dropout_p)), " : 0)");
  }

  // Declares `weight`, the probability of query i and key j, and `dp`; with dropout also `kept`.
  template <typename Q, typename K, typename O, typename V>
  void Score(const Q& q, const K& k, const O& d_out, const V& v) {
    out_.Line("real s = 0, dp = 0;");
    out_.Line("for (int c = 0; c < ", dim_, "; ++c) s += ", q("c"), " * ", k("c"), ";");
    out_.Line("for (int c = 0; c < ", v_dim_, "; ++c) dp += ", d_out("c"), " * ", v("c"), ";");
    const std::string bias =
        HasBias(call_) ? absl::StrCat(" + ", Load(kBias, "b", "h", "i", "j")) : "";
    out_.Line("s = s * ", Number(call_.scale), bias, ";");
    const Spelling& spelling = SpellingOf(dialect_);
    const bool wide = ComputeType(call_.dtype) == DType::kFp64;
    out_.Line("// A query that sees no key has a log-sum-exp of minus infinity.");
    out_.Line("const real weight = row_lse == -",
              wide ? spelling.infinity_f64 : spelling.infinity_f32,
              " ? 0 : ", wide ? "rg_exp" : "rg_exp_or_zero", "(s - row_lse);");
    if (call_.dropout_p > 0) {
      out_.Line("const bool kept = dropout.keeps(static_cast<int>(b * ", Sized(heads_),
                " + h), static_cast<int>(i), static_cast<int>(j));");
    }
  }

  void Count(absl::string_view end) {
    out_.Line("const int count = ", end, " - first < ", kThreads, " ? static_cast<int>(", end,
              " - first) : ", kThreads, ";");
  }

  // Sums of this thread: those of elements t, t + kThreads, ...
  static int64_t Trips(int64_t extent) { return (extent + kThreads - 1) / kThreads; }
  void Sums(absl::string_view name, int64_t extent) {
    out_.Line("real ", name, "[", Trips(extent), "] = {};");
  }
  void OpenElements(int64_t extent) {
    out_.Open("for (int u = 0, c = t; u < ", Trips(extent), "; ++u, c += ", kThreads, ")");
    if (extent % kThreads != 0) out_.Line("if (c >= ", extent, ") break;");
  }
  template <typename Other>
  void Add(absl::string_view sum, int64_t extent, absl::string_view weights, const Other& other) {
    OpenElements(extent);
    out_.Line("real total = ", sum, "[u];");
    out_.Line("for (int n = 0; n < count; ++n) total += ", weights, "[n] * ", other("n", "c"), ";");
    out_.Line(sum, "[u] = total;");
    out_.Close();
  }
  void StoreSums(absl::string_view sum, int result, int64_t extent, absl::string_view b,
                 absl::string_view h, absl::string_view token, bool scaled) {
    OpenElements(extent);
    out_.Line("rg_store(", kResultNames[result], ", ",
              Address(call_.results[result], false, b, h, token, "c"), ", ", sum, "[u]",
              scaled ? absl::StrCat(" * ", Number(call_.scale)) : "", ");");
    out_.Close();
  }

  void StoreScore(absl::string_view key, absl::string_view value) {
    out_.Line("rg_store(", kResultNames[kDS], ", ",
              Address(call_.results[kDS], false, "b", "h", "i", key), ", ", value, ");");
  }

  std::string Number(double value) const { return Literal(value, call_.dtype, dialect_); }

  const AttentionCall& call_;
  absl::Span<const DType> dtypes_;
  Dialect dialect_;
  int64_t batch_, heads_, kv_heads_, queries_, keys_, dim_, v_dim_;
  SourceWriter out_;
  AttentionKernels::Launch launch_;
};

}  // namespace

AttentionKernels EmitAttention(const AttentionCall& call, absl::Span<const DType> operand_dtypes,
                               Dialect dialect) {
  RG_CHECK(AttentionSeed(call) == 6 || AttentionSeed(call) == 7);
  RG_CHECK(call.results.size() >= 3 && operand_dtypes.size() == call.operands.size());
  Writer writer(call, operand_dtypes, dialect);
  AttentionKernels kernels;
  kernels.launches.push_back(writer.Queries());
  kernels.launches.push_back(writer.Keys());
  kernels.workspace_bytes = writer.WorkspaceBytes();
  return kernels;
}

}  // namespace retrograd
