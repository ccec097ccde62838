#include "codegen/attention/emit_warp_attention.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/attention/dropout_text.h"
#include "codegen/attention/warp_attention_text.h"
#include "codegen/print/dialect.h"
#include "codegen/print/launch_writer.h"
#include "codegen/print/numbers/sized_number.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

enum { kDO, kQ, kK, kV, kO, kLse, kBias };  // operands
enum { kDQ, kDK, kDV, kDS };                // results

constexpr absl::string_view kOperandNames[] = {"d_o", "q", "k", "v", "o", "lse", "bias"};
constexpr absl::string_view kResultNames[] = {"dq", "dk", "dv", "d_s"};
constexpr int64_t kCopiedBytes = 16;  // at once, at most

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Strides over [batch, head, token, channel], 0 where the operand repeats its elements: a bias may
// lack leading axes.
std::vector<int64_t> StridesOf(const AttentionOperand& t, size_t axes) {
  std::vector<int64_t> strides(axes);
  const size_t missing = axes - t.shape.size();
  for (size_t axis = 0; axis < t.shape.size(); ++axis) {
    if (t.shape[axis] != 1) strides[missing + axis] = t.strides[axis];
  }
  return strides;
}

class Writer {
 public:
  Writer(const AttentionCall& call, absl::Span<const DType> operand_dtypes,
         absl::Span<const int64_t> alignment, Dialect dialect, int warp)
      : call_(call),
        dtypes_(operand_dtypes),
        alignment_(alignment),
        dialect_(dialect),
        warp_(warp) {
    const std::vector<int64_t>& q = call.operands[kQ].shape;
    const std::vector<int64_t>& k = call.operands[kK].shape;
    batch_ = q[0], heads_ = q[1], kv_heads_ = k[1], queries_ = q[2], keys_ = k[2];
    dim_ = q[3], v_dim_ = call.operands[kV].shape[3];
  }

  AttentionKernels::Launch Queries(const WarpAttentionTile& tile) {
    LaunchWriter w(dialect_, Comment("the gradient of Q"));
    const bool stores = HasScoreGradient(call_);
    Begin(w, tile, {kDO, kQ, kK, kV, kO, kLse},
          stores ? std::vector<int>{kDQ, kDS} : std::vector<int>{kDQ}, true);
    w.Staged(call_.dtype, "tiles", Places(w, tile, 1));
    w.Shared(ComputeType(call_.dtype), "numbers", 2 * tile.rows());
    for (const int operand : {kDO, kQ}) Copies(w, operand, tile, tile.rows());
    for (const int operand : {kK, kV}) Copies(w, operand, tile, tile.columns);
    w.Text(kWarpAttentionThreads);
    w.Text(kWarpAttentionQueries);
    w.Text(kWarpAttentionScores);
    w.Text(kWarpAttentionScoreGradients);
    if (stores) w.Text(kWarpAttentionStoredScores);
    w.Text(kWarpAttentionQueriesEnd);
    if (stores && call_.causal) w.Text(kWarpAttentionUnseenScores);
    return End(w, tile, batch_ * heads_ * CeilDiv(queries_, tile.rows()));
  }

  AttentionKernels::Launch Keys(const WarpAttentionTile& tile) {
    LaunchWriter w(dialect_, Comment("the gradients of K and V"));
    Begin(w, tile, {kDO, kQ, kK, kV, kLse}, {kDK, kDV}, false);
    w.Staged(call_.dtype, "tiles", Places(w, tile, 2));
    w.Shared(ComputeType(call_.dtype), "numbers", 2 * tile.columns * tile.stages);
    for (const int operand : {kK, kV}) Copies(w, operand, tile, tile.rows());
    for (const int operand : {kDO, kQ}) Copies(w, operand, tile, tile.columns);
    w.Text(kWarpAttentionThreads);
    w.Text(kWarpAttentionKeys);
    w.Text(kWarpAttentionScores);
    w.Text(kWarpAttentionKeysEnd);
    return End(w, tile, batch_ * kv_heads_ * CeilDiv(keys_, tile.rows()));
  }

  int64_t WorkspaceBytes() const {
    return batch_ * heads_ * queries_ * SizeBytes(ComputeType(call_.dtype));
  }

