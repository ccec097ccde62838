// A plan in the formats of other people's viewers.
#ifndef RETROGRAD_TOOLS_EXPLAIN_PLAN_EXPORT_H_
#define RETROGRAD_TOOLS_EXPLAIN_PLAN_EXPORT_H_

#include <string>

#include "runtime/schedule/stream_schedule.h"
#include "tools/support/pipeline.h"

namespace retrograd {

// The predicted timeline as Chrome-trace JSON, which Perfetto opens: a track for each stream, a
// slice for each kernel or library call, with its ops, terms and bytes as arguments.
std::string ExportPerfetto(const PlannedGraph& graph, const StreamSchedule& schedule);

// The fused graph for Graphviz: a cluster for each group, the ops in it, and what belongs to no
// group (inputs, constants, views) beside them.
std::string ExportDot(const PlannedGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXPLAIN_PLAN_EXPORT_H_
