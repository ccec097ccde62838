// Pieces of the C++ text of a point.
#ifndef RETROGRAD_CODEGEN_PRINT_POINT_TEXT_H_
#define RETROGRAD_CODEGEN_PRINT_POINT_TEXT_H_

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// The variable of an instruction's value.
inline std::string Local(int instr) { return absl::StrCat("v", instr); }

inline std::string Cast(absl::string_view type, absl::string_view value) {
  return absl::StrCat("static_cast<", type, ">(", value, ")");
}

// Both conditions; an empty one always holds.
inline std::string And(absl::string_view a, absl::string_view b) {
  if (a.empty() || b.empty()) return absl::StrCat(a, b);
  return absl::StrCat(a, " && ", b);
}

// The statement where the condition holds; an empty one always does.
inline std::string If(absl::string_view condition, absl::string_view statement) {
  return condition.empty() ? std::string(statement)
                           : absl::StrCat("if (", condition, ") ", statement);
}

// Whether what the load's guards leave out is 0, all of whose bits are 0.
inline bool FillsZeros(const Instr& load) { return load.fill == 0 && !std::signbit(load.fill); }

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_POINT_TEXT_H_
