// The C interface: runs. What they compute, which counts, addresses and workspaces they refuse,
// that they allocate nothing, outputs that accumulate, phases.
#include <algorithm>
#include <string>
#include <vector>

#include "include/retrograd/retrograd.h"
#include "tests/catch.h"
#include "tests/support/allocation_count.h"
#include "tests/support/c_api_handles.h"

namespace retrograd {
namespace {

TEST_CASE("a run computes; wrong counts, addresses and workspaces are refused") {
  const GraphHandle graph;
  const DeviceHandle device;
  ExecutableHandle own(graph, device);
  Buffers buffers;
  REQUIRE(rg_executable_run(own.executable, &buffers.run) == RG_OK);
  const std::vector<float> expected = buffers.z;
  CHECK(expected[5] != 0);

  // The same inputs, other memory for the outputs.
  std::vector<float> elsewhere(buffers.z.size()), sums(buffers.s.size());
  void* others[2] = {elsewhere.data(), sums.data()};
  rg_run run = buffers.run;
  run.outputs = others;
  REQUIRE(rg_executable_run(own.executable, &run) == RG_OK);
  CHECK(elsewhere == expected);

  run = buffers.run;
  run.num_inputs = 1;
  CheckFails(rg_executable_run(own.executable, &run), RG_INVALID_ARGUMENT, "1 inputs");
  run = buffers.run;
  run.num_outputs = 3;
  CheckFails(rg_executable_run(own.executable, &run), RG_INVALID_ARGUMENT, "3 outputs");
  run = buffers.run;
  run.inputs = nullptr;
  CheckFails(rg_executable_run(own.executable, &run), RG_INVALID_ARGUMENT, "run.inputs");
  const void* missing[2] = {buffers.inputs[0], nullptr};
  run = buffers.run;
  run.inputs = missing;
  CheckFails(rg_executable_run(own.executable, &run), RG_INVALID_ARGUMENT, "has no address");
  const void* crooked[2] = {reinterpret_cast<const char*>(buffers.inputs[0]) + 1,
                            buffers.inputs[1]};
  run.inputs = crooked;
  CheckFails(rg_executable_run(own.executable, &run), RG_INVALID_ARGUMENT, "");
  run = buffers.run;
  run.workspace = &run;
  CheckFails(rg_executable_run(own.executable, &run), RG_INVALID_ARGUMENT, "caller_workspace");

  rg_executable_options options = RG_INIT(rg_executable_options);
  options.caller_workspace = 1;
  ExecutableHandle callers(graph, device, options);
  size_t bytes = 0, alignment = 0;
  REQUIRE(rg_executable_workspace(callers.executable, &bytes, &alignment) == RG_OK);
  REQUIRE(bytes > 0);
  for (int round = 0; round < 2; ++round) {  // the second one elsewhere
    std::vector<char> room(bytes + 2 * alignment);
    const auto at = reinterpret_cast<uintptr_t>(room.data());
    char* const workspace = room.data() + (alignment - at % alignment) % alignment;
    run = buffers.run;
    run.workspace = workspace;
    run.workspace_bytes = bytes - 1;
    CheckFails(rg_executable_run(callers.executable, &run), RG_INVALID_ARGUMENT, "are needed");
    run.workspace_bytes = bytes;
    run.workspace = workspace + 16;
    CheckFails(rg_executable_run(callers.executable, &run), RG_INVALID_ARGUMENT, "workspace");
    run.workspace = workspace;
    std::fill(buffers.z.begin(), buffers.z.end(), 0.0f);
    REQUIRE(rg_executable_run(callers.executable, &run) == RG_OK);
    CHECK(buffers.z == expected);
  }
}

TEST_CASE("outputs that accumulate are added to what their memory holds, one by one") {
  const GraphHandle graph;
  const DeviceHandle device;
  Buffers plain, added;
  ExecutableHandle once(graph, device);
  REQUIRE(rg_executable_run(once.executable, &plain.run) == RG_OK);
  const uint8_t accumulate[] = {0, 1};
  rg_executable_options options = RG_INIT(rg_executable_options);
  options.accumulate = accumulate;
  options.num_accumulate = 2;
  ExecutableHandle sums(graph, device, options);
  std::fill(added.s.begin(), added.s.end(), 7.0f);
  for (int i = 0; i < 3; ++i) REQUIRE(rg_executable_run(sums.executable, &added.run) == RG_OK);
  // Two plans may add up in other orders.
  for (size_t i = 0; i < added.z.size(); ++i) {
    CHECK(added.z[i] == Approx(plain.z[i]).epsilon(1e-6));
  }
  for (size_t i = 0; i < added.s.size(); ++i) {
    CHECK(added.s[i] == Approx(7 + 3 * plain.s[i]).epsilon(1e-5));
  }
  options.num_accumulate = 1;
  rg_executable* none = nullptr;
  CheckFails(rg_executable_create(graph.graph, device.device, &options, &none), RG_INVALID_ARGUMENT,
             "1 flags for 2 outputs");
}

TEST_CASE("runs allocate nothing, with addresses of before or others, adding or not") {
  const GraphHandle graph;
  const DeviceHandle device;
  const uint8_t accumulate[] = {0, 1};
  for (const bool adds : {false, true}) {
    rg_executable_options options = RG_INIT(rg_executable_options);
    options.accumulate = adds ? accumulate : nullptr;
    options.num_accumulate = adds ? 2 : 0;
    ExecutableHandle executable(graph, device, options);
    Buffers one, other;
    REQUIRE(rg_executable_run(executable.executable, &one.run) == RG_OK);
    const int64_t allocated = AllocationCount();
    for (const Buffers* buffers : {&one, &one, &other, &one}) {
      REQUIRE(rg_executable_run(executable.executable, &buffers->run) == RG_OK);
    }
    CHECK(AllocationCount() == allocated);
  }
}

TEST_CASE("steps are timed in the caller's workspace, too") {
  const GraphHandle graph;
  const DeviceHandle device;
  rg_executable_options options = RG_INIT(rg_executable_options);
  options.caller_workspace = 1;
  ExecutableHandle executable(graph, device, options);
  size_t bytes = 0, alignment = 0;
  REQUIRE(rg_executable_workspace(executable.executable, &bytes, &alignment) == RG_OK);
  REQUIRE(bytes > 0);
  void* workspace = nullptr;
  REQUIRE(rg_device_allocate(device.device, bytes, &workspace) == RG_OK);
  Buffers buffers;
  buffers.run.workspace = workspace;
  buffers.run.workspace_bytes = bytes;
  char* text = nullptr;
  CHECK(rg_executable_time_steps(executable.executable, &buffers.run, 2, &text) == RG_OK);
  rg_free(text);
  CHECK(rg_device_release(device.device, workspace) == RG_OK);
}

TEST_CASE("a run in phases calls back, and refuses what cannot be") {
  std::string text = kProductText;
  text.replace(text.find("kind=saved"), 10, "kind=saved donated=1");  // goes before z is made
  const GraphHandle graph(text.c_str());
  const DeviceHandle device;
  rg_executable_options options = RG_INIT(rg_executable_options);
  rg_executable* made = nullptr;
  options.max_phases = 65;
  CheckFails(rg_executable_create(graph.graph, device.device, &options, &made), RG_INVALID_ARGUMENT,
             "max_phases is 65");
  options.max_phases = 4;
  CheckFails(rg_executable_create(graph.graph, device.device, &options, &made), RG_INVALID_ARGUMENT,
             "wants caller_workspace");
  options.caller_workspace = 1;
  options.settings = R"({"set": ["launch_stream_us=0.000001"]})";
  ExecutableHandle executable(graph, device, options);
  rg_phases phases = RG_INIT(rg_phases);
  CheckFails(rg_executable_phases(executable.executable, nullptr), RG_INVALID_ARGUMENT, "phases");
  REQUIRE(rg_executable_phases(executable.executable, &phases) == RG_OK);
  REQUIRE(phases.num_phases > 1);
  CHECK(phases.input_last[0] < phases.num_phases);
  std::vector<std::vector<char>> rooms(phases.num_blocks);
  std::vector<void*> blocks(phases.num_blocks + 1);
  for (size_t b = 0; b < phases.num_blocks; ++b) {
    rooms[b].resize(phases.blocks[b].bytes + 256);
    const auto at = reinterpret_cast<uintptr_t>(rooms[b].data());
    blocks[b] = rooms[b].data() + (256 - at % 256) % 256;
  }
  Buffers buffers;
  buffers.run.blocks = blocks.data();
  buffers.run.num_blocks = phases.num_blocks;
  struct Calls {
    uint32_t next = 1, stop_at = 0;
  } calls;
  buffers.run.phase_user = &calls;
  buffers.run.before_phase = [](void* user, uint32_t phase) -> int32_t {
    auto& seen = *static_cast<Calls*>(user);
    return phase != seen.next++ || phase == seen.stop_at;
  };
  REQUIRE(rg_executable_run(executable.executable, &buffers.run) == RG_OK);
  CHECK(calls.next == phases.num_phases);
  const std::vector<float> phased = buffers.z;
  ExecutableHandle whole(graph, device);
  Buffers plain;
  REQUIRE(rg_executable_run(whole.executable, &plain.run) == RG_OK);
  CHECK(plain.z == phased);

  calls = {.stop_at = 1};
  CheckFails(rg_executable_run(executable.executable, &buffers.run), RG_CANCELLED,
             "before phase 1");
  calls = {};
  rg_run run = buffers.run;
  run.num_blocks = phases.num_blocks + 1;
  CheckFails(rg_executable_run(executable.executable, &run), RG_INVALID_ARGUMENT, "blocks");
  run = buffers.run;
  run.workspace = blocks.data();
  CheckFails(rg_executable_run(executable.executable, &run), RG_INVALID_ARGUMENT, "one of them");
  ExecutableHandle unused(graph, device, options);
  for (size_t b = 0; b < phases.num_blocks; ++b) {
    std::vector<void*> missing = blocks;
    missing[b] = nullptr;
    run = buffers.run;
    run.blocks = missing.data();
    calls = {};
    CheckFails(rg_executable_run(unused.executable, &run), RG_INVALID_ARGUMENT, "the workspace is");
  }
  CheckFails(rg_executable_run(whole.executable, &buffers.run), RG_INVALID_ARGUMENT,
             "caller_workspace");
}

}  // namespace
}  // namespace retrograd
