// What is decided before the search and shared by all searches on a graph: layouts, concats in
// place, library calls with what they absorb, the regions between the calls, and the pricer.
#ifndef RETROGRAD_FUSION_PLANNER_PLANNING_CONTEXT_H_
#define RETROGRAD_FUSION_PLANNER_PLANNING_CONTEXT_H_

#include <memory>
#include <vector>

#include "fusion/analysis/regions.h"
#include "fusion/planner/planner.h"

namespace retrograd {

struct PlanningContext {
  // `graph` is lowered and must outlive the result. `memory_ps_per_mib` is the price of what
  // kernels store for one another. `known`: see GroupPricer; must outlive the result. `layouts`: of
  // the graph's values by LayoutOptionsOf(options, device), where they are known: not null or
  // empty.
  static absl::StatusOr<std::unique_ptr<PlanningContext>> Make(
      const BackwardGraph& graph, const DeviceSpec& device, const PlanOptions& options,
      int64_t memory_ps_per_mib = 0, KernelPrices* known = nullptr,
      const std::vector<Layout>* layouts = nullptr);

  const BackwardGraph& graph;
  // PlannedDevice of the given one. Registers may lie within the slack of its models while no
  // report says yet what a compiler made of the kernels: a plan whose kernels spill is made again
  // with the report.
  const DeviceSpec device;
  Limits limits;
  std::vector<Layout> layouts;
  Consumers consumers;
  std::vector<Alias> placed_concats;  // among library_calls too; decided with the layouts
  GroupPricer pricer;
  std::vector<Group> library_calls;
  std::vector<Region> regions;
  std::vector<int> region_of;  // by node; -1: a library call's, or nothing to compute

 private:
  PlanningContext(const BackwardGraph& graph, const DeviceSpec& device, const PlanOptions& options,
                  Limits limits, int64_t memory_ps_per_mib, KernelPrices* known,
                  const std::vector<Layout>* assigned);
};

bool Enabled(const PlanOptions& options, absl::string_view feature);
// The device without what the options leave out of it.
DeviceSpec PlannedDevice(DeviceSpec device, const PlanOptions& options);
SinkOptions SinkOptionsOf(const PlanOptions& options, const DeviceSpec& device);
LayoutOptions LayoutOptionsOf(const PlanOptions& options, const DeviceSpec& device);
RegionOptions RegionOptionsOf(const PlanOptions& options, const Limits& limits);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLANNER_PLANNING_CONTEXT_H_
