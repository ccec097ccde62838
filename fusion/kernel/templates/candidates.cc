// The schedules worth pricing. Each list begins with the plain one (no vectors, no split, nothing
// kept in registers), which exists on every device and with every optimisation switched off.
#include <algorithm>
#include <array>

#include "fusion/kernel/ir/vector_access.h"
#include "fusion/kernel/templates/schedule.h"
#include "fusion/kernel/templates/transposed.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
constexpr int kThreads = 256;  // of a block, where nothing else decides
constexpr int kMostThreads = 1024;
constexpr int kMaxWidth = 8;
// Of a thread of a column reduction, loaded before it works on the first: half of its registers.
constexpr int kMostRowsAtOnce = 8;
constexpr int64_t kBytesAtOnce = 128;
constexpr int kWidthBesideWide = 4;
// Of an SM, of rows that are staged in shared memory: twice and more what its share of an H200's
// bandwidth needs, so that it is there when a batch is done.
constexpr int64_t kBytesUnderWay = 64 << 10;
constexpr int64_t kMostBatches = 4;
constexpr int64_t kMuchHeld = 32;  // elements of a thread: with their column sums 130 registers
constexpr int64_t kSharedOfOthers = 2 << 10;  // what a driver keeps of each block's
// Rows in the registers of the same threads. Four were the fastest for none of 30 kernels whose
// schedules were timed on an H200: mostly a third slower than one row with the next loaded ahead.
constexpr int kRowsAtOnce[] = {1, 2};

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t PowerOfTwoFrom(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

// The most lanes that any large tensor of the kernel can load or store at once. Beside wider
// elements four: then the 16 bytes of neighbouring threads lie side by side for those too. With
// eight, each half of a thread's 32 bytes was an access of its own, with gaps (a norm's backward
// with an fp32 residual on an H200: 1.14 times the floor at eight, 1.03 at four).
int WidestVector(const KernelIr& ir, const ScheduleLimits& limits) {
  const int axis = FastestAxis(ir);
  if (!limits.vectorize || axis < 0) return 1;
  int width = kMaxWidth;
  while (width > 1 && ir.extents[axis] % width != 0) width /= 2;
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
    see(LoadWidth(ir, static_cast<int>(i), axis, width), load.offset, load.buffer);
  }
  for (const Store& s : ir.stores) see(StoreWidth(ir, s, axis, width), s.offset, s.buffer);
  return std::min({width, widest, wide_elements ? kWidthBesideWide : kMaxWidth});
}

class Candidates {
 public:
  Candidates(const KernelIr& ir, const Classification& shape, const ScheduleLimits& limits)
      : ir_(ir), shape_(shape.shape), limits_(limits), widest_(WidestVector(ir, limits)) {
    std::array<bool, static_cast<size_t>(DType::kFp64) + 1> types = {};
    for (const Instr& i : ir_.instrs) {
      if (FoldedAxes(ir_, i) == 0) continue;
      const DType type = AccumulatorType(i.dtype);
      ++reductions_;
      widest_sum_ = std::max(widest_sum_, SizeBytes(type));
      if (!types[static_cast<size_t>(type)]) tile_element_ += SizeBytes(type);
      types[static_cast<size_t>(type)] = true;
    }
  }

  std::vector<Schedule> List(Template kind) {
    switch (kind) {
      case Template::kPointwise: Pointwise(); break;
      case Template::kTranspose: Transposes(); break;
      case Template::kRowReduction: RowReductions(); break;
      case Template::kColumnReduction: ColumnReductions(); break;
      case Template::kRowColumn: RowColumns(); break;
      case Template::kScatterAdd: Scatters(); break;
    }
    return std::move(list_);
  }

 private:
  void Add(Schedule s) {
    s.blocks = std::max<int64_t>(s.blocks, 1);
    if (s.threads > limits_.max_threads) return;
    if (limits_.shared_bytes > 0 && SharedBytes(s) > limits_.shared_bytes) return;
    if (std::find(list_.begin(), list_.end(), s) == list_.end()) list_.push_back(s);
  }

