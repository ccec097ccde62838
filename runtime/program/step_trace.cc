// A device that notes its own kernels does not know our steps. Each step is therefore run alone
// once, to see by which kernels it does its work; the kernels of a whole run must be these, and
// those of one name are its steps' in the order of issue.
#include "runtime/program/step_trace.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

using IssueFunction = absl::FunctionRef<absl::Status(const Command&)>;

bool IsWork(const Command& c) { return c.kind != Command::kWait && c.kind != Command::kRecord; }

// Commands [first, end), all of one group on one stream.
struct Piece {
  size_t first = 0, end = 0;
};

std::vector<Piece> PiecesOf(const std::vector<Command>& commands) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < commands.size(); ++i) {
    if (!IsWork(commands[i])) continue;
    const bool continues = i > 0 && !pieces.empty() && pieces.back().end == i &&
                           commands[i].kind == commands[i - 1].kind &&
                           commands[i].kind != Command::kCopy &&
                           commands[i].group == commands[i - 1].group;
    if (continues) {
      ++pieces.back().end;
    } else {
      pieces.push_back({i, i + 1});
    }
  }
  return pieces;
}

StepSpan SpanOf(const Command& first) {
  return {.group = first.kind == Command::kCopy ? kNoGroup : first.group, .stream = first.stream};
}

void StartAtZero(std::vector<StepSpan>* steps) {
  double zero = 0;
  for (size_t i = 0; i < steps->size(); ++i) {
    zero = i == 0 ? (*steps)[i].begin_us : std::min(zero, (*steps)[i].begin_us);
  }
  for (StepSpan& step : *steps) {
    step.begin_us -= zero;
    step.end_us -= zero;
  }
}

double Length(const std::vector<StepSpan>& steps) {
  double end = 0;
  for (const StepSpan& step : steps) end = std::max(end, step.end_us);
  return end;
}

std::vector<StepSpan> OfMedianLength(std::vector<std::vector<StepSpan>> runs) {
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return Length(a) < Length(b); });
  return std::move(runs[runs.size() / 2]);
}

// A run of the whole, by a recording of its own where the device records.
class WholeRun {
 public:
  WholeRun(Device* device, absl::FunctionRef<absl::Status()> issue_all)
      : device_(device), issue_all_(issue_all) {}

  absl::Status Record() {
    RG_RETURN_IF_ERROR(device_->BeginRecording());
    const absl::Status issued = issue_all_();
    absl::StatusOr<std::unique_ptr<Recording>> recording = device_->EndRecording(nullptr);
    RG_RETURN_IF_ERROR(issued);
    RG_RETURN_IF_ERROR(recording.status());
    recording_ = *std::move(recording);
    return absl::OkStatus();
  }
  absl::Status Run() { return recording_ == nullptr ? issue_all_() : device_->Replay(*recording_); }

 private:
  Device* device_;
  absl::FunctionRef<absl::Status()> issue_all_;
  std::unique_ptr<Recording> recording_;
};

// --- by what the device notes of itself

struct Kernels {
  std::vector<std::string> names;  // of all pieces, in order
  std::vector<size_t> count;       // by piece
};

absl::StatusOr<Kernels> KernelsOfPieces(const std::vector<Command>& commands,
                                        const std::vector<Piece>& pieces, IssueFunction issue,
                                        Device* device) {
  Kernels kernels;
  for (const Piece& piece : pieces) {
    for (size_t i = piece.first; i < piece.end; ++i) {
      Command alone = commands[i];
      alone.stream = 0;
      RG_RETURN_IF_ERROR(issue(alone));
    }
    RG_ASSIGN_OR_RETURN(const std::vector<TracedWork> work, device->TakeTrace());
    for (const TracedWork& w : work) kernels.names.push_back(w.name);
    kernels.count.push_back(work.size());
  }
  return kernels;
}