 private:
  int Place(int result) const { return static_cast<int>(call_.operands.size()) + result; }
  int64_t Threads(const WarpAttentionTile& tile) const {
    return int64_t{tile.warps} * tile.groups * warp_;
  }

  std::string Comment(absl::string_view what) const {
    return absl::StrCat("attention_backward, ", what, "; Q [", batch_, ", ", heads_, ", ", queries_,
                        ", ", dim_, "], ", keys_, " keys of ", kv_heads_, " heads",
                        call_.causal ? ", causal" : "",
                        call_.dropout_p > 0 ? absl::StrCat(", dropout ", call_.dropout_p) : "");
  }

  // Arguments, sizes, and functions of one element or score.
  void Begin(LaunchWriter& w, const WarpAttentionTile& tile, std::vector<int> operands,
             const std::vector<int>& results, bool writes_workspace) {
    w.TakesTable();
    if (HasBias(call_)) operands.push_back(kBias);
    for (const int operand : operands) w.Read(dtypes_[operand], kOperandNames[operand], operand);
    for (const int result : results) w.Write(call_.dtype, kResultNames[result], Place(result));
    // The other kernels read what the first has written.
    const DType compute = ComputeType(call_.dtype);
    const int workspace = Place(static_cast<int>(call_.results.size()));
    writes_workspace ? w.Write(compute, "workspace", workspace)
                     : w.Read(compute, "workspace", workspace);
    if (call_.dropout_p > 0) {
      const int seed = static_cast<int>(AttentionSeed(call_));
      w.Read(dtypes_[seed], "seed", seed);
      w.Read(dtypes_[seed + 1], "offset", seed + 1);
      w.Uses(PreludePart::kDropout);
    }
    w.Uses(PreludePart::kTensorCores);
    w.Uses(PreludePart::kWideTiles);
    w.out().Line("typedef ", ComputeName(call_.dtype), " sum_t;");
    w.out().Line("const int queries = ", Sized(queries_), ", keys = ", Sized(keys_),
                 ", heads = ", Sized(heads_), ";");
    w.out().Line("[[maybe_unused]] const int kv_heads = ", Sized(kv_heads_), ";");
    w.out().Line("const sum_t scale = ", Number(call_.scale), ";");
    w.Constants({{"kRows", tile.rows()},
                 {"kColumns", tile.columns},
                 {"kStages", tile.stages},
                 {"kSharing", heads_ / kv_heads_},
                 {"kOwnQueries", writes_workspace ? 1 : 0},
                 {"kBiased", HasBias(call_) ? 1 : 0},
                 {"kCausal", call_.causal ? 1 : 0}});
    w.out().Line("constexpr int kThreads = ", tile.warps * tile.groups, " * RG_WARP;");
    for (const int operand : operands) {
      if (operand == kO || operand == kLse || operand == kBias) Loads(w, operand);
    }
    if (!HasBias(call_)) {
      w.out().Line("const auto load_bias = [](int, int, int, int) { return sum_t(0); };");
    }
    for (const int result : results) Stores(w, result);
    Scores(w);
  }

  // kStepsApart: tensor cores cut off what does not fit into a sum, so that long sums of fp32
  // numbers would turn out too small; those of a step begin at zero, and are added by the rest.
  // What 16 bits hold is rounded more.
  //
  // The others: where what lies in shared memory, in elements from the first one on: the block's
  // own rows, what passes by, and the `kinds` of numbers between the products. Returns how many
  // elements there are.
  int64_t Places(LaunchWriter& w, const WarpAttentionTile& tile, int64_t kinds) const {
    const int64_t channels_q = WarpChannels(dim_, tile.groups);
    const int64_t channels_v = WarpChannels(v_dim_, tile.groups);
    const int64_t pitch_q = WarpPitch(channels_q), pitch_v = WarpPitch(channels_v);
    const int64_t own_v = tile.rows() * pitch_q, passing = own_v + tile.rows() * pitch_v;
    const int64_t stage_v = tile.columns * pitch_q, stage = stage_v + tile.columns * pitch_v;
    const int64_t pitch_s = WarpPitch(tile.columns), of_numbers = tile.rows() * pitch_s;
    const int64_t numbers = passing + tile.stages * stage;
    w.Constants({{"kGroups", tile.groups},
                 {"kDimQ", dim_},
                 {"kDimV", v_dim_},
                 {"kChannelsQ", channels_q},
                 {"kChannelsV", channels_v},
                 {"kPitchQ", pitch_q},
                 {"kPitchV", pitch_v},
                 {"kPitchS", pitch_s},
                 {"kTilesQ", channels_q / 16 / tile.groups},
                 {"kTilesV", channels_v / 16 / tile.groups},
                 {"kTilesS", tile.columns / 16 / tile.groups},
                 {"kStepsApart", call_.dtype == DType::kFp32 ? 1 : 0},
                 {"kOwnQ", 0},
                 {"kOwnV", own_v},
                 {"kPassing", passing},
                 {"kStage", stage},
                 {"kStageV", stage_v},
                 {"kNumbers", numbers},
                 {"kWeights", numbers + of_numbers}});
    return numbers + kinds * of_numbers;
  }

