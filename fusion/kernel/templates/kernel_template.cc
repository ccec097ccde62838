#include "fusion/kernel/templates/kernel_template.h"

#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr const KernelTemplate* kTemplates[] = {
#define RG_TEMPLATE(NAME) &k##NAME##Template,
#include "fusion/kernel/templates/templates.def"
#undef RG_TEMPLATE
};

}  // namespace

absl::Span<const KernelTemplate* const> KernelTemplates() { return kTemplates; }

const KernelTemplate& TemplateOf(Template id) { return *kTemplates[static_cast<int>(id)]; }

absl::string_view Name(Template t) { return TemplateOf(t).name; }

int64_t LaunchesOf(const KernelIr& ir, const Schedule& s) {
  const KernelTemplate& t = TemplateOf(s);
  if (t.launches != nullptr) return t.launches(ir);
  return s.split > 1 ? 2 : 1;
}

int64_t MainLaunchNumber(const KernelIr& ir, const Schedule& s) {
  const KernelTemplate& t = TemplateOf(s);
  const int64_t launches = LaunchesOf(ir, s);
  int64_t n = 0;
  while (n + 1 < launches && t.launch_kind(s, n, launches) != t.main_launch(s)) ++n;
  return n;
}

Schedule WorkingLaunch(const KernelIr& ir, const Schedule& s) {
  const KernelTemplate& kind = TemplateOf(s);
  return kind.working_launch == nullptr ? s : kind.working_launch(ir, s);
}

// The template that takes most of what the IR's reductions fold, its scatter and the order of its
// loads into account.
Classification Classify(const KernelIr& ir) {
  const Folds folds = ReadFolds(ir);
  const absl::Span<const KernelTemplate* const> templates = KernelTemplates();
  for (size_t t = templates.size(); t-- > 0;) {
    if (std::optional<Classification> c = templates[t]->recognise(ir, folds)) return *std::move(c);
  }
  RG_CHECK(false && "row reductions and passes take what no other template does");
  return {};
}

int64_t LaunchesOf(const KernelIr& ir, Template id, int64_t workspace_bytes) {
  const KernelTemplate& t = TemplateOf(id);
  if (t.launches != nullptr) return t.launches(ir);
  return workspace_bytes > 0 ? 2 : 1;
}

}  // namespace retrograd
