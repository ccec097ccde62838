// The kernels' bodies are templates of the prelude; what is printed here are their sizes. Exponents
// are of two: the kernel of dQ leaves the log-sum-exp times log2(e) in the workspace, beside delta,
// for the other. A tile of 64 x 64 of the bias that hides all its keys is passed over, and one of
// zeros not read, so that a mask which is given as a bias saves what it masks.
#include "codegen/attention/emit_tiled_attention.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/attention/dropout_text.h"
#include "codegen/print/dialect.h"
#include "codegen/print/kernel_text.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/source_writer.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

enum { kDO, kQ, kK, kV, kO, kLse, kBias };  // operands; with dropout seed and offset are last
enum { kDQ, kDK, kDV, kDS };                // results

constexpr int64_t kTile = kAttentionBox;
constexpr int64_t kCopyAlignment = 16;  // bytes, of what the copy engine reads
constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Writer {
 public:
  Writer(const AttentionCall& call, absl::Span<const DType> operand_dtypes)
      : call_(call), dtypes_(operand_dtypes) {
    const std::vector<int64_t>& q = call.operands[kQ].shape;
    const std::vector<int64_t>& k = call.operands[kK].shape;
    batch_ = q[0], heads_ = q[1], kv_heads_ = k[1], queries_ = q[2], keys_ = k[2], dim_ = q[3];
  }

  // `boxes`: rows of the bias begin at multiples of 16 bytes.
  AttentionKernels::Launch BiasKinds(bool boxes) {
    Begin("what tiles of the bias hold", KernelHead::kPlain, 128, {kLse, kBias, Workspace()});
    Arguments({kLse, kBias, Workspace()});
    const AttentionOperand& bias = call_.operands[kBias];
    Sizes(1);
    const bool packs = boxes && keys_ % (kCopyAlignment / 2) == 0;
    out_.Line("rg_bias_kinds<", packs ? "true" : "false", ">(bias + ", Sized(bias.offset), ", ",
              BiasStrides(), ", ", Sized(BiasExtent(0)), ", ", Sized(BiasExtent(1)), ",");
    out_.Line("              ", Lse(), ", sizes, ", Kinds(), ", ", Sized(KindsBytes()), ");");
    return End(BiasExtent(0) * BiasExtent(1) * QueryTiles() * KeyTiles(), 0);
  }

  AttentionKernels::Launch Queries(const AttentionTile& tile) {
    std::vector<int> places = {kLse, Result(kDQ), Workspace()};
    if (HasScoreGradient(call_)) places.push_back(Result(kDS));
    Begin("the gradient of Q", KernelHead::kAttention, tile.threads(), WithInputs(places));
    CopiedFor(tile, {kQ, kK, kV, kDO, kO});
    Open(absl::StrCat("rg_query_shape<", ShapeText(tile), BoxesText(tile), ">"),
         tile.heads_at_once);
    OpenLoader();
    out_.Line("rg_load_for_queries<shape, ", Causal(), ">(places, &rg_map_q, &rg_map_k,");
    out_.Line("    &rg_map_v, &rg_map_do, &rg_map_rows, added, sizes);");
    OpenRest();
    Arguments({kLse, Result(kDQ)});
    if (!HasBias(call_)) Arguments({Workspace()});
    Scores();
    out_.Line("rg_attention_queries<", Type(), ", shape, ", Causal(), ">(places, ", Lse(),
              ", workspace,");
    out_.Line("    ", Rows(kDQ), ", added, dropout, scores, sizes);");
    out_.Close();
    return End(batch_ * heads_ * CeilDiv(queries_, tile.rows()), SharedBytesOfQueries(tile, dim_));
  }

  AttentionKernels::Launch Keys(const AttentionTile& tile) {
    Begin("the gradients of K and V", KernelHead::kAttention, tile.threads(),
          WithInputs({Result(kDK), Result(kDV), Workspace()}));
    CopiedFor(tile, {kQ, kK, kV, kDO, Workspace()});
    Open(absl::StrCat("rg_key_shape<", ShapeText(tile), ", ", tile.held ? "true" : "false",
                      BoxesText(tile), ">"),
         tile.heads_at_once);
    OpenLoader();
    out_.Line("rg_load_for_keys<shape, ", Causal(), ">(places, &rg_map_q, &rg_map_k,");
    out_.Line("    &rg_map_v, &rg_map_do, &rg_map_rows, added, sizes);");
    OpenRest();
    Arguments({Result(kDK), Result(kDV)});
    out_.Line("rg_attention_keys<", Type(), ", shape, ", Causal(), ">(places, ", Rows(kDK), ",");
    out_.Line("    ", Rows(kDV), ", added, dropout, sizes);");
    out_.Close();
    return End(batch_ * kv_heads_ * CeilDiv(keys_, tile.rows()), SharedBytesOfKeys(tile, dim_));
  }

  int64_t WorkspaceBytes() const {
    return Numbers() * int64_t{sizeof(float)} + (HasBias(call_) ? 2 * KindsBytes() : 0);
  }
  int64_t WorkspaceRows() const { return batch_ * heads_ * QueryTiles(); }

 private:
  // Places of arguments: operands, results, and the workspace.
  int Result(int result) const { return static_cast<int>(call_.operands.size()) + result; }
  int Workspace() const { return Result(static_cast<int>(call_.results.size())); }
  // With the bias, the seed and the offset, if the call has them.
  std::vector<int> WithInputs(std::vector<int> places) const {
    if (HasBias(call_)) places.push_back(kBias);
    for (int place = Seed(); place < Result(0); ++place) places.push_back(place);
    return places;
  }
  int Seed() const { return static_cast<int>(AttentionSeed(call_)); }
  int64_t QueryTiles() const { return CeilDiv(queries_, kTile); }
  int64_t KeyTiles() const { return CeilDiv(keys_, kTile); }
  // Of each tile of queries of each head: the log-sum-exps, then the deltas.
  int64_t Numbers() const { return WorkspaceRows() * 2 * kTile; }
  absl::string_view Type() const { return StorageName(call_.dtype); }
  absl::string_view Causal() const { return call_.causal ? "true" : "false"; }
  std::string ShapeText(const AttentionTile& tile) const {
    return absl::StrJoin(std::vector<int64_t>{dim_, tile.groups, tile.stages, tile.own_stages},
                         ", ");
  }

  // Boxes of the bias behind each stage's tiles.
  std::string BoxesText(const AttentionTile& tile) const {
    return tile.with_bias ? absl::StrCat(", ", tile.groups) : "";
  }
  void CopiedFor(const AttentionTile& tile, std::vector<int> places) {
    if (tile.with_bias) places.push_back(kBias);
    launch_.copied = std::move(places);
    launch_.kernel.maps = static_cast<int>(launch_.copied.size());
    boxes_ = tile.with_bias;
  }

  // Of the bias, which may lack leading axes: axis 0 and 1, as far as it changes along them.
  int64_t BiasExtent(size_t axis) const {
    const AttentionOperand& bias = call_.operands[kBias];
    const size_t missing = 4 - bias.shape.size();
    return axis < missing || bias.strides[axis - missing] == 0 ? 1 : bias.shape[axis - missing];
  }
  std::string BiasStrides() const {
    const AttentionOperand& bias = call_.operands[kBias];
    const size_t missing = 4 - bias.shape.size();
    std::vector<int64_t> strides(4);
    for (size_t axis = missing; axis < 4; ++axis) {
      if (bias.shape[axis - missing] != 1) strides[axis] = bias.strides[axis - missing];
    }
    return absl::StrJoin(strides, ", ", [](std::string* out, int64_t stride) {
      absl::StrAppend(out, Sized(stride));
    });
  }
  int64_t KindsBytes() const {  // by queries, and as many by keys
    return BiasExtent(0) * BiasExtent(1) * QueryTiles() * KeyTiles();
  }
  std::string Kinds() const {
    return absl::StrCat("reinterpret_cast<unsigned char*>(workspace + ", Sized(Numbers()), ")");
  }

  // Head, and what the launch takes.
  void Begin(absl::string_view what, KernelHead head, int threads, const std::vector<int>& places) {
    out_ = SourceWriter();
    out_.SetDepth(1);
    launch_ = {};
    launch_.kernel.head = head;
    launch_.kernel.parts = PreludePart::kAttention;
    if (call_.dropout_p > 0) launch_.kernel.parts |= PreludePart::kDropout;
    launch_.kernel.threads = threads;
    launch_.kernel.threads_meet = true;
    // What the copy engine reads is no argument.
    launch_.kernel.arguments = static_cast<int>(places.size());
    launch_.args = places;
    const bool reads =
        std::find(places.begin(), places.end(), Result(kDK)) != places.end();  // the workspace
    for (const int place : places) {
      launch_.written.push_back(place >= Result(0) && !(place == Workspace() && reads));
    }
    launch_.kernel.function.comment = absl::StrCat(
        "// attention_backward, ", what, "; Q [", batch_, ", ", heads_, ", ", queries_, ", ", dim_,
        "], ", keys_, " keys of ", kv_heads_, " heads", call_.causal ? ", causal" : "",
        call_.dropout_p > 0 ? absl::StrCat(", dropout ", call_.dropout_p) : "", "\n");
  }
  // Declares some of them. What only one warpgroup needs is not in the registers of all.
  void Arguments(const std::vector<int>& places) {
    for (const int place : places) {
      const size_t index = static_cast<size_t>(
          std::find(launch_.args.begin(), launch_.args.end(), place) - launch_.args.begin());
      RG_CHECK(index < launch_.args.size());
      out_.Line("RG_ARG(", launch_.written[index] ? "" : "const ", TypeAt(place), ", ",
                NameAt(place), ", ", index, ");");
    }
  }
  absl::string_view TypeAt(int place) const {
    return place == Workspace() ? "float"
           : place >= Result(0) ? Type()
                                : StorageName(dtypes_[place]);
  }
  absl::string_view NameAt(int place) const {
    if (place >= Seed() && place < Result(0)) return place == Seed() ? "seed" : "offset";
    constexpr absl::string_view kOperandNames[] = {"d_o", "q", "k", "v", "o", "lse", "bias"};
    constexpr absl::string_view kResultNames[] = {"dq", "dk", "dv", "d_s"};
    if (place == Workspace()) return "workspace";
    return place >= Result(0) ? kResultNames[place - Result(0)] : kOperandNames[place];
  }

  // `sizes` and `places`, of a kernel that takes this shape of the work.
  void Open(absl::string_view shape, int64_t chunk) {
    out_.Line("typedef ", shape, " shape;");
    Sizes(chunk);
    out_.Line("const rg_attention_places places = rg_attention_open<shape>(rg_staged_memory);");
  }
  // What the warpgroup that loads does, then what the rest do, each with `added`.
  void OpenLoader() {
    out_.Open("if (rg_attention_group() < 0)");
    out_.Line("rg_registers_fewer<shape>();");
    Added();
  }
  void OpenRest() {
    out_.Else();
    out_.Line("rg_registers_more<shape>();");
    Added();
    Dropout();
  }
  void Dropout() {
    if (call_.dropout_p > 0) {
      Arguments({Seed(), Seed() + 1});
      out_.Line(DropoutText(call_, Dialect::kCuda));
    } else {
      out_.Line("const rg_no_dropout dropout;");
    }
  }
  void Added() {
    if (!HasBias(call_)) {
      out_.Line("const rg_no_bias added;");
      return;
    }
    if (boxes_) {
      Arguments({Workspace()});
      out_.Line("const rg_boxed_bias<", StorageName(dtypes_[kBias]), "> added = {&rg_map_bias,");
      OutKinds();
      return;
    }
    Arguments({kBias, Workspace()});
    out_.Line("const rg_bias<", StorageName(dtypes_[kBias]), "> added = {bias + ",
              Sized(call_.operands[kBias].offset), ", ", BiasStrides(), ",");
    OutKinds();
  }
  void OutKinds() {
    out_.Line("    reinterpret_cast<const unsigned char*>(workspace + ", Sized(Numbers()), "), ",
              Sized(KindsBytes()), ", ", Sized(BiasExtent(0) > 1 ? BiasExtent(1) : 0), ", ",
              BiasExtent(1) > 1 ? 1 : 0, "};");
  }
  // Where the gradients of the scores go.
  void Scores() {
    if (!HasScoreGradient(call_)) {
      out_.Line("const rg_no_scores scores;");
      return;
    }
    Arguments({Result(kDS)});
    const AttentionOperand& t = call_.results[kDS];
    bool pairs = t.shape[3] % 2 == 0 && t.offset % 2 == 0;
    for (int axis = 0; axis < 3; ++axis) {
      pairs = pairs && (t.shape[axis] == 1 || t.strides[axis] % 2 == 0);
    }
    out_.Line("const rg_score_rows<", Type(), ", ", pairs ? "true" : "false", "> scores = {d_s + ",
              Sized(t.offset), ", ", Sized(t.strides[0]), ", ", Sized(t.strides[1]), ", ",
              Sized(t.strides[2]), "};");
  }
  void Sizes(int64_t chunk) {
    out_.Line("const rg_attention_sizes sizes = {", Sized(batch_), ", ", Sized(heads_), ", ",
              Sized(kv_heads_), ", ", Sized(queries_), ", ", Sized(keys_), ", ", "(",
              Sized(queries_), " + ", kTile - 1, ") / ", kTile, " * ", kTile, ", ", Sized(chunk),
              ", ", Literal(call_.scale, DType::kFp32, Dialect::kCuda), "};");
  }
  std::string Lse() const {
    const AttentionOperand& lse = call_.operands[kLse];
    return absl::StrCat("lse + ", Sized(lse.offset), ", ", Sized(lse.strides[0]), ", ",
                        Sized(lse.strides[1]), ", ", Sized(lse.strides[2]));
  }
  std::string Rows(int result) const {
    constexpr absl::string_view kNames[] = {"dq", "dk", "dv"};
    const AttentionOperand& t = call_.results[result];
    return absl::StrCat("rg_head_rows{", kNames[result], " + ", Sized(t.offset), ", ",
                        Sized(t.strides[0]), ", ", Sized(t.strides[1]), ", ", Sized(t.strides[2]),
                        "}");
  }

  AttentionKernels::Launch End(int64_t blocks, int64_t staged_bytes) {
    if (staged_bytes > 0) {
      out_.Line("static_assert(shape::shared_bytes == ", staged_bytes, ");");
    }
    launch_.kernel.function.statements = out_.text();
    NameKernel(&launch_.kernel);
    launch_.kernel.blocks = blocks;
    launch_.kernel.staged_bytes = staged_bytes;
    return std::move(launch_);
  }

  const AttentionCall& call_;
  absl::Span<const DType> dtypes_;
  int64_t batch_, heads_, kv_heads_, queries_, keys_, dim_;
  SourceWriter out_;
  AttentionKernels::Launch launch_;
  bool boxes_ = false;  // its bias comes in boxes
};

