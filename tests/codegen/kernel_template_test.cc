// The rows of the kernel templates, held against what is emitted for every example and schedule.
#include <set>

#include "codegen/emit.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"

namespace retrograd {
namespace {

constexpr ScheduleLimits kSmallDevice = {.warp = 32,
                                         .sms = 3,
                                         .shared_bytes = 48 << 10,
                                         .staged_bytes = 48 << 10,
                                         .shared_bytes_per_sm = 96 << 10,
                                         .cluster_blocks = 4,
                                         .row_cluster_blocks = 4};

struct Case {
  const KernelExample& example;
  Schedule schedule;
};

std::vector<Case> Cases(const std::vector<KernelExample>& examples) {
  std::vector<Case> cases;
  for (const KernelExample& example : examples) {
    for (const Schedule& s : CandidateSchedules(example.ir, Classify(example.ir), kSmallDevice)) {
      cases.push_back({example, s});
    }
  }
  return cases;
}

TEST_CASE("each template stands at its number and has a name of its own") {
  std::set<absl::string_view> names;
  for (size_t i = 0; i < KernelTemplates().size(); ++i) {
    const KernelTemplate& t = *KernelTemplates()[i];
    CHECK(static_cast<size_t>(t.id) == i);
    CHECK(&TemplateOf(t.id) == &t);
    CHECK(Name(t.id) == t.name);
    CHECK(names.insert(t.name).second);
  }
}

TEST_CASE("a template's candidates are its own, plain passes, or row reductions of what is held") {
  std::set<Template> seen;
  const std::vector<KernelExample> examples = KernelExamples(DType::kBf16);
  for (const Case& c : Cases(examples)) {
    INFO(c.example.name << ", " << c.schedule.Print());
    const bool own = c.schedule.kind == c.example.kind;
    const bool passes =
        TemplateOf(c.example.kind).walk == Walk::kPoints && c.schedule.kind == Template::kPointwise;
    const bool holds =
        c.example.kind == Template::kHeldColumns || c.example.kind == Template::kHeldTiles;
    const bool rows = holds && c.schedule.kind == Template::kRowReduction;
    CHECK((own || passes || rows));
    seen.insert(c.schedule.kind);
  }
  CHECK(seen.size() == KernelTemplates().size());
}

TEST_CASE("what is emitted has the launches that its template counts, one of them the main one") {
  const std::vector<KernelExample> examples = KernelExamples(DType::kBf16);
  for (const Case& c : Cases(examples)) {
    INFO(c.example.name << ", " << c.schedule.Print());
    const KernelTemplate& t = TemplateOf(c.schedule);
    const int64_t launches =
        LaunchesOf(c.example.ir, t.id, WorkspaceBytes(c.example.ir, c.schedule));
    const GroupKernels kernels =
        EmitGroup({.ir = c.example.ir, .schedule = c.schedule}, Dialect::kHost);
    CHECK(static_cast<int64_t>(kernels.launches.size()) == launches);
    int mains = 0;
    for (int64_t n = 0; n < launches; ++n) {
      mains += t.launch_kind(c.schedule, n, launches) == MainLaunch(c.schedule);
    }
    CHECK(mains == 1);
  }
}

TEST_CASE("a template that shares launches emits one launch where it parks nothing") {
  const std::vector<KernelExample> examples = KernelExamples(DType::kBf16);
  for (const Case& c : Cases(examples)) {
    if (!TemplateOf(c.schedule).shares_launches) continue;
    if (WorkspaceBytes(c.example.ir, c.schedule) > 0) continue;
    INFO(c.example.name << ", " << c.schedule.Print());
    CHECK(EmitGroup({.ir = c.example.ir, .schedule = c.schedule}, Dialect::kHost).launches.size() ==
          1);
  }
}

}  // namespace
}  // namespace retrograd
