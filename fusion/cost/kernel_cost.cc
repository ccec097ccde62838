#include "fusion/cost/kernel_cost.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/cost/along_rows.h"
#include "fusion/cost/last_wave.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/column_walks.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/row_walks.h"

namespace retrograd {
namespace {

// Threads that a schedule launches in all (main launch).
int64_t GridThreads(const Schedule& s) { return s.blocks * s.threads; }

// Of a block that copies all of its points' rows before it computes with any, the rows are under
// way for about half of its time: a stack of five, 4,096 x 512 in bf16, took 22.7 us on an H200 by
// blocks of 64 threads with 10 bytes each.
constexpr int64_t kPartsOfStagedPoints = 2;

int64_t BytesInFlight(const Schedule& s, const Footprint& f, const DeviceSpec& d) {  // of an SM
  const int64_t blocks_here = std::max<int64_t>(f.blocks_per_sm, 1);
  const int64_t resident = std::min(blocks_here, CeilDiv(s.blocks, d.sms));
  const int64_t parts = StagesPoints(s) ? kPartsOfStagedPoints : 1;
  return std::max<int64_t>(resident * s.threads * f.bytes_in_flight / parts, 1);
}

// What the SMs that have a block at all can draw.
int64_t BandwidthOfBlocks(const Schedule& s, const Footprint& f, const DeviceSpec& d) {
  const int64_t active = std::min(s.blocks, d.sms);
  const bool much =
      TemplateOf(s).streams &&
      BytesInFlight(s, f, d) >= Share(d.bytes_in_flight_per_sm, d.sm_streaming_depth_ppm);
  int64_t of_blocks = Product({active, d.sm_bytes_per_s});
  if (active < d.sms) {
    of_blocks =
        std::min(of_blocks, MulDiv(d.hbm_bytes_per_s, active * d.sm_share_ppm, d.sms * kPpm));
  }
  if (much) of_blocks = Share(of_blocks, d.sm_streaming_ppm);
  return std::clamp<int64_t>(of_blocks, 1, d.hbm_bytes_per_s);
}

// Bandwidth that the schedule can draw: bytes in flight against what an SM needs to be busy, too.
int64_t Bandwidth(const Schedule& s, const Footprint& f, const DeviceSpec& d) {
  const int64_t in_flight = BytesInFlight(s, f, d);
  int64_t bandwidth = d.hbm_bytes_per_s;
  if (in_flight < d.bytes_in_flight_per_sm) {
    bandwidth = MulDiv(bandwidth, in_flight, d.bytes_in_flight_per_sm);
  }
  return std::max<int64_t>(std::min(bandwidth, BandwidthOfBlocks(s, f, d)), 1);
}

// Of what later stages of rows read again, the bytes that the caches have lost by then: while a row
// goes from one stage to the next, all blocks that are resident beside it move what a stage of
// their rows does.
int64_t LostBytes(const KernelProfile& p, const Schedule& s, const Footprint& f,
                  const KernelTraffic& t, const DeviceSpec& d) {
  if (t.looped == 0) return 0;
  const int64_t blocks =
      std::min(RowBlocks(s), Product({d.sms, std::max<int64_t>(f.blocks_per_sm, 1)}));
  const int64_t all = std::max<int64_t>(p.shape.shape.rows, 1);
  const int64_t rows = std::min(Product({blocks, s.rows_per_block, s.rows_per_thread}), all);
  const int64_t of_stage = (t.read + t.written + t.looped) / (p.stages.row_stages + 1);
  return t.looped - CachedBytes(t.looped, MulDiv(of_stage, rows, all), d);
}

// What accesses take where an SM has too few bytes in flight; 0 where it has enough. What a cache
// serves is under way for a shorter time. Where other SMs have no block, memory answers at once,
// and each SM draws once in that time what it has in flight; nobody waits for stores then, and a
// block's first wait is counted with the block (`block_us`).
int64_t UnderWayPs(const Schedule& s, const Footprint& f, const KernelTraffic& t, int64_t lost,
                   const DeviceSpec& d) {
  const int64_t in_flight = BytesInFlight(s, f, d);
  const int64_t from_caches = Share(t.looped - lost, d.cache_latency_ppm);
  const int64_t drawn =
      std::max<int64_t>(MulDiv(d.hbm_bytes_per_s, in_flight, d.bytes_in_flight_per_sm), 1);
  const int64_t together =
      in_flight >= d.bytes_in_flight_per_sm ? 0 : TransferPs(t.weighted + from_caches, drawn);
  const int64_t by_some = MulDiv(drawn, std::min(s.blocks, d.sms), d.sms);
  if (by_some == drawn || by_some >= BandwidthOfBlocks(s, f, d)) return together;
  const int64_t loads = MulDiv(t.weighted, t.read, std::max<int64_t>(t.read + t.written, 1));
  const int64_t first = TransferPs(Product({d.bytes_in_flight_per_sm, d.sms}), d.hbm_bytes_per_s);
  return std::max(together, TransferPs(loads + from_caches, std::max<int64_t>(by_some, 1)) - first);
}

// The norm of order 3 of both, but for its later terms.
int64_t OfOrder3Ps(int64_t a, int64_t b) {
  const int64_t longer = std::max(a, b), shorter = std::min(a, b);
  if (shorter == 0) return longer;
  const int64_t ratio = MulDiv(shorter, kPpm, longer);
  return longer + Share(shorter, MulDiv(ratio, ratio, 3 * kPpm));
}

// The norm of order 5 of both, but for its later terms.
int64_t OfOrder5Ps(int64_t a, int64_t b) {
  const int64_t longer = std::max(a, b), shorter = std::min(a, b);
  if (shorter == 0) return longer;
  const int64_t ratio = MulDiv(shorter, kPpm, longer), square = Share(ratio, ratio);
  return longer + Share(shorter, Share(square, square)) / 5;
}

// Of passes: an SM looks up one line of its cache a clock. The threads of a block look up what all
// rows share and ask memory for what is their own at the same time, and wait for both.
int64_t LookupsPs(const KernelTraffic& t, const DeviceSpec& d) {
  return MulDiv(t.lookups, kPsPerSecond / d.sms, d.clock_hz);
}

// Threads that go through rows turn by turn wait for each one's loads: no block begins meanwhile.
// The less an SM has under way, the longer, before memory itself is what they wait for. Nobody
// waits for stores.
int64_t TurnsPs(const Schedule& s, const Footprint& f, const KernelTraffic& t,
                const DeviceSpec& d) {
  const int64_t drawn = std::max<int64_t>(
      MulDiv(d.hbm_bytes_per_s, BytesInFlight(s, f, d), d.bytes_in_flight_per_sm), 1);
  const int64_t loads = MulDiv(t.weighted, t.read, std::max<int64_t>(t.read + t.written, 1));
  return OfOrder3Ps(TransferPs(t.weighted, BandwidthOfBlocks(s, f, d)), TransferPs(loads, drawn));
}

// SMs that have blocks of the schedule. The numbers of held columns were fitted with all of them.
int64_t SmsOf(const Schedule& s, const DeviceSpec& d) {
  return TemplateOf(s).holds ? d.sms : SmsForClusters(d.sms, s.cluster);
}

Placing PlacingOf(const Schedule& s, const Footprint& f, const DeviceSpec& d) {
  return {.blocks = s.blocks, .blocks_per_sm = f.blocks_per_sm, .sms = SmsOf(s, d)};
}

int64_t LastWaveOfMemoryPpm(const Schedule& s, const Footprint& f, const DeviceSpec& d) {
  if (!BlocksShareMemory(s)) return LastWavePpm(PlacingOf(s, f, d), std::nullopt);
  const SharedBySm bytes{.of_block = Product({s.threads, f.bytes_in_flight}),
                         .enough = d.bytes_in_flight_per_sm};
  return LastWavePpm(PlacingOf(s, f, d), bytes);
}

int64_t LastWaveOfComputePpm(const Schedule& s, const Footprint& f, const DeviceSpec& d) {
  if (!BlocksShareUnits(s)) return LastWavePpm(PlacingOf(s, f, d), std::nullopt);
  return LastWavePpm(PlacingOf(s, f, d),
                     SharedBySm{.of_block = s.threads, .enough = d.least_overlap_threads});
}

// What all waves take to move and to compute.
int64_t OfWavesPs(int64_t memory, int64_t caches, int64_t compute, const Schedule& s,
                  const Footprint& f, const DeviceSpec& d) {
  const int64_t of_memory = LastWaveOfMemoryPpm(s, f, d), of_units = LastWaveOfComputePpm(s, f, d);
  const int64_t of_caches = BlocksShareUnits(s) ? of_memory : of_units;
  return std::max({MulDiv(memory, of_memory, kPpm), MulDiv(caches, of_caches, kPpm),
                   MulDiv(compute, of_units, kPpm)});
}

int64_t Waves(const Schedule& s, const Footprint& f, const DeviceSpec& d) {
  return CeilDiv(s.blocks, SmsOf(s, d) * std::max<int64_t>(f.blocks_per_sm, 1));
}

// What clusters that share rows wait for, round after round, until all of their blocks have come so
// far and sent their sums. Other blocks of an SM are hardly ahead: they began at the same time.
int64_t ExchangesPs(const KernelProfile& p, const Schedule& s, const Footprint& f,
                    const DeviceSpec& d) {
  if (s.cluster == 1 || TemplateOf(s).holds) return 0;
  const int64_t rows = CeilDiv(p.shape.shape.rows, RowBlocks(s));
  return Product({Waves(s, f, d), rows, p.stages.row_stages, d.cluster_exchange_ps});
}

// Barrier rounds on a block's critical path; blocks that share an SM hide each other's.
int64_t LatencyPs(const KernelProfile& p, const Schedule& s, const Footprint& f,
                  const DeviceSpec& d) {
  const KernelTemplate& t = TemplateOf(s);
  const int64_t rounds = t.barrier_rounds == nullptr ? 1 : t.barrier_rounds(p, s, d);
  const int64_t overlap = std::clamp<int64_t>(f.blocks_per_sm, 1, d.barrier_overlap_blocks);
  return Product({rounds, Waves(s, f, d), d.barrier_ps}) / overlap;
}

// What a block that has an SM for itself waits for a batch of rows.
int64_t RowBatchPs(const Schedule& s, const Footprint& f, const DeviceSpec& d) {
  if (s.staged == 0) return d.row_batch_ps;
  // Threads that hold many elements take so long over a batch that its successors wait, and so does
  // the only batch that is under way meanwhile.
  const int64_t twice = d.staged_held_elements_twice;
  const int64_t held = std::max<int64_t>(f.elements - d.staged_held_elements, 0);
  const int64_t pair = s.staged == 2 ? d.staged_pair_ppm : kPpm;
  return Product({Share(d.row_batch_staged_ps, pair), twice + held}) / twice;
}

// How many times less than one block so many on an SM wait: a parabola through 1 and the two
// measured numbers of blocks.
int64_t RowBatchOverlapMilli(int64_t blocks, const DeviceSpec& d) {
  const int64_t two = d.row_batch_two_blocks_milli - 1000;
  const int64_t bend = (d.row_batch_four_blocks_milli - 1000 - 3 * two) / 6;
  const int64_t others = blocks - 1;
  return 1000 + (two - bend) * others + bend * others * others;
}

// What blocks that walk rows wait for memory, batch after batch, beside what the bytes take: the
// loads of a batch are under way together, and nothing else is unless the next batch's are, or
// another block's.
int64_t RowBatchesPs(const RowBatches& batches, const Schedule& s, const Footprint& f,
                     const DeviceSpec& d) {
  if (batches.count <= 1) return 0;
  const int64_t waves = Waves(s, f, d);
  const int64_t resident =
      std::min(std::max<int64_t>(f.blocks_per_sm, 1), CeilDiv(s.blocks, d.sms));
  return Product({batches.count, waves, batches.passes, RowBatchPs(s, f, d), 1000}) /
         RowBatchOverlapMilli(resident, d);
}

// Whether threads wait for each other between loading and computing.
bool LoadsTogether(const KernelProfile& p, const Schedule& s) {
  const bool folds_positions = MainLaunch(s) == LaunchKind::kScatterSum && p.row_sums > 0;
  return folds_positions || StagesPoints(s) || HoldsRows(s) ||
         (TemplateOf(s).meets_each_row && MeetsThroughShared(s));
}

// What computing and loading take longer for being done by the same SMs, in the best case: the norm
// of order 5 of both, but for its later terms.
int64_t BalancedPs(int64_t shorter, int64_t longer, const DeviceSpec& d) {
  if (longer == 0) return 0;
  const int64_t square = MulDiv(MulDiv(shorter, kPpm, longer), shorter, longer);
  return Share(shorter, MulDiv(MulDiv(square, square, kPpm), d.balanced_ppm, kPpm));
}

// Of what few threads cannot hide: threads that keep a row load all of their part of it before they
// compute, and the loads of the other blocks of an SM are under way meanwhile. The more elements
// they hold above those with which their loads draw the bandwidth (held_elements), the less they
// hide. Fitted to the 57 kernels of bench/results/schedules_of_walks_h200.json that walk rows.
constexpr int64_t kKeptRowsBarePpm = 450'000;

// Of the same, where each thread passes over points of its own and waits for no other; threads that
// go turn by turn hide less. With these numbers 1,300 schedules of 103 kernels are predicted 14%
// off, and the chosen ones take 1.025 of the fastest
// (bench/results/schedules_of_rows_together_h200.json); where all counts, 1.06.
constexpr int64_t kPassesBarePpm = 500'000, kTurnsBarePpm = 750'000;

int64_t BarePpm(const KernelProfile& p, const Schedule& s, const DeviceSpec& d) {
  const KernelTemplate& t = TemplateOf(s);
  if (t.walk == Walk::kPoints && !LoadsTogether(p, s)) {
    return s.turns > 1 ? kTurnsBarePpm : kPassesBarePpm;
  }
  if (t.walk != Walk::kRows || t.keeps_columns || !s.persistent) return kPpm;
  const int64_t held = HeldRowsPpm(p, s, d.held_elements, d.held_elements_twice);
  return std::min(Share(Share(kKeptRowsBarePpm, held), held), kPpm);
}

// What of the shorter one of computing and loading is not hidden behind the longer one. Threads
// that go down columns ask for several rows at once: if they ask for much, enough is under way
// while others of them compute. The threads of a block that meets at barriers do the same at the
// same time: there only other blocks overlap.
int64_t NotHiddenPs(const KernelProfile& p, const Schedule& s, const Footprint& f, int64_t shorter,
                    int64_t longer, const DeviceSpec& d) {
  const int64_t least = BalancedPs(shorter, longer, d);
  if (StagesAhead(s)) return least;
  const int64_t resident = std::max<int64_t>(f.blocks_per_sm, 1);
  const int64_t threads =
      std::clamp<int64_t>(resident * s.threads, d.least_overlap_threads, d.overlap_threads);
  const KernelTemplate& t = TemplateOf(s);
  const int64_t bare = BarePpm(p, s, d);
  const int64_t of_threads = Share(
      MulDiv(shorter, d.overlap_threads - threads, d.overlap_threads - d.no_overlap_threads), bare);
  if (!LoadsTogether(p, s)) {
    if (t.walk != Walk::kColumns) return std::max(least, of_threads);
    const int64_t under_way = BytesInFlight(s, f, d);
    const int64_t enough = Share(d.bytes_in_flight_per_sm, d.hiding_depth_ppm);
    return std::max(least, MulDiv(of_threads, std::min(enough, under_way), under_way));
  }
  const int64_t idle_blocks = std::max<int64_t>(d.overlap_blocks - resident, 0);
  const int64_t of_blocks = Share(Product({shorter, idle_blocks}) / d.overlap_blocks, bare);
  return std::max({least, of_threads, of_blocks});
}

// What blocks that hold their rows take to compute. If all of them run at once, some SMs may have
// none, and the threads of an SM compute at the same time: too few of them leave its units idle.
int64_t ComputeOfHeldPs(int64_t everywhere, const Schedule& s, const Footprint& f,
                        const DeviceSpec& d) {
  if (Waves(s, f, d) > 1) return everywhere;
  const int64_t active = std::clamp<int64_t>(s.blocks, 1, d.sms);
  const int64_t resident =
      std::min(std::max<int64_t>(f.blocks_per_sm, 1), CeilDiv(s.blocks, d.sms));
  const int64_t threads = std::clamp<int64_t>(resident * s.threads, 1, d.issue_threads);
  return MulDiv(MulDiv(everywhere, d.sms, active), d.issue_threads, threads);
}

// What threads take to compute that wait for loads which follow from others. They compute between
// two loads: if all blocks run at once, few threads of an SM leave its units idle, and some SMs may
// have no block.
int64_t ComputeBetweenWaitsPs(int64_t everywhere, const Schedule& s, const Footprint& f,
                              const DeviceSpec& d) {
  if (Waves(s, f, d) > 1) return everywhere;
  const int64_t active = std::clamp<int64_t>(s.blocks, 1, d.sms);
  const int64_t threads =
      std::clamp<int64_t>(CeilDiv(s.blocks, d.sms) * s.threads, 1, d.least_overlap_threads);
  return MulDiv(MulDiv(everywhere, d.sms, active), d.least_overlap_threads, threads);
}

// What other threads take to compute: if all blocks run at once, and some SMs have more of them
// than others, as long as the SM that has the most. Of more blocks an SM gets another one when one
// has ended. Of fewer blocks than SMs what a block computes in its first `block_us` is counted
// there, so that small kernels have one schedule for many sizes.
int64_t ComputeOfBusiestPs(int64_t everywhere, const Schedule& s, const Footprint& f,
                           const DeviceSpec& d) {
  if (Waves(s, f, d) > 1) return everywhere;
  const int64_t blocks = std::max<int64_t>(s.blocks, 1);
  const int64_t busiest = MulDiv(everywhere, CeilDiv(blocks, d.sms) * d.sms, blocks);
  return blocks >= d.sms ? busiest : std::max(everywhere, busiest - d.block_ps);
}

// Waves behind the first one, in parts per million of a wave.
int64_t LaterWavesPpm(const Schedule& s, const Footprint& f, const DeviceSpec& d) {
  const int64_t at_once = SmsOf(s, d) * std::max<int64_t>(f.blocks_per_sm, 1);
  return s.blocks <= at_once ? 0 : MulDiv(kPpm, s.blocks - at_once, at_once);
}

// What later waves of a walk add to `work`, which is what all of them move and compute. Blocks that
// sum parts of the same columns go through as many rows each, so that those of a wave end at the
// same time, and memory rests while the next ones begin. A wave of rows takes as long as a block
// from its first load to its last store, if that is longer than what the wave moves; where both are
// about as long they make up the norm of order 3 of both, but for its later terms. A wave of blocks
// that look up what rows share before they begin with their own has the norm of order 5: passes of
// which a wave moves bytes for twice as long hide their lookups. Other blocks drift apart.
int64_t LaterWavesPs(int64_t work, bool looks_up, const Schedule& s, const Footprint& f,
                     const DeviceSpec& d) {
  const KernelTemplate& t = TemplateOf(s);
  if (t.holds || t.tiles) return 0;
  const int64_t waves = LaterWavesPpm(s, f, d);
  if (t.walk == Walk::kPoints) {
    return looks_up ? OfOrder5Ps(work, Share(d.block_ps, waves)) - work : 0;
  }
  if (t.walk == Walk::kColumns) return s.split > 1 ? Share(d.next_column_block_ps, waves) : 0;
  const int64_t blocks =
      Share(MeetsThroughShared(s) ? d.next_meeting_block_ps : d.next_row_block_ps, waves);
  return OfOrder3Ps(work, blocks) - work;
}

// Until the first rows are there that blocks copy ahead.
int64_t StagedStartPs(const Schedule& s, const DeviceSpec& d) {
  return StagesAhead(s) && TemplateOf(s).walk == Walk::kRows ? d.staged_start_ps : 0;
}

std::string Us(int64_t ps) { return absl::StrFormat("%.2f us", static_cast<double>(ps) / 1e6); }

// The second launch of a split, beside its bytes. Each of its blocks brings in the partial results
// of its columns, as fast as an SM does.
int64_t FinalizePs(const KernelProfile& p, const Schedule& s, int64_t workspace,
                   const DeviceSpec& d) {
  const KernelTemplate& t = TemplateOf(s);
  if (workspace == 0 || t.launches != nullptr) return 0;
  int64_t ps = d.block_ps + (t.finalize_ps == nullptr ? 0 : t.finalize_ps(d));
  if (!t.splits_rows) {
    const int64_t blocks = CeilDiv(p.shape.shape.columns, FinalizeLanes(s.split));
    ps += TransferPs(CeilDiv(workspace, std::max<int64_t>(blocks, 1)), d.sm_bytes_per_s);
  }
  return ps;
}

}  // namespace

int64_t CachedBytes(int64_t fresh, int64_t moved, const DeviceSpec& d) {
  const int64_t all = Share(d.cache_bytes, d.cache_kept_ppm);
  const int64_t none = Share(d.cache_bytes, d.cache_lost_ppm);
  if (moved >= none) return 0;
  return moved <= all ? fresh : MulDiv(fresh, none - moved, none - all);
}

bool BlocksShareMemory(const Schedule& s) {
  const KernelTemplate& t = TemplateOf(s);
  return !t.holds && !t.tiles;
}

bool BlocksShareUnits(const Schedule& s) {
  return BlocksShareMemory(s) && s.kind != Template::kScatterAdd;
}

int64_t LeastKernelPs(const DeviceSpec& d) { return d.launch_graph_ps + d.block_ps; }

int64_t TransferPs(int64_t bytes, int64_t bytes_per_s) {
  return bytes == 0 ? 0 : MulDiv(bytes, 1'000'000'000'000, bytes_per_s);
}

KernelPricer::KernelPricer(const KernelIr& ir, const KernelProfile& profile,
                           const DeviceSpec& device)
    : ir_(ir), profile_(profile), device_(device), work_(ir, profile, device) {}

Footprint KernelPricer::FootprintOf(const Schedule& chosen,
                                    const CompiledResources* compiled) const {
  const Schedule s = WorkingLaunch(ir_, chosen);
  Footprint footprint = PredictFootprint(ir_, profile_, s, device_);
  if (compiled != nullptr) UseCompiled(*compiled, s, device_, footprint);
  footprint.bytes_in_flight = MulDiv(footprint.bytes_in_flight, work_.UnderWayPpm(s), kPpm);
  return footprint;
}

Price KernelPricer::Of(const Schedule& chosen, const Footprint& f, bool explain) const {
  const KernelIr& ir = ir_;
  const KernelProfile& p = profile_;
  const DeviceSpec& d = device_;
  const KernelTemplate& kind = TemplateOf(chosen);
  const Schedule s = WorkingLaunch(ir, chosen);
  Price price{.footprint = f};
  KernelTraffic t = work_.Traffic(s);
  const int64_t lost = LostBytes(p, s, f, t, d);
  t.weighted += lost;
  t.cache -= lost;
  price.read_bytes = t.read;
  price.written_bytes = t.written;
  const int64_t workspace = work_.WorkspaceBytes(chosen);
  price.launches = LaunchesOf(ir, chosen.kind, workspace);

  const int64_t bandwidth = Bandwidth(s, f, d);
  const int64_t launch = price.launches * d.launch_graph_ps;
  // Waiting batch after batch is what few bytes in flight look like in a walk of rows.
  const RowBatches row_batches =
      kind.row_batches == nullptr ? RowBatches() : kind.row_batches(p, s);
  const int64_t batches = RowBatchesPs(row_batches, s, f, d);
  const int64_t held = kind.held_ppm == nullptr ? kPpm : kind.held_ppm(p, s, d);
  const int64_t walked =
      Saturated(MulDiv(TransferPs(t.weighted, BandwidthOfBlocks(s, f, d)), held, kPpm) + batches);
  const bool batch_waits = batches > 0 && s.staged == 0 && row_batches.passes == 1;
  int64_t hbm = walked;
  if (s.turns > 1) {
    hbm = TurnsPs(s, f, t, d);
  } else if (!batch_waits) {
    hbm = std::max({MulDiv(TransferPs(t.weighted, bandwidth), held, kPpm),
                    UnderWayPs(s, f, t, lost, d), walked});
  }
  const int64_t lookups = LookupsPs(t, d);
  const int64_t along_rows = AlongRowsPs(t.sectors_along_rows, d);
  hbm = OfOrder3Ps(hbm, lookups) + along_rows;
  // A schedule that draws less than all of the memory's bandwidth draws less of the cache's, too.
  const int64_t just_written =
      TransferPs(t.cached, MulDiv(d.cache_bytes_per_s, bandwidth, d.hbm_bytes_per_s));
  const int64_t of_sms = Product({std::clamp<int64_t>(s.blocks, 1, d.sms), d.sm_bytes_per_s});
  const int64_t cache =
      Saturated(TransferPs(t.cache, std::min(of_sms, d.cache_bytes_per_s)) + just_written);
  const int64_t everywhere = work_.ComputePs(s);
  const int64_t compute = HoldsRows(s)             ? ComputeOfHeldPs(everywhere, s, f, d)
                          : ir.scatter.has_value() ? ComputeBetweenWaitsPs(everywhere, s, f, d)
                                                   : ComputeOfBusiestPs(everywhere, s, f, d);
  const int64_t stores = TransferPs(t.part_sectors, d.part_sector_bytes_per_s);
  const int64_t loading = std::max({hbm, cache, stores});
  const int64_t work = OfWavesPs(hbm, std::max(cache, stores), compute, s, f, d);
  const int64_t not_hidden =
      NotHiddenPs(p, s, f, std::min(loading, compute), std::max(loading, compute), d);
  const int64_t later = Product({Waves(s, f, d) - 1, d.block_ps});
  const int64_t waves = LaterWavesPs(work + not_hidden, lookups > 0, s, f, d);
  const int64_t blocks =
      d.block_ps + waves + std::max<int64_t>(later - waves - work - not_hidden, 0);
  const int64_t moving = work + not_hidden + blocks;
  const Waits waits = kind.waits == nullptr ? Waits() : kind.waits(ir, s, f.blocks_per_sm, d);
  // A thread computes when it does not wait. The threads of a scatter wait in step, and all that
  // they asked for comes together.
  int64_t body = waits.ps == 0 ? moving : std::max(moving, waits.ps + compute);
  if (ir.scatter.has_value() && waits.ps > 0) body = moving + waits.ps - d.block_ps;
  const int64_t latency = LatencyPs(p, s, f, d) + ExchangesPs(p, s, f, d) + StagedStartPs(s, d);
  const int64_t finalize = TransferPs(2 * workspace, d.cache_bytes_per_s) +
                           FinalizePs(p, chosen, workspace, d) + waits.later_ps;
  // Spilled words travel out and back once for each element that a thread goes through.
  const int64_t passes = std::max<int64_t>(
      ir.Points(ir.all_axes()) / std::max<int64_t>(GridThreads(s) * f.elements, 1), 1);
  const int64_t spill = TransferPs(
      Product({2, f.spill_bytes + f.doubtful_bytes, GridThreads(s), passes}), d.spill_bytes_per_s);
  price.ps = Saturated(launch + body + latency + finalize + spill);

  if (!explain) return price;
  const int64_t largest = std::max(loading, compute);
  bool bound = false;  // of equal ones the first binds
  auto term = [&](absl::string_view name, int64_t ps, bool overlaps, std::string formula) {
    if (ps == 0) return;
    // Waits come on top of what they last longer than, and may be what takes longest.
    const bool binds = overlaps ? !bound && ps == largest : name == "waits" && ps > largest;
    bound = bound || (overlaps && binds);
    price.terms.push_back({std::string(name), ps, binds, std::move(formula)});
  };
  term("launch", launch, false, absl::StrCat(price.launches, " x ", Us(d.launch_graph_ps)));
  term("hbm", hbm, true,
       absl::StrFormat(
           "%d B read + %d B written (%d B at this access width) / %.2f TB/s (%d "
           "threads x %d B in flight an SM)%s",
           t.read, t.written, t.weighted, static_cast<double>(bandwidth) / 1e12,
           std::max<int64_t>(f.blocks_per_sm, 1) * s.threads, f.bytes_in_flight,
           batches > 0 ? absl::StrCat("; waits between batches of rows ", Us(batches)) : "") +
           (lookups > 0 ? absl::StrCat("; looks up what rows share for ", Us(lookups)) : "") +
           (along_rows > 0 ? absl::StrCat("; asks for elements along rows for ", Us(along_rows))
                           : "") +
           (lost > 0 ? absl::StrCat("; of the bytes at this width ", lost, " B are read again")
                     : ""));
  term("cache", cache, true,
       absl::StrFormat("%d B%s / %.2f TB/s", t.cache + t.cached,
                       t.cached > 0 ? absl::StrCat(" (", t.cached, " B just written)") : "",
                       static_cast<double>(d.cache_bytes_per_s) / 1e12));
  term("stores", stores, true,
       absl::StrFormat("%d B of sectors written in parts / %.2f TB/s", t.part_sectors,
                       static_cast<double>(d.part_sector_bytes_per_s) / 1e12));
  term("compute", compute, true, absl::StrCat(ir.instrs.size(), " instructions"));
  term("wave", work - largest, false,
       absl::StrCat(s.blocks, " blocks in waves of ",
                    SmsOf(s, d) * std::max<int64_t>(f.blocks_per_sm, 1)));
  term("overlap", not_hidden, false,
       absl::StrCat(std::max<int64_t>(f.blocks_per_sm, 1) * s.threads,
                    " threads an SM compute while others wait"));
  term("blocks", blocks, false,
       absl::StrCat("the first of ", Waves(s, f, d),
                    " blocks of an SM one after the other, each at least ", Us(d.block_ps)));
  term("latency", latency, false, absl::StrCat(p.stages.row_stages, " row stages"));
  term("waits", body - moving, false, waits.formula);
  term("finalize", finalize, false, absl::StrCat("2 x ", workspace, " B of partial results"));
  term("spill", spill, false,
       f.doubtful_bytes > 0
           ? absl::StrCat(f.doubtful_bytes, " B a thread, if the compiler finds no room in ",
                          f.registers, " registers")
           : absl::StrCat(f.spill_bytes, " B a thread above ", f.registers, " registers"));
  return price;
}

int64_t CopyPs(int64_t bytes, const DeviceSpec& d) {
  return d.launch_graph_ps + TransferPs(2 * bytes, d.hbm_bytes_per_s);
}

}  // namespace retrograd