// Work by its name, in the order in which it was issued: on one stream it begins in that order,
// beside others its nodes are in that order. (Fills that a recording made kernels of are late
// nodes, but one is as good as another.)
absl::flat_hash_map<std::string, std::deque<TracedWork>> ByName(std::vector<TracedWork> work,
                                                                bool one_stream) {
  std::stable_sort(work.begin(), work.end(), [&](const TracedWork& a, const TracedWork& b) {
    return one_stream || a.node == b.node ? a.begin_us < b.begin_us : a.node < b.node;
  });
  absl::flat_hash_map<std::string, std::deque<TracedWork>> by_name;
  for (TracedWork& w : work) by_name[w.name].push_back(std::move(w));
  return by_name;
}

absl::StatusOr<std::vector<StepSpan>> SpansOf(const std::vector<Command>& commands,
                                              const std::vector<Piece>& pieces,
                                              const Kernels& kernels,
                                              std::vector<TracedWork> work) {
  if (work.size() != kernels.names.size()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "a run has %d kernels, its steps alone have %d", work.size(), kernels.names.size()));
  }
  const bool one_stream =
      std::all_of(commands.begin(), commands.end(), [](const Command& c) { return c.stream == 0; });
  auto by_name = ByName(std::move(work), one_stream);
  std::vector<StepSpan> steps;
  size_t next = 0;
  for (size_t p = 0; p < pieces.size(); ++p) {
    if (kernels.count[p] == 0) continue;  // nothing to do: an empty tensor
    StepSpan step = SpanOf(commands[pieces[p].first]);
    step.begin_us = std::numeric_limits<double>::infinity();
    for (size_t k = 0; k < kernels.count[p]; ++k, ++next) {
      std::deque<TracedWork>& left = by_name[kernels.names[next]];
      if (left.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("a run lacks a kernel of its steps: ", kernels.names[next]));
      }
      step.begin_us = std::min(step.begin_us, left.front().begin_us);
      step.end_us = std::max(step.end_us, left.front().end_us);
      left.pop_front();
    }
    steps.push_back(step);
  }
  StartAtZero(&steps);
  return steps;
}

absl::StatusOr<std::vector<StepSpan>> TraceByDevice(const CommandList& list, bool record,
                                                    int repetitions, IssueFunction issue,
                                                    WholeRun* whole, Device* device) {
  const std::vector<Piece> pieces = PiecesOf(list.commands);
  RG_RETURN_IF_ERROR(device->TakeTrace().status());
  RG_ASSIGN_OR_RETURN(const Kernels kernels, KernelsOfPieces(list.commands, pieces, issue, device));
  if (record) RG_RETURN_IF_ERROR(whole->Record());
  std::vector<std::vector<StepSpan>> runs;
  for (int i = 0; i <= repetitions; ++i) {
    RG_RETURN_IF_ERROR(whole->Run());
    RG_ASSIGN_OR_RETURN(std::vector<TracedWork> work, device->TakeTrace());
    if (i == 0) continue;  // caches, clocks and library are cold
    RG_ASSIGN_OR_RETURN(runs.emplace_back(),
                        SpansOf(list.commands, pieces, kernels, std::move(work)));
  }
  return OfMedianLength(std::move(runs));
}

// --- by marks between the steps

// Where a step's times are found among the marks.
struct MarkedStep {
  StepSpan step;
  int begin = 0, end = 0;
};

// Places marks while commands are issued: one after each step and, unless that of the step before
// on its stream will do, one before it.
class Marker {
 public:
  Marker(const CommandList& list, IssueFunction issue, Device* device)
      : commands_(list.commands),
        pieces_(PiecesOf(list.commands)),
        issue_(issue),
        device_(device) {}

  absl::Status Reserve() { return device_->ReserveMarks(2 * static_cast<int>(pieces_.size()) + 1); }

