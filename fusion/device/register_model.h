// How many registers a compiler gives a thread, as data: for each kind of launch a sum of counts of
// the kernel (words that it holds, tensors that it addresses) times coefficients, which were fitted
// to what a run-time compiler reports (scripts/fit_registers.py).
#ifndef RETROGRAD_FUSION_DEVICE_REGISTER_MODEL_H_
#define RETROGRAD_FUSION_DEVICE_REGISTER_MODEL_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace retrograd {

// Launches that differ in what they keep in registers. The first nine are main launches.
enum class LaunchKind : uint8_t {
  kPointwise,
  kTranspose,
  kColumnReduction,
  kRowReduction,
  kRowReductionPersistent,
  kRowColumn,
  kRowColumnPersistent,
  kScatterSum,
  kHeldColumns,
  kColumnFinalize,  // of column_reduction and row_column
  kRowFinalize,
  kScatterCombine,
};
inline constexpr int kNumLaunchKinds = 12;
inline constexpr absl::string_view kLaunchKindNames[kNumLaunchKinds] = {"pointwise",
                                                                        "transpose",
                                                                        "column_reduction",
                                                                        "row_reduction",
                                                                        "row_reduction persistent",
                                                                        "row_column",
                                                                        "row_column persistent",
                                                                        "scatter_sum",
                                                                        "held_columns",
                                                                        "column_finalize",
                                                                        "row_finalize",
                                                                        "scatter_combine"};

// What a prediction counts. Words have 32 bits; "held" means of all elements that a thread holds at
// once: of its columns times its rows.
enum class RegisterCount : uint8_t {
  kOne,      // the constant
  kBuffers,  // tensors addressed
  kLoads,    // load instructions
  kStores,
  kInstructions,  // of the IR
  kLiveWords,     // live at once while one element is evaluated
  kLoadedVector,  // words that the loads of one vector bring in, as they lie in memory
  kLoadedHeld,    // the same, of all elements
  kStoredVector,  // words that the stores of one vector write, as they lie in memory
  kCarriedHeld,   // made in one stage and used in a later one, of all elements
  kColumnSums,    // accumulators of column reductions, of all columns of a thread
  kColumnLoads,   // values that vary over columns alone, of all columns of a thread
  kRowSums,       // accumulators of row reductions, of all rows of a thread
  kGuards,        // guards of all elements that are evaluated in one straight line
  kRuns,          // runs of columns that a thread handles one after the other, unrolled
  kSplit,         // 1: rows walked in a loop; columns in pieces; finalize: threads share a column
  kStaged,        // 1: rows lie in shared memory
};
inline constexpr int kNumRegisterCounts = 17;
inline constexpr absl::string_view kRegisterCountNames[kNumRegisterCounts] = {
    "one",           "buffers",     "loads",         "stores",       "instructions", "live_words",
    "loaded_vector", "loaded_held", "stored_vector", "carried_held", "column_sums",  "column_loads",
    "row_sums",      "guards",      "runs",          "split",        "staged"};
using RegisterCounts = std::array<int64_t, kNumRegisterCounts>;

// One kind of launch. Coefficients are thousandths of a register for each count.
struct RegisterModel {
  std::array<int64_t, kNumRegisterCounts> milli = {};
  // What is added to the expected registers before they are compared with what a thread may have,
  // so that what is expected to fit does not spill: a share, and thousandths of a register a guard.
  int64_t spill_margin_ppm = 0, staged_spill_margin_ppm = 0;
  int64_t spill_guards_milli = 0;
  // Slack: how far above what a thread may have the expected registers may lie for the compiler to
  // find room all the same, and the share of such kernels that spill.
  struct Slack {
    int64_t share_ppm = 0, spill_chance_ppm = 0;
  };
  Slack slack, staged_slack;
  // Kernels of more than so many instructions whose threads handle one element at a time: the
  // compiler loads what it needs when it needs it. 0: the sum is for them, too.
  struct Long {
    int64_t above = 0, one_milli = 0, stores_milli = 0, live_words_milli = 0;
  };
  Long long_kernels;
  std::string source;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_DEVICE_REGISTER_MODEL_H_
