#include "fusion/cost/kernel_work.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/ir/accesses/interleaved.h"
#include "fusion/kernel/ir/accesses/needed_lanes.h"
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

// An instruction count for two aligned accesses of 16 bytes in place of one: a choice of words and
// the shifts, counted in sm_90 code.
constexpr int64_t kShiftSteps = 25;

// What a thread of a pass, or of a tile that transposes, does beside what it makes of its elements:
// it finds its place, an axis at a time, divides for addresses and guards, and addresses and packs
// what it stores. Fitted to the sm_90 code of passes by least squares.
constexpr int64_t kStepsOfThread = 11;
constexpr int64_t kStepsOfAxis = 6;
constexpr int64_t kStepsOfDivision = 3;
constexpr int64_t kStepsOfStore = 6;

// What an end of a row takes of the time of a vector: a warp that has both takes the time of both.
constexpr int64_t kEndOfVectorPpm = 750'000;

// Adds the divisions and remainders in the expression, each once.
void AddDivisions(const IndexExpr& e, std::set<std::string>& divisions) {
  for (const IndexTerm& t : e.terms()) {
    if (t.kind == IndexTerm::kAxis) continue;
    if (!divisions.insert(absl::StrCat(int{t.kind}, "/", t.divisor, " ", t.inner->Print())).second)
      continue;
    AddDivisions(*t.inner, divisions);
  }
}

int64_t StepsOfThread(const KernelIr& ir) {
  std::set<std::string> divisions;
  for (const Instr& i : ir.instrs) {
    AddDivisions(i.offset, divisions);
    for (const Guard& g : i.guards) AddDivisions(g.expr, divisions);
  }
  for (const Store& s : ir.stores) AddDivisions(s.offset, divisions);
  const int64_t axes = std::max<int64_t>(std::ssize(ir.extents) - 1, 0);
  return kStepsOfThread + kStepsOfAxis * axes +
         kStepsOfDivision * static_cast<int64_t>(divisions.size()) +
         kStepsOfStore * static_cast<int64_t>(ir.stores.size());
}

// What a thread of a scatter does at each sorted position beside making the source: it reads the
// row and the place, tells whether the row ends, and adds. Counted in sm_90 code, with a tenth of
// the code that ends a row.
constexpr int64_t kScatterSteps = 20;

// The same where threads fold the columns of a position: at most a shuffle and an addition for each
// halving.
int64_t FoldSteps(const KernelIr& ir) {
  int64_t steps = 0;
  for (const Instr& instr : ir.instrs) {
    const auto folded = static_cast<uint64_t>(ir.Points(FoldedAxes(ir, instr)));
    if (folded > 1) steps += 2 * std::bit_width(folded - 1);
  }
  return steps;
}

// Of pieces of so many bytes a row. Of a piece that is no whole sector the rest is fetched, too.
int64_t RowPiecePpm(int64_t bytes, const DeviceSpec& d) {
  if (bytes >= 128) return kPpm;
  if (bytes >= 64) return d.row_piece_64_ppm;
  return MulDiv(d.row_piece_32_ppm, std::min(bytes, d.sector_bytes), d.sector_bytes);
}

// Bytes of whole sectors for each byte of the piece that a block has of a row, where threads go
// down columns.
int64_t SectorsPpm(int64_t element_bytes, const Schedule& s, const DeviceSpec& d) {
  const int64_t lanes = std::max(s.threads / std::max(s.rows_per_block, 1), 1);
  const int64_t piece = Product({lanes, s.vector_width, element_bytes});
  return std::max(MulDiv(d.sector_bytes, kPpm, std::max<int64_t>(piece, 1)), kPpm);
}

bool HoldsColumns(const Schedule& s) { return TemplateOf(s).keeps_columns && s.persistent; }

