// Columns held on chip. Each block of a cluster copies its rows of the cluster's slab of columns
// into shared memory, each thread what it will read itself, so nobody waits for another's copies. A
// round of reductions adds up what threads hold, then what teams of 32 threads, blocks and the
// cluster do, in an order that is the same on all devices. What depends on the results is evaluated
// from the rows that lie there. Stores that run along the rows pass through a tile, as those of
// wide tiles do.
//
// Schedules that hold nothing read the rows again in each stage.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/templates/column_totals.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/templates/held_columns/column_slabs.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kTeam = kThreadsOfTeam;
constexpr int64_t kLineBytes = 128;  // of caches

class SlabWriter {
 public:
  SlabWriter(const KernelBody& body, Dialect dialect)
      : ir_(body.ir),
        schedule_(body.schedule),
        shape_(Classify(body.ir)),
        slab_(SlabOf(ir_, shape_.shape, schedule_)),
        stages_(AssignStages(ir_, shape_)),
        shared_(SharedColumnValues(ir_, shape_.shape, stages_)),
        launch_(body, dialect, schedule_.threads, schedule_.blocks),
        printer_(&launch_, slab_.vectors),
        out_(launch_.out),
        rows_fill_(slab_.places_of_block() == slab_.rows_of_block &&
                   slab_.rows_of_block * schedule_.cluster == slab_.rows),
        columns_fill_(slab_.columns % slab_.columns_of_slab() == 0) {
    RG_CHECK(schedule_.blocks == slab_.slabs * schedule_.cluster);
  }

  Kernel Write() {
    launch_.UseWideIndexAbove(
        std::max(slab_.columns + slab_.columns_of_slab(),
                 slab_.rows_of_block * schedule_.cluster + slab_.places_of_block()));
    index_ = launch_.index_type();
    if (schedule_.cluster > 1) {
      launch_.SetHead(KernelHead::kCluster, PreludePart::kClusters);
      launch_.SetCluster(schedule_.cluster);
    }
    out_.SetDepth(1);
    const bool nothing = slab_.columns == 0;
    if (nothing) out_.Open("if (RG_BLOCK < 0)");
    DeclarePlaces();
    if (HoldsRows(schedule_)) Fill();
    for (int round = 1; round <= stages_.row_stages; ++round) Reduce(round);
    Finish();
    if (schedule_.cluster > 1) out_.Line("RG_CLUSTER_WAIT();");  // others may still read its sums
    if (nothing) out_.Close();
    return launch_.Finish("");
  }

 private:
  bool IsOfRows(int instr) const { return (ir_.instrs[instr].axes & slab_.row_axes) != 0; }

  void DeclarePlaces() {
    std::vector<int> roots, stores;
    for (size_t s = 0; s < ir_.stores.size(); ++s) {
      roots.push_back(ir_.stores[s].instr);
      if (TileStoreWidth(ir_, slab_, ir_.stores[s]) == 0) stores.push_back(static_cast<int>(s));
    }
    const AxisUse used = printer_.UsedAxes(printer_.Needed(roots), stores, ir_.all_axes());
    const int cluster = schedule_.cluster;
    if (slab_.thread_rows > 1) {
      out_.Line("const int lane = RG_THREAD % ", slab_.lanes, ", thread_row = RG_THREAD / ",
                slab_.lanes, ";");
    } else {
      out_.Line("const int lane = RG_THREAD;");
    }
    if (cluster > 1) out_.Line("const int rank = RG_BLOCK % ", cluster, ";");
    out_.Line("const ", index_, " c0 = static_cast<", index_, ">(RG_BLOCK",
              cluster > 1 ? absl::StrCat(" / ", cluster) : "", ") * ", slab_.columns_of_slab(),
              ";");
    const std::string own = absl::StrCat("c0 + lane", Times(slab_.width()));
    if (columns_fill_) {
      out_.Line("const ", index_, " c = ", own, ";");
    } else {
      out_.Line("const bool inside = ", own, " < ", Sized(slab_.columns), ";");
      out_.Line("const ", index_, " c = inside ? ", own, " : 0;");
    }
    DeclareColumn(printer_, "c", used);
    out_.Line("const ", index_, " row0 = ",
              cluster > 1
                  ? absl::StrCat("static_cast<", index_, ">(rank) * ", Sized(slab_.rows_of_block))
                  : "0",
              ";");
    if (!rows_fill_) {
      const std::string end = absl::StrCat("row0 + ", Sized(slab_.rows_of_block));
      out_.Line("const ", index_, " end = rg_min(static_cast<", index_, ">(", end,
                "), static_cast<", index_, ">(", Sized(slab_.rows), "));");
    }
    out_.Line("const ", index_, " first = row0",
              slab_.thread_rows > 1 ? absl::StrCat(" + thread_row", Times(slab_.rows_at_once)) : "",
              ";");
  }

