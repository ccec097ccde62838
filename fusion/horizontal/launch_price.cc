#include "fusion/horizontal/launch_price.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/cost/last_wave.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

int64_t TermPs(const Group& group, absl::string_view name) {
  for (const Term& term : group.terms) {
    if (term.name == name) return term.ps;
  }
  return 0;
}

// Blocks of one launch as the memory system sees them.
struct Grid {
  int64_t blocks = 0;
  int64_t blocks_per_sm = 1;    // that fit
  int64_t bytes_in_flight = 0;  // of all blocks
};

Grid GridOf(const LaunchMember& share) {
  return {share.schedule.blocks, std::max<int64_t>(share.footprint.blocks_per_sm, 1),
          share.schedule.blocks * share.schedule.threads * share.footprint.bytes_in_flight};
}

// Bytes a second that the grid draws: by what an SM has in flight, and by the SMs that have a
// block.
int64_t Bandwidth(const Grid& grid, const DeviceSpec& d) {
  const int64_t active = std::min(grid.blocks, d.sms);
  const int64_t resident = std::min(grid.blocks, d.sms * grid.blocks_per_sm);
  const int64_t per_sm =
      std::max<int64_t>(MulDiv(grid.bytes_in_flight, resident, grid.blocks) / active, 1);
  int64_t bandwidth = d.hbm_bytes_per_s;
  if (per_sm < d.bytes_in_flight_per_sm) {
    bandwidth = MulDiv(bandwidth, per_sm, d.bytes_in_flight_per_sm);
  }
  bandwidth = std::min(
      {bandwidth, Product({active, d.sm_bytes_per_s}),
       MulDiv(d.hbm_bytes_per_s, std::min(active * d.sm_share_ppm, d.sms * kPpm), d.sms * kPpm)});
  return std::max<int64_t>(bandwidth, 1);
}

}  // namespace

LaunchMember::LaunchMember(const Group& group, const DeviceSpec& device) {
  const KernelBody& kernel = *KernelOf(group);
  const KernelProfile profile = ProfileKernel(kernel.ir, Classify(kernel.ir));
  schedule = WorkingLaunch(kernel.ir, kernel.schedule);
  launches = LaunchesOf(kernel.ir, kernel.schedule);
  footprint = KernelPricer(kernel.ir, profile, device).FootprintOf(kernel.schedule);
  ops = static_cast<int64_t>(group.nodes.size() + group.recomputed.size());
  operands = static_cast<int64_t>(kernel.ir.buffers.size());
  stores = static_cast<int64_t>(kernel.ir.stores.size());
  reductions = profile.row_sums + profile.column_sums;
  price_ps = group.price_ps;
  body_ps = std::max<int64_t>(price_ps - Product({launches, device.launch_graph_ps}), 0);
  memory_ps = TermPs(group, "hbm");
  cache_ps = TermPs(group, "cache");
  part_sectors_ps = TermPs(group, "stores");
  compute_ps = TermPs(group, "compute");
  code = kernel.ir;
  for (Buffer& buffer : code.buffers) buffer.value = ValueId{};
  for (Instr& instr : code.instrs) instr.value = ValueId{};
}

SharedLaunchPrice PriceSharedLaunch(absl::Span<const LaunchMember* const> members,
                                    const DeviceSpec& d, bool explain) {
  SharedLaunchPrice price;
  Grid joint{.blocks = 0, .blocks_per_sm = d.max_blocks_per_sm};
  for (const LaunchMember* member : members) {
    const Grid grid = GridOf(*member);
    joint.blocks += grid.blocks;
    joint.bytes_in_flight += grid.bytes_in_flight;
    joint.blocks_per_sm = std::min(joint.blocks_per_sm, grid.blocks_per_sm);
  }
  const int64_t bandwidth = Bandwidth(joint, d);
  bool share_memory = true, share_units = true;
  int64_t memory = 0, cache = 0, stores = 0, compute = 0, longest = 0, launches = 1, threads = 1;
  for (const LaunchMember* member : members) {
    memory += MulDiv(member->memory_ps, Bandwidth(GridOf(*member), d), bandwidth);
    cache += member->cache_ps;
    stores += member->part_sectors_ps;
    compute += member->compute_ps;
    threads = std::max<int64_t>(threads, member->schedule.threads);
    share_memory = share_memory && BlocksShareMemory(member->schedule);
    share_units = share_units && BlocksShareUnits(member->schedule);
    longest = std::max(longest, member->body_ps);
    launches = std::max(launches, member->launches);
  }
  const Placing placing{.blocks = joint.blocks, .blocks_per_sm = joint.blocks_per_sm, .sms = d.sms};
  const auto wave = [&](bool share, int64_t of_block, int64_t enough) {
    return LastWavePpm(placing, share ? std::optional(SharedBySm{of_block, enough}) : std::nullopt);
  };
  const int64_t in_flight = joint.bytes_in_flight / std::max<int64_t>(joint.blocks, 1);
  const int64_t of_memory = wave(share_memory, in_flight, d.bytes_in_flight_per_sm);
  const int64_t of_units = wave(share_units, threads, d.least_overlap_threads);
  const int64_t together =
      std::max({MulDiv(memory, of_memory, kPpm),
                MulDiv(std::max(cache, stores), share_units ? of_memory : of_units, kPpm),
                MulDiv(compute, of_units, kPpm)});
  const int64_t launch = Product({launches, d.launch_graph_ps});
  price.ps = Saturated(launch + std::max(together, longest));
  if (!explain) return price;
  bool bound = false;  // of equal ones the first binds
  const auto term = [&](absl::string_view name, int64_t ps, bool may_bind, std::string formula) {
    if (ps == 0) return;
    const bool binds = may_bind && !bound;
    bound = bound || binds;
    price.terms.push_back({std::string(name), ps, binds, std::move(formula)});
  };
  const bool alone = longest >= together;
  const int64_t largest = std::max({memory, cache, stores, compute});
  term("launch", launch, false,
       absl::StrCat(launches == 1 ? "one" : absl::StrCat(launches), " for ", members.size(),
                    " kernels"));
  term("hbm", memory, !alone && memory == largest,
       absl::StrFormat("%d kernels at %.2f TB/s (%d blocks, %d an SM)", members.size(),
                       static_cast<double>(bandwidth) / 1e12, joint.blocks, joint.blocks_per_sm));
  term("cache", cache, !alone && cache == largest, "sum of the kernels'");
  term("stores", stores, !alone && stores == largest, "sum of the kernels'");
  term("compute", compute, !alone && compute == largest, "sum of the kernels'");
  term("wave", alone ? 0 : together - largest, false,
       absl::StrCat(joint.blocks, " blocks in waves of ", d.sms * joint.blocks_per_sm));
  term("longest", longest, alone,
       absl::StrCat("the longest kernel alone, without its launch", launches == 1 ? "" : "es"));
  return price;
}

}  // namespace retrograd