  // Upper bound of what the emitters declare.
  int64_t SharedBytes(const Schedule& s) const {
    if (s.kind == Template::kTranspose) {
      int64_t bytes = 0;
      for (int i : TransposedLoads(ir_, *TransposedAxis(ir_))) {
        bytes +=
            kTransposeTile * (kTransposeTile + 1) * SizeBytes(ComputeType(ir_.instrs[i].dtype));
      }
      return bytes;
    }
    int64_t bytes = 0;
    // Two turns of scratch, so that one barrier a round is enough.
    if (s.threads_per_row > 32)
      bytes += 2 * reductions_ * s.rows_per_thread * s.threads / 32 * widest_sum_;
    if (s.kind != Template::kRowReduction && s.rows_per_block > 1) {
      bytes += int64_t{s.threads} * s.vector_width * tile_element_;
    }
    return bytes;
  }

  std::vector<int> Widths() const {
    if (widest_ == 1) return {1};
    return {widest_, widest_ / 2};
  }

  void Pointwise() {
    const int64_t points = shape_.rows * shape_.columns;
    auto add = [&](int width) {
      Add({.kind = Template::kPointwise,
           .threads = kThreads,
           .vector_width = width,
           .blocks = std::min(CeilDiv(points, int64_t{kThreads} * width), kMaxBlocks)});
    };
    add(1);
    for (int width : Widths()) add(width);
  }

  // Inner columns of a thread: as many as one access of their sums takes.
  void Scatters() {
    Add({.kind = Template::kScatterAdd, .threads = kThreads});
    const Buffer& table = ir_.buffers[ir_.scatter->buffer];
    const DType sum = AccumulatorType(table.dtype);
    const int axis = FastestAxis(ir_);
    if (!limits_.vectorize || axis < 0 || !IsFloat(sum) || (ir_.scatter->row_axes >> axis) != 0)
      return;
    int width = kMaxAccessBytes / static_cast<int>(SizeBytes(sum));
    while (ir_.extents[axis] % width != 0 ||
           table.alignment % (width * SizeBytes(table.dtype)) != 0)
      width /= 2;
    Add({.kind = Template::kScatterAdd, .threads = kThreads, .vector_width = width});
  }

  void Transposes() {
    Pointwise();
    const int64_t slow = ir_.extents[*TransposedAxis(ir_)], fast = ir_.extents[FastestAxis(ir_)];
    const int64_t blocks = shape_.columns / std::max<int64_t>(slow * fast, 1) *
                           CeilDiv(slow, kTransposeTile) * CeilDiv(fast, kTransposeTile);
    if (blocks > 0 && blocks <= kMaxBlocks) {  // nothing to walk has no tile
      Add({.kind = Template::kTranspose, .threads = kThreads, .blocks = blocks});
    }
  }

  // Threads of a row that leave none without a column.
  bool FitsRow(int threads_per_row, int width) const {
    const int64_t needed = PowerOfTwoFrom(CeilDiv(std::max<int64_t>(shape_.columns, 1), width));
    return threads_per_row <= std::max<int64_t>(needed, 8);
  }

  int64_t Elements(int threads_per_row, int width) const {  // of a row in one thread
    return CeilDiv(shape_.columns, int64_t{threads_per_row} * width) * width;
  }

  // Something that varies over rows and columns waits for a reduction.
  bool SplitsRows() const {
    const AxisMask columns = shape_.column_axes;
    std::vector<bool> reduced(ir_.instrs.size(), false);
    for (size_t i = 0; i < ir_.instrs.size(); ++i) {
      const Instr& instr = ir_.instrs[i];
      for (int o : instr.operands) reduced[i] = reduced[i] || reduced[o];
      for (const Indirect& ind : instr.indirect) reduced[i] = reduced[i] || reduced[ind.instr];
      const bool folds = FoldedAxes(ir_, instr) != 0;
      if (reduced[i] && (folds || (instr.axes & columns) != 0)) return false;
      reduced[i] = reduced[i] || folds;
    }
    return true;
  }

  Schedule Row(int threads_per_row, int width, int at_once, bool persistent) const {
    Schedule s{.kind = Template::kRowReduction, .vector_width = width};
    s.threads_per_row = threads_per_row;
    s.rows_per_block = std::max(1, kThreads / threads_per_row);
    s.threads = threads_per_row * s.rows_per_block;
    s.rows_per_thread = at_once;
    s.persistent = persistent;
    s.blocks = std::min(CeilDiv(shape_.rows, int64_t{s.rows_per_block} * at_once), kMaxBlocks);
    return s;
  }

