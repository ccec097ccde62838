#include "codegen/templates/column_totals.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/print/numbers/sized_number.h"
#include "fusion/kernel/templates/column_walks.h"

namespace retrograd {
namespace {

// Where a thread row's sum of lane j lies among `rows` of them in shared memory. Rows of one lane
// lie together, so that neighbouring threads meet different banks, however few lie side by side.
std::string TileIndex(const ColumnTotals& totals, int64_t rows, absl::string_view row) {
  const std::string lane = row == "0" ? "lane" : absl::StrCat(row, " * ", totals.lanes, " + lane");
  return totals.width == 1 ? lane : absl::StrCat("j * ", rows * totals.lanes, " + ", lane);
}

// Reductions of one type whose sums the thread rows of a block add up together.
class ThreadRowsFold {
 public:
  ThreadRowsFold(const ColumnTotals& totals, std::vector<int> reductions, const ColumnFold& fold,
                 std::string tile, LaunchText* launch, PointPrinter* printer)
      : totals_(totals),
        reductions_(std::move(reductions)),
        fold_(fold),
        tile_(std::move(tile)),
        launch_(*launch),
        printer_(*printer) {}

  void Print() {
    int64_t at = 0;  // of what the last step has made
    Store();
    launch_.Barrier();
    for (size_t step = 1; step < fold_.rows.size(); ++step) {
      const int64_t made = at + fold_.rows[step - 1] * totals_.lanes * totals_.width;
      PrintStep(fold_.rows[step] * totals_.lanes, at, made);
      launch_.Barrier();
      at = made;
    }
    Finish(at);
  }

 private:
  // Element `index` behind place `at` of the n-th sum.
  std::string Element(size_t n, int64_t at, const std::string& index) const {
    const int64_t first = static_cast<int64_t>(n) * fold_.elements + at;
    return absl::StrCat(tile_, "[", first > 0 ? absl::StrCat(first, " + ") : "", index, "]");
  }
  std::string Accumulator(size_t n) const {
    return ColumnAccumulator(reductions_[n], totals_.width, totals_.chunks);
  }
  const Instr& Reduction(size_t n) const { return launch_.ir().instrs[reductions_[n]]; }

  void Store() {
    const bool loop = launch_.OpenUnrolled("j", totals_.width);
    for (size_t n = 0; n < reductions_.size(); ++n) {
      launch_.out.Line(Element(n, 0, TileIndex(totals_, fold_.rows[0], "thread_row")), " = ",
                       Accumulator(n), ";");
    }
    if (loop) launch_.out.Close();
  }

  // `left` elements of each lane are left, of kRowsInTurn times as many at `from`.
  void PrintStep(int64_t left, int64_t from, int64_t to) {
    SourceWriter& out = launch_.out;
    const std::string more = absl::StrCat(" + i * ", left);
    const auto part = [](size_t n) { return absl::StrCat("part", n); };
    out.Open("if (RG_THREAD < ", left * totals_.width, ")");
    out.Line("const int at = RG_THREAD",
             totals_.width == 1
                 ? ""
                 : absl::StrCat(" / ", left, " * ", left * kRowsInTurn, " + RG_THREAD % ", left),
             ";");
    for (size_t n = 0; n < reductions_.size(); ++n) {
      out.Line(AccumulatorName(Reduction(n).dtype), " ", part(n), " = ", Element(n, from, "at"),
               ";");
    }
    out.Pragma(SpellingOf(launch_.dialect()).unroll);
    out.Open("for (int i = 1; i < ", kRowsInTurn, "; ++i)");
    for (size_t n = 0; n < reductions_.size(); ++n) {
      out.Line(part(n), " = ",
               printer_.Folded(Reduction(n), part(n), Element(n, from, absl::StrCat("at", more))),
               ";");
    }
    out.Close();
    for (size_t n = 0; n < reductions_.size(); ++n) {
      out.Line(Element(n, to, "RG_THREAD"), " = ", part(n), ";");
    }
    out.Close();
  }