// Integers of 64 bits are worked on in halves.
bool TakesWideIntegers(const KernelIr& ir, const Instr& instr) {
  if (instr.kind == InstrKind::kLoad) return false;
  return instr.dtype == DType::kInt64 ||
         std::any_of(instr.operands.begin(), instr.operands.end(),
                     [&](int o) { return ir.instrs[o].dtype == DType::kInt64; });
}

// What is left of a division for each element where all elements of a thread have one divisor: a
// compiler takes the reciprocal once and scales both sides. Counted in sm_90 code.
constexpr int64_t kStepsOfQuotient = 3;

bool DividesByConstant(const KernelIr& ir, const Instr& instr) {
  return instr.kind == InstrKind::kPointwise && instr.op == Op::div &&
         ir.instrs[instr.operands[1]].kind == InstrKind::kConstant;
}

// Whether neighbours along the fastest axis are divided by one number, in fp32.
bool DividesAlike(const KernelIr& ir, const Instr& instr) {
  if (instr.kind != InstrKind::kPointwise || instr.op != Op::div) return false;
  const int axis = FastestAxis(ir);
  return instr.dtype != DType::kFp64 && axis >= 0 && (instr.axes >> axis & 1) != 0 &&
         (ir.instrs[instr.operands[1]].axes >> axis & 1) == 0;
}

// Of the instructions that each stage needs, how many stages evaluate one; at least one does.
int64_t StagesAmong(const std::vector<std::vector<int>>& needed, size_t instr) {
  const int64_t stages =
      std::count_if(needed.begin(), needed.end(), [&](const std::vector<int>& of_stage) {
        return std::binary_search(of_stage.begin(), of_stage.end(), static_cast<int>(instr));
      });
  return std::max<int64_t>(stages, 1);
}

