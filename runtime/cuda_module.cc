#include "runtime/cuda_module.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/status.h"
#include "runtime/kernel_texts.h"

namespace retrograd {
namespace {

// The compiler takes so long to read the prelude that fewer kernels are no part of their own.
constexpr size_t kKernelsAPart = 3;

// Sources of about equal length, each with the prelude.
std::vector<std::string> Parts(const SplitSource& split, size_t parts) {
  std::vector<size_t> order(split.kernels.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&split](size_t k) {
    return split.kernels[k].members.size() + split.kernels[k].text.size();
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return length(a) > length(b); });
  std::vector<std::string> sources(parts, std::string(split.prelude));
  for (size_t k : order) {
    auto shortest = std::min_element(
        sources.begin(), sources.end(),
        [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
    absl::StrAppend(&*shortest, "\n", split.kernels[k].members, split.kernels[k].text);
  }
  return sources;
}

}  // namespace

absl::StatusOr<std::vector<CompiledObject>> CompileCudaParts(absl::string_view source,
                                                             absl::string_view arch,
                                                             const CudaCompileOptions& options) {
  RG_ASSIGN_OR_RETURN(const SplitSource split, SplitKernels(source));
  if (split.kernels.empty()) return std::vector<CompiledObject>();
  RG_RETURN_IF_ERROR(CudaCompilerAvailable(options.rtc));
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int jobs = options.jobs > 0 ? options.jobs : std::clamp(cores, 1, 8);
  const size_t parts = std::clamp<size_t>(split.kernels.size() / kKernelsAPart, 1, jobs);
  const std::vector<std::string> sources = Parts(split, parts);

  std::vector<absl::StatusOr<CompiledObject>> compiled(parts, absl::UnknownError("not compiled"));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < parts; ++i) {
    threads.emplace_back(
        [&, i] { compiled[i] = CompileCuda(sources[i], arch, options.rtc); });
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<CompiledObject> objects;
  for (absl::StatusOr<CompiledObject>& object : compiled) {
    RG_ASSIGN_OR_RETURN(objects.emplace_back(), std::move(object));
  }
  return objects;
}

}  // namespace retrograd
