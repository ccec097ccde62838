#include "codegen/segment_amax/emit_segment_amax.h"

#include <algorithm>
#include <limits>

#include "codegen/segment_amax/segment_amax_text.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int64_t kEndsAtOnce = 32;  // loads of the groups' ends under way, at most

class Writer {
 public:
  Writer(const SegmentAmaxCall& call, const SegmentSchedule& schedule, Dialect dialect,
         absl::string_view what)
      : c_(call), s_(schedule), dialect_(dialect), w_(dialect, what) {}

  // Every chunk's parts of the groups that it meets.
  LaunchWriter::Launch Chunks() {
    w_.Read(c_.dtype, "x", kSegmentX);
    w_.Read(DType::kInt32, "ends", kSegmentEnds);
    w_.Write(c_.dtype, "parts", kSegmentParts);
    Begin(s_.walk, c_.x, s_.chunks);
    w_.Constants({{"kChunk", s_.chunk}, {"kOfGroups", 0}, {"kSlots", s_.slots(c_)}});
    w_.Text(kSegmentFind);
    w_.Text(kSegmentChunk);
    return End(s_.walk, s_.chunks);
  }

  // Every group's largest element: of x, or of its parts in chunks.
  LaunchWriter::Launch Groups() {
    const bool parts = s_.chunks > 1;
    const SegmentWalk& walk = parts ? s_.combine : s_.walk;
    w_.Read(c_.dtype, "x", parts ? kSegmentParts : kSegmentX);
    w_.Read(DType::kInt32, "ends", kSegmentEnds);
    w_.Write(c_.dtype, "result", kSegmentResult);
    const SegmentStrides dense = {.batch = s_.slots(c_) * c_.lanes, .along = c_.lanes, .across = 1};
    const int64_t blocks = walk.lines ? 1 : c_.groups;
    Begin(walk, parts ? dense : c_.x, blocks);
    Places("kD", c_.result);
    if (walk.lines) {
      w_.Text(kSegmentAllGroups);
      return End(walk, blocks);
    }
    w_.Constants({{"kChunk", parts ? s_.chunk : 0}, {"kOfGroups", 1}});
    w_.Text(kSegmentFind);
    w_.Text(kSegmentGroup);
    return End(walk, blocks);
  }

 private:
  void Begin(const SegmentWalk& walk, const SegmentStrides& x, int64_t parts) {
    const DType compute = ComputeType(c_.dtype);
    if (walk.lines) {
      w_.ThreadsMeet();
    } else {
      w_.Shared(compute, "others", walk.threads() * walk.vector);
    }
    w_.out().Line("typedef ", StorageName(c_.dtype), " storage_t;");
    w_.out().Line("typedef ", ComputeName(c_.dtype), " compute_t;");
    const double none = c_.magnitude ? 0 : -std::numeric_limits<double>::infinity();
    w_.out().Line("const compute_t none = ", Literal(none, compute, dialect_), ";");
    w_.Constants({{"kPlaces", c_.places},
                  {"kLanes", c_.lanes},
                  {"kGroups", c_.groups},
                  {"kMagnitude", c_.magnitude ? 1 : 0},
                  {"kV", walk.vector},
                  {"kHeld", walk.lines ? 1 : walk.vector},
                  {"kPacks", walk.packs},
                  {"kDown", walk.down},
                  {"kAtOnce", walk.at_once},
                  {"kSlabs", walk.slabs},
                  {"kParts", parts},
                  {"kBlocks", Product({walk.slabs, parts, c_.batch})},
                  {"kEndsAtOnce", std::min(c_.groups, kEndsAtOnce)}});
    Places("kX", x);
    w_.LongConstants({{"kEndsFirst", c_.ends_offset}});
    w_.Text(walk.lines ? kSegmentLines : kSegmentColumns);
  }

  void Places(std::string prefix, const SegmentStrides& s) {
    w_.LongConstants({{prefix + "First", s.offset},
                      {prefix + "Batch", s.batch},
                      {prefix + "Along", s.along},
                      {prefix + "Across", s.across}});
  }

  LaunchWriter::Launch End(const SegmentWalk& walk, int64_t parts) {
    return w_.End(Product({walk.slabs, parts, c_.batch}), walk.threads());
  }

  const SegmentAmaxCall& c_;
  const SegmentSchedule& s_;
  const Dialect dialect_;
  LaunchWriter w_;
};

}  // namespace

std::vector<LaunchWriter::Launch> EmitSegmentAmax(const SegmentAmaxCall& call,
                                                  const SegmentSchedule& schedule,
                                                  Dialect dialect) {
  std::vector<LaunchWriter::Launch> launches;
  if (schedule.chunks > 1) {
    launches.push_back(Writer(call, schedule, dialect, "segment_amax, by chunks").Chunks());
  }
  launches.push_back(Writer(call, schedule, dialect, "segment_amax, by groups").Groups());
  return launches;
}

}  // namespace retrograd
