// Indented source text, line by line.
#ifndef RETROGRAD_CODEGEN_PRINT_SOURCE_WRITER_H_
#define RETROGRAD_CODEGEN_PRINT_SOURCE_WRITER_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace retrograd {

class SourceWriter {
 public:
  template <typename... Args>
  void Line(const Args&... args) {
    absl::StrAppend(&text_, std::string(2 * depth_, ' '), args..., "\n");
  }
  // "head {" and all that follows one level deeper, until Close().
  template <typename... Args>
  void Open(const Args&... args) {
    Line(args..., " {");
    ++depth_;
  }
  // Between two branches: "} else {" or "} else if (...) {".
  template <typename... Args>
  void Else(const Args&... condition) {
    --depth_;
    Line("} else ", condition..., "{");
    ++depth_;
  }
  void OpenScope() {
    Line("{");
    ++depth_;
  }
  // "}", and what stands behind it: ";" of a function that is a value.
  void Close(absl::string_view behind = "") {
    --depth_;
    Line("}", behind);
  }
  // A line at the margin, such as a pragma; nothing if it is empty.
  void Pragma(absl::string_view text) {
    if (!text.empty()) absl::StrAppend(&text_, text, "\n");
  }
  void SetDepth(int depth) { depth_ = depth; }
  const std::string& text() const { return text_; }

 private:
  int depth_ = 0;
  std::string text_;
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_SOURCE_WRITER_H_
