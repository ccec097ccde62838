#include "runtime/gpu/kernel_compiler.h"

#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "absl/strings/str_cat.h"
#include "codegen/translation_unit.h"
#include "graph/base/status.h"

namespace retrograd {

class KernelCompiler::Pool {
 public:
  explicit Pool(int threads) : threads_(static_cast<size_t>(threads)) {}
  ~Pool() {
    threads_.stop();
    threads_.join();
  }
  template <typename Work>
  void Add(Work work) {
    boost::asio::post(threads_, std::move(work));
  }

 private:
  boost::asio::thread_pool threads_;
};

namespace {

std::string KeyOf(absl::string_view arch, absl::Span<const Kernel> part,
                  const GpuCompileOptions& options, absl::string_view source) {
  return absl::StrCat(arch, "\n", CompiledBy(part, options.rtc), source);
}

}  // namespace

KernelCompiler::KernelCompiler(Dialect dialect, GpuCompileOptions options, const ModuleCache* cache)
    : dialect_(dialect), options_(std::move(options)), cache_(cache) {}

KernelCompiler::~KernelCompiler() = default;

std::string KernelCompiler::Source(absl::Span<const Kernel> part) const {
  return TranslationUnit(part, dialect_);
}

absl::StatusOr<CompiledObject> KernelCompiler::CompileOne(absl::Span<const Kernel> part,
                                                          const std::string& source,
                                                          const std::string& arch) const {
  RG_RETURN_IF_ERROR(CheckCancelled(options_.cancelled));
  return CompileCached(dialect_, part, source, arch, options_.rtc, cache_);
}

void KernelCompiler::Expect(absl::Span<const Kernel> kernels, absl::string_view arch) {
  if (!CheckNames(kernels).ok()) return;  // told to who asks for them
  if (pool_ == nullptr) pool_ = std::make_unique<Pool>(Jobs(options_));
  for (std::vector<Kernel>& part : Parts(kernels, Jobs(options_))) {
    std::string source = Source(part);
    const auto [entry, is_new] = expected_.try_emplace(KeyOf(arch, part, options_, source));
    if (!is_new) continue;
    std::packaged_task<absl::StatusOr<CompiledObject>()> compile(
        [this, part = std::move(part), source = std::move(source), arch = std::string(arch)] {
          return CompileOne(part, source, arch);
        });
    entry->second = compile.get_future().share();
    pool_->Add(std::move(compile));
  }
}

void KernelCompiler::Forget() {
  pool_.reset();
  expected_.clear();
}

absl::StatusOr<std::vector<CompiledObject>> KernelCompiler::Compile(
    absl::Span<const Kernel> kernels, absl::string_view arch) {
  RG_RETURN_IF_ERROR(CheckNames(kernels));
  if (kernels.empty()) return std::vector<CompiledObject>();
  RG_RETURN_IF_ERROR(CompilerName(dialect_, options_.rtc).status());
  const std::vector<std::vector<Kernel>> parts = Parts(kernels, Jobs(options_));
  std::vector<Compiling> compiling;
  for (const std::vector<Kernel>& part : parts) {
    std::string source = Source(part);
    if (const auto known = expected_.find(KeyOf(arch, part, options_, source));
        known != expected_.end()) {
      compiling.push_back(known->second);
      continue;
    }
    compiling.push_back(std::async(std::launch::async, [&part, source = std::move(source),
                                                        arch = std::string(arch), this] {
                          return CompileOne(part, source, arch);
                        }).share());
  }
  std::vector<CompiledObject> objects;
  absl::Status failure;
  for (const Compiling& part : compiling) {
    const absl::StatusOr<CompiledObject>& object = part.get();
    if (object.ok()) {
      objects.push_back(*object);
    } else {
      failure.Update(object.status());
    }
  }
  RG_RETURN_IF_ERROR(failure);
  return objects;
}

}  // namespace retrograd