// Stages that evaluate an inner instruction, if none keeps anything.
int64_t StagesOf(const KernelProfile& p, size_t instr) {
  return p.inner[instr] ? StagesAmong(p.needed, instr) : 1;
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

// The place of a schedule's width in arrays by width.
int WidthIndex(const Schedule& s) {
  return std::bit_width(static_cast<unsigned>(s.vector_width)) - 1;
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
      continue;
    }
    auto forms =
        FormsOf(vectors_, [&](const Vectors& v) { return FormOfLoad(ir, static_cast<int>(i), v); });
    for (int n = 0; n < kWidths; ++n) forms[n].width = std::max(forms[n].width, in_runs[n][i]);
    CountAccess(ir, instr.offset, buffer, instr.dtype, /*store=*/false, left[instr.buffer], forms,
                copies[i], of_sectors[i]);
    const int64_t distinct = ir.Points(instr.offset.axes());
    if (distinct < points_ && distinct > 1) {
      broadcasts_.push_back({distinct, size});
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
  }
  if (!ir.scatter) return;
  const Buffer& table = ir.buffers[ir.scatter->buffer];
  const int64_t bytes = table.elements * SizeBytes(table.dtype);
  written_ += bytes;
  whole_ += bytes;
  const Buffer& sorted = ir.buffers[ir.scatter->sorted];
  read_ += sorted.elements * SizeBytes(sorted.dtype);
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
      .transposed = transposed_axis_ >= 0 && RunsAlong(offset, transposed_axis_, FastestAxis(ir))};
  if (step > 1) {
    const int64_t waste = std::min(step, std::max<int64_t>(device_.sector_bytes / size, 1));
    access.waste_ppm = std::max(waste * kPpm / loads_of_sectors, kPpm);
  }
  const int64_t reached = std::min(ir.Points(offset.axes()), buffer.elements) * size;
  access.bytes = std::min(reached, left);
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
        known.by_tile == access.by_tile && known.transposed == access.transposed) {
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

int64_t KernelWork::WeightedBytes(const Access& a, const Schedule& s) const {
  const auto over = [&](int64_t bytes, int64_t width) {
    return MulDiv(bytes, kPpm, EfficiencyPpm(width, device_));
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
    return over(MulDiv(a.bytes, SectorsPpm(a.element_bytes, s, device_), kPpm), WidthOf(a, s));
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
    const int64_t weighted = WeightedBytes(a, s);
    t.weighted += weighted;
    if (a.fresh) fresh += weighted;
  }
  int64_t rows_at_once = std::max(1, s.rows_per_block * s.rows_per_thread);
  if (s.staged > 0 && s.kind == Template::kScatterAdd) rows_at_once = s.threads;
  for (const Broadcast& b : broadcasts_) {
    const int64_t copies =
        HoldsColumns(s) ? RowBlocks(s) : std::max<int64_t>(points_ / b.places / rows_at_once, 1);
    const int64_t reads = std::min(MulDiv(b.places, copies, 1), points_);
    t.cache += Share(reads * b.element_bytes, device_.broadcast_miss_ppm);
  }
  if (!TemplateOf(s).transposes) t.cache += looked_up_without_tiles_;
  if (!s.persistent) t.looped = looped_reread_;
  t.cache += t.looped;
  t.cached = CachedBytes(fresh, t.read + t.written, device_);
  t.weighted -= t.cached;
  return t;
}

// An instruction is evaluated wherever it stands in the code, even if its value is the same at many
// points; what every element of a vector shares is evaluated once a vector.
void KernelWork::CountEvaluations(const KernelIr& ir, const KernelProfile& p) {
  const int64_t simple = device_.rate_milli[static_cast<int>(CostClass::kSimple)];
  if (ir.scatter && simple > 0) {
    const int64_t steps = kScatterSteps + FoldSteps(ir);
    evaluations_.push_back({.repeat = Repeat::kPerVector,
                            .rate_milli = simple,
                            .once = steps,
                            .looped = steps,
                            .kept = steps,
                            .in_lanes = steps});
  }
  const bool by_points = TemplateOf(p.shape.kind).walk == Walk::kPoints;
  if (by_points && simple > 0) {
    const int64_t steps = StepsOfThread(ir);
    evaluations_.push_back({.repeat = Repeat::kPerVector,
                            .of_passes = true,
                            .rate_milli = simple,
                            .once = steps,
                            .looped = steps,
                            .kept = steps,
                            .in_lanes = steps});
  }
  // Of vectors of 16 bytes of narrow elements, or as wide as fill a row.
  const Vectors& widest = vectors_[std::min(std::countr_zero(static_cast<uint64_t>(row_ | 8)), 3)];
  const std::vector<int> lanes =
      by_points ? NeededLanes(ir, widest) : std::vector<int>(ir.instrs.size());
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind == InstrKind::kConstant) continue;
    CostClass cost = instr.kind == InstrKind::kPointwise ? Info(instr.op).cost : CostClass::kSimple;
    // The threads of rows have several elements of one, those of points vectors or one.
    const bool by_row = TemplateOf(p.shape.kind).walk == Walk::kRows && DividesAlike(ir, instr);
    if (DividesByConstant(ir, instr) || by_row) cost = CostClass::kSimple;
    int64_t rate = device_.rate_milli[static_cast<int>(cost)];
    if (rate == 0) continue;
    if (TakesWideIntegers(ir, instr)) rate = std::max<int64_t>(rate / device_.int64_steps, 1);
    if (instr.dtype == DType::kFp64) rate = std::max<int64_t>(rate * device_.fp64_ppm / kPpm, 1);
    const AxisMask axes =
        instr.kind == InstrKind::kReduce ? ir.instrs[instr.operands[0]].axes : instr.axes;
    const bool rows = (axes & shape_.row_axes) != 0, columns = (axes & shape_.column_axes) != 0;
    Evaluations here{.load = instr.kind == InstrKind::kLoad, .rate_milli = rate, .once = 1};
    const bool fold = instr.kind == InstrKind::kFold;
    const int64_t steps = fold ? std::max<int64_t>(std::ssize(instr.operands) - 1, 1)
                          : by_row && !DividesByConstant(ir, instr) ? kStepsOfQuotient
                                                                    : 1;
    if (by_points) {
      if (axes != 0 && (axes >> (ir.extents.size() - 1) & 1) != 0) here.once = points_;
      if (axes != 0 && here.once != points_) here.repeat = Repeat::kPerVector;
    } else if (p.stages.finalize[i] || axes == 0) {
      here.once = ir.Points(axes);
    } else if (tile_axes_ != 0 && columns && (tile_axes_ & ~axes) != 0) {
      here.once = ir.Points(axes);
    } else if (rows && columns) {
      here.once = shape_.rows * shape_.columns;
    } else {
      here.repeat = rows ? Repeat::kPerThread : Repeat::kPerColumn;
    }
    const bool each_point = by_points && here.once == points_;
    here.once = Saturated(here.once * steps);
    here.in_lanes = each_point ? MulDiv(here.once, lanes[i], widest.width) : here.once;
    if (by_points && cost == CostClass::kDivide && simple > 0 && DividesAlike(ir, instr)) {
      here.in_lanes = MulDiv(here.in_lanes, kStepsOfQuotient * rate, simple);
    }
    here.looped = here.once * StagesOf(p, i);
    here.kept = here.once * (p.inner[i] ? StagesAmong(p.needed_beside_costly, i) : 1);
    auto known = std::find_if(evaluations_.begin(), evaluations_.end(), [&](const Evaluations& e) {
      return e.repeat == here.repeat && e.load == here.load && !e.of_passes &&
             e.rate_milli == here.rate_milli;
    });
    if (known == evaluations_.end()) {
      evaluations_.push_back(here);
    } else {
      known->once = Saturated(known->once + here.once);
      known->in_lanes = Saturated(known->in_lanes + here.in_lanes);
      known->looped = Saturated(known->looped + here.looped);
      known->kept = Saturated(known->kept + here.kept);
    }
  }
}

