#include "fusion/cost/kernel_work.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/ir/accesses/interleaved.h"
#include "fusion/kernel/ir/accesses/transposed.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/held_columns/column_slabs.h"
#include "fusion/kernel/templates/held_tiles/tile_walk.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/row_walks.h"
#include "fusion/kernel/templates/scatter_workspace.h"

namespace retrograd {
namespace {

// Threads that have at most the first number of vectors of a row wait for its ends as long as for
// one of them, those that have the second number do not wait: cross entropy over 50,257 words takes
// 1.014 of what it takes over 50,304 (bench/results/ops_nvidia_h200.json). Rows of 300 elements
// take by vectors of 8 1.2 of what they take by 4 (bench/results/schedules_of_walks_h200.json).
constexpr int64_t kTurnsBesideEnds = 3, kTurnsThatHideEnds = 6;

constexpr int64_t kSectorsOfLine = 4;

int64_t EfficiencyPpm(int64_t bytes,
                      const DeviceSpec& d) {  // of an access of so many bytes a thread
  if (bytes >= 16) return kPpm;
  if (bytes >= 8) return d.efficiency_8_ppm;
  if (bytes >= 4) return d.efficiency_4_ppm;
  return d.efficiency_2_ppm;
}

// Neighbours side by side, up to where a remainder starts again.
bool InVectors(const IndexExpr& offset, int axis) {
  if (std::abs(offset.axis_coef(axis)) == 1) return true;
  if (offset.is_affine()) return false;
  return LaneStride(offset, {axis, 8}) == 1 || LaneStride(offset, {axis, 4}) == 1;
}

// Of pieces of so many bytes a row. Of a piece that is no whole sector the rest is fetched, too.
int64_t RowPiecePpm(int64_t bytes, const DeviceSpec& d) {
  if (bytes >= 128) return kPpm;
  if (bytes >= 64) return d.row_piece_64_ppm;
  return MulDiv(d.row_piece_32_ppm, std::min(bytes, d.sector_bytes), d.sector_bytes);
}

// Bytes of whole sectors for each byte of the piece that a block has of a row of so many columns,
// where threads go down columns. Of whole rows, one behind the other, none is fetched in vain.
int64_t SectorsPpm(int64_t element_bytes, int64_t columns, bool dense, const Schedule& s,
                   const DeviceSpec& d) {
  const int64_t lanes = std::max(s.threads / std::max(s.rows_per_block, 1), 1);
  if (dense && lanes * s.vector_width >= columns) return kPpm;
  const int64_t piece = Product({lanes, s.vector_width, element_bytes});
  return std::max(MulDiv(d.sector_bytes, kPpm, std::max<int64_t>(piece, 1)), kPpm);
}

// How an access goes, by the logarithm of the width of vectors. Where no row has ends, one that
// goes by less than a vector goes alike in narrower ones.
template <size_t kWidths, typename Fn>
std::array<LoadForm, kWidths> FormsOf(const std::array<Vectors, kWidths>& vectors, Fn form_of) {
  std::array<LoadForm, kWidths> forms;
  for (size_t n = kWidths - 1; n > 0; --n) {
    const bool known =
        n + 1 < kWidths && !vectors[n + 1].shifts && forms[n + 1].width <= vectors[n].width;
    forms[n] = known ? forms[n + 1] : form_of(vectors[n]);
  }
  return forms;
}

// By number: of a load or store that shares accesses with others, elements that are its own of each
// access; else 1.
std::vector<int> WidthsInRuns(const std::vector<InterleavedRun>& runs, size_t count) {
  std::vector<int> widths(count, 1);
  for (const InterleavedRun& run : runs) {
    const int width = run.width * run.distinct() / run.elements();
    for (const InterleavedRun::Member& m : run.members) widths[m.number] = std::max(width, 1);
  }
  return widths;
}

std::vector<int> AllUpTo(size_t count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

KernelWork::KernelWork(const KernelIr& ir, const KernelProfile& profile, const DeviceSpec& device)
    : device_(device),
      profile_(profile),
      shape_(profile.shape.shape),
      points_(ir.Points(ir.all_axes())),
      row_(FastestAxis(ir) < 0 ? 1 : ir.extents[FastestAxis(ir)]),
      column_axis_(TemplateOf(profile.shape.kind).holds ? ColumnAxis(ir, shape_.column_axes) : -1),
      transposed_axis_(TemplateOf(profile.shape.kind).transposes ? TransposedAxis(ir).value_or(-1)
                                                                 : -1),
      address_terms_(1 + static_cast<int64_t>(ir.extents.size())) {
  for (int n = 0; n < kWidths; ++n) vectors_[n] = VectorsOf(ir, 1 << n);
  if (TemplateOf(profile.shape.kind).tiles) ReadTiles(ir);
  CountLoads(ir, profile);
  CountStores(ir);
  whole_ = Saturated(whole_ + RandomBytes());
  CountEvaluations(ir, profile);
  CountPartials(ir, profile);
}

void KernelWork::ReadTiles(const KernelIr& ir) {
  const TileAxes tile = *TileAxesOf(ir, ReadFolds(ir));
  column_axis_ = tile.along;
  across_axis_ = tile.across;
  tile_axes_ = tile.mask();
  for (int n = 0; n < kWidths; ++n) {
    tile_shuffles_[n] = ShufflesOfTile(ir, tile, 1 << n);
    const TileWalk walk =
        TileWalkOf(ir, tile, {.threads = kThreadsOfTileTeam, .vector_width = 1 << n});
    tile_parts_[n] = {walk.parts(), MulDiv(Product({walk.padded_lanes(), walk.padded_rows()}), kPpm,
                                           std::max<int64_t>(walk.lanes * walk.rows, 1))};
  }
}

// What a copy of a part of a row fetches: the sectors that it reaches into at both ends, but never
// more than whole rows.
std::vector<KernelWork::RowCopy> KernelWork::CopiesOfRows(const KernelIr& ir,
                                                          const KernelProfile& p) const {
  std::vector<RowCopy> copies(ir.instrs.size());
  for (const PointRows& rows : p.point_rows) {
    const int64_t size = SizeBytes(ir.buffers[rows.buffer].dtype);
    const int64_t all = rows.pitch * size;
    const int64_t ends = std::max<int64_t>(device_.sector_bytes - size, 0);
    const int64_t fetched = rows.whole ? all : std::min(rows.width * size + ends, all);
    const RowCopy copy{.ppm = MulDiv(fetched, kPpm, rows.columns * size),
                       .piece_bytes = rows.piece * size};
    for (int load : rows.loads) copies[load] = copy;
  }
  return copies;
}

// How many loads of one buffer find their elements in the same sectors, by instruction: those that
// go along with equal steps, of more than one element, begin near each other, and reach the same
// sector of each step. It is there for the second load if the steps of an SM's threads fit its
// first-level cache, which is made of the same memory as shared memory.
std::vector<int64_t> KernelWork::LoadsOfSectors(const KernelIr& ir) const {
  std::map<std::pair<int, std::string>, std::set<int64_t>> begins;  // of loads that go along alike
  std::vector<const std::set<int64_t>*> alike(ir.instrs.size(), nullptr);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& load = ir.instrs[i];
    if (load.kind != InstrKind::kLoad || !load.indirect.empty()) continue;
    const int64_t step_bytes = StepOf(ir, load.offset) * SizeBytes(load.dtype);
    if (step_bytes <= SizeBytes(load.dtype)) continue;
    if (Product({device_.max_threads_per_sm, step_bytes}) > device_.shared_bytes_per_sm) continue;
    IndexExpr from_zero = load.offset;
    from_zero.AddScaled(IndexExpr::Constant(load.offset.offset()), -1);
    std::set<int64_t>& of_group = begins[{load.buffer, from_zero.Print()}];
    of_group.insert(load.offset.offset());
    alike[i] = &of_group;
  }
  std::vector<int64_t> loads(ir.instrs.size(), 1);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (alike[i] == nullptr) continue;
    const Instr& load = ir.instrs[i];
    const int64_t step = StepOf(ir, load.offset), begin = load.offset.offset();
    const int64_t sector = std::max<int64_t>(device_.sector_bytes / SizeBytes(load.dtype), 1);
    const auto place = [&](int64_t other) { return (other % step + step) % step; };
    std::set<int64_t> places;
    const auto end = alike[i]->lower_bound(begin + step + sector);
    for (auto other = alike[i]->upper_bound(begin - step - sector); other != end; ++other) {
      if (place(*other) / sector == place(begin) / sector) places.insert(place(*other));
    }
    loads[i] = static_cast<int64_t>(places.size());
  }
  return loads;
}

void KernelWork::CountLoads(const KernelIr& ir, const KernelProfile& p) {
  const std::vector<int64_t> of_sectors = LoadsOfSectors(ir);
  const std::vector<RowCopy> copies = CopiesOfRows(ir, p);
  std::array<std::vector<int>, kWidths> in_runs;
  for (int n = 0; n < kWidths; ++n) {
    in_runs[n] = WidthsInRuns(FindInterleavedLoads(ir, AllUpTo(ir.instrs.size()), vectors_[n]),
                              ir.instrs.size());
  }
  std::vector<const Instr*> counted;
  // Several loads of one buffer bring in no more than all of it: the halves that rotary positions
  // swap.
  std::vector<int64_t> left;
  for (const Buffer& b : ir.buffers) left.push_back(b.elements * SizeBytes(b.dtype));
  const std::vector<bool> keys =
      ir.scatter ? KeyLoads(ir) : std::vector<bool>(ir.instrs.size(), false);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind != InstrKind::kLoad || keys[i]) continue;
    const Buffer& buffer = ir.buffers[instr.buffer];
    const int64_t size = SizeBytes(instr.dtype);
    // A second read of the same places comes from the cache.
    const bool again = std::any_of(counted.begin(), counted.end(), [&](const Instr* other) {
      return other->buffer == instr.buffer && other->offset == instr.offset;
    });
    if (again) {
      reread_ += ir.Points(instr.axes) * size;
      continue;
    }
    counted.push_back(&instr);
    if (!instr.indirect.empty()) {  // rows picked by an index: at most the whole table
      const int64_t picked = ir.Points(instr.axes);
      const int64_t distinct = std::min(picked, buffer.elements);
      read_ += distinct * size;
      whole_ += distinct * size;
      AxisMask positions = PositionsAnywhere(ir);
      for (const Indirect& ind : instr.indirect) positions |= ir.instrs[ind.instr].axes;
      reread_ += (picked - distinct) * size + FetchedBeside(ir, positions, instr.axes, size);
      // Rows that the sum's own indices pick follow one another.
      const bool in_order = std::all_of(instr.indirect.begin(), instr.indirect.end(),
                                        [&](const Indirect& ind) { return keys[ind.instr]; });
      if (!in_order) CountLookedUp(ir, instr);
      continue;
    }
    auto forms =
        FormsOf(vectors_, [&](const Vectors& v) { return FormOfLoad(ir, static_cast<int>(i), v); });
    for (int n = 0; n < kWidths; ++n) forms[n].width = std::max(forms[n].width, in_runs[n][i]);
    CountAccess(ir, instr.offset, buffer, instr.dtype, /*store=*/false, left[instr.buffer], forms,
                copies[i], of_sectors[i]);
    CountAnywhere(ir, instr.buffer, instr.offset.axes(), /*store=*/false);
    const int64_t distinct = ir.Points(instr.offset.axes());
    if (distinct < points_ && distinct > 1) {
      broadcasts_.push_back({.places = distinct,
                             .element_bytes = size,
                             .kept = p.pass_columns.Keeps(instr),
                             .along = (instr.offset.axes() >> FastestAxis(ir) & 1) != 0});
    } else if (TemplateOf(p.shape.kind).walk == Walk::kPoints && !ir.scatter) {
      CountLookups(ir, instr);
    }
    looped_reread_ += (StagesOf(p, i) - 1) * ir.Points(instr.axes) * size;
  }
}

