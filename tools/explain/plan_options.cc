#include "tools/explain/plan_options.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/support/parse_arguments.h"

namespace retrograd {

void AddPlanOptions(CLI::App* command, PlanArguments* arguments, const std::string& spec_option,
                    const std::string& default_spec) {
  std::string features, limits;
  for (const Feature& f : kFeatures) absl::StrAppend(&features, " ", f.name);
  for (const Limit& l : kLimits) absl::StrAppend(&limits, " ", l.name);
  command->add_option("graph", arguments->graph, "A graph's file or a model's name")
      ->required()
      ->type_name("GRAPH");
  command
      ->add_option("--bind", arguments->bind,
                   "Numbers for the sizes that the graph leaves open, s0=1000,s1=64; default: the "
                   "hints that it was exported with")
      ->type_name("NAME=NUMBER,..");
  command
      ->add_option(spec_option, arguments->spec,
                   absl::StrCat("Device to plan for: ", absl::StrJoin(DeviceSpecNames(), ", "),
                                " or a .textproto file"))
      ->default_str(default_spec);
  command
      ->add_option("--disable", arguments->disable,
                   absl::StrCat("Switch off one of:", features, "; repeatable"))
      ->allow_extra_args(false);
  command
      ->add_option("--tighten", arguments->tighten,
                   absl::StrCat("Lower one of the limits:", limits, "; repeatable"))
      ->allow_extra_args(false);
  command->add_option("--max-memory", arguments->max_memory,
                      "Ceiling of the values alive at once, in bytes, KiB, MiB, GiB, MB or GB");
  command
      ->add_option("--set", arguments->set,
                   "Plan as if a number of the device were another: max_registers=128; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command->add_option("--feedback", arguments->feedback,
                      "What `retrograd kernels --compile --report` wrote: kernels that spill are "
                      "planned again");
  TakeSeeds(
      command->add_option("--random-plan", arguments->random_plan,
                          "Any legal plan, drawn by this seed, not 0, instead of the best one"),
      1);
}

void AddGraphChanges(CLI::App* command, PlanArguments* arguments) {
  command->add_option("--dtype", arguments->dtype,
                      "Plan as if every floating value were bf16, fp16, fp32 or fp64");
  command->add_option("--scale-rows", arguments->scale_rows,
                      "Plan as if the batch were so many times as large: 0.5, 2");
}

}  // namespace retrograd