int64_t KernelWork::Times(const Evaluations& e, const Schedule& s) const {
  if (e.of_passes && s.kind != Template::kPointwise && !TemplateOf(s).transposes) return 0;
  // What is kept from stage to stage is what was loaded, and costly values where they are few; the
  // rest is evaluated again.
  int64_t values = KeepsCostly(profile_, s) ? e.kept : e.looped;
  if (s.persistent && !HoldsRows(s) && e.load) values = e.once;
  if (s.vector_width > 1 && e.once > 0) values = MulDiv(values, e.in_lanes, e.once);
  int64_t each = 1;
  switch (e.repeat) {
    case Repeat::kFixed: break;
    case Repeat::kPerVector: each = std::max<int64_t>(points_ / s.vector_width, 1); break;
    case Repeat::kPerThread:
      each = shape_.rows * (HoldsRows(s) ? s.cluster : std::max<int64_t>(ThreadsOfRow(s), 1));
      break;
    case Repeat::kPerColumn:
      each = (HoldsColumns(s) ? RowBlocks(s) : shape_.rows) * shape_.columns;
      break;
  }
  const int64_t times = MulDiv(values, each, 1);
  return e.load ? MulDiv(times / s.vector_width, address_terms_, 1) : times;
}

int64_t KernelWork::Shifts(const Schedule& s) const {
  int64_t shifts = 0;
  if (HoldsRows(s)) return shifts;
  for (const Access& a : accesses_) {
    if (FormUnder(a, s).shifted) shifts += a.bytes / kMaxAccessBytes * kShiftSteps;
  }
  return shifts;
}

int64_t KernelWork::EndsOfRow(const Schedule& s) const {
  return row_ % s.vector_width + s.vector_width;
}

