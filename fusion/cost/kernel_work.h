// What a kernel moves, evaluates and parks, counted once for the dozens of schedules that it is
// priced under.
#ifndef RETROGRAD_FUSION_COST_KERNEL_WORK_H_
#define RETROGRAD_FUSION_COST_KERNEL_WORK_H_

#include <array>
#include <cstdint>
#include <vector>

#include "fusion/cost/along_rows.h"
#include "fusion/device/device_spec.h"
#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/kernel/templates/registers.h"

namespace retrograd {

// Bytes that a kernel moves under one schedule.
struct KernelTraffic {
  int64_t read = 0, written = 0;  // distinct bytes of device memory
  int64_t weighted = 0;           // the same, over the efficiency of each access; without `cached`
  int64_t cache = 0;              // served by caches: re-reads and broadcasts
  int64_t looped = 0;             // of cache: what later stages of a row read again
  int64_t cached = 0;        // reads of what this backward wrote, found in the last-level cache
  int64_t part_sectors = 0;  // sectors of which stores write a part, as often as they do
  // Of passes, lines of an SM's own cache that broadcasts look up, on all SMs.
  int64_t lookups = 0;
  int64_t sectors_along_rows = 0;  // as SectorsAlongRows says
};

// What it is made of outlives it.
class KernelWork {
 public:
  KernelWork(const KernelIr& ir, const KernelProfile& profile, const DeviceSpec& device);

  KernelTraffic Traffic(const Schedule& schedule) const;

  // What threads have under way where rows have ends, or some threads no columns, over what they
  // have where all have whole vectors.
  int64_t UnderWayPpm(const Schedule& schedule) const;

  // Time of all evaluations if no SM ever waits: sum of evaluations / rate, in picoseconds.
  int64_t ComputePs(const Schedule& schedule) const;

  // As WorkspaceBytes(ir, schedule).
  int64_t WorkspaceBytes(const Schedule& schedule) const;

 private:
  static constexpr int kWidths = 5;  // vectors of 1 to 16 elements; of 12 and 24: as of 8 and 16
  // Accesses that fill transactions equally well.
  struct Access {
    int64_t element_bytes = 0;
    bool vectors = false;  // neighbours along the fastest axis lie side by side
    bool in_runs = false;  // they lie apart, but vectors are loaded for several loads at once
    // How the lanes of vectors go, by the logarithm of their width.
    std::array<LoadForm, kWidths> forms;
    // Bytes fetched for a million bytes used, where a row is walked.
    int64_t waste_ppm = kPpm;
    // Where the rows of points are copied: the same in parts per million (0: they never are), and
    // the bytes of a copy.
    int64_t copied_ppm = 0, piece_bytes = 0;
    bool fresh = false;           // reads of what this backward wrote
    bool store_of_lanes = false;  // each lane of a vector stores its own
    // Of columns held on chip: neighbours lie side by side in pieces of rows, or in tiles of
    // results.
    bool in_rows = false, by_tile = false;
    bool transposed = false;  // of a kernel with transposing tiles: by one of them
    bool of_all = false;      // all points together access all of the buffer
    AlongRows along_rows;     // of loads of walks down columns
    int64_t bytes = 0;        // distinct
  };
  // What a team of threads has of a tile at a time.
  struct TileParts {
    int64_t number = 0;       // of a tile
    int64_t idle_ppm = kPpm;  // their elements, of which some may lie outside, over the tile's
  };
  // A read of fewer places than points: blocks fetch their own copies.
  struct Broadcast {
    int64_t places = 0, element_bytes = 0;
    bool kept = false;   // by passes that keep their columns
    bool along = false;  // neighbours along the fastest axis are others
  };
  // Accesses to a tensor at positions in any order, each to a piece of it.
  struct RandomAccess {
    int buffer = 0;
    int64_t times = 0, piece_bytes = 0;
    int64_t region_bytes = 0;     // that are reached
    int64_t counted_bytes = 0;    // among those of the other accesses
    bool fresh = false;           // written by this backward, as Buffer::fresh
    bool part_of_sector = false;  // stores that memory has to read first
  };
  // How a load's row comes into shared memory, by instruction.
  struct RowCopy {
    int64_t ppm = 0, piece_bytes = 0;  // as of an access
  };
  // How often a value is evaluated under a schedule.
  enum class Repeat : uint8_t {
    kFixed,      // the same under every schedule
    kPerVector,  // once for the elements of a vector
    kPerThread,  // a row's value, by each thread of the row
    kPerColumn,  // a column's value: once a block where it stays in registers, else at each element
  };
  // Evaluations that repeat alike, at one rate.
  struct Evaluations {
    Repeat repeat = Repeat::kFixed;
    bool load = false;        // address arithmetic, once a vector
    bool of_passes = false;   // only of passes and of tiles that transpose
    bool of_columns = false;  // once for all rows of a thread of a pass that keeps its columns
    int64_t rate_milli = 0;   // thousandths of a result for a clock and SM
    int64_t once = 0;         // evaluations (kFixed) or values, if each is evaluated in one stage
    int64_t looped = 0;       // the same, if every stage evaluates again what it needs
    int64_t kept = 0;         // the same, if costly values are kept from stage to stage
    int64_t in_lanes = 0;     // of `once`, those in lanes of the widest vectors that need them
  };