  static std::string Times(int64_t n) { return n == 1 ? "" : absl::StrCat(" * ", n); }

  // The axes of a column, whose number counts along the vectors' axis first.
  void DeclareColumn(PointPrinter& printer, absl::string_view number, const AxisUse& used) {
    const int axis = slab_.vectors.axis;
    const AxisMask along = AxisMask{1} << axis, others = slab_.column_axes & ~along;
    if (ir_.Points(others) == 1) {
      if ((used.axes & along) != 0) out_.Line("const ", index_, " a", axis, " = ", number, ";");
      return;
    }
    const std::string extent = Sized(std::max<int64_t>(ir_.extents[axis], 1));
    if ((used.axes & along) != 0) {
      out_.Line("const ", index_, " a", axis, " = ", number, " % ", extent, ";");
    }
    printer.DeclareAxes(others, used, absl::StrCat(number, " / ", extent));
  }

  // A loop over the thread's rows, at one of which what follows is printed.
  void OpenBatches() {
    if (slab_.batches > 1) {
      out_.Open("for (int i = 0; i < ", Sized(slab_.batches), "; ++i)");
    } else {
      out_.OpenScope();
    }
  }

  std::string InBatch(int64_t each) const {
    return slab_.batches > 1 ? absl::StrCat(" + i * ", each) : "";
  }

  // `used`: the axes that it names.
  void OpenRow(const AxisUse& used) {
    const int at_once = slab_.rows_at_once;
    const bool several = launch_.OpenUnrolled("q", at_once);
    if (!several) out_.OpenScope();
    if (!rows_fill_ || (used.axes & slab_.row_axes) != 0) {
      out_.Line("const ", index_, " row = first", InBatch(slab_.rows_of_batch()),
                several ? " + q" : "", ";");
    }
    std::vector<std::string> conditions;
    if (!rows_fill_) conditions.push_back("row < end");
    if (!columns_fill_) conditions.push_back("inside");
    guarded_ = !conditions.empty();
    if (guarded_) out_.Open("if (", absl::StrJoin(conditions, " && "), ")");
    printer_.DeclareAxes(slab_.row_axes, used, "row");
    if (!HoldsRows(schedule_)) return;
    const int64_t each = int64_t{schedule_.threads} * slab_.width();
    out_.Line("[[maybe_unused]] const int slot = ", several ? absl::StrCat("q * ", each) : "0",
              InBatch(at_once * each), ";");
  }

  void CloseRow() {
    if (guarded_) out_.Close();
    out_.Close();
  }

  // Whether clusters nearby copy the rest of the lines that this load reads a part of.
  bool IsPartOfLine(const Instr& load) const {
    const Buffer& buffer = ir_.buffers[load.buffer];
    const bool all_is_read = ir_.Points(load.axes) >= buffer.elements;
    return all_is_read && slab_.columns_of_slab() * SizeBytes(buffer.dtype) < kLineBytes;
  }

  void Fill() {
    const std::vector<int> held = *HeldLoads(ir_, shape_.shape, slab_.vectors);
    const int threads = schedule_.threads, width = slab_.width();
    for (int i : held) {
      launch_.Staged(ir_.buffers[ir_.instrs[i].buffer].dtype, absl::StrCat("held", i),
                     slab_.places_of_block() * slab_.columns_of_slab());
    }
    OpenBatches();
    OpenRow(printer_.UsedAxes(held, {}, 0));
    for (int i : held) {
      const int access = width > 1 ? LoadWidth(ir_, i, slab_.vectors) : 1;
      const std::string offset = printer_.Text(ir_.instrs[i].offset);
      const bool part = IsPartOfLine(ir_.instrs[i]);
      for (int m = 0; m < width; m += access) {
        out_.Line(part ? "rg_copy_part_ahead<" : "rg_copy_ahead<", access, ">(held", i, ", slot + ",
                  m > 0 ? absl::StrCat(m * threads, " + ") : "", "RG_THREAD", Times(access), ", ",
                  launch_.BufferName(ir_.instrs[i].buffer), ", ", offset,
                  m > 0 ? absl::StrCat(" + ", m) : "", ");");
      }
      printer_.SetStaged(i, {.array = absl::StrCat("held", i),
                             .place = absl::StrCat("slot + RG_THREAD", Times(access)),
                             .step = int64_t{access} * threads});
    }
    CloseRow();
    out_.Close();
    out_.Line("RG_COPIES_SENT();");
    out_.Line("RG_COPIES_WAIT(0);");
    launch_.SetThreadsMeet();
  }

