#include "runtime/devices/host_device.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/device/lift_launches.h"
#include "runtime/host/host_launch.h"
#include "runtime/ops/attention/host_attention.h"
#include "runtime/ops/convolution/generated_convolution.h"
#include "runtime/ops/convolution/host_convolution.h"
#include "runtime/ops/convolution/shared_products_call.h"
#include "runtime/ops/grouped_matmul/generated_grouped_matmul.h"
#include "runtime/ops/matmul/host_matmul.h"
#include "runtime/ops/scatter_lines/generated_scatter_lines.h"
#include "runtime/ops/segment_amax/generated_segment_amax.h"
#include "runtime/ops/sort_indices/generated_sort.h"

namespace retrograd {
namespace {

constexpr int kPoison = 0xff;  // every floating type reads it as NaN

struct PreparedLaunch {
  HostKernel kernel;
  int64_t blocks = 1;
  int threads = 1;
  std::vector<uint32_t> slots;
  std::vector<HostArg> args;  // addresses are filled in at each launch
};

class HostKernels : public LoadedKernels {
 public:
  std::vector<std::shared_ptr<HostModule>> modules;
  std::vector<PreparedLaunch> launches;
  absl::Span<void* const> table;  // the caller's
};

// A call in the checking build: what it has stored may be read from then on.
class CheckedCall : public LoadedCall {
 public:
  CheckedCall(std::unique_ptr<LoadedCall> call, const Call& of, HostLauncher& launcher)
      : LoadedCall(call->scratch_bytes()),
        call_(std::move(call)),
        results_(of.results),
        launcher_(launcher) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    RG_RETURN_IF_ERROR(call_->Run(stream, pointers, scratch));
    for (size_t i = 0; i < results_.size(); ++i) {
      launcher_.MarkDefined(pointers.results[i],
                            SpanOf(results_[i]) * SizeBytes(results_[i].dtype));
    }
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<LoadedCall> call_;
  const std::vector<CallTensor> results_;
  HostLauncher& launcher_;
};

// Who makes the calls of each op.
struct HostOp {
  Op op;
  absl::StatusOr<std::unique_ptr<LoadedCall>> (*load)(const Call& call);
};
constexpr HostOp kHostOps[] = {
    {Op::matmul, LoadHostMatMul},
    {Op::attention_backward, LoadHostAttention},
    {Op::convolution, LoadHostConvolution},
    {Op::convolution_input_gradient, LoadHostConvolution},
    {Op::convolution_weight_gradient, LoadHostConvolution},
};

// Of the calling thread.
double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

HostContents ToHost(Contents contents) {
  switch (contents) {
    case Contents::kDefined: return HostContents::kDefined;
    case Contents::kWritten: return HostContents::kTracked;
    case Contents::kFresh: return HostContents::kUndefined;
  }
  return HostContents::kDefined;
}

class HostDevice : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options) : options_(options) {
    if (options.shared_kernels) program_ = options.shared_kernels->families().NewProgram();
  }

  absl::string_view name() const override { return "host"; }
  DeviceFacts Describe() const override {
    return {.model = std::string(name()), .warp = options_.compile.warp};
  }
  Dialect dialect() const override { return Dialect::kHost; }
  // As a GPU of 32 threads a warp does.
  bool loads_boxes() const override { return options_.compile.warp == 32; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    // Allocating succeeds for more than there is, and the process dies when it is used.
    const int64_t installed = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    void* data = nullptr;
    const int64_t rounded =
        bytes > installed ? 0 : (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    if (rounded > 0) data = std::aligned_alloc(kArenaAlignment, static_cast<size_t>(rounded));
    if (data == nullptr) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%d bytes of memory asked for; the host has %d in all", bytes, installed));
    }
    if (options_.compile.check) std::memset(data, kPoison, static_cast<size_t>(rounded));
    return data;
  }
  void Free(void* data) override { std::free(data); }