// Elements that stand a step apart and are read at several points, as windows that overlap read
// them, are looked up at each.
void KernelWork::CountLookups(const KernelIr& ir, const Instr& load) {
  const int64_t step = StepOf(ir, load.offset), size = SizeBytes(load.dtype);
  if (step <= 1) return;
  const int64_t reads = Share(ir.Points(load.axes), UnguardedPpm(ir, load));
  const int64_t once = std::min(ir.Points(load.offset.axes()), ir.buffers[load.buffer].elements);
  const bool by_tile =
      transposed_axis_ >= 0 && RunsAlong(load.offset, transposed_axis_, FastestAxis(ir));
  (by_tile ? looked_up_without_tiles_ : reread_) +=
      AgainBytes(std::max<int64_t>(reads - once, 0) * size, size, step);
}

// The axes that number the positions of a sum, where neighbours among them stand anywhere.
AxisMask KernelWork::PositionsAnywhere(const KernelIr& ir) {
  return ir.scatter && !ir.scatter->in_order ? ir.scatter->row_axes : 0;
}

// An SM looks up one line of its cache a clock: as many bytes as the caches give it meanwhile.
int64_t KernelWork::BytesOfLookup() const {
  return MulDiv(device_.cache_bytes_per_s, 1,
                std::max<int64_t>(Product({device_.sms, device_.clock_hz}), 1));
}

