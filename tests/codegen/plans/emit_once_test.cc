// Kernels that are emitted once for all layers are what each layer would have been given alone.
#include "codegen/emit_once.h"

#include <deque>

#include "codegen/emit.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"

namespace retrograd {
namespace {

// The body of another layer. Buffers of one value stay of one.
KernelBody OfLayer(KernelBody body, uint32_t layer) {
  const auto rename = [&](ValueId& value) {
    value = {NodeId{layer * 1000 + 999 - Index(value.node)}, value.result};
  };
  for (Buffer& buffer : body.ir.buffers) rename(buffer.value);
  for (Instr& instr : body.ir.instrs) rename(instr.value);
  return body;
}

// Each example in its schedules.
std::vector<KernelBody> Bodies(DType dtype) {
  std::vector<KernelBody> bodies;
  for (const KernelExample& example : KernelExamples(dtype)) {
    const Classification shape = Classify(example.ir);
    size_t taken = 0;
    for (const Schedule& schedule :
         CandidateSchedules(example.ir, shape, {.sms = 3, .shared_bytes = 48 << 10})) {
      if (++taken <= 4) bodies.push_back({.ir = example.ir, .schedule = schedule});
    }
  }
  return bodies;
}

TEST_CASE("a layer's kernels are those that it is given alone") {
  for (const DType dtype : {DType::kFp32, DType::kBf16}) {
    for (const Dialect dialect : {Dialect::kCuda, Dialect::kHost}) {
      EmitOnce emitter(dialect);
      std::deque<Group> groups;  // which outlive the emitter's use of them
      for (uint32_t layer = 0; layer < 3; ++layer) {
        for (const KernelBody& body : Bodies(dtype)) {
          groups.push_back({.body = LaunchOf(OfLayer(body, layer))});
          const std::vector<Kernel> alone = EmitGroup(groups.back(), dialect).launches;
          INFO(body.ir.Print() << body.schedule.Print());
          REQUIRE_FALSE(alone.empty());
          REQUIRE(emitter.Emit(groups.back()).launches == alone);
        }
      }
    }
  }
}

TEST_CASE(
    "launches that start early are those that it is given alone, and leave the others alone") {
  EmitOnce emitter(Dialect::kCuda);
  std::deque<Group> groups;
  for (uint32_t layer = 0; layer < 6; ++layer) {
    const uint32_t which = layer % 3;  // all, all but the first, none
    for (const KernelBody& body : Bodies(DType::kBf16)) {
      groups.push_back({.body = LaunchOf(OfLayer(body, layer))});
      GroupKernels alone = EmitGroup(groups.back(), Dialect::kCuda);
      if (which < 2) StartEarly(&alone, which);
      size_t asked = 0;
      const auto first_early = [&](size_t launches) -> size_t {
        asked = launches;
        return which < 2 ? which : launches;
      };
      INFO(body.ir.Print() << body.schedule.Print() << ", layer " << layer);
      REQUIRE(emitter.Emit(groups.back(), first_early).launches == alone.launches);
      REQUIRE(asked == alone.launches.size());
    }
  }
}

TEST_CASE("two buffers of one value are not the two of two values") {
  size_t tried = 0;
  for (const KernelBody& apart : Bodies(DType::kFp32)) {
    KernelBody shared = apart;
    std::vector<Buffer>& buffers = shared.ir.buffers;
    if (buffers.size() < 3 || buffers[0].written || buffers[1].written) continue;
    buffers[1].value = buffers[0].value;
    const Group first{.body = LaunchOf(apart)}, second{.body = LaunchOf(shared)};
    for (const bool other_first : {false, true}) {
      EmitOnce emitter(Dialect::kHost);
      for (const Group* group : {other_first ? &second : &first, other_first ? &first : &second}) {
        CHECK(emitter.Emit(*group).launches == EmitGroup(*group, Dialect::kHost).launches);
      }
    }
    ++tried;
  }
  CHECK(tried > 0);
}

}  // namespace
}  // namespace retrograd
