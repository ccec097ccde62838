// The row of segment_amax.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/segment_amax/segment_walk.h"

namespace retrograd {
namespace {

SegmentSchedule ScheduleOf(const SegmentAmaxCall& call) {
  return SegmentScheduleFor(call, kStoredAlignment);
}

// x is read once. The parts are few, and lie in a cache.
Price PriceCall(const Call& call, const DeviceSpec& d, bool explain) {
  const SegmentAmaxCall c = SegmentAmaxOf(call);
  const SegmentSchedule s = ScheduleOf(c);
  const int64_t element = SizeBytes(c.dtype);
  const int64_t parts = 2 * element * s.scratch_elements(c);
  Price price;
  price.read_bytes = Product({c.batch, c.places, c.lanes, element}) + 4 * c.groups;
  price.written_bytes = Product({c.batch, c.groups, c.lanes, element});
  const int64_t launches = Product({s.launches(), d.launch_graph_ps});
  const int64_t hbm = TransferPs(price.read_bytes + price.written_bytes, d.hbm_bytes_per_s);
  const int64_t finalize = TransferPs(parts, d.cache_bytes_per_s);
  price.ps = std::min(kHuge, launches + hbm + finalize);
  if (explain) {
    price.terms = {
        {"launch", launches, false, absl::StrCat(s.launches(), " launches")},
        {"hbm", hbm, true,
         absl::StrCat(price.read_bytes, " B read + ", price.written_bytes, " B written")}};
    if (finalize > 0) {
      price.terms.push_back({"finalize", finalize, false,
                             absl::StrCat(parts, " B of parts, written and read in a cache")});
    }
  }
  return price;
}

std::string Describe(const Call& call) {
  const SegmentAmaxCall c = SegmentAmaxOf(call);
  return absl::StrFormat("segment_amax %dx%dx%d %s, %d groups%s", c.batch, c.places, c.lanes,
                         Name(c.dtype), c.groups, c.magnitude ? ", of magnitudes" : "");
}

CallSizes Sizes(const Call& call) {
  const SegmentAmaxCall c = SegmentAmaxOf(call);
  return {{"batch", c.batch}, {"places", c.places}, {"lanes", c.lanes}, {"groups", c.groups}};
}

int64_t Blocks(const Call& call) {
  const SegmentAmaxCall c = SegmentAmaxOf(call);
  return std::max<int64_t>(ScheduleOf(c).blocks(c), 1);
}

}  // namespace

const CallOp kSegmentAmaxCalls = {.op = Op::segment_amax,
                                  .name = "segment_amax",
                                  .reads = HasSegmentStrides,
                                  .stores = HasSegmentStrides,
                                  .normalize = NormalizeSegment,
                                  .result_like = [](int) { return -1; },
                                  .price = PriceCall,
                                  .blocks = Blocks,
                                  .describe = Describe,
                                  .sizes = Sizes};

}  // namespace retrograd
