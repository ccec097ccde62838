// `fusion-explain why` and `whatif`: why two ops share a kernel or don't, what would change that,
// and what a plan becomes under another choice.
#ifndef RETROGRAD_TOOLS_EXPLAIN_EXPLAIN_WHY_H_
#define RETROGRAD_TOOLS_EXPLAIN_EXPLAIN_WHY_H_

#include <optional>
#include <string>
#include <vector>

#include "fusion/whatif/counterfactuals.h"
#include "fusion/whatif/why.h"
#include "tools/support/pipeline.h"

namespace retrograd {

struct WhyAnswer {
  OpenedGraph opened;
  BackwardGraph lowered;
  Why why;
  std::optional<Decision> merge;  // both are matmuls, or parts of one, that could be one call
  std::optional<Flips> flips;     // if they were looked for
};

// `a` and `b` as FindPair takes them.
absl::StatusOr<WhyAnswer> AnswerWhy(const PlanArguments& arguments, absl::string_view a,
                                    absl::string_view b, bool look_for_flips, Progress* progress);

// At most 60 lines of at most 120 columns.
std::string WhyAsText(const WhyAnswer& answer, absl::string_view graph_name);
// Everything, times in picoseconds. Fields are only ever added.
inline constexpr int kWhyVersion = 1;
std::string WhyAsJson(const WhyAnswer& answer, absl::string_view graph_name);

// Two names of a pair, "A,B", and whether they must share a kernel or must not.
struct NamedChoice {
  std::string pair;
  bool together = false;
};

// The plan of a graph as given and the plan of `changed` under the choices, compared. Numbers of
// ops are those of the plan as given.
absl::StatusOr<std::string> AnswerWhatIf(const PlanArguments& given, const PlanArguments& changed,
                                         const std::vector<NamedChoice>& choices,
                                         Progress* progress);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXPLAIN_EXPLAIN_WHY_H_