// Lines that the threads of passes look up for so many elements of a broadcast. Accesses of 16
// bytes to wider vectors leave gaps for those that follow, and find the same lines again.
int64_t KernelWork::LinesOf(int64_t elements, const Broadcast& b, const Schedule& s) const {
  if (!b.along || s.kind != Template::kPointwise) return 0;
  const int64_t vector = b.element_bytes * s.vector_width;
  const int64_t apart = std::max<int64_t>(vector / kMaxAccessBytes, 1);
  return Product({elements, b.element_bytes, apart}) / (kSectorsOfLine * device_.sector_bytes);
}

// What bytes of a buffer weigh that another access has brought in: elements so many apart that no
// vector loads together are looked up each by itself.
int64_t KernelWork::AgainBytes(int64_t bytes, int64_t size, int64_t step) const {
  if (step <= 1) return bytes;
  const int64_t each = std::min(Product({step, size}), BytesOfLookup());
  return MulDiv(bytes, std::max(each, size), size);
}

// What stands anywhere, such as what a sum at sorted indices reads at a position, or a gathered
// row, is alone in its sectors and looked up by itself. The bytes of all positions that come on
// top.
// `positions`: axes that number them.
int64_t KernelWork::FetchedBeside(const KernelIr& ir, AxisMask positions, AxisMask axes,
                                  int64_t size) const {
  if ((axes & positions) == 0) return 0;
  const int64_t piece = ir.Points(axes & ~positions) * size;
  const int64_t fetched =
      std::max(CeilDiv(piece, device_.sector_bytes) * device_.sector_bytes, BytesOfLookup());
  return Product({ir.Points(axes & positions), fetched - piece});
}

