#if defined(RETROGRAD_HAVE_CUDA)

#include "runtime/cuda_kernels.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/status.h"

namespace retrograd {

CudaKernels::~CudaKernels() {
  const CurrentContext current(driver_, context_);
  if (!current.status().ok()) return;
  driver_.CtxSynchronize();  // a kernel may still run
  for (CUmodule module : modules_) driver_.ModuleUnload(module);
  if (table_ != 0) driver_.MemFree(table_);
}

absl::Status CudaKernels::AddModule(const std::string& cubin) {
  CUmodule module = nullptr;
  RG_CUDA(driver_, ModuleLoadData, &module, cubin.data());
  modules_.push_back(module);
  const std::string start("\0rg_", 4);
  for (size_t at = cubin.find(start); at != std::string::npos; at = cubin.find(start, at + 1)) {
    homes_.try_emplace(cubin.data() + at + 1, module);  // strings end with a zero, as the file does
  }
  return absl::OkStatus();
}

absl::StatusOr<CUfunction> CudaKernels::Find(const std::string& kernel) const {
  CUresult result = CUDA_ERROR_NOT_FOUND;
  // A question that a module answers with an error is shown as one by the tools that watch calls.
  if (const auto home = homes_.find(kernel); home != homes_.end()) {
    CUfunction function = nullptr;
    result = driver_.ModuleGetFunction(&function, home->second, kernel.c_str());
    if (result == CUDA_SUCCESS) return function;
  }
  for (CUmodule module : modules_) {
    CUfunction function = nullptr;
    result = driver_.ModuleGetFunction(&function, module, kernel.c_str());
    if (result == CUDA_SUCCESS) return function;
    if (result != CUDA_ERROR_NOT_FOUND) break;
  }
  return CudaStatus(driver_, result, absl::StrCat("cuModuleGetFunction of ", kernel));
}

absl::Status CudaKernels::Prepare(absl::Span<const Launch> launches) {
  uint32_t slots = 0;
  for (const Launch& launch : launches) {
    if (launch.blocks < 1 || launch.blocks > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "kernel %s wants %d blocks: a launch has 1 to 2147483647", launch.kernel, launch.blocks));
    }
    Prepared prepared{.blocks = static_cast<unsigned>(launch.blocks),
                      .threads = static_cast<unsigned>(launch.threads)};
    RG_ASSIGN_OR_RETURN(prepared.function, Find(launch.kernel));
    if (launch.staged_bytes > 0) {
      prepared.staged_bytes = static_cast<unsigned>(launch.staged_bytes);
      RG_CUDA(driver_, FuncSetAttribute, prepared.function,
              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(launch.staged_bytes));
    }
    for (const LaunchArg& arg : launch.args) {
      prepared.slots.push_back(static_cast<int32_t>(arg.slot));
      slots = std::max(slots, arg.slot + 1);
    }
    launches_.push_back(std::move(prepared));
  }
  if (slots > 0) RG_CUDA(driver_, MemAlloc, &table_, slots * sizeof(void*));
  known_.assign(slots, nullptr);
  return absl::OkStatus();
}

absl::Status CudaKernels::Bind(CUstream stream, CUfunction set_table,
                               absl::Span<void* const> table) {
  if (table.size() < known_.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the table has %d addresses, the kernels read %d", table.size(), known_.size()));
  }
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  RG_CUDA(driver_, StreamIsCapturing, stream, &capture);
  const bool all = !certain_ || capture != CU_STREAM_CAPTURE_STATUS_NONE;
  certain_ = false;  // until the last entry is on its way
  TableEntries entries;
  for (size_t i = 0; i < known_.size(); ++i) {
    if (!all && known_[i] == table[i]) continue;
    known_[i] = table[i];
    entries.slot[entries.count] = static_cast<int32_t>(i);
    entries.address[entries.count++] = reinterpret_cast<uint64_t>(table[i]);
    if (entries.count == kTableEntries) RG_RETURN_IF_ERROR(Write(stream, set_table, &entries));
  }
  if (entries.count > 0) RG_RETURN_IF_ERROR(Write(stream, set_table, &entries));
  certain_ = capture == CU_STREAM_CAPTURE_STATUS_NONE;
  return absl::OkStatus();
}

absl::Status CudaKernels::Run(CUstream stream, size_t launch) {
  Prepared& l = launches_[launch];
  void* parameters[] = {&table_, l.slots.data()};
  RG_CUDA(driver_, LaunchKernel, l.function, l.blocks, 1, 1, l.threads, 1, 1, l.staged_bytes,
          stream, parameters, nullptr);
  return absl::OkStatus();
}

absl::Status CudaKernels::Write(CUstream stream, CUfunction set_table, TableEntries* entries) {
  void* parameters[] = {&table_, entries};
  RG_CUDA(driver_, LaunchKernel, set_table, 1, 1, 1, kTableEntries, 1, 1, 0, stream, parameters,
          nullptr);
  entries->count = 0;
  return absl::OkStatus();
}

CudaRecording::~CudaRecording() {
  const CurrentContext current(driver_, context_);
  if (current.status().ok()) Destroy();
}

absl::Status CudaRecording::Become(CUgraph graph) {
  if (exec_ != nullptr) {
    CUgraphExecUpdateResultInfo info = {};
    if (driver_.GraphExecUpdate(exec_, graph, &info) == CUDA_SUCCESS) return absl::OkStatus();
    Destroy();
  }
  RG_CUDA(driver_, GraphInstantiate, &exec_, graph, 0);
  return absl::OkStatus();
}

void CudaRecording::Destroy() {
  if (exec_ == nullptr) return;
  driver_.CtxSynchronize();  // it may still run
  driver_.GraphExecDestroy(exec_);
  exec_ = nullptr;
}

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDA
