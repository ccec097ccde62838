// No reduction: each thread makes vectors of points that lie side by side, or one point whose rows
// its block has copied into shared memory.
#include <algorithm>

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

void AddCandidates(CandidateList& list) {
  AddPasses(list);
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
    .points_of_thread = OneVector,
    .shared_bytes = StagedBytes,
};

}  // namespace retrograd
