#include "runtime/gpu/gpu_device.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/plan/call_key.h"
#include "graph/base/status.h"
#include "runtime/compiler/arch.h"
#include "runtime/gpu/gpu_support_kernels.h"

namespace retrograd {
namespace {

std::string SharedKey(absl::string_view arch, absl::string_view kernel) {
  return absl::StrCat(arch, " ", kernel);
}

}  // namespace

GpuDevice::~GpuDevice() { Stop(); }

void GpuDevice::Stop() {
  compiler_.reset();
  if (!open()) return;
  support_.reset();
  {
    const CurrentContext current(driver_, context());
    shared_loaders_.clear();
    loaders_.clear();  // they destroy their libraries' handles
    if (current.status().ok()) {
      for (GpuEvent event : events_) driver_.EventDestroy(event);
      for (GpuEvent event : marks_) driver_.EventDestroy(event);
      for (GpuStream stream : streams_) driver_.StreamDestroy(stream);
    }
  }
  driver_.Close(context());
  context_.reset();
}

absl::Status GpuDevice::Start() {
  const std::string here = absl::StrCat(name(), ":", options_.ordinal);
  int devices = 0, device = 0;
  RG_GPU(driver_, DeviceGetCount, &devices);
  if (options_.ordinal < 0 || options_.ordinal >= devices) {
    return absl::UnavailableError(
        absl::StrFormat("%s: the driver shows %d devices, numbered from 0", here, devices));
  }
  RG_GPU(driver_, DeviceGet, &device, options_.ordinal);
  absl::StatusOr<GpuFacts> facts = driver_.Describe(device);
  if (!facts.ok()) {
    return absl::Status(facts.status().code(), absl::StrCat(here, ": ", facts.status().message()));
  }
  facts_ = *std::move(facts);
  if (options_.cache) {
    absl::StatusOr<ModuleCache> opened = ModuleCache::Open(
        options_.cache_dir.empty() ? ModuleCache::DefaultDirectory(name()) : options_.cache_dir,
        options_.cache_bytes);
    if (opened.ok()) cache_ = *std::move(opened);  // no reason to fail
  }
  GpuCompileOptions compile = options_.compile;
  compile.rtc.sms = facts_.sms;
  compiler_.emplace(dialect(), std::move(compile), Cache());
  if (options_.shared_kernels) program_ = options_.shared_kernels->families().NewProgram();
  tuner_.emplace(*this,
                 TunerOptions{.device = absl::StrFormat("%s, %s, %d multiprocessors", facts_.model,
                                                        facts_.arch, facts_.sms),
                              .cache = Cache(),
                              .time = options_.time_calls,
                              .tuning = options_.tuning});
  RG_ASSIGN_OR_RETURN(context_, driver_.Open(device));
  RG_WITH_CONTEXT();
  RG_RETURN_IF_ERROR(Reserve(1, 0));
  support_ = std::make_unique<GpuKernels>(driver_, context());
  RG_RETURN_IF_ERROR(LoadSupport());
  RG_ASSIGN_OR_RETURN(set_table_, support_->Find("rg_set_table"));
  RG_ASSIGN_OR_RETURN(copy_strided_, support_->Find("rg_copy_strided"));
  RG_ASSIGN_OR_RETURN(spin_, support_->Find("rg_spin"));
  RG_ASSIGN_OR_RETURN(fill_, support_->Find("rg_fill"));
  return absl::OkStatus();
}

absl::Status GpuDevice::LoadSupport() {
  const std::string key = SharedKey(facts_.arch, "support");
  std::shared_ptr<SharedCode> code;
  if (options_.shared_kernels) code = options_.shared_kernels->Find(key);
  if (code == nullptr) {
    RG_ASSIGN_OR_RETURN(
        CompiledObject object,
        CompileCached(dialect(), kGpuSupportKernels, facts_.arch, options_.compile.rtc, Cache()));
    code = std::make_shared<SharedCode>(std::move(object));
    if (options_.shared_kernels) options_.shared_kernels->Add(key, code);
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<LoadedModule> module, code->In(driver_, context()));
  support_->AddModule(std::move(module));
  return absl::OkStatus();
}

absl::StatusOr<void*> GpuDevice::Allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  RG_WITH_CONTEXT();
  void* data = nullptr;
  const int result = driver_.MemAlloc(&data, static_cast<size_t>(bytes));
  if (result == kGpuOutOfMemory) {
    size_t free = 0, total = 0;
    driver_.MemGetInfo(&free, &total);
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d bytes of memory asked for; of the %d of %s:%d %d are free", bytes,
                        total, name(), options_.ordinal, free));
  }
  RG_RETURN_IF_ERROR(driver_.StatusOf(result, driver_.MemAlloc.name));
  return data;
}

