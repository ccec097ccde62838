#include "runtime/executable/compiled_kernels.h"

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

using ByName = absl::flat_hash_map<std::string, const KernelResources*>;

ByName Index(absl::Span<const KernelResources> kernels) {
  ByName by_name;
  for (const KernelResources& r : kernels) by_name.emplace(r.name, &r);
  return by_name;
}

std::optional<CompiledResources> ResourcesOf(const CompiledPlan& compiled, size_t group,
                                             const ByName& kernels) {
  const KernelBody* body = KernelOf(compiled.plan.groups[group]);
  const std::vector<Kernel>& launches = compiled.kernels[group].launches;
  if (body == nullptr || launches.empty()) return std::nullopt;
  const size_t main = MainLaunchOf(*body);
  if (!kernels.contains(launches[main].name)) return std::nullopt;
  CompiledResources resources;
  for (size_t n = 0; n < launches.size(); ++n) {
    const auto it = kernels.find(launches[n].name);
    if (it == kernels.end()) continue;
    if (n == main) resources.registers = it->second->registers;
    if (n == main) resources.shared_bytes = it->second->shared_bytes;
    resources.spill_bytes += it->second->spill_bytes;
  }
  return resources;
}

}  // namespace

size_t MainLaunchOf(const KernelBody& body) {
  return static_cast<size_t>(MainLaunchNumber(body.ir, body.schedule));
}

std::optional<CompiledResources> ResourcesOf(const CompiledPlan& compiled, GroupId group,
                                             absl::Span<const KernelResources> kernels) {
  return ResourcesOf(compiled, retrograd::Index(group), Index(kernels));
}

DeviceReport ReportOf(const CompiledPlan& compiled, absl::Span<const KernelResources> kernels,
                      const std::string& compiler, const std::string& arch) {
  DeviceReport report{.compiler = compiler, .arch = arch};
  const ByName by_name = Index(kernels);
  for (size_t g = 0; g < compiled.kernels.size(); ++g) {
    const auto resources = ResourcesOf(compiled, g, by_name);
    if (!resources) continue;
    const KernelBody& body = *KernelOf(compiled.plan.groups[g]);
    report.kernels.emplace(FingerprintOf(FingerprintOf(body.ir), body.schedule), *resources);
  }
  return report;
}

Footprint FootprintOf(const KernelBody& body, const CompiledResources& resources,
                      const DeviceSpec& device) {
  const KernelProfile profile = ProfileKernel(body.ir, Classify(body.ir));
  Footprint footprint = PredictFootprint(body.ir, profile, body.schedule, device);
  UseCompiled(resources, body.schedule, device, footprint);
  return footprint;
}

}  // namespace retrograd
