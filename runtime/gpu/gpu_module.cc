#include "runtime/gpu/gpu_module.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "codegen/translation_unit.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// The compiler takes so long to read the prelude that fewer kernels are no part of their own. A
// long kernel counts as several of so many bytes.
constexpr size_t kKernelsAPart = 3, kKernelBytes = 3000;

// The kernels in so many parts of about equal length.
std::vector<std::vector<Kernel>> Split(absl::Span<const Kernel> kernels, size_t parts) {
  std::vector<size_t> order(kernels.size()), lengths;
  std::iota(order.begin(), order.end(), 0);
  for (const Kernel& kernel : kernels) lengths.push_back(PrintKernel(kernel).size());
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<Kernel>> split(parts);
  std::vector<size_t> filled(parts);
  for (size_t k : order) {
    const auto shortest = std::min_element(filled.begin(), filled.end());
    *shortest += lengths[k];
    split[static_cast<size_t>(shortest - filled.begin())].push_back(kernels[k]);
  }
  return split;
}

// A cache entry: one line of resources for each kernel, an empty line, the code. Its digest was
// checked, so it is what was written.
std::string PrintObject(const CompiledObject& object) {
  std::string text;
  for (const KernelResources& k : object.kernels) {
    absl::StrAppend(&text, k.name, " ", k.registers, " ", k.spill_bytes, " ", k.stack_bytes, " ",
                    k.shared_bytes, "\n");
  }
  return absl::StrCat(text, "\n", object.code);
}

std::optional<CompiledObject> ParseObject(absl::string_view text) {
  CompiledObject object;
  while (true) {
    const size_t end = text.find('\n');
    if (end == absl::string_view::npos) return std::nullopt;
    const std::vector<std::string> words = absl::StrSplit(text.substr(0, end), ' ');
    text.remove_prefix(end + 1);
    if (words.size() == 1) break;
    KernelResources& k = object.kernels.emplace_back();
    k.name = words[0];
    if (words.size() != 5 || !absl::SimpleAtoi(words[1], &k.registers) ||
        !absl::SimpleAtoi(words[2], &k.spill_bytes) ||
        !absl::SimpleAtoi(words[3], &k.stack_bytes) ||
        !absl::SimpleAtoi(words[4], &k.shared_bytes)) {
      return std::nullopt;
    }
  }
  object.code = std::string(text);
  return object;
}

// Kernels, counted by their text.
size_t Work(absl::Span<const Kernel> kernels) {
  size_t work = 0;
  for (const Kernel& kernel : kernels) {
    work += 1 + PrintKernel(kernel).size() / kKernelBytes;
  }
  return work;
}

// What `compile` makes of the source, from the cache or into it. by: what it goes by beside that.
absl::StatusOr<CompiledObject> Cached(Dialect dialect, absl::string_view source,
                                      absl::string_view by, absl::string_view arch,
                                      const RtcOptions& options, const ModuleCache* cache,
                                      absl::FunctionRef<absl::StatusOr<CompiledObject>()> compile) {
  if (cache == nullptr) return compile();
  RG_ASSIGN_OR_RETURN(const std::string compiler, CompilerName(dialect, options));
  // The flags and how residency is chosen belong to this version of the format.
  const std::string key =
      absl::StrCat("retrograd cubin 3\n", compiler, "\n", arch, "\n", by, source);
  if (const std::optional<std::string> entry = cache->Read(key)) {
    if (std::optional<CompiledObject> object = ParseObject(*entry)) {
      object->compiler = compiler;
      return *std::move(object);
    }
  }
  RG_ASSIGN_OR_RETURN(CompiledObject object, compile());
  // A cache that cannot be written is no harm.
  cache->Write(key, PrintObject(object)).IgnoreError();
  return object;
}

}  // namespace

absl::StatusOr<CompiledObject> CompileCached(Dialect dialect, absl::string_view source,
                                             absl::string_view arch, const RtcOptions& options,
                                             const ModuleCache* cache) {
  return Cached(dialect, source, /*by=*/"", arch, options, cache,
                [&] { return CompileFor(dialect, source, arch, options); });
}

absl::StatusOr<CompiledObject> CompileCached(Dialect dialect, absl::Span<const Kernel> kernels,
                                             absl::string_view source, absl::string_view arch,
                                             const RtcOptions& options, const ModuleCache* cache) {
  return Cached(dialect, source, CompiledBy(kernels, options), arch, options, cache,
                [&] { return CompileKernels(dialect, kernels, arch, options); });
}

int Jobs(const GpuCompileOptions& options) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return options.jobs > 0 ? options.jobs : std::clamp(cores, 1, 8);
}

std::vector<std::vector<Kernel>> Parts(absl::Span<const Kernel> kernels, int jobs) {
  const size_t most = std::min<size_t>(kernels.size(), static_cast<size_t>(jobs));
  if (most == 0) return {};
  return Split(kernels, std::clamp<size_t>(Work(kernels) / kKernelsAPart, 1, most));
}

}  // namespace retrograd
