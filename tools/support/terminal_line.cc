#include "tools/support/terminal_line.h"

namespace retrograd {

std::string FitLine(absl::string_view line) {
  std::string text;
  for (char c : line) text.push_back(c >= ' ' && c <= '~' ? c : '?');
  if (text.size() > kTerminalColumns) text.replace(kTerminalColumns - 3, text.npos, "...");
  return text;
}

}  // namespace retrograd