  // The first thread row adds up what is left.
  void Finish(int64_t at) {
    SourceWriter& out = launch_.out;
    const int64_t rows = fold_.rows.back();
    out.Open("if (thread_row == 0)");
    if (fold_.rows.size() > 1) {
      const bool loop = launch_.OpenUnrolled("j", totals_.width);
      for (size_t n = 0; n < reductions_.size(); ++n) {
        out.Line(Accumulator(n), " = ", Element(n, at, TileIndex(totals_, rows, "0")), ";");
      }
      if (loop) out.Close();
    }
    if (rows <= kRowsInTurn) out.Pragma(SpellingOf(launch_.dialect()).unroll);
    out.Open("for (int i = 1; i < ", rows, "; ++i)");
    const bool loop = launch_.OpenUnrolled("j", totals_.width);
    for (size_t n = 0; n < reductions_.size(); ++n) {
      out.Line(Accumulator(n), " = ",
               printer_.Folded(Reduction(n), Accumulator(n),
                               Element(n, at, TileIndex(totals_, rows, "i"))),
               ";");
    }
    if (loop) out.Close();
    out.Close();
    out.Close();
  }

  const ColumnTotals& totals_;
  const std::vector<int> reductions_;
  const ColumnFold& fold_;
  const std::string tile_;
  LaunchText& launch_;
  PointPrinter& printer_;
};

// By type, in the order in which types come up.
std::vector<std::pair<DType, std::vector<int>>> ReductionsByType(const ColumnTotals& totals,
                                                                 const KernelIr& ir) {
  std::vector<std::pair<DType, std::vector<int>>> types;
  for (int r : totals.reductions) {
    const DType type = AccumulatorType(ir.instrs[r].dtype);
    auto same =
        std::find_if(types.begin(), types.end(), [&](const auto& t) { return t.first == type; });
    if (same == types.end()) same = types.insert(types.end(), {type, {}});
    same->second.push_back(r);
  }
  return types;
}

void CombineThreadRows(const ColumnTotals& totals, LaunchText* launch, PointPrinter* printer) {
  for (const auto& [type, reductions] : ReductionsByType(totals, launch->ir())) {
    const auto all = static_cast<int64_t>(reductions.size());
    const ColumnFold fold = ColumnFoldOf(totals.thread_rows, totals.lanes, totals.width, type, all);
    const std::string tile = launch->Shared(type, absl::StrCat("tile_", StorageName(type)),
                                            fold.elements * fold.together);
    for (int64_t first = 0; first < all; first += fold.together) {
      // Behind a step nobody reads what is stored into next. Without one the first thread row does.
      const bool read = first > 0 || totals.chunks > 1;
      if (read && fold.rows.size() == 1) launch->Barrier();
      const auto begin = reductions.begin() + first;
      ThreadRowsFold(totals, {begin, begin + std::min(fold.together, all - first)}, fold, tile,
                     launch, printer)
          .Print();
    }
  }
}

// Partial results of one split lie in the order in which threads store them: where a thread's
// columns take several accesses, the first of all threads side by side, then the second. An access
// of every other 16 bytes takes twice as long (13 MB on an H200: 7.7 us).
struct PartialOrder {
  int64_t columns, lanes, width, access;  // access: columns that one store takes

  PartialOrder(const ColumnTotals& totals, DType sum)
      : columns(totals.columns),
        lanes(totals.lanes),
        width(totals.width),
        access(std::min<int64_t>(totals.width, 16 / SizeBytes(sum))) {}

