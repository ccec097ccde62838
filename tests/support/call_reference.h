// What a library call computes, by the reference evaluator.
#ifndef RETROGRAD_TESTS_SUPPORT_CALL_REFERENCE_H_
#define RETROGRAD_TESTS_SUPPORT_CALL_REFERENCE_H_

#include <vector>

#include "graph/reference/library_reference.h"
#include "runtime/device/device.h"
#include "tests/catch.h"

namespace retrograd {

// The first result's elements, row-major and not rounded to its type. Operands are row-major.
inline std::vector<double> EvaluateCall(const Call& call,
                                        const std::vector<std::vector<double>>& values) {
  std::vector<TensorType> types;
  std::vector<DenseTensor> operands;
  for (const CallTensor& t : call.operands) types.push_back({t.dtype, t.shape});
  for (size_t i = 0; i < types.size(); ++i) operands.push_back({&types[i], values[i].data()});
  const std::vector<TensorType> results = {{call.results[0].dtype, call.results[0].shape}};
  std::vector<double> wanted(static_cast<size_t>(Elements(call.results[0].shape)));
  double* const out[] = {wanted.data()};
  REQUIRE(EvaluateLibrary({.op = call.op,
                           .attrs = call.attributes,
                           .operands = operands,
                           .exact = operands,
                           .results = results},
                          out)
              .ok());
  return wanted;
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_CALL_REFERENCE_H_