void GpuDevice::Free(void* data) {
  if (data == nullptr) return;
  const CurrentContext current(driver_, context());
  if (current.status().ok()) driver_.MemFree(data);
}

absl::Status GpuDevice::CopyIn(void* device, const void* host, int64_t bytes) {
  RG_WITH_CONTEXT();
  if (bytes == 0) return absl::OkStatus();
  RG_GPU(driver_, MemcpyHtoDAsync, device, host, static_cast<size_t>(bytes), Stream(0));
  RG_GPU(driver_, StreamSynchronize, Stream(0));
  return absl::OkStatus();
}

absl::Status GpuDevice::CopyOut(void* host, const void* device, int64_t bytes) {
  RG_WITH_CONTEXT();
  if (bytes == 0) return absl::OkStatus();
  RG_GPU(driver_, MemcpyDtoHAsync, host, device, static_cast<size_t>(bytes), Stream(0));
  RG_GPU(driver_, StreamSynchronize, Stream(0));
  return absl::OkStatus();
}

absl::Status GpuDevice::Reserve(int streams, int events) {
  RG_WITH_CONTEXT();
  while (static_cast<int>(streams_.size()) < streams) {
    GpuStream stream = nullptr;
    RG_GPU(driver_, StreamCreate, &stream, kGpuNonBlockingStream);
    streams_.push_back(stream);
  }
  while (static_cast<int>(events_.size()) < events) {
    GpuEvent event = nullptr;
    RG_GPU(driver_, EventCreate, &event, kGpuUntimedEvent);
    events_.push_back(event);
  }
  return absl::OkStatus();
}

void GpuDevice::Expect(absl::Span<const ExpectedCall> calls, absl::Span<const Kernel> kernels,
                       absl::Span<const retrograd::Launch> launches) {
  compiler_->Forget();
  for (size_t first = 0; first < calls.size();) {
    size_t end = first + 1;
    while (end < calls.size() && calls[end].together) ++end;
    ExpectTogether(calls.subspan(first, end - first));
    first = end;
  }
  if (!launches.empty()) ExpectKernels(kernels, ArchFor(kernels, facts_.arch));
}

// A call, or several that share launches. What is timed against the calls one by one is compiled in
// both ways; sorts are not.
void GpuDevice::ExpectTogether(absl::Span<const ExpectedCall> calls) {
  const auto expect = [&](const std::vector<Kernel>& kernels) {
    if (!kernels.empty()) ExpectKernels(kernels, ArchFor(kernels, facts_.arch));
  };
  SharedCallLoader* const shared = calls.size() > 1 ? SharedLoaderOf(calls) : nullptr;
  if (shared == nullptr || shared->times_each()) {
    for (const ExpectedCall& expected : calls) {
      const auto loader = loaders_.find(expected.call->op);
      if (loader == loaders_.end()) continue;
      expect(loader->second->KernelsOf(*expected.call, *expected.facts));
    }
  }
  if (shared != nullptr) expect(shared->KernelsOf(calls));
}

