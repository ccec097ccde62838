#include "runtime/gpu/gpu_kernels.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/ops/convolution/shared_products.h"
#include "fusion/ops/sort_indices/sort_price.h"
#include "graph/base/status.h"
#include "runtime/gpu/tma_descriptors.h"

namespace retrograd {
namespace {

// Of a launch: two for each product that shares it; attention has Q, K, V, dO and O or numbers, a
// convolution's gradient its phases and a matrix.
constexpr size_t kMostMaps = 2 * kMostSharedProducts;

// Three addresses for each of the calls that share the launch.
constexpr size_t kMostDirectArguments = 3 * std::max(kMostSharedProducts, kMostSharedSorts);

}  // namespace

GpuKernels::~GpuKernels() {
  const CurrentContext current(driver_, context_);
  if (!current.status().ok()) return;
  driver_.Synchronize();  // a kernel may still run
  modules_.clear();
  if (table_ != nullptr) driver_.MemFree(table_);
}

absl::Status GpuKernels::AddModule(const std::string& code) {
  RG_ASSIGN_OR_RETURN(std::shared_ptr<LoadedModule> module,
                      LoadedModule::Load(driver_, context_, code));
  AddModule(std::move(module));
  return absl::OkStatus();
}

absl::StatusOr<GpuKernels::Found> GpuKernels::FindWithModule(const std::string& kernel) const {
  int result = kGpuNotFound;
  // A question that a module answers with an error is shown as one by the tools that watch calls:
  // those that have the name are asked first.
  for (const bool named : {true, false}) {
    for (const std::shared_ptr<LoadedModule>& module : modules_) {
      if (module->Names(kernel) != named) continue;
      Found found{.module = module.get()};
      result = module->Find(kernel, &found.function);
      if (result == kGpuSuccess) return found;
      if (result != kGpuNotFound) break;
    }
    if (result != kGpuNotFound) break;
  }
  return driver_.StatusOf(result, absl::StrCat(driver_.ModuleGetFunction.name, " of ", kernel));
}

absl::StatusOr<GpuFunction> GpuKernels::Find(const std::string& kernel) const {
  RG_ASSIGN_OR_RETURN(const Found found, FindWithModule(kernel));
  return found.function;
}

absl::Status GpuKernels::Prepare(absl::Span<const Launch> launches, int sms) {
  uint32_t slots = 0;
  bool wants_table = false;
  for (const Launch& launch : launches) {
    if (launch.blocks < 1 || launch.blocks > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "kernel %s wants %d blocks: a launch has 1 to 2147483647", launch.kernel, launch.blocks));
    }
    Prepared prepared{.blocks = static_cast<unsigned>(launch.blocks),
                      .threads = static_cast<unsigned>(launch.threads),
                      .direct = launch.direct};
    wants_table |= !launch.direct;
    RG_ASSIGN_OR_RETURN(const Found found, FindWithModule(launch.kernel));
    prepared.function = found.function;
    if (launch.staged_bytes > 0) {
      prepared.staged_bytes = static_cast<unsigned>(launch.staged_bytes);
      RG_RETURN_IF_ERROR(found.module->AllowStaged(prepared.function, launch.staged_bytes));
    }
    for (const LaunchArg& arg : launch.args) {
      prepared.slots.push_back(static_cast<int32_t>(arg.slot));
      slots = std::max(slots, arg.slot + 1);
    }
    for (const OperandMap& map : launch.maps) slots = std::max(slots, map.slot + 1);
    prepared.slots.insert(prepared.slots.end(), launch.numbers.begin(), launch.numbers.end());
    RG_CHECK(!launch.direct ||
             (launch.numbers.empty() && launch.args.size() <= kMostDirectArguments));
    if (!launch.maps.empty()) {
      prepared.maps = launch.maps;
      prepared.maps_together = launch.cluster == 0;
      if (launch.cluster > 0) {
        // Each fills an SM, and they come in clusters.
        const unsigned cluster = static_cast<unsigned>(launch.cluster);
        prepared.blocks =
            std::min(prepared.blocks, std::max(static_cast<unsigned>(sms) / cluster, 1u) * cluster);
      }
      RG_CHECK(prepared.maps.size() <= kMostMaps);
      // What cannot be described is said now; any address does.
      constexpr uintptr_t kSomewhere = 1 << 20;
      const void* const somewhere = reinterpret_cast<const void*>(kSomewhere);  // NOLINT
      for (const OperandMap& map : launch.maps) {
        RG_RETURN_IF_ERROR(DescribeOperand(map, somewhere).status());
      }
    }
    launches_.push_back(std::move(prepared));
  }
  if (wants_table && slots > 0) RG_GPU(driver_, MemAlloc, &table_, slots * sizeof(void*));
  known_.assign(slots, nullptr);
  return absl::OkStatus();
}

