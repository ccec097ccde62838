// The C interface: allocators that fail, making that is cancelled, handles in any order, threads.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "include/retrograd/retrograd.h"
#include "tests/catch.h"
#include "tests/support/c_api_handles.h"

namespace retrograd {
namespace {

// Fails at the call whose number is `fails`, from 1 on; 0: never.
struct CountingAllocator {
  int fails = 0, calls = 0, live = 0;
  rg_allocator Callbacks() {
    return {this,
            [](void* user, size_t bytes, size_t alignment) -> void* {
              auto& self = *static_cast<CountingAllocator*>(user);
              if (++self.calls == self.fails) return nullptr;
              ++self.live;
              return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
            },
            [](void* user, void* data, size_t) {
              --static_cast<CountingAllocator*>(user)->live;
              std::free(data);
            }};
  }
};

TEST_CASE("an allocator that fails at any of its calls leaves an error and no memory behind") {
  const GraphHandle graph;
  for (int fails = 0;; ++fails) {
    CountingAllocator allocator{.fails = fails};
    const DeviceHandle device(allocator.Callbacks());
    rg_executable* executable = nullptr;
    const rg_code code = rg_executable_create(graph.graph, device.device, nullptr, &executable);
    if (fails != 0 && code == RG_OK) {  // it asks less often than that
      rg_executable_destroy(executable);
      CHECK(fails > 1);
      break;
    }
    if (code == RG_OK) {
      Buffers buffers;
      CHECK(rg_executable_run(executable, &buffers.run) == RG_OK);
      CHECK(allocator.live > 0);
      rg_executable_destroy(executable);
    } else {
      CheckFails(code, RG_RESOURCE_EXHAUSTED, "allocator");
      CHECK(executable == nullptr);
    }
    CHECK(allocator.live == 0);
  }
  rg_device_options options = RG_INIT(rg_device_options);
  options.allocator.allocate = CountingAllocator().Callbacks().allocate;
  rg_device* device = nullptr;
  CheckFails(rg_device_create(&options, &device), RG_INVALID_ARGUMENT, "allocate and release");
}

TEST_CASE("making an executable tells its stages and is cancelled by any of them") {
  const GraphHandle graph;
  const DeviceHandle device;
  struct Told {
    int stop_at = 0, calls = 0;
    std::vector<rg_stage> stages;
  };
  const auto tell = [](void* user, rg_stage stage, const char* what) -> int32_t {
    auto& told = *static_cast<Told*>(user);
    told.stages.push_back(stage);
    CHECK(std::strlen(what) > 0);
    return ++told.calls == told.stop_at ? 1 : 0;
  };
  Told all;
  rg_executable_options options = RG_INIT(rg_executable_options);
  options.progress = tell;
  options.progress_user = &all;
  ExecutableHandle made(graph, device, options);
  REQUIRE(all.stages == std::vector<rg_stage>{RG_STAGE_PLAN, RG_STAGE_COMPILE});
  for (int stop_at = 1; stop_at <= 2; ++stop_at) {
    Told some{.stop_at = stop_at};
    options.progress_user = &some;
    rg_executable* executable = nullptr;
    CheckFails(rg_executable_create(graph.graph, device.device, &options, &executable),
               RG_CANCELLED, "cancelled");
    CHECK(executable == nullptr);
    CHECK(some.calls == stop_at);
  }
  rg_cancellation* cancellation = nullptr;
  REQUIRE(rg_cancellation_create(&cancellation) == RG_OK);
  rg_cancellation_cancel(cancellation);
  rg_plan_options plan_options = RG_INIT(rg_plan_options);
  plan_options.cancellation = cancellation;
  rg_plan* plan = nullptr;
  CheckFails(rg_plan_create(graph.graph, &plan_options, &plan), RG_CANCELLED, "cancelled");
  rg_cancellation_destroy(cancellation);
}

TEST_CASE("making an executable is cancelled at any moment and leaves nothing behind") {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("retrograd_cancelled_" + std::to_string(getpid()));
  fs::create_directory(folder);
  const char* const before = std::getenv("TMPDIR");
  const std::string restored = before == nullptr ? "/tmp" : before;
  setenv("TMPDIR", folder.c_str(), 1);
  rg_device_options options = RG_INIT(rg_device_options);
  options.no_cache = 1;  // so that each is compiled
  rg_device* device = nullptr;
  REQUIRE(rg_device_create(&options, &device) == RG_OK);
  const GraphHandle graph;
  int cancelled = 0;
  for (const int delay_ms : {0, 1, 3, 10, 30, 100, 300}) {
    INFO(delay_ms << " ms");
    rg_cancellation* cancellation = nullptr;
    REQUIRE(rg_cancellation_create(&cancellation) == RG_OK);
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
      rg_cancellation_cancel(cancellation);
    });
    rg_executable_options how = RG_INIT(rg_executable_options);
    how.cancellation = cancellation;
    rg_executable* executable = nullptr;
    const rg_code code = rg_executable_create(graph.graph, device, &how, &executable);
    canceller.join();
    CHECK((code == RG_OK) == (executable != nullptr));
    if (code != RG_OK) CheckFails(code, RG_CANCELLED, "cancelled");
    cancelled += code == RG_CANCELLED ? 1 : 0;
    rg_executable_destroy(executable);
    rg_cancellation_destroy(cancellation);
    CHECK(fs::is_empty(folder));
  }
  CHECK(cancelled > 0);
  rg_device_destroy(device);
  setenv("TMPDIR", restored.c_str(), 1);
  fs::remove_all(folder);
}

