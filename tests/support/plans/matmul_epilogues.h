// Plans whose matmuls make more of their product before storing it, for tests of such plans and of
// the kernels that run them.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_MATMUL_EPILOGUES_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_MATMUL_EPILOGUES_H_

#include <vector>

#include "fusion/planner/planner.h"

namespace retrograd {

// The H200 with epilogues of all kinds, which cost next to nothing, for products of these dtypes;
// one reads at most so many tensors beside the product, and stores at most so many.
DeviceSpec EagerEpilogues(std::vector<DType> dtypes, int most_reads = 40, int most_stores = 40);

// A graph as text: a product whose epilogue the H200's spec prices below a pass of its own.
inline constexpr char kMatMulWithEpilogue[] = R"(
%0 = input name="dy" kind=tangent alignment=16  bf16[98304,512]
%1 = input name="w" kind=parameter alignment=16  bf16[512,2048]
%2 = input name="u" kind=saved alignment=16  bf16[98304,2048]
%3 = matmul %0 %1
%4 = mul %3 %2
%5 = mul %4 %2
output %5 name="du"
)";

// How many of the plan's groups are matmuls with an epilogue.
int Epilogues(const FusionPlan& plan);

// The plan, which must be made, and be right by the plan checker.
Planned PlanWith(const BackwardGraph& graph, const DeviceSpec& device,
                 const PlanOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_MATMUL_EPILOGUES_H_
