#include "fusion/matmul_epilogue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/product_tiles.h"
#include "graph/status.h"

namespace retrograd {
namespace {

constexpr int64_t kMillion = 1'000'000;
// An epilogue has a single warp on each of an SM's schedulers, a pass several, which hide each
// other's waits: gelu's arithmetic was measured to take three times as long, as part of an
// epilogue's share of a pass.
constexpr int64_t kArithmeticFactor = 3;

// Parts per million of a time, without overflow.
int64_t Share(int64_t ps, int64_t ppm) {
  return ps / kMillion * ppm + ps % kMillion * ppm / kMillion;
}

int64_t WithoutLaunch(int64_t ps, const DeviceSpec& device) {
  return std::max<int64_t>(ps - device.launch_graph_ps, 0);
}

// Whether the offset numbers the points: each exactly once, from 0 on.
bool NumbersThePoints(const IndexExpr& offset, const KernelIr& ir) {
  if (!offset.is_affine() || offset.offset() != 0) return false;
  std::vector<std::pair<int64_t, int64_t>> axes;  // coefficient, extent
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (ir.extents[a] > 1) axes.push_back({offset.axis_coef(static_cast<int>(a)), ir.extents[a]});
  }
  std::sort(axes.begin(), axes.end());
  int64_t next = 1;
  for (const auto& [coefficient, extent] : axes) {
    if (coefficient != next) return false;
    next *= extent;
  }
  return true;
}

// A matmul and the ops that would be its epilogue.
struct Fusion {
  const Group* call = nullptr;
  GroupOps rest;
  const MatMulCall& product() const { return std::get<MatMulCall>(call->body); }
};

Fusion Divide(const GroupPricer& pricer, const GroupOps& group) {
  Fusion fusion{.call = pricer.anchors().In(group.ops)[0], .rest = group};
  std::erase(fusion.rest.ops, fusion.call->nodes[0]);
  return fusion;
}

// What is wrong with the group before a kernel is built; empty: nothing.
std::string WhyNotTogether(const GroupPricer& pricer, const GroupOps& group, const Fusion& fusion) {
  const BackwardGraph& g = pricer.graph();
  const NodeId matmul = fusion.call->nodes[0];
  if (pricer.anchors().In(group.ops).size() > 1) return "a kernel multiplies once";
  for (NodeId id : fusion.rest.ops) {
    if (MayFollow(g, id, g.type(matmul))) continue;
    return absl::StrCat("%", Index(id), " (", Name(g.op(id)),
                        ") is not computed point by point where "
                        "the product is");
  }
  for (NodeId user : pricer.consumers().of(matmul)) {
    if (std::binary_search(group.ops.begin(), group.ops.end(), user)) continue;
    return absl::StrCat("%", Index(user), " reads the product as well, so that it must be stored");
  }
  return "";
}

struct Chosen {
  const MatMulEpilogue* row = nullptr;
  std::string reason;  // if none
};

// The first implementation that takes the epilogue: rows stand best first.
Chosen Implementation(const DeviceSpec& device, const MatMulCall& product,
                      const KernelIr& epilogue) {
  Chosen chosen;
  for (const MatMulEpilogue& row : device.matmul_epilogues) {
    if (!TakesProduct(row, product)) continue;
    chosen.reason = WhyNoEpilogue(epilogue, product.d.value, row);
    if (!chosen.reason.empty()) continue;
    chosen.row = &row;
    break;
  }
  return chosen;
}

// What an epilogue takes as a pass of its own: all of it but the launch, and the arithmetic in it.
struct Pass {
  int64_t ps = 0, arithmetic_ps = 0;
};

Pass PassOf(const Group& rest, const DeviceSpec& device) {
  Pass pass{.ps = WithoutLaunch(rest.price_ps, device)};
  for (const Term& term : rest.terms) {
    if (term.name == "compute") pass.arithmetic_ps = term.ps;
  }
  return pass;
}

// Two halves of a block take turns: one multiplies while the other makes its epilogue. Either the
// tensor cores never wait, or each half is always at work.
struct FusedPrice {
  int64_t multiplying_ps = 0, taking_turns_ps = 0;
  int64_t ps() const { return std::max(multiplying_ps, taking_turns_ps); }
};

FusedPrice PriceOf(const MatMulEpilogue& row, int64_t product_ps, const Pass& pass) {
  return {.multiplying_ps = Share(product_ps, row.product_ppm),
          .taking_turns_ps = product_ps / 2 +
                             Share(pass.ps + kArithmeticFactor * pass.arithmetic_ps, row.pass_ppm)};
}

std::vector<Term> FusedTerms(const MatMulEpilogue& row, int64_t product_ps, const Pass& pass) {
  const FusedPrice price = PriceOf(row, product_ps, pass);
  const bool waits = price.taking_turns_ps > price.multiplying_ps;
  return {
      {"product", price.multiplying_ps, !waits,
       absl::StrFormat("%.2f x %.1f us of the library", row.product_ppm / 1e6, product_ps / 1e6)},
      {"turns", price.taking_turns_ps, waits,
       absl::StrFormat(
           "half of the library's %.1f us + %.2f x (%.1f us of a pass + %d x %.1f us of its "
           "arithmetic)",
           product_ps / 1e6, row.pass_ppm / 1e6, pass.ps / 1e6, kArithmeticFactor,
           pass.arithmetic_ps / 1e6)}};
}

}  // namespace

