// The C interface: every function with null, wrong sizes, wrong order; runs, workspaces,
// allocators, cancelling, threads.
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "include/retrograd/retrograd.h"
#include "tests/catch.h"
#include "tests/support/allocation_count.h"

namespace {

constexpr char kText[] = R"(graph "product"
%a = input name="a" kind=saved f32[64,48]
%b = input name="b" kind=parameter f32[48,32]
%y = matmul %a %b
%t = tanh %y
%s = sum %t axes=[0]
%u = exp %t
%z = mul %u %s
output %z name="z"
output %s name="s"
)";

rg_error LastError() {
  rg_error error = RG_INIT(rg_error);
  REQUIRE(rg_last_error(&error) == RG_OK);
  return error;
}

// That the call failed so, with a message that holds the words.
void CheckFails(rg_code got, rg_code code, const std::string& words) {
  const rg_error error = LastError();
  INFO(error.message);
  CHECK(std::string(rg_code_name(got)) == rg_code_name(code));
  CHECK(error.code == code);
  CHECK(std::string(error.message).find(words) != std::string::npos);
}

struct GraphHandle {
  explicit GraphHandle(const char* text = kText) {
    const rg_code code = rg_graph_parse(text, std::strlen(text), &graph);
    INFO(LastError().message);
    REQUIRE(code == RG_OK);
  }
  ~GraphHandle() { rg_graph_destroy(graph); }
  rg_graph* graph = nullptr;
};

struct DeviceHandle {
  explicit DeviceHandle(rg_allocator allocator = {}) {
    rg_device_options options = RG_INIT(rg_device_options);
    options.allocator = allocator;
    REQUIRE(rg_device_create(&options, &device) == RG_OK);
  }
  ~DeviceHandle() { rg_device_destroy(device); }
  rg_device* device = nullptr;
};

struct ExecutableHandle {
  ExecutableHandle(const GraphHandle& graph, const DeviceHandle& device,
                   rg_executable_options options = RG_INIT(rg_executable_options)) {
    const rg_code code = rg_executable_create(graph.graph, device.device, &options, &executable);
    INFO(LastError().message);
    REQUIRE(code == RG_OK);
  }
  ~ExecutableHandle() { rg_executable_destroy(executable); }
  rg_executable* executable = nullptr;
};

// Memory for the graph's inputs and outputs, filled in by a rule.
struct Buffers {
  Buffers() {
    for (size_t i = 0; i < a.size(); ++i) a[i] = 0.01f * static_cast<float>(i % 17) - 0.05f;
    for (size_t i = 0; i < b.size(); ++i) b[i] = 0.02f * static_cast<float>(i % 13) - 0.1f;
    run.inputs = inputs;
    run.num_inputs = 2;
    run.outputs = outputs;
    run.num_outputs = 2;
  }
  std::vector<float> a = std::vector<float>(64 * 48), b = std::vector<float>(48 * 32);
  std::vector<float> z = std::vector<float>(64 * 32), s = std::vector<float>(32);
  const void* inputs[2] = {a.data(), b.data()};
  void* outputs[2] = {z.data(), s.data()};
  rg_run run = RG_INIT(rg_run);
};

}  // namespace