TEST_CASE("handles may be destroyed in any order, and errors are each thread's own") {
  auto graph = std::make_unique<GraphHandle>();
  auto device = std::make_unique<DeviceHandle>();
  ExecutableHandle executable(*graph, *device);
  graph.reset();
  device.reset();
  Buffers buffers;
  CHECK(rg_executable_run(executable.executable, &buffers.run) == RG_OK);
  rg_graph* none = nullptr;
  CHECK(rg_graph_load("/nowhere", &none) != RG_OK);
  std::thread([] { CHECK(LastError().code == RG_OK); }).join();
  CHECK(LastError().code != RG_OK);
}

TEST_CASE("threads plan, compile, run, cancel and destroy at once") {
  const DeviceHandle device;
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const std::string text = std::string(kProductText) + "%extra" + " = mul %z " +
                               std::to_string(t) + ".5\noutput %extra name=\"extra\"\n";
      rg_graph* graph = nullptr;
      // Odd threads have the plain graph, so that some share compiled code.
      const std::string& mine = t % 2 == 0 ? text : std::string(kProductText);
      if (rg_graph_parse(mine.data(), mine.size(), &graph) != RG_OK) graph = nullptr;
      if (graph == nullptr &&
          rg_graph_parse(kProductText, sizeof kProductText - 1, &graph) != RG_OK) {
        ++wrong[t];
        return;
      }
      for (int round = 0; round < 3; ++round) {
        rg_cancellation* cancellation = nullptr;
        rg_cancellation_create(&cancellation);
        std::thread canceller;
        const bool cancels = round == 1;
        if (cancels) canceller = std::thread([&] { rg_cancellation_cancel(cancellation); });
        rg_executable_options options = RG_INIT(rg_executable_options);
        options.cancellation = cancellation;
        rg_executable* executable = nullptr;
        const rg_code code = rg_executable_create(graph, device.device, &options, &executable);
        if (cancels) canceller.join();
        wrong[t] += code == RG_OK || (cancels && code == RG_CANCELLED) ? 0 : 1;
        if (code == RG_OK && rg_graph_num_outputs(graph) == 2) {
          Buffers buffers;
          wrong[t] += rg_executable_run(executable, &buffers.run) == RG_OK ? 0 : 1;
        }
        rg_executable_destroy(executable);
        rg_cancellation_destroy(cancellation);
      }
      rg_graph_destroy(graph);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(8));
}

}  // namespace
}  // namespace retrograd