// The threads of both ends of a row have one element, and a warp that has ends as well as vectors
// waits for both, one after the other.
int64_t KernelWork::UnderWayPpm(const Schedule& s) const {
  const int64_t width = s.vector_width;
  if (width <= 1 || row_ % width == 0 || s.kind != Template::kPointwise) return kPpm;
  const int64_t places = row_ / width + EndsOfRow(s);
  const int64_t twice = places + std::min(places, EndsOfRow(s) + device_.warp - 1);
  return MulDiv(row_, kPpm, width * twice);
}

int64_t KernelWork::EndsPpm(const Schedule& s) const {
  const int64_t width = s.vector_width;
  const KernelTemplate& t = TemplateOf(s);
  if (width <= 1 || row_ % width == 0 || HoldsRows(s) || t.tiles || t.transposes) return kPpm;
  const int64_t ends = EndsOfRow(s);
  if (t.walk == Walk::kRows) {  // the threads of a row take one more turn
    const int64_t team = std::max<int64_t>(LanesOfRow(s), 1);
    const int64_t at_ends = CeilDiv(ends, team) * std::min<int64_t>(team, device_.warp);
    return MulDiv(row_ / width * width + at_ends, kPpm, row_);
  }
  // In a pass they stand beside vectors in a warp, which takes the time of both.
  const int64_t places = row_ / width + ends;
  const int64_t beside = std::min(places, ends + device_.warp - 1);
  return MulDiv(width, places * kPpm + beside * kEndOfVectorPpm, row_);
}

// Threads without columns in the last run of a row wait, and nobody computes in their place where a
// block that walks rows has an SM for itself.
int64_t KernelWork::IdlePpm(const Schedule& s) const {
  const KernelTemplate& t = TemplateOf(s);
  if (t.tiles) {  // all teams go through as many parts, which may reach out of the tile
    const TileParts& parts = tile_parts_[WidthIndex(s)];
    const int64_t teams = s.threads / kThreadsOfTileTeam;
    const int64_t turns = CeilDiv(parts.number, teams);
    return MulDiv(parts.idle_ppm, turns * teams, std::max<int64_t>(parts.number, 1));
  }
  if (!StagesAhead(s) || t.keeps_columns || t.walk != Walk::kRows) return kPpm;
  return MulDiv(ElementsOfRow(profile_, s) * LanesOfRow(s), kPpm,
                std::max<int64_t>(shape_.columns, 1));
}

int64_t KernelWork::PsOf(int64_t results, int64_t rate_milli) const {
  return MulDiv(results, 1000 * kPsPerSecond / device_.sms / rate_milli, device_.clock_hz);
}

int64_t KernelWork::ComputePs(const Schedule& s) const {
  int64_t total = 0;
  if (ThreadsOfRow(s) > 1 && !TemplateOf(s).tiles) {
    const int64_t sums = static_cast<int64_t>(row_partials_.size() - column_partials_.size());
    const int64_t in_warp = HoldsRows(s) ? 0 : device_.warp_sum_steps;
    const int64_t steps =
        in_warp + (HoldsRows(s) || ThreadsOfRow(s) > device_.warp ? device_.block_sum_steps : 0);
    const int64_t times = MulDiv(shape_.rows * ThreadsOfRow(s), sums * steps, 1);
    total += PsOf(times, device_.rate_milli[static_cast<int>(CostClass::kSimple)]);
  }
  if (TemplateOf(s).tiles) {
    const int64_t turns = points_ / (kRowsOfTileThread * s.vector_width);
    const int64_t steps = MulDiv(turns, 2 * tile_shuffles_[WidthIndex(s)], 1);  // with the folds
    total += MulDiv(PsOf(steps, device_.rate_milli[static_cast<int>(CostClass::kSimple)]),
                    IdlePpm(s), kPpm);
  }
  for (const Evaluations& e : evaluations_) {
    total += MulDiv(MulDiv(PsOf(Times(e, s), e.rate_milli), EndsPpm(s), kPpm), IdlePpm(s), kPpm);
  }
  total += PsOf(Shifts(s), device_.rate_milli[static_cast<int>(CostClass::kSimple)]);
  return Saturated(total);
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