TEST_CASE("every function refuses null with a code and a message that names the parameter") {
  const GraphHandle graph;
  const DeviceHandle device;
  rg_graph* no_graph = nullptr;
  rg_tensor tensor = RG_INIT(rg_tensor);
  rg_value value = {};
  char* text = nullptr;
  void* bytes = nullptr;
  size_t size = 0;
  CheckFails(rg_graph_load(nullptr, &no_graph), RG_INVALID_ARGUMENT, "path is null");
  CheckFails(rg_graph_load("x", nullptr), RG_INVALID_ARGUMENT, "graph is null");
  CheckFails(rg_graph_parse(nullptr, 3, &no_graph), RG_INVALID_ARGUMENT, "text is null");
  CheckFails(rg_graph_parse("x", 1, nullptr), RG_INVALID_ARGUMENT, "graph is null");
  CheckFails(rg_graph_deserialize(nullptr, 3, &no_graph), RG_INVALID_ARGUMENT, "bytes is null");
  CheckFails(rg_graph_save(nullptr, "x"), RG_INVALID_ARGUMENT, "graph is null");
  CheckFails(rg_graph_save(graph.graph, nullptr), RG_INVALID_ARGUMENT, "path is null");
  CheckFails(rg_graph_print(nullptr, &text), RG_INVALID_ARGUMENT, "graph is null");
  CheckFails(rg_graph_print(graph.graph, nullptr), RG_INVALID_ARGUMENT, "text is null");
  CheckFails(rg_graph_serialize(graph.graph, nullptr, &size), RG_INVALID_ARGUMENT, "bytes is null");
  CheckFails(rg_graph_serialize(graph.graph, &bytes, nullptr), RG_INVALID_ARGUMENT, "size is null");
  CheckFails(rg_graph_input(nullptr, 0, &tensor), RG_INVALID_ARGUMENT, "graph is null");
  CheckFails(rg_graph_input(graph.graph, 0, nullptr), RG_INVALID_ARGUMENT, "tensor is null");
  CheckFails(rg_graph_input(graph.graph, 2, &tensor), RG_INVALID_ARGUMENT, "no input 2");
  CheckFails(rg_graph_output(graph.graph, 2, &tensor), RG_INVALID_ARGUMENT, "no output 2");
  CHECK(rg_graph_num_inputs(nullptr) == 0);
  CHECK(rg_graph_num_outputs(nullptr) == 0);

  CheckFails(rg_builder_create(nullptr, nullptr), RG_INVALID_ARGUMENT, "name is null");
  CheckFails(rg_builder_create("x", nullptr), RG_INVALID_ARGUMENT, "builder is null");
  CheckFails(rg_builder_input(nullptr, &tensor, &value), RG_INVALID_ARGUMENT, "builder is null");
  CheckFails(rg_builder_add(nullptr, "mul", nullptr, 0, nullptr, 0, &value), RG_INVALID_ARGUMENT,
             "builder is null");
  CheckFails(rg_builder_type(nullptr, value, &tensor), RG_INVALID_ARGUMENT, "builder is null");
  CheckFails(rg_builder_output(nullptr, value, "x", nullptr), RG_INVALID_ARGUMENT,
             "builder is null");
  CheckFails(rg_builder_finish(nullptr, &no_graph), RG_INVALID_ARGUMENT, "builder is null");

  CheckFails(rg_device_create(nullptr, nullptr), RG_INVALID_ARGUMENT, "device is null");
  CheckFails(rg_device_allocate(nullptr, 1, &bytes), RG_INVALID_ARGUMENT, "device is null");
  CheckFails(rg_device_allocate(device.device, 1, nullptr), RG_INVALID_ARGUMENT, "data is null");
  CheckFails(rg_device_release(nullptr, nullptr), RG_INVALID_ARGUMENT, "device is null");
  CheckFails(rg_device_copy_in(device.device, nullptr, "x", 1), RG_INVALID_ARGUMENT, "is null");
  CheckFails(rg_device_copy_out(device.device, &size, nullptr, 1), RG_INVALID_ARGUMENT, "is null");
  CHECK(rg_device_model(nullptr) == nullptr);

  CheckFails(rg_cancellation_create(nullptr), RG_INVALID_ARGUMENT, "cancellation is null");
  rg_cancellation_cancel(nullptr);
  rg_plan* plan = nullptr;
  CheckFails(rg_plan_create(nullptr, nullptr, &plan), RG_INVALID_ARGUMENT, "graph is null");
  CheckFails(rg_plan_create(graph.graph, nullptr, nullptr), RG_INVALID_ARGUMENT, "plan is null");
  CheckFails(rg_plan_explain(nullptr, RG_TEXT, &text), RG_INVALID_ARGUMENT, "plan is null");
  CheckFails(rg_plan_cost(nullptr, nullptr, nullptr), RG_INVALID_ARGUMENT, "plan is null");

  rg_executable* executable = nullptr;
  CheckFails(rg_executable_create(nullptr, device.device, nullptr, &executable),
             RG_INVALID_ARGUMENT, "graph is null");
  CheckFails(rg_executable_create(graph.graph, nullptr, nullptr, &executable), RG_INVALID_ARGUMENT,
             "device is null");
  CheckFails(rg_executable_create(graph.graph, device.device, nullptr, nullptr),
             RG_INVALID_ARGUMENT, "executable is null");
  CheckFails(rg_executable_workspace(nullptr, &size, &size), RG_INVALID_ARGUMENT,
             "executable is null");
  CheckFails(rg_executable_run(nullptr, nullptr), RG_INVALID_ARGUMENT, "executable is null");
  CheckFails(rg_executable_describe(nullptr, &text), RG_INVALID_ARGUMENT, "executable is null");
  CheckFails(rg_executable_explain(nullptr, RG_TEXT, &text), RG_INVALID_ARGUMENT,
             "executable is null");
  CheckFails(rg_executable_time_steps(nullptr, nullptr, 1, &text), RG_INVALID_ARGUMENT,
             "executable is null");
  CHECK(rg_executable_last_run_us(nullptr) == 0);
  CHECK(rg_last_error(nullptr) == RG_INVALID_ARGUMENT);

  rg_graph_destroy(nullptr);
  rg_builder_destroy(nullptr);
  rg_device_destroy(nullptr);
  rg_plan_destroy(nullptr);
  rg_cancellation_destroy(nullptr);
  rg_executable_destroy(nullptr);
  rg_free(nullptr);
}