  // Of column c, whose thread stores it with its `part`-th access, as the number `within` of it.
  std::string Place(const std::string& part, const std::string& within) const {
    if (access == width) return "c";
    const int64_t run = lanes * width, whole = columns / run * run,
                  last = (columns - whole) / width;
    std::string threads = absl::StrCat(lanes);  // of the run
    if (whole == 0) threads = Sized(last);
    if (whole != 0 && last != 0)
      threads = absl::StrCat("(c < ", Sized(whole), " ? ", lanes, " : ", Sized(last), ")");
    const std::string first = columns > run ? absl::StrCat("c / ", run, " * ", run, " + ") : "";
    const std::string lane =
        absl::StrCat(columns > run ? absl::StrCat("c % ", run) : "c", " / ", width);
    return absl::StrCat(first, "(", part, " * ", threads, " + ", lane, ") * ", access, within);
  }
};

void StorePartials(const ColumnTotals& totals, const std::vector<int64_t>& offsets,
                   LaunchText* launch) {
  SourceWriter& out = launch->out;
  for (int r : totals.reductions) {
    const DType type = AccumulatorType(launch->ir().instrs[r].dtype);
    const PartialOrder order(totals, type);
    const int64_t base = offsets[r] / SizeBytes(type);
    const std::string w = launch->WorkspaceName(StorageName(type));
    const std::string line = absl::StrCat(base > 0 ? absl::StrCat(Sized(base), " + ") : "",
                                          totals.piece, " * ", Sized(totals.columns), " + ");
    const std::string acc = absl::StrCat("v", r);
    if (totals.width == 1) {
      out.Line("rg_store(", w, ", ", line, "c, ", ColumnAccumulator(r, 1, totals.chunks), ");");
      continue;
    }
    for (int64_t m = 0; m < totals.width; m += order.access) {
      const std::string from =
          absl::StrCat(acc, totals.chunks > 1 ? absl::StrCat(" + k * ", totals.width) : "",
                       m > 0 ? absl::StrCat(" + ", m) : "");
      out.Line("rg_store_vec<", order.access, ">(", w, ", ", line,
               order.Place(absl::StrCat(m / order.access), ""), ", ", from, ");");
    }
  }
}

// Where column c lies in the partial results of a split, for each type of sum.
void PrintPlaces(const ColumnTotals& main, LaunchText* launch) {
  std::vector<DType> types;
  for (int r : main.reductions) {
    const DType type = AccumulatorType(launch->ir().instrs[r].dtype);
    if (std::find(types.begin(), types.end(), type) != types.end()) continue;
    types.push_back(type);
    const PartialOrder order(main, type);
    launch->out.Line("const ", launch->index_type(), " place_", StorageName(type), " = ",
                     order.Place(absl::StrCat("c % ", order.width, " / ", order.access),
                                 absl::StrCat(" + c % ", order.access)),
                     ";");
  }
}

// Adds up a thread's share of column c's partial results, one of each split of the main launch:
// every n-th, in order.
void AddPartials(const ColumnTotals& totals, const ColumnTotals& main,
                 const std::vector<int64_t>& offsets, LaunchText* launch, PointPrinter* printer) {
  SourceWriter& out = launch->out;
  const absl::string_view index = launch->index_type();
  const int64_t splits = main.split;
  int64_t bytes = 0;  // of a partial result of each sum
  for (int r : totals.reductions) {
    bytes += SizeBytes(AccumulatorType(launch->ir().instrs[r].dtype));
  }
  const int64_t at_once = PartialsAtOnce(splits, bytes);
  const std::string first = totals.thread_rows > 1 ? "thread_row" : "0";
  PrintPlaces(main, launch);
  const bool in_turns = at_once * totals.thread_rows < splits;
  if (in_turns) {
    out.Open("for (int s0 = ", first, "; s0 < ", Sized(splits),
             "; s0 += ", at_once * totals.thread_rows, ")");
  } else {
    out.Line("const int s0 = ", first, ";");
  }
  for (int r : totals.reductions) {
    out.Line(AccumulatorName(launch->ir().instrs[r].dtype), " w", r, "[", at_once, "];");
  }
  for (const bool loads : {true, false}) {
    out.Pragma(SpellingOf(launch->dialect()).unroll);
    out.Open("for (int n = 0; n < ", at_once, "; ++n)");
    out.Line("const int s = s0 + n * ", totals.thread_rows, ";");
    out.Open("if (s < ", Sized(splits), ")");
    if (loads)
      out.Line("const ", index, " line = static_cast<", index, ">(s) * ", Sized(totals.columns),
               ";");
    for (int r : totals.reductions) {
      const Instr& reduction = launch->ir().instrs[r];
      const DType type = AccumulatorType(reduction.dtype);
      const int64_t base = offsets[r] / SizeBytes(type);
      const std::string acc = absl::StrCat("v", r), part = absl::StrCat("w", r, "[n]");
      if (loads) {
        out.Line(part, " = rg_load(", launch->WorkspaceName(StorageName(type)), ", ",
                 base > 0 ? absl::StrCat(Sized(base), " + ") : "", "line + place_",
                 StorageName(type), ");");
      } else {
        out.Line(acc, " = ", printer->Folded(reduction, acc, part), ";");
      }
    }
    out.Close();
    out.Close();
  }
  if (in_turns) out.Close();
}

// Evaluates what follows the totals at the columns from c on.
void FinishColumns(const ColumnTotals& totals, LaunchText* launch, PointPrinter* printer) {
  std::vector<int> roots;
  for (int s : totals.stores) roots.push_back(launch->ir().stores[s].instr);
  const std::vector<int> instrs = printer->Needed(roots);
  printer->DeclareAxes(totals.column_axes,
                       printer->UsedAxes(instrs, totals.stores, totals.column_axes), "c");
  printer->Print(
      {.instrs = instrs, .reductions = {}, .stores = totals.stores, .level = totals.column_axes});
}

}  // namespace

ColumnTotals ColumnWork(const KernelIr& ir, const Classification& shape, const Schedule& schedule) {
  ColumnTotals totals;
  totals.column_axes = shape.shape.column_axes;
  totals.columns = shape.shape.columns;
  totals.width = schedule.vector_width;
  totals.thread_rows = schedule.rows_per_block;
  totals.lanes = schedule.threads / schedule.rows_per_block * schedule.cluster;
  totals.split = schedule.split;
  const Stages stages = AssignStages(ir, shape);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const AxisMask folded = FoldedAxes(ir, ir.instrs[i]);
    if (folded != 0 && (folded & shape.shape.column_axes) == 0) {
      totals.reductions.push_back(static_cast<int>(i));
    }
  }
  for (size_t s = 0; s < ir.stores.size(); ++s) {
    if (stages.finalize[ir.stores[s].instr]) totals.stores.push_back(static_cast<int>(s));
  }
  return totals;
}

