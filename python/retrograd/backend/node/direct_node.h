// The node of autograd's graph that runs a compiled backward without Python.
#pragma once

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/utils/pybind.h>

#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ahead.h"
#include "direct_plan.h"
#include "host_times.h"
#include "leaves.h"
#include "plan_cache.h"
#include "saved_state.h"

namespace retrograd {

// What the calls of one compiled function share: the plans known so far, and who finds them.
class Binding {
 public:
  // learner: a Python object with begin(missing), called before a backward takes PyTorch's path,
  // and end(saved, tangents, used, gradients), called behind it, which returns a DirectPlan or
  // None. used: for each tangent, whether its result is differentiable. most, most_bytes: as
  // PlanCache has them.
  Binding(py::object learner, size_t most, size_t most_bytes)
      : plans_(most, most_bytes), learner_(Shared(std::move(learner))) {}

  std::shared_ptr<const DirectPlan> Find(const RunInputs& run) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return plans_.Find(run);
  }

  // Whether another look at PyTorch's path may find a plan.
  bool learns() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failures_ < kMostFailures;
  }
  // Whether there are plans, or may be some.
  bool hopeful() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failures_ < kMostFailures || plans_.size() > 0;
  }

  // plan: null where the run showed none.
  void Learned(const RunInputs& run, std::shared_ptr<DirectPlan> plan) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (plan == nullptr) {
      ++failures_;
    } else {
      plans_.Add(run, std::move(plan));
    }
  }

  py::handle learner() const { return learner_.get(); }
  size_t plans() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return plans_.size();
  }

 private:
  static constexpr int kMostFailures = 3;
  mutable std::mutex mutex_;
  PlanCache plans_;
  int failures_ = 0;
  std::shared_ptr<PyObject> learner_;
};

// While somebody watches runs, all take the path that Python sees.
inline std::atomic<bool> watched = false;
// Runs without Python, and gradients put into `.grad` by them, in this process.
inline std::atomic<int64_t> direct_runs = 0;
inline std::atomic<int64_t> direct_gradients = 0;
// Saved tensors that were let go between phases.
inline std::atomic<int64_t> let_go = 0;

class DirectNode : public Node {
 public:
  // In the place of another node, of this number.
  DirectNode(uint64_t sequence_nr, edge_list edges, std::unique_ptr<SavedState> state,
             std::shared_ptr<Binding> binding)
      : Node(sequence_nr, std::move(edges)),
        state_(std::move(state)),
        binding_(std::move(binding)) {}
  // As the newest node of the graph. state: to be given by Keep.
  DirectNode(edge_list edges, std::shared_ptr<Binding> binding)
      : Node(std::move(edges)), binding_(std::move(binding)) {}

  void Keep(std::unique_ptr<SavedState> state) { state_ = std::move(state); }

  std::string name() const override { return "RetrogradBackward"; }

  void release_variables() override {
    // Tensors that Python has seen go under its lock: taken once, not for each.
    const py::gil_scoped_acquire gil;
    if (state_ != nullptr) state_->Release();  // a forward that failed gave it none
    released_ = true;
  }

  variable_list apply(variable_list&& tangents) override {
    if (spent_) {
      throw std::runtime_error(
          "retrograd: this backward failed halfway, when it had let go of saved tensors; run the "
          "forward again");
    }
    if (released_ || watched || at::GradMode::is_enabled() ||
        c10::impl::TorchDispatchModeTLS::any_modes_set()) {
      return ByPython(std::move(tangents), /*learns=*/false);
    }
    Laps laps;
    AskForParameters(next_edges());
    Tensors saved = state_->Unpack(getptr());
    const std::shared_ptr<const DirectPlan> plan =
        binding_->Find({state_->sizes(), saved, tangents, Used()});
    if (plan == nullptr || plan->result_of_edge.size() != next_edges().size()) {
      return ByPython(std::move(tangents), binding_->learns(), saved);
    }
    laps.End(HostPart::kLookUp);
    return Directly(*plan, std::move(saved), tangents, laps);
  }

 private:
  // A gradient on its way to an edge.
  struct Gradient {
    int result = -1;
    AccumulateGrad* leaf = nullptr;  // that it goes to without autograd
    GradientRooms::Place place;
    at::Tensor tensor;
  };

  // For each tangent, whether its result is differentiable.
  std::vector<bool> Used() const {
    std::vector<bool> used;
    for (size_t i = 0; i < num_inputs(); ++i) {
      used.push_back(!input_metadata(i).was_default_constructed());
    }
    return used;
  }

  variable_list Directly(const DirectPlan& plan, Tensors saved, const Tensors& tangents,
                         Laps& laps) {
    const c10::OptionalDeviceGuard guard(plan.device);
    if (plan.before != nullptr) {
      const py::gil_scoped_acquire gil;
      py::handle(plan.before.get())();
    }
    const bool keeps = torch::autograd::get_current_graph_task_keep_graph();
    std::vector<Gradient> gradients(next_edges().size());
    const Destinations destinations(plan, keeps);
    std::vector<void*> outputs(plan.results.size(), nullptr);
    Tensors copies;
    const std::vector<const void*> inputs = InputsOf(plan, saved, tangents, copies);
    laps.End(HostPart::kPrepare);
    Run(plan, inputs, outputs, [&](uint32_t phase, auto make_blocks) {
      laps.Within(HostPart::kMemory, [&] {
        if (phase > 0 && !keeps) LetGo(plan.last_of_phase[phase - 1], saved);
        Place(plan, phase, destinations, gradients);
        Allocate(plan, phase, gradients, outputs);
        make_blocks();
      });
    });
    laps.End(HostPart::kIssue);
    spent_ = false;
    ++direct_runs;
    variable_list others = Distribute(std::move(gradients));
    laps.End(HostPart::kGradients);
    laps.Tell();
    return others;
  }

