#include "codegen/print/row_ends.h"

#include "absl/strings/str_cat.h"
#include "codegen/print/numbers/sized_number.h"

namespace retrograd {

void DeclareEnds(const PointPrinter& vectors, LaunchText* launch) {
  const KernelIr& ir = launch->ir();
  const int width = vectors.width();
  const int64_t columns = ir.extents[vectors.vectors().axis];
  const std::string phase = vectors.Text(vectors.vectors().phase);
  // -phase modulo a power of two.
  const std::string head = phase == "0" ? phase : absl::StrCat("-(", phase, ") & ", width - 1);
  launch->out.Line("const ", launch->index_type(), " head = ", head, ";");
  launch->out.Line("const ", launch->index_type(), " tail = ", Sized(columns), " - (",
                   Sized(columns), " - head) % ", width, ";");
}

void OpenEnd(absl::string_view e, absl::string_view condition, LaunchText* launch) {
  const KernelIr& ir = launch->ir();
  launch->out.Line("const ", launch->index_type(), " c = ", e, " < head ? ", e, " : ", e,
                   " - head + tail;");
  launch->out.Open("if (", condition, condition.empty() ? "" : " && ", "c < ",
                   Sized(ir.extents[FastestAxis(ir)]), ")");
}

}  // namespace retrograd