TEST_CASE("structs of another size: smaller ones are older callers', larger ones are refused") {
  const GraphHandle graph;
  rg_tensor tensor = RG_INIT(rg_tensor);
  tensor.struct_size = sizeof(rg_tensor) + 8;
  CheckFails(rg_graph_input(graph.graph, 0, &tensor), RG_INVALID_ARGUMENT, "struct_size");
  tensor.struct_size = 0;
  CheckFails(rg_graph_input(graph.graph, 0, &tensor), RG_INVALID_ARGUMENT, "struct_size");
  tensor.struct_size = offsetof(rg_tensor, rank);
  tensor.rank = 77;
  CHECK(rg_graph_input(graph.graph, 0, &tensor) == RG_OK);
  CHECK(std::string(tensor.name) == "a");
  CHECK(tensor.rank == 77);  // beyond what the caller said it knows
  rg_device_options options = RG_INIT(rg_device_options);
  options.struct_size = offsetof(rg_device_options, cache_dir);
  options.cache_dir = reinterpret_cast<const char*>(1);  // not read
  rg_device* device = nullptr;
  CHECK(rg_device_create(&options, &device) == RG_OK);
  rg_device_destroy(device);
}

TEST_CASE("a device is made with a file of choices, and without one that cannot be read") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("c_api_tuned_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto make = [&](const std::string& text, double budget_s = 0) {
    const std::string path = (folder / "tuned.textproto").string();
    std::ofstream(path) << text;
    rg_device_options options = RG_INIT(rg_device_options);
    options.tuned = path.c_str();
    options.tuning_budget_s = budget_s;
    rg_device* device = nullptr;
    const rg_code code = rg_device_create(&options, &device);
    CHECK((device != nullptr) == (code == RG_OK));
    rg_device_destroy(device);
    return code;
  };
  CHECK(make("version: 1\n") == RG_OK);
  CHECK(make("version: 1\n", 2.5) == RG_OK);
  CheckFails(make("version: 1\nchoice {\n  kind: 7\n}\n"), RG_INVALID_ARGUMENT,
             "tuned.textproto:3: ");
  CheckFails(make("version: 1\n", -1), RG_INVALID_ARGUMENT, "a tuning budget of -1 s");
  rg_device_options options = RG_INIT(rg_device_options);
  options.tuned = "/no/such/file";
  rg_device* device = nullptr;
  CheckFails(rg_device_create(&options, &device), RG_NOT_FOUND, "/no/such/file");
  // An older caller's struct ends before both.
  options.struct_size = offsetof(rg_device_options, tuned);
  CHECK(rg_device_create(&options, &device) == RG_OK);
  rg_device_destroy(device);
  std::filesystem::remove_all(folder);
}