  std::string Address(const AttentionOperand& t, absl::Span<const std::string> at) const {
    const std::vector<int64_t> strides = StridesOf(t, at.size());
    std::string text = absl::StrCat("static_cast<int64_t>(", Sized(t.offset), ")");
    for (size_t axis = 0; axis < at.size(); ++axis) {
      if (strides[axis] == 0) continue;
      absl::StrAppend(&text, " + ", at[axis]);
      if (strides[axis] != 1) {
        absl::StrAppend(&text, " * static_cast<int64_t>(", Sized(strides[axis]), ")");
      }
    }
    return text;
  }

  // One element: of O, of the log-sum-exp, or of the bias.
  void Loads(LaunchWriter& w, int operand) const {
    std::vector<std::string> at = {"b", "h", "i"};
    if (operand != kLse) at.push_back(operand == kBias ? "j" : "c");
    w.out().Open("const auto load_", kOperandNames[operand], " = [&]([[maybe_unused]] int b, ",
                 "[[maybe_unused]] int h, [[maybe_unused]] int i",
                 operand == kLse ? "" : absl::StrCat(", [[maybe_unused]] int ", at.back()), ")");
    w.out().Line("return static_cast<sum_t>(rg_load(", kOperandNames[operand], ", ",
                 Address(call_.operands[operand], at), "));");
    w.out().Close(";");
  }

  void Stores(LaunchWriter& w, int result) const {
    w.out().Open("const auto store_", kResultNames[result],
                 " = [&]([[maybe_unused]] int b, [[maybe_unused]] int h, [[maybe_unused]] int i, ",
                 "[[maybe_unused]] int c, sum_t v)");
    w.out().Line("rg_store(", kResultNames[result], ", ",
                 Address(call_.results[result], {"b", "h", "i", "c"}), ", v);");
    w.out().Close(";");
  }

  // The probability of query i and key j, and what dropout makes of 1 there.
  void Scores(LaunchWriter& w) const {
    const Spelling& spelling = SpellingOf(dialect_);
    const bool wide = ComputeType(call_.dtype) == DType::kFp64;
    w.out().Line("// A query that sees no key has a log-sum-exp of minus infinity.");
    w.out().Open("const auto weight_of = [&](int i, int j, sum_t product, ",
                 "[[maybe_unused]] sum_t added, sum_t row_lse)");
    w.out().Line("if (i >= queries || j >= keys || (kCausal && j > i) || row_lse == -",
                 wide ? spelling.infinity_f64 : spelling.infinity_f32, ") return sum_t(0);");
    w.out().Line("return sum_t(", wide ? "rg_exp" : "rg_exp_or_zero", "(product * scale",
                 HasBias(call_) ? " + added" : "", " - row_lse));");
    w.out().Close(";");
    if (call_.dropout_p > 0) w.out().Line(DropoutText(call_, dialect_));
    w.out().Open("const auto share_of = [&]([[maybe_unused]] int head_number, ",
                 "[[maybe_unused]] int i, [[maybe_unused]] int j)");
    if (call_.dropout_p > 0) {
      w.out().Line("return dropout.keeps(head_number, i, j) ? sum_t(",
                   Number(1 / (1 - call_.dropout_p)), ") : sum_t(0);");
    } else {
      w.out().Line("return sum_t(1);");
    }
    w.out().Close(";");
  }

