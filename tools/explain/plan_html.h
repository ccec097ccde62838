// A plan as one HTML file that works without a network: its predicted timeline, and for each kernel
// its ops, price terms, source in each dialect and the fusions refused at its borders.
#ifndef RETROGRAD_TOOLS_EXPLAIN_PLAN_HTML_H_
#define RETROGRAD_TOOLS_EXPLAIN_PLAN_HTML_H_

#include <string>

#include "runtime/schedule/stream_schedule.h"
#include "tools/explain/explanation.h"

namespace retrograd {

// tools/explain/plan_view.html with the plan's data in it. What is large is bounded, so that the
// file stays below 10 MB (but for the ops, which are all there): the page says what was left out.
std::string ExplainAsHtml(const PlannedGraph& graph, const StreamSchedule& schedule,
                          const PeakMemory& memory, absl::string_view name);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXPLAIN_PLAN_HTML_H_
