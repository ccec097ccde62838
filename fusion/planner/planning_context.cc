#include "fusion/planner/planning_context.h"

#include "fusion/calls/library_calls.h"
#include "fusion/lower/concat_in_place.h"
#include "fusion/lower/layouts/layouts.h"
#include "graph/base/status.h"

namespace retrograd {

bool Enabled(const PlanOptions& options, absl::string_view feature) {
  return !options.disable.contains(std::string(feature));
}

SinkOptions SinkOptionsOf(const PlanOptions& options, const DeviceSpec& device) {
  return {.sources = Enabled(options, "sunk_sources"),
          .components = Enabled(options, "sunk_components"),
          .free = FreeReadsOf(device)};
}

LayoutOptions LayoutOptionsOf(const PlanOptions& options, const DeviceSpec& device) {
  return {.follow = Enabled(options, "layouts"),
          .walk_order = Enabled(options, "walk_order"),
          .pitches = Enabled(options, "pitches"),
          .alignment_bytes = device.matmul_alignment_bytes};
}

RegionOptions RegionOptionsOf(const PlanOptions& options, const Limits& limits) {
  const bool fuse = Enabled(options, "fusion");
  SearchOptions search = options.search;
  if (!Enabled(options, "fusion_prices")) search.merge = CombineWhere::kPossible;
  if (!Enabled(options, "exact_search")) search.max_atoms = 0;
  search.join &= Enabled(options, "joined_kernels") && search.random_seed == 0 &&
                 search.merge == CombineWhere::kItPays;
  return {.fuse = fuse,
          .contract = fuse && !limits.any_tightened() && options.search.random_seed == 0,
          .recompute = fuse && Enabled(options, "recompute"),
          .search = search};
}

DeviceSpec PlannedDevice(DeviceSpec device, const PlanOptions& options) {
  device.trusts_slack = options.feedback.empty() && Enabled(options, "register_slack");
  if (!Enabled(options, "image_boxes")) device.convolution_boxes_ppm = 0;
  if (!Enabled(options, "matmul_tiles")) device.matmul_tiles_bf16_flops = 0;
  return device;
}

PlanningContext::PlanningContext(const BackwardGraph& g, const DeviceSpec& d,
                                 const PlanOptions& options, Limits bounds,
                                 int64_t memory_ps_per_mib, KernelPrices* known,
                                 const std::vector<Layout>* assigned)
    : graph(g),
      device(PlannedDevice(d, options)),
      limits(std::move(bounds)),
      layouts(assigned != nullptr && !assigned->empty()
                  ? *assigned
                  : AssignLayouts(g, LayoutOptionsOf(options, device)).of),
      consumers(g),
      placed_concats(Enabled(options, "concats_in_place") &&
                             options.merging != PlanOptions::Merging::kNever
                         ? PlaceConcats(g, consumers, layouts)
                         : std::vector<Alias>{}),
      pricer(graph, layouts, consumers, device, limits,
             {.vectorize = Enabled(options, "vectorization"),
              .split = Enabled(options, "split_reductions"),
              .persistent = Enabled(options, "persistent_reductions"),
              .stage_rows = Enabled(options, "staged_rows"),
              .rows_at_once = Enabled(options, "rows_at_once"),
              .passes_by_rows = Enabled(options, "passes_by_rows"),
              .transpose_tiles = Enabled(options, "transpose_tiles"),
              .hold_columns = Enabled(options, "held_columns"),
              .hold_tiles = Enabled(options, "held_tiles"),
              .unroll = Enabled(options, "unrolled_reductions"),
              .unify_branches = Enabled(options, "unified_branches"),
              .memory_ps_per_mib = memory_ps_per_mib,
              .feedback = options.feedback,
              .schedule_salt = static_cast<int64_t>(options.random_schedules)},
             known) {}

absl::StatusOr<std::unique_ptr<PlanningContext>> PlanningContext::Make(
    const BackwardGraph& graph, const DeviceSpec& device, const PlanOptions& options,
    int64_t memory_ps_per_mib, KernelPrices* known, const std::vector<Layout>* layouts) {
  RG_ASSIGN_OR_RETURN(Limits limits, Limits::Make(device, options.tighten));
  std::unique_ptr<PlanningContext> context(new PlanningContext(
      graph, device, options, std::move(limits), memory_ps_per_mib, known, layouts));
  // Library calls first: what they absorb is no longer in any region.
  RG_ASSIGN_OR_RETURN(context->library_calls,
                      MakeLibraryGroups(graph, context->layouts, context->consumers,
                                        context->device, options.feedback,
                                        {.casts = Enabled(options, "cast_absorption"),
                                         .accumulates = Enabled(options, "matmul_accumulate")}));
  std::vector<bool> taken(graph.num_nodes(), false);
  for (const Group& group : context->library_calls) {
    for (size_t i = 1; i < group.nodes.size(); ++i) taken[Index(group.nodes[i])] = true;
  }
  for (const Alias& join : context->placed_concats) {
    context->library_calls.push_back(AliasGroup(join));
    taken[Index(join.whole.node)] = true;
  }
  context->regions = FindRegions(graph, context->consumers, taken, SinkOptionsOf(options, device));
  if (Enabled(options, "fusion") && Enabled(options, "matmul_epilogues")) {
    const bool groups = Enabled(options, "grouped_epilogues");
    context->pricer.OfferEpilogueRoots(TakeEpilogueRoots(graph, context->consumers, device, groups,
                                                         context->library_calls, context->regions));
  }
  context->region_of.assign(graph.num_nodes(), -1);
  for (size_t r = 0; r < context->regions.size(); ++r) {
    for (NodeId id : context->regions[r].ops) context->region_of[Index(id)] = static_cast<int>(r);
  }
  return context;
}

}  // namespace retrograd