  // Elements of the operand that a thread copies at once: they lie side by side, and begin at
  // multiples of their bytes.
  int64_t VectorOf(int operand) const {
    const AttentionOperand& t = call_.operands[operand];
    const int64_t size = SizeBytes(dtypes_[operand]);
    const int64_t known = alignment_.empty() ? size : alignment_[operand];
    int64_t vector = std::max<int64_t>(1, std::min(kCopiedBytes, known) / size);
    const auto fits = [&](int64_t v) {
      if (t.shape[3] % v != 0 || t.offset % v != 0 || t.strides[3] != 1) return false;
      for (int axis = 0; axis < 3; ++axis) {
        if (t.shape[axis] != 1 && t.strides[axis] % v != 0) return false;
      }
      return true;
    };
    while (vector > 1 && !fits(vector)) vector /= 2;
    return vector;
  }

  // load_q(to, first, h, b): sends so many rows of a head, from `first` on, to the tile at `to`;
  // zeros behind the last row and channel.
  void Copies(LaunchWriter& w, int operand, const WarpAttentionTile& tile, int64_t lines) const {
    const AttentionOperand& t = call_.operands[operand];
    const int64_t dim = t.shape[3], channels = WarpChannels(dim, tile.groups);
    const absl::string_view name = kOperandNames[operand];
    const absl::string_view rows = operand == kK || operand == kV ? "keys" : "queries";
    w.out().Open("const auto load_", name, " = [&](int to, int first, [[maybe_unused]] int h, ",
                 "[[maybe_unused]] int b)");
    w.Constants(
        {{"kLines", lines}, {"kVector", VectorOf(operand)}, {"kPitch", WarpPitch(channels)}});
    w.out().Line("constexpr int kPacks = ", channels, " / kVector;");
    w.Text("RG_UNROLL_8\n");
    w.out().Open("for (int n = 0; n < (kLines * kPacks + kThreads - 1) / kThreads; ++n)");
    w.out().Line("const int at = RG_THREAD + n * kThreads, line = at / kPacks, c = at % kPacks * ",
                 "kVector, i = first + line;");
    w.out().Line("if (kLines * kPacks % kThreads != 0 && line >= kLines) continue;");
    w.out().Line("rg_copy_or_zero<kVector>(tiles, to + line * kPitch + c, ", name, ", ",
                 Address(t, {"b", "h", "i", "c"}), ", i < ", rows, " && c < ", dim, ");");
    w.out().Close();
    w.out().Close(";");
  }

  AttentionKernels::Launch End(LaunchWriter& w, const WarpAttentionTile& tile, int64_t blocks) {
    LaunchWriter::Launch made = w.End(blocks, Threads(tile));
    AttentionKernels::Launch launch{.kernel = std::move(made.kernel),
                                    .args = std::move(made.slots)};
    for (const Declaration& d : launch.kernel.function.declarations) {
      if (d.kind == Declaration::kArgument) {
        launch.written.push_back(!absl::StartsWith(d.type, "const "));
      }
    }
    return launch;
  }

  std::string Number(double value) const { return Literal(value, call_.dtype, dialect_); }

  const AttentionCall& call_;
  absl::Span<const DType> dtypes_;
  absl::Span<const int64_t> alignment_;
  Dialect dialect_;
  int warp_;
  int64_t batch_, heads_, kv_heads_, queries_, keys_, dim_, v_dim_;
};

}  // namespace

AttentionKernels EmitWarpAttention(const AttentionCall& call,
                                   absl::Span<const DType> operand_dtypes,
                                   absl::Span<const int64_t> alignment,
                                   const WarpAttentionTiles& tiles, Dialect dialect, int warp) {
  RG_CHECK(AttentionSeed(call) == 6 || AttentionSeed(call) == 7);
  RG_CHECK(call.results.size() >= 3 && operand_dtypes.size() == call.operands.size());
  Writer writer(call, operand_dtypes, alignment, dialect, warp);
  AttentionKernels kernels;
  kernels.launches.push_back(writer.Queries(tiles.queries));
  kernels.launches.push_back(writer.Keys(tiles.keys));
  kernels.workspace_bytes = writer.WorkspaceBytes();
  return kernels;
}

}  // namespace retrograd
