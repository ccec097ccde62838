// Prints the loop over rows of row_reduction and row_column kernels. Each block has some of the
// rows. The threads of a row go over its columns once a stage: they add to the stage's reductions,
// combine them among the threads of the row, and go on with the finished values.
#ifndef RETROGRAD_CODEGEN_TEMPLATES_ROW_WALK_H_
#define RETROGRAD_CODEGEN_TEMPLATES_ROW_WALK_H_

#include <optional>
#include <string>
#include <vector>

#include "codegen/print/point_printer.h"
#include "fusion/kernel/templates/row_walks.h"

namespace retrograd {

class RowWalk {
 public:
  RowWalk(const Classification& shape, LaunchText* launch, PointPrinter* printer);

  // Instructions that add down the columns too, into accumulators that the caller declared.
  void AddColumnReductions(const std::vector<int>& reductions) { column_reductions_ = reductions; }
  // Stores that the caller prints.
  void LeaveOut(const std::vector<int>& stores) { left_out_ = stores; }

  void PrintThreadNumbers();
  void PrintRows();

  int64_t chunks() const { return chunks_; }  // runs of columns that one thread handles in a row
  std::string ChunkColumn() const;            // first column of run k
  std::string Row() const {
    return RowFrom(first_row_);
  }  // number of the thread's row (row r of several)
  std::vector<int> row_reductions() const;
  static std::string RowAccumulator(int reduction, int rows_per_thread);

 private:
  struct StageWork {
    std::vector<int> row_instrs, point_instrs;
    std::vector<int> reductions;  // row reductions first, then column reductions
    std::vector<int> row_stores, point_stores;
  };
  StageWork WorkOf(int stage) const;
  // Both printers, or the one.
  template <typename F>
  void EachPrinter(const F& f) {
    f(printer_);
    if (ends_.has_value()) f(*ends_);
  }
  // Loads of a stage that are under way together before it stores anything: no compiler moves a
  // load over a store.
  std::vector<int> LoadedFirst(const StageWork& work) const;
  std::string RowFrom(const std::string& first_row) const;
  bool ByColumn(int instr) const;  // varies over columns
  bool IsStaged(int instr) const;
  bool LooksAhead() const { return !ahead_.empty() || EndsAhead(); }
  // What is staged of vectors is loaded ahead of ends, into registers.
  bool EndsAhead() const { return !staged_.empty() && ends_.has_value(); }
  void ChooseKept();
  void KeepCostly(int stage, const std::vector<int>& instrs);
  void ChooseAhead();
  void ChooseStaged();
  void DeclareStaged();
  void PlaceStaged(bool filling);
  void PrintStaging(const std::string& first_row);
  void PrintAhead(const std::string& first_row);
  void PrintEndsAhead();
  void TakeAhead();
  void UseAhead();
  void DeclareKept(int stage);
  // Room for the value, in all runs and rows of the thread where it varies over them.
  void Declare(int instr, bool by_row, absl::string_view prefix = "v");
  Home HomeOf(int instr, bool by_row, absl::string_view prefix = "v") const;
  // The same of the thread's ends of rows.
  void DeclareAtEnds(int instr, absl::string_view prefix = "e");
  Home HomeAtEnds(int instr, absl::string_view prefix = "e") const;
  void PrintPreloads();
  void PrintStage(int stage);
  void ForgetKept(int stage, const std::vector<int>& instrs, const std::vector<int>& stores,
                  const std::vector<int>& reductions);
  void PrintPointsOf(StageWork work);
  void PrintColumns(const StageWork& work, const std::string& row_condition);
  void PrintPoints(PointPrinter& printer, const StageWork& work, const std::string& row_condition);
  void PrintVectors(const StageWork& work);
  void PrintEnds(const StageWork& work);
  void CombineAcrossThreads(const std::vector<int>& reductions);
  void BeginMeetings(bool loop);
  void CombineAcrossCluster(const std::vector<int>& reductions, int stage, bool loop);
  bool NeedsShared() const { return MeetsThroughShared(schedule_); }
  bool unrolled() const;  // runs of columns are numbered by k in an unrolled loop

  const Classification& shape_;
  const Schedule& schedule_;
  LaunchText& launch_;
  PointPrinter& printer_;
  std::optional<PointPrinter> ends_;  // of rows with ends
  const KernelIr& ir_;
  SourceWriter& out_;
  Stages stages_;
  const int64_t lanes_;  // threads side by side along a row
  int64_t chunks_ = 1;
  int64_t ends_of_thread_ = 0;
  int64_t row_blocks_ = 1;
  int64_t rows_at_once_ = 1;  // of a block
  std::string first_row_;     // of the block, as text
  std::vector<int> column_reductions_, left_out_;
  std::vector<int> kept_stage_;  // by instruction: stage that makes it for later ones, or -1
  std::vector<int> costly_;      // computed values that are kept
  std::vector<bool> preloaded_;  // by instruction: loaded before the first row
  std::vector<int> staged_;      // loads that pass through shared memory, batches ahead
  std::vector<int> ahead_;       // other loads of the next rows while these are worked on
  bool turns_ = false;           // scratch of one round of rows is not that of the next
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_ROW_WALK_H_