// `elements`: of a piece.
void KernelWork::CountRandom(const KernelIr& ir, int buffer, int64_t times, int64_t elements,
                             bool store) {
  const Buffer& b = ir.buffers[buffer];
  const int64_t size = SizeBytes(b.dtype), all = b.elements * size;
  RandomAccess access{
      .buffer = buffer, .times = times, .piece_bytes = Product({elements, size}), .fresh = b.fresh};
  const int64_t reach = std::max(access.piece_bytes, device_.burst_bytes);
  access.region_bytes = std::min(Product({times, reach}), all);
  access.counted_bytes = std::min(Product({times, access.piece_bytes}), all);
  access.part_of_sector = store && access.piece_bytes % device_.sector_bytes != 0;
  random_.push_back(access);
}

// A load of rows that indices pick from a whole tensor. What they pick out of a part that is known,
// such as a row of probabilities, lies near what the next ones do.
void KernelWork::CountLookedUp(const KernelIr& ir, const Instr& load) {
  const IndexRange range = Range(load.offset, ir.extents);
  const int64_t places = std::min(range.max - range.min + 1, ir.Points(load.offset.axes()));
  for (const Indirect& ind : load.indirect) {
    if (range.max - range.min >= ind.stride) return;
  }
  CountRandom(ir, load.buffer, ir.Points(load.axes) / std::max<int64_t>(places, 1), places,
              /*store=*/false);
}

// An access with these axes to what stands anywhere.
void KernelWork::CountAnywhere(const KernelIr& ir, int buffer, AxisMask axes, bool store) {
  const AxisMask positions = PositionsAnywhere(ir);
  if ((axes & positions) == 0) return;
  CountRandom(ir, buffer, ir.Points(axes & positions), ir.Points(axes & ~positions), store);
}

