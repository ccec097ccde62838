// plan_digest DEVICE FILE..: plans each graph file and prints a digest of the whole printed plan,
// one line a file, and last a hash that Abseil seeds with an address, which differs between
// processes. The determinism test runs it many times, and as another compiler built it.
#include <cinttypes>
#include <cstdio>

#include "absl/hash/hash.h"
#include "fusion/planner/planner.h"
#include "graph/proto/proto.h"

namespace retrograd {
namespace {

// FNV-1a: the same in every process.
uint64_t Digest(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

absl::StatusOr<std::string> PlanOf(const std::string& file, const DeviceSpec& device) {
  absl::StatusOr<BackwardGraph> graph = LoadGraph(file);
  if (!graph.ok()) return graph.status();
  absl::StatusOr<Planned> planned = PlanFusion(*graph, device);
  if (!planned.ok()) return planned.status();
  return planned->plan.Print(planned->graph);
}

int Run(int argc, char** argv) {
  const absl::StatusOr<DeviceSpec> device = LoadDeviceSpec(argc > 1 ? argv[1] : "");
  if (!device.ok() || argc < 3) {
    std::fprintf(stderr, "usage: plan_digest DEVICE FILE..\n");
    return 2;
  }
  for (int i = 2; i < argc; ++i) {
    const absl::StatusOr<std::string> plan = PlanOf(argv[i], *device);
    if (!plan.ok()) {
      std::fprintf(stderr, "%s\n", plan.status().ToString().c_str());
      return 1;
    }
    std::printf("plan %016" PRIx64 " %zu\n", Digest(*plan), plan->size());
  }
  std::printf("seed %016zx\n", absl::HashOf(1));
  return 0;
}

}  // namespace
}  // namespace retrograd

int main(int argc, char** argv) { return retrograd::Run(argc, argv); }
