#include "fusion/pricing/epilogue_price.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/gemm/gemm_candidates.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/grouped_matmul/epilogue_product.h"
#include "fusion/ops/grouped_matmul/grouped_multiplier.h"
#include "fusion/ops/matmul/matmul_cost.h"
#include "fusion/ops/matmul/matmul_epilogue.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

int64_t WithoutLaunch(int64_t ps, const DeviceSpec& device) {
  return std::max<int64_t>(ps - device.launch_graph_ps, 0);
}

// A matmul and the ops that would be its epilogue.
struct Fusion {
  const Group* call = nullptr;
  GroupOps rest;
  EpilogueProduct product() const { return *EpilogueProductOf(*CallOf(*call)); }
};

Fusion Divide(const GroupPricer& pricer, const GroupOps& group) {
  Fusion fusion{.call = pricer.epilogue_roots().In(group.ops)[0], .rest = group};
  std::erase(fusion.rest.ops, fusion.call->nodes[0]);
  return fusion;
}

// What is wrong with the group before a kernel is built; empty: nothing.
std::string WhyNotTogether(const GroupPricer& pricer, const GroupOps& group, const Fusion& fusion) {
  const BackwardGraph& g = pricer.graph();
  const NodeId matmul = fusion.call->nodes[0];
  if (pricer.epilogue_roots().In(group.ops).size() > 1) return "a kernel multiplies once";
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
  if (std::binary_search(group.kept.begin(), group.kept.end(), matmul)) {
    return "what is computed again elsewhere reads the product as well, so that it must be stored";
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

// Of what a matmul takes the library, the multiplying: all of it but its launch and call.
int64_t MultipliedPs(int64_t product_ps, const DeviceSpec& device) {
  return std::max<int64_t>(product_ps - device.launch_graph_ps - device.library_call_ps, 0);
}

// A matmul that takes the library so long, by a tile of which the multiplying takes as much longer.
int64_t TimeBy(const GemmCandidate& tile, int64_t product_ps, const DeviceSpec& device) {
  const int64_t multiplied_ps = MultipliedPs(product_ps, device);
  return product_ps - multiplied_ps + Share(multiplied_ps, tile.time_ppm);
}

// The matmul by its best tile.
struct TiledProduct {
  GemmCandidate best;
  int64_t ps = 0;  // the library's time, by as much as the tile takes longer than the reference
  int64_t operands_ps = 0;  // to read both operands once
  // What it takes at least, since each tile makes its whole sum: a library has slices of sums, and
  // smaller tiles.
  int64_t whole_sums_ps = 0;
  int64_t tiles = 1;  // of the result
  bool own = false;   // what was priced is this very kernel, without an epilogue
};

int64_t TilesOf(const GemmTile& tile, const MatMulCall& call) {
  return std::max<int64_t>(
      Product({Elements(call.batch), CeilDiv(call.m, tile.m), CeilDiv(call.n, tile.n)}), 1);
}

// Groups are multiplied by these kernels anyway.
TiledProduct ProductOfGroups(const GroupedMatMulCall& call, const MatMulCall& all, int64_t call_ps,
                             const DeviceSpec& device) {
  const GemmTile tile =
      MultiplierTileFor(call, {.sms = device.sms, .shared_bytes = device.staged_bytes_per_block});
  return {.best = {.tile = tile}, .ps = call_ps, .tiles = TilesOf(tile, all), .own = true};
}

TiledProduct ProductOf(const MatMulEpilogue& row, const Fusion& fusion, const DeviceSpec& device) {
  const EpilogueProduct made = fusion.product();
  const MatMulCall& call = made.matmul;
  if (made.groups) return ProductOfGroups(*made.groups, call, fusion.call->price_ps, device);
  TiledProduct product{.best = BestGemmTile(row, call.m, call.n, device)};
  product.ps = TimeBy(product.best, fusion.call->price_ps, device);
  product.tiles = TilesOf(product.best.tile, call);
  product.operands_ps = TransferPs(fusion.call->read_bytes, device.hbm_bytes_per_s);
  if (SizeBytes(call.in_dtype) == 2) {
    product.whole_sums_ps = TimeBy(product.best, TiledMatMulPs(call, GemmTile{}.m, device), device);
  }
  return product;
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
// tensor cores never wait, or each half is always at work. Nothing hides the arithmetic of a
// block's last tile, by one warp for each of an SM's schedulers, and the second half waits for the
// first product: where a block has one tile or two, that is much of what it takes.
struct FusedPrice {
  int64_t multiplying_ps = 0, taking_turns_ps = 0;
  int64_t last_tile_ps = 0;      // its arithmetic, in the former
  int64_t first_product_ps = 0;  // in the latter
  int64_t ps() const { return std::max(multiplying_ps, taking_turns_ps); }
};

FusedPrice PriceOf(const MatMulEpilogue& row, const TiledProduct& product, const Pass& pass,
                   const DeviceSpec& device) {
  const int64_t as_library = product.own ? product.ps
                                         : Share(product.ps, row.product_ppm) +
                                               Share(product.operands_ps, row.operand_wait_ppm);
  const int64_t arithmetic_ps = Share(pass.arithmetic_ps, row.arithmetic_ppm);
  FusedPrice price;
  price.last_tile_ps = MulDiv(arithmetic_ps, device.sms, product.tiles);
  price.multiplying_ps = std::max(as_library, product.whole_sums_ps) + price.last_tile_ps;
  if (product.tiles > device.sms) {  // else no half has a second product to wait for
    price.first_product_ps = MultipliedPs(product.ps, device) / CeilDiv(product.tiles, device.sms);
  }
  price.taking_turns_ps =
      product.ps / 2 + Share(pass.ps + arithmetic_ps, row.pass_ppm) + price.first_product_ps;
  return price;
}

std::vector<Term> FusedTerms(const MatMulEpilogue& row, const TiledProduct& product,
                             const Pass& pass, const DeviceSpec& device) {
  const FusedPrice price = PriceOf(row, product, pass, device);
  const bool waits = price.taking_turns_ps > price.multiplying_ps;
  const std::string by_tiles =
      absl::StrCat("by tiles of ", product.best.tile.m, "x", product.best.tile.n);
  return {{"product", price.multiplying_ps, !waits,
           (product.own
                ? absl::StrCat("as without an epilogue, ", by_tiles)
                : absl::StrFormat(
                      "%.2f x %.1f us of the library + %.2f x %.1f us of its operands, at "
                      "least %.1f us, %s%s",
                      row.product_ppm / 1e6, product.ps / 1e6, row.operand_wait_ppm / 1e6,
                      product.operands_ps / 1e6, product.whole_sums_ps / 1e6, by_tiles,
                      product.best.time_ppm == kPpm
                          ? ""
                          : absl::StrFormat(": %.2f of the reference tile's time",
                                            static_cast<double>(product.best.time_ppm) / 1e6))) +
               absl::StrFormat(" + %.1f us of a last tile's arithmetic", price.last_tile_ps / 1e6)},
          {"turns", price.taking_turns_ps, waits,
           absl::StrFormat(
               "half of the product's %.1f us + %.2f x (%.1f us of a pass + %g x %.1f us of its "
               "arithmetic) + %.1f us of a first tile's product",
               product.ps / 1e6, row.pass_ppm / 1e6, pass.ps / 1e6, row.arithmetic_ppm / 1e6,
               pass.arithmetic_ps / 1e6, price.first_product_ps / 1e6)}};
}

}  // namespace

GroupPrice PriceWithEpilogue(const GroupPricer& pricer, const GroupOps& group) {
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
  const KernelIr& ir = KernelOf(*rest)->ir;
  const Chosen chosen = Implementation(pricer.device(), fusion.product().matmul, ir);
  if (chosen.row == nullptr) return refuse(chosen.reason);
  price.ps = PriceOf(*chosen.row, ProductOf(*chosen.row, fusion, pricer.device()),
                     PassOf(*rest, pricer.device()), pricer.device())
                 .ps();
  return price;
}

absl::StatusOr<Group> MakeWithEpilogue(const GroupPricer& pricer, const GroupOps& group,
                                       const Schedule& schedule) {
  const Fusion fusion = Divide(pricer, group);
  if (fusion.rest.ops.empty()) return *fusion.call;
  RG_ASSIGN_OR_RETURN(Group rest, pricer.Make(fusion.rest, schedule));
  Call call = *CallOf(*fusion.call);
  CallEpilogue epilogue{.kernel = std::move(*KernelOf(rest)),
                        .call_ps = fusion.call->price_ps,
                        .kernel_ps = rest.price_ps};
  const Chosen chosen =
      Implementation(pricer.device(), fusion.product().matmul, epilogue.kernel.ir);
  if (chosen.row == nullptr) {
    return absl::InternalError(absl::StrCat("a priced epilogue cannot be made: ", chosen.reason));
  }
  epilogue.implementation = chosen.row->name;
  const TiledProduct multiplied = ProductOf(*chosen.row, fusion, pricer.device());
  epilogue.tile = multiplied.best.tile;
  const ValueId product = call.results[0].value;
  const Pass pass = PassOf(rest, pricer.device());
  Group fused{.nodes = group.ops,
              .inputs = fusion.call->inputs,
              .outputs = std::move(rest.outputs),
              .terms = FusedTerms(*chosen.row, multiplied, pass, pricer.device()),
              .price_ps = PriceOf(*chosen.row, multiplied, pass, pricer.device()).ps(),
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
  call.epilogue = std::move(epilogue);
  fused.body = std::move(call);
  return fused;
}

int64_t LeastProductPs(const Group& product, const DeviceSpec& device) {
  const EpilogueProduct made = *EpilogueProductOf(*CallOf(product));
  if (made.groups) return product.price_ps;
  const MatMulCall& call = made.matmul;
  int64_t least = product.price_ps;
  for (const MatMulEpilogue& row : device.matmul_epilogues) {
    const GemmCandidate best = BestGemmTile(row, call.m, call.n, device);
    least = std::min(least, TimeBy(best, product.price_ps, device));
  }
  return least;
}

int64_t LeastWithEpiloguePs(int64_t products_ps, int64_t rest_ps, const DeviceSpec& device) {
  int64_t ppm = kPpm;
  for (const MatMulEpilogue& row : device.matmul_epilogues) ppm = std::min(ppm, row.pass_ppm);
  return std::max(products_ps, products_ps / 2 + Share(WithoutLaunch(rest_ps, device), ppm));
}

}  // namespace retrograd