void GpuDevice::ExpectKernels(absl::Span<const Kernel> kernels, absl::string_view arch) {
  if (options_.shared_kernels == nullptr) {
    compiler_->Expect(kernels, arch);
    return;
  }
  const LiftedLaunches lifted =
      LiftLaunches(options_.shared_kernels->families(), program_, kernels, {});
  const std::vector<Kernel> missing = Missing(lifted.kernels, arch);
  if (!missing.empty()) compiler_->Expect(missing, arch);
}

std::vector<Kernel> GpuDevice::Missing(absl::Span<const Kernel> kernels,
                                       absl::string_view arch) const {
  std::vector<Kernel> missing;
  for (const Kernel& kernel : kernels) {
    if (options_.shared_kernels->Find(SharedKey(arch, kernel.name)) == nullptr) {
      missing.push_back(kernel);
    }
  }
  return missing;
}

absl::StatusOr<std::unique_ptr<GpuKernels>> GpuDevice::LoadShared(const LiftedLaunches& lifted) {
  SharedKernels<SharedCode>& shared = *options_.shared_kernels;
  const std::string arch = ArchFor(lifted.kernels, facts_.arch);
  const std::vector<Kernel> missing = Missing(lifted.kernels, arch);
  RG_ASSIGN_OR_RETURN(std::vector<CompiledObject> objects, compiler_->Compile(missing, arch));
  const std::vector<std::vector<Kernel>> parts = Parts(missing, Jobs(options_.compile));
  RG_CHECK(parts.size() == objects.size());
  std::map<std::string, std::shared_ptr<SharedCode>> made;
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto code = std::make_shared<SharedCode>(std::move(objects[p]));
    for (const Kernel& kernel : parts[p]) {
      made[kernel.name] = code;
      // One without a table is of one size.
      if (!kernel.direct) shared.Add(SharedKey(arch, kernel.name), code);
    }
  }
  auto loaded = std::make_unique<GpuKernels>(driver_, context());
  std::set<std::shared_ptr<SharedCode>> there;
  for (const auto& [name, lifted_name] : lifted.names) {
    const auto own = made.find(lifted_name);
    const std::shared_ptr<SharedCode> code =
        own != made.end() ? own->second : shared.Find(SharedKey(arch, lifted_name));
    RG_CHECK(code != nullptr);
    if (there.insert(code).second) {
      RG_ASSIGN_OR_RETURN(std::shared_ptr<LoadedModule> module, code->In(driver_, context()));
      loaded->AddModule(std::move(module));
    }
    for (KernelResources resources : code->object().kernels) {
      if (resources.name != lifted_name) continue;
      resources.name = name;
      loaded->AddResources({resources});
    }
  }
  return loaded;
}

absl::StatusOr<std::unique_ptr<GpuKernels>> GpuDevice::LoadKernels(
    absl::Span<const Kernel> kernels, absl::Span<const retrograd::Launch> launches) {
  if (options_.shared_kernels != nullptr && !launches.empty()) {
    const LiftedLaunches lifted =
        LiftLaunches(options_.shared_kernels->families(), program_, kernels, launches);
    RG_ASSIGN_OR_RETURN(std::unique_ptr<GpuKernels> loaded, LoadShared(lifted));
    RG_RETURN_IF_ERROR(loaded->Prepare(lifted.launches, static_cast<int>(facts_.sms)));
    return loaded;
  }
  auto loaded = std::make_unique<GpuKernels>(driver_, context());
  if (!launches.empty()) {
    RG_ASSIGN_OR_RETURN(const std::vector<CompiledObject> objects,
                        compiler_->Compile(kernels, ArchFor(kernels, facts_.arch)));
    for (const CompiledObject& object : objects) {
      RG_RETURN_IF_ERROR(loaded->AddModule(object.code));
      loaded->AddResources(object.kernels);
    }
  }
  RG_RETURN_IF_ERROR(loaded->Prepare(launches, static_cast<int>(facts_.sms)));
  return loaded;
}

absl::StatusOr<std::unique_ptr<LoadedKernels>> GpuDevice::Load(
    absl::Span<const Kernel> kernels, absl::Span<const retrograd::Launch> launches) {
  RG_WITH_CONTEXT();
  return LoadKernels(kernels, launches);
}

