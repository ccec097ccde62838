// The options that every planning command takes.
#ifndef RETROGRAD_TOOLS_EXPLAIN_PLAN_OPTIONS_H_
#define RETROGRAD_TOOLS_EXPLAIN_PLAN_OPTIONS_H_

#include <string>

#include "runtime/executable/choose_spec.h"
#include "tools/support/pipeline.h"

namespace CLI {
class App;
}

namespace retrograd {

// GRAPH, --bind, the spec under the given option name, --disable, --tighten, --max-memory, --set,
// --feedback, --random-plan. `default_spec` is for the help text: what is planned for without the
// option.
void AddPlanOptions(CLI::App* command, PlanArguments* arguments, const std::string& spec_option,
                    const std::string& default_spec = std::string(kReferenceSpec));

// --dtype and --scale-rows: another graph, which is there to be planned and not to be run.
void AddGraphChanges(CLI::App* command, PlanArguments* arguments);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXPLAIN_PLAN_OPTIONS_H_