  // What these need and a column has one of is evaluated here; returns the others.
  std::vector<int> EvaluateColumns(const std::vector<int>& roots) {
    std::vector<int> of_columns, of_rows;
    for (int i : printer_.Needed(roots)) (IsOfRows(i) ? of_rows : of_columns).push_back(i);
    printer_.Print({.instrs = of_columns, .reductions = {}, .stores = {}, .keep = true});
    for (int i : of_columns) printer_.SetKnown(i, true);
    return of_rows;
  }

  void Reduce(int round) {
    ColumnTotals totals{.column_axes = slab_.column_axes,
                        .columns = slab_.columns,
                        .lanes = slab_.lanes,
                        .thread_rows = slab_.thread_rows,
                        .width = slab_.width()};
    std::vector<int> roots;
    for (size_t i = 0; i < ir_.instrs.size(); ++i) {
      if (FoldedAxes(ir_, ir_.instrs[i]) == 0 || stages_.stage[i] != round) continue;
      totals.reductions.push_back(static_cast<int>(i));
      roots.push_back(ir_.instrs[i].operands[0]);
    }
    DeclareColumnAccumulators(totals, &launch_, &printer_);
    const std::vector<int> of_rows = EvaluateColumns(roots);
    OpenBatches();
    OpenRow(printer_.UsedAxes(of_rows, {}, 0));
    printer_.Print({.instrs = of_rows,
                    .reductions = totals.reductions,
                    .stores = {},
                    .level = ir_.all_axes()});
    CloseRow();
    out_.Close();
    std::vector<std::string> sums;
    for (int r : totals.reductions) {
      sums.push_back(ColumnAccumulator(r, slab_.width(), 1, printer_.InLanes(r) ? "j" : "0"));
    }
    if (SharesColumns(schedule_)) {
      FoldTeams(totals.reductions);
      FoldBlock(totals.reductions, round);
      if (schedule_.cluster > 1) FoldCluster(totals.reductions, round);
      launch_.Barrier();
      if (schedule_.cluster > 1 && round == stages_.row_stages) out_.Line("RG_CLUSTER_DONE();");
      TakeColumns(totals.reductions, round);
    }
    UseFinishedReductions(totals.reductions, sums, &printer_);
  }

  // Neighbouring threads that have the same columns, in teams of 32: pairs of them add up until all
  // have the team's sums.
  void FoldTeams(const std::vector<int>& reductions) {
    for (int r : reductions) {
      const std::string sum = ColumnAccumulator(r, slab_.width(), 1);
      for (int apart = kTeam / 2; apart >= slab_.lanes; apart /= 2) {
        const bool loop = launch_.OpenUnrolled("j", slab_.width());
        out_.Line(sum, " = ",
                  printer_.Folded(ir_.instrs[r], sum,
                                  absl::StrCat("RG_SHUFFLE_XOR(", sum, ", ", apart, ")")),
                  ";");
        if (loop) out_.Close();
      }
    }
    launch_.SetThreadsMeet();
  }

