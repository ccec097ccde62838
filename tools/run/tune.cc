#include "tools/run/tune.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/executable/executable.h"
#include "tools/execute/make_executable.h"
#include "tools/execute/tuned_file.h"

namespace retrograd {
namespace {

constexpr int kInterruptedStatus = 130;  // as a shell tells of SIGINT

// What is found, kept in the part file as it grows, and told to whoever waits.
class Found {
 public:
  Found(std::string part, Choices known, double budget_s)
      : part_(std::move(part)), choices_(std::move(known)), budget_s_(budget_s) {}

  void Loads(size_t call, size_t calls) { call_ = call, calls_ = calls; }

  void Add(const ChoiceKey& key, const Choice& choice, bool measured, const Tuning& tuning) {
    choices_[key] = choice;
    used_.insert(key);
    if (!measured) return;
    measured_.insert(key);
    // What cannot be kept here is in the device's cache.
    if (const absl::Status kept = WriteChoices(part_, choices_); !kept.ok()) status_ = kept;
    std::fprintf(stderr, "[call %zu of %zu%s] %s: %s\n", call_ + 1, calls_, Left(tuning).c_str(),
                 key.kind.c_str(), Describe(choice).c_str());
  }

  const Choices& choices() const { return choices_; }
  size_t calls() const { return calls_; }
  size_t measured() const { return measured_.size(); }
  size_t known() const { return used_.size() - measured_.size(); }
  const absl::Status& status() const { return status_; }

 private:
  std::string Left(const Tuning& tuning) const {
    if (budget_s_ == 0) return "";
    return absl::StrFormat("; %.0f s left", std::max(tuning.LeftSeconds(), 0.0));
  }

  const std::string part_;
  Choices choices_;
  std::set<ChoiceKey> used_, measured_;
  const double budget_s_;
  size_t call_ = 0, calls_ = 0;
  absl::Status status_;
};

// What need not be measured: of the file that was given, then of a call that did not end.
absl::StatusOr<Choices> Known(const TuneArguments& arguments, const std::string& part) {
  Choices known;
  if (!arguments.from.empty()) {
    RG_ASSIGN_OR_RETURN(known, ReadChoices(arguments.from));
  }
  if (access(part.c_str(), F_OK) == 0) {
    RG_ASSIGN_OR_RETURN(const Choices begun, ReadChoices(part));
    Update(begun, known);
  }
  return known;
}

}  // namespace

absl::Status TuneOn(const TuneArguments& arguments, const DeviceChoices& device_choices,
                    const std::function<bool()>& interrupted) {
  const RunArguments& run = arguments.run;
  const std::string part = arguments.output + ".part";
  Progress progress;
  RG_ASSIGN_OR_RETURN(Choices known, Known(arguments, part));
  Found found(part, known, run.tuning_budget_s);
  Tuning* shared = nullptr;
  const auto tuning = std::make_shared<Tuning>(
      TuningOptions{.given = std::move(known),
                    .given_name = arguments.from.empty() ? part : arguments.from,
                    .of_tiles = true,
                    .budget_s = run.tuning_budget_s,
                    .found = [&](const ChoiceKey& key, const Choice& choice, bool measured) {
                      found.Add(key, choice, measured, *shared);
                    }});
  shared = tuning.get();
  DeviceChoices choices = device_choices;
  Share(tuning, choices);
  RG_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, MakeDevice(run.device, choices));
  if (device->choices() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is nothing to tune on ", run.device,
                     ": its library calls have one implementation each; --device cuda"));
  }
  RG_ASSIGN_OR_RETURN(const OpenedGraph graph, Open(run.plan, &progress, device.get()));
  ProgramOptions program;
  program.caller_workspace = true;
  program.loading = [&](size_t call, size_t calls) {
    found.Loads(call, calls);
    if (!interrupted || !interrupted()) return absl::OkStatus();
    return absl::CancelledError(absl::StrFormat(
        "interrupted at call %d of %d: the same command goes on from %s", call + 1, calls, part));
  };
  RG_RETURN_IF_ERROR(
      MakeExecutable(graph, run.plan.graph,
                     {.streams = run.streams, .most_phases = run.phases, .program = program},
                     *device, &progress)
          .status());
  for (const std::string& note : device->TakeNotes()) {
    std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  RG_RETURN_IF_ERROR(found.status());
  RG_RETURN_IF_ERROR(WriteChoices(arguments.output, found.choices()));
  unlink(part.c_str());
  std::printf("%s: %d library calls; %d choices measured, %d known before; %d in %s\n",
              run.plan.graph.c_str(), static_cast<int>(found.calls()),
              static_cast<int>(found.measured()), static_cast<int>(found.known()),
              static_cast<int>(found.choices().size()), arguments.output.c_str());
  return absl::OkStatus();
}

int TuneCommand(const TuneArguments& arguments) {
  static volatile std::sig_atomic_t interrupted = 0;
  // The second one ends the process, which loses nothing either.
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  absl::StatusOr<DeviceChoices> choices = DeviceChoicesOf(arguments.run);
  if (!choices.ok()) return Report("retrograd", choices.status());
  const absl::Status tuned = TuneOn(arguments, *choices, [] { return interrupted != 0; });
  if (tuned.ok()) return 0;
  const int status = Report("retrograd", tuned);
  return absl::IsCancelled(tuned) ? kInterruptedStatus : status;
}

}  // namespace retrograd
