#include "tools/calibrate/chain_graph.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace retrograd {

std::string ChainGraph(const std::string& op, bool binary, int64_t elements, int links,
                       const std::string& dtype) {
  std::string text = absl::StrFormat("%%0 = input name=\"x\" kind=tangent alignment=16  %s[%d]\n",
                                     dtype, elements);
  int last = 0;
  if (binary) {
    absl::StrAppendFormat(&text, "%%1 = input name=\"b\" kind=saved alignment=16  %s[%d]\n", dtype,
                          elements);
    last = 1;
  }
  for (int i = 0; i < links; ++i, ++last) {
    const int operand = i == 0 ? 0 : last;
    absl::StrAppendFormat(&text, "%%%d = %s %s%%%d\n", last + 1, op, binary ? "%1 " : "", operand);
  }
  return absl::StrCat(text, "output %", last, " name=\"y\"\n");
}

}  // namespace retrograd