std::string ColumnAccumulator(int reduction, int width, int64_t chunks, absl::string_view lane) {
  if (width == 1 && chunks == 1) return absl::StrCat("v", reduction);
  if (width == 1) return absl::StrCat("v", reduction, "[k]");
  return absl::StrCat("v", reduction, "[", chunks > 1 ? absl::StrCat("k * ", width, " + ") : "",
                      lane, "]");
}

void DeclareColumnAccumulators(const ColumnTotals& totals, LaunchText* launch,
                               PointPrinter* printer) {
  SourceWriter& out = launch->out;
  const int64_t elements = totals.width * totals.chunks;
  for (int r : totals.reductions) {
    const Instr& reduction = launch->ir().instrs[r];
    const absl::string_view type = AccumulatorName(reduction.dtype);
    if (elements == 1) {
      out.Line(type, " v", r, " = ", printer->Identity(reduction), ";");
    } else {
      out.Line(type, " v", r, "[", elements, "];");
      launch->out.Pragma(SpellingOf(launch->dialect()).unroll);
      out.Line("for (int n = 0; n < ", elements, "; ++n) v", r,
               "[n] = ", printer->Identity(reduction), ";");
    }
    printer->SetAccumulator(r, ColumnAccumulator(r, totals.width, totals.chunks));
    printer->SetKnown(r, true);
  }
}