absl::StatusOr<std::unique_ptr<LoadedCall>> GpuDevice::Load(const Call& call,
                                                            const CallFacts& facts) {
  const auto loader = loaders_.find(call.op);
  if (loader == loaders_.end()) {
    return absl::UnimplementedError(absl::StrCat(Name(call.op), " %", Index(call.node), ": ",
                                                 name(), " has no implementation"));
  }
  RG_WITH_CONTEXT();
  tuner_->Begin(CallKey(call));
  absl::StatusOr<std::unique_ptr<LoadedCall>> loaded = loader->second->Load(call, facts);
  tuner_->End();
  return loaded;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> GpuDevice::LoadTogether(
    absl::Span<const ExpectedCall> calls) {
  SharedCallLoader* const loader = SharedLoaderOf(calls);
  if (loader == nullptr) return Device::LoadTogether(calls);
  RG_WITH_CONTEXT();
  return loader->Load(calls);
}

SharedCallLoader* GpuDevice::SharedLoaderOf(absl::Span<const ExpectedCall> calls) const {
  const auto loader = shared_loaders_.find(calls[0].call->op);
  return loader == shared_loaders_.end() ? nullptr : loader->second.get();
}

absl::Status GpuDevice::UseStream(std::optional<void*> native) {
  if (native == caller_) return absl::OkStatus();
  if (native && *native != nullptr) {
    RG_WITH_CONTEXT();
    RG_ASSIGN_OR_RETURN(const bool ours, driver_.IsOf(context(), static_cast<GpuStream>(*native)));
    if (!ours) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the stream belongs to another device or context than %s:%d's primary "
                          "one, in which the program was loaded",
                          name(), options_.ordinal));
    }
  }
  caller_ = native;
  return absl::OkStatus();
}

absl::Status GpuDevice::Bind(int stream, LoadedKernels& kernels, absl::Span<void* const> table) {
  RG_WITH_CONTEXT();
  return static_cast<GpuKernels&>(kernels).Bind(Stream(stream), set_table_, table);
}

absl::Status GpuDevice::Launch(int stream, LoadedKernels& kernels, size_t launch) {
  RG_WITH_CONTEXT();
  return static_cast<GpuKernels&>(kernels).Run(Stream(stream), launch);
}

absl::Status GpuDevice::LaunchEarly(int stream, LoadedKernels& kernels, size_t launch) {
  RG_WITH_CONTEXT();
  // Issued one by one such launches cost the host time and gain nothing.
  return static_cast<GpuKernels&>(kernels).Run(Stream(stream), launch,
                                               recording_ && facts_.early_launches);
}

absl::Status GpuDevice::CopyStrided(int stream, DType dtype, absl::Span<const int64_t> shape,
                                    void* to, absl::Span<const int64_t> to_strides,
                                    const void* from, absl::Span<const int64_t> from_strides) {
  RG_WITH_CONTEXT();
  StridedCopy copy{.to = reinterpret_cast<uint64_t>(to),
                   .from = reinterpret_cast<uint64_t>(from),
                   .rank = static_cast<int32_t>(shape.size()),
                   .element_bytes = static_cast<int32_t>(SizeBytes(dtype)),
                   .elements = Elements(shape)};
  if (copy.elements == 0) return absl::OkStatus();
  bool dense = true;
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    copy.shape[d] = shape[d];
    copy.to_strides[d] = to_strides[d];
    copy.from_strides[d] = from_strides[d];
    dense = dense && (shape[d] == 1 || (to_strides[d] == stride && from_strides[d] == stride));
    stride *= shape[d];
  }
  if (dense) {
    RG_GPU(driver_, MemcpyDtoDAsync, to, from,
           static_cast<size_t>(copy.elements * copy.element_bytes), Stream(stream));
    return absl::OkStatus();
  }
  const int64_t blocks =
      std::min<int64_t>((copy.elements + kCopyThreads - 1) / kCopyThreads, int64_t{1} << 20);
  void* parameters[] = {&copy};
  RG_GPU(driver_, LaunchKernel, copy_strided_, static_cast<unsigned>(blocks), 1, 1, kCopyThreads, 1,
         1, 0, Stream(stream), parameters, nullptr);
  return absl::OkStatus();
}

