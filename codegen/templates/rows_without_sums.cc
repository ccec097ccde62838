#include "codegen/templates/rows_without_sums.h"

#include <algorithm>
#include <string>

#include "codegen/print/numbers/index_text.h"
#include "codegen/print/numbers/sized_number.h"

namespace retrograd {
namespace {

constexpr int kMostCopied = 16;  // elements that a thread has at once

class Writer {
 public:
  Writer(const ScatterText& text, LaunchText* launch)
      : s_(text),
        unroll_(SpellingOf(launch->dialect()).unroll),
        out_(launch->out),
        element_(s_.width > 1 ? absl::StrCat("n * ", s_.width) : "n") {}

  void Print(int64_t sum_blocks) {
    out_.Line("const ", s_.index, " first = static_cast<", s_.index, ">(RG_BLOCK",
              sum_blocks > 0 ? absl::StrCat(" - ", Sized(sum_blocks)) : "", ") * ",
              kScatterZeros * kScatterThreads, " + RG_THREAD;");
    out_.Line(s_.Declare("sum", s_.width));
    out_.Line("for (int j = 0; j < ", s_.width, "; ++j) sum[j] = 0;");
    // The compiler moves no load past a store.
    out_.Line("bool zero[", kScatterZeros, "];");
    Unrolled("m", kScatterZeros);
    PrintNumber("m");
    out_.Line("zero[m] = n < ", Sized(s_.table_vectors()), ";");
    if (!s_.workspace.empty()) {
      std::string row = s_.vectors > 1 ? absl::StrCat("n / ", Sized(s_.vectors)) : "n";
      if (s_.workspace.outer > 1) absl::StrAppend(&row, " % ", Sized(s_.table_rows));
      out_.Open("if (zero[m])");
      out_.Line("const int r = static_cast<int>(", row, ");");
      out_.Line("zero[m] = ", s_.Start("r"), " == ", s_.Start("r + 1"), ";");
      out_.Close();
    }
    out_.Close();
    s_.onto ? PrintCopiesOfBase() : PrintStoresOfZero();
  }

 private:
  void Unrolled(absl::string_view variable, int64_t trips) {
    out_.Pragma(unroll_);
    out_.Open("for (int ", variable, " = 0; ", variable, " < ", trips, "; ++", variable, ")");
  }

  // Of a thread's vector.
  void PrintNumber(absl::string_view vector) {
    out_.Line("const ", s_.index, " n = first + ", vector, " * ", kScatterThreads, ";");
  }

  void PrintStoresOfZero() {
    Unrolled("m", kScatterZeros);
    PrintNumber("m");
    const std::string store = s_.Store(s_.table, element_);
    out_.Line("if (zero[m]) ", s_.TakesAccesses() ? absl::StrCat("{ ", store, " }") : store);
    out_.Close();
  }

  // Some vectors at once, so that their loads wait together.
  void PrintCopiesOfBase() {
    const int64_t at_once = std::clamp<int64_t>(kMostCopied / s_.width, 1, kScatterZeros);
    const std::string m = absl::StrCat("g * ", at_once, " + u");
    const std::string of_row = absl::StrCat("before + u * ", s_.width);
    const auto for_each = [&](const std::string& line) {
      Unrolled("u", at_once);
      PrintNumber(absl::StrCat("(", m, ")"));
      out_.Line("if (zero[", m, "]) { ", line, " }");
      out_.Close();
    };
    Unrolled("g", kScatterZeros / at_once);
    out_.Line(ComputeName(*s_.onto), " before[", at_once * s_.width, "];");
    for_each(s_.LoadBase(element_, of_row));
    for_each(absl::StrCat("for (int j = 0; j < ", s_.width, "; ++j) sum[j] = (", of_row, ")[j]; ",
                          s_.Store(s_.table, element_)));
    out_.Close();
  }

  const ScatterText& s_;
  const absl::string_view unroll_;
  SourceWriter& out_;
  const std::string element_;  // the first of vector n
};

}  // namespace

void PrintRowsWithoutSums(const ScatterText& text, int64_t sum_blocks, LaunchText* launch) {
  Writer(text, launch).Print(sum_blocks);
}

}  // namespace retrograd