  absl::Status IssueAll() {
    marks_ = 0;
    steps_.clear();
    last_mark_.clear();
    size_t next = 0;
    for (size_t i = 0; i < commands_.size();) {
      if (next == pieces_.size() || i < pieces_[next].first) {
        last_mark_[commands_[i].stream] = -1;  // time may pass before what follows a wait
        RG_RETURN_IF_ERROR(issue_(commands_[i++]));
        continue;
      }
      MarkedStep marked{.step = SpanOf(commands_[i])};
      const int stream = marked.step.stream;
      const auto last = last_mark_.find(stream);
      marked.begin = last == last_mark_.end() ? -1 : last->second;
      if (marked.begin < 0) {
        marked.begin = marks_;
        RG_RETURN_IF_ERROR(device_->Mark(stream, marks_++));
      }
      for (; i < pieces_[next].end; ++i) {
        Command command = commands_[i];
        command.early = false;  // the mark stands between it and the launch before
        RG_RETURN_IF_ERROR(issue_(command));
      }
      marked.end = marks_;
      RG_RETURN_IF_ERROR(device_->Mark(stream, marks_++));
      last_mark_[stream] = marked.end;
      steps_.push_back(marked);
      ++next;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<StepSpan>> Read() const {
    std::vector<StepSpan> steps;
    if (marks_ == 0) return steps;
    RG_ASSIGN_OR_RETURN(const std::vector<double> times, device_->MarkTimes(marks_));
    for (const MarkedStep& marked : steps_) {
      StepSpan step = marked.step;
      step.begin_us = times[static_cast<size_t>(marked.begin)];
      step.end_us = times[static_cast<size_t>(marked.end)];
      steps.push_back(step);
    }
    StartAtZero(&steps);
    return steps;
  }

 private:
  const std::vector<Command>& commands_;
  const std::vector<Piece> pieces_;
  IssueFunction issue_;
  Device* device_;
  int marks_ = 0;
  std::vector<MarkedStep> steps_;
  std::map<int, int> last_mark_;  // by stream; -1: none that will do
};

absl::StatusOr<std::vector<StepSpan>> TraceByMarks(const CommandList& list, bool record,
                                                   int repetitions, IssueFunction issue,
                                                   Device* device) {
  Marker marker(list, issue, device);
  RG_RETURN_IF_ERROR(marker.Reserve());
  const auto issue_all = [&] { return marker.IssueAll(); };
  WholeRun whole(device, issue_all);
  if (record) RG_RETURN_IF_ERROR(whole.Record());
  std::vector<std::vector<StepSpan>> runs;
  for (int i = 0; i <= repetitions; ++i) {
    RG_RETURN_IF_ERROR(whole.Run());
    RG_RETURN_IF_ERROR(device->Synchronize());
    if (i == 0) continue;  // caches, clocks and library are cold
    RG_ASSIGN_OR_RETURN(runs.emplace_back(), marker.Read());
  }
  return OfMedianLength(std::move(runs));
}

}  // namespace

absl::StatusOr<StepTrace> TraceSteps(const CommandList& list, bool record, int repetitions,
                                     IssueFunction issue, Device* device) {
  record = record && device->records();
  StepTrace trace;
  const absl::Status watched = device->BeginTrace();
  if (watched.ok()) {
    const auto issue_all = [&]() -> absl::Status {
      for (const Command& command : list.commands) RG_RETURN_IF_ERROR(issue(command));
      return absl::OkStatus();
    };
    WholeRun whole(device, issue_all);
    absl::StatusOr<std::vector<StepSpan>> steps =
        TraceByDevice(list, record, repetitions, issue, &whole, device);
    device->EndTrace();
    if (steps.ok()) {
      trace.source = record ? "CUPTI, of a replayed recording" : "CUPTI";
      trace.steps = *std::move(steps);
      return trace;
    }
    trace.without = absl::StrCat("not by CUPTI: ", steps.status().message());
  } else if (!absl::IsUnimplemented(watched)) {
    trace.without = absl::StrCat("not by CUPTI: ", watched.message());
  }
  absl::StatusOr<std::vector<StepSpan>> steps =
      TraceByMarks(list, record, repetitions, issue, device);
  if (record && absl::IsUnimplemented(steps.status())) {  // the driver has no marks in recordings
    record = false;
    steps = TraceByMarks(list, record, repetitions, issue, device);
  }
  RG_ASSIGN_OR_RETURN(trace.steps, std::move(steps));
  trace.source = record              ? "events between the steps of a recording"
                 : device->records() ? "events between the steps"
                                     : "the clock between the steps";
  return trace;
}

}  // namespace retrograd