  // What the teams have, one after the other: the block's sums, which are the totals where no other
  // block has rows.
  void FoldBlock(const std::vector<int>& reductions, int round) {
    const int teams = TeamsOf(slab_);
    const bool alone = schedule_.cluster == 1;
    const int64_t columns = slab_.columns_of_slab();
    const absl::string_view result = alone ? "total" : "sum";
    for (int r : reductions) {
      const DType type = AccumulatorType(ir_.instrs[r].dtype);
      launch_.Shared(type, absl::StrCat(result, r), columns);
      if (teams > 1) launch_.Shared(type, absl::StrCat("part", r), columns * teams);
    }
    RG_CHECK(teams > 1 || !alone);
    const bool some = slab_.lanes < kTeam;
    if (some) out_.Open("if (RG_THREAD % ", kTeam, " < ", slab_.lanes, ")");
    const std::string team =
        absl::StrCat("RG_THREAD / ", std::max(kTeam, slab_.lanes), " * ", columns, " + ");
    for (int r : reductions) {
      teams > 1 ? MoveSums(r, absl::StrCat("part", r), team, /*out=*/true)
                : MoveSums(r, absl::StrCat("sum", r), "", /*out=*/true);
    }
    if (some) out_.Close();
    if (teams == 1) return;
    launch_.Barrier();
    OpenColumns();
    for (int r : reductions) {
      FoldInOrder(r, absl::StrCat("part", r, "[n]"), teams,
                  absl::StrCat("part", r, "[b * ", columns, " + n]"), absl::StrCat(result, r));
    }
    if (alone) MakeColumns(reductions, round);
    out_.Close();
  }

  // What the blocks of the cluster have, by their numbers.
  void FoldCluster(const std::vector<int>& reductions, int round) {
    out_.Line("RG_CLUSTER_ARRIVE();");
    out_.Line("RG_CLUSTER_WAIT();");
    for (int r : reductions) {
      launch_.Shared(AccumulatorType(ir_.instrs[r].dtype), absl::StrCat("total", r),
                     slab_.columns_of_slab());
    }
    OpenColumns();
    for (int r : reductions) {
      FoldInOrder(r, absl::StrCat("RG_PEER(sum", r, ", 0, n)"), schedule_.cluster,
                  absl::StrCat("RG_PEER(sum", r, ", b, n)"), absl::StrCat("total", r));
    }
    MakeColumns(reductions, round);
    out_.Close();
  }

  // A thread has column n of the slab.
  void OpenColumns() {
    const int64_t columns = slab_.columns_of_slab();
    if (columns > schedule_.threads) {
      out_.Open("for (int n = RG_THREAD; n < ", columns, "; n += ", schedule_.threads, ")");
    } else {
      out_.Open("if (RG_THREAD < ", columns, ")");
      out_.Line("const int n = RG_THREAD;");
    }
  }

  // What follows from column n's totals: for the rows, and behind the last round what is stored.
  void MakeColumns(const std::vector<int>& reductions, int round) {
    PointPrinter one(&launch_, Vectors{.axis = slab_.vectors.axis, .width = 1});
    one.SetAxes(printer_.axes());
    std::vector<std::string> totals;
    std::vector<int> finished;
    for (size_t i = 0; i < ir_.instrs.size(); ++i) {
      const int r = static_cast<int>(i);
      if (FoldedAxes(ir_, ir_.instrs[i]) == 0 || stages_.stage[i] > round) continue;
      const bool now = std::find(reductions.begin(), reductions.end(), r) != reductions.end();
      finished.push_back(r);
      totals.push_back(now ? absl::StrCat("all", r) : absl::StrCat("total", r, "[n]"));
    }
    UseFinishedReductions(finished, totals, &one);
    const std::vector<int>& values = shared_[round - 1];
    std::vector<int> roots = values, stores;
    for (size_t s = 0; s < ir_.stores.size() && round == stages_.row_stages; ++s) {
      if (IsOfRows(ir_.stores[s].instr)) continue;
      stores.push_back(static_cast<int>(s));
      roots.push_back(ir_.stores[s].instr);
    }
    if (roots.empty()) return;
    const std::vector<int> instrs = one.Needed(roots);
    out_.Line("const ", index_, " column = c0 + n;");
    if (!columns_fill_) out_.Open("if (column < ", Sized(slab_.columns), ")");
    DeclareColumn(one, "column", one.UsedAxes(instrs, stores, slab_.column_axes));
    one.Print({.instrs = instrs,
               .reductions = {},
               .stores = stores,
               .level = slab_.column_axes,
               .store_condition = schedule_.cluster > 1 ? "rank == 0" : ""});
    for (int i : values) {
      const DType type = ComputeType(ir_.instrs[i].dtype);
      out_.Line(launch_.Shared(type, absl::StrCat("follows", i), slab_.columns_of_slab()),
                "[n] = ", one.Ref(i), ";");
    }
    if (!columns_fill_) out_.Close();
  }

