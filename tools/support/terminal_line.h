// Lines for a terminal.
#ifndef RETROGRAD_TOOLS_SUPPORT_TERMINAL_LINE_H_
#define RETROGRAD_TOOLS_SUPPORT_TERMINAL_LINE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace retrograd {

inline constexpr size_t kTerminalColumns = 120;

// The line, cut where it is longer. Origins come from files: nothing but printing ASCII reaches the
// terminal, other characters are question marks.
std::string FitLine(absl::string_view line);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_SUPPORT_TERMINAL_LINE_H_