absl::Status GpuKernels::Bind(GpuStream stream, GpuFunction set_table,
                              absl::Span<void* const> table) {
  if (table.size() < known_.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the table has %d addresses, the kernels read %d", table.size(), known_.size()));
  }
  if (table_ == nullptr) {
    std::copy_n(table.begin(), known_.size(), known_.begin());
    return absl::OkStatus();
  }
  int capture = kGpuNoCapture;
  RG_GPU(driver_, StreamIsCapturing, stream, &capture);
  const bool all = !certain_ || capture != kGpuNoCapture;
  certain_ = false;           // until the last entry is on its way
  TableEntries entries = {};  // what is not used is no chance either: recordings are compared
  for (size_t i = 0; i < known_.size(); ++i) {
    if (!all && known_[i] == table[i]) continue;
    known_[i] = table[i];
    entries.slot[entries.count] = static_cast<int32_t>(i);
    entries.address[entries.count++] = reinterpret_cast<uint64_t>(table[i]);
    if (entries.count == kTableEntries) RG_RETURN_IF_ERROR(Write(stream, set_table, &entries));
  }
  if (entries.count > 0) RG_RETURN_IF_ERROR(Write(stream, set_table, &entries));
  certain_ = capture == kGpuNoCapture;
  return absl::OkStatus();
}

void GpuKernels::Assume(absl::Span<void* const> table) {
  std::copy_n(table.begin(), std::min(table.size(), known_.size()), known_.begin());
}

absl::Status GpuKernels::Run(GpuStream stream, size_t launch, bool early) {
  Prepared& l = launches_[launch];
  void* addresses[kMostDirectArguments];
  void* parameters[2 + kMostMaps] = {&table_, l.slots.data()};
  size_t count = 2;
  if (l.direct) {
    // With addresses as Bind was given them.
    for (size_t i = 0; i < l.slots.size(); ++i) {
      addresses[i] = known_[static_cast<size_t>(l.slots[i])];
    }
    parameters[0] = addresses;
    count = 1;
  }
  OperandDescriptor descriptors[kMostMaps];
  for (size_t i = 0; i < l.maps.size(); ++i) {
    RG_ASSIGN_OR_RETURN(descriptors[i], DescribeOperand(l.maps[i], known_[l.maps[i].slot]));
    if (i == 0 || !l.maps_together) parameters[count++] = &descriptors[i];
  }
  if (early) {
    return driver_.LaunchEarly(l.function, l.blocks, l.threads, l.staged_bytes, stream, parameters);
  }
  RG_GPU(driver_, LaunchKernel, l.function, l.blocks, 1, 1, l.threads, 1, 1, l.staged_bytes, stream,
         parameters, nullptr);
  return absl::OkStatus();
}

absl::Status GpuKernels::Write(GpuStream stream, GpuFunction set_table, TableEntries* entries) {
  void* parameters[] = {&table_, entries};
  RG_GPU(driver_, LaunchKernel, set_table, 1, 1, 1, kTableEntries, 1, 1, 0, stream, parameters,
         nullptr);
  entries->count = 0;
  return absl::OkStatus();
}

GpuRecording::~GpuRecording() {
  const CurrentContext current(driver_, context_);
  if (current.status().ok()) Destroy();
}

absl::Status GpuRecording::Become(GpuGraph graph) {
  if (exec_ != nullptr) {
    if (driver_.Update(exec_, graph)) return absl::OkStatus();
    Destroy();
  }
  RG_GPU(driver_, GraphInstantiate, &exec_, graph, 0);
  return absl::OkStatus();
}

absl::Status GpuRecording::BecomeMovable(GpuGraph graph) {
  graph_ = graph;
  RG_ASSIGN_OR_RETURN(std::vector<GraphKernel> kernels, driver_.KernelsOf(graph));
  relocations_.emplace(std::move(kernels));
  return absl::OkStatus();
}

absl::Status GpuRecording::Compare(GpuGraph other, absl::Span<const int64_t> moved) {
  RG_ASSIGN_OR_RETURN(const std::vector<GraphKernel> kernels, driver_.KernelsOf(other));
  return moved.empty() ? relocations_->Repeat(kernels) : relocations_->Compare(kernels, moved);
}

absl::Status GpuRecording::Move(absl::Span<const int64_t> moved) {
  if (exec_ == nullptr) RG_GPU(driver_, GraphInstantiate, &exec_, graph_, 0);
  return relocations_->Move(
      moved, [this](const GraphKernel& kernel) { return driver_.SetParameters(exec_, kernel); });
}

void GpuRecording::Destroy() {
  if (graph_ != nullptr) driver_.GraphDestroy(std::exchange(graph_, nullptr));
  if (exec_ == nullptr) return;
  driver_.Synchronize();  // it may still run
  driver_.GraphExecDestroy(exec_);
  exec_ = nullptr;
}

}  // namespace retrograd
