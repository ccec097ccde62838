#include "tools/pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "graph/near_names.h"
#include "graph/status.h"
#include "models/models.h"

namespace retrograd {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(2);

// An error for a name that is not in the list, with those near it.
absl::Status CheckNames(absl::string_view option, const std::vector<std::string>& given,
                        const std::vector<absl::string_view>& known) {
  for (const std::string& name : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::vector<absl::string_view> near = NearNames(name, known);
    return absl::InvalidArgumentError(
        near.empty() ? absl::StrCat(option, " ", name, ": no such name; there are ",
                                    absl::StrJoin(known, ", "))
                     : absl::StrCat(option, " ", name, ": no such name; did you mean ",
                                    absl::StrJoin(near, ", "), "?"));
  }
  return absl::OkStatus();
}

}  // namespace

struct Progress::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::string step, printed;
  Clock::time_point begin = Clock::now(), step_begin = Clock::now();
  bool done = false;
  std::thread watcher;

  void PrintStep() {
    if (step.empty() || step == printed) return;
    std::fprintf(stderr, "%s ...\n", step.c_str());
    printed = step;
  }
  void Watch() {
    std::unique_lock<std::mutex> lock(mutex);
    wake.wait_until(lock, begin + kPatience, [this] { return done; });
    while (!done) {
      PrintStep();
      wake.wait(lock);
    }
  }
};

Progress::Progress() : state_(new State) {
  state_->watcher = std::thread([state = state_] { state->Watch(); });
}

Progress::~Progress() {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->done = true;
  }
  state_->wake.notify_all();
  state_->watcher.join();
  delete state_;
}

void Progress::Step(std::string what) {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->step = std::move(what);
    state_->step_begin = Clock::now();
  }
  if (Clock::now() - state_->begin >= kPatience) state_->wake.notify_all();
}

double Progress::Seconds() const {
  return std::chrono::duration<double>(Clock::now() - state_->step_begin).count();
}

absl::StatusOr<PlannedGraph> OpenAndPlan(const PlanArguments& arguments, Progress* progress) {
  std::vector<absl::string_view> features, limits;
  for (const Feature& feature : kFeatures) features.push_back(feature.name);
  for (const Limit& limit : kLimits) limits.push_back(limit.name);
  RG_RETURN_IF_ERROR(CheckNames("--disable", arguments.disable, features));
  RG_RETURN_IF_ERROR(CheckNames("--tighten", arguments.tighten, limits));

  PlannedGraph result;
  progress->Step(absl::StrCat("reading ", arguments.graph));
  RG_ASSIGN_OR_RETURN(result.original, OpenGraph(arguments.graph));
  RG_ASSIGN_OR_RETURN(result.spec, LoadDeviceSpec(arguments.spec));
  progress->Step(absl::StrCat("planning ", arguments.graph, " for ", result.spec.name));
  PlanOptions options;
  options.disable.insert(arguments.disable.begin(), arguments.disable.end());
  options.tighten.insert(arguments.tighten.begin(), arguments.tighten.end());
  options.search.random_seed = arguments.random_plan;
  options.random_schedules = arguments.random_plan;
  RG_ASSIGN_OR_RETURN(result.planned, PlanFusion(result.original, result.spec, options));
  return result;
}

int Report(absl::string_view tool, const absl::Status& status) {
  const std::string line =
      absl::StrReplaceAll(status.message(), {{"\n", " | "}, {"\r", " "}, {"\t", " "}});
  std::fprintf(stderr, "%s: %s\n", std::string(tool).c_str(), line.c_str());
  return 1;
}

}  // namespace retrograd
