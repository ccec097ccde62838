// Retrograd in C++20: a header over the C interface (retrograd.h), whose rules for threads and
// addresses hold here as well. Nothing throws: what can fail returns a Result or an Error.
//
//   using namespace retrograd;
//   Result<Graph> graph = Graph::Load("model.bwd.pb");
//   Result<Device> device = Device::Make({.name = "cuda:0"});
//   if (!graph.ok() || !device.ok()) ...;
//   Result<Executable> backward = Executable::Make(*graph, *device);
//   if (!backward.ok()) return Report(backward.error().message);
//   Error error = backward->Run(stream, inputs, outputs);
#ifndef RETROGRAD_RETROGRAD_HPP_
#define RETROGRAD_RETROGRAD_HPP_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "retrograd/retrograd.h"

namespace retrograd {
inline namespace v0 {

// The outcome of what can fail and has no result: OK, or a code, a message and perhaps a node.
struct [[nodiscard]] Error {
  rg_code code = RG_OK;
  std::string message = {};
  int64_t node = -1;  // the graph's node that it is about; -1: none

  bool ok() const { return code == RG_OK; }

  // Of what a function of the C interface returned on this thread just now.
  static Error Of(rg_code code) {
    if (code == RG_OK) return {};
    rg_error last = RG_INIT(rg_error);
    rg_last_error(&last);
    return {code, last.message, last.node};
  }
};

// A T, or why there is none. Reading the T of a failure prints the error and ends the process.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : is_(std::move(value)) {}
  Result(Error error) : is_(std::move(error)) {}

  bool ok() const { return is_.index() == 0; }
  const Error& error() const {
    static const Error none;
    return ok() ? none : std::get<1>(is_);
  }
  T& value() & { return Checked(), std::get<0>(is_); }
  const T& value() const& { return Checked(), std::get<0>(is_); }
  T&& value() && { return Checked(), std::get<0>(std::move(is_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void Checked() const {
    if (ok()) return;
    std::fprintf(stderr, "retrograd: %s: %s\n", rg_code_name(std::get<1>(is_).code),
                 std::get<1>(is_).message.c_str());
    std::abort();
  }
  std::variant<T, Error> is_;
};

namespace detail {

template <typename T, void (*destroy)(T*)>
struct Destroyer {
  void operator()(T* handle) const { destroy(handle); }
};
template <typename T, void (*destroy)(T*)>
using Handle = std::unique_ptr<T, Destroyer<T, destroy>>;

// A text that the C interface gave.
inline std::string Text(char* text) {
  std::string copy = text;
  rg_free(text);
  return copy;
}

}  // namespace detail

// ------------------------------------------------------------------------------------ graphs

enum class DType : int32_t {
  kBool = RG_BOOL,
  kInt8 = RG_INT8,
  kUInt8 = RG_UINT8,
  kInt32 = RG_INT32,
  kInt64 = RG_INT64,
  kFp16 = RG_FP16,
  kBf16 = RG_BF16,
  kFp32 = RG_FP32,
  kFp64 = RG_FP64,
  kFp8E4M3 = RG_FP8_E4M3,
  kFp8E5M2 = RG_FP8_E5M2,
  kFp8E4M3Fnuz = RG_FP8_E4M3_FNUZ,
  kFp8E5M2Fnuz = RG_FP8_E5M2_FNUZ,
};

enum class InputKind : int32_t {
  kSaved = RG_SAVED,
  kParameter = RG_PARAMETER,
  kTangent = RG_TANGENT,
  kConstant = RG_CONSTANT,
};

// An input or output of a graph, or the type of a builder's value.
struct Tensor {
  std::string name = {};
  DType dtype = DType::kFp32;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};  // in elements; empty, where it is given: row-major
  InputKind kind = InputKind::kSaved;
  int64_t alignment = 0;  // bytes that divide an input's address; 0: those of one element
  int64_t bytes = 0;      // from the first element to the end of the last; not read
  bool present = true;    // false: an output that nobody computes

  static Tensor Of(const rg_tensor& t) {
    return {.name = t.name,
            .dtype = static_cast<DType>(t.dtype),
            .shape = std::vector<int64_t>(t.shape, t.shape + t.rank),
            .strides = std::vector<int64_t>(t.strides, t.strides + t.rank),
            .kind = static_cast<InputKind>(t.kind),
            .alignment = t.alignment,
            .bytes = t.bytes,
            .present = t.present != 0};
  }
};

// A size that a graph leaves open.
struct Symbol {
  std::string name;
  int64_t min = 0;  // inclusive, as max
  int64_t max = 0;
  int64_t multiple_of = 1;
  int64_t hint = 0;  // for which the graph's shapes stand
};

class Graph {
 public:
  // A graph.proto file, or the text form from a file that ends in .rgt.
  static Result<Graph> Load(const std::string& path) {
    return Made([&](rg_graph** graph) { return rg_graph_load(path.c_str(), graph); });
  }
  // Of the text form.
  static Result<Graph> Parse(std::string_view text) {
    return Made([&](rg_graph** graph) { return rg_graph_parse(text.data(), text.size(), graph); });
  }
  // Of the bytes of a retrograd.v1.Graph.
  static Result<Graph> Deserialize(std::string_view bytes) {
    return Made(
        [&](rg_graph** graph) { return rg_graph_deserialize(bytes.data(), bytes.size(), graph); });
  }
  explicit Graph(rg_graph* handle) : handle_(handle) {}

  // The text form where `path` ends in .rgt, else graph.proto; all of the file or nothing.
  Error Save(const std::string& path) const {
    return Error::Of(rg_graph_save(get(), path.c_str()));
  }
  Result<std::string> Print() const {
    char* text = nullptr;
    if (Error error = Error::Of(rg_graph_print(get(), &text)); !error.ok()) return error;
    return detail::Text(text);
  }
  Result<std::string> Serialize() const {
    void* bytes = nullptr;
    size_t size = 0;
    if (Error error = Error::Of(rg_graph_serialize(get(), &bytes, &size)); !error.ok()) {
      return error;
    }
    std::string copy(static_cast<const char*>(bytes), size);
    rg_free(bytes);
    return copy;
  }

  // The sizes that it leaves open; none of a graph of numbers alone.
  std::vector<Symbol> symbols() const {
    std::vector<Symbol> all;
    for (size_t i = 0; i < rg_graph_num_symbols(get()); ++i) {
      rg_symbol symbol = RG_INIT(rg_symbol);
      if (rg_graph_symbol(get(), i, &symbol) != RG_OK) break;
      all.push_back({symbol.name, symbol.min, symbol.max, symbol.multiple_of, symbol.hint});
    }
    return all;
  }
  // The graph of numbers for these sizes: a value for each symbol.
  Result<Graph> Bind(const std::vector<std::pair<std::string, int64_t>>& sizes) const {
    std::vector<rg_binding> bindings;
    for (const auto& [name, value] : sizes) bindings.push_back({name.c_str(), value});
    return Made([&](rg_graph** bound) {
      return rg_graph_bind(get(), bindings.data(), bindings.size(), bound);
    });
  }

  std::vector<Tensor> inputs() const { return All(rg_graph_num_inputs(get()), rg_graph_input); }
  std::vector<Tensor> outputs() const { return All(rg_graph_num_outputs(get()), rg_graph_output); }
  const rg_graph* get() const { return handle_.get(); }

 private:
  template <typename Make>
  static Result<Graph> Made(Make make) {
    rg_graph* graph = nullptr;
    if (Error error = Error::Of(make(&graph)); !error.ok()) return error;
    return Graph(graph);
  }
  std::vector<Tensor> All(size_t count,
                          rg_code (*read)(const rg_graph*, size_t, rg_tensor*)) const {
    std::vector<Tensor> all;
    for (size_t i = 0; i < count; ++i) {
      rg_tensor tensor = RG_INIT(rg_tensor);
      if (read(get(), i, &tensor) == RG_OK) all.push_back(Tensor::Of(tensor));
    }
    return all;
  }
  detail::Handle<rg_graph, rg_graph_destroy> handle_;
};

// A value of a builder: one result of one node.
using Value = rg_value;

// The attribute of a node: int, float, string or ints.
struct Attribute {
  Attribute(const char* name, int64_t value) : name(name), value(value) {}
  Attribute(const char* name, int value) : name(name), value(int64_t{value}) {}
  Attribute(const char* name, double value) : name(name), value(value) {}
  Attribute(const char* name, const char* value) : name(name), value(std::string(value)) {}
  Attribute(const char* name, std::vector<int64_t> value) : name(name), value(std::move(value)) {}

  const char* name;
  std::variant<int64_t, double, std::string, std::vector<int64_t>> value;
};

// Makes a graph node by node. The first error sticks: later values mean nothing, and Finish returns
// it, so that who builds need not check each call.
class Builder {
 public:
  explicit Builder(const std::string& name) {
    rg_builder* builder = nullptr;
    Note(rg_builder_create(name.c_str(), &builder));
    handle_.reset(builder);
  }

  Value Input(const Tensor& tensor) {
    rg_tensor given = RG_INIT(rg_tensor);
    given.name = tensor.name.c_str();
    given.dtype = static_cast<rg_dtype>(tensor.dtype);
    given.kind = static_cast<rg_input_kind>(tensor.kind);
    given.alignment = tensor.alignment;
    given.rank = static_cast<uint32_t>(tensor.shape.size());
    for (size_t i = 0; i < tensor.shape.size() && i < RG_MAX_RANK; ++i) {
      given.shape[i] = tensor.shape[i];
      if (i < tensor.strides.size()) given.strides[i] = tensor.strides[i];
    }
    Value value = {};
    if (ok()) Note(rg_builder_input(handle_.get(), &given, &value));
    return value;
  }

  // An op by its name (docs/ops.md). Its first result; Nth gives the others.
  Value Add(const char* op, std::span<const Value> operands,
            std::span<const Attribute> attributes = {}) {
    std::vector<rg_attribute> given;
    for (const Attribute& attribute : attributes) given.push_back(Plain(attribute));
    Value value = {};
    if (ok()) {
      Note(rg_builder_add(handle_.get(), op, operands.data(), operands.size(), given.data(),
                          given.size(), &value));
    }
    return value;
  }
  Value Add(const char* op, std::initializer_list<Value> operands,
            std::initializer_list<Attribute> attributes = {}) {
    return Add(op, std::span(operands.begin(), operands.size()),
               std::span(attributes.begin(), attributes.size()));
  }
  static Value Nth(Value first, uint32_t result) { return {first.node, result}; }

  // A constant of rank 0, which broadcasts.
  Value Scalar(double value, DType dtype) {
    return Add("full", {},
               {{"value", value}, {"dtype", NameOf(dtype)}, {"shape", std::vector<int64_t>{}}});
  }

  // Dtype and shape.
  Tensor TypeOf(Value value) {
    rg_tensor tensor = RG_INIT(rg_tensor);
    if (ok()) Note(rg_builder_type(handle_.get(), value, &tensor));
    return tensor.name == nullptr ? Tensor() : Tensor::Of(tensor);
  }

  // strides: in elements; empty: row-major.
  void Output(Value value, const std::string& name, const std::vector<int64_t>& strides = {}) {
    if (!ok()) return;
    Note(rg_builder_output(handle_.get(), value, name.c_str(),
                           strides.empty() ? nullptr : strides.data()));
  }

  // For who builds from parts: an error of its own, which sticks as any other.
  Value Fail(std::string message) {
    if (ok()) error_ = {RG_INVALID_ARGUMENT, std::move(message), -1};
    return {};
  }

  Result<Graph> Finish() {
    rg_graph* graph = nullptr;
    if (ok()) Note(rg_builder_finish(handle_.get(), &graph));
    if (!ok()) return error_;
    return Graph(graph);
  }

  bool ok() const { return error_.ok(); }
  const Error& error() const { return error_; }

  // "f32", as attributes and the text form have it.
  static const char* NameOf(DType dtype) {
    static constexpr const char* kNames[] = {"",    "bool", "i8",   "u8",  "i32",
                                             "i64", "f16",  "bf16", "f32", "f64"};
    return kNames[static_cast<int32_t>(dtype)];
  }

 private:
  void Note(rg_code code) {
    if (code != RG_OK && error_.ok()) error_ = Error::Of(code);
  }
  // Points into the attribute.
  static rg_attribute Plain(const Attribute& attribute) {
    rg_attribute plain = {};
    plain.name = attribute.name;
    plain.kind = static_cast<rg_attribute_kind>(attribute.value.index() + 1);
    if (const auto* i = std::get_if<0>(&attribute.value)) plain.int_value = *i;
    if (const auto* f = std::get_if<1>(&attribute.value)) plain.float_value = *f;
    if (const auto* s = std::get_if<2>(&attribute.value)) plain.string_value = s->c_str();
    if (const auto* ints = std::get_if<3>(&attribute.value)) {
      plain.ints = ints->data();
      plain.num_ints = ints->size();
    }
    return plain;
  }
  static_assert(RG_ATTRIBUTE_INT == 1 && RG_ATTRIBUTE_FLOAT == 2 && RG_ATTRIBUTE_STRING == 3 &&
                RG_ATTRIBUTE_INTS == 4);

  detail::Handle<rg_builder, rg_builder_destroy> handle_;
  Error error_;
};

// ----------------------------------------------------------------------------------- devices

struct DeviceOptions {
  std::string name = "host";   // "host", "cuda", "cuda:1", "hip", "hip:1"
  std::string cache_dir = {};  // empty: the user's
  bool cache = true;           // of compiled kernels and timed choices, on disk
  int compile_jobs = 0;        // threads or compilers at once; 0: one a core, at most 8
  rg_allocator allocator = {};
  std::string tuned = {};      // a file of `retrograd tune`; empty: none
  double tuning_budget_s = 0;  // for timing library calls; 0: no limit
};

class Device {
 public:
  static Result<Device> Make(const DeviceOptions& options = {}) {
    rg_device_options given = RG_INIT(rg_device_options);
    given.name = options.name.c_str();
    given.cache_dir = options.cache_dir.empty() ? nullptr : options.cache_dir.c_str();
    given.no_cache = options.cache ? 0 : 1;
    given.compile_jobs = options.compile_jobs;
    given.allocator = options.allocator;
    given.tuned = options.tuned.empty() ? nullptr : options.tuned.c_str();
    given.tuning_budget_s = options.tuning_budget_s;
    rg_device* device = nullptr;
    if (Error error = Error::Of(rg_device_create(&given, &device)); !error.ok()) return error;
    return Device(device);
  }
  explicit Device(rg_device* handle) : handle_(handle) {}

  std::string model() const { return rg_device_model(get()); }
  rg_device* get() const { return handle_.get(); }

 private:
  detail::Handle<rg_device, rg_device_destroy> handle_;
};

// Memory of a device, which must outlive it.
class Memory {
 public:
  static Result<Memory> Of(const Device& device, size_t bytes) {
    void* data = nullptr;
    if (Error error = Error::Of(rg_device_allocate(device.get(), bytes, &data)); !error.ok()) {
      return error;
    }
    return Memory(device.get(), data, bytes);
  }
  Memory(Memory&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) rg_device_release(device_, data_);
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // As many bytes as it has. Copies have happened when they return.
  Error CopyIn(const void* from_host) {
    return Error::Of(rg_device_copy_in(device_, data_, from_host, bytes_));
  }
  Error CopyOut(void* to_host) const {
    return Error::Of(rg_device_copy_out(device_, to_host, data_, bytes_));
  }

 private:
  Memory(rg_device* device, void* data, size_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  rg_device* device_;
  void* data_;
  size_t bytes_;
};

// ----------------------------------------------------------------- cancel, plans, executables

// Ends the making of plans and executables early, from any thread.
class Cancellation {
 public:
  Cancellation() {
    rg_cancellation* cancellation = nullptr;
    if (rg_cancellation_create(&cancellation) == RG_OK) handle_.reset(cancellation);
  }
  void Cancel() const { rg_cancellation_cancel(get()); }
  rg_cancellation* get() const { return handle_.get(); }

 private:
  detail::Handle<rg_cancellation, rg_cancellation_destroy> handle_;
};

enum class Format : int32_t { kText = RG_TEXT, kJson = RG_JSON, kHtml = RG_HTML };

struct PlanOptions {
  std::string spec = {};         // a device spec by name or file; empty: of the reference GPU
  int64_t max_memory_bytes = 0;  // of inputs, outputs and workspace together; 0: no ceiling
  const Cancellation* cancellation = nullptr;
  std::string settings = {};  // a JSON object (docs/embedding.md); empty: none
};

class Plan {
 public:
  static Result<Plan> Make(const Graph& graph, const PlanOptions& options = {}) {
    rg_plan_options given = RG_INIT(rg_plan_options);
    given.spec = options.spec.empty() ? nullptr : options.spec.c_str();
    given.max_memory_bytes = options.max_memory_bytes;
    given.cancellation = options.cancellation == nullptr ? nullptr : options.cancellation->get();
    given.settings = options.settings.empty() ? nullptr : options.settings.c_str();
    rg_plan* plan = nullptr;
    if (Error error = Error::Of(rg_plan_create(graph.get(), &given, &plan)); !error.ok()) {
      return error;
    }
    return Plan(plan);
  }
  explicit Plan(rg_plan* handle) : handle_(handle) {}

  Result<std::string> Explain(Format format = Format::kText) const {
    char* text = nullptr;
    const rg_code code = rg_plan_explain(get(), static_cast<rg_format>(format), &text);
    if (Error error = Error::Of(code); !error.ok()) return error;
    return detail::Text(text);
  }
  double predicted_ns() const {
    double ns = 0;
    rg_plan_cost(get(), &ns, nullptr);
    return ns;
  }
  // Kernels and library calls.
  int64_t num_kernels() const {
    int64_t kernels = 0;
    rg_plan_cost(get(), nullptr, &kernels);
    return kernels;
  }
  const rg_plan* get() const { return handle_.get(); }

 private:
  detail::Handle<rg_plan, rg_plan_destroy> handle_;
};

enum class Stage : int32_t { kPlan = RG_STAGE_PLAN, kCompile = RG_STAGE_COMPILE };

struct ExecutableOptions {
  std::string spec = {};          // a device spec by name or file; empty: that of the device
  int64_t max_memory_bytes = 0;   // of inputs, outputs and workspace together; 0: no ceiling
  int streams = 1;                // that independent work is spread over
  bool caller_workspace = false;  // each run is given its workspace
  // By output: 1: the gradient is added to what its memory holds; empty: none is.
  std::vector<uint8_t> accumulate = {};
  std::function<bool(Stage, std::string_view)> progress = {};  // false: cancel
  std::function<void(std::string_view)> log = {};
  const Cancellation* cancellation = nullptr;
  std::string settings = {};  // a JSON object (docs/embedding.md); empty: none
  int max_phases = 1;         // that a run may be cut into, with caller_workspace: see rg_phases
};

class Executable {
 public:
  static Result<Executable> Make(const Graph& graph, const Device& device,
                                 const ExecutableOptions& options = {}) {
    rg_executable_options given = RG_INIT(rg_executable_options);
    given.spec = options.spec.empty() ? nullptr : options.spec.c_str();
    given.max_memory_bytes = options.max_memory_bytes;
    given.streams = options.streams;
    given.caller_workspace = options.caller_workspace ? 1 : 0;
    given.accumulate = options.accumulate.empty() ? nullptr : options.accumulate.data();
    given.num_accumulate = options.accumulate.size();
    if (options.progress) {
      given.progress = [](void* user, rg_stage stage, const char* what) -> int32_t {
        const auto& made = *static_cast<const ExecutableOptions*>(user);
        return made.progress(static_cast<Stage>(stage), what) ? 0 : 1;
      };
    }
    if (options.log) {
      given.log = [](void* user, const char* line) {
        static_cast<const ExecutableOptions*>(user)->log(line);
      };
    }
    given.progress_user = given.log_user = const_cast<ExecutableOptions*>(&options);
    given.cancellation = options.cancellation == nullptr ? nullptr : options.cancellation->get();
    given.settings = options.settings.empty() ? nullptr : options.settings.c_str();
    given.max_phases = options.max_phases;
    rg_executable* executable = nullptr;
    const rg_code code = rg_executable_create(graph.get(), device.get(), &given, &executable);
    if (Error error = Error::Of(code); !error.ok()) return error;
    return Executable(executable);
  }
  explicit Executable(rg_executable* handle) : handle_(handle) {}

  // Issues one run on `stream` (null: the default one) and does not wait. Addresses of first
  // elements, in the graph's order. The workspace is given with caller_workspace alone.
  Error Run(void* stream, std::span<const void* const> inputs, std::span<void* const> outputs,
            void* workspace = nullptr, size_t workspace_bytes = 0) {
    rg_run run = RG_INIT(rg_run);
    run.stream = stream;
    run.inputs = inputs.data();
    run.num_inputs = inputs.size();
    run.outputs = outputs.data();
    run.num_outputs = outputs.size();
    run.workspace = workspace;
    run.workspace_bytes = workspace_bytes;
    return Error::Of(rg_executable_run(get(), &run));
  }

  // The same in phases: before(phase) is called before each but the first, and may let go of inputs
  // and blocks, and write into the arrays behind `outputs` and `blocks` (see rg_run). False ends
  // it.
  Error Run(void* stream, std::span<const void* const> inputs, std::span<void* const> outputs,
            std::span<void* const> blocks, const std::function<bool(uint32_t)>& before) {
    rg_run run = RG_INIT(rg_run);
    run.stream = stream;
    run.inputs = inputs.data();
    run.num_inputs = inputs.size();
    run.outputs = outputs.data();
    run.num_outputs = outputs.size();
    run.blocks = blocks.data();
    run.num_blocks = blocks.size();
    run.phase_user = const_cast<std::function<bool(uint32_t)>*>(&before);
    run.before_phase = [](void* user, uint32_t phase) -> int32_t {
      return (*static_cast<const std::function<bool(uint32_t)>*>(user))(phase) ? 0 : 1;
    };
    return Error::Of(rg_executable_run(get(), &run));
  }
  // Its arrays live as long as the executable.
  rg_phases phases() const {
    rg_phases phases = RG_INIT(rg_phases);
    rg_executable_phases(get(), &phases);
    return phases;
  }

  size_t workspace_bytes() const {
    size_t bytes = 0;
    rg_executable_workspace(get(), &bytes, nullptr);
    return bytes;
  }
  size_t workspace_alignment() const {
    size_t alignment = 1;
    rg_executable_workspace(get(), nullptr, &alignment);
    return alignment;
  }
  // Bytes that it holds as long as it lives (rg_executable_memory); 0 if it is not runnable.
  size_t host_bytes() const {
    size_t bytes = 0;
    rg_executable_memory(get(), &bytes, nullptr);
    return bytes;
  }
  size_t device_bytes() const {
    size_t bytes = 0;
    rg_executable_memory(get(), nullptr, &bytes);
    return bytes;
  }
  // A JSON object: what it is, and what it did so far.
  Result<std::string> Describe() const {
    char* json = nullptr;
    if (Error error = Error::Of(rg_executable_describe(get(), &json)); !error.ok()) return error;
    return detail::Text(json);
  }
  Result<std::string> Explain(Format format = Format::kText) const {
    char* text = nullptr;
    const rg_code code = rg_executable_explain(get(), static_cast<rg_format>(format), &text);
    if (Error error = Error::Of(code); !error.ok()) return error;
    return detail::Text(text);
  }
  double last_run_us() const { return rg_executable_last_run_us(get()); }
  rg_executable* get() const { return handle_.get(); }

 private:
  detail::Handle<rg_executable, rg_executable_destroy> handle_;
};

}  // namespace v0
}  // namespace retrograd

#endif  // RETROGRAD_RETROGRAD_HPP_
