#include "codegen/templates/point_staging.h"

#include "absl/strings/str_cat.h"
#include "codegen/print/numbers/sized_number.h"
#include "fusion/kernel/ir/accesses/point_rows.h"

namespace retrograd {
namespace {

std::string Plus(absl::string_view text, int64_t number) {
  return number == 0 ? std::string(text) : absl::StrCat(text, " + ", number);
}

class Staging {
 public:
  Staging(const PointRows& rows, LaunchText& launch)
      : rows_(rows),
        launch_(launch),
        threads_(launch.threads()),
        to_(launch.Shared(launch.ir().buffers[rows.buffer].dtype, absl::StrCat("s", rows.buffer),
                          ElementsOf(rows, launch.threads()))),
        from_(launch.BufferName(rows.buffer)) {}

  void Print() { rows_.whole ? PrintRun() : PrintRows(); }

 private:
  std::string Copy(int piece, absl::string_view at, absl::string_view element) const {
    return absl::StrCat("rg_copy_ahead<", piece, ">(", to_, ", ", at, ", ", from_, ", ", element,
                        ");");
  }

  // From the first row's first element to the last row's last, in whole pieces and what is left.
  void PrintRun() {
    const std::string first = Plus(absl::StrCat("point0 * ", rows_.pitch), rows_.first);
    const std::string element = absl::StrCat(first, " + n");
    SourceWriter& out = launch_.out;
    out.OpenScope();
    out.Line("const int end = ", Plus(absl::StrCat("(rows - 1) * ", rows_.pitch), rows_.width),
             ";");
    if (rows_.piece == 1) {
      out.Open("for (int n = RG_THREAD; n < end; n += ", threads_, ")");
      out.Line(Copy(1, "n", element));
      out.Close();
      out.Close();
      return;
    }
    out.Line("const int left = end % ", rows_.piece, ";");
    out.Open("for (int n = RG_THREAD * ", rows_.piece,
             "; n < end - left; n += ", threads_ * rows_.piece, ")");
    out.Line(Copy(rows_.piece, "n", element));
    out.Close();
    out.Open("if (RG_THREAD < left)");
    out.Line("const int n = end - left + RG_THREAD;");
    out.Line(Copy(1, "n", element));
    out.Close();
    out.Close();
  }

  // The part of each row that is read, piece by piece.
  void PrintRows() {
    const int64_t pieces = rows_.width / rows_.piece;
    const std::string column = rows_.piece == 1 ? "c" : absl::StrCat("c * ", rows_.piece);
    SourceWriter& out = launch_.out;
    out.Open("for (int n = RG_THREAD; n < rows * ", pieces, "; n += ", threads_, ")");
    out.Line("const int r = n / ", pieces, ", c = n % ", pieces, ";");
    out.Line(Copy(rows_.piece, absl::StrCat("r * ", rows_.stride, " + ", column),
                  absl::StrCat(Plus(absl::StrCat("(point0 + r) * ", rows_.pitch), rows_.first),
                               " + ", column)));
    out.Close();
  }

  const PointRows& rows_;
  LaunchText& launch_;
  const int64_t threads_;
  const std::string to_, from_;
};

}  // namespace

void StageRowsOfPoints(int64_t points, LaunchText* launch, PointPrinter* printer) {
  const KernelIr& ir = launch->ir();
  const absl::string_view index = launch->index_type();
  const int threads = launch->threads();
  SourceWriter& out = launch->out;
  out.Line("const ", index, " point0 = static_cast<", index, ">(RG_BLOCK) * ", threads, ";");
  out.Line("const int rows = static_cast<int>(rg_min(", Sized(points), " - point0, static_cast<",
           index, ">(", threads, ")));");
  for (const PointRows& rows : PointRowsOf(ir)) {
    Staging(rows, *launch).Print();
    const std::string place = absl::StrCat("RG_THREAD * ", rows.stride);
    for (int load : rows.loads) {
      printer->SetStaged(load, {.array = absl::StrCat("s", rows.buffer),
                                .place = Plus(place, PlaceInRow(ir, rows, load))});
    }
  }
  out.Line("RG_COPIES_SENT();");
  out.Line("RG_COPIES_WAIT(0);");
  launch->Barrier();
}

}  // namespace retrograd