  // Of saved tensors that the run needs no longer: their memory is free in the order of the stream.
  void LetGo(const std::vector<size_t>& numbers, Tensors& saved) {
    const py::gil_scoped_acquire gil;  // as in release_variables
    for (const size_t number : numbers) {
      saved[number].reset();
      state_->LetGo(number);
      spent_ = true;
    }
    let_go += static_cast<int64_t>(numbers.size());
  }

  // What says whether gradients may go to their parameters here: in an ordinary backward() only, as
  // others ask autograd for some gradients, or walk the graph again.
  struct Destinations {
    Destinations(const DirectPlan& plan, bool keeps) {
      const auto* asked = torch::autograd::get_current_graph_task_exec_info();
      direct = (asked == nullptr || asked->empty()) && !keeps;
      if (plan.device.is_cpu()) return;
      stream = c10::impl::VirtualGuardImpl(plan.device.type()).getStream(plan.device);
    }
    bool direct = false;
    std::optional<c10::Stream> stream;
  };

  static bool Begins(const DirectPlan& plan, int result, uint32_t phase) {
    return result >= 0 && plan.result_first[static_cast<size_t>(result)] == phase;
  }

  // Where the gradients go that a phase is the first to write: by phase, so that the first one is
  // issued before the others' parameters are looked at.
  void Place(const DirectPlan& plan, uint32_t phase, const Destinations& destinations,
             std::vector<Gradient>& gradients) const {
    const long references = state_->references();
    for (size_t i = 0; i < gradients.size(); ++i) {
      const int result = plan.result_of_edge[i];
      if (!Begins(plan, result, phase)) continue;
      gradients[i].result = result;
      if (!destinations.direct) continue;
      gradients[i].leaf = DirectLeaf(next_edge(i), *plan.results[static_cast<size_t>(result)],
                                     references, destinations.stream);
    }
  }

  // Makes the tensors of the gradients that a phase is the first to write; those of parameters may
  // share allocations. outputs: their addresses by result.
  static void Allocate(const DirectPlan& plan, uint32_t phase, std::vector<Gradient>& gradients,
                       std::vector<void*>& outputs) {
    const auto begins = [&](const Gradient& gradient) {
      return Begins(plan, gradient.result, phase);
    };
    GradientRooms rooms(plan.memory);
    for (Gradient& gradient : gradients) {
      if (!begins(gradient)) continue;
      gradient.place =
          rooms.Reserve(plan.results[gradient.result]->bytes, gradient.leaf != nullptr);
    }
    rooms.Allocate();
    for (Gradient& gradient : gradients) {
      if (!begins(gradient)) continue;
      gradient.tensor = rooms.Make(*plan.results[gradient.result], gradient.place);
      outputs[gradient.result] = gradient.tensor.mutable_data_ptr();
    }
  }

  // Gives the parameters their gradients, and returns the others. The edges that are done go, so
  // that autograd does not visit their nodes: it releases this graph behind this call.
  variable_list Distribute(std::vector<Gradient> gradients) {
    Sums sums;
    edge_list edges;
    variable_list others;
    int64_t direct = 0;
    for (size_t i = 0; i < gradients.size(); ++i) {
      Gradient& gradient = gradients[i];
      if (gradient.leaf != nullptr) {
        sums.Put(*gradient.leaf, std::move(gradient.tensor));
        ++direct;
      } else {
        edges.push_back(next_edge(i));
        others.push_back(std::move(gradient.tensor));
      }
    }
    sums.Add();
    direct_gradients += direct;
    if (direct > 0) {
      state_->KeepEdges(edges);
      next_edges() = std::move(edges);
    }
    return others;
  }

  // The compiled function's own way, which raises PyTorch's errors.
  variable_list ByPython(variable_list&& tangents, bool learns, const Tensors& saved = {}) {
    const py::gil_scoped_acquire gil;
    if (!learns) return state_->ByPython(getptr(), std::move(tangents));
    const Tensors given = tangents;
    const std::vector<bool> used = Used();
    std::vector<size_t> missing;
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] && !given[i].defined()) missing.push_back(i);
    }
    binding_->learner().attr("begin")(missing);
    variable_list gradients;
    try {
      gradients = state_->ByPython(getptr(), std::move(tangents));
    } catch (...) {
      binding_->learner().attr("stop")();
      throw;
    }
    const py::object plan = binding_->learner().attr("end")(saved, given, used, gradients);
    binding_->Learned({state_->sizes(), saved, given, used},
                      plan.is_none() ? nullptr : plan.cast<std::shared_ptr<DirectPlan>>());
    return gradients;
  }

  std::unique_ptr<SavedState> state_;
  std::shared_ptr<Binding> binding_;
  bool released_ = false;
  bool spent_ = false;  // a run let go of saved tensors, and did not end
};

}  // namespace retrograd
