#include "fusion/cost.h"

#include <algorithm>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/scatter_workspace.h"

namespace retrograd {
namespace {

constexpr int64_t kPpm = 1'000'000;

// Far beyond any time or count that is ever compared; sums of many stay in range.
constexpr int64_t kHuge = int64_t{1} << 56;

int64_t MulDiv(int64_t a, int64_t b, int64_t c) {  // ceil(a*b/c), at most kHuge
  const absl::uint128 product = absl::uint128(static_cast<uint64_t>(a)) * static_cast<uint64_t>(b);
  const absl::uint128 quotient = (product + static_cast<uint64_t>(c) - 1) / static_cast<uint64_t>(c);
  return quotient > absl::uint128(kHuge) ? kHuge : static_cast<int64_t>(quotient);
}
int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Threads that a schedule launches in all (main launch).
int64_t GridThreads(const Schedule& s) { return s.blocks * s.threads; }

// Bytes that one access of the kernel moves per thread: decides how well it fills transactions.
int64_t AccessBytes(const IndexExpr& offset, int last_axis, DType dtype, const Schedule& s) {
  const int64_t size = SizeBytes(dtype);
  if (last_axis < 0) return size;
  const int64_t step = offset.axis_coef(last_axis);
  return step == 1 || step == -1 ? size * s.vector_width : size;
}

int64_t EfficiencyPpm(int64_t bytes, const DeviceSpec& d) {
  if (bytes >= 16) return kPpm;
  if (bytes >= 8) return d.efficiency_8_ppm;
  if (bytes >= 4) return d.efficiency_4_ppm;
  return d.efficiency_2_ppm;
}

struct Traffic {
  int64_t read = 0, written = 0;  // distinct bytes of device memory
  int64_t weighted = 0;           // the same, over the efficiency of each access
  int64_t cache = 0;              // bytes served by caches: re-reads and broadcasts
  int64_t fresh = 0;              // of weighted: reads of what this backward wrote
  int64_t cached = 0;             // of fresh: found in the last-level cache
};

// One access to `points` distinct places.
void CountAccess(const KernelIr& ir, const IndexExpr& offset, const Buffer& buffer, DType dtype,
                 const Schedule& s, const DeviceSpec& d, bool store, Traffic& t) {
  const int64_t size = SizeBytes(dtype);
  const int64_t distinct = std::min(ir.Points(offset.axes()), buffer.elements) * size;
  const int last = static_cast<int>(ir.extents.size()) - 1;
  int64_t waste_ppm = kPpm;
  if (last >= 0 && s.kind != Template::kTranspose) {
    const int64_t step = std::abs(offset.axis_coef(last));
    if (step > 1) waste_ppm = kPpm * std::min(step, std::max<int64_t>(d.sector_bytes / size, 1));
  }
  const int64_t efficiency = EfficiencyPpm(AccessBytes(offset, last, dtype, s), d);
  (store ? t.written : t.read) += distinct;
  const int64_t weighted = MulDiv(MulDiv(distinct, waste_ppm, kPpm), kPpm, efficiency);
  t.weighted += weighted;
  if (!store && buffer.fresh) t.fresh += weighted;
}

Traffic CountTraffic(const KernelIr& ir, const KernelProfile& p, const Schedule& s,
                     const DeviceSpec& d) {
  Traffic t;
  std::vector<const Instr*> counted;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind != InstrKind::kLoad) continue;
    // A second read of the same places comes from the cache.
    const bool again = std::any_of(counted.begin(), counted.end(), [&](const Instr* other) {
      return other->buffer == instr.buffer && other->offset == instr.offset;
    });
    const int64_t size = SizeBytes(instr.dtype);
    const int64_t all = ir.Points(ir.all_axes());
    if (again) {
      t.cache += ir.Points(instr.axes) * size;
      continue;
    }
    counted.push_back(&instr);
    IndexExpr reach = instr.offset;
    if (!instr.indirect.empty()) {  // rows picked by an index: at most the whole table
      const int64_t bytes = std::min(ir.Points(instr.axes), ir.buffers[instr.buffer].elements) * size;
      t.read += bytes;
      t.weighted += bytes;
      t.cache += (ir.Points(instr.axes) - std::min(ir.Points(instr.axes), ir.buffers[instr.buffer].elements)) * size;
      continue;
    }
    CountAccess(ir, instr.offset, ir.buffers[instr.buffer], instr.dtype, s, d, false, t);
    // Broadcast reads: each block fetches its own copy from the cache.
    const int64_t distinct = ir.Points(instr.offset.axes());
    if (distinct < all && distinct > 1) {
      const bool hoisted = s.kind == Template::kRowColumn && s.persistent;
      const int64_t rows_at_once = std::max(1, s.rows_per_block * s.rows_per_thread);
      const int64_t copies = hoisted ? s.blocks
                                     : std::max<int64_t>(all / distinct / rows_at_once, 1);
      t.cache += std::min(distinct * copies, all) * size / 4;  // three of four come from L1
    }
    // Stages that keep nothing read their inputs again.
    if (!s.persistent && p.inner[i]) {
      int stages = 0;
      for (const std::vector<int>& needed : p.needed) {
        stages += std::binary_search(needed.begin(), needed.end(), static_cast<int>(i));
      }
      if (stages > 1) t.cache += (stages - 1) * ir.Points(instr.axes) * size;
    }
  }
  for (const Store& store : ir.stores) {
    CountAccess(ir, store.offset, ir.buffers[store.buffer], ir.buffers[store.buffer].dtype, s, d,
                true, t);
  }
  if (ir.scatter) {
    const Buffer& table = ir.buffers[ir.scatter->buffer];
    const int64_t bytes = table.elements * SizeBytes(table.dtype);
    t.written += bytes;
    t.weighted += bytes;
  }
  t.cached = CachedBytes(t.fresh, t.read + t.written, d);
  t.weighted -= t.cached;
  return t;
}

