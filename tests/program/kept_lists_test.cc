// Programs whose sorted indices are kept from run to run: each run's gradients are those of the
// indices that it is given, wherever they lie and whatever has become of the workspace.
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "absl/strings/str_replace.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "runtime/devices/host_device.h"
#include "runtime/executable/executable.h"
#include "tests/catch.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

// Message passing, and a sum of what the edges have, by the same index.
constexpr absl::string_view kGraph = R"(
%to = input i64[6000]
%from = input i64[6000]
%x = input f32[70,8]
%e = input f32[6000]
%zx = full dtype=f32 shape=[70,8] value=0.0
%ze = full dtype=f32 shape=[70] value=0.0
%rows = index_select %x %from axis=0
%a = index_add %zx %to %rows axis=0
%b = index_add %ze %to %e axis=0
output %a
output %b
)";
// The same, where what the edges have is summed at their other ends: two sorts share launches.
std::string BothEnds() {
  return absl::StrReplaceAll(kGraph, {{"index_add %ze %to", "index_add %ze %from"}});
}
constexpr int64_t kEdges = 6000, kNodes = 70, kWidth = 8;

std::vector<double> Drawn(int64_t count, int64_t below, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> drawn;
  for (int64_t i = 0; i < count; ++i) {
    drawn.push_back(static_cast<double>(random() % static_cast<uint64_t>(below)));
  }
  return drawn;
}

class KeptLists {
 public:
  KeptLists(absl::string_view text, bool keep) {
    HostDeviceOptions options;
    options.compile.check = true;
    device_ = MakeHostDevice(options);
    auto graph = ParseGraph(text);
    REQUIRE(graph.status().ToString() == "OK");
    graph_ = *graph;
    ExecutableOptions how{.spec = *NamedSpec("h200"), .keep_sorted_indices = keep};
    how.program.caller_workspace = true;
    auto made = Executable::Make(graph_, *device_, how);
    REQUIRE(made.status().ToString() == "OK");
    executable_.emplace(*std::move(made));
  }

  // Of all sorts.
  std::string How() const {
    std::string how;
    for (const CallInUse& used : executable_->program().CallsInUse()) how += used.implementation;
    return how;
  }
  int64_t kept_bytes() const { return executable_->program().kept_bytes(); }

  // The largest error of a run with these targets, in a workspace of its own.
  double ErrorWith(const std::vector<double>& to, uint64_t seed) {
    const std::vector<Values> inputs = {to, Drawn(kEdges, kNodes, seed),
                                        Drawn(kNodes * kWidth, 100, seed + 1),
                                        Drawn(kEdges, 100, seed + 2)};
    std::vector<int64_t> targets(to.begin(), to.end()), sources(inputs[1].begin(), inputs[1].end());
    std::vector<float> x(inputs[2].begin(), inputs[2].end()), e(inputs[3].begin(), inputs[3].end());
    std::vector<float> a(kNodes * kWidth, NAN), b(kNodes, NAN);
    const void* given[] = {targets.data(), sources.data(), x.data(), e.data()};
    void* made[] = {a.data(), b.data()};
    auto workspace = device_->Allocate(executable_->program().workspace_bytes());
    REQUIRE(workspace.ok());
    const absl::Status ran = executable_->Run(given, made, std::nullopt, *workspace);
    device_->Free(*workspace);
    CHECK(ran.ToString() == "OK");
    const auto wanted = Evaluate(graph_, inputs, {.mode = ReferenceOptions::kFloat64});
    REQUIRE(wanted.ok());
    double error = 0;
    for (size_t o = 0; o < 2; ++o) {
      const Values& want = (*wanted)[graph_.value_index(*graph_.outputs()[o].value)];
      const std::vector<float>& got = o == 0 ? a : b;
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        const double off = std::fabs(got[i] - want[i]);
        error = std::isnan(off) ? INFINITY : std::max(error, off / std::max(1.0, want[i]));
      }
    }
    return error;
  }

 private:
  std::unique_ptr<Device> device_;
  BackwardGraph graph_;
  std::optional<Executable> executable_;
};

TEST_CASE("each run sums by the indices that it is given") {
  const bool keep = GENERATE(true, false);
  const bool both_ends = GENERATE(false, true);
  KeptLists program(both_ends ? BothEnds() : std::string(kGraph), keep);
  CHECK((program.kept_bytes() > 0) == keep);
  CHECK((program.How().find("2 sorts that share launches") != std::string::npos) == both_ends);
  std::vector<double> targets = Drawn(kEdges, kNodes, 1);
  CHECK(program.ErrorWith(targets, 10) < 1e-5);
  CHECK(program.ErrorWith(targets, 20) < 1e-5);
  targets[kEdges - 1] = targets[kEdges - 1] == 3 ? 4 : 3;
  CHECK(program.ErrorWith(targets, 30) < 1e-5);
  CHECK(program.ErrorWith(Drawn(kEdges, kNodes, 2), 40) < 1e-5);
  CHECK(program.ErrorWith(std::vector<double>(kEdges, 69), 50) < 1e-5);
  CHECK(program.ErrorWith(targets, 60) < 1e-5);
}

}  // namespace
}  // namespace retrograd