// What random accesses move beside the bytes that are counted of them, as bytes that memory moves
// at its full rate meanwhile: whole bursts, and what each access takes beside. The last-level cache
// keeps what is reached most often, as much as it can; what this backward did not write memory
// serves at least once.
int64_t KernelWork::RandomBytes() const {
  std::vector<const RandomAccess*> by_use;
  for (const RandomAccess& a : random_) by_use.push_back(&a);
  const auto bursts_of = [&](const RandomAccess& a) {
    return Product({CeilDiv(a.piece_bytes, device_.burst_bytes), device_.burst_bytes});
  };
  const auto use = [&](const RandomAccess* a) {
    return Product({a->times, bursts_of(*a)}) / std::max<int64_t>(a->region_bytes, 1);
  };
  std::stable_sort(by_use.begin(), by_use.end(),
                   [&](const auto* a, const auto* b) { return use(a) > use(b); });
  int64_t left = Share(device_.cache_bytes, device_.random_kept_ppm), moved = 0;
  std::map<int, int64_t> kept_of;  // parts per million of a buffer that are kept
  for (const RandomAccess* a : by_use) {
    const auto [kept, first_use] = kept_of.try_emplace(a->buffer, 0);
    if (first_use) {
      const int64_t bytes = std::min(left, a->region_bytes);
      kept->second = MulDiv(bytes, kPpm, std::max<int64_t>(a->region_bytes, 1));
      left -= bytes;
    }
    const int64_t once = a->fresh ? 0 : a->region_bytes / std::max(bursts_of(*a), int64_t{1});
    const int64_t misses = std::max(Share(a->times, kPpm - kept->second), std::min(a->times, once));
    const int64_t each =
        bursts_of(*a) + (a->part_of_sector ? device_.burst_bytes : 0) + device_.random_access_bytes;
    moved = Saturated(moved + std::max<int64_t>(Product({misses, each}) - a->counted_bytes, 0));
  }
  return moved;
}

// Of what is stored at positions that stand anywhere: sectors of which a piece is a part. A piece
// is what a position has behind the axes that number positions.
int64_t KernelWork::PartsAnywhere(const KernelIr& ir, AxisMask axes, int64_t size) const {
  if (PositionsAnywhere(ir) == 0) return 0;
  const AxisMask inner = ScatterWorkspaceOf(ir).inner_axes;
  const int64_t part = ir.Points(axes & inner) * size % device_.sector_bytes;
  return part == 0 ? 0 : Product({ir.Points(axes & ~inner), device_.sector_bytes});
}

// Elements of one access to a tile of results, where results pass through one.
int KernelWork::TileWidthOfStore(const KernelIr& ir, const Store& store) const {
  if (column_axis_ < 0) return 1;
  if (across_axis_ < 0) return WideStoreWidth(ir, store);
  const auto size = static_cast<int>(SizeBytes(ir.buffers[store.buffer].dtype));
  return StoreWidth(ir, store, {.axis = across_axis_, .width = kMaxAccessBytes / size});
}

void KernelWork::CountStores(const KernelIr& ir) {
  std::array<std::vector<int>, kWidths> in_runs;
  for (int n = 0; n < kWidths; ++n) {
    in_runs[n] = WidthsInRuns(FindInterleavedStores(ir, AllUpTo(ir.stores.size()), vectors_[n]),
                              ir.stores.size());
  }
  for (size_t s = 0; s < ir.stores.size(); ++s) {
    const Store& store = ir.stores[s];
    const Buffer& buffer = ir.buffers[store.buffer];
    int64_t all = buffer.elements * SizeBytes(buffer.dtype);
    auto forms = FormsOf(
        vectors_, [&](const Vectors& v) { return LoadForm{.width = StoreWidth(ir, store, v)}; });
    for (int n = 0; n < kWidths; ++n) forms[n].width = std::max(forms[n].width, in_runs[n][s]);
    CountAccess(ir, store.offset, buffer, buffer.dtype, /*store=*/true, all, forms, {}, 1,
                TileWidthOfStore(ir, store));
    CountAnywhere(ir, store.buffer, store.offset.axes(), /*store=*/true);
  }
  if (!ir.scatter) return;
  const Buffer& table = ir.buffers[ir.scatter->buffer];
  const int64_t bytes = table.elements * SizeBytes(table.dtype);
  written_ += bytes;
  whole_ += bytes;
  const Buffer& sorted = ir.buffers[ir.scatter->sorted];
  read_ += sorted.elements * SizeBytes(sorted.dtype);
  if (ir.scatter->base < 0) return;
  const int64_t base = table.elements * SizeBytes(ir.buffers[ir.scatter->base].dtype);
  read_ += base;
  whole_ += base;
}