  absl::Status CopyIn(void* device, const void* host, int64_t bytes) override {
    std::memcpy(device, host, static_cast<size_t>(bytes));
    launcher_.MarkDefined(device, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyOut(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, device, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<LoadedKernels>> Load(
      absl::Span<const Kernel> kernels, absl::Span<const retrograd::Launch> launches) override {
    auto loaded = std::make_unique<HostKernels>();
    if (launches.empty()) return loaded;
    if (options_.shared_kernels == nullptr) {
      RG_ASSIGN_OR_RETURN(std::shared_ptr<HostModule> module,
                          HostModule::Compile(kernels, options_.compile));
      loaded->modules.push_back(module);
      const auto of_all = [&](const std::string&) { return module; };
      RG_RETURN_IF_ERROR(Prepare(launches, of_all, *loaded));
      return loaded;
    }
    SharedKernels<HostModule>& shared = *options_.shared_kernels;
    const LiftedLaunches lifted = LiftLaunches(shared.families(), program_, kernels, launches);
    RG_ASSIGN_OR_RETURN(const auto compiled, CompileMissing(lifted.kernels));
    const auto of_each = [&](const std::string& kernel) {
      const auto own = compiled.find(kernel);
      return loaded->modules.emplace_back(own != compiled.end() ? own->second
                                                                : shared.Find(kernel));
    };
    RG_RETURN_IF_ERROR(Prepare(lifted.launches, of_each, *loaded));
    return loaded;
  }

  absl::StatusOr<std::unique_ptr<LoadedCall>> LoadTogether(
      absl::Span<const ExpectedCall> calls) override {
    if (calls[0].call->op == Op::sort_indices) return LoadSharedSorts(*this, calls);
    return LoadSharedProducts(*this, calls, ConvolutionLimits(*this, *calls[0].facts));
  }

  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override {
    if (call.op == Op::sort_indices)
      return LoadGeneratedSort(*this, call, IndexSortOf(call, facts));
    if (call.op == Op::scatter_lines) return LoadGeneratedScatterLines(*this, call, facts);
    if (call.op == Op::segment_amax) return LoadGeneratedSegmentAmax(*this, call, facts);
    if (call.op == Op::grouped_matmul) return LoadGeneratedGroupedMatMul(*this, call, facts);
    for (const HostOp& row : kHostOps) {
      if (row.op != call.op) continue;
      if (row.load == LoadHostConvolution &&
          !Has(options_.convolution.Of(call.op), ConvolutionBackend::kCudnn)) {
        auto generated = LoadGeneratedConvolution(*this, call, facts, 1);
        if (generated.ok()) return std::move(generated->front());
        if (!absl::IsUnimplemented(generated.status())) return generated.status();
      }
      RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCall> loaded, row.load(call));
      if (!options_.compile.check) return loaded;
      return std::make_unique<CheckedCall>(std::move(loaded), call, launcher_);
    }
    return absl::UnimplementedError(absl::StrFormat("%s %%%d: the host has no implementation",
                                                    Name(call.op), Index(call.node)));
  }

  absl::Status Reserve(int, int) override { return absl::OkStatus(); }
  absl::Status UseStream(std::optional<void*>) override { return absl::OkStatus(); }

  absl::Status Bind(int, LoadedKernels& kernels, absl::Span<void* const> table) override {
    static_cast<HostKernels&>(kernels).table = table;
    return absl::OkStatus();
  }

  absl::Status Launch(int, LoadedKernels& kernels, size_t launch) override {
    auto& loaded = static_cast<HostKernels&>(kernels);
    PreparedLaunch& prepared = loaded.launches[launch];
    for (size_t i = 0; i < prepared.slots.size(); ++i) {
      prepared.args[i].data = loaded.table[prepared.slots[i]];
    }
    return launcher_.Run(prepared.kernel, prepared.blocks, prepared.threads, prepared.args,
                         {.seed = options_.seed});
  }

  absl::Status CopyStrided(int, DType dtype, absl::Span<const int64_t> shape, void* to,
                           absl::Span<const int64_t> to_strides, const void* from,
                           absl::Span<const int64_t> from_strides) override {
    const int64_t size = SizeBytes(dtype);
    int64_t index[kMaxRank] = {};
    const int64_t elements = Elements(shape);
    for (int64_t i = 0; i < elements; ++i) {
      int64_t to_offset = 0, from_offset = 0;
      for (size_t d = 0; d < shape.size(); ++d) {
        to_offset += index[d] * to_strides[d];
        from_offset += index[d] * from_strides[d];
      }
      std::memcpy(static_cast<char*>(to) + to_offset * size,
                  static_cast<const char*>(from) + from_offset * size, static_cast<size_t>(size));
      for (size_t d = shape.size(); d-- > 0;) {
        if (++index[d] < shape[d]) break;
        index[d] = 0;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Record(int, int) override { return absl::OkStatus(); }
  absl::Status Wait(int, int) override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

  // Processor time; the caches stay as they are.
  absl::StatusOr<TimeSamples> Time(absl::FunctionRef<absl::Status()> work, int repetitions,
                                   bool) override {
    TimeSamples samples;
    for (int i = 0; i < repetitions; ++i) {
      const double start = ProcessorSeconds();
      RG_RETURN_IF_ERROR(work());
      samples.push_back(1e6 * (ProcessorSeconds() - start));
    }
    return samples;
  }

  absl::Status ReserveMarks(int marks) override {
    if (marks > static_cast<int>(marks_.size())) marks_.resize(static_cast<size_t>(marks));
    return absl::OkStatus();
  }
  absl::Status Mark(int, int mark) override {
    marks_[static_cast<size_t>(mark)] = std::chrono::steady_clock::now();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<double>> MarkTimes(int marks) override {
    std::vector<double> times(static_cast<size_t>(marks));
    for (size_t i = 0; i < times.size(); ++i) {
      times[i] = std::chrono::duration<double, std::micro>(marks_[i] - marks_[0]).count();
    }
    return times;
  }

 private:
  using Modules = std::map<std::string, std::shared_ptr<HostModule>>;  // by kernel

  // Of those that no program has compiled.
  absl::StatusOr<Modules> CompileMissing(const std::vector<Kernel>& kernels) {
    SharedKernels<HostModule>& shared = *options_.shared_kernels;
    Modules made;
    std::vector<Kernel> missing;
    for (const Kernel& kernel : kernels) {
      if (shared.Find(kernel.name) == nullptr) missing.push_back(kernel);
    }
    if (missing.empty()) return made;
    RG_ASSIGN_OR_RETURN(const std::shared_ptr<HostModule> module,
                        HostModule::Compile(missing, options_.compile));
    for (const Kernel& kernel : missing) {
      made[kernel.name] = module;
      if (!kernel.direct) shared.Add(kernel.name, module);  // the others are of one size
    }
    return made;
  }

  // module_of(kernel): where it is, or null.
  template <typename ModuleOf>
  absl::Status Prepare(absl::Span<const retrograd::Launch> launches, const ModuleOf& module_of,
                       HostKernels& loaded) {
    for (const retrograd::Launch& launch : launches) {
      PreparedLaunch prepared{.blocks = launch.blocks, .threads = launch.threads};
      const std::shared_ptr<HostModule> module = module_of(launch.kernel);
      if (module == nullptr) {
        return absl::NotFoundError(absl::StrFormat("no host kernel %s", launch.kernel));
      }
      RG_ASSIGN_OR_RETURN(prepared.kernel, module->Find(launch.kernel));
      for (const LaunchArg& arg : launch.args) {
        prepared.slots.push_back(arg.slot);
        prepared.args.push_back({.bytes = arg.bytes,
                                 .alignment = arg.alignment,
                                 .written = arg.written,
                                 .contents = ToHost(arg.contents)});
      }
      for (int32_t word : launch.numbers) {
        const auto bits = static_cast<uintptr_t>(static_cast<uint32_t>(word));
        prepared.args.push_back({.data = reinterpret_cast<void*>(bits), .alignment = 1});  // NOLINT
      }
      RG_RETURN_IF_ERROR(launcher_.Reserve(prepared.kernel));
      loaded.launches.push_back(std::move(prepared));
    }
    return absl::OkStatus();
  }

  const HostDeviceOptions options_;
  int64_t program_ = 0;  // of options_.shared_kernels
  HostLauncher launcher_;
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace retrograd
