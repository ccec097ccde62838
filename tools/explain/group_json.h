// Parts of a plan as JSON, for every document that holds some.
#ifndef RETROGRAD_TOOLS_EXPLAIN_GROUP_JSON_H_
#define RETROGRAD_TOOLS_EXPLAIN_GROUP_JSON_H_

#include <nlohmann/json.hpp>

#include "fusion/plan/plan.h"
#include "runtime/tuning/choice.h"

namespace retrograd {

// A kernel or library call with its ops, schedule and terms. `choices`: of calls' implementations,
// where they are known.
nlohmann::ordered_json GroupJson(const BackwardGraph& graph, const Group& group,
                                 const Choices& choices = {});

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXPLAIN_GROUP_JSON_H_