// Elements from one that a block accesses to the next. A block that has a tile goes along both of
// its axes; what is next to an element along another axis is another block's.
int64_t KernelWork::StepOf(const KernelIr& ir, const IndexExpr& offset) const {
  if (tile_axes_ == 0) {
    const int last = static_cast<int>(ir.extents.size()) - 1;
    return last < 0 ? 0 : std::abs(offset.axis_coef(last));
  }
  const int64_t along = std::abs(offset.axis_coef(column_axis_));
  const int64_t across = std::abs(offset.axis_coef(across_axis_));
  return along == 0 || across == 0 ? std::max(along, across) : std::min(along, across);
}

void KernelWork::CountAccess(const KernelIr& ir, const IndexExpr& offset, const Buffer& buffer,
                             DType dtype, bool store, int64_t& left,
                             const std::array<LoadForm, kWidths>& forms, RowCopy copy,
                             int64_t loads_of_sectors, int tile_width) {
  const int64_t size = SizeBytes(dtype);
  const int last = static_cast<int>(ir.extents.size()) - 1;
  const int fastest = tile_axes_ != 0 ? column_axis_ : last;
  const int64_t step = StepOf(ir, offset);
  const bool vectors = fastest >= 0 && InVectors(offset, fastest);
  Access access{
      .element_bytes = size,
      .vectors = vectors,
      .in_runs = !vectors && forms.back().width > 1,
      .forms = forms,
      .copied_ppm = copy.ppm,
      .piece_bytes = copy.piece_bytes,
      .fresh = !store && buffer.fresh,
      .store_of_lanes = store && fastest >= 0 && (offset.axes() >> fastest & 1) != 0 &&
                        PositionsAnywhere(ir) == 0,
      .in_rows = column_axis_ >= 0 && LaneStride(offset, {column_axis_, 2}) == 1,
      .by_tile = tile_width > 1,
      .transposed = transposed_axis_ >= 0 && RunsAlong(offset, transposed_axis_, FastestAxis(ir)),
      .along_rows = store ? AlongRows() : RunAlongRows(ir, profile_, offset, step, size)};
  if (step > 1) {
    const int64_t waste = std::min(step, std::max<int64_t>(device_.sector_bytes / size, 1));
    access.waste_ppm = std::max(waste * kPpm / loads_of_sectors, kPpm);
  }
  const int64_t reached = std::min(ir.Points(offset.axes()), buffer.elements) * size;
  access.bytes = std::min(reached, left);
  access.of_all = reached == buffer.elements * size;
  left -= access.bytes;
  reread_ +=
      AgainBytes(reached - access.bytes, size, access.transposed || access.in_runs ? 1 : step);
  reread_ += FetchedBeside(ir, PositionsAnywhere(ir), offset.axes(), size);
  if (store) parts_anywhere_ += PartsAnywhere(ir, offset.axes(), size);
  (store ? written_ : read_) += access.bytes;
  for (Access& known : accesses_) {
    if (known.element_bytes == size && known.vectors == access.vectors &&
        known.in_runs == access.in_runs && known.forms == access.forms &&
        known.waste_ppm == access.waste_ppm && known.copied_ppm == access.copied_ppm &&
        known.piece_bytes == access.piece_bytes && known.fresh == access.fresh &&
        known.store_of_lanes == access.store_of_lanes && known.in_rows == access.in_rows &&
        known.by_tile == access.by_tile && known.transposed == access.transposed &&
        known.along_rows == access.along_rows && known.of_all == access.of_all) {
      known.bytes += access.bytes;
      return;
    }
  }
  accesses_.push_back(access);
}

const LoadForm& KernelWork::FormUnder(const Access& access, const Schedule& s) const {
  int n = 0;
  while (n + 1 < kWidths && 2 << n <= s.vector_width) ++n;
  return access.forms[n];
}

