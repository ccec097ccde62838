#include "graph/ir/library/refusals.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace retrograd {

std::string PrintInts(absl::Span<const int64_t> list) {
  return absl::StrCat("[", absl::StrJoin(list, ","), "]");
}

absl::Status BadOperands(Malformation kind, LibraryOp::Operands operands, absl::string_view rule) {
  const auto print = [](std::string* out, const TensorType* type) {
    absl::StrAppend(out, type->Print());
  };
  return Malformed(kind,
                   absl::StrCat("operands ", absl::StrJoin(operands, ", ", print), ": ", rule));
}

bool SameDType(LibraryOp::Operands operands) {
  return std::all_of(operands.begin(), operands.end(),
                     [&](const TensorType* type) { return type->dtype == operands[0]->dtype; });
}

absl::StatusOr<DType> ResultDType(const Attrs& attrs, DType fallback) {
  if (attrs.Find("dtype") == nullptr) return fallback;
  const DType dtype = *DTypeByName(attrs.String("dtype"));
  if (IsFloat(dtype)) return dtype;
  return Malformed(Malformation::kAttrRange,
                   absl::StrCat("attribute dtype is ", Name(dtype), "; it has to be floating"));
}

}  // namespace retrograd
