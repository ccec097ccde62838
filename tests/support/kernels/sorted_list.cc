#include "tests/support/kernels/sorted_list.h"

#include "graph/base/status.h"
#include "graph/ir/sorted_indices.h"
#include "graph/reference/library_reference.h"

namespace retrograd {

std::vector<double> SortedList(const std::vector<double>& indices, int64_t rows) {
  const SortedIndices sorted{.rows = rows, .indices = static_cast<int64_t>(indices.size())};
  const TensorType type{DType::kInt64, {sorted.indices}};
  const TensorType result{DType::kInt32, {sorted.elements()}};
  const DenseTensor list{.type = &type, .data = indices.data()};
  const Attrs attrs = {{"rows", rows}};
  std::vector<double> made(sorted.elements());
  double* const out = made.data();
  const absl::Status status = EvaluateLibrary({.op = Op::sort_indices,
                                               .attrs = attrs,
                                               .operands = {&list, 1},
                                               .exact = {&list, 1},
                                               .results = {&result, 1}},
                                              {&out, 1});
  RG_CHECK(status.ok());
  return made;
}

}  // namespace retrograd
