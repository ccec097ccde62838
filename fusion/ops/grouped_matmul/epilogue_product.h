// A product that an epilogue may follow: a matmul's, or that of rows in groups, each of which has a
// matrix of its own. What follows is the same kernel of the product's points, tile by tile.
#ifndef RETROGRAD_FUSION_OPS_GROUPED_MATMUL_EPILOGUE_PRODUCT_H_
#define RETROGRAD_FUSION_OPS_GROUPED_MATMUL_EPILOGUE_PRODUCT_H_

#include <optional>
#include <string>

#include "fusion/ops/grouped_matmul/grouped_matmul_call.h"
#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

struct EpilogueProduct {
  MatMulCall matmul;  // of groups: all rows, by the first group's matrix
  std::optional<GroupedMatMulCall> groups;
  ValueId ends{};  // of groups: the stored value that says where they end
};

// nullopt: no epilogue follows such a call. It is no product, its sums are in groups, it adds to
// what is there, or it has scales.
std::optional<EpilogueProduct> EpilogueProductOf(const Call& call);

// Why no kernel makes the product in tiles that an epilogue reads. Empty if one can.
std::string WhyNoTiles(const BackwardGraph& graph, const EpilogueProduct& product);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_GROUPED_MATMUL_EPILOGUE_PRODUCT_H_