TEST_CASE("errors have the code of their kind and the node that they are about") {
  rg_graph* graph = nullptr;
  CheckFails(rg_graph_load("/nowhere/x.pb", &graph), RG_NOT_FOUND, "/nowhere/x.pb");
  constexpr char kWrong[] = "%a = input name=\"a\" kind=saved f32[2]\n%b = sum %a axes=[3]\n";
  CheckFails(rg_graph_parse(kWrong, sizeof kWrong - 1, &graph), RG_INVALID_ARGUMENT, "line 2");
  rg_device_options options = RG_INIT(rg_device_options);
  options.name = "toaster";
  rg_device* device = nullptr;
  CheckFails(rg_device_create(&options, &device), RG_INVALID_ARGUMENT, "toaster");
  const GraphHandle good;
  const DeviceHandle host;
  rg_executable_options how = RG_INIT(rg_executable_options);
  rg_executable* executable = nullptr;
  how.settings = R"({"colour": "red"})";
  CheckFails(rg_executable_create(good.graph, host.device, &how, &executable), RG_NOT_FOUND,
             "colour");
  how.settings = R"({"record": 3})";
  CheckFails(rg_executable_create(good.graph, host.device, &how, &executable), RG_INVALID_ARGUMENT,
             "true or false");
  how.settings = "[";
  CheckFails(rg_executable_create(good.graph, host.device, &how, &executable), RG_INVALID_ARGUMENT,
             "no JSON object");
  how = RG_INIT(rg_executable_options);
  how.max_memory_bytes = 100;
  CheckFails(rg_executable_create(good.graph, host.device, &how, &executable),
             RG_RESOURCE_EXHAUSTED, "");
  CHECK(executable == nullptr);
  CHECK(std::string(rg_code_name(99)) == "RG_UNKNOWN");
}

TEST_CASE("a builder makes what the text form says, sticks to its first error, finishes once") {
  rg_builder* builder = nullptr;
  REQUIRE(rg_builder_create("made", &builder) == RG_OK);
  rg_tensor tensor = RG_INIT(rg_tensor);
  tensor.name = "x";
  tensor.dtype = RG_FP32;
  tensor.kind = RG_SAVED;
  tensor.rank = 2;
  tensor.shape[0] = 3;
  tensor.shape[1] = 4;
  rg_value x = {}, sum = {};
  REQUIRE(rg_builder_input(builder, &tensor, &x) == RG_OK);
  const int64_t axes[] = {1};
  rg_attribute attribute = {};
  attribute.name = "axes";
  attribute.kind = RG_ATTRIBUTE_INTS;
  attribute.ints = axes;
  attribute.num_ints = 1;
  REQUIRE(rg_builder_add(builder, "sum", &x, 1, &attribute, 1, &sum) == RG_OK);
  REQUIRE(rg_builder_type(builder, sum, &tensor) == RG_OK);
  CHECK(tensor.rank == 1);
  CHECK(tensor.shape[0] == 3);
  CheckFails(rg_builder_add(builder, "summ", &x, 1, nullptr, 0, &sum), RG_NOT_FOUND, "summ");
  CheckFails(rg_builder_output(builder, {17, 0}, "y", nullptr), RG_INVALID_ARGUMENT, "%17");
  CHECK(LastError().node == 17);
  REQUIRE(rg_builder_output(builder, sum, "y", nullptr) == RG_OK);
  rg_graph* graph = nullptr;
  REQUIRE(rg_builder_finish(builder, &graph) == RG_OK);
  CheckFails(rg_builder_finish(builder, &graph), RG_FAILED_PRECONDITION, "finished");
  char* text = nullptr;
  REQUIRE(rg_graph_print(graph, &text) == RG_OK);
  CHECK(std::string(text).find("sum %0 axes=[1]  f32[3]") != std::string::npos);
  rg_free(text);
  void* bytes = nullptr;
  size_t size = 0;
  REQUIRE(rg_graph_serialize(graph, &bytes, &size) == RG_OK);
  rg_graph* again = nullptr;
  CHECK(rg_graph_deserialize(bytes, size, &again) == RG_OK);
  rg_free(bytes);
  rg_graph_destroy(again);
  rg_graph_destroy(graph);
  rg_builder_destroy(builder);
}

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

}  // namespace

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
    const int64_t allocated = retrograd::AllocationCount();
    for (const Buffers* buffers : {&one, &one, &other, &one}) {
      REQUIRE(rg_executable_run(executable.executable, &buffers->run) == RG_OK);
    }
    CHECK(retrograd::AllocationCount() == allocated);
  }
}

