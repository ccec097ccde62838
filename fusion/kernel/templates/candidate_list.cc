#include "fusion/kernel/templates/candidate_list.h"

#include <algorithm>

#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kMaxWidth = 8;
constexpr int kWidthBesideWide = 4;

// The most lanes that any large tensor of the kernel can load or store at once. Beside wider
// elements four: then the 16 bytes of neighbouring threads lie side by side for those too. With
// eight, each half of a thread's 32 bytes was an access of its own, with gaps (a norm's backward
// with an fp32 residual on an H200: 1.14 times the floor at eight, 1.03 at four).
int WidestVector(const KernelIr& ir, const Vectors& vectors) {
  const int width = vectors.width;
  int widest = 1;
  bool wide_elements = false;
  const int64_t all = ir.Points(ir.all_axes());
  const auto see = [&](int lanes, const IndexExpr& offset, int buffer) {
    widest = std::max(widest, lanes);
    const bool cut = lanes > 1 && lanes < width &&
                     lanes * SizeBytes(ir.buffers[buffer].dtype) == kMaxAccessBytes;
    wide_elements = wide_elements || (cut && ir.Points(offset.axes()) == all);
  };
  for (size_t i = 0; i < ir.instrs.size() && width > 1; ++i) {
    const Instr& load = ir.instrs[i];
    if (load.kind != InstrKind::kLoad) continue;
    see(FormOfLoad(ir, static_cast<int>(i), vectors).width, load.offset, load.buffer);
  }
  for (const Store& s : ir.stores) see(StoreWidth(ir, s, vectors), s.offset, s.buffer);
  return std::min({width, widest, wide_elements ? kWidthBesideWide : kMaxWidth});
}

int WidestThatFills(const KernelIr& ir, const ScheduleLimits& limits) {
  const int axis = FastestAxis(ir);
  if (!limits.vectorize || axis < 0) return 1;
  int width = kMaxWidth;
  while (ir.extents[axis] % width != 0) width /= 2;
  return WidestVector(ir, VectorsOf(ir, width));
}

// Rows shorter than two vectors are hardly more than their ends.
int WidestWithEnds(const KernelIr& ir, const ScheduleLimits& limits) {
  const int axis = FastestAxis(ir);
  if (!limits.vectorize || axis < 0 || ir.extents[axis] < 2 * kMaxWidth) return 1;
  return HasEnds(ir, kMaxWidth) ? WidestVector(ir, VectorsOf(ir, kMaxWidth)) : 1;
}

}  // namespace

CandidateList::CandidateList(const KernelIr& ir, const KernelProfile& profile,
                             const ScheduleLimits& limits)
    : ir_(ir), profile_(profile), limits_(limits), widest_(WidestThatFills(ir, limits)) {}

absl::InlinedVector<int, 2> CandidateList::widths() const {
  const int with_ends = WidestWithEnds(ir_, limits_);
  if (with_ends <= widest_) return {widest_};
  return {widest_, with_ends};
}

void CandidateList::Add(Schedule s) {
  s.blocks = std::max<int64_t>(s.blocks, 1);
  if (s.threads > limits_.max_threads) return;
  if (std::find(list_.begin(), list_.end(), s) != list_.end()) return;
  if (limits_.shared_bytes > 0 && MostShared(s) > limits_.shared_bytes) return;
  list_.push_back(s);
}

int64_t CandidateList::MostShared(const Schedule& s) const {
  int64_t most = 0;
  for (int64_t n = 0; n < LaunchesOf(ir_, s); ++n) {
    most = std::max(most, SharedBytes(ir_, profile_, s, n));
  }
  return most;
}

std::vector<Schedule> CandidateSchedules(const KernelIr& ir, const Classification& shape,
                                         const ScheduleLimits& limits) {
  if (!shape.feasible) return {};
  return CandidateSchedules(ir, ProfileKernel(ir, shape), limits);
}

std::vector<Schedule> CandidateSchedules(const KernelIr& ir, const KernelProfile& profile,
                                         const ScheduleLimits& limits) {
  CandidateList list(ir, profile, limits);
  TemplateOf(profile.shape.kind).candidates(list);
  std::vector<Schedule> candidates = list.Take();
  RG_CHECK(!candidates.empty());
  return candidates;
}

}  // namespace retrograd