  // The totals of a thread's own columns, and what was made of them.
  void TakeColumns(const std::vector<int>& reductions, int round) {
    for (int r : reductions) MoveSums(r, absl::StrCat("total", r), "", /*out=*/false);
    const int width = slab_.width();
    for (int i : shared_[round - 1]) {
      const std::string name = absl::StrCat("v", i), from = absl::StrCat("follows", i, "[");
      const absl::string_view type = ComputeName(ir_.instrs[i].dtype);
      const std::string else_zero = columns_fill_ ? "" : "inside ? ";
      const std::string end = columns_fill_ ? ";" : absl::StrCat(" : ", type, "();");
      if (width == 1) {
        out_.Line("const ", type, " ", name, " = ", else_zero, from, "lane]", end);
      } else {
        out_.Line(type, " ", name, "[", width, "];");
        launch_.OpenUnrolled("j", width);
        out_.Line(name, "[j] = ", else_zero, from, "lane", Times(width), " + j]", end);
        out_.Close();
      }
      const bool lanes = printer_.InLanes(i);
      printer_.SetHome(i, {.lane = width == 1 ? name : absl::StrCat(name, lanes ? "[j]" : "[0]"),
                           .base = width == 1 ? "" : name});
      printer_.SetKnown(i, true);
    }
  }

  // array[n] = the first of `count` folded with the others, number b of which is `next`.
  void FoldInOrder(int r, absl::string_view first, int count, absl::string_view next,
                   absl::string_view array) {
    const Instr& reduction = ir_.instrs[r];
    const std::string all = absl::StrCat("all", r);
    out_.Line(AccumulatorName(reduction.dtype), " ", all, " = ", first, ";");
    out_.Pragma(SpellingOf(launch_.dialect()).unroll);
    out_.Line("for (int b = 1; b < ", count, "; ++b) ", all, " = ",
              printer_.Folded(reduction, all, next), ";");
    out_.Line(array, "[n] = ", all, ";");
  }

  // The accumulators of a thread's columns to a shared array, or from there.
  void MoveSums(int r, const std::string& array, absl::string_view from, bool out) {
    const bool loop = launch_.OpenUnrolled("j", slab_.width());
    const std::string sum = ColumnAccumulator(r, slab_.width(), 1);
    const std::string place =
        absl::StrCat(array, "[", from, "lane", Times(slab_.width()), loop ? " + j" : "", "]");
    out_.Line(out ? place : sum, " = ", out ? sum : place, ";");
    if (loop) out_.Close();
  }

  void Finish() {
    std::vector<int> roots, of_columns, of_rows, by_tile;
    for (size_t n = 0; n < ir_.stores.size(); ++n) {
      const Store& store = ir_.stores[n];
      const bool stored = !IsOfRows(store.instr) && SharesColumns(schedule_);
      if (stored) continue;  // where it was made
      roots.push_back(store.instr);
      const bool rows = IsOfRows(store.instr);
      const bool tile = rows && TileStoreWidth(ir_, slab_, store) > 0;
      (tile ? by_tile : rows ? of_rows : of_columns).push_back(static_cast<int>(n));
    }
    const std::vector<int> instrs = EvaluateColumns(roots);
    StoreColumns(of_columns);
    if (of_rows.empty() && by_tile.empty()) return;
    for (int s : by_tile) {
      launch_.Shared(ir_.buffers[ir_.stores[s].buffer].dtype, absl::StrCat("tile", s),
                     slab_.columns_of_slab() * TilePitch(slab_));
    }
    OpenBatches();
    const int at_once = slab_.rows_at_once, width = slab_.width();
    for (int s : by_tile) {
      out_.Line(ComputeName(ir_.instrs[ir_.stores[s].instr].dtype), " made", s, "[",
                at_once * width, "];");
    }
    OpenRow(printer_.UsedAxes(instrs, of_rows, ir_.all_axes()));
    printer_.Print({.instrs = instrs,
                    .reductions = {},
                    .stores = of_rows,
                    .level = ir_.all_axes(),
                    .keep = !by_tile.empty()});
    if (!by_tile.empty()) {
      const bool loop = launch_.OpenUnrolled("j", width);
      for (int s : by_tile) {
        out_.Line("made", s, "[", loop ? absl::StrCat("j * ", at_once, " + ") : "",
                  "q] = ", printer_.Ref(ir_.stores[s].instr), ";");
      }
      if (loop) out_.Close();
    }
    CloseRow();
    if (!by_tile.empty()) StoreTiles(by_tile);
    out_.Close();
  }