// How often an instruction is evaluated: wherever it stands in the code, even if its value is the
// same at many points. What every element of a vector shares is evaluated once a vector.
int64_t Evaluations(const KernelIr& ir, const KernelProfile& p, const Schedule& s, size_t i) {
  const Instr& instr = ir.instrs[i];
  const AxisMask axes =
      instr.kind == InstrKind::kReduce ? ir.instrs[instr.operands[0]].axes : instr.axes;
  const RowsAndColumns& rc = p.shape.shape;
  switch (s.kind) {
    case Template::kPointwise:
    case Template::kTranspose:
    case Template::kScatterAdd: {
      if (axes == 0) return 1;
      const int64_t all = ir.Points(ir.all_axes());
      const bool per_lane = axes >> (ir.extents.size() - 1) & 1;
      return per_lane ? all : std::max<int64_t>(all / s.vector_width, 1);
    }
    default: {
      if (p.stages.finalize[i] || axes == 0) return ir.Points(axes);
      const bool rows = axes & rc.row_axes, columns = axes & rc.column_axes;
      if (rows && columns) return rc.rows * rc.columns;
      if (rows) return rc.rows * std::max(s.threads_per_row, 1);  // by each thread of the row
      // A column's value: once a block where it stays in registers, else at each element.
      const bool hoisted = s.kind == Template::kRowColumn && s.persistent;
      return hoisted ? s.blocks * rc.columns : rc.rows * rc.columns;
    }
  }
}

