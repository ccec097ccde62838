// What the threads of a scatter make of each position beside the sums: folds of its columns, by a
// team of threads each, and values that are stored where the position stands.
#ifndef RETROGRAD_CODEGEN_TEMPLATES_POSITION_RESULTS_H_
#define RETROGRAD_CODEGEN_TEMPLATES_POSITION_RESULTS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "codegen/print/point_printer.h"
#include "fusion/kernel/templates/scatter_workspace.h"

namespace retrograd {

class PositionResults {
 public:
  // What is printed at position u of a batch: the roots, where they add up, what is stored.
  struct AtPosition {
    std::vector<int> roots, reductions, stores;
  };
  using Printer = std::function<void(const AtPosition&)>;

  PositionResults(const ChunkThreads& threads, LaunchText* launch, PointPrinter* printer,
                  Printer at_position);

  bool folds() const { return threads_.fold > 0; }
  bool stores() const { return !launch_.ir().stores.empty(); }
  // What folds and stores need.
  std::vector<int> Roots() const;
  std::vector<int> Stores() const;  // numbers of all stores

  // All threads of a warp go on as long as one of them: they fold together. "longest": positions.
  void PrintLongest();
  // "whole": positions that each thread of the warp has; 0 if `condition` does not hold for one.
  void PrintWhole(absl::string_view condition);
  // Of a batch: the folds, finished; the other values that are stored; the stores, each of which
  // happens where `condition` holds; "": at all positions.
  void PrintFolds();
  void PrintValues();
  void PrintStores(const std::string& condition);

 private:
  // What is chosen among the numbers of a warp's threads.
  void PrintOfWarp(absl::string_view name, absl::string_view own, absl::string_view choose);
  void OpenBatch();
  void PrintFolds(const std::vector<int>& reductions);
  // An array for the value at each position of a batch.
  void Declare(int instr);

  const ChunkThreads threads_;
  const int at_once_;  // positions of a batch
  LaunchText& launch_;
  PointPrinter& printer_;
  SourceWriter& out_;
  Printer at_position_;
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_POSITION_RESULTS_H_