// Whether the copy engine, or a thread with 16 bytes at once, reaches every row.
bool Reachable(const AttentionOperand& t) {
  constexpr int64_t kStep = kCopyAlignment / 2, kMostPitch = int64_t{1} << 38;
  if (t.offset % kStep != 0 || t.strides[3] != 1) return false;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t stride = t.strides[axis];
    if (t.shape[axis] != 1 && (stride % kStep != 0 || stride <= 0 || stride >= kMostPitch)) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::Status TiledAttentionRefusal(const AttentionCall& call,
                                   absl::Span<const DType> operand_dtypes) {
  const auto refuse = [&](absl::string_view why) {
    return absl::UnimplementedError(absl::StrCat(
        "attention_backward %", Index(call.node), ", ", Name(call.dtype), " Q[",
        absl::StrJoin(call.operands[kQ].shape, ","), "] K[",
        absl::StrJoin(call.operands[kK].shape, ","), "]: our kernels for tensor cores take ", why));
  };
  RG_CHECK(call.operands.size() >= kBias && operand_dtypes.size() == call.operands.size());
  RG_CHECK(AttentionSeed(call) <= kBias + 1 && call.results.size() >= 3);
  if (call.dtype != DType::kBf16 && call.dtype != DType::kFp16) return refuse("bf16 and fp16 only");
  for (int i = kDO; i < kLse; ++i) {
    if (operand_dtypes[i] != call.dtype) return refuse("operands of the results' type only");
  }
  if (operand_dtypes[kLse] != DType::kFp32) return refuse("an fp32 log-sum-exp only");
  const std::vector<int64_t>& q = call.operands[kQ].shape;
  const std::vector<int64_t>& k = call.operands[kK].shape;
  const int64_t dim = q[3], v_dim = call.operands[kV].shape[3];
  if (dim != v_dim || (dim != 64 && dim != 128)) {
    return refuse("heads of 64 or 128 for keys and values alike");
  }
  // Rows, heads and tiles have numbers of 32 bits.
  int64_t tiles = 1;
  for (const int64_t extent : {q[0], q[1], CeilDiv(q[2], kTile), CeilDiv(k[2], kTile)}) {
    if (extent < 1 || extent > kMostBlocks / tiles) {
      return refuse("from one to 2^31 tiles of 64 queries and keys");
    }
    tiles *= extent;
  }
  if (std::max(q[2], k[2]) > kMostBlocks / 2) return refuse("sequences of less than 2^30");
  constexpr absl::string_view kNames[] = {"dO", "Q", "K", "V", "O", "dQ", "dK", "dV"};
  for (int i = 0; i < 8; ++i) {
    const AttentionOperand& t = i < kLse ? call.operands[i] : call.results[i - kLse];
    if (!Reachable(t)) {
      return refuse(absl::StrCat("rows of packed elements at multiples of 16 bytes; ", kNames[i],
                                 " has the strides ", absl::StrJoin(t.strides, ","),
                                 " and the offset ", t.offset));
    }
  }
  if (HasScoreGradient(call) && call.results[kDS].shape[3] != 1 &&
      call.results[kDS].strides[3] != 1) {
    return refuse("gradients of scores whose neighbouring keys lie side by side");
  }
  if (HasBias(call)) {
    const DType dtype = operand_dtypes[kBias];
    if (dtype != DType::kBf16 && dtype != DType::kFp16 && dtype != DType::kFp32) {
      return refuse(absl::StrCat("no bias in ", Name(dtype)));
    }
  }
  return absl::OkStatus();
}

AttentionKernels EmitTiledAttention(const AttentionCall& call,
                                    absl::Span<const DType> operand_dtypes,
                                    const AttentionTiles& tiles) {
  RG_CHECK(TiledAttentionRefusal(call, operand_dtypes).ok());
  Writer writer(call, operand_dtypes);
  AttentionKernels kernels;
  if (HasBias(call)) kernels.launches.push_back(writer.BiasKinds(tiles.queries.with_bias));
  kernels.launches.push_back(writer.Queries(tiles.queries));
  kernels.launches.push_back(writer.Keys(tiles.keys));
  kernels.workspace_bytes = writer.WorkspaceBytes();
  kernels.workspace_rows = writer.WorkspaceRows();
  return kernels;
}

}  // namespace retrograd