// Cycles of all SMs together, times the clock: Σ evaluations / rate.
int64_t ComputePs(const KernelIr& ir, const KernelProfile& p, const Schedule& s,
                  const DeviceSpec& d) {
  int64_t total = 0;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    CostClass cost = CostClass::kSimple;
    int64_t times = Evaluations(ir, p, s, i);
    if (instr.kind == InstrKind::kConstant) continue;
    if (instr.kind == InstrKind::kPointwise) cost = Info(instr.op).cost;
    if (instr.kind == InstrKind::kLoad) {  // address arithmetic, once per vector
      times = times / s.vector_width * (1 + static_cast<int64_t>(ir.extents.size()));
    }
    int64_t rate = d.rate[static_cast<int>(cost)];
    if (rate == 0) continue;
    if (!s.persistent && p.inner[i]) {
      int64_t stages = 0;
      for (const std::vector<int>& needed : p.needed) {
        stages += std::binary_search(needed.begin(), needed.end(), static_cast<int>(i));
      }
      times *= std::max<int64_t>(stages, 1);
    }
    if (instr.dtype == DType::kFp64) rate = std::max<int64_t>(rate * d.fp64_ppm / kPpm, 1);
    total += MulDiv(times, 1'000'000'000'000 / d.sms / rate, d.clock_hz);
  }
  return total;
}

// What the SMs that have a block at all can draw.
int64_t BandwidthOfBlocks(const Schedule& s, const DeviceSpec& d) {
  const int64_t active = std::min(s.blocks, d.sms);
  int64_t bandwidth = std::min(d.hbm_bytes_per_s, active * d.sm_bytes_per_s);
  if (active < d.sms) bandwidth = std::min(bandwidth, MulDiv(d.hbm_bytes_per_s, 2 * active, d.sms));
  return std::max<int64_t>(bandwidth, 1);
}

// Bandwidth that the schedule can draw: bytes in flight against what an SM needs to be busy, too.
int64_t Bandwidth(const Schedule& s, const Footprint& f, const DeviceSpec& d) {
  const int64_t blocks_here = std::max<int64_t>(f.blocks_per_sm, 1);
  const int64_t resident = std::min(blocks_here, CeilDiv(s.blocks, d.sms));
  const int64_t in_flight = std::max<int64_t>(resident * s.threads * f.bytes_in_flight, 1);
  int64_t bandwidth = d.hbm_bytes_per_s;
  if (in_flight < d.bytes_in_flight_per_sm) {
    bandwidth = MulDiv(bandwidth, in_flight, d.bytes_in_flight_per_sm);
  }
  return std::max<int64_t>(std::min(bandwidth, BandwidthOfBlocks(s, d)), 1);
}

// Share of the last wave that stands idle, as a factor in ppm.
int64_t WavePpm(const Schedule& s, const Footprint& f, const DeviceSpec& d) {
  const int64_t at_once = d.sms * std::max<int64_t>(f.blocks_per_sm, 1);
  if (s.blocks <= at_once) return kPpm;
  return MulDiv(CeilDiv(s.blocks, at_once) * at_once, kPpm, s.blocks);
}

// Barrier rounds on a block's critical path; blocks that share an SM hide each other's.
int64_t LatencyPs(const KernelProfile& p, const Schedule& s, const Footprint& f,
                  const DeviceSpec& d) {
  const RowsAndColumns& rc = p.shape.shape;
  int64_t rounds = 0;
  switch (s.kind) {
    case Template::kRowReduction:
    case Template::kRowColumn: {
      const int64_t rows_at_once = int64_t{s.rows_per_block} * s.rows_per_thread;
      const int64_t row_blocks =
          s.kind == Template::kRowReduction ? std::max<int64_t>(s.blocks / s.split, 1) : s.blocks;
      const int64_t iterations = CeilDiv(rc.rows, rows_at_once * row_blocks);
      rounds = iterations * std::max(p.stages.row_stages, 1);
      if (s.threads_per_row <= d.warp) rounds = CeilDiv(rounds, 3);  // shuffles alone
      // Short chunks that are not unrolled wait for memory one after the other.
      if (!s.persistent) {
        const int64_t lane = int64_t{s.threads_per_row} * s.vector_width;
        rounds += iterations * (p.stages.row_stages + 1) * CeilDiv(rc.columns / s.split, lane) / 4;
      }
      break;
    }
    case Template::kColumnReduction:
      rounds = 2 + CeilDiv(rc.rows, s.split * s.rows_per_block) / 4;
      break;
    default:
      rounds = 1;
  }
  const int64_t overlap = std::clamp<int64_t>(f.blocks_per_sm, 1, 4);
  const int64_t waves = CeilDiv(s.blocks, d.sms * std::max<int64_t>(f.blocks_per_sm, 1));
  return rounds * waves * d.barrier_ps / overlap;
}