int64_t KernelWork::WidthOf(const Access& a, const Schedule& s) const {
  if (HoldsRows(s)) return a.in_rows || a.by_tile ? kMaxAccessBytes : a.element_bytes;
  if (TemplateOf(s).tiles && s.vector_width > 1 && (a.in_rows || a.by_tile)) {
    return a.by_tile ? kMaxAccessBytes
                     : std::min<int64_t>(a.element_bytes * s.vector_width, kMaxAccessBytes);
  }
  // Wide tiles have whole accesses on both sides.
  if (TemplateOf(s).transposes && s.vector_width > 1) return kMaxAccessBytes;
  // Who keeps what it loads keeps the lanes of each load apart.
  const bool in_runs = a.in_runs && TemplateOf(s).walk == Walk::kPoints;
  return a.element_bytes * (a.vectors || in_runs ? FormUnder(a, s).width : 1);
}

int64_t KernelWork::RaggedRowPpm(const Schedule& s) const {
  const int64_t turns = CeilDiv(VectorsOfRow(s), std::max<int64_t>(LanesOfRow(s), 1));
  const int64_t few =
      std::clamp<int64_t>(kTurnsThatHideEnds - turns, 0, kTurnsThatHideEnds - kTurnsBesideEnds);
  return kPpm + (device_.ragged_row_ppm - kPpm) * few / (kTurnsThatHideEnds - kTurnsBesideEnds);
}

int64_t KernelWork::WeightedBytes(const Access& a, const Schedule& s) const {
  const bool of_rows = TemplateOf(s).walk == Walk::kRows && !TemplateOf(s).tiles && !HoldsRows(s);
  const auto over = [&](int64_t bytes, int64_t width) {
    int64_t efficiency = EfficiencyPpm(width, device_);
    // Lanes of a row that fill no sector ask for it again, as those of a pass do.
    if (of_rows && s.persistent && LanesOfRow(s) * width >= device_.sector_bytes) {
      efficiency = kPpm - Share(kPpm - efficiency, device_.row_narrow_ppm);
    }
    return MulDiv(bytes, kPpm, efficiency);
  };
  if (HoldsRows(s) && a.in_rows) {
    const int64_t piece = a.element_bytes * s.vector_width * (s.threads / s.rows_per_block);
    return MulDiv(a.bytes, kPpm, RowPiecePpm(piece, device_));
  }
  if (HoldsRows(s) && a.by_tile) return a.bytes;
  if (TemplateOf(s).tiles && (a.in_rows || a.by_tile)) return over(a.bytes, WidthOf(a, s));
  if (StagesPoints(s) && a.copied_ppm > 0) {
    return over(MulDiv(a.bytes, a.copied_ppm, kPpm), a.piece_bytes);
  }
  if (TemplateOf(s).walk == Walk::kColumns && a.vectors) {
    const int64_t ppm = SectorsPpm(a.element_bytes, shape_.columns, a.of_all, s, device_);
    return over(MulDiv(a.bytes, ppm, kPpm), WidthOf(a, s));
  }
  if (a.along_rows.rows > 0) {
    return MulDiv(a.bytes, FetchedAlongRowsPpm(a.waste_ppm, a.along_rows, s), kPpm);
  }
  const bool ragged = FormUnder(a, s).shifted || row_ % s.vector_width != 0;
  // Rows that are copied ahead come whole, and of a cluster one block alone has an end.
  if (of_rows && ragged && !StagesAhead(s) && s.cluster == 1) {
    return over(MulDiv(MulDiv(a.bytes, a.waste_ppm, kPpm), RaggedRowPpm(s), kPpm), WidthOf(a, s));
  }
  const bool by_tiles = TemplateOf(s).transposes && (a.transposed || s.vector_width > 1);
  return over(by_tiles ? a.bytes : MulDiv(a.bytes, a.waste_ppm, kPpm), WidthOf(a, s));
}

