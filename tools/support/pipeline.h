// What every command does first: from the names on the command line to a plan, with a word on
// stderr when it takes longer than a person waits without one.
#ifndef RETROGRAD_TOOLS_SUPPORT_PIPELINE_H_
#define RETROGRAD_TOOLS_SUPPORT_PIPELINE_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/planner/planner.h"
#include "runtime/tuning/choice.h"

namespace retrograd {

class Device;

// Says on stderr which step is running, once two seconds have passed since the first one began.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Step(std::string what);  // "planning golf_tiny for h200"
  double Seconds() const;       // since the last Step

 private:
  struct State;
  State* state_;
};

// Options that the planning commands share, as given on the command line.
struct PlanArguments {
  std::string graph;
  std::string spec;  // empty: that of the device where it runs; of none, kReferenceSpec
  std::vector<std::string> disable, tighten;
  std::string feedback;          // file of a compiler report; empty: none
  uint64_t random_plan = 0;      // not 0: any legal plan by this seed
  std::string max_memory;        // "2GiB"; empty: no ceiling
  std::vector<std::string> set;  // numbers of the device: "max_registers=128"
  std::string bind;              // of the graph's sizes: "s0=1000,s1=64"; empty: at their hints
  std::string dtype;             // of every floating value; empty: as they are
  double scale_rows = 1;         // of the batch
};

// What is planned, and how.
struct OpenedGraph {
  BackwardGraph original;
  std::string sizes;      // at which sizes a graph with symbols is planned, in words; else ""
  std::string spec_text;  // the text form of spec
  std::string spec_note;  // ChosenSpec::note
  DeviceSpec spec;
  PlanOptions options;
  Choices choices;  // of library calls' implementations, where they are known
};
// What the arguments say of everything but the graph, which stays empty. `device`: where it will
// run, if it will.
absl::StatusOr<OpenedGraph> OpenOptions(const PlanArguments& arguments, const Device* device);
// The graph with numbers for its sizes, given as --bind takes them.
absl::StatusOr<BackwardGraph> BindSizes(const BackwardGraph& graph, const std::string& sizes);
// OpenedGraph::sizes of a graph that is planned as it was read: the hints of its symbols.
std::string HintedSizes(const BackwardGraph& graph);
absl::StatusOr<OpenedGraph> Open(const PlanArguments& arguments, Progress* progress,
                                 const Device* device = nullptr);
// The same without the arguments' --bind, --scale-rows and --dtype: the graph as it was read, with
// its symbols if it has some.
absl::StatusOr<OpenedGraph> OpenUnbound(const PlanArguments& arguments, Progress* progress,
                                        const Device* device = nullptr);
// What --scale-rows and --dtype make of a graph of numbers.
absl::Status ChangeGraph(const PlanArguments& arguments, BackwardGraph& graph);

struct PlannedGraph : OpenedGraph {
  Planned planned;
};
absl::StatusOr<PlannedGraph> Plan(OpenedGraph opened, const std::string& name, Progress* progress);

absl::StatusOr<PlannedGraph> OpenAndPlan(const PlanArguments& arguments, Progress* progress);

// One line for the user: "retrograd: <message>" on stderr. Returns the exit status 1.
int Report(absl::string_view tool, const absl::Status& status);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_SUPPORT_PIPELINE_H_
