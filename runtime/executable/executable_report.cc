#include "runtime/executable/executable_report.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "fusion/plan/call_key.h"
#include "graph/text/text.h"
#include "runtime/executable/compiled_kernels.h"

namespace retrograd {
namespace {

// Of the entries on disk: a new one where what they hold means something else.
constexpr absl::string_view kFormat = "retrograd executable report 1";

template <typename Map>
bool HasNews(const Map& more, const Map& known) {
  return std::any_of(more.begin(), more.end(), [&](const auto& entry) {
    const auto at = known.find(entry.first);
    return at == known.end() || !(at->second == entry.second);
  });
}

}  // namespace

int64_t Spilling(absl::Span<const KernelResources> kernels) {
  return std::count_if(kernels.begin(), kernels.end(),
                       [](const KernelResources& k) { return k.spill_bytes > 0; });
}

DeviceReport NewsOf(const CompiledPlan& compiled, absl::Span<const KernelResources> kernels,
                    const Program* program, const std::string& arch) {
  DeviceReport report = ReportOf(compiled, kernels, absl::StrCat("the compiler for ", arch), arch);
  if (Spilling(kernels) == 0) report.kernels.clear();
  if (program == nullptr) return report;
  for (const CallInUse& used : program->CallsInUse()) {
    if (used.measured_us <= 0) continue;
    report.calls.emplace(CallKey(*used.call), std::max(std::llround(used.measured_us * 1e6), 1LL));
  }
  return report;
}

bool IsNews(const DeviceReport& more, const DeviceReport& known) {
  return HasNews(more.kernels, known.kernels) || HasNews(more.calls, known.calls);
}

RememberedReport::RememberedReport(const ModuleCache* cache, const DeviceFacts& device,
                                   const std::string& spec_text, const BackwardGraph& graph)
    : cache_(cache) {
  if (cache_ == nullptr) return;
  key_ = absl::StrCat(kFormat, "\n", device.model, " ", device.arch, "\n", spec_text, "\n",
                      Print(graph));
}

DeviceReport RememberedReport::Read() const {
  if (cache_ == nullptr) return {};
  const std::optional<std::string> entry = cache_->Read(key_);
  if (!entry) return {};
  return ParseDeviceReport(*entry, kFormat).value_or(DeviceReport{});
}

void RememberedReport::Write(const DeviceReport& report) const {
  if (cache_ != nullptr) cache_->Write(key_, report.Print()).IgnoreError();
}

}  // namespace retrograd