bool TakesProduct(const MatMulEpilogue& row, const MatMulCall& call) {
  const bool known =
      std::find(row.dtypes.begin(), row.dtypes.end(), call.in_dtype) != row.dtypes.end();
  const bool tiled = SizeBytes(call.in_dtype) != 2 || WhyNoTiles(call).empty();
  return known && call.out_dtype == call.in_dtype && !call.accumulate && tiled;
}

bool MayFollow(const BackwardGraph& graph, NodeId id, const TensorType& product) {
  const Pattern p = graph.pattern(id);
  return (p == Pattern::kPointwise || p == Pattern::kAccumulate) &&
         graph.type(id).elements() == product.elements();
}

std::string WhyNoEpilogue(const KernelIr& ir, ValueId product, const MatMulEpilogue& row) {
  int reads = 0, stores = 0, product_buffer = -1;
  for (size_t b = 0; b < ir.buffers.size(); ++b) {
    if (ir.buffers[b].written) {
      ++stores;
    } else if (ir.buffers[b].value == product) {
      product_buffer = static_cast<int>(b);
    } else {
      ++reads;
    }
  }
  if (product_buffer < 0) return "the epilogue does not read the product";
  if (reads > row.max_reads) {
    return absl::StrCat(row.name, " reads at most ", row.max_reads,
                        " tensors beside the product, not ", reads);
  }
  if (stores > row.max_stores) {
    return absl::StrCat(row.name, " stores at most ", row.max_stores, " tensors, not ", stores);
  }
  if (ir.scatter) return "a scatter follows no product";
  for (const Instr& i : ir.instrs) {
    if (i.kind == InstrKind::kReduce) return "the epilogue sums over the product's points";
    if (!i.indirect.empty() || !i.guards.empty()) {
      return "the epilogue chooses what it reads point by point";
    }
    if (i.kind == InstrKind::kLoad && i.buffer == product_buffer &&
        !NumbersThePoints(i.offset, ir)) {
      return "the epilogue reads the product elsewhere than at its own point";
    }
  }
  if (SizeBytes(ir.buffers[product_buffer].dtype) == 2) {
    if (std::string why = WhyNotByTiles(ir, product); !why.empty()) {
      return absl::StrCat("the epilogue follows no tiles: ", why);
    }
  }
  return "";
}

