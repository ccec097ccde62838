// Handles of the C interface that destroy themselves, a graph of two inputs and two outputs with
// memory for them, and what a refusal says.
#ifndef RETROGRAD_TESTS_SUPPORT_C_API_HANDLES_H_
#define RETROGRAD_TESTS_SUPPORT_C_API_HANDLES_H_

#include <cstring>
#include <string>
#include <vector>

#include "include/retrograd/retrograd.h"
#include "tests/catch.h"

namespace retrograd {

inline constexpr char kProductText[] = R"(graph "product"
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

inline rg_error LastError() {
  rg_error error = RG_INIT(rg_error);
  REQUIRE(rg_last_error(&error) == RG_OK);
  return error;
}

// That the call failed so, with a message that holds the words.
inline void CheckFails(rg_code got, rg_code code, const std::string& words) {
  const rg_error error = LastError();
  INFO(error.message);
  CHECK(std::string(rg_code_name(got)) == rg_code_name(code));
  CHECK(error.code == code);
  CHECK(std::string(error.message).find(words) != std::string::npos);
}

struct GraphHandle {
  explicit GraphHandle(const char* text = kProductText) {
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

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_C_API_HANDLES_H_
