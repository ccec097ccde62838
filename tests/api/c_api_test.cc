// The C interface: what each function makes of its arguments. Null, structs of other sizes, files,
// texts and orders that are wrong are refused with a code and words.
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include "include/retrograd/retrograd.h"
#include "tests/catch.h"
#include "tests/support/c_api_handles.h"

namespace retrograd {
namespace {

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

}  // namespace
}  // namespace retrograd