  void RowReductions() {
    const int64_t plain =
        std::min<int64_t>(PowerOfTwoFrom(std::max<int64_t>(shape_.columns, 8)), 256);
    Add(Row(static_cast<int>(plain), 1, 1, false));
    for (int threads = 8; threads <= 1024; threads *= 2) {
      if (!FitsRow(threads, widest_)) continue;
      const int64_t elements = Elements(threads, widest_);
      if (limits_.persistent && elements <= kMaxPersistentElements) {
        for (int at_once : kRowsAtOnce) {
          if (elements * at_once <= kMaxPersistentElements) {
            Add(Row(threads, widest_, at_once, true));
          }
        }
      }
      if (threads >= 128 || !FitsRow(threads * 2, widest_)) Add(Row(threads, widest_, 1, false));
      if (limits_.split && SplitsRows()) AddRowSplits(threads);
    }
  }

  void AddRowSplits(int threads_per_row) {
    if (threads_per_row != 256) return;
    const Schedule base = Row(threads_per_row, widest_, 1, false);
    if (base.blocks * 2 > limits_.sms) return;
    const int64_t runs = CeilDiv(shape_.columns, int64_t{threads_per_row} * widest_);
    for (int waves : {1, 2, 4, 8}) {
      Schedule s = base;
      s.split = std::min(runs, limits_.sms * waves / base.blocks);
      s.blocks = base.blocks * s.split;
      if (s.split > 1 && s.blocks <= kMaxBlocks) Add(s);
    }
  }

  Schedule Column(int threads, int thread_rows, int width, int64_t split) {
    Schedule s{.kind = Template::kColumnReduction, .threads = threads, .vector_width = width};
    s.rows_per_block = thread_rows;
    s.split = split;
    s.blocks = CeilDiv(shape_.columns, int64_t{threads / thread_rows} * width) * split;
    return s;
  }

  // So many rows of a thread at once as it has, and as its registers take.
  Schedule WithRowsAtOnce(Schedule s) {
    if (row_bytes_ < 0) row_bytes_ = LoadedBytesOfElement();
    const int64_t rows = CeilDiv(CeilDiv(shape_.rows, s.split), s.rows_per_block);
    const int64_t bytes = std::max<int64_t>(row_bytes_ * s.vector_width, 1);
    while (s.rows_per_thread * 2 <= kMostRowsAtOnce && s.rows_per_thread < rows &&
           s.rows_per_thread * 2 * bytes <= kBytesAtOnce) {
      s.rows_per_thread *= 2;
    }
    return s;
  }

  bool StoresRows() const {
    return std::any_of(ir_.stores.begin(), ir_.stores.end(), [&](const Store& store) {
      return (ir_.instrs[store.instr].axes & shape_.row_axes) != 0;
    });
  }

  int64_t LoadedBytesOfElement() const {
    int64_t bytes = 0;
    for (const Instr& i : ir_.instrs) {
      if (i.kind == InstrKind::kLoad && (i.axes & shape_.row_axes) != 0)
        bytes += SizeBytes(i.dtype);
    }
    return bytes;
  }

  void ColumnReductions() {
    Add(Column(kThreads, 1, 1, 1));
    for (int thread_rows : {1, 4, 8, 16, 32, 128, 256}) {
      // The largest blocks do without a split: what they sum is too little for a second launch to
      // pay. A block that stores rows, too, has but narrow pieces of them (12 us on an H200 where
      // others took 8).
      const int threads = thread_rows > 32 ? kMostThreads : kThreads;
      if (threads > kThreads && StoresRows()) break;
      const int lanes = threads / thread_rows;
      if (thread_rows > 1 && int64_t{lanes} * widest_ >= 8 * std::max<int64_t>(shape_.columns, 1)) {
        continue;  // most lanes would have no column
      }
      if (thread_rows > 1 && thread_rows / 2 >= shape_.rows) continue;  // or no row
      const Schedule whole = Column(threads, thread_rows, widest_, 1);
      if (whole.blocks > kMaxBlocks) continue;
      if (threads > kThreads && whole.blocks > limits_.sms) continue;
      Add(WithRowsAtOnce(whole));
      if (threads > kThreads) continue;
      for (int waves : {1, 2, 4, 8}) {
        if (!limits_.split) continue;
        const int64_t split = std::min(CeilDiv(shape_.rows, thread_rows),
                                       CeilDiv(int64_t{limits_.sms} * waves, whole.blocks));
        if (split > 1) Add(WithRowsAtOnce(Column(kThreads, thread_rows, widest_, split)));
      }
    }
  }

