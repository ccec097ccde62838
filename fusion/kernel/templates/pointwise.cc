// No reduction: each thread makes vectors of points that lie side by side.
#include <algorithm>

#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  if (!folds.sets.empty()) return std::nullopt;
  return Recognised(ir, Template::kPointwise, 0, ir.all_axes());
}

LaunchKind Main(const Schedule&) { return LaunchKind::kPointwise; }

}  // namespace

void AddPasses(CandidateList& list) {
  const int64_t points = list.shape().rows * list.shape().columns;
  auto add = [&](int width) {
    list.Add({.kind = Template::kPointwise,
              .threads = kThreads,
              .vector_width = width,
              .blocks = std::min(CeilDiv(points, int64_t{kThreads} * width), kMaxBlocks)});
  };
  add(1);
  add(list.widest());
  if (list.widest() > 1) add(list.widest() / 2);
}

constinit const KernelTemplate kPointwiseTemplate = {
    .id = Template::kPointwise,
    .name = "pointwise",
    .recognise = Recognise,
    .candidates = AddPasses,
    .narrows = true,
    .shares_launches = true,
    .in_place = true,
    .launch_kind = [](const Schedule& s, int64_t, int64_t) { return Main(s); },
    .main_launch = Main,
    .points_of_thread = OneVector,
};

}  // namespace retrograd
