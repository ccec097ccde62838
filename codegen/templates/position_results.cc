#include "codegen/templates/position_results.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/print/numbers/index_text.h"
#include "codegen/templates/column_totals.h"

namespace retrograd {
namespace {

std::string FoldName(int reduction) { return absl::StrCat("fold", reduction); }

}  // namespace

PositionResults::PositionResults(const ChunkThreads& threads, LaunchText* launch,
                                 PointPrinter* printer, Printer at_position)
    : threads_(threads),
      at_once_(PositionsAtOnce(threads.fold > 0)),
      launch_(*launch),
      printer_(*printer),
      out_(launch->out),
      at_position_(std::move(at_position)) {}

std::vector<int> PositionResults::Stores() const {
  std::vector<int> stores;
  for (size_t s = 0; s < launch_.ir().stores.size(); ++s) stores.push_back(static_cast<int>(s));
  return stores;
}

std::vector<int> PositionResults::Roots() const {
  std::vector<int> roots;
  for (const Instr& instr : launch_.ir().instrs) {
    if (FoldedAxes(launch_.ir(), instr) != 0) roots.push_back(instr.operands[0]);
  }
  for (const Store& store : launch_.ir().stores) roots.push_back(store.instr);
  return roots;
}

void PositionResults::PrintOfWarp(absl::string_view name, absl::string_view own,
                                  absl::string_view choose) {
  out_.Line("int ", name, " = ", own, ";");
  out_.Open("for (int d = RG_WARP / 2; d > 0; d /= 2)");
  out_.Line(name, " = ", choose, "(", name, ", RG_SHUFFLE_XOR(", name, ", d));");
  out_.Close();
  launch_.SetThreadsMeet();
}

void PositionResults::PrintLongest() { PrintOfWarp("longest", "to - from", "rg_max"); }

void PositionResults::PrintWhole(absl::string_view condition) {
  PrintOfWarp("whole", absl::StrCat(condition, " ? to - from : 0"), "rg_min");
}

void PositionResults::OpenBatch() { launch_.OpenUnrolled("u", at_once_); }

// A fold of folds comes a stage later.
void PositionResults::PrintFolds() {
  const KernelIr& ir = launch_.ir();
  const Stages stages = AssignStages(ir, Classify(ir));
  for (int stage = 0; stage < stages.row_stages; ++stage) {
    std::vector<int> reductions;
    for (size_t i = 0; i < ir.instrs.size(); ++i) {
      if (FoldedAxes(ir, ir.instrs[i]) == 0 || stages.stage[i] != stage + 1) continue;
      reductions.push_back(static_cast<int>(i));
    }
    PrintFolds(reductions);
  }
}

void PositionResults::PrintFolds(const std::vector<int>& reductions) {
  const KernelIr& ir = launch_.ir();
  std::vector<std::string> totals;
  AtPosition adding{.reductions = reductions};
  for (int r : reductions) {
    const Instr& reduction = ir.instrs[r];
    totals.push_back(absl::StrCat(FoldName(r), "[u]"));
    adding.roots.push_back(reduction.operands[0]);
    out_.Line(AccumulatorName(reduction.dtype), " ", FoldName(r), "[", at_once_, "];");
    printer_.SetAccumulator(r, totals.back());
  }
  OpenBatch();
  for (size_t k = 0; k < reductions.size(); ++k) {
    out_.Line(totals[k], " = ", printer_.Identity(ir.instrs[reductions[k]]), ";");
  }
  if (threads_.idle()) out_.Open("if (n % ", threads_.team, " < ", threads_.fold, ")");
  at_position_(adding);
  if (threads_.idle()) out_.Close();
  out_.Close();
  for (int64_t distance = threads_.team / 2; distance > 0; distance /= 2) {
    OpenBatch();
    for (size_t k = 0; k < reductions.size(); ++k) {
      const std::string other = absl::StrCat("RG_SHUFFLE_XOR(", totals[k], ", ", distance, ")");
      out_.Line(totals[k], " = ", printer_.Folded(ir.instrs[reductions[k]], totals[k], other), ";");
    }
    out_.Close();
  }
  UseFinishedReductions(reductions, totals, &printer_);
}

void PositionResults::Declare(int instr) {
  const bool lanes = printer_.InLanes(instr);
  const int width = lanes ? printer_.width() : 1;
  const std::string name = absl::StrCat("result", instr);
  out_.Line(ComputeName(ComputeType(launch_.ir().instrs[instr].dtype)), " ", name, "[",
            at_once_ * width, "];");
  if (lanes) {
    const std::string first = absl::StrCat("u * ", width);
    printer_.SetHome(instr, {.lane = absl::StrCat(name, "[", first, " + j]"),
                             .base = absl::StrCat(name, " + ", first)});
  } else {
    printer_.SetHome(instr, {.lane = absl::StrCat(name, "[u]")});
  }
}

// All of a batch before the first one is stored: no load passes a store.
void PositionResults::PrintValues() {
  std::vector<int> values;
  for (const Store& store : launch_.ir().stores) {
    const bool listed = std::find(values.begin(), values.end(), store.instr) != values.end();
    const bool constant = launch_.ir().instrs[store.instr].kind == InstrKind::kConstant;
    if (!listed && !constant && !printer_.known(store.instr)) values.push_back(store.instr);
  }
  if (values.empty()) return;
  for (int i : values) Declare(i);
  OpenBatch();
  at_position_({.roots = values});
  out_.Close();
  for (int i : values) printer_.SetKnown(i, true);
}

void PositionResults::PrintStores(const std::string& condition) {
  if (!stores()) return;
  AtPosition storing{.stores = Stores()};
  for (const Store& store : launch_.ir().stores) storing.roots.push_back(store.instr);
  OpenBatch();
  if (!condition.empty()) out_.Open("if (", condition, ")");
  at_position_(storing);
  if (!condition.empty()) out_.Close();
  out_.Close();
}

}  // namespace retrograd