  void StoreColumns(const std::vector<int>& stores) {
    if (stores.empty()) return;
    columns_fill_ ? out_.OpenScope() : out_.Open("if (inside)");
    printer_.Print({.instrs = {}, .reductions = {}, .stores = stores, .level = slab_.column_axes});
    out_.Close();
  }

  // Results of a batch: packed by columns into the tiles, then stored along the rows.
  void StoreTiles(const std::vector<int>& stores) {
    const int64_t pitch = TilePitch(slab_);
    const int at_once = slab_.rows_at_once;
    const bool loop = launch_.OpenUnrolled("j", slab_.width());
    for (int s : stores) {
      out_.Line(VectorStoreName(ir_, ir_.stores[s]), "<", at_once, ">(tile", s, ", (lane",
                Times(slab_.width()), loop ? " + j) * " : ") * ", pitch,
                slab_.thread_rows > 1 ? absl::StrCat(" + thread_row * ", at_once) : "", ", made", s,
                loop ? absl::StrCat(" + j * ", at_once) : "", ");");
    }
    if (loop) out_.Close();
    launch_.Barrier();
    for (int s : stores) StoreTile(s, pitch);
    if (slab_.batches > 1) launch_.Barrier();
  }

  // Of 32 threads 8 go along a column and 4 have columns of their own, where there are as many:
  // lines of 128 bytes are stored, and the words of a tile are in different banks.
  void StoreTile(int s, int64_t pitch) {
    const Store& store = ir_.stores[s];
    const int width = TileStoreWidth(ir_, slab_, store);
    const int64_t in_column = slab_.rows_of_batch() / width;
    const int64_t places = slab_.columns_of_slab() * in_column;
    const int64_t turns = places / schedule_.threads;
    if (places % schedule_.threads != 0) {
      out_.Open("for (int place = RG_THREAD; place < ", places, "; place += ", schedule_.threads,
                ")");
    } else {
      if (!launch_.OpenUnrolled("n", turns)) out_.OpenScope();
      out_.Line("const int place = ",
                turns > 1 ? absl::StrCat("n * ", schedule_.threads, " + ") : "", "RG_THREAD;");
    }
    if (in_column % 8 == 0 && slab_.columns_of_slab() % 4 == 0) {
      out_.Line("const int s = place / 8 % 4 + place / ", 4 * in_column, " * 4;");
      out_.Line("const int f = (place % 8 + place / 32 % ", in_column / 8, " * 8) * ", width, ";");
    } else {
      out_.Line("const int s = place / ", in_column, ", f = place % ", in_column, " * ", width,
                ";");
    }
    std::vector<std::string> conditions;
    out_.Line("const ", index_, " column = c0 + s;");
    out_.Line("const ", index_, " row = row0", InBatch(slab_.rows_of_batch()), " + f;");
    if (!rows_fill_) conditions.push_back("row < end");
    if (!columns_fill_) conditions.push_back(absl::StrCat("column < ", Sized(slab_.columns)));
    if (!conditions.empty()) out_.Open("if (", absl::StrJoin(conditions, " && "), ")");
    const AxisNumbers outside = printer_.axes();
    AxisUse used;
    used.AddOffset(store.offset);
    DeclareColumn(printer_, "column", used);
    printer_.DeclareAxes(slab_.row_axes, used, "row");
    out_.Line("rg_store_from<", width, ", ", slab_.rows_at_once, ">(",
              launch_.BufferName(store.buffer), ", ", printer_.Text(store.offset), ", tile", s,
              ", s * ", pitch, " + f);");
    printer_.SetAxes(outside);
    if (!conditions.empty()) out_.Close();
    out_.Close();
  }

  const KernelIr& ir_;
  const Schedule& schedule_;
  const Classification shape_;
  const ColumnSlab slab_;
  const Stages stages_;
  const std::vector<std::vector<int>> shared_;  // by round
  LaunchText launch_;
  PointPrinter printer_;
  SourceWriter& out_;
  const bool rows_fill_, columns_fill_;  // no block or thread is left with fewer than the others
  absl::string_view index_;
  bool guarded_ = false;
};

}  // namespace

GroupKernels EmitHeldColumns(const KernelBody& body, Dialect dialect) {
  return {.launches = {SlabWriter(body, dialect).Write()}};
}

}  // namespace retrograd