// What blocks that walk rows wait for memory, batch after batch, beside what the bytes take: the loads
// of a batch are under way together, and nothing else is unless the next batch's are, or another
// block's.
int64_t RowBatchesPs(const KernelProfile& p, const Schedule& s, const Footprint& f,
                     const DeviceSpec& d) {
  const bool columns = s.kind == Template::kColumnReduction;
  if (s.kind != Template::kRowColumn && !columns) return 0;
  // A thread of a column reduction goes down its piece of the column row by row.
  const int64_t at_once = int64_t{s.rows_per_block} * (columns ? 1 : s.rows_per_thread);
  const int64_t batches = CeilDiv(p.shape.shape.rows, at_once * (columns ? s.split : s.blocks));
  const int64_t waves = CeilDiv(s.blocks, d.sms * std::max<int64_t>(f.blocks_per_sm, 1));
  if (batches <= 1) return 0;
  const int64_t resident = std::min(std::max<int64_t>(f.blocks_per_sm, 1), CeilDiv(s.blocks, d.sms));
  // What the loads ahead of a batch do not hide grows with them.
  const int64_t wait = s.prefetch ? d.row_batch_prefetched_ps * s.rows_per_thread : d.row_batch_ps;
  const int64_t passes = s.persistent || columns ? 1 : p.stages.row_stages + 1;
  // Measured: two blocks on an SM wait 1.6 times less than one, four 3.4 times.
  const int64_t others = resident - 1;
  return batches * waves * passes * wait * 10 / (10 + 4 * others + resident * others);
}

std::string Us(int64_t ps) { return absl::StrFormat("%.2f us", static_cast<double>(ps) / 1e6); }

// A scatter's first launches sort the indices; the sums that follow have one block for each fixed
// chunk of sorted positions.
Schedule SummingLaunch(const KernelIr& ir, const Schedule& s) {
  Schedule sums = s;
  if (ir.scatter) sums.blocks = std::max<int64_t>(ir.Points(ir.scatter->row_axes) / kScatterChunk, 1);
  return sums;
}

// A stable radix sort, beside its launches.
int64_t SortPs(const KernelIr& ir, const DeviceSpec& d) {
  if (!ir.scatter) return 0;
  return SortPasses(ir.scatter->table_rows) * ir.Points(ir.scatter->row_axes) * d.sort_pass_ps;
}

}  // namespace

int64_t CachedBytes(int64_t fresh, int64_t moved, const DeviceSpec& d) {
  const int64_t all = d.cache_bytes / 10 * 6, none = d.cache_bytes / 10 * 12;
  if (moved >= none) return 0;
  return moved <= all ? fresh : MulDiv(fresh, none - moved, none - all);
}

int64_t TransferPs(int64_t bytes, int64_t bytes_per_s) {
  return bytes == 0 ? 0 : MulDiv(bytes, 1'000'000'000'000, bytes_per_s);
}

