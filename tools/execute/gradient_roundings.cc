#include "tools/execute/gradient_roundings.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/passes/expand.h"
#include "graph/reference/reference.h"
#include "tools/execute/element_values.h"

namespace retrograd {
namespace {

// Roundings that a chain of ops may add up in one direction.
constexpr double kRoundings = 4;

// The largest relative error of rounding to the nearest value of a type.
double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::kFp8E5M2:
    case DType::kFp8E5M2Fnuz: return 0x1p-3;
    case DType::kFp8E4M3:
    case DType::kFp8E4M3Fnuz: return 0x1p-4;
    case DType::kBf16: return 0x1p-8;
    case DType::kFp16: return 0x1p-11;
    case DType::kFp32: return 0x1p-24;
    default: return 0x1p-53;
  }
}

double LargestRoundoff(const BackwardGraph& graph) {
  double largest = UnitRoundoff(DType::kFp64);
  for (uint32_t n = 0; n < graph.num_nodes(); ++n) {
    for (const TensorType& type : graph.node(NodeId{n}).results) {
      if (IsFloat(type.dtype)) largest = std::max(largest, UnitRoundoff(type.dtype));
    }
  }
  return largest;
}

absl::StatusOr<std::vector<Values>> InputValues(const BackwardGraph& graph, const Bundle& bundle) {
  std::vector<Values> inputs;
  for (NodeId id : InputNodes(graph)) {
    const TensorType& type = graph.type(id);
    const std::vector<int64_t>& given = graph.node(id).input->strides;
    const std::vector<int64_t> strides = given.empty() ? DenseStrides(type.shape) : given;
    const std::string name = absl::StrCat("input/", Index(id));
    const BundleTensor* const tensor = bundle.Find(name);
    const int64_t bytes = SpanElements(type.shape, strides) * SizeBytes(type.dtype);
    if (tensor == nullptr || static_cast<int64_t>(bundle.Bytes(*tensor).size()) != bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the bundle has no \"", name, "\" of ", bytes, " bytes"));
    }
    inputs.push_back(ElementValues(bundle.Bytes(*tensor), type, strides));
  }
  return inputs;
}

double NormOf(const Values& values) {
  double squares = 0;
  for (const double v : values) squares += v * v;
  return std::sqrt(squares);
}

}  // namespace

absl::StatusOr<std::vector<double>> GradientRoundings(const BackwardGraph& graph,
                                                      const Bundle& bundle) {
  RG_ASSIGN_OR_RETURN(const std::vector<Values> inputs, InputValues(graph, bundle));
  RG_ASSIGN_OR_RETURN(const BackwardGraph expanded, ExpandComposites(graph));
  RG_ASSIGN_OR_RETURN(const std::vector<Values> values,
                      Evaluate(expanded, inputs, {.keep_all = true}));
  RG_ASSIGN_OR_RETURN(const std::vector<Values> magnitudes, Magnitudes(expanded, values));
  const double unit = LargestRoundoff(graph);
  std::vector<double> roundings;
  for (const GraphOutput& output : expanded.outputs()) {
    roundings.push_back(output.value ? kRoundings * unit *
                                           NormOf(magnitudes[expanded.value_index(*output.value)])
                                     : 0);
  }
  return roundings;
}

}  // namespace retrograd