GroupPrice PriceAnchored(const GroupPricer& pricer, const GroupOps& group) {
  const Fusion fusion = Divide(pricer, group);
  if (fusion.rest.ops.empty()) {
    return {.feasible = true,
            .ps = fusion.call->price_ps,
            .passed_bytes = pricer.graph().type(fusion.call->nodes[0]).size_bytes()};
  }
  auto refuse = [](std::string reason) {
    return GroupPrice{.limit = "epilogue", .reason = std::move(reason)};
  };
  if (std::string why = WhyNotTogether(pricer, group, fusion); !why.empty()) return refuse(why);
  GroupPrice price = pricer.Evaluate(fusion.rest);
  if (!price.feasible) return price;
  absl::StatusOr<Group> rest = pricer.Make(fusion.rest, price.schedule);
  if (!rest.ok()) return refuse(std::string(rest.status().message()));
  const KernelIr& ir = std::get<KernelBody>(rest->body).ir;
  const Chosen chosen = Implementation(pricer.device(), fusion.product(), ir);
  if (chosen.row == nullptr) return refuse(chosen.reason);
  price.ps = PriceOf(*chosen.row, fusion.call->price_ps, PassOf(*rest, pricer.device())).ps();
  return price;
}

absl::StatusOr<Group> MakeAnchored(const GroupPricer& pricer, const GroupOps& group,
                                   const Schedule& schedule) {
  const Fusion fusion = Divide(pricer, group);
  if (fusion.rest.ops.empty()) return *fusion.call;
  RG_ASSIGN_OR_RETURN(Group rest, pricer.Make(fusion.rest, schedule));
  FusedMatMul body{.product = fusion.product(),
                   .epilogue = std::get<KernelBody>(std::move(rest.body)),
                   .product_ps = fusion.call->price_ps,
                   .epilogue_ps = rest.price_ps};
  const Chosen chosen = Implementation(pricer.device(), body.product, body.epilogue.ir);
  if (chosen.row == nullptr) {
    return absl::InternalError(absl::StrCat("a priced epilogue cannot be made: ", chosen.reason));
  }
  body.implementation = chosen.row->name;
  const ValueId product = body.product.d.value;
  const Pass pass = PassOf(rest, pricer.device());
  Group fused{.nodes = group.ops,
              .inputs = fusion.call->inputs,
              .outputs = std::move(rest.outputs),
              .terms = FusedTerms(*chosen.row, body.product_ps, pass),
              .price_ps = PriceOf(*chosen.row, body.product_ps, pass).ps(),
              .workspace_bytes = rest.workspace_bytes,
              .read_bytes = fusion.call->read_bytes + rest.read_bytes -
                            pricer.graph().type(product.node).size_bytes(),
              .written_bytes = rest.written_bytes};
  // The product's operands are read by all blocks until the last has multiplied.
  auto is_free = [&](ValueId v) {
    return v != product &&
           !std::binary_search(fusion.call->inputs.begin(), fusion.call->inputs.end(), v);
  };
  for (const Group::InPlace& pair : rest.in_place) {
    if (is_free(pair.input)) fused.in_place.push_back(pair);
  }
  for (ValueId v : rest.inputs) {
    if (v != product) fused.inputs.push_back(v);
  }
  std::sort(fused.inputs.begin(), fused.inputs.end());
  fused.inputs.erase(std::unique(fused.inputs.begin(), fused.inputs.end()), fused.inputs.end());
  fused.body = std::move(body);
  return fused;
}

int64_t LeastAnchoredPs(int64_t products_ps, int64_t rest_ps, const DeviceSpec& device) {
  int64_t ppm = kMillion;
  for (const MatMulEpilogue& row : device.matmul_epilogues) ppm = std::min(ppm, row.pass_ppm);
  return std::max(products_ps, products_ps / 2 + Share(WithoutLaunch(rest_ps, device), ppm));
}

}  // namespace retrograd
