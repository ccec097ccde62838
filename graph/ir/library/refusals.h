// What the shape rules of library ops have in common: how a refusal names the operands, and the
// optional attribute dtype.
#ifndef RETROGRAD_GRAPH_IR_LIBRARY_REFUSALS_H_
#define RETROGRAD_GRAPH_IR_LIBRARY_REFUSALS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "graph/base/malformations.h"
#include "graph/ir/library_ops.h"

namespace retrograd {

std::string PrintInts(absl::Span<const int64_t> list);  // "[1,2]"

// "operands f32[4,8], f32[8]: <rule>", with the code of the broken rule.
absl::Status BadOperands(Malformation kind, LibraryOp::Operands operands, absl::string_view rule);

bool SameDType(LibraryOp::Operands operands);

// Why no product has an fp8 dtype: a quantiser's scale comes between.
inline constexpr absl::string_view kSumsAreWide =
    "products are not stored as fp8: name a wider dtype for the result";

// The dtype that the attribute dtype names, else `fallback`; a floating one.
absl::StatusOr<DType> ResultDType(const Attrs& attrs, DType fallback);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_LIBRARY_REFUSALS_H_
