// No reduction: each thread makes vectors of points that lie side by side, or one point whose rows
// its block has copied into shared memory.
#include <algorithm>
#include <iterator>
#include <limits>

#include "fusion/kernel/ir/accesses/interleaved.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  if (!folds.sets.empty()) return std::nullopt;
  return Recognised(ir, Template::kPointwise, 0, ir.all_axes());
}

LaunchKind Main(const Schedule&) { return LaunchKind::kPointwise; }

// Blocks of few threads leave an SM less to wait for, those of many have fewer rows of their own.
constexpr int kStagedThreads[] = {64, 128, 256};

void AddStaged(CandidateList& list) {
  if (list.limits().staged_bytes == 0 || list.profile().point_rows.empty()) return;
  const int64_t points = list.shape().columns;
  for (int threads : kStagedThreads) {
    const int64_t blocks = CeilDiv(points, int64_t{threads});
    if (blocks > kMaxBlocks) continue;
    list.Add({.kind = Template::kPointwise, .threads = threads, .staged = 1, .blocks = blocks});
  }
}

int64_t StagedBytes(const KernelIr& ir, const KernelProfile& p, const Schedule& s, int64_t) {
  if (!StagesPoints(s)) return 0;
  int64_t bytes = 0;
  for (const PointRows& rows : p.point_rows) {
    bytes +=
        SharedArrayBytes(ElementsOf(rows, s.threads), SizeBytes(ir.buffers[rows.buffer].dtype));
  }
  return bytes;
}

// With 32 registers beside them, two blocks of 256 threads fill an SM. 170 words of a bilinear
// upsampling's gradient left room for one, which took 1.44 of the time without them.
constexpr int64_t kMostWordsOfColumns = 96;

// Blocks of an SM, which run at once: threads that keep many values have room for few of them. The
// threads of one alone hide little of what each turn waits for: none of 90 kernels was fastest so
// (bench/results/schedules_of_passes_by_rows_h200.json).
constexpr int64_t kBlocksOfSm[] = {2, 3, 4, 6, 8};

// Rows that a thread loads together, where it asks for no more bytes of them: four on up to four
// blocks of an SM, two on any number. One row alone, where two are more than that, or with as many
// threads as an SM has, which ask for enough. Of 75 kernels the fastest of these schedules and of
// passes without turns took 0.977 of the fastest without rows together
// (bench/results/schedules_of_rows_together_h200.json).
constexpr int kRowsTogether[] = {2, 4};
constexpr int64_t kMostBytesTogether = 96, kMostRowsOfBlocks = 16;

// Threads that stay at their columns for several rows. Where columns alone are more than fill the
// device, each thread goes through all rows.
void AddPassesOfRows(CandidateList& list, int width) {
  const PassColumns& columns = list.profile().pass_columns;
  if (!list.limits().passes_by_rows) return;
  if (columns.axes == 0 || HasEnds(list.ir(), width)) return;
  if (columns.words * width > kMostWordsOfColumns) return;
  const int64_t vectors = Product({columns.inner / width, columns.outer});
  const int64_t bytes = Product({list.profile().loaded_bytes - columns.loaded_bytes, width});
  const bool alone = bytes * kRowsTogether[0] > kMostBytesTogether;
  for (int64_t of_sm : kBlocksOfSm) {
    const int64_t threads = Product({of_sm, list.limits().sms, kThreads});
    const int64_t at_once = std::max<int64_t>(threads / vectors, 1);
    const int64_t turns = CeilDiv(columns.rows, at_once);
    if (turns == 1 || turns > std::numeric_limits<int>::max()) continue;
    const int64_t taken = Product({vectors, columns.RowsAtOnce(turns)});
    const int64_t blocks = CeilDiv(taken, int64_t{kThreads});
    if (blocks > kMaxBlocks) continue;
    const auto add = [&](int together) {
      list.Add({.kind = Template::kPointwise,
                .threads = kThreads,
                .vector_width = width,
                .rows_per_thread = together,
                .turns = static_cast<int>(turns),
                .blocks = blocks});
    };
    if (alone || of_sm == kBlocksOfSm[std::size(kBlocksOfSm) - 1]) add(1);
    for (int together : kRowsTogether) {
      if (together > turns || together * of_sm > kMostRowsOfBlocks) break;
      if (bytes * together <= kMostBytesTogether) add(together);
    }
  }
}

PointsOfThread Points(const KernelProfile&, const Schedule& s) {
  const int64_t under_way = Product({s.vector_width, s.rows_per_thread});
  return {.at_once = s.vector_width, .under_way = under_way, .vectors = s.rows_per_thread};
}

void AddCandidates(CandidateList& list) {
  AddPasses(list);
  AddPassesOfRows(list, list.widest());
  if (list.widest() > 4) AddPassesOfRows(list, list.widest() / 2);
  AddStaged(list);
}

}  // namespace

void AddPasses(CandidateList& list) {
  auto add = [&](int width) {
    const int64_t places = PassPlaces(list.ir(), width);
    list.Add({.kind = Template::kPointwise,
              .threads = kThreads,
              .vector_width = width,
              .blocks = std::min(CeilDiv(places, int64_t{kThreads}), kMaxBlocks)});
  };
  add(1);
  for (int width : list.widths()) {
    add(width);
    if (width > 1) add(width / 2);
  }
  const auto goes_by = [&](int width) {
    return !HasEnds(list.ir(), width) && GoesByVectors(list.ir(), VectorsOf(list.ir(), width));
  };
  // Threads with less than 24 elements have neighbouring accesses nearer to each other.
  if (!list.limits().vectorize || goes_by(list.widths()[0])) return;
  for (int width : kLanesOfThirds) {
    if (goes_by(width)) add(width);
  }
}

constinit const KernelTemplate kPointwiseTemplate = {
    .id = Template::kPointwise,
    .name = "pointwise",
    .recognise = Recognise,
    .candidates = AddCandidates,
    .narrows = true,
    .shares_launches = true,
    .in_place = true,
    .launch_kind = [](const Schedule& s, int64_t, int64_t) { return Main(s); },
    .main_launch = Main,
    .points_of_thread = Points,
    .shared_bytes = StagedBytes,
};

}  // namespace retrograd
