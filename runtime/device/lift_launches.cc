#include "runtime/device/lift_launches.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace retrograd {

LiftedLaunches LiftLaunches(KernelFamilies& families, int64_t program,
                            absl::Span<const Kernel> kernels, absl::Span<const Launch> launches) {
  LiftedLaunches lifted;
  absl::flat_hash_map<std::string, LiftedKernel> by_name;
  absl::flat_hash_set<std::string> there;
  for (const Kernel& kernel : kernels) {
    const LiftedKernel& made = by_name[kernel.name] = families.Lift(program, kernel);
    lifted.names.emplace_back(kernel.name, made.kernel->name);
    if (there.insert(made.kernel->name).second) lifted.kernels.push_back(*made.kernel);
  }
  for (const Launch& launch : launches) {
    Launch& copy = lifted.launches.emplace_back(launch);
    const auto made = by_name.find(launch.kernel);
    if (made == by_name.end()) continue;  // told to who prepares the launch
    copy.kernel = made->second.kernel->name;
    copy.numbers = made->second.numbers;
  }
  return lifted;
}

}  // namespace retrograd
