#include "tools/execute/make_executable.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace retrograd {

absl::StatusOr<Executable> MakeExecutable(const OpenedGraph& opened, const std::string& name,
                                          ExecutableOptions options, Device& device,
                                          Progress* progress) {
  options.spec = ChosenSpec{opened.spec, opened.spec_text, opened.spec_note};
  options.plan = opened.options;
  options.progress = [&, also = std::move(options.progress)](ExecutableStage stage,
                                                             const DeviceSpec& spec) {
    progress->Step(stage == ExecutableStage::kPlan
                       ? absl::StrCat("planning ", name, " for ", spec.name)
                       : absl::StrCat("compiling the kernels of ", name));
    if (also) also(stage, spec);
  };
  return Executable::Make(opened.original, device, options);
}

}  // namespace retrograd
