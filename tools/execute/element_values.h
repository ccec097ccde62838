// The elements of a tensor's storage as numbers.
#ifndef RETROGRAD_TOOLS_EXECUTE_ELEMENT_VALUES_H_
#define RETROGRAD_TOOLS_EXECUTE_ELEMENT_VALUES_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/base/tensor_type.h"

namespace retrograd {

// Row-major; strides in elements.
std::vector<double> ElementValues(absl::string_view storage, const TensorType& type,
                                  absl::Span<const int64_t> strides);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_ELEMENT_VALUES_H_