// Threads that store the lanes of a vector one by one, or a few at once, write a part of a sector
// each time, and their neighbours write the next part of it elsewhere in the same time.
int64_t KernelWork::PartSectors(const Access& a, const Schedule& s) const {
  const KernelTemplate& t = TemplateOf(s);
  const bool thirds = !std::has_single_bit(static_cast<unsigned>(s.vector_width));  // all in runs
  const bool alone = t.walk == Walk::kPoints && !t.transposes && !a.in_runs && !thirds;
  if (!a.store_of_lanes || !alone || a.waste_ppm > kPpm) return 0;
  const int64_t width = WidthOf(a, s);
  const int64_t apart = std::min(a.element_bytes * s.vector_width, device_.sector_bytes);
  return width < std::min<int64_t>(apart, kMaxAccessBytes) ? MulDiv(a.bytes, apart, width) : 0;
}

bool KernelWork::HoldsColumns(const Schedule& s) {
  return TemplateOf(s).keeps_columns && s.persistent;
}

KernelTraffic KernelWork::Traffic(const Schedule& s) const {
  KernelTraffic t{.read = read_,
                  .written = written_,
                  .weighted = whole_,
                  .cache = reread_,
                  .part_sectors = parts_anywhere_};
  int64_t fresh = 0;
  for (const Access& a : accesses_) {
    const int64_t width = WidthOf(a, s);
    // Threads lie a vector apart: pieces of one ask for its sectors again and again.
    if (a.vectors && width < kMaxAccessBytes) {
      const int64_t vector = std::min(a.element_bytes * s.vector_width, device_.sector_bytes);
      t.cache += MulDiv(a.bytes, std::max(vector - width, int64_t{0}), width);
    }
    t.part_sectors += PartSectors(a, s);
    if (a.along_rows.rows > 0) {
      t.sectors_along_rows +=
          SectorsAlongRows(a.bytes / a.element_bytes, a.element_bytes, a.along_rows, s, device_);
    }
    const int64_t weighted = WeightedBytes(a, s);
    t.weighted += weighted;
    if (a.fresh) fresh += weighted;
  }
  // Of a pass, rows that are loaded together share what it keeps alone.
  const bool walks = TemplateOf(s).walk != Walk::kPoints;
  int64_t rows_at_once = walks ? std::max(1, s.rows_per_block * s.rows_per_thread) : 1;
  if (s.staged > 0 && s.kind == Template::kScatterAdd) rows_at_once = s.threads;
  for (const Broadcast& b : broadcasts_) {
    const int64_t rows = b.kept ? s.turns : rows_at_once;
    const int64_t copies =
        HoldsColumns(s) ? RowBlocks(s) : std::max<int64_t>(points_ / b.places / rows, 1);
    const int64_t reads = std::min(MulDiv(b.places, copies, 1), points_);
    t.cache += Share(reads * b.element_bytes, device_.broadcast_miss_ppm);
    t.lookups += LinesOf(reads, b, s);
  }
  if (!TemplateOf(s).transposes) t.cache += looked_up_without_tiles_;
  if (!s.persistent) t.looped = looped_reread_;
  t.cache += t.looped;
  t.cached = CachedBytes(fresh, t.read + t.written, device_);
  t.weighted -= t.cached;
  return t;
}

void KernelWork::CountPartials(const KernelIr& ir, const KernelProfile& p) {
  const KernelTemplate& t = TemplateOf(p.shape.kind);
  if (t.workspace_bytes != nullptr) fixed_workspace_ = t.workspace_bytes(ir);
  for (const Instr& instr : ir.instrs) {
    const AxisMask folded = FoldedAxes(ir, instr);
    if (folded == 0) continue;
    const int64_t bytes = SizeBytes(AccumulatorType(instr.dtype));
    row_partials_.push_back(bytes);
    if ((folded & p.shape.shape.column_axes) == 0) column_partials_.push_back(bytes);
  }
}

int64_t KernelWork::WorkspaceBytes(const Schedule& s) const {
  const KernelTemplate& t = TemplateOf(s);
  if (t.workspace_bytes != nullptr) return fixed_workspace_;
  if (s.split <= 1) return 0;
  const bool by_row = t.splits_rows;
  const int64_t lines = by_row ? shape_.rows : shape_.columns;
  int64_t next = 0, end = 0;
  for (const int64_t bytes : by_row ? row_partials_ : column_partials_) {
    end = next + lines * s.split * bytes;
    next = (end + 15) / 16 * 16;
  }
  return end;
}

}  // namespace retrograd