void UseFinishedReductions(const std::vector<int>& reductions,
                           const std::vector<std::string>& accumulators, PointPrinter* printer) {
  const KernelIr& ir = printer->ir();
  for (size_t n = 0; n < reductions.size(); ++n) {
    const Instr& reduction = ir.instrs[reductions[n]];
    std::string value = accumulators[n];
    if (AccumulatorType(reduction.dtype) != ComputeType(reduction.dtype)) {
      value = absl::StrCat("static_cast<", ComputeName(reduction.dtype), ">(", value, ")");
    }
    if (reduction.round && ComputeType(reduction.dtype) != reduction.dtype) {
      value = absl::StrCat("rg_round<", StorageName(reduction.dtype), ">(", value, ")");
    }
    printer->SetHome(reductions[n], {.lane = value, .base = ""});
    printer->SetKnown(reductions[n], true);
  }
}

void PrintColumnTotals(const ColumnTotals& totals, const Classification& shape, LaunchText* launch,
                       PointPrinter* printer) {
  SourceWriter& out = launch->out;
  const bool chunked = launch->OpenUnrolled("k", totals.chunks);
  if (totals.thread_rows > 1) CombineThreadRows(totals, launch, printer);
  std::vector<std::string> accumulators;
  for (int r : totals.reductions) {
    // What repeats along the columns has the same total in every lane, and may be used outside of
    // a loop over lanes.
    accumulators.push_back(
        ColumnAccumulator(r, totals.width, totals.chunks, printer->InLanes(r) ? "j" : "0"));
  }
  UseFinishedReductions(totals.reductions, accumulators, printer);
  if (!totals.column.empty()) {
    out.Line("const ", launch->index_type(), " c = ", totals.column, ";");
  }
  out.Open("if (", totals.thread_rows > 1 ? "thread_row == 0 && " : "", "c < ",
           Sized(totals.columns), ")");
  if (totals.split == 1) {
    FinishColumns(totals, launch, printer);
  } else {
    StorePartials(totals, WorkspaceOffsets(launch->ir(), shape, launch->schedule()), launch);
  }
  out.Close();
  if (chunked) out.Close();
}

Kernel ColumnFinalize(const ColumnTotals& main, const KernelBody& body, const Classification& shape,
                      Dialect dialect) {
  ColumnTotals totals = main;
  totals.width = 1;
  totals.chunks = 1;
  // Several threads a column where there are many splits: each adds up every n-th of them.
  totals.thread_rows = FinalizeThreadRows(main.split);
  totals.lanes = FinalizeLanes(main.split);
  totals.split = 1;
  const int threads = totals.lanes * totals.thread_rows;
  LaunchText launch(body, dialect, threads, (main.columns + totals.lanes - 1) / totals.lanes);
  launch.UseWideIndexAbove((main.columns + threads) *
                           static_cast<int64_t>(main.split * main.reductions.size() + 1));
  PointPrinter printer(&launch, 1);
  SourceWriter& out = launch.out;
  out.SetDepth(1);
  if (totals.thread_rows > 1) {
    out.Line("const int lane = RG_THREAD % ", totals.lanes, ";");
    out.Line("const int thread_row = RG_THREAD / ", totals.lanes, ";");
  } else {
    out.Line("const int lane = RG_THREAD;");
  }
  out.Line("const ", launch.index_type(), " c = static_cast<", launch.index_type(),
           ">(RG_BLOCK) * ", totals.lanes, " + lane;");
  totals.column = "";
  DeclareColumnAccumulators(totals, &launch, &printer);
  out.Open("if (c < ", Sized(totals.columns), ")");
  AddPartials(totals, main, WorkspaceOffsets(body.ir, shape, body.schedule), &launch, &printer);
  out.Close();
  PrintColumnTotals(totals, shape, &launch, &printer);
  return launch.Finish("finalize");
}

}  // namespace retrograd