absl::Status GpuDevice::Record(int stream, int event) {
  RG_WITH_CONTEXT();
  RG_GPU(driver_, EventRecord, events_[event], Stream(stream));
  return absl::OkStatus();
}

absl::Status GpuDevice::Wait(int stream, int event) {
  RG_WITH_CONTEXT();
  RG_GPU(driver_, StreamWaitEvent, Stream(stream), events_[event], 0);
  return absl::OkStatus();
}

absl::Status GpuDevice::Synchronize() {
  RG_WITH_CONTEXT();
  for (size_t i = 1; i < streams_.size(); ++i) RG_GPU(driver_, StreamSynchronize, streams_[i]);
  RG_GPU(driver_, StreamSynchronize, Stream(0));
  return absl::OkStatus();
}

absl::Status GpuDevice::BeginRecording() {
  RG_WITH_CONTEXT();
  RG_GPU(driver_, StreamBeginCapture, streams_[0], kGpuCaptureThreadLocal);
  recording_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Recording>> GpuDevice::EndRecording(std::unique_ptr<Recording> old) {
  RG_WITH_CONTEXT();
  RG_ASSIGN_OR_RETURN(const GpuGraph graph, EndCapture());
  std::unique_ptr<GpuRecording> recording(static_cast<GpuRecording*>(old.release()));
  if (recording == nullptr) recording = std::make_unique<GpuRecording>(driver_, context());
  const absl::Status status = recording->Become(graph);
  driver_.GraphDestroy(graph);
  RG_RETURN_IF_ERROR(status);
  return recording;
}

absl::StatusOr<GpuGraph> GpuDevice::EndCapture() {
  recording_ = false;
  GpuGraph graph = nullptr;
  RG_GPU(driver_, StreamEndCapture, streams_[0], &graph);
  const absl::Status status = driver_.FillByKernel(graph, fill_);
  if (status.ok()) return graph;
  driver_.GraphDestroy(graph);
  return status;
}

absl::StatusOr<std::unique_ptr<Recording>> GpuDevice::EndMovableRecording() {
  RG_WITH_CONTEXT();
  RG_ASSIGN_OR_RETURN(const GpuGraph graph, EndCapture());
  auto recording = std::make_unique<GpuRecording>(driver_, context());
  RG_RETURN_IF_ERROR(recording->BecomeMovable(graph));
  return recording;
}

absl::Status GpuDevice::EndComparison(Recording& of, absl::Span<const int64_t> moved) {
  RG_WITH_CONTEXT();
  RG_ASSIGN_OR_RETURN(const GpuGraph graph, EndCapture());
  const absl::Status status = static_cast<GpuRecording&>(of).Compare(graph, moved);
  driver_.GraphDestroy(graph);
  return status;
}

absl::Status GpuDevice::Move(Recording& recording, absl::Span<const int64_t> moved) {
  RG_WITH_CONTEXT();
  return static_cast<GpuRecording&>(recording).Move(moved);
}

void GpuDevice::Assume(LoadedKernels& kernels, absl::Span<void* const> table) {
  static_cast<GpuKernels&>(kernels).Assume(table);
}

absl::Status GpuDevice::Replay(Recording& recording) {
  RG_WITH_CONTEXT();
  RG_GPU(driver_, GraphLaunch, static_cast<GpuRecording&>(recording).exec(), Stream(0));
  return absl::OkStatus();
}

absl::StatusOr<bool> GpuDevice::CallerRecords() {
  RG_WITH_CONTEXT();
  int status = kGpuNoCapture;
  RG_GPU(driver_, StreamIsCapturing, Stream(0), &status);
  return status != kGpuNoCapture;
}

// One repetition. The spinning kernel ends after everything behind it has been issued.
absl::Status GpuDevice::TimeOnce(absl::FunctionRef<absl::Status()> work, int64_t spin_cycles,
                                 void* flushed, size_t flushed_bytes, GpuEvent begin, GpuEvent end,
                                 double* microseconds) {
  if (flushed != nullptr) RG_GPU(driver_, MemsetD8Async, flushed, 0, flushed_bytes, Stream(0));
  void* parameters[] = {&spin_cycles};
  RG_GPU(driver_, LaunchKernel, spin_, 1, 1, 1, 1, 1, 1, 0, Stream(0), parameters, nullptr);
  RG_GPU(driver_, EventRecord, begin, Stream(0));
  RG_RETURN_IF_ERROR(work());
  RG_GPU(driver_, EventRecord, end, Stream(0));
  RG_GPU(driver_, EventSynchronize, end);
  float ms = 0;
  RG_GPU(driver_, EventElapsedTime, &ms, begin, end);
  *microseconds = 1e3 * static_cast<double>(ms);
  return absl::OkStatus();
}

absl::StatusOr<TimeSamples> GpuDevice::Time(absl::FunctionRef<absl::Status()> work, int repetitions,
                                            bool cold) {
  RG_WITH_CONTEXT();
  const size_t flushed_bytes = cold ? size_t{4} * static_cast<size_t>(facts_.cache_bytes) : 0;
  // The host's time for issuing the work, the first time of which may prepare things.
  std::chrono::duration<double, std::milli> host{};
  for (int i = 0; i < 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    RG_RETURN_IF_ERROR(work());
    host = std::chrono::steady_clock::now() - start;
    RG_RETURN_IF_ERROR(Synchronize());
  }
  const double spin_ms = std::min(2 * host.count() + 0.1, 50.0);
  const int64_t spin_cycles = static_cast<int64_t>(spin_ms * static_cast<double>(facts_.clock_khz));

  void* flushed = nullptr;
  if (flushed_bytes > 0) {
    RG_ASSIGN_OR_RETURN(flushed, Allocate(static_cast<int64_t>(flushed_bytes)));
  }
  GpuEvent begin = nullptr, end = nullptr;
  absl::Status status =
      driver_.StatusOf(driver_.EventCreate(&begin, kGpuTimedEvent), driver_.EventCreate.name);
  if (status.ok()) {
    status = driver_.StatusOf(driver_.EventCreate(&end, kGpuTimedEvent), driver_.EventCreate.name);
  }
  TimeSamples samples;
  for (int i = 0; i < repetitions && status.ok(); ++i) {
    status =
        TimeOnce(work, spin_cycles, flushed, flushed_bytes, begin, end, &samples.emplace_back());
  }
  for (GpuEvent event : {begin, end}) {
    if (event != nullptr) driver_.EventDestroy(event);
  }
  Free(flushed);
  RG_RETURN_IF_ERROR(status);
  return samples;
}

absl::Status GpuDevice::ReserveMarks(int marks) {
  RG_WITH_CONTEXT();
  while (static_cast<int>(marks_.size()) < marks) {
    GpuEvent event = nullptr;
    RG_GPU(driver_, EventCreate, &event, kGpuTimedEvent);
    marks_.push_back(event);
  }
  return absl::OkStatus();
}

absl::Status GpuDevice::Mark(int stream, int mark) {
  RG_WITH_CONTEXT();
  return driver_.Mark(marks_[mark], Stream(stream), recording_);
}

absl::StatusOr<std::vector<double>> GpuDevice::MarkTimes(int marks) {
  RG_WITH_CONTEXT();
  RG_RETURN_IF_ERROR(Synchronize());
  std::vector<double> times;
  for (int i = 0; i < marks; ++i) {
    float ms = 0;
    if (i > 0) RG_GPU(driver_, EventElapsedTime, &ms, marks_[0], marks_[i]);
    times.push_back(1e3 * static_cast<double>(ms));
  }
  return times;
}

}  // namespace retrograd
