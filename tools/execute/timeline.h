// The timeline that a stream schedule predicts beside the one that was measured, as text and as a
// trace that Perfetto and chrome://tracing open.
#ifndef RETROGRAD_TOOLS_EXECUTE_TIMELINE_H_
#define RETROGRAD_TOOLS_EXECUTE_TIMELINE_H_

#include <string>
#include <vector>

#include "runtime/program/compile.h"
#include "runtime/program/step_trace.h"

namespace retrograd {

inline constexpr int kTimelineRuns = 5;  // unless asked otherwise

// How a timeline's time is spent.
struct TimelineFigures {
  double total_us = 0;       // from the first begin to the last end
  double busy_us = 0;        // of it with a step running
  double idle_share = 0;     // of total_us with none
  double overlap_share = 0;  // of total_us, what steps took beside others
};
TimelineFigures FiguresOf(const std::vector<StepSpan>& steps);

struct Timeline {
  std::vector<StepSpan> predicted;
  StepTrace measured;
  double untraced_us = 0;  // a run of which only the whole was timed
  TimelineFigures predicted_figures, measured_figures;

  // A few lines of figures.
  std::string Print() const;
  // JSON: a process for each side, a track for each stream, a slice for each step.
  std::string ChromeTrace(const CompiledPlan& compiled) const;
};

Timeline MakeTimeline(const CompiledPlan& compiled, StepTrace measured, double untraced_us);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXECUTE_TIMELINE_H_
