#include "codegen/templates/row_walk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/row_ends.h"
#include "codegen/templates/column_totals.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"

namespace retrograd {

RowWalk::RowWalk(const Classification& shape, LaunchText* launch, PointPrinter* printer)
    : shape_(shape),
      schedule_(launch->schedule()),
      launch_(*launch),
      printer_(*printer),
      ir_(launch->ir()),
      out_(launch->out),
      stages_(AssignStages(ir_, shape)),
      lanes_(LanesOfRow(schedule_)),
      kept_stage_(ir_.instrs.size(), -1),
      preloaded_(ir_.instrs.size(), false) {
  const int64_t run = lanes_ * schedule_.vector_width;
  chunks_ = std::max<int64_t>((shape.shape.columns + run - 1) / run, 1);
  RG_CHECK(schedule_.threads == schedule_.threads_per_row * schedule_.rows_per_block);
  row_blocks_ = RowBlocks(schedule_);
  if (schedule_.cluster > 1) {
    RG_CHECK(schedule_.rows_per_block == 1 && schedule_.rows_per_thread == 1);
    RG_CHECK(NeedsShared() && schedule_.persistent && schedule_.blocks % schedule_.cluster == 0);
    launch->SetHead(KernelHead::kCluster, PreludePart::kClusters);
    launch->SetCluster(schedule_.cluster);
  }
  rows_at_once_ = int64_t{schedule_.rows_per_block} * schedule_.rows_per_thread;
  if (HasEnds(ir_, schedule_.vector_width)) {
    RG_CHECK(ir_.extents[FastestAxis(ir_)] == shape.shape.columns);
    ends_.emplace(launch, 1);
    ends_of_thread_ = CeilDiv(MostEnds(ir_, schedule_.vector_width), lanes_);
  }
  for (size_t i = 0; i < ir_.instrs.size(); ++i) {
    if (FoldedAxes(ir_, ir_.instrs[i]) == 0) continue;
    EachPrinter([&](PointPrinter& p) { p.SetKnown(static_cast<int>(i), true); });
  }
}

bool RowWalk::unrolled() const {
  return schedule_.persistent || TemplateOf(schedule_).keeps_columns;
}

bool RowWalk::ByColumn(int instr) const {
  AxisMask columns = 0;
  for (size_t a = 0; a < ir_.extents.size(); ++a) {
    if ((shape_.shape.column_axes >> a & 1) != 0 && ir_.extents[a] != 1) columns |= 1u << a;
  }
  return (ir_.instrs[instr].axes & columns) != 0;
}

std::vector<int> RowWalk::row_reductions() const {
  std::vector<int> reductions;
  for (size_t i = 0; i < ir_.instrs.size(); ++i) {
    if ((FoldedAxes(ir_, ir_.instrs[i]) & shape_.shape.column_axes) != 0) {
      reductions.push_back(static_cast<int>(i));
    }
  }
  return reductions;
}

std::string RowWalk::RowAccumulator(int reduction, int rows_per_thread) {
  return absl::StrCat("v", reduction, rows_per_thread > 1 ? "[r]" : "");
}

std::string RowWalk::ChunkColumn() const {
  std::string number = "lane";
  if (chunks_ > 1) number = absl::StrCat("(k * ", lanes_, " + lane)");
  return schedule_.vector_width > 1 ? absl::StrCat(number, " * ", schedule_.vector_width) : number;
}

RowWalk::StageWork RowWalk::WorkOf(int stage) const {
  StageWork work;
  std::vector<int> roots, row_roots;
  for (int r : row_reductions()) {
    if (stages_.stage[ir_.instrs[r].operands[0]] == stage) work.reductions.push_back(r);
  }
  for (int r : column_reductions_) {
    if (stages_.stage[ir_.instrs[r].operands[0]] == stage) work.reductions.push_back(r);
  }
  for (int r : work.reductions) roots.push_back(ir_.instrs[r].operands[0]);
  for (size_t s = 0; s < ir_.stores.size(); ++s) {
    const int store = static_cast<int>(s), instr = ir_.stores[s].instr;
    if (stages_.stage[instr] != stage) continue;
    if (std::find(left_out_.begin(), left_out_.end(), store) != left_out_.end()) continue;
    if (ByColumn(instr)) {
      work.point_stores.push_back(store);
      roots.push_back(instr);
    } else {
      work.row_stores.push_back(store);
      row_roots.push_back(instr);
    }
  }
  row_roots.insert(row_roots.end(), roots.begin(), roots.end());
  for (int i : printer_.Needed(row_roots)) {
    (ByColumn(i) ? work.point_instrs : work.row_instrs).push_back(i);
  }
  return work;
}

// --- values kept in registers --------------------------------------------------------------------

Home RowWalk::HomeOf(int instr, bool by_row, absl::string_view prefix) const {
  const std::string name = absl::StrCat(prefix, instr);
  const int pack = printer_.PackWidth(instr);
  const int64_t lanes = printer_.InLanes(instr) ? schedule_.vector_width : 1;
  const int64_t width = pack > 0 ? lanes / pack : lanes;  // elements of the array a run
  const int64_t run = ByColumn(instr) ? chunks_ * width : 1;
  const int64_t rows = by_row ? schedule_.rows_per_thread : 1;
  std::string at;
  auto plus = [&](const std::string& term) { absl::StrAppend(&at, at.empty() ? "" : " + ", term); };
  if (rows > 1) plus(run > 1 ? absl::StrCat("r * ", run) : "r");
  if (ByColumn(instr) && chunks_ > 1) plus(width > 1 ? absl::StrCat("k * ", width) : "k");
  Home home;
  if (pack > 0) {
    home.pack = at.empty() ? name : absl::StrCat(name, " + ", at);
    if (width > 1) plus(absl::StrCat("j / ", pack));
    home.lane = absl::StrCat("rg_lane(", name, "[", at.empty() ? "0" : at, "], ",
                             width > 1 ? absl::StrCat("j % ", pack) : "j", ")");
    return home;
  }
  if (width > 1) {
    home.base = at.empty() ? name : absl::StrCat(name, " + ", at);
    plus("j");
  }
  home.lane = at.empty() ? name : absl::StrCat(name, "[", at, "]");
  return home;
}

void RowWalk::Declare(int instr, bool by_row, absl::string_view prefix) {
  const int pack = printer_.PackWidth(instr);
  int64_t elements = by_row ? schedule_.rows_per_thread : 1;
  if (ByColumn(instr)) elements *= chunks_;
  if (printer_.InLanes(instr)) elements *= schedule_.vector_width;
  const std::string name = absl::StrCat(prefix, instr);
  if (pack > 0) {
    const DType stored = ir_.buffers[ir_.instrs[instr].buffer].dtype;
    out_.Line("rg_pack<", StorageName(stored), ", ", pack, "> ", name, "[", elements / pack, "];");
    return;
  }
  out_.Line(ComputeName(ir_.instrs[instr].dtype), " ", name,
            elements > 1 ? absl::StrCat("[", elements, "]") : "", ";");
}

Home RowWalk::HomeAtEnds(int instr, absl::string_view prefix) const {
  std::string at;
  if (schedule_.rows_per_thread > 1) {
    at = ends_of_thread_ > 1 ? absl::StrCat("r * ", ends_of_thread_) : "r";
  }
  if (ends_of_thread_ > 1) absl::StrAppend(&at, at.empty() ? "n" : " + n");
  return {.lane = absl::StrCat(prefix, instr, at.empty() ? "" : absl::StrCat("[", at, "]"))};
}

void RowWalk::DeclareAtEnds(int instr, absl::string_view prefix) {
  const int64_t elements = schedule_.rows_per_thread * ends_of_thread_;
  out_.Line(ComputeName(ir_.instrs[instr].dtype), " ", prefix, instr,
            elements > 1 ? absl::StrCat("[", elements, "]") : "", ";");
}

std::vector<int> RowWalk::LoadedFirst(const StageWork& work) const {
  std::vector<int> loads;
  if (!ends_.has_value() || !schedule_.persistent || work.point_stores.empty()) return loads;
  for (int i : work.point_instrs) {
    if (printer_.PackWidth(i) > 0 && !IsStaged(i)) loads.push_back(i);
  }
  return loads;
}

bool RowWalk::IsStaged(int instr) const {
  return std::find(staged_.begin(), staged_.end(), instr) != staged_.end();
}

// The first of the stages that evaluate a costly value keeps it for the others.
void RowWalk::KeepCostly(int stage, const std::vector<int>& instrs) {
  for (int i : costly_) {
    if (kept_stage_[i] >= 0 || std::find(instrs.begin(), instrs.end(), i) == instrs.end()) continue;
    kept_stage_[i] = stage;
    printer_.SetKnown(i, true);
  }
}

// Persistent kernels load each element once: what several stages read stays in registers, and so do
// elements that vary over columns only where a block walks several rows. Costly values stay in
// registers where they are few.
void RowWalk::ChooseKept() {
  if (!schedule_.persistent) return;
  const KernelProfile profile = ProfileKernel(ir_, shape_);
  if (KeepsCostly(profile, schedule_)) costly_ = profile.costly;
  const bool many_rows =
      row_blocks_ * rows_at_once_ < shape_.shape.rows || schedule_.rows_per_thread > 1;
  const int never = stages_.row_stages + 1;
  std::vector<int> uses(ir_.instrs.size(), 0), first(ir_.instrs.size(), -1);
  std::vector<int> loaded_first(ir_.instrs.size(), never);
  for (int stage = 0; stage <= stages_.row_stages; ++stage) {
    const StageWork work = WorkOf(stage);
    for (const std::vector<int>* list : {&work.row_instrs, &work.point_instrs}) {
      for (int i : *list) {
        if (ir_.instrs[i].kind != InstrKind::kLoad) continue;
        if (uses[i]++ == 0) first[i] = stage;
      }
    }
    for (int i : LoadedFirst(work)) loaded_first[i] = std::min(loaded_first[i], stage);
    KeepCostly(stage, work.point_instrs);
  }
  for (int i : costly_) printer_.SetKnown(i, false);
  for (size_t n = 0; n < uses.size(); ++n) {
    const int i = static_cast<int>(n);
    if (uses[i] == 0) continue;
    const bool by_row = (ir_.instrs[i].axes & shape_.shape.row_axes) != 0;
    if (std::find(ahead_.begin(), ahead_.end(), i) != ahead_.end()) continue;
    if (IsStaged(i)) continue;
    // The columns of a thread move from row to row where rows have ends.
    preloaded_[i] =
        many_rows && !by_row && ByColumn(i) && ir_.instrs[i].indirect.empty() && !ends_.has_value();
    if (!preloaded_[i] && uses[i] > 1) kept_stage_[i] = first[i];
  }
  for (size_t i = 0; i < loaded_first.size(); ++i) {
    if (loaded_first[i] < never && kept_stage_[i] < 0) kept_stage_[i] = loaded_first[i];
  }
}

void RowWalk::PrintPreloads() {
  std::vector<int> loads;
  for (size_t i = 0; i < preloaded_.size(); ++i) {
    if (preloaded_[i]) loads.push_back(static_cast<int>(i));
  }
  if (loads.empty()) return;
  for (int i : loads) {
    Declare(i, false);
    printer_.SetHome(i, HomeOf(i, false));
  }
  const bool loop = launch_.OpenUnrolled("k", chunks_);
  if (!loop) out_.OpenScope();
  out_.Line("const ", launch_.index_type(), " c = ", ChunkColumn(), ";");
  out_.Open("if (c < ", Sized(shape_.shape.columns), ")");
  printer_.DeclareAxes(shape_.shape.column_axes, printer_.UsedAxes(loads, {}, 0), "c");
  printer_.Print({.instrs = loads, .reductions = {}, .stores = {}});
  out_.Close();
  out_.Close();
  for (int i : loads) printer_.SetKnown(i, true);
}

// --- the next rows -------------------------------------------------------------------------------

// What varies over rows alone and asks nobody where to look, beside rows that are staged.
void RowWalk::ChooseAhead() {
  std::vector<bool> used(ir_.instrs.size(), false);
  for (int stage = 0; stage <= stages_.row_stages; ++stage) {
    const StageWork work = WorkOf(stage);
    for (int i : work.row_instrs) used[i] = true;
  }
  for (size_t n = 0; n < used.size(); ++n) {
    const int i = static_cast<int>(n);
    const Instr& instr = ir_.instrs[i];
    if (!used[i] || instr.kind != InstrKind::kLoad) continue;
    if (!instr.indirect.empty() || !instr.guards.empty()) continue;
    if ((instr.axes & shape_.shape.row_axes) == 0) continue;
    ahead_.push_back(i);
  }
}

void RowWalk::ChooseStaged() {
  for (size_t n = 0; n < ir_.instrs.size(); ++n) {
    const int i = static_cast<int>(n);
    if (CanStage(ir_, shape_.shape, i, schedule_.vector_width)) staged_.push_back(i);
  }
}

// Each thread has places of its own in each array: nobody waits for another's loads. By batch, run
// of columns and pack; neighbouring threads lie side by side.
void RowWalk::DeclareStaged() {
  for (int i : staged_) {
    const DType type = ir_.buffers[ir_.instrs[i].buffer].dtype;
    launch_.Staged(type, absl::StrCat("s", i),
                   schedule_.staged * schedule_.rows_per_thread * chunks_ * schedule_.vector_width *
                       schedule_.threads);
  }
}

void RowWalk::PlaceStaged(bool filling) {
  const int64_t rows = schedule_.rows_per_thread;
  for (int i : staged_) {
    const int width = printer_.PackWidth(i);
    const int64_t step = int64_t{schedule_.threads} * width;
    const int64_t packs = schedule_.vector_width / width;  // of a run
    std::string place = absl::StrCat("batch * ", rows * chunks_ * packs * step);
    if (rows > 1) absl::StrAppend(&place, " + r * ", chunks_ * packs * step);
    if (chunks_ > 1) absl::StrAppend(&place, " + k * ", packs * step);
    absl::StrAppend(&place, " + RG_THREAD * ", width);
    printer_.SetStaged(
        i, {.array = absl::StrCat("s", i), .place = place, .step = step, .filling = filling});
  }
}

// Asks for the batch of rows from first_row on, if there are any, in place of the batch that was
// used.
void RowWalk::PrintStaging(const std::string& first_row) {
  PlaceStaged(/*filling=*/true);
  const bool loop = launch_.OpenUnrolled("r", schedule_.rows_per_thread);
  if (!loop) out_.OpenScope();
  out_.Line("const ", launch_.index_type(), " row = ", RowFrom(first_row), ";");
  out_.Open("if (row < ", Sized(shape_.shape.rows), ")");
  const AxisNumbers outside = printer_.axes();
  AxisUse used = printer_.UsedAxes(staged_, {}, 0);
  used.AddOffset(printer_.vectors().phase);
  printer_.DeclareAxes(shape_.shape.row_axes, used, "row");
  if (ends_.has_value()) {
    DeclareEnds(printer_, &launch_);
    PrintVectors({.point_instrs = staged_});
  } else {
    PrintColumns({.point_instrs = staged_}, "");
  }
  out_.Close();
  out_.Close();
  printer_.SetAxes(outside);
  out_.Line("RG_COPIES_SENT();");
  PlaceStaged(/*filling=*/false);
}

// Asks for what the rows from first_row on need, if there are any.
void RowWalk::PrintAhead(const std::string& first_row) {
  for (int i : ahead_) {
    printer_.SetHome(i, HomeOf(i, true, "n"));
    printer_.SetKnown(i, false);
  }
  const bool loop = launch_.OpenUnrolled("r", schedule_.rows_per_thread);
  if (!loop) out_.OpenScope();
  out_.Line("const ", launch_.index_type(), " row = ", RowFrom(first_row), ";");
  out_.Open("if (row < ", Sized(shape_.shape.rows), ")");
  const AxisNumbers outside = printer_.axes();
  AxisUse used = printer_.UsedAxes(ahead_, {}, 0);
  if (EndsAhead()) {
    used.Add(ends_->UsedAxes(staged_, {}, 0));
    used.AddOffset(printer_.vectors().phase);
  }
  printer_.DeclareAxes(shape_.shape.row_axes, used, "row");
  printer_.Print({.instrs = ahead_, .reductions = {}, .stores = {}});
  PrintEndsAhead();
  out_.Close();
  out_.Close();
  printer_.SetAxes(outside);
}

void RowWalk::PrintEndsAhead() {
  if (!EndsAhead()) return;
  for (int i : staged_) {
    ends_->SetHome(i, HomeAtEnds(i, "m"));
    ends_->SetKnown(i, false);
  }
  DeclareEnds(printer_, &launch_);
  PrintEnds({.point_instrs = staged_});
}

// What was loaded ahead is of these rows.
void RowWalk::TakeAhead() {
  const auto take = [&](absl::string_view to, absl::string_view from, int instr, int64_t elements) {
    if (elements == 1) {
      out_.Line(to, instr, " = ", from, instr, ";");
    } else {
      out_.Pragma(SpellingOf(launch_.dialect()).unroll);
      out_.Line("for (int n = 0; n < ", elements, "; ++n) ", to, instr, "[n] = ", from, instr,
                "[n];");
    }
  };
  for (int i : ahead_) {
    Declare(i, true, "v");
    take("v", "n", i, schedule_.rows_per_thread);
  }
  if (!EndsAhead()) return;
  for (int i : staged_) {
    DeclareAtEnds(i);
    take("e", "m", i, schedule_.rows_per_thread * ends_of_thread_);
  }
}

void RowWalk::UseAhead() {
  for (int i : ahead_) {
    printer_.SetHome(i, HomeOf(i, true));
    printer_.SetKnown(i, true);
  }
  if (!EndsAhead()) return;
  for (int i : staged_) {
    ends_->SetHome(i, HomeAtEnds(i));
    ends_->SetKnown(i, true);
  }
}

void RowWalk::DeclareKept(int stage) {
  for (size_t n = 0; n < kept_stage_.size(); ++n) {
    if (kept_stage_[n] != stage) continue;
    const int i = static_cast<int>(n);
    Declare(i, true);
    printer_.SetHome(i, HomeOf(i, true));
    if (!ends_.has_value()) continue;
    if (ByColumn(i)) DeclareAtEnds(i);
    ends_->SetHome(i, ByColumn(i) ? HomeAtEnds(i) : HomeOf(i, true));
  }
}

// --- text ----------------------------------------------------------------------------------------

void RowWalk::PrintThreadNumbers() {
  if (schedule_.rows_per_block > 1) {
    out_.Line("const int lane = RG_THREAD % ", schedule_.threads_per_row, ";");
    out_.Line("const int thread_row = RG_THREAD / ", schedule_.threads_per_row, ";");
  } else if (schedule_.cluster > 1) {
    out_.Line("const int rank = RG_BLOCK % ", schedule_.cluster, ";");
    out_.Line("const int lane = rank * ", schedule_.threads, " + RG_THREAD;");
  } else {
    out_.Line("const int lane = RG_THREAD;");
  }
}

std::string RowWalk::RowFrom(const std::string& first_row) const {
  std::string row = first_row;
  if (schedule_.rows_per_block > 1) absl::StrAppend(&row, " + thread_row");
  if (schedule_.rows_per_thread > 1) absl::StrAppend(&row, " + r * ", schedule_.rows_per_block);
  return row;
}

void RowWalk::PrintColumns(const StageWork& work, const std::string& row_condition) {
  if (ends_.has_value()) {
    PrintVectors(work);
    StageWork at_ends = work;
    std::erase_if(at_ends.point_instrs, [&](int i) { return IsStaged(i); });  // loaded ahead
    PrintEnds(at_ends);
    return;
  }
  const int64_t columns = shape_.shape.columns;
  const int64_t run = lanes_ * schedule_.vector_width;
  bool loop = true, tail = false;
  if (unrolled()) {
    loop = launch_.OpenUnrolled("k", chunks_);
    if (!loop) out_.OpenScope();
    out_.Line("const ", launch_.index_type(), " c = ", ChunkColumn(), ";");
    tail = chunks_ * run > columns;
    if (tail) out_.Open("if (c < ", Sized(columns), ")");
  } else {
    std::string first = ChunkColumn();
    if (chunks_ > 1) {
      first = schedule_.vector_width > 1 ? absl::StrCat("lane * ", schedule_.vector_width) : "lane";
    }
    std::string end = Sized(columns);
    if (schedule_.split > 1) {
      first = absl::StrCat("first_column + ", first);
      end = "end_column";
    }
    out_.Open("for (", launch_.index_type(), " c = ", first, "; c < ", end, "; c += ", run, ")");
  }
  PrintPoints(printer_, work, row_condition);
  if (tail) out_.Close();
  out_.Close();
}

void RowWalk::PrintPoints(PointPrinter& printer, const StageWork& work,
                          const std::string& row_condition) {
  printer.DeclareAxes(shape_.shape.column_axes,
                      printer.UsedAxes(work.point_instrs, work.point_stores, ir_.all_axes()), "c");
  printer.Print({.instrs = work.point_instrs,
                 .reductions = work.reductions,
                 .stores = work.point_stores,
                 .level = ir_.all_axes(),
                 .store_condition = row_condition});
}

void RowWalk::PrintVectors(const StageWork& work) {
  const absl::string_view index = launch_.index_type();
  if (unrolled()) {
    const bool loop = launch_.OpenUnrolled("k", chunks_);
    if (!loop) out_.OpenScope();
    out_.Line("const ", index, " c = head + ", ChunkColumn(), ";");
    out_.Open("if (c < tail)");
    PrintPoints(printer_, work, "");
    out_.Close();
    out_.Close();
    return;
  }
  const int64_t run = lanes_ * schedule_.vector_width;
  const bool split = schedule_.split > 1;
  out_.Open("for (", index, " c = head + ", split ? "first_column + " : "", "lane * ",
            schedule_.vector_width, "; c < ", split ? "rg_min(head + end_column, tail)" : "tail",
            "; c += ", run, ")");
  PrintPoints(printer_, work, "");
  out_.Close();
}

void RowWalk::PrintEnds(const StageWork& work) {
  const bool loop = launch_.OpenUnrolled("n", ends_of_thread_);
  if (!loop) out_.OpenScope();
  std::string end = "lane";
  if (loop) {
    end = "e";
    out_.Line("const int e = n * ", lanes_, " + lane;");
  }
  OpenEnd(end, schedule_.split > 1 ? "piece == 0" : "", &launch_);
  ends_->SetAxes(printer_.axes());
  PrintPoints(*ends_, work, "");
  out_.Close();
  out_.Close();
}

// Lanes of a warp by shuffles, warps of a row through shared memory; every thread of the row ends
// with the result.
void RowWalk::CombineAcrossThreads(const std::vector<int>& reductions) {
  const int lanes = schedule_.threads_per_row, rows = schedule_.rows_per_thread;
  if (lanes == 1 || reductions.empty()) return;
  const bool loop = launch_.OpenUnrolled("r", rows);
  const std::string half = NeedsShared() ? "RG_WARP / 2" : absl::StrCat(lanes / 2);
  const int64_t words = ScratchElements(schedule_);  // of one turn
  const std::string turn = turns_ ? absl::StrCat("turn * ", words, " + ") : "";
  const std::string slot =
      absl::StrCat(turn, rows > 1 ? absl::StrCat("r * (", schedule_.threads, " / RG_WARP) + ") : "",
                   "RG_THREAD / RG_WARP");
  for (int r : reductions) {
    const Instr& reduction = ir_.instrs[r];
    const std::string acc = RowAccumulator(r, rows);
    launch_.SetThreadsMeet();
    out_.Open("for (int n = ", half, "; n > 0; n /= 2)");
    out_.Line(acc, " = ",
              printer_.Folded(reduction, acc, absl::StrCat("RG_SHUFFLE_XOR(", acc, ", n)")), ";");
    out_.Close();
    if (!NeedsShared()) continue;
    const std::string scratch = launch_.Shared(
        AccumulatorType(reduction.dtype), absl::StrCat("scratch", r), turns_ ? 2 * words : words);
    out_.Line("if (lane % RG_WARP == 0) ", scratch, "[", slot, "] = ", acc, ";");
  }
  if (loop) out_.Close();
  if (!NeedsShared()) return;
  launch_.Barrier();
  const bool again = launch_.OpenUnrolled("r", rows);
  const std::string warps = absl::StrCat("(", lanes, " / RG_WARP)");
  std::string first =
      absl::StrCat(turn, schedule_.rows_per_block > 1 ? absl::StrCat("thread_row * ", warps) : "0");
  if (rows > 1) absl::StrAppend(&first, " + r * (", schedule_.threads, " / RG_WARP)");
  for (int r : reductions) {
    const std::string acc = RowAccumulator(r, rows), scratch = absl::StrCat("scratch", r);
    out_.Line(acc, " = ", scratch, "[", first, "];");
    out_.Open("for (int w = 1; w < ", warps, "; ++w)");
    out_.Line(acc, " = ",
              printer_.Folded(ir_.instrs[r], acc, absl::StrCat(scratch, "[", first, " + w]")), ";");
    out_.Close();
  }
  if (again) out_.Close();
}

// Of the packs that an earlier stage has read.
void RowWalk::ForgetKept(int stage, const std::vector<int>& instrs, const std::vector<int>& stores,
                         const std::vector<int>& reductions) {
  if (stage == 0) return;
  std::vector<bool> read(ir_.instrs.size(), false);
  const auto reads = [&](int i) {
    for (int operand : ir_.instrs[i].operands) read[operand] = true;
  };
  for (int i : instrs) reads(i);
  for (int r : reductions) reads(r);
  for (int s : stores) read[ir_.stores[s].instr] = true;
  for (size_t n = 0; n < read.size(); ++n) {
    const int i = static_cast<int>(n);
    const bool kept = kept_stage_[i] >= 0 && kept_stage_[i] < stage;
    if (read[i] && kept && printer_.PackWidth(i) > 0) out_.Line("rg_forget(v", i, ");");
  }
}

void RowWalk::PrintStage(int stage) {
  const StageWork work = WorkOf(stage);
  const int rows = schedule_.rows_per_thread;
  std::vector<int> combined;
  for (int r : work.reductions) {
    const Instr& reduction = ir_.instrs[r];
    if ((FoldedAxes(ir_, reduction) & shape_.shape.column_axes) == 0) continue;
    combined.push_back(r);
    const std::string start = printer_.Identity(reduction);
    if (rows > 1) {
      out_.Line(AccumulatorName(reduction.dtype), " v", r, "[", rows, "];");
      out_.Pragma(SpellingOf(launch_.dialect()).unroll);
      out_.Line("for (int r = 0; r < ", rows, "; ++r) v", r, "[r] = ", start, ";");
    } else {
      out_.Line(AccumulatorName(reduction.dtype), " v", r, " = ", start, ";");
    }
    EachPrinter([&](PointPrinter& p) { p.SetAccumulator(r, RowAccumulator(r, rows)); });
  }
  DeclareKept(stage);
  const bool partial =
      shape_.shape.rows % rows_at_once_ != 0 || row_blocks_ * rows_at_once_ > shape_.shape.rows;
  std::vector<int> instrs = work.row_instrs, stores = work.row_stores;
  instrs.insert(instrs.end(), work.point_instrs.begin(), work.point_instrs.end());
  stores.insert(stores.end(), work.point_stores.begin(), work.point_stores.end());
  if (instrs.empty() && stores.empty() && work.reductions.empty()) return;
  ForgetKept(stage, instrs, stores, work.reductions);
  AxisUse used = printer_.UsedAxes(instrs, stores, ir_.all_axes());
  if (ends_.has_value()) used.AddOffset(printer_.vectors().phase);
  const bool loop = launch_.OpenUnrolled("r", rows);
  if (!loop) out_.OpenScope();
  if (partial || ir_.Points(shape_.shape.row_axes & used.axes) != 1) {
    out_.Line("const ", launch_.index_type(), " row = ", Row(), ";");
  }
  if (partial) out_.Open("if (row < ", Sized(shape_.shape.rows), ")");
  printer_.DeclareAxes(shape_.shape.row_axes, used, "row");
  printer_.Print({.instrs = work.row_instrs,
                  .reductions = {},
                  .stores = work.row_stores,
                  .level = shape_.shape.row_axes,
                  .store_condition = schedule_.threads_per_row > 1 ? "lane == 0" : ""});
  PrintPointsOf(work);
  if (partial) out_.Close();
  out_.Close();
  for (size_t i = 0; i < kept_stage_.size(); ++i) {
    if (kept_stage_[i] != stage) continue;
    EachPrinter([&](PointPrinter& p) { p.SetKnown(static_cast<int>(i), true); });
  }
  CombineAcrossThreads(combined);
  if (schedule_.cluster > 1 && !combined.empty()) {
    CombineAcrossCluster(combined, stage, LoopsOverRows(schedule_, shape_.shape.rows));
  }
  std::vector<std::string> accumulators;
  for (int r : combined) accumulators.push_back(RowAccumulator(r, rows));
  EachPrinter([&](PointPrinter& p) { UseFinishedReductions(combined, accumulators, &p); });
}

// The columns of a row in one stage.
void RowWalk::PrintPointsOf(StageWork work) {
  if (work.point_instrs.empty() && work.point_stores.empty() && work.reductions.empty()) return;
  if (ends_.has_value()) DeclareEnds(printer_, &launch_);
  const std::vector<int> first = LoadedFirst(work);
  if (!first.empty()) {
    PrintColumns({.point_instrs = first}, "");
    for (int i : first) {
      std::erase(work.point_instrs, i);
      EachPrinter([&](PointPrinter& p) { p.SetKnown(i, true); });
    }
  }
  PrintColumns(work, "");
}

void RowWalk::PrintRows() {
  const bool walks = row_blocks_ * rows_at_once_ < shape_.shape.rows;
  if (schedule_.staged > 0 && walks) ChooseStaged();
  if (!staged_.empty()) ChooseAhead();
  ChooseKept();
  const bool split = TemplateOf(schedule_).splits_rows && schedule_.split > 1;
  RG_CHECK(!split || !schedule_.persistent);  // a piece of a row is read once anyway
  const absl::string_view index = launch_.index_type();
  const int cluster = schedule_.cluster;
  std::string block = absl::StrCat("static_cast<", index, ">(RG_BLOCK",
                                   cluster > 1 ? absl::StrCat(" / ", cluster) : "", ")");
  if (split) {
    const int64_t run = lanes_ * schedule_.vector_width;
    const int64_t piece = (chunks_ + schedule_.split - 1) / schedule_.split * run;
    out_.Line("const int piece = RG_BLOCK % ", Sized(schedule_.split), ";");
    out_.Line("const ", index, " first_column = static_cast<", index, ">(piece) * ", Sized(piece),
              ";");
    out_.Line("const ", index, " end_column = rg_min(first_column + ", Sized(piece),
              ", static_cast<", index, ">(", Sized(shape_.shape.columns), "));");
    block = absl::StrCat("static_cast<", index, ">(RG_BLOCK / ", Sized(schedule_.split), ")");
  }
  PrintPreloads();
  const int64_t stride = row_blocks_ * rows_at_once_;
  const bool loop = stride < shape_.shape.rows;
  const std::string first = rows_at_once_ > 1 ? absl::StrCat(block, " * ", rows_at_once_) : block;
  first_row_ = loop ? "row0" : first;
  turns_ = ScratchTakesTurns(schedule_, shape_.shape.rows, stages_.row_stages);
  if (turns_) out_.Line("int turn = 0;");
  BeginMeetings(loop);
  if (LooksAhead()) {
    for (int i : ahead_) Declare(i, true, "n");
    if (EndsAhead()) {
      for (int i : staged_) DeclareAtEnds(i, "m");
    }
    PrintAhead(first);
  }
  if (!staged_.empty()) {
    DeclareStaged();
    out_.Open("for (int batch = 0; batch < ", schedule_.staged, "; ++batch)");
    PrintStaging(absl::StrCat(first, " + batch * ", Sized(stride)));
    out_.Close();
    out_.Line("int batch = 0;");
  }
  if (cluster > 1 && loop) out_.Line("RG_MEETINGS_BEGUN();");
  if (loop) {
    out_.Open("for (", index, " row0 = ", first, "; row0 < ", Sized(shape_.shape.rows),
              "; row0 += ", Sized(stride), ")");
  }
  if (LooksAhead()) {
    TakeAhead();
    PrintAhead(absl::StrCat("row0 + ", Sized(stride)));
    UseAhead();
  }
  if (!staged_.empty()) out_.Line("RG_COPIES_WAIT(", schedule_.staged - 1, ");");
  for (int stage = 0; stage <= stages_.row_stages; ++stage) PrintStage(stage);
  if (!staged_.empty()) {
    PrintStaging(absl::StrCat("row0 + ", Sized(schedule_.staged * stride)));
    out_.Line("batch = batch + 1 == ", schedule_.staged, " ? 0 : batch + 1;");
  }
  if (turns_) out_.Line("turn = 1 - turn;");
  if (cluster > 1 && loop) out_.Line(turns_ ? "parity ^= 1 - turn;" : "parity ^= 1;");
  if (loop) out_.Close();
  if (cluster > 1) out_.Line("RG_END_MEETINGS();");
}

}  // namespace retrograd
