// PlaceSteps: which group runs when, and on which stream.
//
// Time goes forward; whenever a stream is free it takes the most urgent group that is ready. Stream
// 0, the chain's, may take any. Side streams take what hardly anything waits for, such as weight
// gradients and their casts: every edge between streams costs time, and a chain that waits for a
// side stream loses what running beside it won.
#ifndef RETROGRAD_RUNTIME_SCHEDULE_PLACE_STEPS_H_
#define RETROGRAD_RUNTIME_SCHEDULE_PLACE_STEPS_H_

#include "fusion/plan/group_dag.h"
#include "fusion/plan/plan.h"
#include "graph/ir/backward_graph.h"
#include "runtime/schedule/neighbours.h"
#include "runtime/schedule/stream_schedule.h"

namespace retrograd {

// Steps with a wait on every edge between streams, implied ones too, and times as if an edge cost
// nothing.
StreamSchedule PlaceSteps(const BackwardGraph& graph, const FusionPlan& plan, const GroupDag& dag,
                          const Neighbours& neighbours, const ScheduleOptions& options, int streams,
                          ScheduleObjective objective);

// Predicts when the steps run, with their order, streams and waits as they are: a step that another
// stream waits for takes edge_ps longer.
void PredictTimes(const FusionPlan& plan, const Neighbours& neighbours, int64_t edge_ps,
                  StreamSchedule* schedule);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_SCHEDULE_PLACE_STEPS_H_
