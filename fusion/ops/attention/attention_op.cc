// The row of attention_backward.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/call_op.h"

namespace retrograd {
namespace {

constexpr int64_t kTile = 128;  // queries or keys that a block works on
// The same of fp32 and fp64, and keys or queries that pass by at once (warp_attention_tiles.h).
constexpr int64_t kWideRows = 64, kWideColumns = 32;
constexpr int64_t kLaunches = 3;  // row sums, the products, and dQ's last sum or cast

bool IsWide(DType dtype) { return SizeBytes(dtype) > 2; }
int64_t RowsOfBlock(DType dtype) { return IsWide(dtype) ? kWideRows : kTile; }

// Heads lie as they like, their elements side by side.
bool HasUnitStride(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  return shape.size() < 4 || strides.back() == 1 || shape.back() == 1;
}

bool StoresUnitStride(absl::Span<const int64_t>, absl::Span<const int64_t> strides) {
  return strides.back() == 1;
}

Price PriceCall(const Call& call, const DeviceSpec& d, bool explain) {
  Price price;
  const DType dtype = call.operands[0].dtype;
  const bool causal = call.attributes.Int("causal") != 0;
  for (const CallTensor& o : call.operands) {
    price.read_bytes += Elements(o.shape) * SizeBytes(call.operands[0].dtype);
  }
  for (const CallTensor& o : call.results) {
    price.written_bytes += Elements(o.shape) * SizeBytes(call.operands[0].dtype);
  }
  // Five matrix products over the scores: S, dP, dV, dQ, dK, in whole tiles, a block for each tile
  // of queries and as many rounds of blocks as the SMs need. Causal: half of the scores.
  const std::vector<int64_t>& q = call.operands[1].shape;
  const std::vector<int64_t>& k = call.operands[2].shape;
  const int64_t rows = RowsOfBlock(dtype), columns = IsWide(dtype) ? kWideColumns : kTile;
  const int64_t blocks = Product({q[0], q[1], CeilDiv(q[2], rows)});
  const int64_t in_rounds = Product({CeilDiv(blocks, d.sms), d.sms});
  int64_t flops = Product({10, in_rounds, rows, CeilDiv(k[2], columns), columns, q[3]});
  if (causal) flops /= 2;
  const auto wide = [&](int64_t matmul) { return Share(matmul, d.attention_fp32_ppm); };
  const int64_t rate = dtype == DType::kFp32   ? wide(d.matmul_fp32_flops)
                       : dtype == DType::kFp64 ? wide(d.matmul_fp64_flops)
                                               : d.attention_flops;
  const int64_t compute = MulDiv(std::max<int64_t>(flops, 1), kPsPerSecond, rate);
  const int64_t hbm = TransferPs(price.read_bytes + price.written_bytes, d.hbm_bytes_per_s);
  const int64_t launches = Product({kLaunches, d.launch_graph_ps}) + d.library_call_ps;
  price.ps = Saturated(launches + std::max(compute, hbm));
  if (explain) {
    price.terms = {
        {"launch", launches, false, absl::StrCat("one library call, ", kLaunches, " launches")},
        {"flops", compute, compute >= hbm,
         absl::StrFormat("%d flops / %.0f TFLOP/s", flops, static_cast<double>(rate) / 1e12)},
        {"hbm", hbm, hbm > compute,
         absl::StrCat(price.read_bytes, " B read + ", price.written_bytes, " B written")}};
  }
  return price;
}

int64_t Blocks(const Call& call) {
  const Shape& q = call.operands[1].shape;  // [batch, heads, tokens, dim]
  return q[0] * q[1] * CeilDiv(q[2], RowsOfBlock(call.operands[0].dtype));
}

std::string Describe(const Call& call) {
  const Shape &q = call.operands[1].shape, &k = call.operands[2].shape;
  return absl::StrFormat("attention %dx%d heads, %d queries, %d keys, dim %d%s%s", q[0], q[1], q[2],
                         k[2], q[3], call.attributes.Int("causal") != 0 ? ", causal" : "",
                         call.results.size() > 3 ? ", gradient of scores" : "");
}

CallSizes Sizes(const Call& call) {
  const Shape &q = call.operands[1].shape, &k = call.operands[2].shape;
  return {{"batch", q[0]},   {"heads", q[1]}, {"kv_heads", k[1]},
          {"queries", q[2]}, {"keys", k[2]},  {"head_size", q[3]}};
}

}  // namespace

// dQ lies like Q, dK like K, dV like V: the host's own order of heads and tokens. dS as its reader
// likes.
const CallOp kAttentionCalls = {
    .op = Op::attention_backward,
    .name = "attention",
    .reads = HasUnitStride,
    .stores = StoresUnitStride,
    .result_like = [](int result) { return result < 3 ? 1 + result : -1; },
    .stores_slices = true,
    .price = PriceCall,
    .blocks = Blocks,
    .describe = Describe,
    .sizes = Sizes};

}  // namespace retrograd
