// A kernel template: a way in which threads traverse the points of a kernel. Each is one const
// object of data and plain functions, in the file of its name. All that differs between templates
// is a member here, apart from the text of the kernels (codegen/templates/templates.h) and the plan
// checker (fusion/verify/template_checks.cc), which shares no code with what it judges.
//
// A new template is a row of templates.def, its file, its emitter's file, and a row in
// template_checks.cc.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_KERNEL_TEMPLATE_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_KERNEL_TEMPLATE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "fusion/device/register_model.h"
#include "fusion/kernel/templates/candidate_list.h"
#include "fusion/kernel/templates/folds.h"
#include "fusion/kernel/templates/registers.h"
#include "fusion/kernel/templates/schedule.h"

namespace retrograd {

// How the points of a kernel are assigned to threads.
enum class Walk : uint8_t {
  kPoints,   // each thread computes points of its own, in any order
  kColumns,  // each thread has columns of its own and loops over their rows
  kRows,     // the threads of a team share a row
};

// Points of one thread, by how their evaluation overlaps.
struct PointsOfThread {
  int64_t at_once = 1;    // evaluated together
  int64_t under_way = 1;  // whose loads are in flight before the thread must wait
  int64_t vectors = 1;    // loaded together in straight-line code, where no value is kept
  // As under_way, of loads in a stage that stores as it goes: none passes a store. 0: no stage
  // does.
  int64_t among_stores = 0;
};

// Batches of rows that a block loads one after the other, and how often each.
struct RowBatches {
  int64_t count = 0;
  int64_t passes = 1;
};

// The least that a kernel takes because its threads wait for loads that follow from others.
struct Waits {
  int64_t ps = 0;        // of the launch that does the work
  int64_t later_ps = 0;  // of those behind it
  std::string formula;
};

struct KernelTemplate {
  Template id;
  absl::string_view name;

  // Which axes of the IR this template takes as rows and as columns, or why no template can run the
  // IR. Nullopt: this template does not apply.
  std::optional<Classification> (*recognise)(const KernelIr& ir, const Folds& folds);
  // Adds the schedules worth pricing. The first one is plain: no vectors, no split, nothing kept in
  // registers. It exists on every device and with every optimisation switched off.
  void (*candidates)(CandidateList& list);

  Walk walk = Walk::kPoints;
  bool sums_columns = false;     // its reductions fold over rows, too, not only over columns
  bool keeps_columns = false;    // threads hold sums of all their columns, in straight-line code;
                                 // each block stores partial sums: Schedule::split counts blocks
  bool splits_rows = false;      // Schedule::split counts pieces of a row, not pieces of a column
  bool transposes = false;       // loads along another axis than the stores' are coalesced, too
  bool narrows = false;          // each schedule exists with narrower vectors and more blocks
  bool shares_launches = false;  // its launches may be ranges of blocks of others
  bool in_place = false;         // an output may reuse the bytes of an input
  bool tiles = false;            // a block has all positions of two folded axes, and what varies
                                 // over one of them is evaluated once for each of its positions
  bool holds = false;            // blocks of a cluster share columns: each loads its rows of them
                                 // before it works on any, and evaluates them again in each stage

  // The kind of launch number `launch` of `launches`, and of the launch that does the main work.
  LaunchKind (*launch_kind)(const Schedule& s, int64_t launch, int64_t launches);
  LaunchKind (*main_launch)(const Schedule& s);
  PointsOfThread (*points_of_thread)(const KernelProfile& p, const Schedule& s);
  // Shared memory that a block of launch number `launch` declares in its text. Null: none.
  int64_t (*shared_bytes)(const KernelIr& ir, const KernelProfile& p, const Schedule& s,
                          int64_t launch) = nullptr;

  // Shared memory that the launch asks for, for rows in shared memory. Null: none.
  int64_t (*staged_bytes)(const KernelIr& ir, const KernelProfile& p, const Schedule& s) = nullptr;

  // Terms of the price. Null stands for what most templates have.
  // Barrier rounds on a block's critical path. Null: one.
  int64_t (*barrier_rounds)(const KernelProfile& p, const Schedule& s,
                            const DeviceSpec& d) = nullptr;
  // Batches of rows whose loads a block waits for. Null: none.
  RowBatches (*row_batches)(const KernelProfile& p, const Schedule& s) = nullptr;
  // How much longer loads take because of what a thread holds. Null: no longer.
  int64_t (*held_ppm)(const KernelProfile& p, const Schedule& s, const DeviceSpec& d) = nullptr;
  bool meets_each_row = false;  // rows of several warps have barriers: only other blocks hide waits
  bool streams = false;         // an SM with many loads in flight draws more of the bandwidth
  // Of a finalize launch, beside its first block and its bytes. Null: nothing.
  int64_t (*finalize_ps)(const DeviceSpec& d) = nullptr;

  // Kernels of several launches whatever their schedule. Null: one launch, and one more for a
  // split.
  int64_t (*launches)(const KernelIr& ir) = nullptr;
  int64_t (*workspace_bytes)(const KernelIr& ir) = nullptr;
  Schedule (*working_launch)(const KernelIr& ir, const Schedule& s) = nullptr;  // its blocks
  Waits (*waits)(const KernelIr& ir, const Schedule& s, int64_t blocks_per_sm,
                 const DeviceSpec& d) = nullptr;  // `s` as the working launch has it
};

// By number of Template.
absl::Span<const KernelTemplate* const> KernelTemplates();
const KernelTemplate& TemplateOf(Template id);
inline const KernelTemplate& TemplateOf(const Schedule& s) { return TemplateOf(s.kind); }

// Whether blocks copy the rows of their points into shared memory first, and a thread makes one
// point.
inline bool StagesPoints(const Schedule& s) {
  return s.kind == Template::kPointwise && s.staged > 0;
}

// Whether the rows of a block lie in shared memory from its first stage to its last.
inline bool HoldsRows(const Schedule& s) { return TemplateOf(s).holds && s.staged > 0; }

// Whether rows come into shared memory while others are worked on.
inline bool StagesAhead(const Schedule& s) {
  return s.staged > 0 && !StagesPoints(s) && !TemplateOf(s).holds;
}

// Threads of the block, or of its cluster, that fold one row of those that the template keeps.
inline int64_t ThreadsOfRow(const Schedule& s) {
  return int64_t{s.cluster} * (TemplateOf(s).holds ? s.rows_per_block : s.threads_per_row);
}

// A thread that evaluates one vector of points at a time.
inline PointsOfThread OneVector(const KernelProfile&, const Schedule& s) {
  return {.at_once = s.vector_width, .under_way = s.vector_width};
}

// Launches of a kernel, the number of the one that does the work, and the schedule with that one's
// blocks.
int64_t LaunchesOf(const KernelIr& ir, const Schedule& s);
int64_t MainLaunchNumber(const KernelIr& ir, const Schedule& s);
Schedule WorkingLaunch(const KernelIr& ir, const Schedule& s);

// Launches of a kernel that needs so much workspace.
int64_t LaunchesOf(const KernelIr& ir, Template id, int64_t workspace_bytes);

#define RG_TEMPLATE(NAME) extern const KernelTemplate k##NAME##Template;
#include "fusion/kernel/templates/templates.def"
#undef RG_TEMPLATE

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_KERNEL_TEMPLATE_H_