  static bool HoldsColumns(const Schedule& schedule);
  static int64_t StagesOf(const KernelProfile& profile, size_t instr);
  std::vector<RowCopy> CopiesOfRows(const KernelIr& ir, const KernelProfile& profile) const;
  void ReadTiles(const KernelIr& ir);
  std::vector<int64_t> LoadsOfSectors(const KernelIr& ir) const;
  void CountLoads(const KernelIr& ir, const KernelProfile& profile);
  void CountStores(const KernelIr& ir);
  int TileWidthOfStore(const KernelIr& ir, const Store& store) const;
  static AxisMask PositionsAnywhere(const KernelIr& ir);
  int64_t BytesOfLookup() const;
  int64_t LinesOf(int64_t elements, const Broadcast& b, const Schedule& schedule) const;
  int64_t AgainBytes(int64_t bytes, int64_t size, int64_t step) const;
  void CountRandom(const KernelIr& ir, int buffer, int64_t times, int64_t elements, bool store);
  void CountLookedUp(const KernelIr& ir, const Instr& load);
  void CountAnywhere(const KernelIr& ir, int buffer, AxisMask axes, bool store);
  int64_t RandomBytes() const;
  int64_t FetchedBeside(const KernelIr& ir, AxisMask positions, AxisMask axes, int64_t size) const;
  int64_t StepOf(const KernelIr& ir, const IndexExpr& offset) const;
  // `left`: bytes of the buffer that no access was counted for. loads_of_sectors: loads, this one
  // among them, that find their elements in the same sectors.
  void CountAccess(const KernelIr& ir, const IndexExpr& offset, const Buffer& buffer, DType dtype,
                   bool store, int64_t& left, const std::array<LoadForm, kWidths>& forms,
                   RowCopy copy, int64_t loads_of_sectors, int tile_width = 1);
  const LoadForm& FormUnder(const Access& access, const Schedule& schedule) const;
  // Bytes that a thread asks for at once.
  int64_t WidthOf(const Access& access, const Schedule& schedule) const;
  // Bytes that an access fetches, over its efficiency.
  int64_t WeightedBytes(const Access& access, const Schedule& schedule) const;
  int64_t RaggedRowPpm(const Schedule& schedule) const;
  // Instructions that put together what lies out of phase.
  int64_t Shifts(const Schedule& schedule) const;
  void CountLookups(const KernelIr& ir, const Instr& load);
  int64_t PartsAnywhere(const KernelIr& ir, AxisMask axes, int64_t element_bytes) const;
  int64_t PartSectors(const Access& access, const Schedule& schedule) const;
  int64_t EndsOfRow(const Schedule& schedule) const;  // at most, of a width that leaves some
  // Evaluations under the schedule for each that the points need: those at the ends of rows keep
  // whole warps.
  int64_t EndsPpm(const Schedule& schedule) const;
  int64_t VectorsOfRow(const Schedule& schedule) const;
  int64_t IdleInWarpsPpm(int64_t vectors, int64_t lanes) const;
  int64_t IdlePpm(const Schedule& schedule) const;
  void CountEvaluations(const KernelIr& ir, const KernelProfile& profile);
  void CountPartials(const KernelIr& ir, const KernelProfile& profile);
  int64_t Times(const Evaluations& e, const Schedule& schedule) const;
  // Of so many results on all SMs; rates are thousandths of a result for a clock and SM.
  int64_t PsOf(int64_t results, int64_t rate_milli) const;

  const DeviceSpec& device_;
  const KernelProfile& profile_;
  RowsAndColumns shape_;
  int64_t points_ = 0;        // of all axes
  int64_t row_ = 1;           // positions of the fastest axis
  int column_axis_ = -1;      // along which loads run, of a kernel whose columns or tiles are held
  int across_axis_ = -1;      // the other axis of tiles
  int transposed_axis_ = -1;  // of a kernel with transposing tiles: that of the other accesses
  AxisMask tile_axes_ = 0;
  std::array<int64_t, kWidths> tile_shuffles_ = {};  // of a thread in a turn, by the width
  std::array<TileParts, kWidths> tile_parts_ = {};   // by the width
  int64_t address_terms_ = 0;                        // of a load
  int64_t read_ = 0, written_ = 0;
  int64_t whole_ = 0;                     // bytes of accesses of which width plays no part
  int64_t reread_ = 0;                    // bytes from caches under any schedule
  int64_t looked_up_without_tiles_ = 0;   // more of them where no tile transposes
  int64_t parts_anywhere_ = 0;            // of sectors that stores at any positions write a part of
  int64_t looped_reread_ = 0;             // more of them where stages keep nothing
  int64_t fixed_workspace_ = 0;           // of templates that need the same under every schedule
  std::array<Vectors, kWidths> vectors_;  // by the logarithm of the width
  std::vector<Access> accesses_;
  std::vector<Broadcast> broadcasts_;
  std::vector<RandomAccess> random_;
  std::vector<Evaluations> evaluations_;
  std::vector<int64_t> row_partials_,
      column_partials_;  // bytes of one partial result, by reduction
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_COST_KERNEL_WORK_H_