TEST_CASE("a plan explains itself as text and JSON, and so does an executable") {
  const GraphHandle graph;
  rg_plan* plan = nullptr;
  REQUIRE(rg_plan_create(graph.graph, nullptr, &plan) == RG_OK);
  double ns = 0;
  int64_t kernels = 0;
  CHECK(rg_plan_cost(plan, &ns, &kernels) == RG_OK);
  CHECK(ns > 0);
  CHECK(kernels > 0);
  char* text = nullptr;
  REQUIRE(rg_plan_explain(plan, RG_TEXT, &text) == RG_OK);
  CHECK(std::string(text).find("kernels and library calls") != std::string::npos);
  rg_free(text);
  REQUIRE(rg_plan_explain(plan, RG_JSON, &text) == RG_OK);
  CHECK(text[0] == '{');
  rg_free(text);
  REQUIRE(rg_plan_explain(plan, RG_HTML, &text) == RG_OK);
  CHECK(std::string(text).find("<html") != std::string::npos);
  rg_free(text);
  CheckFails(rg_plan_explain(plan, 4, &text), RG_INVALID_ARGUMENT, "format");
  rg_plan_destroy(plan);
  const DeviceHandle device;
  ExecutableHandle executable(graph, device);
  REQUIRE(rg_executable_explain(executable.executable, RG_TEXT, &text) == RG_OK);
  rg_free(text);
  REQUIRE(rg_executable_describe(executable.executable, &text) == RG_OK);
  CHECK(std::string(text).find("\"kernels\"") != std::string::npos);
  rg_free(text);
  Buffers buffers;
  CheckFails(rg_executable_time_steps(executable.executable, &buffers.run, 0, &text),
             RG_INVALID_ARGUMENT, "repetitions");
  REQUIRE(rg_executable_time_steps(executable.executable, &buffers.run, 2, &text) == RG_OK);
  CHECK(text[0] == '[');
  rg_free(text);
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
  std::string text = kText;
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
      const std::string text = std::string(kText) + "%extra" + " = mul %z " + std::to_string(t) +
                               ".5\noutput %extra name=\"extra\"\n";
      rg_graph* graph = nullptr;
      // Odd threads have the plain graph, so that some share compiled code.
      const std::string& mine = t % 2 == 0 ? text : std::string(kText);
      if (rg_graph_parse(mine.data(), mine.size(), &graph) != RG_OK) graph = nullptr;
      if (graph == nullptr && rg_graph_parse(kText, sizeof kText - 1, &graph) != RG_OK) {
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
