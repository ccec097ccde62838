// Prints the evaluation of a KernelIr at one point, or at `width` consecutive points of the fastest
// axis, or of another one, at once. Templates decide which point, which instructions and where
// values are kept.
#ifndef RETROGRAD_CODEGEN_PRINT_POINT_PRINTER_H_
#define RETROGRAD_CODEGEN_PRINT_POINT_PRINTER_H_

#include <string>
#include <vector>

#include "codegen/print/launch_text.h"
#include "codegen/print/numbers/axis_numbers.h"
#include "fusion/kernel/ir/accesses/interleaved.h"

namespace retrograd {

// Where a value stands already, or shall be kept.
struct Home {
  std::string lane;  // the value of lane j: "v3[k * 8 + j]"; with one lane "v3[k]"
  std::string base;  // address of lane 0: "v3 + k * 8"; unused with one lane
  std::string pack;  // of a load whose lanes are kept as they lie in memory: address of the first
                     // of its packs, "v3 + k"; `lane` widens, there is no base
  bool row = false;  // of an index: counted from the first row, below 0 where there is no such row
  bool certain = false;  // of such an index: there is a row
};

// A load whose lanes pass through shared memory; with one lane, it is taken from there.
struct StagedLoad {
  std::string array;     // of the load's element type; empty: none
  std::string place;     // where the first of its packs lies, or its element
  int64_t step = 0;      // from one pack to the next
  bool filling = false;  // ask for the packs; else take them
};

// "rg_store_vec", or what does the same for values that are known to lie within the stored type.
absl::string_view VectorStoreName(const KernelIr& ir, const Store& store);

class PointPrinter {
 public:
  PointPrinter(LaunchText* launch, int width);
  PointPrinter(LaunchText* launch, const Vectors& vectors);

  int width() const { return width_; }
  const KernelIr& ir() const { return ir_; }
  const Vectors& vectors() const { return vectors_; }

  // "const int a0 = row / 64;" for what is used of the axes of `mask`; the number counts the points
  // of the axes in `mask` row-major.
  void DeclareAxes(AxisMask mask, const AxisUse& used, absl::string_view number);
  void SetAxis(int axis, std::string text) { axes_.Set(axis, std::move(text)); }
  // What is declared of axes: a text that another printer goes on with, or that goes on behind a
  // scope with declarations of its own.
  const AxisNumbers& axes() const { return axes_; }
  void SetAxes(AxisNumbers axes) { axes_ = std::move(axes); }
  std::string Text(const IndexExpr& e) const;  // of declared axes

  // The value of an instruction is computed into its home, or stands there if it is known.
  void SetHome(int instr, Home home) { homes_[instr] = std::move(home); }
  void SetStaged(int instr, StagedLoad load) { staged_[instr] = std::move(load); }
  void SetKnown(int instr, bool known) { known_[instr] = known; }
  bool known(int instr) const { return known_[instr]; }
  // Loads of one lane happen where this holds, too, and are as in a place outside elsewhere.
  void SetLoadCondition(std::string condition) { load_condition_ = std::move(condition); }
  // By instruction: whether its value is known, and where it stands. A text that is printed twice
  // begins with the same ones.
  struct Values {
    std::vector<bool> known;
    std::vector<Home> homes;
  };
  Values values() const { return {known_, homes_}; }
  void SetValues(Values values) {
    known_ = std::move(values.known);
    homes_ = std::move(values.homes);
  }
  // Where lane j adds to a reduction.
  void SetAccumulator(int instr, std::string lane) { accumulators_[instr] = std::move(lane); }

  // Instructions to evaluate for these, in order: the roots and their operands down to known ones.
  std::vector<int> Needed(const std::vector<int>& roots) const;
  // What the instructions and stores need of axes; `level` are the axes being walked, of which a
  // store that varies over fewer tests the others.
  AxisUse UsedAxes(const std::vector<int>& instrs, const std::vector<int>& stores,
                   AxisMask level) const;

  struct Work {
    std::vector<int> instrs;      // in order; from Needed()
    std::vector<int> reductions;  // to add this point to
    std::vector<int> stores;      // numbers of stores
    AxisMask level = 0;           // axes walked: a store that lacks some happens where those are 0
    std::string store_condition;  // and where this holds; "" always
    bool keep = false;            // values must outlive this text: lanes stand in arrays
  };
  void Print(const Work& work);

  // Elements that one access of a load brings in, if its lanes can be kept as they lie in memory; 0
  // if they can't.
  int PackWidth(int instr) const;
  // The same of a load that may not happen: its packs are zeros then.
  int GuardedPackWidth(int instr) const;

  // Whether the lanes of a vector may hold different values of it.
  bool InLanes(int instr) const { return width_ > 1 && lane_varies_[instr]; }
  std::string Ref(int instr) const;  // the value as an operand, in the current lane
  // acc folded with value, as the new accumulator value.
  std::string Folded(const Instr& reduction, absl::string_view acc, absl::string_view value) const;
  std::string Identity(const Instr& reduction) const;

 private:
  void FindSharedDivisors(const Work& work);
  void PrintReciprocal(int instr);
  void PrintFold(int instr);
  void PrintLanes(const Work& work);
  void Assign(int instr, const std::string& value);
  void Evaluate(int instr);
  bool OnlyStored(int instr) const;
  void Accumulate(int reduction);
  void PrintIndices(int instr);
  std::string ValueText(int instr) const;
  std::string LoadText(int instr) const;
  std::string PointwiseText(int instr) const;
  std::string IndexValueText(const Instr& instr) const;
  std::string OffsetText(int instr, int plus) const;
  std::string AllGuards(int instr, int plus) const;
  std::string GuardsText(const Instr& instr, int plus) const;
  std::string Rounded(const Instr& instr, std::string value) const;
  void LoadVector(int instr);
  // Of these, which are all evaluated lane by lane: those that were loaded together are taken away.
  void LoadInterleaved(std::vector<int>* instrs);
  std::string LoadRun(const InterleavedRun& run);
  void LoadStaged(int instr);
  void StoreVector(int store, const Work& work);
  void StoreLane(int store, const Work& work);
  void StoreRun(const InterleavedRun& run, const Work& work);
  std::string StoreCondition(int store, const Work& work) const;
  bool VectorLoad(int instr) const;
  bool VectorStore(int store) const;
  AxisLane LaneAt(int plus) const;

  LaunchText& launch_;
  const KernelIr& ir_;
  SourceWriter& out_;
  int width_;
  Vectors vectors_;
  int along_;  // the axis of the lanes
  std::vector<bool> lane_varies_;
  AxisNumbers axes_;
  std::vector<Home> homes_;
  std::vector<StagedLoad> staged_;
  std::vector<bool> known_;
  std::string load_condition_;
  std::vector<bool> array_;  // lanes stand in an array v<n>
  std::vector<std::string> accumulators_;
  // Of a quotient of a shared divisor: the first quotient by it, which names the reciprocal; else
  // -1.
  std::vector<int> reciprocals_;
  const std::vector<bool> zero_where_small_;  // exponentials
  bool in_lane_loop_ = false;
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_POINT_PRINTER_H_