Price PriceKernel(const KernelIr& ir, const KernelProfile& p, const Schedule& chosen,
                  const DeviceSpec& d, bool explain, const CompiledResources* compiled) {
  const Schedule s = SummingLaunch(ir, chosen);
  Price price;
  price.footprint = PredictFootprint(ir, p, s, d);
  if (compiled != nullptr) UseCompiled(*compiled, s, d, price.footprint);
  const Footprint& f = price.footprint;
  const Traffic t = CountTraffic(ir, p, s, d);
  price.read_bytes = t.read;
  price.written_bytes = t.written;
  const int64_t workspace = WorkspaceBytes(ir, chosen);
  price.launches = ir.scatter ? ScatterLaunches(ir) : (workspace > 0 ? 2 : 1);

  const int64_t bandwidth = Bandwidth(s, f, d);
  const int64_t launch = price.launches * d.launch_graph_ps;
  // Waiting batch after batch is what few bytes in flight look like in a walk of rows.
  const int64_t batches = RowBatchesPs(p, s, f, d);
  const int64_t walked = TransferPs(t.weighted, BandwidthOfBlocks(s, d)) + batches;
  const bool batch_waits = batches > 0 && !s.prefetch && (s.persistent || s.kind == Template::kColumnReduction);
  const int64_t hbm = batch_waits ? walked : std::max(TransferPs(t.weighted, bandwidth), walked);
  // A schedule that draws less than all of the memory's bandwidth draws less of the cache's, too.
  const int64_t just_written = TransferPs(t.cached, MulDiv(d.cache_bytes_per_s, bandwidth, d.hbm_bytes_per_s));
  const int64_t cache = TransferPs(t.cache, d.cache_bytes_per_s) + just_written;
  const int64_t compute = ComputePs(ir, p, s, d);
  const int64_t wave = WavePpm(s, f, d);
  const int64_t body = MulDiv(std::max({hbm, cache, compute}), wave, kPpm);
  const int64_t latency = LatencyPs(p, s, f, d);
  const int64_t sort = SortPs(ir, d);
  const int64_t finalize = TransferPs(2 * workspace, d.cache_bytes_per_s);
  // Spilled words travel out and back once for each element that a thread goes through.
  const int64_t passes = std::max<int64_t>(
      ir.Points(ir.all_axes()) / std::max<int64_t>(GridThreads(s) * f.elements, 1), 1);
  const int64_t spill = TransferPs(2 * f.spill_bytes * GridThreads(s) * passes, d.spill_bytes_per_s);
  price.ps = launch + body + latency + sort + finalize + spill;

  auto term = [&](absl::string_view name, int64_t ps, bool overlaps, std::string formula) {
    if (ps == 0) return;
    const bool largest = ps == std::max({hbm, cache, compute, sort});
    const bool binds = overlaps && largest;
    price.terms.push_back({std::string(name), ps, binds, std::move(formula)});
  };
  if (!explain) return price;
  term("launch", launch, false, absl::StrCat(price.launches, " x ", Us(d.launch_graph_ps)));
  term("hbm", hbm, true,
       absl::StrFormat("%d B read + %d B written (%d B at this access width) / %.2f TB/s (%d "
                       "threads x %d B in flight an SM)%s",
                       t.read, t.written, t.weighted, static_cast<double>(bandwidth) / 1e12,
                       std::max<int64_t>(f.blocks_per_sm, 1) * s.threads, f.bytes_in_flight,
                       batches > 0 ? absl::StrCat("; waits between batches of rows ", Us(batches)) : ""));
  term("cache", cache, true,
       absl::StrFormat("%d B%s / %.2f TB/s", t.cache + t.cached,
                       t.cached > 0 ? absl::StrCat(" (", t.cached, " B just written)") : "",
                       static_cast<double>(d.cache_bytes_per_s) / 1e12));
  term("compute", compute, true, absl::StrCat(ir.instrs.size(), " instructions"));
  term("wave", body - std::max({hbm, cache, compute}), false,
       absl::StrCat(s.blocks, " blocks in waves of ", d.sms * std::max<int64_t>(f.blocks_per_sm, 1)));
  term("latency", latency, false, absl::StrCat(p.stages.row_stages, " row stages"));
  term("sort", sort, true, absl::StrCat(SortPasses(ir.scatter ? ir.scatter->table_rows : 0), " passes over the indices"));
  term("finalize", finalize, false, absl::StrCat("2 x ", workspace, " B of partial results"));
  term("spill", spill, false, absl::StrCat(f.spill_bytes, " B a thread above ", f.registers, " registers"));
  return price;
}

}  // namespace retrograd
