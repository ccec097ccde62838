#include "fusion/ops/segment_amax/segment_walk.h"

#include <algorithm>

#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int64_t kVectorBytes = 16;
constexpr int kThreads = 256;
constexpr int kWide = 32;   // threads side by side: 512 bytes of neighbours
constexpr int kAtOnce = 4;  // 64 bytes: half of an SM's threads have enough under way
// Loads of a thread in a chunk, at least: its parts are few beside what it reads.
constexpr int64_t kLeastLoads = 2 * kAtOnce;
// Blocks that keep a GPU of up to some 150 multiprocessors busy to the end; more have shorter
// chunks than they need.
constexpr int64_t kBlocks = 2048;
constexpr int64_t kLongestChunk = 1024;
// Lines keep it busy with fewer: each block has several.
constexpr int64_t kLineBlocks = 512;

// The largest power of two of elements that divides all of these: a load's.
int VectorFor(DType dtype, int64_t alignment, std::initializer_list<int64_t> numbers) {
  int64_t vector = std::max<int64_t>(kVectorBytes / SizeBytes(dtype), 1);
  const auto fits = [&] {
    return alignment % (vector * SizeBytes(dtype)) == 0 &&
           std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n % vector == 0; });
  };
  while (vector > 1 && !fits()) vector /= 2;
  return static_cast<int>(vector);
}

int AtLeast(int64_t n, int most) {
  int power = 1;
  while (power < n && power < most) power *= 2;
  return power;
}

void SetChunk(int64_t chunk, int64_t places, SegmentSchedule* s) {
  s->chunk = std::max<int64_t>(chunk, 1);
  s->chunks = std::max<int64_t>(CeilDiv(places, s->chunk), 1);
}

SegmentWalk Columns(DType dtype, int64_t lanes, const SegmentStrides& x, int64_t alignment) {
  SegmentWalk w{.at_once = kAtOnce};
  if (x.across == 1) w.vector = VectorFor(dtype, alignment, {lanes, x.offset, x.along, x.batch});
  const int64_t packs = CeilDiv(lanes, w.vector);
  w.packs = AtLeast(packs, kWide);
  w.down = kThreads / w.packs;
  w.slabs = CeilDiv(packs, w.packs);
  return w;
}

SegmentSchedule OfColumns(const SegmentAmaxCall& c, int64_t alignment) {
  SegmentSchedule s{.walk = Columns(c.dtype, c.lanes, c.x, alignment)};
  int64_t chunk = s.walk.down * kLeastLoads;
  const int64_t side = Product({s.walk.slabs, c.batch});
  while (chunk < kLongestChunk && Product({side, c.places}) >= Product({2 * chunk, kBlocks})) {
    chunk *= 2;
  }
  SetChunk(chunk, c.places, &s);
  return s;
}

SegmentSchedule OfLines(const SegmentAmaxCall& c, int64_t alignment) {
  SegmentSchedule s{.walk = {.lines = true, .packs = kWide, .at_once = kAtOnce}};
  SegmentWalk& w = s.walk;
  w.vector = VectorFor(c.dtype, alignment, {c.places, c.x.offset, c.x.across, c.x.batch});
  w.down = AtLeast(c.lanes, kThreads / kWide);
  w.slabs = CeilDiv(c.lanes, w.down);
  const int64_t least = int64_t{kWide} * w.vector * kLeastLoads;
  const int64_t wanted = CeilDiv(kLineBlocks, std::max<int64_t>(w.slabs * c.batch, 1));
  SetChunk(std::max(CeilDiv(CeilDiv(c.places, wanted), w.vector) * w.vector, least), c.places, &s);
  return s;
}

}  // namespace

int64_t SegmentSchedule::scratch_elements(const SegmentAmaxCall& call) const {
  return chunks == 1 ? 0 : Product({call.batch, slots(call), call.lanes});
}

int64_t SegmentSchedule::blocks(const SegmentAmaxCall& call) const {
  const int64_t parts = walk.lines || chunks > 1 ? chunks : call.groups;
  return Product({walk.slabs, call.batch, parts});
}

SegmentSchedule SegmentScheduleFor(const SegmentAmaxCall& call, int64_t alignment) {
  const bool lines = call.x.along == 1 && (call.x.across != 1 || call.lanes == 1);
  SegmentSchedule s = lines ? OfLines(call, alignment) : OfColumns(call, alignment);
  const SegmentStrides parts = {
      .batch = s.slots(call) * call.lanes, .along = call.lanes, .across = 1};
  s.combine = Columns(call.dtype, call.lanes, parts, kVectorBytes);
  return s;
}

}  // namespace retrograd