  Schedule RowColumn(int threads_per_row, int width, int at_once, bool persistent,
                     int64_t blocks) const {
    Schedule s = Row(threads_per_row, width, at_once, persistent);
    s.kind = Template::kRowColumn;
    s.blocks = std::clamp<int64_t>(
        blocks, 1, std::max<int64_t>(CeilDiv(shape_.rows, s.rows_per_block * at_once), 1));
    s.split = s.blocks;
    return s;
  }

  // With and without the loads of the next rows ahead, where a block walks several: into shared
  // memory where the device can, else into registers.
  void AddPersistent(Schedule s) {
    Add(s);
    if (s.blocks * s.rows_per_block * s.rows_per_thread >= shape_.rows) return;
    s.staged = Batches(s);
    if (s.staged == 0) s.prefetch = true;
    Add(s);
  }

  // Whether loads ahead into shared memory take the place of rows at once: those were faster for
  // none of the kernels of a transformer whose schedules were timed. Blocks whose threads hold much
  // have an SM for themselves.
  bool StagesInstead(int threads_per_row, int64_t elements, int at_once, int waves) {
    if (at_once == 1 && (elements < kMuchHeld || waves == 1)) return false;
    const int64_t blocks = int64_t{limits_.sms};
    return Batches(RowColumn(threads_per_row, widest_, 1, true, blocks)) > 0;
  }

  // Batches of rows in shared memory at once: enough to keep the bytes under way that saturate
  // memory with the blocks that share an SM, if they all fit. 0 if there is no room for two.
  int Batches(const Schedule& s) {
    if (limits_.staged_bytes == 0 || s.split <= 1) return 0;
    if (staged_element_ < 0) staged_element_ = StagedBytesOfElement(ir_, shape_, widest_);
    const int64_t held = Elements(s.threads_per_row, s.vector_width) * s.rows_per_thread;
    const int64_t batch = staged_element_ * held * s.threads;
    if (batch == 0) return 0;
    const int64_t blocks = CeilDiv(s.blocks, limits_.sms);
    const int64_t room = std::min(limits_.staged_bytes, limits_.shared_bytes_per_sm / blocks);
    const int64_t fit = (room - kSharedOfOthers - SharedBytes(s)) / batch;
    if (fit < 2) return 0;
    return static_cast<int>(
        std::min({fit, CeilDiv(kBytesUnderWay, batch * blocks) + 1, kMostBatches}));
  }

  void RowColumns() {
    int plain = static_cast<int>(
        std::min<int64_t>(PowerOfTwoFrom(std::max<int64_t>(shape_.columns, 8)), 256));
    while (Elements(plain, 1) > 16 && plain < 1024) plain *= 2;
    Add(RowColumn(plain, 1, 1, false, limits_.split ? limits_.sms : 1));
    for (int threads = 8; threads <= 1024; threads *= 2) {
      if (!FitsRow(threads, widest_)) continue;
      const int64_t elements = Elements(threads, widest_);
      for (int at_once : kRowsAtOnce) {
        if (elements * at_once > kMaxPersistentElements) continue;
        for (int waves : {1, 2, 4}) {
          if (!limits_.split && waves > 1) continue;
          if (at_once > 1 && waves == 4) continue;
          const int64_t blocks = limits_.split ? int64_t{limits_.sms} * waves : 1;
          if (limits_.persistent && !StagesInstead(threads, elements, at_once, waves)) {
            AddPersistent(RowColumn(threads, widest_, at_once, true, blocks));
          }
          if (at_once == 1 && (waves == 2 || !limits_.persistent)) {
            Add(RowColumn(threads, widest_, at_once, false, blocks));
          }
        }
      }
    }
  }

  const KernelIr& ir_;
  const RowsAndColumns& shape_;
  const ScheduleLimits& limits_;
  const int widest_;
  int64_t reductions_ = 0, widest_sum_ = 4;  // of the accumulators, in bytes
  int64_t tile_element_ = 0;  // bytes of an element in the tiles of all accumulators' types
  int64_t row_bytes_ = -1;    // of an element that a column reduction loads; -1: not counted yet
  int64_t staged_element_ =
      -1;  // bytes of an element that staged loads bring in; -1: not counted yet
  std::vector<Schedule> list_;
};

}  // namespace

std::vector<Schedule> CandidateSchedules(const KernelIr& ir, const Classification& shape,
                                         const ScheduleLimits& limits) {
  if (!shape.feasible) return {};
  std::vector<Schedule> list = Candidates(ir, shape, limits).List(shape.kind);
  RG_CHECK(!list.empty());
  return list;
}

}  // namespace retrograd
