// What sort_indices makes of a list of indices, by the reference evaluator.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_SORTED_LIST_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_SORTED_LIST_H_

#include <cstdint>
#include <vector>

namespace retrograd {

std::vector<double> SortedList(const std::vector<double>& indices, int64_t rows);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_SORTED_LIST_H_
